"""Faults of the service itself: three servers, some of which fail."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

from tests.conftest import InThread
from tests.helpers.contenders import permits_awaited, queued
from tests.helpers.eventually import PATIENCE, eventually
from tests.helpers.links import Links
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    DetachedLock,
    Lock,
    LockLostError,
    ReadWriteLock,
    Semaphore,
)
from zkconcurrent.testing import Ensemble

pytestmark = pytest.mark.long

RETRY = {"max_tries": -1, "delay": 0.05, "max_delay": 0.2}
SESSION = 6.0
ROLLING = 30.0  # no session may end by itself


@pytest.fixture
def ensemble() -> Iterator[Ensemble]:
    """Three servers."""
    with Ensemble() as servers:
        yield servers


@contextlib.contextmanager
def connected(hosts: str, timeout: float = SESSION, **options: Any) -> Iterator[KazooClient]:
    """Open a client that goes on connecting."""
    client = KazooClient(hosts, timeout=timeout, connection_retry=dict(RETRY), **options)
    client.start(timeout=30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.mark.fault(11)
def test_the_quorum_is_lost_and_regained(ensemble: Ensemble, in_thread: InThread) -> None:
    """Without a quorum a timed acquire returns in time, and holds are lost in time; then all go on."""
    leader = ensemble.leader()
    with connected(leader.hosts) as one, connected(leader.hosts) as other:
        mine, theirs = Lock(one, "/quorum"), Lock(other, "/quorum")
        mine.acquire()
        lost = mine.lost
        waiting = in_thread(theirs.acquire)
        eventually(queued(one, "/quorum", 2))
        frozen = [server for server in ensemble.servers if server is not leader]
        for server in frozen:
            server.freeze()
        assert Lock(other, "/another").acquire(timeout=0.5) is False
        assert lost.wait(3 * SESSION)  # by our own clock: nobody could tell
        assert not waiting.done()
        for server in frozen:
            server.thaw()
        assert waiting.result(60)
        with pytest.raises(LockLostError):
            mine.release()
        theirs.release()
        with mine:
            pass


class Thief:
    """Closes a client's session by another connection to its follower, so that its leader lets it come back first.

    The follower takes one request at a time: the close waits while the leader's reply to another one does.
    """

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._links = stack.enter_context(Links())
        one_at_a_time = {"zookeeper.request_throttle_max_requests": 1}
        ensemble = stack.enter_context(Ensemble(route=self._links.route, properties=one_at_a_time))
        self.leader, self._follower = ensemble.leader(), ensemble.followers()[0]
        self._there, self._here = (ensemble.servers.index(each) + 1 for each in (self.leader, self._follower))
        self._proxy = stack.enter_context(Proxy(self._follower.hosts))
        self._other = stack.enter_context(connected(self._follower.hosts, ROLLING))
        self.client = stack.enter_context(connected(self._proxy.hosts, ROLLING))
        self.states: list[str] = []
        self.client.add_listener(self.states.append)

    def strike(self) -> None:
        """Close the session; return when its server shows none of its nodes, and its client is back."""
        session = self.client.client_id
        mark = self.client.create("/mark-", ephemeral=True, sequence=True)
        self.states.clear()
        self._proxy.refuse()
        self._proxy.cut()
        thief = KazooClient(self._follower.hosts, timeout=ROLLING, client_id=session)
        thief.start()
        assert thief.client_id == session
        self._links.silence(self._there, self._here)
        self._other.create_async("/other-", ephemeral=True, sequence=True)
        eventually(lambda: self._ask("outstanding_requests"))  # the close must find it there
        waits, comings = self._ask("request_throttle_wait_count"), self._ask("connection_revalidate_count")
        closing = threading.Thread(target=thief.stop)
        closing.start()
        eventually(lambda: self._ask("request_throttle_wait_count") > waits)
        self._proxy.resume()
        eventually(lambda: self._ask("connection_revalidate_count") > comings)  # the leader is asked
        self._links.restore(self._there, self._here)
        eventually(lambda: not self._other.exists(mark))
        eventually(lambda: KazooState.CONNECTED in self.states)
        closing.join()
        thief.close()
        assert self.states[:2] == [KazooState.SUSPENDED, KazooState.CONNECTED]  # in the session that is over

    def _ask(self, what: str) -> int:
        return int(self._follower.mntr()[f"zk_{what}"])


@pytest.mark.fault(224)
def test_a_session_that_is_over_on_a_connection_that_stays(in_thread: InThread) -> None:
    """A holder is told soon; a waiter, and a call that begins, go on in the next session."""
    with contextlib.ExitStack() as stack:
        thief = Thief(stack)
        mine = thief.client
        theirs = Lock(stack.enter_context(connected(thief.leader.hosts)), "/theirs")
        theirs.acquire()
        held, wanted = Lock(mine, "/held"), Lock(mine, "/theirs")
        held.acquire()
        lost = held.lost
        thief.strike()
        assert lost.wait(ROLLING / 3)  # by a heartbeat alone
        with pytest.raises(LockLostError):
            held.release()
        waiting = in_thread(wanted.acquire)
        eventually(queued(theirs.client, "/theirs", 2))
        thief.strike()
        theirs.release()
        assert waiting.result(ROLLING)
        wanted.release()
        thief.strike()
        begun = Lock(mine, "/begun")
        assert in_thread(begun.acquire).result(ROLLING)
        assert KazooState.LOST in thief.states


Block = Callable[[KazooClient, str], Any]
# What makes the block of the holder before, and that of the next.
HOLDERS: dict[str, tuple[Block, Block]] = {
    "Lock": (lambda client, path: Lock(client, path),) * 2,
    "read lock after a writer": (
        lambda client, path: ReadWriteLock(client, path).write_lock,
        lambda client, path: ReadWriteLock(client, path).read_lock,
    ),
    "write lock after a reader": (
        lambda client, path: ReadWriteLock(client, path).read_lock,
        lambda client, path: ReadWriteLock(client, path).write_lock,
    ),
    "Semaphore": (lambda client, path: Semaphore(client, path),) * 2,
    "DetachedLock": (lambda client, path: DetachedLock(client, path, str(client.client_id[0])),) * 2,
}


@pytest.mark.fault(288)
def test_what_a_holder_sees(in_thread: InThread) -> None:
    """An acquire at a server that lags sees what the holder before had written, by whichever client.

    So it does if it has waited, and if the lock was free; a read of another client at that server does not.
    """
    with contextlib.ExitStack() as stack:
        links = stack.enter_context(Links())
        ensemble = stack.enter_context(Ensemble(route=links.route))
        leader, follower = ensemble.leader(), ensemble.followers()[0]
        near, writer, far, onlooker = (
            stack.enter_context(connected(server.hosts, 30)) for server in (leader, leader, follower, follower)
        )
        near.create("/data", b"")
        far.sync("/data")
        links.delay(*(ensemble.servers.index(each) + 1 for each in (leader, follower)), 0.3)
        lagged = dict.fromkeys((True, False), 0)
        for kind, (mine, theirs) in HOLDERS.items():
            path = f"/{kind}"
            waits = permits_awaited(near, path, 1) if kind == "Semaphore" else queued(near, path, 2)

            def seen(theirs: Block = theirs, path: str = path) -> bytes:
                with theirs(far, path):
                    return bytes(far.get("/data")[0])

            for number in range(1, 5):
                new, contended = f"{kind} {number}".encode(), number % 2 == 0
                waiting = None
                with mine(near, path):
                    if contended:
                        waiting = in_thread(seen)
                        eventually(waits)
                    (near if number < 3 else writer).set("/data", new)
                waiting = waiting or in_thread(seen)
                lagged[contended] += onlooker.get("/data")[0] != new
                assert waiting.result(PATIENCE) == new, kind
        assert all(lagged.values())
