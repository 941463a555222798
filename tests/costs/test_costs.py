"""The cost table: what each operation sends, counted on the wire by a proxy; never in time.

Heartbeats and pings are left apart. `flights` are the round trips that somebody waited for; the proxy delays each way
a little, so that what is pipelined is seen to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, Eventually, InThread
from tests.kinds import AnyLock, Kind, against, every, reentrant
from tests.tools.count import Count
from tests.tools.proxy import Proxy
from zkconcurrent import Barrier, Lock, ReadWriteLock
from zkconcurrent.testing import Server


@pytest.fixture
def proxy(zookeeper: Server) -> Iterator[Proxy]:
    """A proxy that delays by 3 ms each way."""
    with Proxy(zookeeper.hosts) as proxy:
        proxy.delay(0.003)
        yield proxy


@pytest.fixture
def counted(connect: Connect, proxy: Proxy) -> Iterator[KazooClient]:
    """A client whose requests are counted."""
    return connect(hosts=proxy.hosts)


def answered(count: Count, name: str, n: int = 1) -> Callable[[], bool]:
    """Return a condition: n requests of a name were answered. A waiter's watch is set then, and not when it is sent."""
    return lambda: sum(each.kind == "answer" and each.name == name for each in list(count.trace)) >= n


def warm(lock: AnyLock) -> None:
    """Use the path once, so that its parents are there."""
    lock.acquire()
    lock.release()


@every
def test_uncontended(kind: Kind, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """Acquire: one write and one read, pipelined in one round trip. Release: one write, one round trip."""
    lock = kind(counted, zk_path)
    warm(lock)
    with proxy.counting() as acquiring:
        lock.acquire()
    assert acquiring.requests == {"create2": 1, "getChildren": 1}
    assert acquiring.flights == 1
    with proxy.counting() as releasing:
        lock.release()
    assert releasing.requests == {"delete": 1}
    assert releasing.flights == 1


@reentrant
def test_reentrant(kind: Kind, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """To acquire again, and to release that, sends nothing."""
    lock = kind(counted, zk_path)
    with lock, proxy.counting() as count:
        for _ in range(3):
            lock.acquire()
        for _ in range(3):
            lock.release()
    assert not count.requests


@every
def test_a_failing_try(kind: Kind, zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A try of a held lock: two reads, pipelined in one round trip, and no write."""
    lock = kind(counted, zk_path)
    with against(kind)(zk, zk_path), proxy.counting() as count:
        assert not lock.acquire(blocking=False)
    assert count.requests == {"sync": 1, "getChildren": 1}
    assert count.flights == 1


@every
def test_a_try_that_succeeds(kind: Kind, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A try of a free lock: one write, three reads, two round trips."""
    lock = kind(counted, zk_path)
    warm(lock)
    with proxy.counting() as count:
        assert lock.acquire(blocking=False)
    lock.release()
    assert count.requests == {"sync": 1, "getChildren": 2, "create2": 1}
    assert count.flights == 2


@every
def test_contended(
    kind: Kind,
    zk: KazooClient,
    counted: KazooClient,
    proxy: Proxy,
    zk_path: str,
    eventually: Eventually,
    in_thread: InThread,
) -> None:
    """Until it waits: one write, two reads, two round trips. Handed over by another process: one event, one listing."""
    mine, theirs = against(kind)(zk, zk_path), kind(counted, zk_path)
    mine.acquire()
    with proxy.counting() as until_waiting:
        waiting = in_thread(lambda: theirs.acquire() and theirs.release())
        eventually(answered(until_waiting, "getData"))
    assert until_waiting.requests == {"create2": 1, "getChildren": 1, "getData": 1}
    assert until_waiting.flights == 2
    with proxy.counting() as handed_over:
        mine.release()
        waiting.result(10)
    assert handed_over.requests == {"getChildren": 1, "delete": 1}
    assert sum(handed_over.events.values()) == 1
    assert handed_over.flights == 2


def test_hand_over_between_threads(
    counted: KazooClient, proxy: Proxy, zk_path: str, eventually: Eventually, in_thread: InThread
) -> None:
    """Between threads of one process, a release is one delete, and the next goes on without any request."""
    lock = Lock(counted, zk_path)
    lock.acquire()
    with proxy.counting() as until_waiting:
        waiting = in_thread(lock.acquire)
        eventually(answered(until_waiting, "getData"))
    with proxy.counting() as handed_over:
        lock.release()
        assert waiting.result(10)
    assert handed_over.requests == {"delete": 1}
    lock.release()


def test_one_release_wakes_one(
    zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, eventually: Eventually, in_thread: InThread
) -> None:
    """However many wait, a release of another process wakes exactly one of them, who lists once."""
    held, lock = Lock(zk, zk_path), Lock(counted, zk_path)
    held.acquire()
    n = 20
    with proxy.counting() as until_waiting:
        waiting = [in_thread(lock.acquire) for _ in range(n)]
        eventually(answered(until_waiting, "getData", n))
    assert until_waiting.requests == {"create2": n, "getChildren": n, "getData": n}
    with proxy.counting() as count:
        held.release()
        eventually(lambda: any(each.done() for each in waiting))
    assert count.requests == {"getChildren": 1}
    assert sum(count.events.values()) == 1
    for left in range(n, 0, -1):
        eventually(lambda left=left: sum(each.done() for each in waiting) == n - left + 1)
        lock.release()


def test_a_first_use_makes_the_parents(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """On a path never used, the parents are made in one more round trip, as containers."""
    lock = Lock(counted, f"{zk_path}/lock")
    with proxy.counting() as count:
        lock.acquire()
    lock.release()
    assert count.requests == {"create2": 2, "getChildren": 2, "createContainer": 2}
    assert count.flights == 3


def test_readers_do_not_wait_for_each_other(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A reader among readers: one write and one read in one round trip, as if it were alone."""
    lock = ReadWriteLock(counted, zk_path).read_lock
    with ReadWriteLock(zk, zk_path).read_lock, proxy.counting() as count:
        lock.acquire()
        lock.release()
    assert count.requests == {"create2": 1, "getChildren": 1, "delete": 1}
    assert count.flights == 2


def test_downgrade(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """To read while writing, and to give up writing: one write each, one round trip each, whoever waits."""
    pair = ReadWriteLock(counted, zk_path)
    pair.write_lock.acquire()
    with proxy.counting() as reading:
        pair.read_lock.acquire()
    assert reading.requests == {"multi": 1}
    assert reading.flights == 1
    with proxy.counting() as leaving:
        pair.write_lock.release()
    pair.read_lock.release()
    assert leaving.requests == {"delete": 1}
    assert leaving.flights == 1


def test_whom_a_writer_wakes(
    zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, eventually: Eventually, in_thread: InThread
) -> None:
    """A writer's release wakes the readers up to the next writer, each of which lists once; not the writer."""
    held, pair, n = ReadWriteLock(zk, zk_path).write_lock, ReadWriteLock(counted, zk_path), 5
    held.acquire()
    with proxy.counting() as until_waiting:
        readers = [in_thread(lambda: pair.read_lock.acquire() and pair.read_lock._mine()) for _ in range(n)]
        eventually(answered(until_waiting, "getData", n))
        writer = in_thread(lambda: pair.write_lock.acquire() and pair.write_lock.release())
        eventually(answered(until_waiting, "getData", n + 1))
        late = in_thread(lambda: pair.read_lock.acquire() and pair.read_lock.release())
        eventually(answered(until_waiting, "getData", n + 2))
    with proxy.counting() as count:
        held.release()
        holds = [reader.result(10) for reader in readers]
    assert count.requests == {"getChildren": n}
    assert sum(count.events.values()) == 1
    with proxy.counting() as last:
        for hold in holds:  # by their threads' leave: they are gone
            pair.read_lock._give_up(hold)
        writer.result(10)
        late.result(10)
    assert not any(last.requests[name] for name in ("create2", "sync"))


def test_a_barrier(
    zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, eventually: Eventually, in_thread: InThread
) -> None:
    """To come: one write, three reads, two round trips; to wait, two reads; to trip, a multi; to go, a delete."""
    here, there = Barrier(counted, zk_path, 3), Barrier(zk, zk_path, 3)

    def meet() -> None:
        waiting = [in_thread(there.wait)]
        eventually(lambda: there.n_waiting == 1)
        with proxy.counting() as until_waiting:
            waiting.append(in_thread(here.wait))
            eventually(answered(until_waiting, "getData", 3))
        assert until_waiting.requests == {"sync": 1, "getData": 3, "multi": 1, "getChildren": 1}
        assert until_waiting.flights == 3
        with proxy.counting() as passing:
            assert there.wait(10) == 2
            for future in waiting:
                future.result(10)
        assert passing.requests == {"getData": 2, "delete": 1}
        assert passing.flights == 2
        eventually(lambda: not zk.get_children(f"{zk_path}/{there._view.state.generation - 1:010d}"))  # type: ignore[union-attr]

    meet()
    meet()
    with proxy.counting() as first:
        waiting = in_thread(here.wait)
        eventually(lambda: there.n_waiting == 1)
        eventually(answered(first, "getChildren", 3))
    assert first.requests == {"sync": 1, "getData": 3, "multi": 1, "getChildren": 3, "delete": 1}
    with proxy.counting() as another:
        others = [in_thread(there.wait)]
        eventually(answered(another, "getChildren"))
    assert another.requests == {"getData": 2, "getChildren": 1}
    with proxy.counting() as passing:
        others.append(in_thread(there.wait))
        assert sorted(each.result(10) for each in (*others, waiting)) == [0, 1, 2]
    assert passing.requests["multi"] == passing.requests["sync"] == 0
    with proxy.counting() as tripping:
        others = [in_thread(there.wait) for _ in range(2)]
        eventually(lambda: there.n_waiting == 2)
        here.wait(10)
    assert tripping.requests == {"sync": 1, "getData": 1, "getChildren": 1, "multi": 2, "create": 1, "delete": 1}
    assert tripping.flights == 4


def test_a_barriers_questions(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """`broken` is two reads in one round trip, `n_waiting` three in two; to abort or reset, a write in one more."""
    barrier = Barrier(counted, zk_path, 2)
    barrier.reset()
    with proxy.counting() as broken:
        assert not barrier.broken
    assert (broken.requests, broken.flights) == ({"sync": 1, "getData": 1}, 1)
    with proxy.counting() as waiting:
        assert barrier.n_waiting == 0
    assert (waiting.requests, waiting.flights) == ({"sync": 1, "getData": 1, "getChildren": 1}, 2)
    for change in (barrier.abort, barrier.reset):
        with proxy.counting() as changing:
            change()
        assert (changing.requests, changing.flights) == ({"sync": 1, "getData": 1, "setData": 1}, 2)
