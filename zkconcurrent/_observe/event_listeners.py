"""What listeners get: the story of each acquire and its hold, in order, with each part emitted once.

A `Story` begins with an acquire, if there are listeners for it, and ends with its hold. Its parts are first recorded,
and then emitted. Each part has an iterator over the listeners that it has not reached. So no part is left out or
repeated if a thread is interrupted, or if two threads emit at the same time.

Which thread emits a part:

* The thread or task that acquires and releases emits the parts of its own calls, inside the call, so an interrupt in a
  listener gives an acquired hold back.
* A thread of the library, `zkconcurrent events`, emits all else: losses, what the keeper finds, and the ends of holds
  that no call has ended. The keeper itself never emits: a listener that blocks would stop the heartbeat. If such a part
  is not emitted yet when the owner makes its next call at that path, the owner emits it first, to keep the order.

Many functions can end a hold. None of them records the end: it is read from the hold's tickets. A function that is
about to end a hold only notes the hold's story in `untold` first (R1). The story stays there until the reply to the
delete shows whether the hold had been lost before. The owner waits for that reply no longer than its release does.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from operator import length_hint, methodcaller
from typing import Any, TypeAlias

from .._arguments.functions import check_callable
from .._engine.client_state import ClientState, log
from .._engine.keeper_thread import Helper, Keeper
from .._engine.loss_cause import cause_of, was_lost, words
from .._errors import DeadlockEdge, DeadlockError, LockLostError, LossCause, WaitCancelledError
from .._protocol.operations import OutOfReach
from .._protocol.ticket import LossRecord, State, Ticket
from .._runtime.identity import label as owner_label
from .._runtime.interrupts import insist
from .._runtime.live_set import LiveSet
from .._runtime.serving import call_listeners, in_listener
from .._runtime.wait_loops import Steps
from . import event_types as events

Listener: TypeAlias = Callable[[events.LockEvent], object]
# An acquire that need not wait for a holder takes less time than this, if ZooKeeper is in reach.
_LONG = 1.0  # seconds


class Registration:
    """A listener, and what it listens to.

    Attributes:
        listener: the listener.
        session: a weak reference to the session of the only client that it listens to; None for all clients.
        below: the path below which it listens, without a slash at its end.
        failed: whether an error of the listener was logged.
    """

    __slots__ = ("below", "failed", "listener", "session")

    def __init__(self, listener: Listener, session: weakref.ref[ClientState] | None, below: str) -> None:
        self.listener = listener
        self.session = session
        self.below = below
        self.failed = False

    def hears(self, client: ClientState, path: str) -> bool:
        """Return whether the listener gets the events of a path of a client."""
        return (self.session is None or self.session() is client) and path.startswith(f"{self.below}/")


# R4: a dictionary, as it changes in one step. Without listeners it is empty, and an acquire tests only for that.
registered: dict[Registration, None] = {}
_numbers = itertools.count(1)
_CALL = methodcaller("__call__")


def add(listener: Listener, session: ClientState | None = None, below: str = "/") -> Callable[[], None]:
    """Add a listener for all paths below `below`, of one client or of all; return a function that removes it.

    Raises:
        TypeError: as `check_listener`.
    """
    check_listener(listener)
    client = None if session is None else weakref.ref(session, lambda _: remove())
    registration = Registration(listener, client, below.rstrip("/"))

    def remove() -> None:
        """Remove the listener. A second call changes nothing."""
        registered.pop(registration, None)

    registered[registration] = None
    return remove


def check_listener(listener: object) -> None:
    """Refuse anything that can't be a listener.

    Raises:
        TypeError: it can't be called, or is a coroutine function.
    """
    check_callable(
        "a listener",
        listener,
        "give a function that passes the event on, such as `queue.put_nowait` of a task's queue by "
        "`loop.call_soon_threadsafe`",
    )


def log_failure(listener: Listener) -> None:
    """Log the error that a listener has raised; ignore errors of the program's log handlers."""
    with suppress(Exception):
        log.exception("a listener failed, and its next errors are not logged: %r", listener)


class Part:
    """A part of a story.

    Attributes:
        kind: the name of its event's class.
        at: when it was recorded.
        listeners: the listeners that get the event.
        calls: an iterator over the calls to the remaining listeners; empty once all were called.
    """

    __slots__ = ("at", "calls", "kind", "listeners")

    def __init__(self, event: events.LockEvent, listeners: Sequence[Registration]) -> None:
        self.kind = type(event).__name__
        self.at = event.at
        self.listeners = listeners
        # The event may have an error whose frames refer to the story; an exhausted iterator drops the event. The last
        # call, `bool`, does nothing: if it remains, the iteration has ended early.
        calls: list[Callable[[], object]] = [*(partial(each.listener, event) for each in listeners), bool]
        self.calls: Iterable[Callable[[], object]] = iter(calls)

    def emit(self) -> None:
        """Call the remaining listeners. This raises only errors that are not an `Exception`."""
        while True:
            try:
                # R4: taking a call and making it is one step.
                deque(map(_CALL, self.calls), 0)
                if length_hint(self.calls):
                    # A listener has raised StopIteration, which has ended the iteration of `map`.
                    raise RuntimeError("a listener has raised StopIteration")
                self.calls = ()
                return
            except Exception:
                failed = self.listeners[-max(1, length_hint(self.calls))]
                if not failed.failed:
                    failed.failed = True
                    log_failure(failed.listener)


class Story:
    """The account that listeners get of one acquire, and of its hold.

    Attributes:
        primitive: the class of the lock.
        mode: "exclusive" or "shared".
        listeners: the listeners that get its events.
        owner: the thread or task that acquires.
        path: the path of the lock.
        label: the label of the lock.
        token: the fencing token of the hold; 0 before there is one.
        tickets: the tickets of the hold; the story ends when they do.
        caller: a function that returns the release call that waits for the reply and then emits the end; it returns
            None if there is no such call.
        suspect: whether the story last recorded the hold as suspect.
    """

    def __init__(
        self,
        teller: Teller,
        kind: str,
        path: str,
        mode: str,
        owner: int,
        label: str | None,
        listeners: Sequence[Registration],
    ) -> None:
        self._teller = teller
        self._client = teller.client
        self._begun = self._client.now()
        self.primitive = kind.partition("(")[0]
        self.mode = mode
        self._by = owner_label(owner)
        self.listeners = listeners
        self._parts: dict[object, Part] = {}
        self.owner = owner
        self.path = path
        self.label = label
        self.token = 0
        self.tickets: Sequence[Ticket] = ()
        self.caller: Callable[[], object] = lambda: None
        self.suspect = False

    # -- to record -----------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Record and emit that the acquire waits behind others. A second call changes nothing."""
        self._record("waiting", "Waiting")
        # R3: after an interrupt, this emits the rest.
        self.emit()

    def grant(self, tickets: Sequence[Ticket], token: int = 0) -> None:
        """Record that the acquire has succeeded. The end of these tickets, if any, will end the story."""
        with self._client.lock:
            for ticket in tickets:
                ticket.story = self
            self.tickets = tickets
            self.token = tickets[0].token if tickets else token
            self._record("outcome", "Acquired", waited=self._waited, contended=self.waits)

    def give_up(self, *, wait: bool) -> None:
        """Record that the acquire was not granted, or not in time."""
        self._record("outcome", "TimedOut" if wait else "WouldBlock", waited=self._waited)

    def fail(self, error: BaseException | None = None) -> None:
        """Record the error that ended the acquire; None stands for a cancellation. Only the first end counts."""
        if isinstance(error, OutOfReach):
            # A condition's wait has given up the hold, and could not acquire it again.
            cause = LossCause.NOT_REACQUIRED
            error = LockLostError(self.path, f"the hold was lost ({words(LossRecord(cause))})", cause)
        kind = "DeadlockVictim" if isinstance(error, DeadlockError) else "Failed"
        if isinstance(error, Exception) and not isinstance(error, WaitCancelledError):
            self._record("outcome", kind, waited=self._waited, error=error)
        else:
            self._record("outcome", "Cancelled", waited=self._waited)

    def record_end(self, cause: LossCause | None = None, *, lost: bool = False) -> None:
        """Record the end of the hold, if there was one: a release or a loss."""
        if (outcome := self._acquired) is None:
            return
        held = self._client.now() - outcome.at
        if lost:
            self._record("end", "Lost", held=held, cause=cause)
        else:
            self._record("end", "Released", held=held)
        for ticket in self.tickets:
            if ticket.story is self:
                ticket.story = None

    def doubt(self, suspect: bool) -> None:
        """Record that the hold is suspect, or no longer suspect; for the keeper, with the session's lock held."""
        if suspect is not self.suspect and self._acquired is not None:
            left = self._client.registry.lease.end - self._client.clock()
            if suspect:
                self._record(object(), "Suspect", remaining=max(0.0, left))
            else:
                self._record(object(), "Recovered")
            self.suspect = suspect

    def exceed(self, held: float) -> None:
        """Record that the hold has lasted longer than its limit."""
        if self._acquired is not None:
            self._record("limit", "HoldLimit", held=held)

    def find(self, cycle: tuple[DeadlockEdge, ...]) -> None:
        """Record that the acquire is part of a deadlock, and have the event emitted. Any thread may call this."""
        self._record(object(), "DeadlockFound", cycle=cycle)
        self._teller.untold.append(self)
        self._client.wake_keeper()

    @property
    def in_doubt(self) -> bool:
        """Whether a release is under way whose reply may show that the hold was already lost."""
        if "end" in self._parts:
            return False
        if (call := self.caller()) is not None and call in self._client.calls:
            return True
        deletes = self._client.registry.deletes
        return self._released and any(ticket.prefix in deletes for ticket in self.tickets if ticket.story is self)

    @property
    def _released(self) -> bool:
        return all(ticket.state is State.DISCARDED for ticket in self.tickets if ticket.story is self)

    def find_end(self, *, patient: bool = False) -> None:
        """Record the end of the hold, if its tickets show that it has come.

        Args:
            patient: whether to record nothing while the end is in doubt.
        """
        if not self.tickets or "end" in self._parts:
            return
        with self._client.lock:
            if patient and self.in_doubt:
                return
            lost = next((ticket for ticket in self.tickets if ticket.story is self and was_lost(ticket)), None)
            if lost is not None:
                self.record_end(cause_of(lost), lost=True)
            elif self._released:
                self.record_end()

    @property
    def waits(self) -> bool:
        """Whether the acquire waits, or has waited, behind others."""
        return "waiting" in self._parts

    @property
    def stage(self) -> tuple[str, float]:
        """Whether the story is at its "wait", its "hold" or neither (""), and since when, by the clock of deadlines.

        An acquire that waits until ZooKeeper is in reach counts as a wait, too. No event reports such a wait, so its
        length decides.
        """
        if "end" in self._parts:
            return "", 0.0
        if (outcome := self._parts.get("outcome")) is not None:
            return ("hold" if outcome.kind == "Acquired" else ""), outcome.at
        return ("wait" if self.waits or self._waited > _LONG else ""), self._begun

    @property
    def _acquired(self) -> Part | None:
        outcome = self._parts.get("outcome")
        return outcome if outcome is not None and outcome.kind == "Acquired" else None

    @property
    def _waited(self) -> float:
        return self._client.now() - self._begun

    def _record(self, stage: object, kind: str, **more: Any) -> None:
        """Record a part, unless that stage of the story has one."""
        if stage in self._parts:
            return
        if self._teller.untold and stage in ("waiting", "outcome"):
            # The end of the owner's previous hold may not have been recorded yet.
            for other in self._teller.untold_of(self):
                other.find_end()
        at = self._client.now()
        make: Callable[..., events.LockEvent] = getattr(events, kind)
        event = make(self.primitive, self.path, self.mode, self.token, self._by, at, next(_numbers), self.label, **more)
        event._set_client(self._teller.client_ref)
        # R4: if several parts are recorded for one stage at once, one is kept.
        self._parts.setdefault(stage, Part(event, [each for each in self.listeners if each in registered]))

    # -- to emit -------------------------------------------------------------------------------------------------

    def emit(self) -> None:
        """Emit what was recorded; if this thread must not call a listener, have another thread do it."""
        self._teller.emit(self)

    def acquire_by(
        self, tickets: list[Ticket], wait: bool, steps: Steps[bool], granted: Callable[[Story], object] | None
    ) -> Steps[bool]:
        """Run the steps of an acquire, and report how it has ended.

        Args:
            tickets: the tickets of its call.
            wait: whether the acquire waits; otherwise it makes a single attempt.
            steps: the steps, which return whether they acquired.
            granted: records the success in the story; if None, the tickets of the call are the hold.
        """
        try:
            acquired = yield from steps
            if not acquired:
                self.give_up(wait=wait)
            elif granted is not None:
                granted(self)
            else:
                self.grant([each for each in tickets if each.state in (State.HELD, State.LOST)])
        except GeneratorExit:
            raise
        except BaseException as error:
            # If an interrupt strikes here, the loop that runs the call abandons the call (or the group that it belongs
            # to), and so emits the story.
            self.fail(error)
            self.emit()
            raise
        # An interrupt here gives the hold back, as the steps have not ended.
        self.emit()
        return acquired

    def end_by(self, call: object, rest: Steps[None]) -> Steps[None]:
        """Run the rest of a release, whose reply shows how the hold has ended; then emit the end, on this thread."""
        self.caller = weakref.ref(call)
        try:
            yield from rest
        finally:
            self.emit()

    def flush(self, *, patient: bool = False) -> None:
        """Emit what was recorded, despite interrupts; if `patient`, leave out an end that is in doubt."""
        try:
            self.emit_recorded(patient=patient)
        except BaseException:
            insist(partial(self.emit_recorded, patient=patient))
            raise

    def emit_recorded(self, *, patient: bool) -> None:
        """Emit what was recorded. An interrupt may leave a part of it out."""
        if self._client.forked:
            return
        call_listeners(partial(self._emit_parts, patient))

    def _emit_parts(self, patient: bool) -> None:
        self.find_end(patient=patient)
        for part in list(self._parts.values()):
            if part.calls:
                part.emit()


class Teller:
    """Emits the stories of one client.

    Attributes:
        client: the client's state.
        client_ref: a weak reference to the client, for its events.
        untold: the stories that may have parts to emit.
        wary: the locks with `on_suspect`.
    """

    def __init__(self, client: ClientState, keeper: Keeper) -> None:
        self.client = client
        self.client_ref = weakref.ref(client.link.client)
        self._keeper = keeper
        self.untold: deque[Story] = deque()
        self.wary: LiveSet[Any] = LiveSet()
        self._helper = Helper(keeper, "events", self._work)

    def new_story(self, kind: str, path: str, mode: str, owner: int, label: str | None) -> Story | None:
        """Return the story of an acquire; None if it has no listeners."""
        listeners = [each for each in list(registered) if each.hears(self.client, path)]
        # A listener's own calls have no events: otherwise the events could go on forever.
        return Story(self, kind, path, mode, owner, label, listeners) if listeners and not in_listener() else None

    def note(self, ticket: Ticket) -> None:
        """Note that the hold of a ticket is about to end, or has ended."""
        if ticket.story is not None:
            self.untold.append(ticket.story)

    def emit(self, story: Story) -> None:
        """Emit a story's events on this thread, after earlier events of its owner and path; see `Story.emit`."""
        client = self.client
        # A coroutine that is thrown away may end on any thread, even on the keeper.
        thrown_away = isinstance(sys.exc_info()[1], GeneratorExit)
        if (
            thrown_away
            or client.has_lock()
            or client.link.on_own_thread()
            or self._keeper.thread == client.identity()
            or in_listener()
        ):
            self.untold.append(story)
            client.wake_keeper()
            return
        late = self.untold_of(story)
        for other in late:
            self._finish(other)
        if story not in late:
            story.flush()

    def untold_of(self, story: Story) -> list[Story]:
        """Return the stories of the same owner and path that may have parts to emit."""
        return [each for each in list(self.untold) if each.owner == story.owner and each.path == story.path]

    def report_due(self, *, suspect: bool, changed: bool) -> None:
        """Have the due events emitted. For the keeper, with the session's lock held.

        Args:
            suspect: whether the client's holds are suspect.
            changed: whether `suspect` has changed since the last call.
        """
        for each in self.wary:
            if each._session is self.client:
                each._look_for_doubt()
            elif changed:
                # Only one keeper checks a lock of several clients, so that a change is reported once.
                each._session.wake_keeper()
        if registered:
            for ticket in list(self.client.registry.tickets.values()):
                if ticket.story is not None and ticket.state is State.HELD and ticket.story.suspect is not suspect:
                    self.untold.append(ticket.story)
                    ticket.story.doubt(suspect)
        if self._due():
            self._helper.start()

    def _work(self) -> None:
        while due := self._due():
            for story in due:
                self._finish(story, patient=True)

    def _due(self) -> list[Story]:
        """Return the stories that a thread of the library is to emit now."""
        return [story for story in list(self.untold) if not story.in_doubt]

    def _finish(self, story: Story, *, patient: bool = False) -> None:
        """Emit a story that was noted."""
        story.flush(patient=patient)
        # Remove the story last: until it is emitted, its owner must find it in `untold`. It may be noted again
        # meanwhile.
        if not story.in_doubt:
            with suppress(ValueError):
                self.untold.remove(story)
