"""Faults 38, 44 to 46: with any fault of the servers and their links, a holder is told before another gets in.

Each test has a holder and another client that waits for the same lock at another server, in one process, with one
clock. The servers reach each other through links that can fall silent one way: nothing is closed, nothing arrives.
T is the session timeout, a tick the server's unit of time; the ratios of the two, and of syncLimit, are those with
which two clients held at once by earlier rules for the lease.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient

from tests.conftest import InThread
from tests.helpers.eventually import eventually
from tests.helpers.links import Links
from tests.helpers.proxy import Proxy
from tests.soak.callers.caller import TellingEvent, have_losses_told
from tests.soak.events import clock
from zkconcurrent import Lock, LockLostError, ZkConcurrentError
from zkconcurrent.testing import Ensemble, Server

pytestmark = pytest.mark.long

RETRY = {"max_tries": -1, "delay": 0.05, "max_delay": 0.2}
LONG = 30.0  # seconds; the session timeout of those that are not to lose anything
PATIENCE = 40.0
PATH = "/lease/lock"


@contextlib.contextmanager
def connected(hosts: str, timeout: float = LONG) -> Iterator[KazooClient]:
    """Open a client that goes on connecting, and whose events know when they were set."""
    client = KazooClient(hosts, timeout=timeout, connection_retry=dict(RETRY), randomize_hosts=False)
    client.start(timeout=30)
    have_losses_told(client)
    try:
        yield client
    finally:
        client.stop()
        client.close()


class Grant(NamedTuple):
    """That the other client got in."""

    at: float
    believed: bool  # the holder still had its fencing token


class Hold:
    """The holder's hold, once it has one."""

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self.told: list[float] = []
        self._lost = lock.lost
        assert isinstance(self._lost, TellingEvent)
        self._lost.on_set(self.told.append)
        assert lock.fencing_token, "the holder holds"

    @property
    def believed(self) -> bool:
        """Whether the holder has its fencing token."""
        try:
            return bool(self.lock.fencing_token)
        except LockLostError:
            return False

    def wait_for(self, other: Lock) -> Grant:
        """Have another client acquire the lock, for as long as it takes."""
        assert other.acquire(timeout=PATIENCE)
        return Grant(clock(), self.believed)

    def check(self, waiting: Future[Grant], since: float) -> None:
        """Check that the holder was told before the other was granted; both are counted from `since`."""
        grant = waiting.result(PATIENCE + 10)
        assert self._lost.wait(PATIENCE), "the holder was never told"
        told = self.told[0]
        assert told < grant.at, (
            f"the other got in after {grant.at - since:.2f} s, and the holder was told after {told - since:.2f} s: "
            f"two held for {told - grant.at:.2f} s"
        )
        assert not grant.believed, "the holder was told, and still had its fencing token"
        with pytest.raises(LockLostError):
            self.lock.release()


class Site:
    """Three servers with links between them; servers are numbered from 1."""

    def __init__(self, links: Links, ensemble: Ensemble) -> None:
        self.links, self.ensemble = links, ensemble
        self.leader = ensemble.leader()
        self.one, self.other = (server for server in ensemble.servers if server is not self.leader)

    def number(self, server: Server) -> int:
        """Return a server's number."""
        return self.ensemble.servers.index(server) + 1

    def silence(self, source: Server, target: Server) -> None:
        """Have nothing of what one server says reach the other."""
        self.links.silence(self.number(source), self.number(target))


@contextlib.contextmanager
def site(tick: float, sync_limit: int, **options: object) -> Iterator[Site]:
    """Three servers, with so many seconds for a tick."""
    # A server that looks for a leader, and follows one that is silent, looks again after some seconds.
    settings = {"syncLimit": sync_limit, "initLimit": max(4, round(4 / tick))}
    properties = {"zookeeper.fastleader.maxNotificationInterval": 1000}
    with (
        Links() as links,
        Ensemble(route=links.route, tick_time=tick, settings=settings, properties=properties, **options) as ensemble,
    ):
        yield Site(links, ensemble)


@contextlib.contextmanager
def steady(client: KazooClient, in_thread: InThread) -> Iterator[None]:
    """Have a client write all the time: it acquires and releases another lock."""
    over = threading.Event()

    def cycle() -> None:
        lock = Lock(client, "/lease/busy")
        while not over.wait(0.02):
            with contextlib.suppress(ZkConcurrentError):
                if lock.acquire(timeout=0.5):
                    lock.release()

    cycling = in_thread(cycle)
    try:
        yield
    finally:
        over.set()
        cycling.result(PATIENCE)


@pytest.mark.fault(44)
def test_a_leader_without_a_quorum(in_thread: InThread) -> None:
    """A leader that lost its followers goes on answering its clients, while another one is elected."""
    with contextlib.ExitStack() as stack:
        at = stack.enter_context(site(1.0, 5))
        followers = (at.one, at.other)
        mine = stack.enter_context(connected(at.leader.hosts, 3.0))
        theirs = stack.enter_context(connected(",".join(server.hosts for server in followers)))
        lock, other = Lock(mine, PATH), Lock(theirs, PATH)
        lock.acquire()
        hold = Hold(lock)
        stack.enter_context(steady(mine, in_thread))
        waiting = in_thread(hold.wait_for, other)
        eventually(lambda: len(theirs.get_children(PATH)) == 2)
        assert hold.believed
        cut = clock()
        at.links.isolate(at.number(at.leader))
        for server in followers:
            server.kill()
        for server in followers:
            server.start(wait=False)
        eventually(lambda: "leader" in [server.mode() for server in followers], "another leader", PATIENCE)
        hold.check(waiting, cut)


@pytest.mark.fault(45)
def test_a_follower_cut_off_after_a_write(in_thread: InThread) -> None:
    """That a write was answered does not mean that the leader knows of the touch that came with it."""
    timeout = 15.0
    with contextlib.ExitStack() as stack:
        at = stack.enter_context(site(0.2, 100))
        proxy = stack.enter_context(Proxy(at.one.hosts))
        mine = stack.enter_context(connected(proxy.hosts, timeout))
        theirs = stack.enter_context(connected(at.leader.hosts))
        lock, other = Lock(mine, PATH), Lock(theirs, PATH)
        other.acquire()  # so that the path is there
        other.release()
        count = stack.enter_context(proxy.counting())
        # The client has been idle for almost as long as it ever is: kazoo pings each T / 3, up to 0.4 s earlier.
        eventually(lambda: any(message.kind == "request" for message in count.trace))
        idle = clock()
        eventually(lambda: clock() > idle + 0.3 * timeout)
        began = clock()
        lock.acquire()
        at.silence(at.one, at.leader)
        at.silence(at.leader, at.one)
        hold = Hold(lock)
        hold.check(in_thread(hold.wait_for, other), began)


@pytest.mark.fault(46)
def test_a_reconnect_with_a_shorter_timeout(in_thread: InThread) -> None:
    """A server that grants less time gives the lock away sooner than the one before would have."""
    long, short, tick = 16.0, 2.0, 0.2
    with contextlib.ExitStack() as stack:
        at = stack.enter_context(
            site(tick, 30, each=lambda number: {"max_session_timeout": short if number == 2 else 60.0})
        )
        first, second, third = at.ensemble.servers
        generous, mean = (stack.enter_context(Proxy(server.hosts)) for server in (first, second))
        mean.refuse()
        mine = stack.enter_context(connected(f"{generous.hosts},{mean.hosts}", long))
        theirs = stack.enter_context(connected(third.hosts))
        lock, other = Lock(mine, PATH), Lock(theirs, PATH)
        lock.acquire()
        hold, session = Hold(lock), mine.client_id
        waiting = in_thread(hold.wait_for, other)
        eventually(lambda: len(theirs.get_children(PATH)) == 2)
        generous.refuse()
        generous.cut()
        left = clock()
        eventually(lambda: clock() > left + 2 * tick)  # the first server's last word to its leader, with the long time
        mean.resume()
        eventually(lambda: mean.connections and mine.connected)
        cut = clock()
        mean.stall()
        assert mine.client_id == session
        hold.check(waiting, cut)


@pytest.mark.fault(38)
def test_a_follower_cut_off_under_steady_writes(in_thread: InThread) -> None:
    """A client that writes all the time learns in time that its server has lost the leader, by slow links."""
    timeout = 4.0
    with contextlib.ExitStack() as stack:
        at = stack.enter_context(site(2.0, 4))
        mine = stack.enter_context(connected(at.one.hosts, timeout))
        theirs = stack.enter_context(connected(at.leader.hosts))
        at.links.delay(at.number(at.leader), at.number(at.one), 0.15)
        lock, other = Lock(mine, PATH), Lock(theirs, PATH)
        lock.acquire()
        hold = Hold(lock)
        waiting = in_thread(hold.wait_for, other)
        eventually(lambda: len(theirs.get_children(PATH)) == 2)
        with steady(mine, in_thread):
            began = clock()
            eventually(lambda: clock() > began + timeout)
            cut = clock()
            at.silence(at.one, at.leader)
            hold.check(waiting, cut)
