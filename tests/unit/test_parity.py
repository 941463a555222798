"""Parity with `threading`: every method of its locks is there, with the same parameters and defaults."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent

pairs = pytest.mark.parametrize(
    ("theirs", "ours"),
    [(threading.Lock(), zkconcurrent.Lock), (threading.RLock(), zkconcurrent.RLock)],
    ids=["Lock", "RLock"],
)


@pairs
def test_every_method_is_there(theirs: Any, ours: type) -> None:
    """Our lock has all methods of the standard library's, private hooks of `threading.Condition` included."""
    missing = {name for name in dir(theirs) if not name.startswith("__")} - set(dir(ours))
    assert not missing


@pairs
@pytest.mark.parametrize("name", ["acquire", "release", "__enter__"])
def test_the_same_parameters(theirs: Any, ours: type, name: str) -> None:
    """The names, order and defaults of the parameters are the standard library's; our own come by keyword only."""
    python = {"acquire": threading._RLock.acquire, "release": threading._RLock.release}  # type: ignore[attr-defined]
    expected = inspect.signature(python.get(name, threading._RLock.release)).parameters  # type: ignore[attr-defined]
    got = inspect.signature(getattr(ours, name)).parameters
    same = [(p.name, p.default) for p in got.values() if p.kind is not p.KEYWORD_ONLY]
    assert same == [(p.name, p.default) for p in expected.values()]
    assert hasattr(theirs, name)


@pytest.mark.parametrize("name", ["Semaphore", "BoundedSemaphore"])
def test_semaphores(name: str) -> None:
    """They have the standard library's methods, with its parameters first; our own come by keyword only."""
    theirs, ours = getattr(threading, name), getattr(zkconcurrent, name)
    assert {each for each in dir(theirs) if not each.startswith("_")} <= set(dir(ours))
    for method in ("__init__", "acquire", "release", "__enter__"):
        expected = [(p.name, p.default) for p in inspect.signature(getattr(theirs, method)).parameters.values()]
        got = list(inspect.signature(getattr(ours, method)).parameters.values())
        own = [p for p in got if p.kind is not p.KEYWORD_ONLY and p.name not in ("client", "path")]
        if method != "__enter__":  # in threading it is acquire itself, whose arguments no `with` passes
            assert [(p.name, p.default) for p in own] == expected


@pytest.mark.parametrize("name", [name for name in dir(threading.Condition) if not name.startswith("_")])
def test_a_condition_has_the_same_methods(name: str) -> None:
    """Every public method of `threading.Condition` is there, with the same parameters."""
    expected = inspect.signature(getattr(threading.Condition, name)).parameters
    got = inspect.signature(getattr(zkconcurrent.Condition, name)).parameters
    assert [(p.name, p.default) for p in got.values()] == [(p.name, p.default) for p in expected.values()]


@pairs
def test_a_surplus_argument_is_a_type_error(theirs: Any, ours: type) -> None:
    """Constructors take what the standard library's take, after the client and the path; extras by keyword only."""
    with pytest.raises(TypeError):
        ours(None, "/app/lock", 1)
    assert type(theirs).__name__.lower() == ours.__name__.lower()


@pytest.mark.parametrize("name", ["is_set", "isSet", "set", "clear", "wait"])
def test_an_event_is_threadings(name: str) -> None:
    """An Event has the public methods of the standard library's, with the same parameters and defaults."""
    assert {each for each in dir(threading.Event) if not each.startswith("_")} <= set(dir(zkconcurrent.Event))
    theirs, ours = (inspect.signature(getattr(each, name)).parameters for each in (threading.Event, zkconcurrent.Event))
    assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in theirs.values()]


def test_a_multilock_acquires_as_a_lock() -> None:
    """A MultiLock's `acquire` has the parameters and defaults of the standard library's."""
    parameters = inspect.signature(zkconcurrent.MultiLock.acquire).parameters
    assert [(p.name, p.default) for p in parameters.values()][1:] == [("blocking", True), ("timeout", -1)]


@pytest.mark.fault(385)
def test_a_lock_of_a_programs_class_that_counts_as_false() -> None:
    """A condition has the lock that it was given, whatever `bool()` says of that."""

    class Own(zkconcurrent.RLock):
        def __bool__(self) -> bool:
            return self.hold_count() > 0

    lock = Own(client := KazooClient(), "/lock")
    assert zkconcurrent.Condition(client, "/condition", lock)._lock is lock
