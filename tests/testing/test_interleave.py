"""`interleave`: the same choices give the same order, and a call that waits for a lock is known as such."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from zkconcurrent.testing import MemoryServer, interleave, pause


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[KazooClient, KazooClient]]:
    """Two processes, so to say."""
    with zkconcurrent.connect("memory:interleave") as one, zkconcurrent.connect("memory:interleave") as other:
        yield one, other


def noted(name: str, notes: list[str], times: int = 3) -> Callable[[], str]:
    """Return a call that pauses some times."""

    def call() -> str:
        for n in range(times):
            pause()
            notes.append(f"{name}{n}")
        return name

    return call


def chosen(order: str) -> Callable[[Sequence[int]], int]:
    """Choose by a text of indexes; then the first."""
    left = list(order)
    return lambda ready: int(left.pop(0)) if left else ready[0]


def test_the_order_is_chosen() -> None:
    """One thread at a time goes on, from pause to pause; the first step of each is up to its first pause."""
    notes: list[str] = []
    assert interleave(chosen("01010110"), [noted("a", notes), noted("b", notes)]) == ["a", "b"]
    assert notes == ["a0", "b0", "a1", "b1", "b2", "a2"]


def test_a_lock_excludes(clients: tuple[KazooClient, KazooClient], zk_path: str) -> None:
    """A call that waits for a lock is not ready, whatever is chosen; once it is granted, it goes on to its pause."""
    locks = [zkconcurrent.RLock(client, zk_path) for client in (*clients, clients[0])]
    for seed in range(10):
        notes: list[str] = []

        def held(n: int, notes: list[str] = notes) -> None:
            with locks[n]:
                noted(str(n), notes)()

        interleave(random.Random(seed).choice, [lambda n=n: held(n) for n in range(3)], locks)  # type: ignore[misc]
        order = [each[0] for each in notes]
        assert order == sorted(order, key=order.index)


def test_a_deadlock_is_found(clients: tuple[KazooClient, KazooClient], zk_path: str) -> None:
    """Two calls that take two locks in different orders: the error says so, and nothing is left."""
    a, b = ([zkconcurrent.RLock(client, f"{zk_path}-{name}") for client in clients] for name in "ab")

    def both(first: zkconcurrent.RLock, second: zkconcurrent.RLock) -> None:
        with first:
            pause()
            with second:
                pause()

    calls, every = [lambda: both(a[0], b[0]), lambda: both(b[1], a[1])], [*a, *b]
    with pytest.raises(RuntimeError, match="wait for each other"):
        interleave(chosen("01"), calls, every)
    assert interleave(chosen("00"), calls, every) == [None, None]
    assert not any(lock.locked() for lock in every)


def test_a_loss_is_a_step(zk_path: str) -> None:
    """Of two calls, one loses the lock in its block, and the other gets it; in whichever order."""
    with MemoryServer() as server, server.client() as one, server.client() as other:
        locks = [zkconcurrent.RLock(one, zk_path), zkconcurrent.RLock(other, zk_path)]

        def held(n: int) -> str:
            try:
                with locks[n]:
                    pause()
            except zkconcurrent.LockLostError:
                return "lost"
            return "held"

        calls = [lambda: held(0), lambda: held(1), lambda: server.expire(one)]
        assert interleave(chosen("0120"), calls, locks) == ["lost", "held", None]
        assert interleave(chosen("1021"), calls, locks) == ["held", "held", None]


def test_a_choice_that_is_none() -> None:
    """A call that can't go on, as its place in the list, is refused: before, the test hung."""
    notes: list[str] = []
    with pytest.raises(ValueError, match=r"one of the indexes that it is given, \[1\], not 0"):
        interleave(lambda _: 0, [noted("a", notes), noted("b", notes)])
    assert notes == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_an_interrupt_while_a_call_hangs() -> None:
    """Ctrl-C ends it, whatever the calls still wait for."""
    go, went = threading.Event(), list[bool]()

    def interrupted(_: Sequence[int]) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interleave(interrupted, [lambda: went.append(go.wait(60))])
    assert went == []
    go.set()


def test_what_is_no_lock(clients: tuple[KazooClient, KazooClient], zk_path: str) -> None:
    """A lock whose waiters nobody can ask for is refused before a call begins."""
    several = zkconcurrent.MultiLock([zkconcurrent.Lock(clients[0], zk_path)])
    for wrong in (threading.Lock(), several, zkconcurrent.ReadWriteLock(clients[0], f"{zk_path}-rw")):
        with pytest.raises(TypeError, match="name the locks that it consists of"):
            interleave(chosen(""), [lambda: pytest.fail("it runs")], [wrong])
