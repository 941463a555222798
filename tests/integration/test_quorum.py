"""A quorum of locks as one, on several real servers, some of them dead, slow or killed while it is held."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import held_elsewhere, queued
from tests.helpers.eventually import eventually
from tests.helpers.losses import expire
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    ClientError,
    Condition,
    Lock,
    LockLostError,
    MultiLock,
    QuorumLock,
    ReadWriteLock,
    RLock,
    Semaphore,
    WaitCancelledError,
)
from zkconcurrent._protocol.rules import MUTEX
from zkconcurrent._threads import quorum as quorums
from zkconcurrent._threads.base.lock_base import core_of
from zkconcurrent._threads.joint_lock import HoldDepths
from zkconcurrent.testing import Server

HOLDER = """
import sys
from kazoo.client import KazooClient
from zkconcurrent import Lock, QuorumLock
path, *services = sys.argv[1:]
clients = [KazooClient(hosts, timeout=4) for hosts in services]
for client in clients:
    client.start()
QuorumLock([Lock(client, path) for client in clients]).acquire()
print("held", flush=True)
sys.stdin.read()
"""


def reached(clients: list[KazooClient]) -> None:
    """Wait until all clients are connected."""
    for client in clients:
        eventually(lambda client=client: client.connected)


def alive(lock: Any) -> int:
    """Return how many of its locks a held QuorumLock has."""
    return sum(each.hold_count() for each in lock.locks)


def test_what_it_is_made_of(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """More than half of one lock or more, of which no two are one; nothing is sent."""
    pair = ReadWriteLock(zk, f"{zk_path}/pair")
    a, b, c = (Lock(zk, f"{zk_path}/{name}") for name in "abc")
    for locks, quorum in (([a], 1), ([a, b], 2), ([a, b, c], 2), ([a, b, c, RLock(zk, f"{zk_path}/d")], 3)):
        lock = QuorumLock(iter(locks))
        assert (list(lock.locks), lock.quorum) == (locks, quorum)
    assert QuorumLock([a, b, c], quorum=3).quorum == 3
    QuorumLock([a, pair.read_lock, c])
    for quorum in (-1, 0, 1, 4):
        with pytest.raises(ValueError, match="a quorum of 3 locks is 2 to 3 of them"):
            QuorumLock([a, b, c], quorum=quorum)
    with pytest.raises(TypeError):
        QuorumLock([a, b, c], quorum=2.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one"):
        QuorumLock([])
    for twice in ([a, a], [a, Lock(connect(), a.path)], [pair.read_lock, pair.write_lock]):
        with pytest.raises(ValueError, match="twice"):
            QuorumLock(twice)
    for wrong in (pair, threading.Lock(), "ab", Semaphore(zk, f"{zk_path}/s"), QuorumLock([a])):
        with pytest.raises(TypeError, match="takes locks of zkconcurrent"):
            QuorumLock([b, wrong])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="MultiLock takes locks"):
        MultiLock([QuorumLock([a])])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="on_lost"):
        QuorumLock([a], on_lost=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"cannot pickle Lock '{zk_path}.*open a client in the other process"):
        pickle.dumps(QuorumLock([a]))
    assert not hasattr(QuorumLock([a]), "fencing_token")
    assert zk.exists(zk_path) is None


def test_bad_timeouts(zk: KazooClient, zk_path: str) -> None:
    """They are refused as by `threading`, before anything is acquired."""
    lock = QuorumLock([Lock(zk, zk_path)])
    for arguments in ((False, 1), (True, -2), (True, float("nan"))):
        with pytest.raises(ValueError):  # noqa: PT011
            lock.acquire(*arguments)
    with pytest.raises(OverflowError):
        lock.acquire(timeout=threading.TIMEOUT_MAX * 2)
    with pytest.raises(RuntimeError, match="un-acquired"):
        lock.release()
    assert zk.exists(zk_path) is None


@pytest.mark.usefixtures("unhurried")
def test_all_services_are_there(services: list[Server], connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """It gets every lock, keeps others out, is one thread's, and leaves nothing."""
    mine, theirs = ([connect(each.hosts) for each in services] for _ in range(2))
    lock, other = (QuorumLock([Lock(client, zk_path) for client in clients]) for clients in (mine, theirs))
    assert not lock.locked()
    with lock:
        assert "<locked zkconcurrent.QuorumLock object quorum=2 of" not in repr(other)
        assert repr(lock).startswith("<locked zkconcurrent.QuorumLock object quorum=2 paths=[")
        assert (lock.hold_count(), alive(lock)) == (1, 3)
        assert other.locked()
        assert not other.acquire(blocking=False)
        assert not other.acquire(timeout=0.2)
        with pytest.raises(RuntimeError, match="un-acquired"):
            in_thread(lock.release).result(20)
        with pytest.raises(TimeoutError), other.hold(0.05):
            pass
        waiting = in_thread(lambda: (other.acquire(), other.release()))
        for client in mine:
            eventually(lambda client=client: queued(client, zk_path, 1)())
        assert not waiting.done()
    waiting.result(20)
    assert lock.hold_count() == 0
    for client in mine:
        eventually(queued(client, zk_path, 0))


def test_each_needs_more_than_half(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """With one of three locks in other hands it gets the rest; with two, it gives back what it got."""
    paths = [f"{zk_path}/{name}" for name in "abc"]
    other, lock = connect(), QuorumLock([Lock(zk, path) for path in paths])
    first, second = Lock(other, paths[0]), Lock(other, paths[1])
    with first:
        with lock:
            assert [each.hold_count() for each in lock.locks] == [0, 1, 1]
            assert not second.acquire(blocking=False)
        with second:
            for how in ({"blocking": False}, {"timeout": 0}, {"timeout": 0.3}):
                assert lock.acquire(**how) is False
                eventually(queued(zk, paths[2], 0))
            assert lock.locked()
        assert not lock.locked()
    whole = QuorumLock(lock.locks, quorum=3)  # type: ignore[arg-type]
    with first:
        assert not whole.acquire(blocking=False)
    with whole:
        pass


@pytest.mark.usefixtures("unhurried")
def test_reentrant_if_its_locks_are(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Of RLocks it may be acquired again; of Locks, its own thread waits too."""
    lock = QuorumLock([RLock(zk, f"{zk_path}/{name}") for name in "abc"])
    theirs = QuorumLock([RLock(connect(), each.path) for each in lock.locks])
    with lock:
        with lock, QuorumLock(lock.locks):  # type: ignore[arg-type]
            assert (lock.hold_count(), alive(lock)) == (2, 9)
            assert not in_thread(lock.acquire, False).result(20)
        assert (lock.hold_count(), alive(lock)) == (1, 3)
        assert not theirs.acquire(False)
    with theirs:
        pass
    plain = QuorumLock([Lock(zk, f"{zk_path}/{name}") for name in "def"])
    with plain:
        assert not plain.acquire(timeout=0.1)
        assert plain.hold_count() == 1


@pytest.mark.usefixtures("unhurried")
def test_what_the_thread_holds_besides(zk: KazooClient, zk_path: str) -> None:
    """A release leaves a lock alone that the thread holds by itself; a Lock that it holds counts as taken."""
    a, b, c = (RLock(zk, f"{zk_path}/{name}") for name in "abc")
    lock = QuorumLock([a, b, c])
    with a:
        with lock:
            assert [each.hold_count() for each in (a, b, c)] == [2, 1, 1]
        assert [each.hold_count() for each in (a, b, c)] == [1, 0, 0]
    x, y, z = (Lock(zk, f"{zk_path}/{name}") for name in "xyz")
    plain = QuorumLock([x, y, z])
    with x:
        with plain:
            assert alive(plain) == 3
        assert [each.hold_count() for each in (x, y, z)] == [1, 0, 0]
        with y:
            assert not plain.acquire(False)
    while True:  # where a service is slow for a moment, the third is left out
        with plain:
            if alive(plain) == 3:
                x.release()  # by itself: a quorum is left
                assert plain.hold_count() == 1
                break
    with pytest.raises(LockLostError), plain:
        x.release()
        y.release()
        assert plain.hold_count() == 0
    assert plain.acquire(False)
    plain.release()


@pytest.mark.long
@pytest.mark.usefixtures("unhurried")
def test_one_service_is_dead(services: list[Server], connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """It is acquired without it, held without it, and released without it, also if it was killed meanwhile."""
    mine, theirs = ([connect(each.hosts, timeout=4, **FAST) for each in services] for _ in range(2))
    told: list[Any] = []
    lock = QuorumLock([Lock(client, zk_path) for client in mine], on_lost=told.append)
    other = QuorumLock([Lock(client, zk_path) for client in theirs])
    victim = services[1]
    lock.acquire()
    lost, first = lock.lost, lock.locks[1].lost
    victim.kill()
    try:
        assert first.wait(20)
        assert not lost.is_set()
        assert (lock.hold_count(), lock.suspect) == (1, False)
        assert other.locked()
        assert not other.acquire(timeout=0.2)
        lock.release()
        with other:
            assert alive(other) == 2
            assert not lock.acquire(False)
            waiting = in_thread(lambda: (lock.acquire(), lock.hold_count(), lock.release()))
        assert waiting.result(20)[1] == 1
    finally:
        victim.start()
    reached(mine + theirs)
    with lock:
        eventually(lambda: not other.acquire(False))
    assert told == []
    for each in services:
        eventually(queued(connect(each.hosts), zk_path, 0))


def test_most_services_are_dead(services: list[Server], connect: Connect, zk_path: str) -> None:
    """The loss is told once; nothing is acquired meanwhile, in time; a wait gets in once they are back."""
    clients = [connect(each.hosts, timeout=4, **FAST) for each in services]
    told: list[Any] = []
    lock = QuorumLock([Lock(client, zk_path) for client in clients], on_lost=told.append)
    lock.acquire()
    lost = lock.lost
    for victim in services[:2]:
        victim.kill()
    try:
        assert lost.wait(20)
        assert lock.lost is lost or not isinstance(lost, threading.Event)
        eventually(lambda: len(told) == 1)
        assert lock.hold_count() == 0
        with pytest.raises(LockLostError, match="release"):
            lock.acquire()
        with pytest.raises(LockLostError):
            lock.release()
        with pytest.raises(RuntimeError, match="un-acquired"):
            lock.release()
        assert not lock.lost.is_set()
        assert not lock.acquire(False)
        assert not lock.acquire(timeout=0.3)
        eventually(queued(clients[2], zk_path, 0))
    finally:
        for victim in services[:2]:
            victim.start()
    with lock:
        assert not lock.lost.is_set()
    assert len(told) == 1
    for each in services:
        eventually(queued(connect(each.hosts), zk_path, 0))


@pytest.mark.parametrize("silent", [1, 2])
@pytest.mark.usefixtures("unhurried")
def test_services_that_do_not_answer(
    silent: int, zookeeper: Server, zk: KazooClient, connect: Connect, zk_path: str
) -> None:
    """One is not waited for. Of two, the loss is noticed in a third of the session timeout, and the third given back.

    Their later actions leave nothing.
    """
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(zookeeper.hosts)) for _ in range(silent)]
        clients = [connect(proxy.hosts, timeout=9, **FAST) for proxy in proxies]
        clients += [connect() for _ in range(3 - silent)]
        lock = QuorumLock([Lock(client, f"{zk_path}/{n}") for n, client in enumerate(clients)])
        with lock:
            assert alive(lock) == 3
        for proxy in proxies:
            proxy.stall(to_server=False)  # the service does what it is told
        if silent == 1:
            with lock:
                assert alive(lock) == 2
        else:
            assert not lock.acquire(False)
        for proxy in proxies:
            proxy.cut()
            proxy.resume()
        reached(clients)
        for n in range(3):
            eventually(queued(zk, f"{zk_path}/{n}", 0))
        with lock:
            pass


def test_one_that_does_not_answer_is_not_waited_for(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str
) -> None:
    """The others decide at once, whether it is acquired or not; a dead link is noticed in 13 s only."""
    client = connect(proxy.hosts, timeout=40, **FAST)
    lock = QuorumLock([Lock(each, f"{zk_path}/{n}") for n, each in enumerate([client, zk, zk])])
    with lock:
        pass
    others = [Lock(connect(), each.path) for each in lock.locks[1:]]
    proxy.stall()
    began = time.monotonic()
    with lock:
        assert alive(lock) == 2
    with others[0], others[1]:
        assert not lock.acquire(False)
    assert time.monotonic() - began < 10
    proxy.cut()
    proxy.resume()
    reached([client])
    eventually(queued(zk, f"{zk_path}/0", 0))


def test_a_lost_answer(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A create whose answer is lost is a lock that is held, or a node that is gone."""
    clients = [connect(proxy.hosts, **FAST), zk, zk]
    lock = QuorumLock([Lock(client, f"{zk_path}/{n}") for n, client in enumerate(clients)])
    with lock:
        pass
    for name in ("sync", "getChildren", "create2", "delete"):
        with proxy.lose_answer(name), lock:
            assert lock.hold_count() == 1
            assert alive(lock) in (2, 3)
        reached(clients)
        for n in range(3):
            eventually(queued(zk, f"{zk_path}/{n}", 0), name)


def test_one_at_a_time(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Contenders of several clients, which collide all the time, all get in, one at a time."""
    inside, most, entered = [0], [0], [0]

    def contend(client: KazooClient) -> None:
        lock = QuorumLock([Lock(client, f"{zk_path}/{name}") for name in "abc"])
        for _ in range(8):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                entered[0] += 1
                inside[0] -= 1

    threads = [in_thread(contend, client) for client in (zk, connect(), connect(), zk)]
    for thread in threads:
        thread.result(60)
    assert (most[0], entered[0]) == (1, 32)


def test_a_killed_process(services: list[Server], connect: Connect, zk_path: str) -> None:
    """The hold of a killed process is free after its sessions; not before."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, zk_path, *(each.hosts for each in services)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    lock = QuorumLock([Lock(connect(each.hosts), zk_path) for each in services])
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert not lock.acquire(False)
        process.kill()
    assert lock.acquire(timeout=30)
    lock.release()


def test_waits_that_are_cancelled(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Each ends with an error, and gives back what it has; a lock's own `cancel_waits` ends none."""
    paths = [f"{zk_path}/{name}" for name in "abc"]
    holder, client = QuorumLock([Lock(zk, path) for path in paths]), connect()
    lock = QuorumLock([Lock(client, path) for path in paths])
    assert lock.cancel_waits() == 0
    with holder:
        waiting = [in_thread(lock.acquire), in_thread(lock.acquire, timeout=60)]
        ended = 0
        assert lock.locks[0].cancel_waits() == 0
        while ended < 2:
            ended += lock.cancel_waits()
        for each in waiting:
            with pytest.raises(WaitCancelledError):
                each.result(20)
        for path in paths:
            eventually(queued(zk, path, 1))
    with lock:
        assert lock.cancel_waits() == 0


def test_clients_that_can_not_be_used(zk: KazooClient, zookeeper: Server, zk_path: str) -> None:
    """One that was never started is as good as a dead service; of two the error is raised, and nothing is left."""
    dead = [KazooClient(zookeeper.hosts) for _ in range(2)]
    one = QuorumLock([Lock(client, f"{zk_path}/{n}") for n, client in enumerate([dead[0], zk, zk])])
    with one:
        assert one.locked()
    two = QuorumLock([Lock(client, f"{zk_path}/{n}") for n, client in enumerate([*dead, zk])])
    for call in (two.acquire, lambda: two.acquire(blocking=False), two.locked):
        with pytest.raises(ClientError) as caught:
            call()
        assert caught.value.path == f"{zk_path}/0"
        assert any("also: ClientError" in note for note in caught.value.__notes__)
    eventually(queued(zk, f"{zk_path}/2", 0))  # a call waits a moment for its clean-up, and the keeper goes on


@pytest.mark.usefixtures("unhurried")
def test_suspect(zk: KazooClient, connect: Connect, zookeeper: Server, zk_path: str) -> None:
    """It is suspect while so many services are out of reach that no quorum is left."""
    with Proxy(zookeeper.hosts) as one, Proxy(zookeeper.hosts) as two:
        clients = [zk, *(connect(proxy.hosts, timeout=20, **FAST) for proxy in (one, two))]
        lock = QuorumLock([Lock(client, f"{zk_path}/{n}") for n, client in enumerate(clients)])
        assert not lock.suspect
        with lock:
            one.refuse()
            one.cut()
            eventually(lambda: lock.locks[1].suspect)
            assert not lock.suspect
            two.refuse()
            two.cut()
            eventually(lambda: lock.suspect)
            one.resume()
            eventually(lambda: not lock.suspect)


def test_a_lock_that_a_signal_handler_keeps(
    zk: KazooClient, connect: Connect, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 488: a handler acquires a lock between two tries, and keeps it: the tries add no level to it."""
    one, other = (RLock(zk, f"{zk_path}/{name}") for name in "ab")
    lock, theirs = QuorumLock([one, other]), RLock(connect(), other.path)
    pauses: list[float] = []

    def pause(_least: float, longest: float) -> float:
        if not pauses:
            signal.raise_signal(signal.SIGUSR1)
        pauses.append(longest)
        if len(pauses) == 4:
            theirs.release()
        return longest

    theirs.acquire()
    before = signal.signal(signal.SIGUSR1, lambda *_: one.acquire(timeout=5))
    monkeypatch.setattr(quorums.random, "uniform", pause)
    try:
        assert lock.acquire(timeout=20)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(pauses) == 4
    assert (one.hold_count(), other.hold_count()) == (2, 1)
    lock.release()
    assert (one.hold_count(), other.hold_count()) == (1, 0)
    one.release()
    eventually(queued(zk, one.path, 0))


def test_a_lock_that_a_signal_handler_keeps_amid_a_try(
    zk: KazooClient, connect: Connect, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 501: a handler acquires a lock amid a try, just before that comes to it, and keeps its level."""
    one, other = (RLock(zk, f"{zk_path}/{name}") for name in "ab")
    lock, theirs, first = QuorumLock([one, other]), RLock(connect(), one.path), core_of(one)
    reenter_or_check = first.reenter_or_check

    def interrupted() -> bool:
        signal.raise_signal(signal.SIGUSR1)
        return reenter_or_check()

    theirs.acquire()
    before = signal.signal(signal.SIGUSR1, lambda *_: other.acquire(timeout=5))
    monkeypatch.setattr(first, "reenter_or_check", interrupted)
    try:
        assert [(lock.acquire(blocking=False), other.hold_count()) for _ in range(2)] == [(False, 1), (False, 2)]
    finally:
        signal.signal(signal.SIGUSR1, before)
    for each in (other, other, theirs):
        each.release()
    eventually(queued(zk, other.path, 0))


def test_in_a_signal_handler(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A handler that would wait for the acquire that it has interrupted gets an error; one that tries once does not."""
    lock = QuorumLock([Lock(zk, f"{zk_path}/{name}") for name in "abc"])
    holder = QuorumLock([Lock(connect(), each.path) for each in lock.locks])
    results: list[Any] = []

    def handle(*_: object) -> None:
        results.append(lock.acquire(blocking=False))
        try:
            results.append(lock.acquire())
        except ClientError as error:
            results.append(error)
            raise KeyboardInterrupt from None

    before = signal.signal(signal.SIGUSR1, handle)
    interrupting = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        with holder:
            interrupting.start()
            with pytest.raises(KeyboardInterrupt):
                lock.acquire()
    finally:
        interrupting.join()
        signal.signal(signal.SIGUSR1, before)
    assert results[0] is False
    assert "signal handler" in str(results[1])
    for each in lock.locks:
        eventually(queued(zk, each.path, 0))
    with lock:
        pass


@pytest.mark.parametrize(
    ("below", "on_top", "gets_in"),
    [
        (MultiLock, lambda locks: locks[1], False),
        (MultiLock, lambda locks: MultiLock(locks[1:]), False),
        (MultiLock, QuorumLock, False),
        (lambda locks: locks[1], QuorumLock, True),
    ],
)
def test_in_a_handler_on_top_of_another_acquire(
    below: Any, on_top: Any, gets_in: bool, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """Fault 123. If it would wait for the acquire below it, it is an error; a quorum of others does without that."""
    locks = [Lock(zk, f"{zk_path}/{name}") for name in "abc"]
    results: list[Any] = []

    def handle(*_: object) -> None:
        try:
            with on_top(locks):
                results.append(True)
        except ClientError as error:
            results.append(error)
        raise KeyboardInterrupt

    def interrupt() -> None:
        eventually(queued(zk, locks[1].path, 2))
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with held_elsewhere(Lock(connect(), locks[1].path)):
            interrupting = in_thread(interrupt)
            with pytest.raises(KeyboardInterrupt):
                below(locks).acquire()
            interrupting.result(20)
    finally:
        signal.signal(signal.SIGUSR1, before)
    (result,) = results
    assert result is True if gets_in else "signal handler" in str(result)
    for each in locks:
        eventually(queued(zk, each.path, 0))


def test_a_forked_child(zk: KazooClient, zk_path: str) -> None:
    """It holds nothing, and can not release; the parent is undisturbed."""
    lock = QuorumLock([Lock(zk, f"{zk_path}/{name}") for name in "abc"])
    with lock:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                assert lock.hold_count() == 0
                for call in (lock.release, lock.acquire, lock.cancel_waits):
                    with pytest.raises(ClientError):
                        call()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert lock.hold_count() == 1


def test_no_trace(zk: KazooClient, zk_path: str) -> None:
    """A QuorumLock that is used again and again leaves nothing in its locks, or in itself."""
    locks = [RLock(zk, f"{zk_path}/{name}") for name in "abc"]
    with locks[0]:
        for _ in range(5):
            lock = QuorumLock(locks, on_lost=print)
            with lock:
                assert not lock.lost.is_set()
            assert not lock._held
        assert len(locks[0]._lock_core.loss().listeners) <= 2
    assert not lock._acquiring
    assert not zk_calls(lock)


def zk_calls(lock: QuorumLock) -> list[Callable[..., Any]]:
    """Return the calls that its sessions still know."""
    return [each for member in lock.locks for each in member._session.calls]  # type: ignore[misc]


def test_pauses_over_slow_links(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 121. Where a try takes longer than the pauses, these grow with it: otherwise most tries would collide."""
    lock = QuorumLock([Lock(connect(hosts=proxy.hosts), zk_path)])
    longest: list[float] = []
    monkeypatch.setattr(quorums, "LONGEST_PAUSE", quorums.FIRST_PAUSE)
    monkeypatch.setattr(quorums.random, "uniform", lambda _, most: longest.append(most) or 0.0)
    proxy.delay(0.03)
    with Lock(zk, zk_path):
        assert not lock.acquire(timeout=1.0)
    assert longest[0] == quorums.FIRST_PAUSE
    assert max(longest) >= 4 * 0.03  # twice a round trip


def test_a_thread_that_ended_while_it_held(
    zk: KazooClient, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 122. No thread that guards the losses waits for a session's, whose keeper may wait for it in turn."""
    lock = QuorumLock([ReadWriteLock(zk, zk_path).read_lock])
    assert in_thread(lock.acquire).result(20)
    check, guarded = lock._all.check_lease, []

    def check_lease() -> None:
        guarded.append(lock._all.lock._is_owned())
        check()

    monkeypatch.setattr(lock._all, "check_lease", check_lease)
    with lock:
        pass
    assert guarded
    assert not any(guarded)
    lock.locks[0]._at_fork_reinit()  # no thread is left that could release it


def test_locks_lost_during_the_try(
    zk: KazooClient, connect: Connect, zookeeper: Server, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A lock that was lost before the last one was acquired does not count; the acquired ones are given back."""
    clients = [connect(**FAST), zk, connect(proxy.hosts)]
    lock = QuorumLock([Lock(client, f"{zk_path}/{n}") for n, client in enumerate(clients)], quorum=3)
    with lock:
        pass
    first = lock.locks[0]._path_state
    with proxy.hold("create2") as held:
        trying = in_thread(lock.acquire, False)
        held.wait()
        eventually(lambda: any(each.alive for each in first.all(MUTEX.role)))
        zookeeper.expire(clients[0])
        eventually(lambda: not any(each.alive for each in first.all(MUTEX.role)))
    assert trying.result(20) is False
    reached(clients)
    for n in range(3):
        eventually(queued(zk, f"{zk_path}/{n}", 0))
    with lock:
        pass


def test_a_lease_that_runs_out_during_the_try(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Fault 173. A lock whose lease has run out by the clock does not count, before any other thread has noticed."""
    lock = QuorumLock([Lock(client, f"{zk_path}/{n}") for n, client in enumerate((zk, connect(proxy.hosts)))])
    first, second = (each._path_state for each in lock.locks)
    clock = first.session.clock
    with proxy.hold("create2") as held:
        trying = in_thread(lock.acquire, False)
        held.wait()
        eventually(lambda: any(each.alive for each in first.all(MUTEX.role)))
        with first.session.lock:  # so that its keeper can't look
            first.session.clock = lambda: clock() + 3600.0
            held.release()
            eventually(lambda: any(each.alive for each in second.all(MUTEX.role)))
    assert trying.result(20) is False
    first.session.clock = clock


def test_lost_as_it_is_acquired(
    connect: Connect, zookeeper: Server, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks that are lost once they count, before the quorum listens to losses, are told, and once."""
    client, told = connect(**FAST), []
    lock = QuorumLock([Lock(client, f"{zk_path}/{name}") for name in "abc"], on_lost=told.append)
    listen = quorums.listen

    def late(losses: Any, parts: Any) -> None:
        zookeeper.expire(client)
        parts = list(parts)
        eventually(lambda: all(loss.told for _, loss in parts))
        listen(losses, parts)

    monkeypatch.setattr(quorums, "listen", late)
    lock.acquire()
    assert lock.lost.is_set()
    eventually(lambda: len(told) == 1)
    with pytest.raises(LockLostError):
        lock.release()
    monkeypatch.undo()
    reached([client])
    with lock:
        assert not lock.lost.is_set()
    assert len(told) == 1


@pytest.mark.parametrize("look", ["hold_count", "lost", "acquire", "release"])
def test_its_leases_have_run_out(look: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Each call goes by the clock, before any other thread has noticed; the end of one lease of three harms no hold."""
    clients = [zk, connect(), connect()]
    lock = QuorumLock([Lock(client, f"{zk_path}/{n}") for n, client in enumerate(clients)])
    lock.acquire()
    lost, sessions = lock.lost, [each._session for each in lock.locks]
    with ExitStack() as stack:
        for session in sessions:  # so that its keeper can't look
            stack.enter_context(session.lock)
        for n, session in enumerate(sessions[1:], 1):
            clock = session.clock
            stack.callback(setattr, session, "clock", clock)
            session.clock = lambda clock=clock: clock() + 3600.0
            if n == 1 and alive(lock) == 2:
                assert lock.hold_count() == 1
                assert not lost.is_set()
        if look == "hold_count":
            assert lock.hold_count() == 0
        elif look == "lost":
            assert lock.lost.is_set()
        elif look == "acquire":
            with pytest.raises(LockLostError):
                lock.acquire(False)
        else:
            _, errors, _ = lock._begin_release()  # the part of it that does not wait
            assert isinstance(errors[0], LockLostError)
    if look != "release":
        with pytest.raises(LockLostError):
            lock.release()


@pytest.mark.parametrize("deleted", [1, 2])
def test_losses_that_a_release_finds(deleted: int, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Fault 186: a node is gone as it is to be deleted: no error while a quorum was left, else the loss."""
    told: list[QuorumLock] = []
    lock = QuorumLock([Lock(zk, f"{zk_path}/{name}") for name in "abc"], on_lost=told.append)
    theirs = connect()
    with lock:
        pass
    lock.acquire()
    while alive(lock) < 3:  # where a service is slow for a moment, the third is left out
        lock.release()
        lock.acquire()
    nodes = [hold.ticket.node for each in lock.locks if (hold := each._lock_core.mine()) is not None]
    lost = lock.lost
    for node in nodes[:deleted]:
        theirs.delete(node)
    if deleted == 1:
        lock.release()
    else:
        with pytest.raises(LockLostError):
            lock.release()
        eventually(lambda: told == [lock])
    assert lost.is_set() == bool(told)
    with lock:
        assert lock.hold_count() == 1
    assert len(told) == (deleted == 2)


@pytest.mark.parametrize("deleted", [0, 1])
def test_a_loss_that_is_told_within_a_release(
    deleted: int, zk: KazooClient, connect: Connect, zk_path: str, monkeypatch: Any
) -> None:
    """Fault 207: when the deletes of two are sent, the third is lost: no loss, unless one of the two was lost, too."""
    told: list[QuorumLock] = []
    lock = QuorumLock([Lock(zk, f"{zk_path}/{name}") for name in "abc"], on_lost=told.append)
    theirs, give_up = connect(), quorums.give_up

    def given_up(left: HoldDepths, errors: list[BaseException]) -> Any:
        last = left.pop()
        for _, hold, _ in left[:deleted]:
            theirs.delete(hold.ticket.node)
        calls = give_up(left, errors)
        theirs.delete(last[1].ticket.node)
        eventually(lambda: last[1].loss.told)
        return calls + give_up([last], errors)

    lock.acquire()
    while alive(lock) < 3:  # where a service is slow for a moment, the third is left out
        lock.release()
        lock.acquire()
    lost = lock.lost
    monkeypatch.setattr(quorums, "give_up", given_up)
    if deleted:
        with pytest.raises(LockLostError):
            lock.release()
        eventually(lambda: told == [lock])
    else:
        lock.release()
    monkeypatch.undo()
    assert lost.is_set() == bool(deleted)
    with lock:
        assert lock.hold_count() == 1
    assert len(told) == deleted


@pytest.mark.parametrize("size", [2, 3])
def test_after_a_wait_of_a_condition(size: int, zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """Fault 478: a condition's wait replaces the hold of one lock; the quorum has the new one, and releases it."""
    told: list[QuorumLock] = []
    locks = [RLock(connect(timeout=4), f"{zk_path}/{n}") for n in range(size)]
    condition = Condition(locks[0].client, f"{zk_path}/condition", locks[0])
    lock = QuorumLock(locks, on_lost=told.append)
    with lock:
        with lock:
            event = lock.lost
            assert not condition.wait(0.01)
            assert lock.hold_count() == 2
            assert lock.remaining() > 0
        assert [each.hold_count() for each in locks] == [1] * size
    assert [each.hold_count() for each in locks] == [0] * size
    assert not event.is_set()
    lock.acquire()
    assert not condition.wait(0.01)
    event = lock.lost
    for each in locks[: size - 1]:
        expire(zookeeper, each)
    assert event.wait(20)
    with pytest.raises(LockLostError):
        lock.release()
    with lock:
        pass
    assert told == [lock]


def test_locks_that_are_released_by_themselves(zk: KazooClient, zk_path: str) -> None:
    """Fault 480: a release then names what was released, and nothing as its loss."""
    lock = QuorumLock([RLock(zk, f"{zk_path}/{n}") for n in range(2)])
    lock.acquire()
    lock.locks[0].release()
    with pytest.raises(LockLostError, match=r"is left: \S+/0: it was released by itself\)"):
        lock.release()
    assert not any(each.hold_count() for each in lock.locks)
