"""An in-memory ZooKeeper: a leader and a follower that may lag behind it, with sessions, watches and containers.

As in ZooKeeper, a change is planned by the leader, written to a log, and applied by each server in the log's order. A
server answers reads from the changes that it has applied, and keeps the watches of the sessions connected to it. Each
one's tree and watches are those of the memory server. Here are its faults: what is late, lost or forgotten, and who
leads. The contract tests put the same questions to a real server.

A third server, which has no clients, is the majority with whichever of the two leads. So the follower may be elected
while the leader is alone and does not know: it goes on answering reads and syncs. The leader hears of a follower's
sessions only with that one's answers to its pings; earlier messages, and the pings, may be late or lost.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.exceptions import EXCEPTIONS
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
from kazoo.protocol.states import EVENT_TYPE_MAP
from kazoo.security import OPEN_ACL_UNSAFE

from tests.simulation.world.world import Violation, World
from zkconcurrent._kazoo.link import ZnodeStat
from zkconcurrent._kazoo.requests import CreateContainer
from zkconcurrent._kazoo.watches import TREE, AddWatch, RemoveWatches
from zkconcurrent._memory import changes
from zkconcurrent._memory.changes import Change, Checked, Made, Operation, Refused, Removed, Stat, Step, Written
from zkconcurrent._memory.server_watches import ANY_WATCH, CHILDREN_WATCH, DATA_WATCH, RECURSIVE, Watches
from zkconcurrent._memory.tree import Applied, Node, Tree
from zkconcurrent._protocol.operations import Names

TICK = 1.0  # of the servers, in seconds: no timeout is below two
PING = TICK / 2  # between two pings of the leader to its follower
LAST = 2_147_483_647
LOCAL = (GetData, GetChildren2, Exists, AddWatch, RemoveWatches)  # the requests that a server answers by itself


def only_checks(request: Any) -> bool:
    """Whether a request is a multi that changes nothing, as a heartbeat is."""
    return isinstance(request, Transaction) and all(isinstance(each, CheckVersion) for each in request.operations)


class Listing(Names):
    """The names of children, with how much of the log the server had applied."""

    def __init__(self, node: Node, seen: int) -> None:
        super().__init__(node.children)
        self.data_length = len(node.data or b"")
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

    def watches(self, path: str, kind: int = DATA_WATCH) -> bool:
        """Whether the client has left a watch of some kind there."""
        return any(self in table.watchers.get(path, ()) for table in self.server.watches.tables(kind))


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


class Server:
    """One server: its tree, and the watches of those connected to it.

    Attributes:
        nodes: those of its tree.
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
        self.tree = Tree()
        self.nodes = self.tree.nodes
        self.watches: Watches[Transport] = Watches()
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

    def stop_watching_tree(self, wire: Transport, path: str) -> bool:
        """Remove a client's recursive watch, as servers do since 3.9, and no other; return whether it had one."""
        tables = self.watches.tables(ANY_WATCH)
        ours = [table for table in tables if table.watchers.get(path, {}).get(wire) == RECURSIVE]
        for table in ours:
            table.remove(wire, path)
        return bool(ours)

    def ephemerals(self, session: int) -> list[str]:
        """Return the paths of a session's nodes; none if it is over."""
        return list(self.tree.sessions[session].paths) if session in self.tree.sessions else []

    def all_ephemerals(self) -> list[str]:
        """Return the paths of the nodes of all sessions."""
        return [path for session in self.tree.sessions.values() for path in session.paths]


class Ensemble:
    """The service.

    Attributes:
        trip: how long a message takes between a client and a server.
        on_proof: called once, when the follower has answered a create of a contender's, or a multi.
        on_change: called after the leader has applied a change.
        log: the changes; an empty one where a fault or an operator has altered the nodes in another way.
        elections: how long the log was at each but the first.
        gone: when, in changes, each node was removed, and its czxid.
        wraps: creates follow so fast on each other that numbers beyond the last are given.
        ends: numbers have been near their end.
        worn: the first version of all nodes that clients share: as if they had been written very often.
        fresh: the folders of nodes that are not: one client alone writes its receipts.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.leader = Server("first server")  # until another is elected
        self.follower = Server("second server")
        self.trip = 0.0
        self.on_proof: Callable[[], None] | None = None
        self.servers = (self.leader, self.follower)
        self.log: list[Change] = []
        self.elections: list[int] = []
        self.gone: dict[str, tuple[int, int]] = {}
        self.sessions: dict[int, SessionState] = {}
        self.wires: list[Transport] = []
        self.on_expiry: Callable[[SessionState], None] = lambda _: None
        self.on_request: Callable[[Any], bool] = lambda _: False  # before one is served; True if it shall not be now
        self.on_answer: Callable[[Transport, Any], None] = lambda _, __: None  # after one was served
        self.on_change: Callable[[Change], None] = lambda _: None
        self.wraps = self.ends = False
        self.worn = 0
        # The nodes that were altered at each empty change of the log.
        self._altered: dict[int, Callable[[Tree], None]] = {}

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
            # It has no place in the log: a server that lags may show its client what was before it.
            for each in self.servers:
                each.tree.apply((changes.Opened(state.number, int(timeout * 1000)),), each.tree.zxid)
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
        self._commit(self.leader.tree.plan_end(state.number))
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
        wire.server.watches.remove_all(wire)
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
        if wire.throttled:
            wire.throttled, error = False, kazoo_errors.ThrottledOpError()
        else:
            try:
                value = self._answer(wire, request)
            except Refused as refusal:
                error = EXCEPTIONS[refusal.code]()
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
        server, path = wire.server, getattr(request, "path", "")
        if isinstance(request, Exists):
            if request.watcher is not None:
                server.watches.add(wire, path, DATA_WATCH)
            return ZnodeStat(*server.nodes[path].stat()) if path in server.nodes else None
        if isinstance(request, GetData | GetChildren2):
            node = server.tree.find(path)
            lists = isinstance(request, GetChildren2)
            if request.watcher is not None:
                server.watches.add(wire, path, CHILDREN_WATCH if lists else DATA_WATCH)
            return Listing(node, server.applied) if lists else (node.data, ZnodeStat(*node.stat()))
        if isinstance(request, AddWatch):
            server.watches.add(wire, path, ANY_WATCH, RECURSIVE)
            return None
        if isinstance(request, RemoveWatches):
            if request.kind != TREE:
                server.watches.remove(wire, path, request.kind)
            elif not server.stop_watching_tree(wire, path):
                raise Refused(changes.Code.NO_WATCHER)
            return None
        # The rest goes by way of the leader.
        if isinstance(request, Sync):
            if server.alone_until <= self.world.now:
                self._catch_up(server)
            return path
        try:
            return self._write(wire.session.number, request)
        finally:
            # A write that is refused has its place in the log too.
            self._catch_up(server)

    def _write(self, session: int, request: Any) -> Any:
        """Do what a client asks for; answer as kazoo reads it."""
        if not isinstance(request, Transaction):
            change, stats = self.ask(session, _operation(request))
            made = _result(change[0], stats[0])
            # The stat is that after `_wear`.
            return (made, ZnodeStat(*self.leader.nodes[made].stat())) if isinstance(request, Create2) else made
        operations = list(map(_operation, request.operations))
        try:
            return list(map(_result, *self.ask(session, *operations)))
        except Refused as refusal:
            codes = [0 if n < refusal.index else changes.Code.RUNTIME_INCONSISTENCY for n in range(len(operations))]
            codes[refusal.index] = refusal.code
            return [EXCEPTIONS[code]() for code in codes]

    def ask(self, session: int, *operations: Operation) -> tuple[Change, Sequence[Stat | None]]:
        """Have the leader do operations for a session, or for an operator, who is 0; return what was done.

        Raises:
            Refused: one of them can't be done.
        """
        change = self.leader.tree.plan(session, operations, int(self.world.now * 1000))
        if all(type(step) is Checked for step in change):
            return change, [None] * len(change)
        return change, self._commit(change).stats

    # -- the log -------------------------------------------------------------------------------------------------

    def _commit(self, change: Change) -> Applied:
        for step in change:
            for path in removed_by(step):
                # A node that is made in the same change is none that anybody knew.
                if path in self.leader.nodes:
                    self.gone[path] = len(self.log) + 1, self.leader.nodes[path].czxid
        self.log.append(change)
        applied = self._apply(self.leader)
        if self.follower.amiss_until <= self.world.now:
            self._catch_up(self.follower)
        self.on_change(change)
        return applied

    def _alter(self, act: Callable[[Tree], None]) -> None:
        """Have each server's nodes altered when it comes so far in the log."""
        self._altered[len(self.log) + 1] = act
        self._commit(())

    def steps(self, begun: int = 0) -> Iterator[tuple[int, Step]]:
        """Yield the steps of the changes since the log had so many, each with the number of its change."""
        for number, change in enumerate(self.log[begun:], begun + 1):
            for step in change:
                yield number, step

    def _catch_up(self, server: Server) -> None:
        while server.applied < len(self.log):
            self._apply(server)

    def zxid(self, applied: int) -> int:
        """Return the zxid of the last of so many changes; its upper half counts the elections before that."""
        return (bisect_left(self.elections, applied) << 32) + applied

    def lose_delete(self, path: str, node: Node) -> None:
        """Have all servers show a node again: one that has lost its delete is elected, and others take its copy."""

        def restore(tree: Tree) -> None:
            tree.apply((Made(path, node.data, node.acl, node.owner, 0, node.ctime),), tree.zxid)
            tree.nodes[path].czxid = node.czxid

        self.world.say(f"all servers lose the delete of {path}")
        for wire in list(self.wires):
            self.close(wire)
        self.elections.append(len(self.log))
        self._alter(restore)

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

    def _apply(self, server: Server) -> Applied:
        change = self.log[server.applied]
        server.applied += 1
        if server.forgets:
            change = self._forget(server, change)
        applied = server.tree.apply(change, self.zxid(server.applied))
        if not change and server.applied in self._altered:
            self._altered[server.applied](server.tree)
        if self.worn or self.wraps:
            self._wear(server, change)
        for wire, event in server.watches.fire(applied.events):
            what = EVENT_TYPE_MAP[event.kind]
            self._send(wire, f"event: {event.path} {what}", (event.path, what))
        return applied

    def _forget(self, server: Server, change: Change) -> Change:
        """Return a change without the first delete of an ephemeral node, which the server loses."""
        for n, step in enumerate(change):
            if isinstance(step, Removed) and server.nodes[step.path].owner not in (0, changes.CONTAINER):
                self.world.say(f"the {server.name} loses the delete of {step.path}")
                server.forgets, server.diverged = False, True
                return change[:n] + change[n + 1 :]
        return change

    def _wear(self, server: Server, change: Change) -> None:
        """Have new nodes begin with the version of worn ones, and numbers go on beyond the last."""
        for step in change:
            if isinstance(step, Made) and step.path in server.nodes:
                if step.owner in (0, changes.CONTAINER) and "/receipts/" not in step.path:
                    server.nodes[step.path].version = self.worn
                if self.wraps and step.creates < 0:
                    server.nodes[changes.split(step.path)[0]].creates = step.creates

    # -- operators and the server's own chores -------------------------------------------------------------------

    def delete(self, path: str) -> None:
        """Delete a node, as an operator does."""
        self.world.say(f"an operator deletes {path}")
        self.ask(0, changes.Delete(path))

    def reap(self) -> None:
        """Remove containers that had children and have none."""
        tree = self.leader.tree
        for path in sorted(tree.containers, reverse=True):
            if tree.nodes[path].creates and not tree.nodes[path].children:
                self.world.say(f"{path} is reaped")
                self.ask(0, changes.Delete(path))

    def count_from(self, path: str, number: int) -> None:
        """Set a node's counter of creates."""
        self.ends = True
        self.world.say(f"{path} counts from {number}")
        self._alter(lambda tree: setattr(tree.nodes[path], "creates", number))


def removed_by(step: Step) -> tuple[str, ...]:
    """Return the paths of the nodes that a step removes."""
    return (step.path,) if isinstance(step, Removed) else step.paths if isinstance(step, changes.Closed) else ()


def writes(step: Step, path: str) -> bool:
    """Whether a step writes the data of a node, or makes it."""
    return isinstance(step, Made | Written) and step.path == path


def _operation(request: Any) -> Operation:
    """Return what a request of kazoo's asks for."""
    if isinstance(request, Create | Create2):
        open_to_all = request.acl is OPEN_ACL_UNSAFE
        acl = changes.OPEN if open_to_all else tuple((each.perms, each.id.scheme, each.id.id) for each in request.acl)
        container = isinstance(request, CreateContainer)
        return changes.Create(request.path, request.data, acl, request.flags, container)
    if isinstance(request, SetData):
        return changes.SetData(request.path, request.data, request.version)
    if isinstance(request, Delete):
        return changes.Delete(request.path, request.version)
    if isinstance(request, CheckVersion):
        return changes.Check(request.path, request.version)
    raise Violation(f"the simulated server does not know {request!r}")


def _result(step: Step, stat: Stat | None) -> Any:
    """Return what kazoo makes of a step."""
    if isinstance(step, Made):
        return step.path
    return ZnodeStat(*stat) if isinstance(step, Written) and stat is not None else True


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
