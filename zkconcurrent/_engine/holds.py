"""The holds of this process at a path: granted tickets, their owners, and lost holds that are not settled.

A granted ticket becomes a `Hold` of the thread that asked for it. A lost hold stays with its thread until the thread
settles it, so that no `release()` can ever touch a newer hold. The holds of a thread that has ended pass to no other
thread: a later thread with the same `get_ident()` neither owns them nor has their losses to settle.
"""

from __future__ import annotations

import warnings
import weakref
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from .._errors import LockLostError
from .._protocol.blocking_rules import Rule
from .._protocol.operations import NoNode
from .._protocol.ticket import State, Ticket
from .._runtime.identity import ended, holds_of
from .._runtime.live_set import LiveSet
from .loss_cause import cause_of, why_lost
from .loss_signal import Loss, LossObserver
from .session import LeftTickets, Session

T = TypeVar("T")


Location: TypeAlias = tuple[str, tuple[tuple[str, int], ...]]
"""The full path of a node, chroot included, and the servers."""


class Hold:
    """A granted ticket, and the thread that owns it.

    Attributes:
        ticket: the ticket of its node; the ticket's state is `State.HELD` while the hold lasts.
        role: the role in which it was acquired, if the path has several roles.
        owner: the thread that acquired it.
        path: the path of the primitive.
        location: the full path of its queue, and the servers, if only the owner ends the hold; otherwise None.
        depth: how many of its acquires have not been released.
        loss: the `Loss` that it shares with the other holds of the same acquire.
        claimant: the thread that is ending the hold; None if no thread is.
        lent: leads a generator that has one of the levels to this hold; None if all levels are the owner's.
    """

    __slots__ = ("claimant", "depth", "lent", "location", "loss", "owner", "path", "role", "ticket")

    def __init__(self, path: str, ticket: Ticket, role: str, owner: int, loss: Loss, depth: int = 1) -> None:
        self.path: str = path
        self.ticket: Ticket = ticket
        self.role: str = role
        self.owner: int = owner
        self.depth: int = depth
        self.loss: Loss = loss
        self.claimant: int | None = None
        self.location: Location | None = None
        self.lent: Lent | None = None

    @property
    def alive(self) -> bool:
        """Whether it is still held, as far as this process knows."""
        return self.ticket.state is State.HELD

    @property
    def owned(self) -> bool:
        """Whether only the owner ends the hold."""
        return self.location is not None

    def is_at(self, location: Location) -> bool:
        """Return whether only the owner ends the hold, and its path is that of `location`; server names may differ."""
        return self.location is not None and self.location[0] == location[0]


class Lent:
    """Leads a generator to the hold of which it has a level, on whichever thread or task it runs.

    Attributes:
        hold: the hold. A condition's wait replaces it.
    """

    def __init__(self, hold: Hold) -> None:
        self.hold: Hold = hold


def owned_by(owner: int) -> Iterator[Hold]:
    """Yield the holds that only `owner` ends, in whichever client of this process.

    Each acquire of the owner asks for the first few only. So this checks no more holds than it has to: there may be
    thousands.
    """
    holds: dict[str, Hold] = holds_of(owner)
    # Not `items()`, as a list of them makes new tuples: the garbage collector might run, and drop a hold.
    for each in list(holds.values()):
        if each.alive:
            yield each
        else:
            # The hold was lost.
            holds.pop(each.ticket.prefix, None)


class Possession(NamedTuple):
    """What a client keeps on the server for an object that is not a lock, such as the claim of an item.

    Attributes:
        mode: what it is, in a word.
        token: its fencing token, or the creation zxid of its node.
        owner: the thread or task that has it; None if it belongs to the client.
        held_for: how many seconds it has lasted.
    """

    mode: str
    token: int
    owner: int | None
    held_for: float


class Revocable(Protocol):
    """A lock whose user wants to know when a client asks the holder to let go."""

    def _start_on_revoke(self) -> None:
        """Call `on_revoke` on a thread of its own; for errors, see `LossObserver._start_on_lost`."""


class Keeping(Protocol):
    """An object that shows `inspect()` what it keeps. `_kept` may be called at any moment, on any thread."""

    def _kept(self) -> Iterable[Possession]:
        """Return what it keeps on the server."""


Holds: TypeAlias = "defaultdict[str, dict[int | str, Hold]]"


class PathState:
    """The state of one path of one client, which all objects with that client and path share.

    Attributes:
        holds: the live holds, and the lost holds that their threads have not settled: for each role a dictionary. The
            key is the owner's number, negated if a generator has a level; or, where a thread may have several holds,
            the ticket's prefix.
        lends: whether a generator has ever had a level of a hold here.
        next_loss: the loss of the next hold, by role.
        handoff: the hand-off between threads of this process, if the lock is not fair.
        part: the name of a node below its path that may be a primitive of its own.
        kept: an object that lives as long as any state below the same root; only local namespaces have one.
        lock: the path of a condition's lock.
        path_check: this client's `PathCheck`, if the primitive needs one.
        observers: the objects to which losses are reported, by role.
        revocable: the objects that are notified when a client asks the holder to let go, by role.
        keeping: the objects that have a `Possession` here, such as the claim of an item.
        last_seen: the last known value of state that other clients change too, for the repr and for plain queries.
        holders: the holders in this client's last listing.
        notes: how often calls that change `last_seen`, or wait for it, have noted it.
        elsewhere: how many holds other clients have, by role, as last seen.
    """

    def __init__(self, session: Session, path: str, kind: str) -> None:
        self.session = session
        self.path = path
        self.kind = kind
        # The layers above make this `LocalHandoff`, whose module imports this one.
        self.handoff: Any = None
        self.part = ""
        self.kept: object = None
        self.lock = ""
        # The layers above make this `PathCheck`.
        self.path_check: Any = None
        self.last_seen: Any = None
        self.notes = 0
        self.lends = False
        # The layers above make these `Contender`.
        self.holders: Sequence[Any] = ()
        self.elsewhere: dict[str, int] = {}
        self.holds: Holds = defaultdict(dict)
        self.keeping: LiveSet[Keeping] = LiveSet()
        # One entry for each block of a task that was thrown away.
        self._blocks: deque[int] = deque()
        self.observers: defaultdict[str, LiveSet[LossObserver]] = defaultdict(LiveSet)
        self.revocable: defaultdict[str, LiveSet[Revocable]] = defaultdict(LiveSet)
        make_event = session.link.user_event
        self.next_loss: defaultdict[str, Loss] = defaultdict(lambda: Loss(make_event))
        self._observer = weakref.WeakMethod(self.tell_lost)
        weakref.finalize(self, _drop_collected, session.dropped, path, self.holds).atexit = False

    @cached_property
    def location(self) -> Location:
        """Where the path is, for comparisons with other clients of this process."""
        return self.session.link.location(self.path)

    def leave_receipts(self) -> None:
        """Give up this path's receipts that no call uses, to be deleted: the client is about to end."""

    def own(self, role: str, owner: int) -> Hold | None:
        """Return the hold of `owner`, alive or lost."""
        holds = self.holds[role]
        hold = holds.get(owner) or holds.get(-owner)
        return None if hold is None or hold.ticket.state is State.DISCARDED else hold

    def all(self, role: str) -> list[Hold]:
        """Return this process's holds in that role, alive or lost."""
        holds = list(self.holds[role].values())
        return [hold for hold in holds if hold.ticket.state is not State.DISCARDED]

    def ended_at_exit(self, role: str) -> list[Hold]:
        """Return the holds that ended as the interpreter exits: a later release has nothing left to do.

        A generator's block may end, or an object be finalized, after the exit handlers, and on another thread.
        """
        holds = self.holds[role].values() if self.session.exiting else ()
        return [hold for hold in list(holds) if hold.ticket.state is State.DISCARDED]

    def newest(self, role: str) -> Hold | None:
        """Return this process's newest live hold; if none is alive, the newest lost one."""
        return max(self.all(role), key=lambda hold: (hold.alive, hold.ticket.token), default=None)

    def new_hold(self, ticket: Ticket, rule: Rule, owner: int, depth: int = 1, *, owned: bool = False) -> Hold:
        """Make the granted ticket a hold of `owner`.

        Args:
            ticket: the ticket.
            rule: the rule of the queue.
            owner: the thread or task.
            depth: how many acquires it stands for.
            owned: only this owner will end it.

        Raises:
            LockLostError: the owner has a lost hold to settle.
        """
        role = rule.role
        with self.session.lock:
            if rule.alone in role:
                self.elsewhere.clear()
            if self.holds[role]:
                before = self.own(role, owner)
                if before is not None and before.ticket.state is State.LOST:
                    raise lost_error(before)
                self._drop_unsettled(role)
            hold = Hold(self.path, ticket, role, owner, self.next_loss[role], depth)
            ticket.observer, ticket.owner = self._observer, owner
            if owned:
                hold.location = self.location
            self._keep(hold)
            self.next_loss.pop(role, None)
            if self.revocable.get(role):
                self.session.heartbeat.watch_hold(ticket)
        if ticket.state is State.LOST:
            self.tell_lost(ticket)
        return hold

    def new_holds(self, tickets: Sequence[Ticket], role: str, owner: int, size: int) -> None:
        """Turn tickets, granted from `size` permits, into further holds of `owner`; they are lost together."""
        with self.session.lock:
            for before in self.all(role):
                if before.owner == owner and before.ticket.state is State.LOST:
                    raise lost_error(before)
            self._drop_unsettled(role)
            for ticket in tickets:
                ticket.observer, ticket.owner = self._observer, owner
                self.holds[role][ticket.prefix] = Hold(self.path, ticket, role, owner, self.next_loss[role])
            if role in self.elsewhere:
                most = max(0, size - sum(hold.alive for hold in self.holds[role].values()))
                self.elsewhere[role] = min(self.elsewhere[role], most)
            self.next_loss.pop(role, None)
        for ticket in tickets:
            if ticket.state is State.LOST:
                self.tell_lost(ticket)

    def note(self, seen: object) -> None:
        """Note the last known value of state that other clients change too."""
        self.notes += 1
        self.last_seen = seen

    def note_holders(self, role: str, nodes: Sequence[str]) -> None:
        """Note the nodes that hold, as a query has read them."""
        self.elsewhere[role] = sum(not self.session.registry.is_own(node) for node in nodes)

    def _drop_unsettled(self, role: str) -> None:
        """Forget the lost holds that no thread or task is left to settle."""
        for left in list(self.holds[role].values()):
            if not left.alive and ended(left.owner):
                self.drop(left)

    def claim(self, hold: Hold, claimant: int) -> bool:
        """Let only one thread end the hold; return whether that thread is `claimant`."""
        if hold.claimant is None:
            with self.session.lock:
                if hold.claimant is None:
                    hold.claimant = claimant
        return hold.claimant == claimant

    def put_back(self, hold: Hold) -> None:
        """Restore a hold that was claimed but, as it turned out, not ended."""
        with self.session.lock:
            hold.claimant = None
            self._keep(hold)
        if hold.ticket.state is State.LOST:
            self.tell_lost(hold.ticket)

    def _keep(self, hold: Hold) -> None:
        """Record the hold as its owner's; `drop` undoes this."""
        self.holds[hold.role][hold.owner if hold.lent is None else -hold.owner] = hold
        if hold.location is not None:
            holds_of(hold.owner)[hold.ticket.prefix] = hold

    def lend(self, hold: Hold, lent: Lent) -> None:
        """Note that a generator has a level of the hold, so that threads other than the owner may end the level.

        From now on each change of the depth takes the session's lock: the owner's re-entrant acquires and releases,
        which take no lock, do not find the hold under its new key.
        """
        with self.session.lock:
            holds_of(hold.owner).pop(hold.ticket.prefix, None)
            hold.lent, lent.hold, hold.location, self.lends = lent, hold, None, True
            # This keeps the state alive. A generator in a reference cycle ends only after the objects that only the
            # cycle keeps alive have been finalized.
            hold.ticket.observer = lambda: self.tell_lost
            self._keep(hold)
            self.holds[hold.role].pop(hold.owner, None)

    def lend_again(self, before: Hold, now: Hold | None) -> None:
        """Give a generator a level of the new hold, if a condition's wait has replaced its old one."""
        if before.lent is not None and now is not None and now is not before:
            self.lend(now, before.lent)

    def hand_on(self, hold: Hold) -> bool:
        """Keep an ending hold's ticket for the next thread of this process, if allowed; return whether it is kept.

        Also True if a signal handler that interrupted this release has released the hold: its ticket may now be another
        thread's.
        """
        handoff = self.handoff
        if handoff is None:
            return False
        with self.session.lock:
            if self.own(hold.role, hold.owner) is not hold:
                return True
            self.session.hooks.ending(hold.ticket)
            if not handoff.keep_for_next(hold.ticket):
                return False
            # The ticket goes on, as another thread's hold and in another story.
            hold.ticket.story = None
            hold.ticket.limit = None
            self.drop(hold)
            return True

    def has(self, hold: Hold) -> bool:
        """Return whether the hold is still recorded."""
        return hold in list(self.holds[hold.role].values())

    def drop(self, hold: Hold) -> None:
        """Forget a hold that was released or settled."""
        with self.session.lock:
            holds = self.holds[hold.role]
            if hold.location is not None:
                holds_of(hold.owner).pop(hold.ticket.prefix, None)
            for key in (hold.owner, -hold.owner, hold.ticket.prefix):
                if holds.get(key) is hold and (dropped := holds.pop(key, hold)) is not hold:
                    # R4: a signal handler has acquired in between, and this puts its hold back.
                    holds.setdefault(key, dropped)
            if self.handoff is not None:
                self.handoff.wake_next()

    def forget_tickets(self, tickets: Sequence[Ticket]) -> None:
        """Forget the holds of an abandoned call, lost or not, and all holds whose tickets are discarded."""
        with self.session.lock:
            for hold in all_holds(self.holds):
                if hold.ticket in tickets or hold.ticket.state is State.DISCARDED:
                    self.drop(hold)

    def tell_lost(self, ticket: Ticket) -> None:
        """Report the loss of the ticket's hold, once. Each `on_lost` is called on a thread of its own."""
        hold = next((hold for hold in all_holds(self.holds) if hold.ticket is ticket), None)
        if hold is not None:
            self._note_loss(hold)

    def tell_asked(self, ticket: Ticket) -> bool:
        """Have each `on_revoke` called, as a client asks the holder to let go; with the session's lock held.

        Returns:
            Whether there is a holder. Otherwise the node is about to become a hold, and is then read again.
        """
        held = False
        for hold in all_holds(self.holds):
            if hold.ticket is ticket:
                held = True
                for each in self.revocable[hold.role]:
                    self.session.keeper.start_soon(each._start_on_revoke)
        return held

    def check_given_up(self, hold: Hold) -> None:
        """Report a hold that this client could not give up, as the server's reply to its release shows.

        Raises:
            LockLostError: another client had deleted its node.
            RefusedError: this client may not delete the node.
        """
        refusal = hold.ticket.refusal
        if isinstance(refusal, NoNode):
            try:
                self._note_loss(hold)
            except BaseException:
                # R3: report again after an interrupt, as no other thread would report this loss.
                self._note_loss(hold)
                raise
            raise lost_error(hold, 0)
        if refusal is not None:
            raise refusal

    def _note_loss(self, hold: Hold) -> None:
        with self.session.lock:
            # R3: an interrupt may have cut an earlier call short.
            hold.loss.set()
            if not hold.loss.reported:
                if self.handoff is not None:
                    self.handoff.wake_next()
                self.session.keeper.start_soon(partial(self._report, hold.loss, list(self.observers[hold.role])))
            # R3: notify the listeners even if the keeper has reported the loss: an interrupt may have cut an earlier
            # call short here.
            listeners = hold.loss.listeners
        for listener in listeners:
            listener.note_loss()

    def _report(self, loss: Loss, observers: list[LossObserver]) -> None:
        """Report a loss to the observers, once, on the keeper's thread."""
        if not loss.reported:
            loss.reported = True
            for observer in observers:
                self.session.keeper.start_soon(observer._start_on_lost)

    def leave_owner_to_keeper(self, owner: int, *, thrown_away: bool) -> bool:
        """Have the keeper release what a task held as it ended; return whether it held anything.

        A generator that has a level of a hold goes on, and ends that hold. If the task was thrown away, its blocks end
        after this, one for each level of its holds.
        """
        holds = [hold for hold in all_holds(self.holds) if hold.owner == owner and hold.lent is None]
        held = [hold.ticket for hold in holds if hold.alive]
        if thrown_away:
            self._blocks.extend(0 for hold in holds for _ in range(hold.depth))
        if held:
            # asyncio itself warns of a task that was thrown away.
            why = "" if thrown_away else "the task that held it has ended without releasing it"
            self.session.dropped.append(LeftTickets([], held, why))
            self.session.wake_keeper()
        return bool(held)

    def end_blocks_of(self, hold: Hold) -> None:
        """Note that a task was thrown away in a wait that had given up the hold; the task's blocks end after this."""
        # Otherwise the wait has its hold again, and `leave_owner_to_keeper` notes the blocks.
        if self.own(hold.role, hold.owner) is None:
            self._blocks.extend([0] * hold.depth)
            hold.depth = 0

    def leave_block(self) -> bool:
        """Return whether the block that ends belongs to a task that was thrown away."""
        with suppress(IndexError):
            self._blocks.pop()
            return True
        return False

    def forget(self) -> None:
        """Forget all holds, in a forked child: they are the parent's."""
        for holds in self.holds.values():
            holds.clear()


def all_holds(holds: Holds) -> list[Hold]:
    """Return all holds, in all roles."""
    return [hold for of_role in list(holds.values()) for hold in list(of_role.values())]


def _drop_collected(dropped: deque[LeftTickets], path: str, holds: Holds) -> None:
    """Finalize a path's state: only queue the work, as a finalizer may run anywhere."""
    for hold in all_holds(holds):
        # The owner can't end the hold any more, so `owned_by` must not yield it.
        holds_of(hold.owner).pop(hold.ticket.prefix, None)
    held = [hold.ticket for hold in all_holds(holds) if hold.alive]
    why = f"the last object of {path!r} was garbage collected while held"
    # Python hides the warning by default.
    dropped.append(LeftTickets([path], held, f"{why}: keep the object until its release"))
    if held:
        warnings.warn(why, ResourceWarning, stacklevel=2)


def lost_error(hold: Hold, owed: int | None = None) -> LockLostError:
    """Return the error for a thread whose hold is lost.

    Args:
        hold: the hold.
        owed: how many levels the thread still has to settle after this error; the hold's depth, unless given.
    """
    owed = hold.depth if owed is None else owed
    if not owed:
        advice = "nothing is left to release: acquire again"
    elif owed == 1:
        advice = "leave its `with` block or, if it has none, call release(); then acquire again"
    else:
        advice = (
            f"{owed} levels are left: leave the `with` block of each or, for one that has none, call release(); then "
            "acquire again"
        )
    return LockLostError(
        hold.path,
        f"the hold was lost ({why_lost(hold.ticket)}), and others may have held the lock since; {advice}",
        cause_of(hold.ticket),
        hold.ticket.token,
    )
