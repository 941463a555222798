"""The registry: what one client has in ZooKeeper, as plain state and events, free of threads, clocks and I/O.

The session calls the registry with its lock held; the simulation calls it from one thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

from .._recipes.operations import SessionExpired
from .._recipes.ticket import PREFIX_LENGTH, State, Ticket
from .lease import Lease


class Registry:
    """What one client waits for, holds, and has still to delete.

    Invariants:
        * every node that we may have on the server belongs to a ticket in `tickets` or in `deletes`;
        * a hold is in `tickets` with `State.HELD`, in the present session, and only while the lease runs;
        * a ticket in `deletes` is never taken for a hold again.

    Attributes:
        lease: of the present session, or of the last; written on kazoo's connection thread, never here.
        session: the present session, None between two.
        tickets: what waits or holds, by prefix.
        deletes: what must be removed from the server, by prefix.
        lost: the holds lost whose threads were not told yet.
    """

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self._numbers = itertools.count(1)
        self.session: int | None = None
        self.lease = Lease(0)
        self.tickets: dict[str, Ticket] = {}
        self.deletes: dict[str, Ticket] = {}
        self.lost: list[Ticket] = []
        self._awaiting: dict[str, set[Ticket]] = {}

    # -- the session ---------------------------------------------------------------------------------------------

    def opened(self, lease: Lease) -> None:
        """Begin a session, or go on with the one there was, after a reconnect: every watch was dropped."""
        if lease.session != self.session:
            self.ended()
            self.session = lease.session
        self.lease = lease
        self.note_change(None)

    def ended(self) -> None:
        """End the session: its nodes are the server's to remove, its holds are lost."""
        self.session = None
        self.deletes.clear()
        for ticket in list(self.tickets.values()):
            if ticket.state is State.HELD:
                self._lose(ticket)
            else:
                ticket.note_change()

    def expire_lease(self, now: float) -> None:
        """Lose what is held beyond the lease, and have its nodes removed should the session live on after all."""
        if now < self.lease.end:
            return
        for ticket in list(self.tickets.values()):
            if ticket.state is State.HELD:
                self._lose(ticket)
                self.deletes[ticket.prefix] = ticket

    # -- a ticket's life -----------------------------------------------------------------------------------------

    def begin(self, path: str, begun: list[Ticket]) -> Ticket:
        """Return a new ticket of the present session; it is added to what its driver has begun."""
        if self.session is None:
            raise SessionExpired
        ticket = Ticket(path, f"_c_{self.seed}-{next(self._numbers):012x}-", self.lease)
        begun.append(ticket)  # first: who is interrupted here must be able to give it up
        self.tickets[ticket.prefix] = ticket
        return ticket

    def grant(self, ticket: Ticket, now: float) -> bool:
        """Make a hold of a ticket that is first in its queue; False if a lease must be proved first.

        Raises:
            SessionExpired: its session is over.
        """
        if ticket.session != self.session or ticket.prefix not in self.tickets:
            raise SessionExpired
        if not ticket.lease.believed(now):
            return False
        ticket.state = State.HELD
        ticket.unreadable = False  # a hold whose node is gone is to be missed
        return True

    def discard(self, ticket: Ticket) -> bool:
        """Give a ticket up; return whether anything of it can be on the server still."""
        self.stop_waiting(ticket)  # an interrupt may have kept its driver from that
        if ticket.prefix not in self.tickets:
            return ticket.prefix in self.deletes
        there = ticket.sent and ticket.session == self.session
        # In this order: wherever an interrupt strikes, the node is accounted for.
        if there:
            self.deletes[ticket.prefix] = ticket
        ticket.state = State.DISCARDED
        self.tickets.pop(ticket.prefix, None)  # a signal handler may have taken an answer that has done so
        return there

    def created_in_wrong_session(self, ticket: Ticket, session: int | None) -> None:
        """Give up a ticket whose node was made, or may have been, in a later session than its own; delete it there.

        A create goes out in whatever session there is: made just when its session ends, it may wait for the next.
        """
        self.discard(ticket)
        ticket.session = session or 0  # its lease was another's: it is never granted
        if session is not None and session == self.session:
            self.deletes[ticket.prefix] = ticket

    def mark_deleted(self, ticket: Ticket) -> None:
        """Note that the server has nothing of a ticket any more."""
        self.stop_waiting(ticket)
        if ticket.state is State.QUEUED:
            ticket.state = State.DISCARDED
        self.deletes.pop(ticket.prefix, None)
        self.tickets.pop(ticket.prefix, None)

    def suspend_hold(self, ticket: Ticket) -> bool:
        """Make of a hold what only waits: its node is being deleted, which is no loss; see `SuspendHold`."""
        if ticket.state is not State.HELD:
            return False
        ticket.state = State.QUEUED
        return True

    def _lose(self, ticket: Ticket) -> None:
        self.tickets.pop(ticket.prefix, None)
        ticket.state = State.LOST
        self.lost.append(ticket)

    def mark_missing(self, ticket: Ticket) -> None:
        """Note that the node of what waits or holds is not on the server."""
        if ticket.prefix not in self.tickets:
            return
        if ticket.state is State.HELD:
            self._lose(ticket)  # an operator has deleted it
        else:
            ticket.note_change()  # its recipe lists again, misses its node and queues anew

    # -- waiting -------------------------------------------------------------------------------------------------

    def start_waiting(self, ticket: Ticket, *nodes: str) -> None:
        """Let events on the nodes, and the hand-over by the holder of one of them, reach the ticket."""
        self.stop_waiting(ticket)
        ticket.awaits, ticket.changed, ticket.handed_over = nodes, False, False
        for node in nodes:
            self._awaiting.setdefault(node, set()).add(ticket)

    def stop_waiting(self, ticket: Ticket) -> None:
        """End what `wait` began."""
        for node in ticket.awaits:
            tickets = self._awaiting.get(node, set())
            tickets.discard(ticket)
            if not tickets:
                self._awaiting.pop(node, None)
        ticket.awaits = ticket.shown = ()

    def note_change(self, node: str | None) -> None:
        """Wake who waits for a node that changed; everybody who waits, for None (all watches were dropped)."""
        nodes = list(self._awaiting) if node is None else [node]
        for each in nodes:
            for ticket in list(self._awaiting.get(each, ())):
                ticket.note_change()

    def hand_over(self, ticket: Ticket) -> None:
        """Let the next waiter of ours go on: the holder's single delete was sent, on the session of both.

        It is for the waiter's recipe to say whether its rule lets it hold at once, or only look again. If it does,
        the head of the queue stays ours whatever becomes of the delete: `ticket` held, so nobody was ahead of it, and
        the waiter's last listing had nobody between the two. The grant checks the session and the lease again.
        """
        for waiter in list(self._awaiting.get(ticket.node, ())):
            if waiter.session == ticket.session == self.session:
                waiter.handed_over = True
                waiter.note_change()

    # -- the heartbeat -------------------------------------------------------------------------------------------

    def known(self) -> list[Ticket]:
        """Return the tickets whose nodes must be on the server."""
        return [ticket for ticket in self.tickets.values() if ticket.name and ticket.session == self.session]

    def shown(self) -> list[str]:
        """Return the nodes whose end our waiters wait for."""
        waiters = {waiter for waiters in self._awaiting.values() for waiter in waiters}
        return list({node: None for waiter in waiters for node in waiter.shown})

    def strays(self, path: str, names: Collection[str]) -> list[str]:
        """Return the nodes of ours among the children of `path` that no ticket has: to be deleted."""
        ours = f"_c_{self.seed}-"
        return [f"{path}/{name}" for name in names if name.startswith(ours) and not self._accounted_for(name)]

    def _accounted_for(self, name: str) -> bool:
        prefix = name[:PREFIX_LENGTH]
        return prefix in self.tickets or prefix in self.deletes
