"""The loss of the holds of one acquire: it sets an event, calls `on_lost`, and notifies joint holds of locks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar
from weakref import ref

from .._protocol.ticket import State, Ticket
from .loss_cause import was_lost
from .session import Session

T = TypeVar("T")


class LossObserver(Protocol):
    """A primitive whose user may want to know of a loss."""

    _session: Session

    def _start_on_lost(self) -> None:
        """Call `on_lost` on a thread of its own. If this raises RuntimeError, the keeper calls it again later."""


class LossListener(Protocol):
    """An object that is notified of losses."""

    @property
    def over(self) -> bool:
        """Whether it needs no more notifications."""

    def set(self) -> None:
        """Wake the threads that wait for the loss; called with the session's lock held."""

    def note_loss(self) -> None:
        """Note the loss, after `set`; never wait, as the caller may have the session's lock."""


class Loss:
    """The loss of the holds of one acquire: whether it has come, and the event that it sets, made on demand.

    All methods are called with the session's lock held.

    Attributes:
        is_lost: the holds are lost.
        reported: the keeper has reported the loss to the observers.
        listeners: the objects that are notified of the loss, such as the joint losses of which it is a part.
    """

    __slots__ = ("__weakref__", "_event", "_make_event", "is_lost", "listeners", "reported")

    def __init__(self, make_event: Callable[[], threading.Event]) -> None:
        self._make_event = make_event
        self._event: threading.Event | None = None
        self.is_lost: bool = False
        self.reported: bool = False
        self.listeners: tuple[LossListener, ...] = ()

    @property
    def event(self) -> threading.Event:
        """The event that is set when the holds are lost."""
        if self._event is None:
            self._event = self._make_event()
            if self.is_lost:
                self._event.set()
        return self._event

    def add(self, listener: LossListener) -> bool:
        """Add a listener for the loss; return whether the loss has come already."""
        self.listeners = (*(each for each in self.listeners if not each.over), listener)
        return self.is_lost

    def set(self) -> None:
        """Record the loss, set its event, and call `set` of each listener."""
        self.is_lost = True
        if self._event is not None:
            self._event.set()
        for listener in self.listeners:
            listener.set()


class JointLoss:
    """The loss of a joint hold, of several paths and clients: the joint hold is lost as soon as one of its parts is.

    Attributes:
        event: set when the joint hold is lost.
        parts: weak references to the losses of its holds. A loss lives as long as its hold, and this object as long as
            any of the losses.
        holder: a weak reference to the object that has the joint hold, so that the object can be garbage collected.
        tickets: the tickets of the holds, once all are held.
        given_up: the tickets that the holder's own release gives up; the release may find that they were lost before.
        noted: the joint hold is lost, and `note_loss` has decided whether to report the loss.
        reported: the keeper has reported the loss to the holder.
    """

    def __init__(self, holder: LossObserver, parts: Sequence[Loss], event: threading.Event) -> None:
        self.event = event
        self.parts = tuple(map(ref, parts))
        self.holder = ref(holder)
        self.tickets: Sequence[Ticket] = ()
        self.given_up: Sequence[Ticket] = ()
        self.noted = False
        self.reported = False

    @classmethod
    def of(cls, holder: LossObserver, losses: Sequence[tuple[Session, Loss]]) -> JointLoss:
        """Return the holder's joint loss of these losses; make it if there is none.

        Each loss comes with the session that reports it.
        """
        parts = [loss for _, loss in losses]
        first = losses[0][0]
        with first.lock:
            for each in parts[0].listeners:
                if isinstance(each, JointLoss) and each.holder() is holder and each.is_of(parts):
                    return each
        joint = cls(holder, parts, first.link.user_event())
        for session, loss in losses:
            with session.lock:
                is_lost = loss.add(joint)
            if is_lost:
                joint.note_loss()
        return joint

    def is_of(self, parts: Sequence[Loss]) -> bool:
        """Return whether it is the joint loss of these parts."""
        return all(part() is each for part, each in zip(self.parts, parts, strict=True))

    @property
    def over(self) -> bool:
        """Whether the joint hold has ended: one of its holds has ended, or its holder is gone."""
        return self.holder() is None or any(part() is None for part in self.parts)

    @property
    def held(self) -> bool:
        """Whether all parts are held, or lost and not settled."""
        return bool(self.tickets) and all(ticket.state is not State.DISCARDED for ticket in self.tickets)

    def set(self) -> None:
        """Set the event."""
        self.event.set()

    def note_loss(self) -> None:
        """Set the loss; if all parts were held until then, have `on_lost` called."""
        self.event.set()
        if self.noted:
            return
        holder = self.holder()
        if holder is not None and (self.held or any(map(was_lost, self.given_up))):
            holder._session.keeper.start_soon(partial(self._report, holder))
        # R2: if an interrupt comes before this, the loss is noted again.
        self.noted = True

    def _report(self, holder: LossObserver) -> None:
        """Report the loss, once, even if two sessions have noted it at once; on the keeper's thread."""
        if not self.reported:
            self.reported = True
            holder._start_on_lost()

    def giving_up(self, tickets: Sequence[Ticket], release: Callable[[], T]) -> T:
        """Return `release()`, which gives up these tickets.

        The release, or a later reply, may find that a ticket was lost before.
        """
        if self.held:
            self.given_up = tickets
        try:
            return release()
        finally:
            # Only tickets that this release has ended stay in the list. A ticket that is still held has more levels,
            # and any other loss was reported.
            self.given_up = [ticket for ticket in self.given_up if ticket.state is State.DISCARDED]
