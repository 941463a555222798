"""One ZooKeeper service: it numbers a tree's changes, expires sessions, and decides which client gets which event.

It has neither sockets nor threads: one thread at a time calls it, and its clocks are arguments. Its server calls
`run_chores` now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from .changes import READ, Change, Delete, Ids, Opened, Operation
from .rights import allows
from .server_watches import Watches
from .tree import Applied, Tree


class Limits(NamedTuple):
    """What a service grants, in milliseconds.

    Attributes:
        tick: sessions expire at multiples of it.
        shortest: the shortest timeout of a session.
        longest: the longest timeout of a session.
        containers: how often empty containers are removed.
    """

    tick: int = 200
    shortest: int = 400
    longest: int = 60_000
    containers: int = 60_000


class Peer(Protocol):
    """The service's end of one connection.

    Attributes:
        session: the number of its session; 0 before there is one.
        ids: what it has authenticated as.
    """

    session: int
    ids: list[tuple[str, str]]

    def notify(self, kind: int, path: str) -> None:
        """Send an event to the client."""

    def disconnect(self) -> None:
        """Close the connection, once all is sent."""


class Service:
    """The service.

    Args:
        tree: the nodes and sessions with which it begins.
        limits: what it grants.
        clock: returns milliseconds, and never goes back; sessions expire by it.
        wall_clock: returns milliseconds since 1970, for the stats of nodes.
        record: called with each change and its zxid, before the change is applied.

    Attributes:
        watches: what the connections watch.
        peers: the connection of each session that has one.
    """

    def __init__(
        self,
        tree: Tree,
        limits: Limits,
        clock: Callable[[], int],
        wall_clock: Callable[[], int],
        record: Callable[[int, Change], None] = lambda _zxid, _change: None,
    ) -> None:
        self.tree = tree
        self.limits = limits
        self.watches: Watches[Peer] = Watches()
        self.peers: dict[int, Peer] = {}
        self._clock = clock
        self._wall_clock = wall_clock
        self._record = record
        now = clock()
        # For each session, the timeout that its last connection negotiated, and when its client last sent a request.
        self._timeouts = {number: session.timeout for number, session in tree.sessions.items()}
        self._heard = dict.fromkeys(tree.sessions, now)
        self._next_session = max(wall_clock() << 16, *tree.sessions, 0) + 1
        self._containers_due = now + limits.containers

    def commit(self, session: int, operations: Sequence[Operation], ids: Ids | None) -> tuple[Change, Applied]:
        """Do all operations, or none of them; the request takes a zxid in either case.

        Raises:
            Refused: one of the operations can't be done.
        """
        change: Change = ()
        try:
            change = self.tree.plan(session, operations, self._wall_clock(), ids)
        finally:
            applied = self.apply(change)
        return change, applied

    def apply(self, change: Change) -> Applied:
        """Apply a planned change, and send its events; a refused request, which changes nothing, takes a zxid too."""
        zxid = self.tree.zxid + 1
        self._record(zxid, change)
        applied = self.tree.apply(change, zxid)
        if applied.events:
            for peer, event in self.watches.fire(applied.events):
                if allows(event.acl, peer.ids, READ):
                    peer.notify(event.kind, event.path)
        return applied

    def grant(self, timeout: int) -> int:
        """Return the timeout that a client gets if it asks for this one."""
        return max(self.limits.shortest, min(timeout, self.limits.longest))

    def open(self, peer: Peer, timeout: int) -> int:
        """Begin a session for a connection; return its number."""
        session, self._next_session = self._next_session, self._next_session + 1
        self.apply((Opened(session, timeout),))
        self.enter(session, peer, timeout)
        return session

    def enter(self, session: int, peer: Peer, timeout: int) -> None:
        """Attach a connection to a session."""
        self.peers[session] = peer
        self._timeouts[session] = timeout
        self.hear(session)

    def cut(self, session: int) -> None:
        """Close the connection of a session, if it has one."""
        peer = self.peers.get(session)
        if peer is not None:
            peer.disconnect()

    def forget_peer(self, session: int, peer: Peer) -> None:
        """Forget a connection that is closed; its session lives on until it expires."""
        self.watches.remove_all(peer)
        if self.peers.get(session) is peer:
            del self.peers[session]

    def hear(self, session: int) -> None:
        """Note that a session's client lives."""
        self._heard[session] = self._clock()

    def close(self, session: int) -> None:
        """End a session, and delete its nodes."""
        self.apply(self.tree.plan_end(session))
        self._heard.pop(session, None)
        self._timeouts.pop(session, None)

    def remove(self, path: str) -> None:
        """Remove a node with all nodes below it, if it is there."""
        nodes, found = self.tree.nodes, [path]
        for each in found:
            found += [f"{each}/{name}" for name in nodes[each].children] if each in nodes else []
        if path in nodes:
            self.commit(0, [Delete(each) for each in reversed(found)], None)

    def run_chores(self) -> int:
        """Expire sessions, and remove empty containers.

        Returns:
            The time of the clock at which there may be more to do.
        """
        now = self._clock()
        tick = now - now % self.limits.tick
        for session in [each for each, heard in self._heard.items() if heard + self._timeouts[each] < tick]:
            self.close(session)
            self.cut(session)
        if self._containers_due <= now:
            self._containers_due = now + self.limits.containers
            nodes = self.tree.nodes
            # A container that has never had a child stays: a client may be about to make one.
            for path in [each for each in self.tree.containers if nodes[each].creates and not nodes[each].children]:
                self.commit(0, [Delete(path)], None)
        return tick + self.limits.tick
