"""The contention for a hold: whether anybody waits behind it. It is watched only once somebody asks.

While nobody waits, a watch on the children of the path tells of the next arrival. While somebody waits, a watch on the
node of the first who does is enough: the queue is listed again once that node goes. So a crowd that gathers behind the
hold has it listed once, not once for each.

The watches are those of a wait. A ticket that never has a node awaits them, so a new connection has the queue listed
again, and what is left of them after the hold is removed: see `watches.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .._arguments.limits import check_seconds
from .._kazoo.replies import HandledReply, failure, kazoo_errors
from .._protocol.operations import Busy, NoNode
from .._protocol.rules import Rule, behind
from .._protocol.ticket import State, Ticket
from .._runtime.live_set import LiveSet
from .._runtime.public import public
from .holds import Hold, PathState
from .session import Session


@public
class Contention:
    """Whether somebody waits behind one hold, in any process; `lock.contended` returns it.

    It resembles a `threading.Event` that is set while somebody waits. It is no longer set once the hold has ended.
    """

    # Type checkers of programs need not know the engine's types.
    def __init__(self, path_state: Any, rule: Any, hold: Any) -> None:
        self._session: Session = path_state.session
        self._handoff: Any = path_state.handoff
        self._rule: Rule = rule
        self._hold: Hold = hold
        self._begun = self._ended = False
        # Somebody waits with a node.
        self._waits = False
        # The reply that is expected.
        self._asked: HandledReply | None = None
        # The first waiter, and whether its node may not be read, and so not be watched.
        self._first, self._hidden = "", False
        # Weakly: an interrupt may keep a wait from removing its own.
        self._wakes: LiveSet[Callable[[], object]] = LiveSet()
        self._looks = Ticket(hold.ticket.path, "", hold.ticket.lease)
        self._looks.on_change = self._look

    def __repr__(self) -> str:
        state = "over" if self.over else "set" if self.is_set() else "unset"
        return f"<{type(self).__name__} {self._hold.path!r}: {state}>"

    # -- for users -----------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether the hold has ended: it was released or lost."""
        return self._ended or self._session.forked or self._hold.ticket.state is not State.HELD

    def is_set(self) -> bool:
        """Return whether somebody waits behind the hold, as last seen; False once the hold has ended. Sends nothing."""
        self._session.check_lease()
        return not self.over and (self._waits or (self._handoff is not None and self._handoff.awaited))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until somebody waits behind the hold; return whether that is so.

        Args:
            timeout: how long to wait, in seconds; None waits until the hold ends.

        Returns:
            False if the timeout has passed, or the hold has ended.
        """
        if timeout is not None:
            check_seconds("timeout", timeout)
        now, event = self._session.now, self._session.link.user_event()
        until = None if timeout is None else now() + timeout
        wake = partial(event.set)
        try:
            self.add(wake)
            while True:
                event.clear()
                if self.is_set():
                    return True
                if self.over:
                    return False
                left = None if until is None else until - now()
                if left is not None and left <= 0:
                    return False
                event.wait(left)
        finally:
            self.remove(wake)

    # -- for its users' waits ------------------------------------------------------------------------------------

    def add(self, wake: Callable[[], object]) -> None:
        """Have a function called whenever this may have been set, or the hold has ended, for as long as it lives."""
        self._wakes.add(wake)

    def remove(self, wake: Callable[[], object]) -> None:
        """End what `add` began."""
        self._wakes.discard(wake)

    # -- with the session's lock held ----------------------------------------------------------------------------

    def note(self) -> None:
        """Note that somebody waits: wake who waits for that, and tell the listeners."""
        for wake in self._wakes:
            wake()
        if (story := self._hold.ticket.story) is not None and story.contend():
            self._session.teller.note(self._hold.ticket)
            self._session.wake_keeper()

    def end(self) -> None:
        """Note that the hold has ended. A second call changes nothing."""
        self._ended = True
        # A condition's wait may put the hold back, which then has another one.
        self._hold.contention = None
        self._session.registry.stop_waiting(self._looks)
        for wake in self._wakes:
            wake()

    def _begin(self, *, there: bool) -> None:
        """Begin to watch, unless the hold was released just now. A second call changes nothing."""
        if not there:
            self.end()
        elif not self._begun:
            self._look()
            # R3: after an interrupt before this, the next question begins it again.
            self._begun = True

    def _look(self) -> None:
        """List the queue, and watch it."""
        session, path = self._session, self._looks.path
        if self.over:
            self.end()
            return
        session.registry.start_waiting(self._looks, path)
        # R3: an interrupted look is made again, and takes no earlier reply.
        self._asked = HandledReply(self._listed, post=session.post)
        session.link.children(path, self._asked, session.listener.on_event)

    def _listed(self, reply: HandledReply) -> None:
        if reply is not self._asked:
            return
        session = self._session
        if self.over:
            self.end()
        elif isinstance(reply.error, kazoo_errors.NoNodeError):
            # The node of the hold was in the queue, so it is gone, too: the proof shows that, and no look is needed.
            session.heartbeat.note_deleted(self._hold.ticket)
        elif reply.error is not None:
            self._failed(reply.error)
        else:
            own = self._hold.ticket.name
            assert own is not None
            waiting = behind(own, reply.value, self._rule)
            before, self._waits = self._waits, bool(waiting)
            if waiting:
                # The watch on the queue stays where the node of the waiter can't be watched.
                if not (self._hidden and self._first == waiting[0]):
                    self._first, self._hidden = waiting[0], False
                    self._watch(f"{self._looks.path}/{waiting[0]}")
                if not before:
                    self.note()

    def _watch(self, waiter: str) -> None:
        """Watch the node of a waiter in place of the queue."""
        session = self._session
        session.registry.start_waiting(self._looks, waiter)
        self._asked = HandledReply(self._watched, post=session.post)
        session.link.get(waiter, self._asked, session.listener.on_event)

    def _watched(self, reply: HandledReply) -> None:
        if reply is not self._asked or reply.error is None:
            return
        self._hidden = isinstance(reply.error, kazoo_errors.NoAuthError)
        if self._hidden and not self.over:
            self._look()
        else:
            self._failed(reply.error)

    def _failed(self, error: Exception) -> None:
        # The waiter has left, or the server was too busy. A new connection has this look again by itself, and a queue
        # that may not be read is one in which nobody is seen.
        if isinstance(failure(error, self._looks.path), NoNode | Busy) and not self.over:
            self._look()


def contention_of(path_state: PathState, rule: Rule, hold: Hold) -> Contention:
    """Return the contention for a hold, and begin to watch it."""
    with path_state.session.lock:
        if hold.contention is None:
            hold.contention = Contention(path_state, rule, hold)
        made: Contention = hold.contention
        made._begin(there=path_state.has(hold))
        return made
