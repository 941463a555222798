"""An in-memory ZooKeeper: a leader and a follower that may lag behind it, with sessions, watches and containers.

As in ZooKeeper, a change is decided by the leader, written to a log, and applied by each server in the log's order; a
server answers reads from the changes that it has applied, and keeps the watches of the sessions connected to it. The
contract tests put the same questions to a real server.

A third server, which has no clients, is the majority with whichever of the two leads. So the follower may be elected
while the leader is alone and does not know: it goes on answering reads and syncs. The leader hears of a follower's
sessions only with that one's answers to its pings; earlier messages, and the pings, may be late or lost.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Create2,
    Delete,
    Exists,
    GetChildren2,
    GetData,
    SetData,
    Sync,
    Transaction,
)
from kazoo.protocol.states import EventType

from tests.simulation.world.world import Violation, World
from zkconcurrent._kazoo.link import CreateContainer, ZnodeStat
from zkconcurrent._kazoo.watches import CHILDREN, DATA, TREE, AddWatch, RemoveWatches
from zkconcurrent._protocol.operations import Names

EPHEMERAL, SEQUENTIAL = 1, 2
TICK = 1.0  # of the servers, in seconds: no timeout is below two
PING = TICK / 2  # between two pings of the leader to its follower
LAST = 2_147_483_647
LOCAL = (GetData, GetChildren2, Exists, AddWatch, RemoveWatches)  # the requests that a server answers by itself


def _incremented(version: int) -> int:
    """Return the next version of a node: a number of 32 bits, like Java's."""
    return version + 1 if version < LAST else -LAST - 1


def only_checks(request: Any) -> bool:
    """Whether a request is a multi that changes nothing, as a heartbeat is."""
    return isinstance(request, Transaction) and all(isinstance(each, CheckVersion) for each in request.operations)


class Listing(Names):
    """The names of children, with how much of the log the server had applied."""

    def __init__(self, node: Znode, seen: int) -> None:
        super().__init__(node.children)
        self.data_length = len(node.data)
        self.seen = seen


class Transport:
    """One TCP connection between a client and a server.

    Attributes:
        server: the one it goes to.
        session: the session it carries.
        timeout: as negotiated.
        requests: on their way to the server, each with its turn on the network and when it arrives.
        answers: on their way to the client: a function to be run by the client's connection thread; likewise.
        open: neither side has closed it.
        stalled_until: a black hole before that time.
        silent_until: its answers are under way before that time.
        since: when it was opened.
        stopped_until: until when the client's process does not run.
        delay: how long a message is under way, in seconds, either way.
        throttled: the server is too busy for its next request, and serves those behind it.
        outlives: it stays when the leader ends its session: another connection to its server closed that.
    """

    def __init__(self, server: Server, session: SessionState, since: float, stopped_until: Callable[[], float]) -> None:
        self.server = server
        self.session = session
        self.timeout = session.timeout
        self.requests: deque[tuple[int, Any, Any, float]] = deque()
        self.answers: deque[tuple[int, str, Any, float]] = deque()
        self.open = True
        self.stalled_until = 0.0
        self.silent_until = 0.0
        self.since = since
        self.stopped_until = stopped_until
        self.delay = 0.0
        self.throttled = self.outlives = False

    def heard_since(self) -> float:
        """Return since when, or from when on, the leader hears of the session all the time."""
        return max(self.since, self.stalled_until, self.server.deaf_until, self.stopped_until())


class SessionState:
    """A session, as the leader knows it.

    Attributes:
        created: the timeout that it was created with, by which a new leader begins.
        timeout: as the leader has last heard it.
        touched: when the leader last heard of it, while it does not hear of it all the time.
        pending: when the follower heard of it, and when it will tell the leader.
        expired: the leader has ended it.
    """

    def __init__(self, number: int, timeout: float) -> None:
        self.number = number
        self.created = self.timeout = timeout
        self.touched = 0.0
        self.pending: tuple[float, float] | None = None
        self.expired = False
        self.wire: Transport | None = None
        self.closed = False


class Znode:
    """A node; its children are kept by name."""

    __slots__ = ("acl", "children", "container", "created", "ctime", "czxid", "data", "mzxid", "owner", "version")

    def __init__(self, data: bytes, czxid: int, ctime: float, owner: int, container: bool, acl: Any) -> None:
        self.data = data
        self.czxid = self.mzxid = czxid
        self.ctime = ctime
        self.owner = owner
        self.container = container
        self.acl = acl
        self.created = 0
        self.version = 0
        self.children: dict[str, None] = {}

    def stat(self) -> ZnodeStat:
        """Return the node's stat."""
        at = int(self.ctime * 1000)
        size = len(self.data)
        there = len(self.children)
        changes = 2 * self.created - there  # of children: made, or deleted
        return ZnodeStat(self.czxid, self.mzxid, at, at, self.version, changes, 0, self.owner, size, there, self.czxid)


class Server:
    """One server: its nodes, and the watches of those connected to it.

    Attributes:
        applied: how much of the log it has applied.
        lags_until: applies nothing by itself before that time.
        cut_off_until: has no word with its leader before that time.
        alone_until: leads nobody before that time, and does not know.
        alone_since: when that began last.
        stands_until: stands still before that time.
        late_until: hears nothing of its leader before that time, but is heard.
        forgets: loses the next delete of an ephemeral node, as in a crash that loses a part of the log.
        diverged: its copy has a node that its leader's has not.
        limit: the longest timeout that it grants.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.alone_until = self.alone_since = self.stands_until = self.late_until = 0.0
        self.knows: set[int] = set()  # the sessions that lived when it was left alone
        self.forgets = self.diverged = False
        self.limit = 1e9
        self.nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0.0, 0, False, None)}
        self.ephemerals: dict[int, dict[str, None]] = {}
        self.watches: dict[str, dict[Transport, None]] = {}
        self.child_watches: dict[str, dict[Transport, None]] = {}
        self.tree_watches: dict[str, dict[Transport, None]] = {}  # these stay
        self.applied = 0
        self.lags_until = 0.0
        self.cut_off_until = 0.0

    @property
    def deaf_until(self) -> float:
        """Until when the leader hears of no session that is connected here."""
        return max(self.cut_off_until, self.alone_until, self.stands_until, self.late_until)

    @property
    def amiss_until(self) -> float:
        """Until when anything is wrong."""
        return max(self.lags_until, self.deaf_until)

    def children(self, path: str) -> list[str]:
        """Return the names of the children; none where there is no node."""
        node = self.nodes.get(path)
        return [] if node is None else list(node.children)

    def remove_watch(self, wire: Transport, path: str, kind: int) -> None:
        """Remove the watch of one kind that a client has on a path."""
        watches = {CHILDREN: self.child_watches, DATA: self.watches, TREE: self.tree_watches}[kind]
        watching = watches.get(path, {})
        if wire not in watching:
            raise kazoo_errors.NoWatcherError
        del watching[wire]
        if not watching:
            del watches[path]


class Ensemble:
    """The service.

    Attributes:
        trip: how long a message takes between a client and a server.
        on_proof: called once, when the follower has answered a create of a contender's, or a multi.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.leader = Server("first server")  # until another is elected
        self.follower = Server("second server")
        self.trip = 0.0
        self.on_proof: Callable[[], None] | None = None
        self.servers = (self.leader, self.follower)
        self.log: list[tuple[Any, ...]] = []
        self.elections: list[int] = []  # how long the log was at each but the first
        self.gone: dict[str, tuple[int, int]] = {}  # when, in changes, each node was removed, and made
        self.sessions: dict[int, SessionState] = {}
        self.wires: list[Transport] = []
        self.on_expiry: Callable[[SessionState], None] = lambda _: None
        self.on_request: Callable[[Any], bool] = lambda _: False  # before one is served; True if it shall not be now
        self.on_answer: Callable[[Transport, Any], None] = lambda _, __: None  # after one was served
        self.wraps = False  # creates follow so fast on each other that numbers beyond the last are given
        self.ends = False  # numbers have been near their end
        self.worn = 0  # the first version of all nodes that clients share: as if they had been written very often
        self.fresh = ("/receipts/",)  # but not these: one client alone writes its receipts

    @property
    def amiss_until(self) -> float:
        """Until when anything is wrong with a server."""
        return max(server.amiss_until for server in self.servers)

    @property
    def is_behind(self) -> bool:
        """Whether a server has not applied the whole log."""
        return self.follower.applied < len(self.log)

    # -- sessions ------------------------------------------------------------------------------------------------

    def connect(
        self, server: Server, session: int, seen: int, timeout: float, stopped_until: Callable[[], float]
    ) -> Transport | str | None:
        """Open a connection, and a session if `session` is 0.

        Returns:
            The connection; "expired"; or None when the server refuses: it knows less than the client has seen, or
            it has no leader.
        """
        now = self.world.now
        unheard = max(server.cut_off_until, server.stands_until, server.late_until, self.leader.stands_until)
        alone = server.alone_until > now
        if unheard > now or self.zxid(server.applied) < seen or (alone and session == 0):
            return None
        timeout = min(timeout, server.limit)
        if session == 0:
            # The lowest byte is the session's; real ones are 64 bits too.
            state = SessionState((1 << 56) + len(self.sessions) + 1, timeout)
            self.sessions[state.number] = state
        else:
            state = self.sessions[session]
            if state.closed and not (alone and state.number in server.knows):
                return "expired"
            if state.wire is not None:
                self.close(state.wire)
            if not alone:
                state.timeout = timeout
        wire = state.wire = Transport(server, state, now, stopped_until)
        wire.timeout = timeout
        self.wires.append(wire)
        if not alone:
            state.touched, state.pending = now, None
        return wire

    def hears(self, state: SessionState) -> bool:
        """Whether the leader hears of the session all the time."""
        wire = state.wire
        return wire is not None and wire.open and wire.heard_since() <= self.world.now

    def silence(self, state: SessionState) -> None:
        """Begin a time in which the leader does not hear of the session: call it before that is so."""
        wire, now = state.wire, self.world.now
        self._hear(state)
        ping = state.timeout / 3  # how often kazoo sends one, so that the last may be that old
        if wire is not None and wire.server is self.follower:
            ping += PING  # and the leader may have heard of the one before
        if wire is not None and wire.open and wire.heard_since() + ping <= now:
            self._touch(state, now - ping, wire.timeout)
        self._watch_over(state)

    def _touch(self, state: SessionState, time: float, timeout: float) -> None:
        if time >= state.touched:
            state.touched, state.timeout = time, timeout

    def _hear(self, state: SessionState) -> None:
        """Have the leader hear what the follower has told it of the session by now."""
        if state.pending is not None and state.pending[1] <= self.world.now and state.wire is not None:
            self._touch(state, state.pending[0], state.wire.timeout)
            state.pending = None

    def _heard(self, wire: Transport) -> None:
        """Take note of a request: the leader does so at once, the follower tells it with its answer to a ping."""
        state, server, now = wire.session, wire.server, self.world.now
        if server.alone_until > now:
            return
        if server is self.leader:
            self._touch(state, now, wire.timeout)
            return
        self._hear(state)
        if server.cut_off_until <= now:
            state.pending = now, max((now // PING + 1) * PING, server.late_until, self.leader.stands_until)

    def _watch_over(self, state: SessionState) -> None:
        self.world.at(state.touched + state.timeout, lambda: self._look_at(state))

    def _look_at(self, state: SessionState) -> None:
        if state.closed or self.hears(state):
            return
        if self.leader.stands_until > self.world.now:
            self.world.at(self.leader.stands_until, lambda: self._look_at(state))
            return
        self._hear(state)
        if state.touched + state.timeout <= self.world.now:
            self._expire(state)
        else:
            self._watch_over(state)

    def _expire(self, state: SessionState) -> None:
        self.on_expiry(state)
        state.expired = True
        self.end_session(state)

    def end_session(self, state: SessionState) -> None:
        """Expire a session: its nodes go, and its connection is closed."""
        if state.closed:
            return
        state.closed = True
        self.world.say(f"{_name(state.number)} expires at the server")
        paths = list(self.leader.ephemerals.get(state.number, ()))
        self._commit(("close", state.number, paths))
        if state.wire is not None:
            self._end_connection(state.wire)

    def _end_connection(self, wire: Transport) -> None:
        """Close the connection of a session that is over, unless its server does not hear of that, or keeps it."""
        if wire.server.deaf_until <= self.world.now and not (wire.outlives and wire.server is self.follower):
            self.close(wire)

    def close(self, wire: Transport, served: int = 0) -> None:
        """Cut a connection; `served` of the requests under way are applied still, their answers are lost."""
        if not wire.open:
            return
        self.silence(wire.session)
        wire.open = False
        while served and wire.requests and self.can_serve(wire):
            self.serve(wire)
            served -= 1
        for request in wire.requests:
            self.world.say(f"{told(request[1])} of {_name(wire.session.number)} is lost")
        wire.requests.clear()
        for answer in wire.answers:
            self.world.say(f"{answer[1]} is lost")
        wire.answers.clear()
        self.world.messages += 1
        wire.answers.append((self.world.messages, "cut", None, self.world.now))
        server = wire.server
        for watching in (*server.watches.values(), *server.child_watches.values(), *server.tree_watches.values()):
            watching.pop(wire, None)
        self.wires.remove(wire)

    # -- requests ------------------------------------------------------------------------------------------------

    def can_serve(self, wire: Transport) -> bool:
        """Whether the request that is next on a connection can be served: it has arrived, and so has what it needs."""
        now, server = self.world.now, wire.server
        if not wire.requests or wire.requests[0][3] > now or max(wire.stalled_until, server.stands_until) > now:
            return False
        request = wire.requests[0][1]
        if server.alone_until > now:
            return isinstance(request, (*LOCAL, Sync))
        return max(server.cut_off_until, self.leader.stands_until) <= now or isinstance(request, LOCAL)

    def serve(self, wire: Transport) -> None:
        """Let the server take the next request of a connection."""
        if self.on_request(wire.requests[0][2]):
            return
        writes = not isinstance(wire.requests[0][1], (*LOCAL, Sync))
        if writes and wire.session.closed and wire.server.alone_until <= self.world.now and not wire.outlives:
            self.close(wire)  # the leader refuses the writes of a session that is over
            return
        _, request, answer, _ = wire.requests.popleft()
        state = wire.session
        self._heard(wire)
        error: Exception | None = None
        value: Any = None
        try:
            value = self._answer(wire, request)
        except kazoo_errors.ZookeeperError as refusal:
            error = refusal
            if not isinstance(request, LOCAL) and not isinstance(error, kazoo_errors.ThrottledOpError):
                self._catch_up(wire.server)  # a write that is refused has its place in the log too
        what = ""
        if self.world.trace is not None:
            what = f"{told(request)}: {type(error).__name__ if error else _shorten(value)}"
        self.world.say(f"{wire.server.name} serves {_name(state.number)}: {what}")
        self._send(wire, f"the answer to {what}", (request, answer, value, error, self.zxid(wire.server.applied)))
        self.on_answer(wire, answer)
        proof = error is None and type(request) in (Create2, Transaction)
        if self.on_proof is not None and proof and wire.server is self.follower:
            act, self.on_proof = self.on_proof, None
            act()

    def _send(self, wire: Transport, what: str, message: Any) -> None:
        """Send something to a client."""
        self.world.messages += 1
        due = self.world.now + self.trip + wire.delay
        wire.answers.append((self.world.messages, what, message, due))
        if due > self.world.now:
            self.world.at(due)

    def _answer(self, wire: Transport, request: Any) -> Any:
        server, session = wire.server, wire.session
        path = getattr(request, "path", "")
        if wire.throttled:
            wire.throttled = False
            raise kazoo_errors.ThrottledOpError
        if isinstance(request, GetData):
            node = server.nodes.get(path)
            if node is None:
                raise kazoo_errors.NoNodeError
            if request.watcher is not None:
                server.watches.setdefault(path, {})[wire] = None
            return node.data, node.stat()
        if isinstance(request, Exists):
            if request.watcher is not None:
                server.watches.setdefault(path, {})[wire] = None
            return server.nodes[path].stat() if path in server.nodes else None
        if isinstance(request, GetChildren2):
            if path not in server.nodes:
                raise kazoo_errors.NoNodeError
            if request.watcher is not None:
                server.child_watches.setdefault(path, {})[wire] = None
            return Listing(server.nodes[path], server.applied)
        if isinstance(request, AddWatch):
            server.tree_watches.setdefault(path, {})[wire] = None
            return None
        if isinstance(request, RemoveWatches):
            server.remove_watch(wire, path, request.kind)
            return None
        # The rest goes by way of the leader.
        if session.closed and not isinstance(request, Sync) and server.alone_until <= self.world.now:
            if isinstance(request, Transaction):
                rest = [kazoo_errors.RuntimeInconsistency() for _ in request.operations[1:]]
                return [kazoo_errors.SessionExpiredError(), *rest]
            raise kazoo_errors.SessionExpiredError
        if isinstance(request, Create2):
            made = self._create(session, request)
            self._catch_up(server)
            return made, self.leader.nodes[made].stat()
        if isinstance(request, Create):
            made = self._create(session, request)
            self._catch_up(server)
            return made
        if isinstance(request, SetData):
            stat = self._set(request)
            self._catch_up(server)
            return stat
        if isinstance(request, Delete):
            self._delete(path, request.version)
            self._catch_up(server)
            return True
        if isinstance(request, Transaction):
            results = self._multi(session, request.operations)
            self._catch_up(server)
            return results
        if isinstance(request, Sync):
            if server.alone_until <= self.world.now:
                self._catch_up(server)
            return path
        raise Violation(f"the simulated server does not know {request!r}")

    def _multi(self, session: SessionState, operations: list[Any]) -> list[Any]:
        """Do all or nothing; answer each operation as kazoo reads it.

        Of what one before it has made, an operation can only delete leaves.
        """
        nodes = self.leader.nodes
        gone: set[str] = set()
        made: set[str] = set()
        for n, each in enumerate(operations):
            creates = isinstance(each, Create | Create2)
            wanted = _above(each.path) if creates else each.path
            error = None
            if (wanted not in nodes or wanted in gone) and wanted not in made:
                error = kazoo_errors.NoNodeError()
            elif creates:
                if each.path in nodes and each.path not in gone and not each.flags & SEQUENTIAL:
                    error = kazoo_errors.NodeExistsError()
                made.add(each.path)
            elif wanted not in made and each.version not in (-1, nodes[each.path].version):
                error = kazoo_errors.BadVersionError()
            elif isinstance(each, Delete):
                if wanted in made:
                    made.remove(wanted)
                elif not gone.issuperset(f"{each.path}/{name}" for name in nodes[wanted].children):
                    error = kazoo_errors.NotEmptyError()
                gone.add(each.path)
            if error is not None:
                rest = [kazoo_errors.RuntimeInconsistency() for _ in operations[n + 1 :]]
                return [*(kazoo_errors.RolledBackError() for _ in operations[:n]), error, *rest]
        results: list[Any] = []
        for each in operations:
            if isinstance(each, Create | Create2):
                results.append(self._create(session, each))
                continue
            if isinstance(each, SetData):
                results.append(self._set(each))
                continue
            if isinstance(each, Delete):
                self._delete(each.path, -1)
            elif not isinstance(each, CheckVersion):
                raise Violation(f"the simulated server does not know {each!r} in a multi")
            results.append(True)
        return results

    def _create(self, session: SessionState, request: Any) -> str:
        above = self.leader.nodes.get(_above(request.path))
        if above is None:
            raise kazoo_errors.NoNodeError
        path: str = request.path
        container = isinstance(request, CreateContainer)
        ephemeral = not container and request.flags & EPHEMERAL
        if not container and request.flags & SEQUENTIAL:
            # Beyond the last number, the counter goes on only as long as creates are under way.
            path += f"{above.created:010d}" if above.created <= LAST else f"{above.created - 2 * (LAST + 1):010d}"
        if path in self.leader.nodes or path == "/zookeeper":
            raise kazoo_errors.NodeExistsError
        owner = session.number if ephemeral else 0
        self._commit(("create", path, request.data, self.world.now, owner, container, request.acl))
        if above.created > LAST and not self.wraps:
            above.created = LAST
        return path

    def _set(self, request: Any) -> ZnodeStat:
        node = self.leader.nodes.get(request.path)
        if node is None:
            raise kazoo_errors.NoNodeError
        if request.version not in (-1, node.version):
            raise kazoo_errors.BadVersionError
        self._commit(("set", request.path, request.data))
        return node.stat()

    def _delete(self, path: str, version: int = -1) -> None:
        node = self.leader.nodes.get(path)
        if node is None:
            raise kazoo_errors.NoNodeError
        if version not in (-1, node.version):
            raise kazoo_errors.BadVersionError
        if node.children:
            raise kazoo_errors.NotEmptyError
        self._commit(("delete", path))

    # -- the log -------------------------------------------------------------------------------------------------

    def _commit(self, change: tuple[Any, ...]) -> None:
        self.log.append(change)
        self._apply(self.leader)
        if self.follower.amiss_until <= self.world.now:
            self._catch_up(self.follower)

    def _catch_up(self, server: Server) -> None:
        while server.applied < len(self.log):
            self._apply(server)

    def zxid(self, applied: int) -> int:
        """Return the zxid of the last of so many changes; its upper half counts the elections before that."""
        return (bisect_left(self.elections, applied) << 32) + applied

    def lose_delete(self, path: str, node: Znode) -> None:
        """Have all servers show a node again: one that has lost its delete is elected, and others take its copy."""
        self.world.say(f"all servers lose the delete of {path}")
        for wire in list(self.wires):
            self.close(wire)
        self.elections.append(len(self.log))
        self._commit(("restore", path, node))

    def recover(self) -> None:
        """Let the follower catch up, if nothing keeps it back any more, and the servers hear of sessions' ends."""
        if self.follower.amiss_until <= self.world.now:
            self._catch_up(self.follower)
        for wire in list(self.wires):
            if wire.session.closed:
                self._end_connection(wire)

    # -- what befalls servers ------------------------------------------------------------------------------------

    def _deafen(self, server: Server) -> None:
        for wire in self.wires:
            if wire.server is server:
                self.silence(wire.session)

    def _delay_touches(self, time: float) -> None:
        """Have the leader hear no sooner what the follower has not told it yet."""
        for state in self.sessions.values():
            if state.pending is not None:
                state.pending = state.pending[0], max(state.pending[1], time)

    def cut_off(self, length: float) -> bool:
        """Cut the follower off from its leader; False if it leads alone."""
        follower, now = self.follower, self.world.now
        if follower.alone_until > now:
            return False
        self._deafen(follower)
        self._delay_touches(math.inf)  # they are lost
        follower.cut_off_until = now + length
        self.world.say(f"the follower is cut off for {length:g}")
        self.world.at(follower.cut_off_until, self.recover)
        return True

    def be_late(self, length: float) -> bool:
        """Let the follower hear late of its leader, which goes on hearing its requests."""
        follower, now = self.follower, self.world.now
        if follower.amiss_until > now:
            return False
        self._deafen(follower)
        self._delay_touches(now + length)
        follower.late_until = now + length
        self.world.say(f"the follower hears its leader {length:g} late")
        for wire in self.wires:
            if wire.server is follower:
                wire.silent_until = max(wire.silent_until, follower.late_until)
        self.world.at(follower.late_until, self.recover)
        return True

    def stand_still(self, length: float, ends_first: bool) -> bool:
        """Let the leader stand still; then it may end sessions first, and look what has come after that."""
        leader = self.leader
        if max(leader.stands_until, self.follower.alone_until) > self.world.now:
            return False
        for wire in self.wires:
            self.silence(wire.session)
        self._delay_touches(self.world.now + length)
        leader.stands_until = self.world.now + length
        self.world.say(f"the {leader.name}, which leads, stands still for {length:g}")

        def goes_on() -> None:
            for state in list(self.sessions.values()):
                if ends_first and not state.closed and state.touched + state.timeout <= self.world.now:
                    self._expire(state)
            self.recover()

        self.world.at(leader.stands_until, goes_on)
        return True

    def usurp(self, length: float) -> bool:
        """Have the follower elected, while its leader is alone for a while and does not know."""
        old, new, now = self.leader, self.follower, self.world.now
        if max(old.amiss_until, new.amiss_until) > now:
            return False
        for wire in list(self.wires):
            self.silence(wire.session)
        self.world.say(f"the {new.name} is elected; the {old.name} is alone for {length:g}")
        self._catch_up(new)
        for wire in list(self.wires):
            if wire.server is new:
                self.close(wire)
        old.alone_since, old.alone_until = now, now + length
        old.knows = {state.number for state in self.sessions.values() if not state.closed}
        self.leader, self.follower = new, old
        self.elections.append(len(self.log))
        for state in self.sessions.values():
            if not state.closed:
                state.touched, state.timeout, state.pending = now, state.created, None
                self._watch_over(state)

        def finds_out() -> None:
            for wire in list(self.wires):
                if wire.server is old:
                    self.close(wire)
            self.recover()

        self.world.at(old.alone_until, finds_out)
        return True

    def _apply(self, server: Server) -> None:
        change = self.log[server.applied]
        server.applied += 1
        if change[0] == "create":
            _, path, data, time, owner, container, acl = change
            above = server.nodes[_above(path)]
            above.children[path.rpartition("/")[2]] = None
            above.created += 1
            node = server.nodes[path] = Znode(data, self.zxid(server.applied), time, owner, container, acl)
            if not owner and not any(folder in path for folder in self.fresh):
                node.version = self.worn
            if owner:
                server.ephemerals.setdefault(owner, {})[path] = None
            self._tell_trees(server, path, EventType.CREATED)
            self._tell(server.watches, path, EventType.CREATED)
            self._tell(server.child_watches, _above(path), EventType.CHILD)
        elif change[0] == "restore":
            _, path, old = change
            server.nodes[_above(path)].children[path.rpartition("/")[2]] = None
            server.nodes[path] = copy(old)
            server.ephemerals.setdefault(old.owner, {})[path] = None
        elif change[0] == "set":
            node = server.nodes[change[1]]
            node.data, node.version, node.mzxid = change[2], _incremented(node.version), self.zxid(server.applied)
            self._tell_trees(server, change[1], EventType.CHANGED)
            self._tell(server.watches, change[1], EventType.CHANGED)
        elif change[0] == "delete":
            if server.forgets and server.nodes[change[1]].owner:
                self.world.say(f"the {server.name} loses the delete of {change[1]}")
                server.forgets, server.diverged = False, True
            else:
                self._remove(server, change[1])
        elif change[0] == "count":
            server.nodes[change[1]].created = change[2]
        else:
            for path in list(server.ephemerals.get(change[1], ())) if server.diverged else change[2]:
                self._remove(server, path)

    def _remove(self, server: Server, path: str) -> None:
        node = server.nodes.pop(path)
        self.gone[path] = server.applied, node.czxid
        del server.nodes[_above(path)].children[path.rpartition("/")[2]]
        if node.owner:
            del server.ephemerals[node.owner][path]
        self._tell_trees(server, path, EventType.DELETED)
        for wire in {**server.watches.pop(path, {}), **server.child_watches.pop(path, {})}:
            self._tell_one(wire, path, EventType.DELETED)
        self._tell(server.child_watches, _above(path), EventType.CHILD)

    def _tell(self, watches: dict[str, dict[Transport, None]], path: str, what: str) -> None:
        for wire in watches.pop(path, ()):
            self._tell_one(wire, path, what)

    def _tell_trees(self, server: Server, path: str, what: str) -> None:
        for tree, wires in server.tree_watches.items():
            for wire in wires if path == tree or path.startswith(f"{tree}/") else ():
                self._tell_one(wire, path, what)

    def _tell_one(self, wire: Transport, path: str, what: str) -> None:
        self._send(wire, f"event: {path} {what}", (path, what))

    # -- operators and the server's own chores -------------------------------------------------------------------

    def delete(self, path: str) -> None:
        """Delete a node, as an operator does."""
        self.world.say(f"an operator deletes {path}")
        self._commit(("delete", path))

    def reap(self) -> None:
        """Remove containers that had children and have none."""
        for path, node in sorted(self.leader.nodes.items(), reverse=True):
            if node.container and node.created and not node.children:
                self.world.say(f"{path} is reaped")
                self._commit(("delete", path))

    def count_from(self, path: str, number: int) -> None:
        """Set a node's counter of creates."""
        self.ends = True
        self.world.say(f"{path} counts from {number}")
        self._commit(("count", path, number))


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _name(session: int) -> str:
    return f"session {session & 0xFFFF}"


def told(request: Any) -> str:
    """Return a request as a reader of schedules wants it."""
    kind = type(request).__name__
    watched = " with watch" if getattr(request, "watcher", None) is not None else ""
    return f"{kind} {getattr(request, 'path', getattr(request, 'prefix', ''))}{watched}"


def _shorten(value: Any) -> str:
    if isinstance(value, tuple):
        return str(value[0])[-16:] if isinstance(value[0], str) else "there"
    if isinstance(value, list):
        return "[" + ", ".join(str(each)[-21:] for each in value) + "]"
    return str(value)
