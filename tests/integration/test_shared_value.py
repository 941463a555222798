"""Shared values on a real ZooKeeper: set, compared and updated once, waited for and watched by all processes."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import waits
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import JSON, TEXT, AtomicReference, ForeignNodeError, RefusedError, SharedValue, VersionedValue


def test_every_change(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """All clients see one value and its version; the first use makes the node, with the first value."""
    mine, theirs = (SharedValue(each, zk_path, {"n": 0}, codec=JSON) for each in (zk, connect()))
    assert zk.exists(zk_path) is None
    assert mine.get() == ({"n": 0}, 0)
    assert zk.get(zk_path)[0] == b'{"n":0}'
    theirs.set([1, "x"])
    value, version = seen = mine.get()
    assert (value, version) == ([1, "x"], 1)
    assert theirs.compare_and_set(seen, None)
    assert not mine.compare_and_set(seen, "late")
    assert mine.get() == VersionedValue(None, 2)
    assert mine.update(lambda old: [old, 1]) == [None, 1]
    assert theirs.get().value == [None, 1]
    assert AtomicReference is SharedValue


def test_what_a_comparison_is_given(zk: KazooClient, zk_path: str) -> None:
    """It takes what `get` returned; another value of the same version is another, and anything else an error."""
    shared = SharedValue(zk, zk_path, "a", codec=TEXT)
    _, version = shared.get()
    assert not shared.compare_and_set(("b", version), "c")
    assert shared.compare_and_set(("a", version), "c")
    for wrong in ("c", 1, ("c",), ("c", "1"), None):
        with pytest.raises(TypeError, match="what get"):
            shared.compare_and_set(wrong, "d")  # type: ignore[arg-type]
    for wrong in (b"x", None, 1):
        with pytest.raises(TypeError, match="must be a str"):
            shared.set(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            SharedValue(zk, f"{zk_path}-x", wrong, codec=TEXT)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="codec"):
        SharedValue(zk, f"{zk_path}-x", "", codec=str)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="all must give the same"):
        SharedValue(zk, zk_path, "b", codec=TEXT)
    assert shared.get().value == "c"


@pytest.mark.fault(366)
@pytest.mark.threads_only("Python makes another error of StopIteration in a coroutine")
def test_values_whose_comparison_calls_back(zk: KazooClient, zk_path: str) -> None:
    """Their `==` may use the library, also this value, and the caller gets its error, also StopIteration."""
    shared, other = (SharedValue(zk, f"{zk_path}/{name}", 0, codec=JSON) for name in "ab")

    class Equal:
        def __init__(self, act: Callable[[], object]) -> None:
            self.act = act

        def __eq__(self, _: object) -> bool:
            self.act()
            return True

        __hash__ = None  # type: ignore[assignment]

    none: Iterator[Any] = iter(())
    old: Any = Equal(lambda: next(none))
    with pytest.raises(StopIteration):
        shared.compare_and_set((old, 0), 1)
    old = Equal(lambda: (shared.get(), other.update(lambda n: n + 1)))
    assert shared.compare_and_set((old, 0), 1)
    old = Equal(lambda: shared.set(2))
    assert not shared.compare_and_set((old, 1), 3)
    assert (shared.get(), other.get().value) == ((2, 2), 1)


@pytest.mark.fault(367)
def test_a_codec_that_salts(zk: KazooClient, zk_path: str) -> None:
    """It encodes a value to other bytes each time; objects with the same first value are still one."""

    class Salted:
        def encode(self, item: int, /) -> bytes:
            return f"{uuid.uuid4().hex} {item}".encode()

        def decode(self, data: bytes, /) -> int:
            return int(data.split()[1])

    mine, theirs = (SharedValue(zk, zk_path, 7, codec=Salted()) for _ in range(2))
    assert mine.compare_and_set(theirs.get(), 8)
    assert theirs.update(lambda old: old + 1) == 9
    others: list[tuple[Any, Any]] = [(6, Salted()), ({}, JSON)]
    for value, codec in others:
        with pytest.raises(ValueError, match="all must give the same"):
            SharedValue(zk, zk_path, value, codec=codec)
    assert mine.get().value == 9


def test_bad_arguments(zk: KazooClient, zk_path: str) -> None:
    """A predicate that can't be called, and a codec that makes no bytes, are refused before anything is sent."""
    codec: Any = SimpleNamespace(encode=lambda value: value, decode=bytes)
    shared: Any = SharedValue(zk, zk_path, bytearray(b"a"), codec=codec)
    for wrong in ("b", None, 5):
        with pytest.raises(TypeError, match=f"{zk_path}.* must encode to bytes, not {type(wrong).__name__}"):
            shared.set(wrong)
        with pytest.raises(TypeError, match=f"{zk_path}.* must encode to bytes, not {type(wrong).__name__}"):
            SharedValue(zk, f"{zk_path}-x", wrong, codec=codec)
        with pytest.raises(TypeError, match="must be callable"):
            shared.wait_for(wrong)
    assert zk.exists(zk_path) is None
    assert shared.get() == (b"a", 0)


def test_too_large(zk: KazooClient, zk_path: str) -> None:
    """A value that no request has room for is refused before it is sent; one that has just room is written."""
    shared = SharedValue(zk, zk_path, b"")
    with pytest.raises(RefusedError, match="room for"):
        shared.set(bytes(2_000_000))
    with pytest.raises(RefusedError, match="room for"):
        shared.update(lambda _: bytes(2_000_000))
    with pytest.raises(RefusedError, match="room for"):
        SharedValue(zk, f"{zk_path}-x", bytes(2_000_000))
    shared.set(bytes(990_000))
    assert len(shared.get().value) == 990_000


def test_wait_for(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A wait ends once its predicate is true of the value, and returns what that said; in time if it never is."""
    mine, theirs = (SharedValue(each, zk_path, 0, codec=JSON) for each in (zk, connect()))
    waiting = [in_thread(each.wait_for, lambda n: n >= 3 and f"{n}!") for each in (mine, theirs)]
    eventually(lambda: waits(mine) and waits(theirs))
    for n in (1, 2):
        theirs.set(n)
    assert mine.wait_for(lambda n: n > 5, 0.05) is False
    assert mine.wait_for(lambda n: n > 5, 0) is False
    assert mine.wait_for(lambda n: n == 2, 0) is True
    assert not any(each.done() for each in waiting)
    theirs.set(3)
    assert [each.result(20) for each in waiting] == ["3!"] * 2
    with pytest.raises(ZeroDivisionError):
        mine.wait_for(lambda n: n // 0)
    assert not [ticket for ticket in mine._session.registry.tickets.values() if ticket.awaits]


@pytest.mark.threads_only("a task iterates with `async for`")
def test_watch(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The iterator begins with the present value; the last one is never passed over; it ends after its timeout."""
    mine, theirs = (SharedValue(each, zk_path, 0, codec=JSON) for each in (zk, connect()))
    watching = mine.watch()
    assert next(watching) == (0, 0)
    following = in_thread(next, watching)
    eventually(lambda: waits(mine))
    theirs.set(1)
    assert following.result(20) == (1, 1)
    for n in range(2, 10):
        theirs.set(n)
    assert next(watching) == (9, 9)
    assert list(theirs.watch(timeout=0.05)) == [(9, 9)]
    with pytest.raises(OverflowError):
        theirs.watch(timeout=1e300)
    theirs.destroy()
    assert next(watching) == (0, 0)  # made anew


@pytest.mark.fault(467)
@pytest.mark.threads_only("takes a lock of threads, which would block the loop")
def test_a_codec_that_takes_a_lock_of_the_caller(
    connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Another thread applies a comparison together with its own change, and does not call the codec for it.

    The caller has the codec's lock, and so would that thread wait for it.
    """
    local = threading.RLock()

    class Locking:
        def encode(self, value: int, /) -> bytes:
            with local:
                return b"%d" % value

        def decode(self, data: bytes, /) -> int:
            with local:
                return int(data)

    shared = SharedValue(connect(hosts=proxy.hosts, **FAST), zk_path, 0, codec=Locking())
    shared.set(1)
    turn = shared._path_state.turn
    with proxy.hold("multi") as held:
        calls = [in_thread(shared.set, 2)]
        held.wait()
        calls.append(in_thread(shared.set, 3))
        eventually(lambda: len(turn.pending) == 2)

        def compare() -> bool:
            with local:
                return shared.compare_and_set((3, 3), 4)

        calls.append(in_thread(compare))
        eventually(lambda: len(turn.pending) == 3)
    assert [each.result(20) for each in calls] == [None, None, True]
    assert shared.get().value == 4


def test_what_is_no_values(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A value that the codec can't decode is its error, until another one is set."""
    shared = SharedValue(connect(), zk_path, 0, codec=JSON)
    zk.create(zk_path, b"{")
    for call in (shared.get, lambda: shared.update(lambda old: old), lambda: shared.wait_for(bool)):
        with pytest.raises(ForeignNodeError, match=f"b'{{', which the codec zkconcurrent.JSON can't .*{zk_path}"):
            call()
    shared.set(5)
    assert shared.get() == (5, 1)


@pytest.mark.fault(236)
@pytest.mark.parametrize("data", [b"0 set", b"3 clear", b"2 count", b"fifo 0 open", b"dict persistent"])
def test_an_initial_value_like_the_data_of_another_kind(
    zk: KazooClient, connect: Connect, zk_path: str, data: bytes
) -> None:
    """A value that was only read is known as a value, whatever its data; another kind's node is refused."""
    assert SharedValue(zk, zk_path, data).get().value == data
    assert SharedValue(connect(), zk_path, data).get().value == data
    assert SharedValue(zk, f"{zk_path}-wait", data).wait_for(lambda value: value == data, timeout=0)
    SharedValue(connect(), f"{zk_path}-wait", data).set(b"x")
    zk.create(f"{zk_path}-other", data)
    with pytest.raises(ForeignNodeError):
        SharedValue(zk, f"{zk_path}-other", data).get()
