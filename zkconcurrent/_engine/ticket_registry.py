"""The registry: the nodes of one client in ZooKeeper, as plain state and events, free of threads, clocks and I/O.

The session calls the registry's methods with its lock held, except `note_event`, which kazoo's connection thread calls
without the lock; the simulation calls them from one thread.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection

from .._errors import LossCause
from .._protocol.node_names import PREFIX_LENGTH, unique_prefix
from .._protocol.operations import SessionExpired
from .._protocol.session_lease import Lease
from .._protocol.ticket import LossRecord, State, Ticket

MOST_LEFT = 100
EXPIRED = LossRecord(LossCause.SESSION_EXPIRED)


class Registry:
    """The tickets of one client: those that wait, those that are held, and those whose nodes it still has to delete.

    Invariants:
        * every contender's node that this client may have on the server is that of a ticket in `tickets` or `deletes`;
        * a hold is in `tickets` with `State.HELD`, in the present session, until `expire_lease` finds its lease over;
        * a ticket in `deletes` never becomes a hold again.

    Attributes:
        lease: the lease of the present session, or of the last one; kazoo's connection thread alone writes into it.
        session: the present session; None between two sessions.
        tickets: the tickets that wait or are held, by prefix.
        deletes: the tickets whose nodes must be removed from the server, by prefix.
        lost: the lost holds that were not reported yet.
        recently_left: the paths where this client deleted nodes last, a hundred at most, the latest at the end.
        trees: for each tree that is watched, the deque that takes the children that change, and the tree's own path if
            its watch was replaced.
        left: the paths that no ticket awaits any more, and that may still have a watch on the server; True for a path
            whose tree may be watched. `Watches` empties it.
    """

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self._numbers = itertools.count(1)
        self.session: int | None = None
        self.lease = Lease(0)
        self.tickets: dict[str, Ticket] = {}
        self.deletes: dict[str, Ticket] = {}
        self.lost: list[Ticket] = []
        self.recently_left: dict[str, None] = {}
        self.trees: dict[str, deque[str]] = {}
        self.left: dict[str, bool] = {}
        self._awaiting: dict[str, set[Ticket]] = {}

    # -- the session ---------------------------------------------------------------------------------------------

    def begin_session(self, lease: Lease) -> None:
        """Begin a session, or continue the present one after a reconnect, which dropped every watch."""
        if lease.session != self.session:
            self.end_session()
            self.session = lease.session
        self.lease = lease
        self.left.clear()
        self.note_change(None)

    def end_session(self, loss: LossRecord = EXPIRED) -> None:
        """End the session: the server removes its nodes, except lasting ones, and its holds are lost."""
        self.session = None
        for prefix, ticket in list(self.deletes.items()):
            if not ticket.lasting:
                # A signal handler may have handled the reply to the delete.
                self.deletes.pop(prefix, None)
        for ticket in list(self.tickets.values()):
            if ticket.state is State.HELD:
                self._lose(ticket, loss)
            else:
                ticket.note_change()

    def expire_lease(self, now: float, loss: LossRecord) -> None:
        """End the holds that outlived the lease; delete their nodes, in case the session lives on."""
        if now < self.lease.end:
            return
        for ticket in list(self.tickets.values()):
            if ticket.state is State.HELD:
                self._lose(ticket, loss)

    # -- a ticket's life -----------------------------------------------------------------------------------------

    def new_ticket(self, path: str, begun: list[Ticket], *, marked: bool = False, detached: bool = False) -> Ticket:
        """Return a new ticket of the present session, and add it to the tickets of its call."""
        if self.session is None:
            raise SessionExpired
        prefix = unique_prefix(self.seed, next(self._numbers), marked=marked, detached=detached)
        ticket = Ticket(path, prefix, self.lease)
        # R1: a call that is interrupted after this can discard the ticket.
        begun.append(ticket)
        self.tickets[ticket.prefix] = ticket
        return ticket

    def grant(self, ticket: Ticket, now: float) -> bool:
        """Turn the first ticket of a queue into a hold; False if its lease must be proved, or its way is blocked.

        Raises:
            SessionExpired: the ticket's session is over.
        """
        if ticket.session != self.session or ticket.prefix not in self.tickets:
            raise SessionExpired
        way, ticket.way = ticket.way, None
        if way is not None and not way.is_clear:
            return False
        if not ticket.lease.believed(now, ticket.doubted):
            return False
        ticket.granted = now
        ticket.become(State.HELD)
        # The heartbeat must notice if the node of a hold is gone, so it checks this node again.
        ticket.unreadable = False
        return True

    def discard(self, ticket: Ticket) -> bool:
        """Discard a ticket; return whether anything of it may still be on the server."""
        if ticket.awaits:
            # An error has ended the wait, or the call is abandoned.
            self.stop_waiting(ticket)
        if ticket.prefix not in self.tickets:
            return ticket.prefix in self.deletes
        there = ticket.sent and (ticket.session == self.session or ticket.lasting)
        # R1: in this order, `tickets` or `deletes` accounts for the node wherever an interrupt strikes.
        if there:
            self.deletes[ticket.prefix] = ticket
        ticket.become(State.DISCARDED)
        # A signal handler may have handled a reply that removed the ticket already.
        self.tickets.pop(ticket.prefix, None)
        return there

    def mark_deleted(self, ticket: Ticket) -> None:
        """Note that the server has nothing of a ticket any more."""
        self.stop_waiting(ticket)
        if ticket.state is State.QUEUED:
            ticket.become(State.DISCARDED)
        self.deletes.pop(ticket.prefix, None)
        self.tickets.pop(ticket.prefix, None)
        self.recently_left.pop(ticket.path, None)
        self.recently_left[ticket.path] = None
        if len(self.recently_left) > MOST_LEFT:
            # R4: this copies the paths in one step, as a signal handler may add one.
            self.recently_left.pop([*self.recently_left][0], None)  # noqa: RUF015

    def suspend_hold(self, ticket: Ticket) -> bool:
        """Turn a hold into a waiter: its node is being deleted, which does not count as a loss; see `SuspendHold`."""
        if ticket.state is not State.HELD:
            return False
        ticket.become(State.QUEUED)
        return True

    def end_hold(self, ticket: Ticket, loss: LossRecord) -> None:
        """End a hold whose lease still runs, and delete its node, to let others in."""
        if ticket.state is State.HELD:
            self._lose(ticket, loss)

    def _lose(self, ticket: Ticket, loss: LossRecord) -> None:
        ticket.loss = loss
        # R1: if an interrupt strikes after this, the next thread that checks a hold finishes the loss.
        self.lost.append(ticket)
        self.finish_loss(ticket)

    def finish_loss(self, ticket: Ticket) -> None:
        """Note that a hold is lost; queue its node's delete if the node may exist. A second call changes nothing."""
        if ticket.prefix in self.tickets:
            if ticket.sent and ticket.session == self.session:
                self.deletes[ticket.prefix] = ticket
            ticket.become(State.LOST)
            self.tickets.pop(ticket.prefix, None)

    def mark_missing(self, ticket: Ticket) -> None:
        """Note that the node of a holder or waiter is not on the server."""
        if ticket.state is State.HELD:
            # An operator has deleted the node: the hold is lost, and no node is left to delete.
            ticket.sent = False
            self._lose(ticket, LossRecord(LossCause.NODE_DELETED))
        else:
            # The recipe lists again, misses its node and queues anew.
            ticket.note_change()

    # -- waiting -------------------------------------------------------------------------------------------------

    def start_waiting(self, ticket: Ticket, *nodes: str) -> None:
        """Wake the ticket at events on the nodes, and when the holder of one of them hands over."""
        self.stop_waiting(ticket)
        ticket.awaits, ticket.changed, ticket.spent, ticket.handed_over = nodes, False, False, False
        for node in nodes:
            self._awaiting.setdefault(node, set()).add(ticket)

    def stop_waiting(self, ticket: Ticket) -> None:
        """End what `start_waiting` began."""
        # If there were several watches, only one has fired, and the others are left on the server.
        spent = ticket.spent and len(ticket.awaits) == 1
        for node in ticket.awaits:
            tickets = self._awaiting.get(node, set())
            tickets.discard(ticket)
            if not tickets:
                self._awaiting.pop(node, None)
                if not spent:
                    self.left.setdefault(node, False)
        ticket.awaits = ticket.shown = ()

    def note_change(self, node: str | None) -> None:
        """Wake the waiters for a node that changed; for None, all waiters, as all watches were dropped."""
        nodes = list(self._awaiting) if node is None else [node]
        for each in nodes:
            for ticket in list(self._awaiting.get(each, ())):
                if node is not None:
                    ticket.spent = True
                ticket.note_change()

    def look_again(self) -> None:
        """Wake all waiters except those that only wait for a sibling's deletion; their watches may still be set."""
        for waiters in list(self._awaiting.values()):
            for ticket in list(waiters):
                if not (ticket.name and all(node.startswith(f"{ticket.path}/") for node in ticket.awaits)):
                    ticket.note_change()

    def note_event(self, node: str, connection: object, *, deleted: bool) -> Ticket | None:
        """Pass a node's event to the ways that concern the node; return the ticket whose own node it is.

        On kazoo's connection thread, without the lock: see `way`.
        """
        # R4: this copies the waiters in one step.
        for waiter in [*self._awaiting.get(node, ())]:
            if (way := waiter.way) is not None:
                way.change_ahead(connection, deleted=deleted)
        own = self._ticket_of(node)
        if own is None:
            return None
        own.watched = False
        if (way := own.way) is not None:
            way.change_own()
        return own

    def is_awaited(self, node: str) -> bool:
        """Return whether a ticket awaits a change of a node, or may watch it as its own."""
        return node in self._awaiting or self._ticket_of(node) is not None

    def _ticket_of(self, node: str) -> Ticket | None:
        """Return the ticket that waits or holds with a node."""
        ticket = self.tickets.get(node.rpartition("/")[2][:PREFIX_LENGTH])
        return None if ticket is None or ticket.node != node else ticket

    def note_change_in(self, tree: str, node: str) -> None:
        """Note a change of a node in a watched tree; a change of the tree's root means that its watch was replaced."""
        if (changes := self.trees.get(tree)) is not None:
            changes.append(node)
            self.note_change(tree)

    def hand_over(self, ticket: Ticket) -> None:
        """Let this client's next waiter go on: the holder's single delete was sent, in the session that both share.

        The waiter's recipe decides whether its rule lets it hold at once, or only look again. If it may hold, the head
        of the queue stays this client's, whatever becomes of the delete: `ticket` held, so no node was ahead of it, and
        the waiter's last listing had no node between the two. The grant checks the session and the lease again.
        """
        for waiter in list(self._awaiting.get(ticket.node, ())):
            if waiter.session == ticket.session == self.session:
                waiter.handed_over = waiter.spent = True
                waiter.note_change()

    # -- the heartbeat -------------------------------------------------------------------------------------------

    def known(self) -> list[Ticket]:
        """Return the tickets whose nodes must be on the server."""
        return [ticket for ticket in list(self.tickets.values()) if ticket.name and ticket.session == self.session]

    def shared(self, ticket: Ticket, shown: tuple[str, ...]) -> tuple[str, ...]:
        """Return `shown`, or the equal tuple of another waiter of the same nodes: a crowd then keeps one tuple."""
        others = list(self._awaiting.get(ticket.awaits[-1], ())) if ticket.awaits else ()
        return next((other.shown for other in others if other.shown == shown), shown)

    def shown(self) -> list[str]:
        """Return the nodes whose end this client's waiters wait for.

        A waiter that knows of a change does not count: it only has to look again, however long that takes.
        """
        each_node = list(self._awaiting.values())
        waiters = {waiter for waiters in each_node for waiter in list(waiters) if not waiter.changed}
        return list({node: None for waiter in waiters for node in waiter.shown})

    def strays(self, path: str, names: Collection[str]) -> list[str]:
        """Return this client's nodes among the children of `path` that belong to no ticket, to be deleted."""
        return [f"{path}/{name}" for name in names if self.is_own(name) and not self._accounted_for(name)]

    def is_own(self, name: str) -> bool:
        """Return whether a node is this client's, of this session or of an earlier one."""
        return name.startswith(f"_c_{self.seed}-")

    def _accounted_for(self, name: str) -> bool:
        prefix = name[:PREFIX_LENGTH]
        return prefix in self.tickets or prefix in self.deletes
