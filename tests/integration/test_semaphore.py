"""Semaphores on a real ZooKeeper: permits in several processes, losses, what all agree on, and the znodes behind it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import NODE, children, permits_awaited, permits_out, queued
from tests.helpers.eventually import eventually
from tests.helpers.losses import expire
from zkconcurrent import BoundedSemaphore, ForeignNodeError, Lock, LockLostError, Semaphore
from zkconcurrent._arguments.limits import most_together
from zkconcurrent._arguments.paths import LONGEST
from zkconcurrent.testing import Server

both = pytest.mark.parametrize("kind", [Semaphore, BoundedSemaphore])
Lose = Callable[[Server, Semaphore], None]


def operate(server: Server, semaphore: Semaphore) -> None:
    """Have an operator delete the lease nodes, all at once: else a heartbeat in between misses some of them only."""
    lost = semaphore.lost
    with server.client() as operator, operator.transaction() as deletes:
        for name in operator.get_children(f"{semaphore.path}/leases"):
            deletes.delete(f"{semaphore.path}/leases/{name}")
    assert lost.wait(20)


@both
def test_the_znodes_are_curators(kind: type[Semaphore], zk: KazooClient, zk_path: str) -> None:
    """A permit is one EPHEMERAL_SEQUENTIAL node with Curator's name under `leases`; the queue is empty again."""
    semaphore = kind(zk, zk_path, 3)
    assert semaphore.acquire(permits=2)
    names = zk.get_children(f"{zk_path}/leases")
    assert [match[1] for match in map(NODE.match, names) if match] == ["lease-"] * 2
    stats = [zk.get(f"{zk_path}/leases/{name}")[1] for name in names]
    assert {stat.ephemeralOwner for stat in stats} == {zk.client_id[0]}
    assert {stat.czxid for stat in stats} == {semaphore.fencing_token}
    assert queued(zk, f"{zk_path}/locks", 0)()
    data, stat = zk.get(f"{zk_path}/permits")
    assert (data, stat.ephemeralOwner) == (b"3", 0)
    semaphore.release(2)
    assert sorted(zk.get_children(zk_path)) == ["leases", "locks", "permits"]
    assert queued(zk, f"{zk_path}/leases", 0)()


def test_a_try_waits_for_those_who_pass_through(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """With enough for those ahead and for us, a try waits for them; with too few it fails, and writes nothing."""
    semaphore = Semaphore(connect(timeout=30), zk_path, 3)  # a third of that is the time of a try
    with semaphore:
        pass
    other = connect()
    said = json.dumps({"host": "h", "pid": 1, "thread": "t", "permits": 2, "try": False}).encode()
    ahead = other.create(f"{zk_path}/locks/_c_0-lock-", said, ephemeral=True, sequence=True)
    assert not semaphore.acquire(blocking=False, permits=2)
    trying = in_thread(semaphore.acquire, blocking=False)
    eventually(permits_awaited(zk, zk_path, 2))
    assert not trying.done()
    other.delete(ahead)
    assert trying.result(10)
    semaphore.release()


def test_tries_do_not_fail_each_other(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """As many tries at once as there are permits all succeed, and of more, just as many."""
    clients = [connect(timeout=30), connect(timeout=30)]  # a third of that is the time of a try
    for tries, expected in ((4, 4), (7, 4)):
        semaphores = [Semaphore(clients[n % 2], zk_path, 4) for n in range(tries)]
        together = threading.Barrier(tries)

        def attempt(semaphore: Semaphore, together: threading.Barrier = together) -> bool:
            together.wait(10)
            return semaphore.acquire(blocking=False)

        futures = [in_thread(attempt, semaphore) for semaphore in semaphores]
        assert sum(future.result(20) for future in futures) == expected
        for future, semaphore in zip(futures, semaphores, strict=True):
            if future.result():
                semaphore.release()
        eventually(permits_out(zk, zk_path, 0))


def test_a_mismatch_of_values(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """All must say the same value; the first call of an object with another value is told both, and leaves nothing."""
    with Semaphore(zk, zk_path, 3):
        other = Semaphore(connect(timeout=30), zk_path, 2)
        for call in (other.acquire, lambda: other.acquire(False), lambda: other.acquire(timeout=20), other.release):
            with pytest.raises(ValueError, match=r"value=3.*value=2") as caught:
                call()
            assert zk_path in str(caught.value)
        with pytest.raises(ValueError, match="value=3"):
            other.locked()
        eventually(permits_awaited(zk, zk_path, 0))


def test_signals(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Semaphore(0): permits that one process adds, others take, once; they outlive the client that added them."""
    adder = connect()
    one, other = Semaphore(adder, zk_path, 0), Semaphore(zk, zk_path, 0)
    assert not other.acquire(blocking=False)
    taking = [in_thread(other.acquire) for _ in range(3)]
    eventually(permits_awaited(zk, zk_path, 3))
    one.release(2)
    eventually(lambda: sum(each.done() for each in taking) == 2)
    assert "value=2" in repr(one)
    eventually(permits_awaited(zk, zk_path, 1))
    one.release()
    for each in taking:
        assert each.result(10)
    one.release()
    adder.stop()
    assert other.acquire(timeout=5)
    assert "value=0" in repr(other)
    other.release(4)
    assert "value=4" in repr(other)


def test_release_of_more_than_is_held(zk: KazooClient, zk_path: str) -> None:
    """A semaphore gives back the held permits and adds the rest; a bounded one raises, and gives back nothing."""
    semaphore, bounded = Semaphore(zk, zk_path, 2), BoundedSemaphore(zk, zk_path + "-b", 2)
    for each in (semaphore, bounded):
        assert each.acquire(permits=2)
    with pytest.raises(ValueError, match="released too many times"):
        bounded.release(3)
    assert permits_out(zk, bounded.path, 2)()
    bounded.release(2)
    with pytest.raises(ValueError, match="released too many times"):
        bounded.release()
    with pytest.raises(ValueError, match="at most value=2 "):
        bounded.acquire(permits=3)
    semaphore.release(3)
    assert permits_out(zk, zk_path, 0)()
    assert semaphore.acquire(blocking=False, permits=3)
    assert not semaphore.acquire(blocking=False)
    semaphore.release(3)


@pytest.mark.parametrize("lose", [expire, operate])
def test_a_loss_is_told_and_settled(
    lose: Lose, zookeeper: Server, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """`lost` is set, on_lost runs once, each permit of one's own that is lost is settled first, and once."""
    told: list[object] = []
    semaphore = Semaphore(connect(timeout=4), zk_path, 3, on_lost=told.append)
    semaphore.acquire(permits=2)
    token, theirs = semaphore.fencing_token, Semaphore(zk, zk_path, 3)
    waiting = in_thread(lambda: (theirs.acquire(permits=2), theirs.fencing_token, theirs.release(2)))
    eventually(permits_awaited(zk, zk_path, 1))
    lose(zookeeper, semaphore)
    assert waiting.result(20)[1] > token
    eventually(lambda: told == [semaphore])
    eventually(permits_out(zk, zk_path, 0))
    eventually(lambda: semaphore.hold_count() == 0)  # it has learnt of the second node, too
    with pytest.raises(LockLostError, match=r"release\(\)"):
        semaphore.acquire()
    with pytest.raises(LockLostError):
        _ = semaphore.fencing_token
    assert in_thread(semaphore.acquire).result(20)
    for _ in range(2):
        with pytest.raises(LockLostError):
            semaphore.release()
    # Only then one that another thread has taken.
    assert permits_out(zk, zk_path, 1)()
    semaphore.release()
    assert semaphore.acquire(timeout=10, permits=3)
    assert semaphore.fencing_token > token
    assert not semaphore.lost.is_set()
    assert not semaphore.acquire(blocking=False)
    semaphore.release(3)
    assert children(zk, f"{zk_path}/permits") == []
    assert len(told) == 1


def test_who_holds_and_who_waits(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The owner is the contender that has had a permit longest; the waiters are told in their order."""
    mine, theirs = Semaphore(zk, zk_path), Semaphore(connect(), zk_path)
    assert mine.owner() is None
    with mine:
        taking = in_thread(lambda: theirs.acquire() and theirs.release())
        eventually(permits_awaited(zk, zk_path, 1))
        owner, (waiter,) = theirs.owner(), mine.waiters()
        assert owner is not None
        assert (owner.session, owner.token) == (zk.client_id[0], mine.fencing_token)
        assert owner.first_seen_holding is not None
        assert (waiter.session, waiter.thread is None) == (theirs.client.client_id[0], False)
        more = in_thread(lambda: theirs.acquire() and theirs.release())
        eventually(permits_awaited(zk, zk_path, 2))
        assert (owner.position, [each.position for each in mine.waiters()]) == (0, [1, 2])
    taking.result(10)
    more.result(10)


@pytest.mark.fault(60)
@both
def test_destroy_looks_first(kind: type[Semaphore], zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Nodes that are no semaphore's are an error, and all of them stay: an application may use the same names."""
    semaphore = kind(connect(), zk_path, 3)
    for name in ("permits", "locks", "leases"):
        zk.create(f"{zk_path}/{name}", b"an application's", makepath=True)
    zk.create(f"{zk_path}/permits/admin")
    with pytest.raises(ForeignNodeError, match="application"):
        semaphore.destroy()
    zk.set(f"{zk_path}/permits", b"3")
    with pytest.raises(ForeignNodeError, match="admin"):
        semaphore.destroy()
    zk.delete(f"{zk_path}/permits/admin")
    with pytest.raises(ForeignNodeError, match="locks"):
        semaphore.destroy()
    assert len(zk.get_children(zk_path)) == 3
    for name in ("locks", "leases"):
        zk.set(f"{zk_path}/{name}", b"")
    semaphore.destroy()
    assert children(zk, zk_path) == []
    assert not semaphore._session.registry.tickets


@pytest.mark.fault(21, 66)
@pytest.mark.parametrize("folder", ["locks", "leases"])
def test_what_is_no_contender_is_refused(folder: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A child that is not sequential, as of a path below, neither waits nor takes a permit: an error."""
    semaphore = Semaphore(zk, zk_path, 2)
    with Lock(connect(), f"{zk_path}/{folder}/orders"):
        pass
    for call in (semaphore.acquire, lambda: semaphore.acquire(blocking=False), semaphore.locked):
        with pytest.raises(ForeignNodeError, match=r"'orders'.*nest"):
            call()
    assert not semaphore._session.registry.tickets
    zk.delete(f"{zk_path}/{folder}/orders")
    with semaphore:
        assert queued(zk, f"{zk_path}/leases", 1)()


@pytest.mark.fault(74)
@pytest.mark.threads_only("looks for the line of the caller")
def test_more_permits_than_there_are(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """To wait for more permits than there are is warned of at once; not if enough were added."""
    semaphore, other = Semaphore(zk, zk_path, 2), Semaphore(connect(), zk_path, 2)
    with pytest.warns(RuntimeWarning, match=r"3 permits.*2") as warned:
        assert not semaphore.acquire(timeout=0.2, permits=3)
    assert warned[0].filename == __file__
    with pytest.raises(RuntimeWarning):  # a filter makes an error of it: nothing was done
        semaphore.acquire(permits=3)
    assert not children(zk, f"{zk_path}/locks")
    assert not semaphore.acquire(blocking=False, permits=3)  # a call that only tries is told so
    other.release()
    assert semaphore.acquire(permits=3)
    semaphore.release(3)


@pytest.mark.fault(50, 493)
@pytest.mark.parametrize("length", [390, LONGEST])
@pytest.mark.threads_only("names the thread that calls; tasks run on another one")
def test_many_permits_at_once(length: int, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """As many as one call may ask for are had, whatever the path, the label and the thread's name, as JSON has it."""
    path = f"{zk_path}/{'x' * (length - len(zk_path) - 1)}"
    semaphore, most = Semaphore(connect(timeout=30), path, 10_000, label="l" * 60), most_together(path)
    thread = threading.current_thread()
    before, thread.name = thread.name, "\N{GRINNING FACE}" * 80
    try:
        assert (most == 1000) == (length < LONGEST)
        with Lock(semaphore.client, f"{zk_path}-lock") as held:  # the client keeps its connection
            assert held
            assert semaphore.acquire(timeout=60, permits=most)
            (name, *_) = leases = zk.get_children(f"{path}/leases")
            assert len(leases) == most
            assert json.loads(zk.get(f"{path}/leases/{name}")[0])["thread"].startswith("\N{GRINNING FACE}" * 19)
            semaphore.release(most)
    finally:
        thread.name = before
