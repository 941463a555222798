"""Each class of `aio` against its twin for threads: no public name, and no parameter, is missing without a reason."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.helpers import kinds
from zkconcurrent import aio

TWINS = sorted(
    name
    for name in aio.__all__
    if isinstance(getattr(aio, name), type)
    and hasattr(zkconcurrent, name)
    and name not in ("Claim", "Held", "Term", "Membership", "Lost")  # made by others; an event of the listeners
)
QUEUES = ("Queue", "LifoQueue", "PriorityQueue", "DelayQueue")
ALIAS = "an old name of threading's, which asyncio never had"
BY_THE_LOOP = "asyncio's has none: a party can act after its `wait`, and `wait` takes a timeout"
NEVER_WAITS = "that of `aio` is a plain function, and the end of a block does not await it"
BY_THE_PAIR = "only `ReadWriteLock` makes one"
OF_A_LOCK = [*inspect.signature(zkconcurrent.Lock).parameters]
# Names that `aio` lacks, by class, or by class and method.
MISSING: dict[str, dict[str, str]] = {
    "Lock": {"acquire_lock": ALIAS, "release_lock": ALIAS, "locked_lock": ALIAS},
    "Condition": {"notifyAll": ALIAS},
    "Event": {"isSet": ALIAS},
    "Namespace": {"SimpleQueue": "asyncio has none"},
    "Barrier.__init__": {"action": BY_THE_LOOP, "timeout": BY_THE_LOOP},
    **{f"{name}.release": {"wait": NEVER_WAITS} for name in ("Lock", "RLock", "ReadLock", "WriteLock")},
    **{f"{name}.hold": {"wait_release": NEVER_WAITS} for name in ("Lock", "RLock", "ReadLock", "WriteLock")},
    "synchronized.__init__": {"wait_release": NEVER_WAITS},
    "Namespace.Barrier": {"action": BY_THE_LOOP, "timeout": BY_THE_LOOP},
    "ReadLock.__init__": dict.fromkeys(OF_A_LOCK, BY_THE_PAIR),
    **{name: {"is_shutdown": "asyncio's has none; a property would have to wait for the reply"} for name in QUEUES},
    **{
        f"{name}.{call}": {"block": "asyncio's has none: `get_nowait`, `put_nowait`"}
        for name in QUEUES
        for call in ("get", "put")
    },
    "WriteLock.__init__": dict.fromkeys(OF_A_LOCK, BY_THE_PAIR),
}
# Names that `aio` alone has, beside `async with`.
MORE = {
    "Dict": {"put", "delete"},  # `d[key] = value` and `del d[key]` can't be awaited
    "Condition": {"locked", "fetch_locked"},  # asyncio's has `locked`
}
OTHERS: dict[str, Callable[[Any, KazooClient], Any]] = {
    "Namespace": lambda package, client: package.namespace(client, "/twin"),
    "synchronized": lambda package, client: package.synchronized(client, "/twin"),
    "once_per": lambda package, client: package.once_per(client, "/twin", 1),
}


def make(package: Any, name: str) -> Any:
    """Make an object of a class, of a client that never starts."""
    if name in OTHERS:
        return OTHERS[name](package, KazooClient())
    return kinds.make(package, name, KazooClient(), "/twin")


def public(made: object) -> set[str]:
    """Return the public names of an object, which its constructor may have given it."""
    return {name for name in dir(made) if not name.startswith("_")}


def parameters(cls: type, method: str) -> set[str]:
    """Return the names of a method's parameters."""
    return set(inspect.signature(getattr(cls, method)).parameters)


@pytest.mark.parametrize("name", TWINS)
def test_names(name: str) -> None:
    """Every public name of the threads' object is there; a name that is not, or is there alone, is listed."""
    theirs, ours = public(make(zkconcurrent, name)), public(make(aio, name))
    # What a thread reads from the leader, a task fetches: a property can't wait for the reply.
    fetched = {f"fetch_{each}" for each in theirs} & ours | ({"fetch"} & ours if "is_set" in theirs else set())
    read = {each for each in theirs if f"fetch_{each}" in fetched}
    assert theirs - ours - read == set(MISSING.get(name, {}))
    assert ours - theirs - fetched == MORE.get(name, set())


def methods(name: str) -> list[str]:
    """Return what both classes of a pair have, and a program calls."""
    theirs, ours = getattr(zkconcurrent, name), getattr(aio, name)
    both = ["__init__", *sorted(public(theirs) & public(ours))]
    return [method for method in both if callable(getattr(theirs, method))]


@pytest.mark.parametrize("name", TWINS)
def test_parameters(name: str) -> None:
    """Every parameter of the threads' methods is there; a parameter that is not is listed."""
    theirs, ours = getattr(zkconcurrent, name), getattr(aio, name)
    missing = {method: parameters(theirs, method) - parameters(ours, method) for method in methods(name)}
    assert missing == {method: set(MISSING.get(f"{name}.{method}", {})) for method in methods(name)}


def test_what_a_multilock_lacks() -> None:
    """A MultiLock has no one path or client, in either package, and `hasattr` says so."""
    for package in (zkconcurrent, aio):
        several = make(package, "MultiLock")
        assert not hasattr(several, "path")
        assert not hasattr(several, "client")
        assert [lock.path for lock in several.locks] == ["/twin"]
