"""The page on parity against the real `threading` and `asyncio`: no name is left out, and each is as the page says."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import zkconcurrent
from zkconcurrent import aio

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "parity.md").read_text()
CLASSES = ["Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier"]
OF_ASYNCIO = [name for name in CLASSES if hasattr(asyncio, name)]  # no RLock; a Barrier since 3.11
# Written in C, without a signature; theirs in Python has one.
IN_PYTHON = {"Lock": threading._RLock, "RLock": threading._RLock}  # type: ignore[attr-defined]


def rows(section: str) -> Iterator[tuple[str, str, str, str]]:
    """Return the lines of a table: each name, its parameters as the page has them, what it says of it, and the note."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    for line in re.findall(r"^\| `.*\|$", text, re.MULTILINE):
        names, said, note = (cell.strip() for cell in line.strip("|").split("|"))
        for name, parameters in re.findall(r"`(\w+)(\(.*?\))?`", names):
            yield name, parameters, said, note


def names_of(cls: str) -> set[str]:
    """Return what a class of `threading` has, and `object` has not; slots that all classes fill are not listed."""
    theirs = getattr(threading, cls)
    theirs = theirs if isinstance(theirs, type) else type(theirs())
    return {name for name in dir(theirs) if not name.startswith("__")} | ({"__enter__", "__exit__"} & set(dir(theirs)))


def parameters_of(cls: type, name: str) -> str:
    """Return the parameters that may be given by position, as the page writes them."""
    given = [
        f"{each.name}={each.default}" if each.default is not each.empty else each.name
        for each in inspect.signature(getattr(cls, name)).parameters.values()
        if each.name != "self" and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    return f"({', '.join(given)})"


def check(name: str, said: str, note: str, *, there: bool, here: bool) -> None:
    """Hold a row against both libraries."""
    assert there or re.search(r"since 3\.\d+", note), f"{name} is not in the standard library"
    assert said in ("same", "differs", "absent")
    assert here is (said != "absent"), f"{name} is said to be {said}"
    assert said == "same" or note, f"{name} {said}: the page must say how, or why"


def test_the_module() -> None:
    """Every public name of the module has a row, and each row is true."""
    listed = {name: (said, note) for name, _, said, note in rows("The module")}
    assert set(threading.__all__) <= set(listed)
    for name, (said, note) in listed.items():
        ours = name in zkconcurrent.__all__ or "the standard library's own" in note or "`RuntimeError`" in note
        check(name, said, note, there=name in threading.__all__, here=ours)
    assert threading.ThreadError is RuntimeError


@pytest.mark.parametrize("cls", CLASSES)
def test_a_class(cls: str) -> None:
    """Every method of the class has a row, and each row is true: it is there or not, with those parameters."""
    theirs, ours = IN_PYTHON.get(cls, getattr(threading, cls)), getattr(zkconcurrent, cls)
    listed = {name: (parameters, said, note) for name, parameters, said, note in rows(cls)}
    # `threading.Condition` takes over the methods of its lock in its constructor.
    instance = set(vars(threading.Condition())) if cls == "Condition" else set()
    there = names_of(cls) | {name for name in instance if name in ("acquire", "release")}
    assert there <= set(listed)
    for name, (parameters, said, note) in listed.items():
        check(name, said, note, there=name in there, here=hasattr(ours, name))
        if parameters:
            assert parameters == parameters_of(ours, name)
            if hasattr(theirs, name):
                assert parameters == parameters_of(theirs, name)


def test_what_threading_has_not() -> None:
    """Every name that the page calls ours exists, and is nowhere in `threading`."""
    text = PAGE.split("\n## Beyond threading\n")[1].split("\n## ")[0]
    ours = [getattr(zkconcurrent, name) for name in zkconcurrent.__all__ if name[0].isupper()]
    for name in re.findall(r"`(\w+)(?:\(\))?`", text):
        assert name in zkconcurrent.__all__ or any(hasattr(cls, name) for cls in ours)
        assert not hasattr(threading, name)


LOCKS = ["Lock", "RLock"]
SEMAPHORES = ["Semaphore", "BoundedSemaphore"]
VALUES = ["AtomicLong", "AtomicInteger", "SharedValue"]
ROW_OF = {
    "locks": LOCKS,
    "locks and semaphores": [*LOCKS, *SEMAPHORES],
    "locks, read and write locks": LOCKS,
    "semaphores": SEMAPHORES,
    "semaphores, events, barriers, latches, numbers, values": [
        *SEMAPHORES,
        "Event",
        "Barrier",
        "CountDownLatch",
        *VALUES,
    ],
    "queues": ["Queue", "LifoQueue", "PriorityQueue", "DelayQueue", "SimpleQueue"],
    "Dict": ["Dict"],
    "Set": ["Set"],
}


@pytest.mark.parametrize("on", ROW_OF)
def test_what_a_row_adds(on: str) -> None:
    """Each method and attribute that a row adds is one of each class that the row is of."""
    found = re.findall(rf"^\| {on} \| (.*) \|$", PAGE.split("\n## asyncio\n")[0], re.MULTILINE)
    names = re.findall(r"`(\w+)(?:\([^`]*\))?`", " ".join(found))
    assert names
    assert [(cls, name) for cls in ROW_OF[on] for name in names if not hasattr(getattr(zkconcurrent, cls), name)] == []


@pytest.mark.parametrize(("column", "cls"), [(1, "AtomicLong"), (1, "AtomicInteger"), (2, "SharedValue")])
def test_numbers_and_values(column: int, cls: str) -> None:
    """The columns of the table have each method and attribute of their classes, and no other."""
    table = PAGE.split("\n## Numbers and values\n")[1].split("\n## ")[0]
    cells = [line.strip("|").split(" | ")[column] for line in re.findall(r"^\|.*\|$", table, re.MULTILINE)[2:]]
    listed = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", " ".join(cells)))
    assert listed == {name for name in dir(getattr(zkconcurrent, cls)) if not name.startswith("_")}


def test_the_module_asyncio() -> None:
    """Every lock and queue of asyncio has a row, and each row is true."""
    listed = {name: (said, note) for name, _, said, note in rows("asyncio")}
    names = {*asyncio.locks.__all__, *asyncio.queues.__all__}
    assert names <= set(listed)
    for name, (said, note) in listed.items():
        here = name in aio.__all__ or "the standard library's own" in note
        check(name, said, note, there=hasattr(asyncio, name), here=here)


@pytest.mark.parametrize("cls", OF_ASYNCIO)
def test_a_class_of_asyncio(cls: str) -> None:
    """Every method of the class has a row, and each row is true: a coroutine or plain, and its parameters."""
    theirs, ours = getattr(asyncio, cls), getattr(aio, cls)
    instance = {"acquire", "release", "locked"} & set(vars(asyncio.Condition())) if cls == "Condition" else set[str]()
    there = {name for name in dir(theirs) if not name.startswith("_")} | instance
    there |= {"__aenter__", "__aexit__"} & set(dir(theirs))
    listed = {name: (parameters, said, note) for name, parameters, said, note in rows(f"asyncio.{cls}")}
    assert there == set(listed)
    for name, (parameters, said, note) in listed.items():
        here = hasattr(ours, name) or name in instance  # made by the constructors of both
        check(name, said, note, there=name in there, here=here)
        if name in instance:
            continue
        assert inspect.iscoroutinefunction(getattr(ours, name)) == inspect.iscoroutinefunction(getattr(theirs, name))
        if parameters:
            assert parameters == parameters_of(theirs, name)
            more = parameters_of(ours, name).removeprefix(parameters.removesuffix(")"))
            assert more == ")" or said == "differs"


def test_a_condition_of_asyncio_has_the_methods_of_its_lock() -> None:
    """Our conditions take over the same methods of a lock as the constructors of asyncio's conditions."""
    assigned = set(re.findall(r"self\.(\w+): Final = self\._lock\.\1", inspect.getsource(aio.Condition.__init__)))
    assert {name for name in vars(asyncio.Condition()) if not name.startswith("_")} <= assigned


def test_what_asyncio_has_not() -> None:
    """Every name that the page calls ours exists, and is nowhere in asyncio's locks."""
    text = PAGE.split("\n## Beyond asyncio\n")[1]
    ours = [getattr(aio, name) for name in aio.__all__ if name[0].isupper()]
    for name in re.findall(r"`(\w+)(?:\(\))?`", text):
        assert name in aio.__all__ or any(hasattr(cls, name) for cls in ours)
        assert not hasattr(asyncio, name)
        assert not any(hasattr(getattr(asyncio, cls), name) for cls in OF_ASYNCIO)
