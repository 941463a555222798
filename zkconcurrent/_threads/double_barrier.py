"""`DoubleBarrier`: parties begin a computation together, and end it together."""

from __future__ import annotations

import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Sequence

from .._arguments.limits import check_positive
from .._engine.call import Call
from .._engine.holds import PathState, Possession
from .._engine.session import LeftTickets, Session
from .._errors import LockLostError, LossCause, ZkConcurrentError
from .._kazoo.link import KazooClient
from .._protocol.operations import Requeue, SessionExpired
from .._protocol.ticket import State, Ticket
from .._recipes.destroy import destroy
from .._recipes.double_barrier import enter, leave, tree, withdraw
from .._runtime.public import ErrorKind, Traceback
from .._runtime.wait_loops import Steps, outlast
from .base.node_data import node_data
from .base.primitive import Primitive, kind_of, reports_loss


class DoubleBarrierState(PathState):
    """The state of a double barrier that all objects of one client and path share.

    Attributes:
        inside: the tickets of the parties that have entered, by thread.
        entering: each thread's last call of `enter`.
    """

    def __init__(self, session: Session, path: str, kind: str) -> None:
        super().__init__(session, path, kind)
        self.inside: dict[int, Ticket] = {}
        self.keeping.add(self)
        self.entering: weakref.WeakValueDictionary[int, Call] = weakref.WeakValueDictionary()
        weakref.finalize(self, _drop_collected, session.dropped, path, self.inside).atexit = False

    def _kept(self) -> Iterable[Possession]:
        """Return the parties inside, for `inspect()`."""
        now = self.session.clock()
        return [
            Possession("party", ticket.token, owner, now - ticket.granted)
            for owner, ticket in list(self.inside.items())
        ]

    def forget_tickets(self, tickets: Sequence[Ticket]) -> None:
        """Forget the party of a call that was abandoned."""
        for owner, ticket in list(self.inside.items()):
            if ticket in tickets:
                self.inside.pop(owner, None)

    def forget(self) -> None:
        """Forget all parties, in a forked child: they are the parent's."""
        super().forget()
        self.inside.clear()

    def leave_to_keeper(self, owner: int) -> None:
        """Leave a party's node for the keeper to delete. Takes no lock, as the party's task may be thrown away."""
        ticket = self.inside.get(owner)
        if ticket is not None and ticket.state is State.QUEUED and not self.session.forked:
            self.session.dropped.append(LeftTickets([], [ticket]))
            self.session.wake_keeper()
        self.inside.pop(owner, None)  # R2

    def leave_owner_to_keeper(self, owner: int, *, thrown_away: bool) -> bool:
        """If a task was thrown away with its loop, take its party out. Any other party has left already, or stays."""
        if thrown_away and owner in self.inside:
            self._blocks.append(0)
            self.leave_to_keeper(owner)
        return False


def _drop_collected(dropped: deque[LeftTickets], path: str, inside: dict[int, Ticket]) -> None:
    """Queue the work of a finalizer. Do nothing else, as a finalizer may run at any line."""
    if inside:
        why = f"the last object of {path!r} was garbage collected while a party was inside"
        dropped.append(LeftTickets([], list(inside.values()), why))
        warnings.warn(why, ResourceWarning, stacklevel=2)


class DoubleBarrier(Primitive):
    """A barrier that parties, threads of any processes, enter together and leave together.

    ::

        with zkconcurrent.DoubleBarrier(zk, "/app/round", parties=3):
            compute()  # begins when three have come; the block ends when all have finished

    A party that dies counts as having left, as its node goes with its session. The number of parties is a threshold: a
    party that arrives while others are inside enters at once. Once all have left, the barrier can be used again.

    Layout:
        `<path>/_c_<uuid>-party-<number>`, EPHEMERAL_SEQUENTIAL, one for each party that waits or is inside;
        `<path>/ready`, PERSISTENT, while parties are inside: the znodes of Curator's DistributedDoubleBarrier, which
        lets a party's node have any name. The path itself is a container, whose version counts the decisions.

    Invariant:
        A party creates `ready` only while there are `parties` nodes. A party removes `ready` only together with the
        last of these nodes, or when it finds that all parties which `ready` let in are gone. A late party deletes
        `ready` and creates it again, on condition that one of the others is inside. A party gives up waiting only while
        there is no `ready`.

    Cost:
        `enter`: 1 write and 2 reads in one round trip; then 2 reads to wait, or 1 write by the party that opens the
        barrier. Each arrival wakes the parties that wait, each of which reads twice. `leave`: 3 reads and 1 write,
        in two round trips; then 2 reads to wait. The party whose name sorts first leaves last. It waits for one party
        after the other, and a party that leaves wakes only this last one. The last party's own departure wakes all
        others, each of which reads once.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the barrier's path; missing nodes are created as containers.
        parties: how many must arrive before they enter; all processes must give the same.

    Raises:
        TypeError: `parties` is not an int, or the path is not a string.
        ValueError: `parties` is less than 1, or larger than 2**63 - 1; the path is invalid; or this client already uses
            it for another primitive.

    Source:
        ZooKeeper's double barrier recipe; Curator's `DistributedDoubleBarrier`.
    """

    _kind = "DoubleBarrier"
    _path_state: DoubleBarrierState

    def __init__(self, client: KazooClient, path: str, parties: int) -> None:
        self._parties = check_positive("parties", parties)
        super().__init__(client, path)

    def _new_state(self) -> DoubleBarrierState:
        return DoubleBarrierState(self._session, self._path, self._kind)

    def enter(self, timeout: float | None = None) -> bool:
        """Enter; wait until enough parties have arrived.

        An exception such as KeyboardInterrupt ends the call once the party has withdrawn, so that no other party counts
        it and enters. If the others have already entered with it, it leaves. For this, the call waits at most a third
        of the session timeout, and not while ZooKeeper is out of reach.

        Args:
            timeout: how long to wait for the others, in seconds; None waits forever, zero or less makes one attempt. If
                replies are late, the call waits up to a third of the session timeout for its first read of the
                barrier, and as long again for the reply that shows whether the others have entered with the caller.

        Returns:
            Whether the caller is inside. If False, the attempt leaves no node behind.

        Raises:
            RuntimeError: this thread is inside already; or the caller is a signal handler or finalizer that has
                interrupted this thread's own `enter`.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            ForeignNodeError: the path has other nodes or data, or `ready` has children.
            ClientError: the client can't be used here.
        """
        deadline, owner = self._until(timeout), self._identity()
        call = Call(self._session, self._path, self._path_state)
        return self._await(call, self._entering(call, deadline, owner))

    def _entering(self, call: Call, deadline: float | None, owner: int) -> Steps[bool]:
        if self._ticket_inside(owner) is not None:
            raise RuntimeError(f"the caller is inside the double barrier {self._path!r} already: leave() it first")
        entering = self._path_state.entering
        if (interrupted := entering.get(owner)) is not None and interrupted in self._session.calls:
            raise RuntimeError(
                f"this thread was interrupted in enter() of the double barrier {self._path!r}, and continues only when "
                "the calling signal handler or finalizer returns: enter in another thread"
            )
        entering[owner] = call
        arrived = yield from call.run(enter(self._path, self._parties, node_data(owner)), deadline)
        if arrived is None:
            return False
        ticket, inside, struck = arrived
        if not inside:
            inside = yield from self._withdrawing(call, ticket, struck)
        if inside:
            ticket.granted = self._session.clock()
            self._path_state.inside[owner] = ticket
        return inside

    def _withdrawing(self, call: Call, ticket: Ticket, struck: BaseException | None) -> Steps[bool]:
        """Give up waiting; return whether the barrier had opened already.

        Raises:
            BaseException: the last interrupt, once the party has withdrawn or, if the barrier had opened, has left.
        """
        strikes = deque([] if struck is None else [struck], maxlen=1)
        # An interrupted call does not wait for a reconnect: the keeper deletes the node afterwards.
        began = self._session.now()
        until = began if struck is not None or not ticket.sent else began + self._session.reply_patience
        del struck
        try:
            inside = bool((yield from call.outlast(lambda: withdraw(ticket), until, began, strikes.append)))
            if strikes and inside:
                # The other parties have entered with this one, so it must leave.
                yield from call.outlast(lambda: leave(ticket, wait=False), self._session.now(), began, strikes.append)
        except (Requeue, ZkConcurrentError):
            if not strikes:
                raise
        if strikes:
            raise strikes.pop()
        return inside

    def leave(self, timeout: float | None = None) -> bool:
        """Leave, and wait until all other parties have left.

        When the call returns or raises, the caller is outside in any case.

        Args:
            timeout: how long to wait for the others, in seconds; None waits forever, zero or less does not wait. After
                the timeout, the call waits up to a third of the session timeout for the reply to its own leave.

        Returns:
            Whether all have left; False at the deadline.

        Raises:
            LockLostError: the caller's session expired while it was inside, or its node was deleted, so others counted
                it as having left.
            RuntimeError: this thread is not inside.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            ClientError: the client can't be used here.
            ForeignNodeError: the path has other nodes.
        """
        self._session.check_not_forked(self._path)
        deadline, owner = self._until(timeout), self._identity()
        ticket = self._ticket_inside(owner)
        if ticket is None:
            raise RuntimeError(f"the caller is not inside the double barrier {self._path!r}: enter() it first")
        call = Call(self._session, self._path, self._path_state)
        # R1: the call has the ticket before it begins, so the caller is outside however the call ends.
        call.tickets.append(ticket)
        wait = timeout is None or timeout > 0
        return self._await(call, self._leaving(call, ticket, wait, deadline, owner))

    def _ticket_inside(self, owner: int) -> Ticket | None:
        """Return the ticket of the caller's party, if it is inside."""
        ticket = self._path_state.inside.get(owner)
        if ticket is not None and ticket.state is State.DISCARDED:
            # An interrupt struck at the end of the party's leave, before the party was forgotten.
            self._path_state.inside.pop(owner, None)
            return None
        return ticket

    def _leaving(self, call: Call, ticket: Ticket, wait: bool, deadline: float | None, owner: int) -> Steps[bool]:
        strikes: deque[BaseException] = deque(maxlen=1)
        try:
            left, until, since = None, 0.0, None
            try:
                left = yield from call.run(leave(ticket, wait=wait), deadline)
                if left is None and deadline is not None:
                    # The first read may already have waited for its replies past the deadline.
                    until, since = deadline + self._session.reply_patience, deadline
            except (Requeue, ZkConcurrentError, GeneratorExit):
                raise
            except BaseException as error:
                strikes.append(error)
            if left is None and ticket.state is State.QUEUED:
                try:
                    left = yield from outlast(call.run(leave(ticket, wait=False), until, since), strikes.append)
                except SessionExpired:
                    raise
                except Requeue:
                    # The party has left, but no reply came in time.
                    pass
            if strikes:
                raise strikes.pop()
            return bool(left)
        except Requeue as gone:
            if strikes:
                raise strikes.pop() from None
            expired = isinstance(gone, SessionExpired)
            raise LockLostError(
                self._path,
                "the party was lost inside the double barrier (its session expired, or its node was deleted), and "
                "others counted it as having left; enter() again",
                LossCause.SESSION_EXPIRED if expired else LossCause.NODE_DELETED,
                ticket.token,
            ) from None
        finally:
            self._path_state.leave_to_keeper(owner)

    def __enter__(self) -> bool:
        return self.enter()

    def __exit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        """Leave; after an exception, without waiting for the others."""
        try:
            if not self._session.forked:  # the party is the parent's
                self.leave(None if kind is None else 0.0)
        except LockLostError:
            if reports_loss(kind):
                raise
        except BaseException:
            # If an interrupt struck before the leave, the party is still inside; otherwise nothing is left to do.
            self._path_state.leave_to_keeper(self._identity())
            raise

    @property
    def parties(self) -> int:
        """How many parties must arrive before they enter."""
        return self._parties

    def destroy(self) -> None:
        """Remove the node that stays behind if all parties died inside. The next use would remove it, too.

        Raises:
            RuntimeError: a party waits, or is inside.
            ClientError: the client can't be used here.
            ForeignNodeError: the path has other nodes; none of them is deleted.
        """
        return self._run(destroy(tree(self._path)), self._destroyed)

    def __repr__(self) -> str:
        inside = len(self._path_state.inside)
        return f"<{kind_of(self)} at {id(self):#x} path={self._path!r}: parties={self._parties}, inside={inside}>"
