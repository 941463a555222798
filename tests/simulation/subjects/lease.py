"""A model of a lease in its world: one session, on servers that disagree about who leads, over links that are late.

The client is the real `Lease` behind as little as can be: it stamps a request, sends it, and hands each answer over.
All else is the ensemble as it was measured: every channel keeps its order and has any delay; a cut is silent; any
process stands still at any time; the leader hears of a session from a learner with the learner's answers to its pings,
and touches that are cut off never reach it; a leader without its followers goes on answering syncs and failing writes,
and reads; a leader that follows it starts the session's clock anew with the timeout that the session was created with;
another client gets in as soon as the session's end is decided. No history may have the lease run by then.

A history is random, and biased to what could hurt: faults strike when a write has just been handled or answered.
Left out, as the rule does: a leader whose pinging thread alone stands still; a connection whose opening shortened the
timeout without the client's knowledge (servers whose limits differ, and an answer that was lost); and a client of an
observer that learns from another learner (`observerMasterPort`).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, NamedTuple

from tests.simulation.world.world import Violation, add_note
from zkconcurrent._protocol.session_lease import MARGIN, NEVER, Lease

TICK = 1.0  # the unit of time
PERIOD = TICK / 2  # between two pings of a leader to its learners
QUORUM = 2


class Kind(Enum):
    """Return what is asked."""

    WRITE = "write"
    SYNC = "sync"
    READ = "read"


WRITE, SYNC, READ = Kind


class Process:
    """A process that may stand still.

    Attributes:
        until: it stands still before that time.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.until = 0.0


class Channel:
    """One direction of a connection: messages keep their order.

    Attributes:
        base, jitter: how long a message takes, and up to how much longer.
        until: nothing arrives before that time; the sent messages do then.
        last: when the last message arrives.
    """

    __slots__ = ("base", "jitter", "last", "until")

    def __init__(self, base: float, jitter: float) -> None:
        self.base = base
        self.jitter = jitter
        self.until = 0.0
        self.last = 0.0


class Request:
    """One request of the client.

    Attributes:
        stamp: by the client's clock, when the thread was about to send it.
        good: it succeeds, if it gets so far.
        done, ok: the server knows the answer; and that is a success.
    """

    __slots__ = ("done", "good", "kind", "ok", "stamp", "then")

    def __init__(self, kind: Kind, good: bool, stamp: float, then: Callable[[], None] | None) -> None:
        self.kind = kind
        self.good = good
        self.stamp = stamp
        self.then = then
        self.done = self.ok = False


class Conn:
    """A connection of the client.

    Attributes:
        sent: by the client's clock, when its connect request was sent.
        timeout: as negotiated.
        dead: its server has closed it.
        queue: requests that the server has not answered, which it does in their order.
    """

    def __init__(self, server: Server, sent: float, up: Channel, down: Channel) -> None:
        self.server = server
        self.sent = sent
        self.up = up
        self.down = down
        self.timeout = 0.0
        self.dead = False
        self.queue: deque[Request] = deque()


class Link:
    """A learner's connection to its leader."""

    def __init__(self, reign: Reign, server: Server, up: Channel, down: Channel) -> None:
        self.reign = reign
        self.server = server
        self.up = up
        self.down = down


class Server(Process):
    """A server.

    Attributes:
        limit: the longest timeout that it grants.
        reign: the leader's time that it is part of.
        link: by which it learns, if it does not lead.
        lower: the links of those that learn from it.
        touched: the timeout of the session, if the leader is to be told that it was heard of.
        logged: the last proposal that it has logged.
        closed: the session's end is in its log.
        conns: its client connections.
    """

    def __init__(self, name: str, voter: bool, limit: float) -> None:
        super().__init__(name)
        self.voter = voter
        self.limit = limit
        self.reign: Reign | None = None
        self.link: Link | None = None
        self.lower: list[Link] = []
        self.touched: float | None = None
        self.logged = (0, 0)
        self.closed = False
        self.conns: list[Conn] = []


class Reign:
    """The time of one leader, and its knowledge.

    Attributes:
        expiry: when it will end the session, if it does not hear of it.
        watched: when it will look.
        closing: it has ended the session; no request is taken any more.
        owner: the connection that the session is on.
        outstanding: proposals that were not committed.
        half_ticks: so often it has pinged.
        pings_at: when it will again.
        heard: of each learner, at which ping it had last answered.
    """

    def __init__(self, leader: Server, epoch: int) -> None:
        self.leader = leader
        self.epoch = epoch
        self.expiry = self.watched = math.inf
        self.expired = math.inf
        self.closing = leader.closed
        self.over = False
        self.owner: Conn | None = None
        self.outstanding: deque[Proposal] = deque()
        self.proposals = 0
        self.half_ticks = 0
        self.pings_at = 0.0
        self.heard: dict[Server, int] = {}


class Proposal:
    """A write that is voted on; `syncs` are answered with it."""

    __slots__ = ("acks", "conn", "request", "syncs", "zxid")

    def __init__(self, zxid: tuple[int, int], conn: Conn | None, request: Request | None) -> None:
        self.zxid = zxid
        self.conn = conn
        self.request = request  # none: the session's end
        self.acks = 1
        self.syncs: list[tuple[Conn, Request]] = []


class Plan(NamedTuple):
    """A history's constants.

    Attributes:
        timeout: that the client asks for.
        tick: the tick that the client was told, if it was.
        rate: of the client's clock, measured by the servers'.
        exact: sessions end when their time is over, and not at the next tick.
        sharp: the client sends little but the requests that prove most, and faults strike then.
        delay, jitter: up to how long messages take.
        faults: whether anything goes wrong.
        sync_limit: the ticks that a leader without its followers goes on.
    """

    timeout: float
    tick: float | None = None
    rate: float = 1.0
    exact: bool = False
    sharp: bool = False
    delay: float = 0.0
    jitter: float = 0.0
    faults: bool = True
    sync_limit: int = 5


def random_plan(random: Random) -> Plan:
    """Draw one."""
    timeout = 2.0 if random.random() < 0.3 else random.uniform(2.0, random.choice((3.0, 4.0, 12.0)))
    sharp = random.random() < 0.4
    slow = random.choice((0.0, 0.01) if sharp else (0.0, 0.01, 0.05, 0.3, 1.0))
    return Plan(
        timeout,
        random.choice((None, None, TICK)),
        random.choice((1.0, 1 - MARGIN, 1 - MARGIN, random.uniform(1 - MARGIN, 1 + MARGIN))),
        sharp or random.random() < 0.5,
        sharp,
        slow * random.random(),
        slow * random.random(),
        True,
        random.choice((2, 5, 5, 20, 60)),
    )


class Aimed(NamedTuple):
    """Faults that strike where they could hurt most.

    Attributes:
        first: strikes when q is answered.
        then: strikes at the write that follows.
        handled: when its leader takes that, and not when it is answered.
    """

    first: Callable[[], None] | None
    then: Callable[[], None]
    handled: bool


class History:
    """One history.

    Attributes:
        lease: of the client.
        gone: when the session's end was decided on: others may be in.
    """

    def __init__(self, random: Random, plan: Plan) -> None:
        self.random = random
        self.plan = plan
        self.now = 0.0
        self.happened: Counter[str] = Counter()
        self._events: list[tuple[float, float, int, Process, Channel | None, Callable[..., None], tuple[Any, ...]]] = []
        self._number = count().__next__
        self._phase = random.random() * TICK
        limit = plan.timeout
        self.differ = differ = plan.faults and random.random() < 0.25
        self.voters = [
            Server(name, True, max(2.0, limit * random.uniform(0.2, 1)) if differ and random.random() < 0.6 else limit)
            for name in "ABC"
        ]
        self.observer = Server("D", False, limit)
        self.servers = [*self.voters, self.observer]
        self.client = Process("client")
        self.created = self.negotiated = self.known = math.inf  # timeouts: at first, the least, the least known
        self.lease = Lease(1, plan.tick)
        self.conn: Conn | None = None
        self.connecting: Conn | None = None
        self.ended = False  # the client knows
        self.gone: float | None = None
        self.closest = math.inf  # the least time between the lease's end and the session's
        self.holding = False
        self.outstanding = 0
        self.end = math.inf
        self._late = False
        self._handled = self._answered = 0
        self._on_handled: dict[int, Callable[[], None]] = {}
        self._on_answered: dict[int, Callable[[], None]] = {}
        self._aimed: Aimed | None = None
        self.reign = self._elect(self.voters[0], self.voters[1:])
        if random.random() < 0.5:
            self._join(self.observer, self.reign)

    # -- events --------------------------------------------------------------------------------------------------

    def at(self, time: float, process: Process, act: Callable[..., None], *args: Any, order: float = 1.0) -> None:
        """Have a process do something at a time, or as soon as it runs again."""
        heappush(self._events, (time, order, self._number(), process, None, act, args))

    def send(self, channel: Channel, to: Process, act: Callable[..., None], *args: Any) -> None:
        """Send a message, given as its receiver's action."""
        jitter = channel.jitter
        arrives = self.now + channel.base + (jitter * self.random.random() if jitter else 0.0)
        channel.last = arrives = max(arrives, channel.last, channel.until)
        if arrives < math.inf:
            heappush(self._events, (arrives, 1.0, self._number(), to, channel, act, args))

    def run(self, end: float = math.inf) -> None:
        """Let everything happen, up to a time.

        Raises:
            Violation: the lease ran, and the session was over.
        """
        events = self._events
        self.end = end
        while events and events[0][0] <= self.end:
            time, order, number, process, channel, act, args = heappop(events)
            self.now = time
            later = process.until
            if channel is not None and channel.until > later:
                later = channel.until
            if later > time:
                if later < math.inf:
                    heappush(events, (later, order, number, process, channel, act, args))
                continue
            act(*args)

    def _channel(self) -> Channel:
        random, plan = self.random, self.plan
        return Channel(plan.delay * random.random(), plan.jitter * random.random())

    # -- servers -------------------------------------------------------------------------------------------------

    def _elect(self, leader: Server, others: list[Server]) -> Reign:
        """Begin a reign: of the session it knows what is in its log."""
        self.reign = reign = Reign(leader, leader.logged[0] + 1)
        leader.reign, leader.link, leader.touched = reign, None, None
        leader.logged = reign.epoch, 0
        for server in others:
            self._join(server, reign)
            server.logged = leader.logged
            server.closed = leader.closed
        if leader.closed:
            self._session_over()
        elif self.created < math.inf:
            self._touch(reign, self.created)
        self.at(self.now + PERIOD * self.random.random(), leader, self._ping_all, reign, order=0.0)
        return reign

    def _join(self, server: Server, reign: Reign) -> None:
        server.reign, server.touched = reign, None
        server.link = Link(reign, server, self._channel(), self._channel())
        reign.leader.lower.append(server.link)

    def _release_level(self, server: Server) -> None:
        """Have a server end its part in a reign: its clients are cut off, and those that learn from it."""
        server.reign = None
        if server.link is not None:
            server.link.reign.leader.lower.remove(server.link)
            server.link = None
        for conn in server.conns:
            conn.dead = True
            self.send(conn.down, self.client, self._dropped, conn)
        server.conns = []
        for link in list(server.lower):
            self._release_level(link.server)

    def _ping_all(self, reign: Reign) -> None:
        """Ping the learners, which is due before anything that has come meanwhile."""
        leader = reign.leader
        if leader.reign is not reign:
            return
        for link in leader.lower:
            self.send(link.down, link.server, self._pinged, link)
        reign.pings_at = self.now + PERIOD * (1 + 0.01 * self.random.random())
        self.at(reign.pings_at, leader, self._ping_all, reign, order=0.0)
        reign.half_ticks += 1
        since = reign.half_ticks - 2 * self.plan.sync_limit
        if sum(tick >= since for tick in reign.heard.values()) + 1 < QUORUM and since > 0:
            self._resign(reign)

    def _resign(self, reign: Reign) -> None:
        leader = reign.leader
        reign.over = True
        self._release_level(leader)
        if self.reign is not reign:
            self.at(self.now + 0.1 * TICK, leader, self._follow, leader)

    def _follow(self, server: Server) -> None:
        """Have a server that has no leader follow the present one, which tells it all."""
        if server.reign is None and not self.reign.over:
            self._join(server, self.reign)
            server.logged = max(server.logged, self.reign.leader.logged)
            server.closed = self.reign.leader.closed

    def _pinged(self, link: Link) -> None:
        server = link.server
        if server.link is link:
            touched, server.touched = server.touched, None
            self.send(link.up, link.reign.leader, self._ponged, link, touched)

    def _ponged(self, link: Link, touched: float | None) -> None:
        reign = link.reign
        if reign.leader.reign is not reign:
            return
        if link.server.voter:
            reign.heard[link.server] = reign.half_ticks
        if touched is not None:
            self._touch(reign, touched)

    def _touch(self, reign: Reign, timeout: float) -> None:
        """Have a leader hear of the session."""
        if reign.closing:
            return
        expiry = self.now + timeout
        if not self.plan.exact:
            expiry = (math.floor((expiry + self._phase) / TICK) + 1) * TICK - self._phase
        reign.expiry = expiry
        if expiry < reign.watched:
            self._watch(reign)

    def _watch(self, reign: Reign) -> None:
        reign.watched = reign.expiry
        # After it stood still, a leader may look before it takes what has come meanwhile, or after.
        self.at(reign.expiry, reign.leader, self._look, reign, order=self.random.choice((0.5, 1.5)))

    def _look(self, reign: Reign) -> None:
        if reign.over or reign.closing or self.now < reign.watched:
            return
        if reign.expiry > self.now:
            self._watch(reign)
            return
        reign.closing = True
        reign.expired = self.now
        self._propose(reign, None, None)

    # Questions to the leader go up the links, and its answers down.

    def _rise(self, server: Server, act: Callable[..., None], *args: Any) -> None:
        reign, link = server.reign, server.link
        if reign is not None and link is None:
            act(reign, *args)
        elif link is not None:
            self.send(link.up, link.reign.leader, self._risen, link, act, args)

    def _risen(self, link: Link, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        if link.reign.leader.reign is link.reign:
            act(link.reign, *args)

    def _fall(self, reign: Reign, server: Server, act: Callable[..., None], *args: Any) -> None:
        link = server.link
        if server is reign.leader:
            act(*args)
        elif link is not None and link.reign is reign:
            self.send(link.down, server, self._fallen, link, act, args)

    def _fallen(self, link: Link, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        if link.server.link is link:
            act(*args)

    # Proposals.

    def _propose(self, reign: Reign, conn: Conn | None, request: Request | None) -> None:
        reign.proposals += 1
        proposal = Proposal((reign.epoch, reign.proposals), conn, request)
        leader = reign.leader
        leader.logged = proposal.zxid
        leader.closed = leader.closed or request is None
        reign.outstanding.append(proposal)
        for link in leader.lower:
            if link.server.voter:
                self.send(link.down, link.server, self._log, link, proposal)

    def _log(self, link: Link, proposal: Proposal) -> None:
        server = link.server
        if server.link is not link:
            return
        server.logged = proposal.zxid
        server.closed = server.closed or proposal.request is None
        self.send(link.up, link.reign.leader, self._acked, link, proposal)

    def _acked(self, link: Link, proposal: Proposal) -> None:
        reign = link.reign
        if reign.over:
            return
        reign.heard[link.server] = reign.half_ticks
        proposal.acks += 1
        while reign.outstanding and reign.outstanding[0].acks >= QUORUM:
            first = reign.outstanding.popleft()
            if first.request is None:
                self._session_over(reign.expired)
            else:
                assert first.conn is not None
                self._fall(reign, first.conn.server, self._answer, first.conn, first.request, True)
            for conn, request in first.syncs:
                self._fall(reign, conn.server, self._answer, conn, request, True)

    def _session_over(self, expired: float = math.inf) -> None:
        """Let others in. The lease must have ended when the leader decided on it."""
        if self.gone is None:
            self.gone = min(self.now, expired)
            if self.lease.end > NEVER:
                self.happened["ended"] += 1
            self._check()
            self.end = min(self.end, self.now + self.plan.timeout)

    def _check(self) -> None:
        """Every client that believes in its lease is right."""
        if self.gone is None or self.negotiated < self.known:
            return
        ahead = self.clock(self.gone) - self.lease.end
        self.closest = min(self.closest, ahead / self.plan.timeout)
        if ahead < -1e-9:
            raise Violation(f"the lease ran for {-ahead:.4f} more when the session was over")

    # Client connections.

    def _hears(self, server: Server, conn: Conn) -> None:
        """Take note that the session lives: the leader does so at once."""
        if server.link is None:
            assert server.reign is not None
            self._touch(server.reign, conn.timeout)
        else:
            server.touched = conn.timeout

    def _connect(self, conn: Conn) -> None:
        if conn.server.reign is not None:
            self._rise(conn.server, self._validate, conn)

    def _validate(self, reign: Reign, conn: Conn) -> None:
        """Have the leader hear of a session's new connection, or of a new session."""
        if reign.closing:
            self._fall(reign, conn.server, self._refuse, conn)
            return
        conn.timeout = min(self.plan.timeout, conn.server.limit)
        if self.created == math.inf:
            self.created = conn.timeout
        self.negotiated = min(self.negotiated, conn.timeout)
        reign.owner = conn
        self._touch(reign, conn.timeout)
        self._fall(reign, conn.server, self._open, conn)

    def _open(self, conn: Conn) -> None:
        conn.server.conns.append(conn)
        self.send(conn.down, self.client, self._opened, conn)

    def _refuse(self, conn: Conn) -> None:
        self.send(conn.down, self.client, self._expired, conn)

    def _request(self, conn: Conn, request: Request) -> None:
        server = conn.server
        if conn.dead or server.reign is None:
            return
        conn.queue.append(request)
        self._hears(server, conn)
        if request.kind is READ:
            self._answer(conn, request, True)
        else:
            self._rise(server, self._handle, conn, request)

    def _handle(self, reign: Reign, conn: Conn, request: Request) -> None:
        """Have the leader take a request."""
        if reign.over:
            return
        if reign.closing or reign.owner is not conn:
            self._fall(reign, conn.server, self._answer, conn, request, False)
        elif request.kind is SYNC:
            if reign.outstanding:
                reign.outstanding[-1].syncs.append((conn, request))
            else:
                self._fall(reign, conn.server, self._answer, conn, request, True)
        elif not request.good:  # an error may be answered without a vote
            self._fall(reign, conn.server, self._answer, conn, request, False)
        else:
            self._propose(reign, conn, request)
            self._handled += 1
            act = self._on_handled.pop(self._handled, None)
            if act is not None:
                act()

    def _answer(self, conn: Conn, request: Request, ok: bool) -> None:
        request.done, request.ok = True, ok
        queue = conn.queue
        while queue and queue[0].done:
            self.send(conn.down, self.client, self._answered_to, conn, queue.popleft())

    # -- the client ----------------------------------------------------------------------------------------------

    def clock(self, time: float) -> float:
        """Return what the client's clock says at a time."""
        return time * self.plan.rate

    @property
    def runs(self) -> bool:
        """Whether the client believes that its lease runs."""
        return self.lease.end > self.clock(self.now)

    def connect(self, server: Server) -> None:
        """Have the client open a connection."""
        if self.ended:
            return
        self.conn = None
        conn = self.connecting = Conn(server, self.clock(self.now), self._channel(), self._channel())
        self.send(conn.up, server, self._connect, conn)
        self.at(self.now + self.plan.timeout / 3, self.client, self._connect_again, conn)

    def _connect_again(self, conn: Conn) -> None:
        if self.connecting is conn:
            self.connect(self.random.choice(self.servers))

    def _opened(self, conn: Conn) -> None:
        if self.connecting is not conn:
            return
        self.connecting, self.conn = None, conn
        self.known = min(self.known, conn.timeout)
        self.outstanding = 0
        self._keep_on()
        since = self.random.random() if self.plan.faults else 1.0
        sent = NEVER if since < 0.15 else conn.sent - since * self.plan.timeout if since < 0.3 else conn.sent
        self.lease.note_opened(sent, conn.timeout)
        self._check()

    def _expired(self, conn: Conn) -> None:
        if self.connecting is conn:
            self.ended = True
            self.lease.note_ended()

    def _keep_on(self) -> None:
        if self._late:
            self._late = False
            self.keep()

    def _dropped(self, conn: Conn) -> None:
        if self.conn is conn:
            wait = self.random.choice((self.random.random() ** 3, 3.0)) * self.plan.timeout
            self.at(self.now + wait, self.client, self._reconnect, conn)
            self.conn = None

    def _reconnect(self, _: Conn) -> None:
        if self.conn is None and self.connecting is None:
            self.connect(self.random.choice(self.servers))

    def ask(self, kind: Kind, good: bool = True, then: Callable[[], None] | None = None) -> None:
        """Have a thread stamp a request and send it, at once or a little later."""
        if self.conn is None:
            return
        request = Request(kind, good, self.clock(self.now), then)
        if self.plan.faults and self.random.random() < 0.1:
            wait = self.random.random() ** 4 * TICK
            self.at(self.now + wait, self.client, self._send, self.conn, request)
        else:
            self._send(self.conn, request)

    def _send(self, conn: Conn, request: Request) -> None:
        if self.conn is conn:
            if request.kind is WRITE:
                self.outstanding += 1
            self.send(conn.up, conn.server, self._request, conn, request)

    def _answered_to(self, conn: Conn, request: Request) -> None:
        if self.conn is not conn:
            return
        if request.kind is WRITE:
            self.outstanding -= 1
        self.take(request)
        if self.gone is not None:
            self._check()
        if request.kind is WRITE and request.ok:
            self._answered += 1
            act = self._on_answered.pop(self._answered, None)
            if act is not None:
                act()
        if request.then is not None:
            request.then()
        if self._late and not self.outstanding:
            self._keep_on()

    def take(self, request: Request) -> None:
        """Tell the lease of what proves anything."""
        if request.ok and request.kind is not READ:
            self.lease.note_answered(request.stamp, self.clock(self.now), write=request.kind is WRITE)

    # The client's actions.

    def keep(self) -> None:
        """Do as the session's keeper does: a sync each beat while holding, and a proof when it is due.

        Without a hold, a sync each third of the timeout.
        """
        if self.ended:
            return
        lease = self.lease
        if self.conn is not None and self.holding and self.outstanding:
            self._late = True  # the next goes out as soon as that is answered
            return
        if self.conn is None or not self.holding:
            self.ask(SYNC)
            self.at(self.now + self.plan.timeout / 3 / self.plan.rate, self.client, self.keep)
            return
        if lease.renewed:
            self.ask(SYNC, then=self._prove_when_due)
        else:
            self._prove()
        self.at(self.now + lease.beat / self.plan.rate, self.client, self.keep)

    def _prove_when_due(self) -> None:
        wait = self.lease.due - self.clock(self.now)
        if wait < self.plan.timeout:
            self.at(self.now + max(0.0, wait) / self.plan.rate, self.client, self._prove_if_due)

    def _prove_if_due(self) -> None:
        if self.holding and not self.outstanding and self.lease.due <= self.clock(self.now) + 1e-9:
            self._prove()

    def _prove(self) -> None:
        # A clock ticks between an answer and what is sent for it.
        self.ask(SYNC, then=lambda: self.at(self.now + 1e-6, self.client, self.ask, WRITE))

    def chatter(self, every: float, kinds: tuple[Kind, ...]) -> None:
        """Ask now and then, as a thread of the user's."""
        if self.ended:
            return
        self.ask(self.random.choice(kinds), self.random.random() < 0.8)
        self.at(self.now + self.random.expovariate(1 / every), self.client, self.chatter, every, kinds)

    def prove(self, every: float) -> None:
        """Ask what proves most in the least time: q, after the gap X, and W as soon as that is answered."""
        if self.ended:
            return
        random, wait = self.random, every * (0.5 + self.random.random())
        if random.random() < 0.7:  # so that it reaches the leader's learner just after a ping, or just before
            early = random.choice((0.0, 0.1)) * random.random()
            wait = max(0.0, self.reign.pings_at - early - self.now) + PERIOD * random.randrange(1, 2 + int(2 * every))
        self.at(self.now + wait, self.client, self.prove, every)
        gap = self.lease.gap * (1 + 0.1 * random.random() ** 3) / self.plan.rate + 1e-6
        if self.conn is None or gap == math.inf:
            return
        aimed, self._aimed = self._aimed, None
        early = aimed is not None and random.random() < 0.3  # strikes at X

        def look() -> None:
            if aimed is not None and early:
                self._aim(aimed)
            # A clock ticks between an answer and what is sent for it.
            kind = WRITE if early else random.choice((SYNC, WRITE))
            self.ask(kind, then=lambda: self.at(self.now + 1e-6, self.client, write))

        def write() -> None:
            if aimed is not None and not early:
                self._aim(aimed)
            self.ask(WRITE)

        def answered() -> None:
            if aimed is not None and aimed.first is not None:
                aimed.first()
            self.at(self.now + gap, self.client, look)

        self.ask(random.choice((SYNC, SYNC, WRITE)), then=answered)

    def _aim(self, aimed: Aimed) -> None:
        if aimed.handled:
            self._on_handled[self._handled + 1] = aimed.then
        else:
            self._on_answered[self._answered + 1] = aimed.then

    def hold(self, holding: bool) -> None:
        """Acquire, or release."""
        self.holding = holding
        self.ask(WRITE)

    # -- faults --------------------------------------------------------------------------------------------------

    def inject(self) -> None:
        """Do the client's part and the faults' of a random history, to its end."""
        random, plan = self.random, self.plan
        timeout = plan.timeout
        self.connect(random.choice(self.servers if self.observer.reign else self.voters))
        self.holding = random.random() < 0.5
        if random.random() < (0.3 if plan.sharp else 0.8):
            self.at(0.01, self.client, self.keep)
        if random.random() < 0.3 and not plan.sharp:
            kinds = random.choice(((WRITE,), (SYNC,), (WRITE, SYNC), (WRITE, SYNC, READ), (READ,)))
            self.at(0.02, self.client, self.chatter, timeout * random.choice((0.03, 0.1, 0.3)), kinds)
        if random.random() < 0.7 or plan.sharp:
            self.at(0.03, self.client, self.prove, timeout * random.choice((0.3, 0.5, 1.0)))
        begin = timeout * random.uniform(0.1, 1.5)
        if random.random() < 0.5:
            self.at(begin - 0.01, self.client, self.hold, not self.holding)
        if random.random() < (0.7 if self.differ else 0.25):
            self.at(begin * random.random(), self.client, self._inject_reconnect)
            begin += timeout * random.random()
        self.at(begin, _NOBODY, self._begin)
        self.run(begin + 3 * timeout + 2 * TICK)

    def _begin(self) -> None:
        random = self.random
        first = random.choice((None, self._inject_down_late, self._inject_leader_stands, self._inject_client_stands))
        finale = random.choice(
            (self._inject_cut_off, self._inject_cut_off, self._inject_usurp, self._inject_usurp, self._inject_crash)
        )
        if random.random() < 0.15:
            finale = random.choice((self._inject_reconnect, self._inject_client_cut, self._inject_server_stands))
        act = self._finally(finale)
        how, handled = random.random(), random.random() < 0.5
        if how < 0.5 or self.plan.sharp:
            how = 0.0
            self._aimed = Aimed(first, act, handled)
        else:
            if first is not None:
                first()
            if how < 0.8:
                faults, so_far = (self._on_handled, self._handled) if handled else (self._on_answered, self._answered)
                faults[so_far + random.choice((1, 1, 2, 3))] = act
        self.at(self.now + (2 * self.plan.timeout if how < 0.8 else 2 * TICK) * random.random(), _NOBODY, act)

    def _finally(self, act: Callable[[], None]) -> Callable[[], None]:
        """Return what does something once, and sometimes something else afterwards."""
        done = False

        def once() -> None:
            nonlocal done
            if not done:
                done = True
                act()
                if self.random.random() < 0.3:
                    then = self.random.choice((self._inject_client_cut, self._inject_reconnect, self._inject_usurp))
                    self.at(self.now + self.plan.timeout * self.random.random() ** 2, _NOBODY, then)

        return once

    def _path(self) -> list[Link]:
        """Return the link between the client's server and its leader, if there is one."""
        link = None if self.conn is None else self.conn.server.link
        return [] if link is None else [link]

    def _cut(self, channel: Channel, time: float) -> None:
        channel.until = max(channel.until, self.now + time)

    def _inject_down_late(self) -> None:
        """Have the leader's messages be late."""
        for link in self._path():
            self._cut(link.down, 2 * TICK * self.random.random())

    def _inject_leader_stands(self) -> None:
        self._stand(self.reign.leader, TICK * self.random.choice((0.3, 1, 3)))

    def _inject_server_stands(self) -> None:
        if self.conn is not None:
            self._stand(self.conn.server, self.plan.timeout)

    def _inject_client_stands(self) -> None:
        self._stand(self.client, self.plan.timeout * self.random.choice((0.3, 1)))

    def _stand(self, process: Process, most: float) -> None:
        process.until = self.now + most * self.random.random()

    def _inject_cut_off(self) -> None:
        """Cut the client's server off from its leader."""
        time = math.inf if self.random.random() < 0.7 else self.plan.timeout * self.random.random()
        both = self.random.random() < 0.5
        for link in self._path():
            self._cut(link.up, time)
            if both:
                self._cut(link.down, time)
        self.happened["cut off"] += 1

    def _inject_usurp(self) -> None:
        """Have the followers leave a leader that does not know, and elect another."""
        old = self.reign
        followers = [server for server in self.voters if server.link is not None and server.link.reign is old]
        if len(followers) < QUORUM or old.over:
            return
        self.happened["usurped"] += 1
        stay = self.random.random() < 0.3  # the leader's links are silent first
        for server in followers:
            assert server.link is not None
            self._cut(server.link.down, math.inf)
            if self.random.random() < 0.7:
                self._cut(server.link.up, math.inf)
        wait = self.plan.timeout / 2 * self.random.random() if stay else 0.0
        self.at(self.now + wait, _NOBODY, self._depose, old, followers)

    def _inject_crash(self) -> None:
        """Have the leader end, and the followers elect another."""
        old = self.reign
        if not old.over:
            self.happened["crashed"] += 1
            old.over = True
            followers = [server for server in self.voters if server.link is not None and server.link.reign is old]
            self._release_level(old.leader)
            old.leader.until = math.inf
            self._depose(old, followers)

    def _depose(self, old: Reign, followers: list[Server]) -> None:
        if self.reign is not old:
            return
        for server in followers:
            if server.reign is old:
                self._release_level(server)
        self.at(self.now + TICK * self.random.random() ** 2, _NOBODY, self._succeed, old, followers)

    def _succeed(self, old: Reign, candidates: list[Server]) -> None:
        candidates = [server for server in candidates if server.reign is None and server.until < math.inf]
        if self.reign is old and len(candidates) >= QUORUM:
            most = max(server.logged for server in candidates)
            leader = self.random.choice([server for server in candidates if server.logged == most])
            self._elect(leader, [server for server in candidates if server is not leader])
            if self.observer.reign is None:
                self._join(self.observer, self.reign)

    def _inject_client_cut(self) -> None:
        """Cut the client off from its server."""
        if self.conn is not None:
            time = self.random.choice((0.3, 1, math.inf)) * (self.plan.timeout * (0.01 + self.random.random()))
            direction = self.random.randrange(3)
            if direction != 1:
                self._cut(self.conn.up, time)
            if direction != 2:
                self._cut(self.conn.down, time)

    def _inject_reconnect(self) -> None:
        """Have the client connect anew."""
        if self.conn is not None and not self.ended:
            self.happened["reconnected"] += 1
            self.connect(self.random.choice(self.servers))


_NOBODY = Process("nobody")


def history(seed: int) -> History:
    """Run the history of a seed.

    Raises:
        Violation: the lease ran, and the session was over.
    """
    random = Random(seed)
    made = History(random, random_plan(random))
    try:
        made.inject()
    except Violation as error:
        add_note(error, f"seed {seed}: {made.plan}")
        raise
    return made
