"""Shared values on a real ZooKeeper: set, compared and updated once, waited for and watched by all processes."""

from __future__ import annotations

import uuid

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import waits
from tests.helpers.eventually import eventually
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
    for wrong in ("c", ("c",), ("c", "1"), None):
        with pytest.raises(TypeError, match="what get"):
            shared.compare_and_set(wrong, "d")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a str"):
        shared.set(b"x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="all must give the same"):
        SharedValue(zk, zk_path, "b", codec=TEXT)
    assert shared.get().value == "c"


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
    with pytest.raises(ValueError, match="all must give the same"):
        SharedValue(zk, zk_path, 6, codec=Salted())


def test_too_large(zk: KazooClient, zk_path: str) -> None:
    """A value that no request has room for is refused before it is sent; one that has just room is written."""
    shared = SharedValue(zk, zk_path, b"")
    with pytest.raises(RefusedError, match="room for"):
        shared.set(bytes(2_000_000))
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
@pytest.mark.parametrize("data", [b"0 set", b"fifo 0 open"])
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
