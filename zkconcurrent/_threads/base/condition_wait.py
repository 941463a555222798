"""One wait on a condition, which releases the lock, and acquires it again however the wait ends."""

from __future__ import annotations

from ..._engine.call import Call
from ..._engine.call_group import Calls
from ..._engine.holds import Hold, lost_error
from ..._errors import LossCause, ZkConcurrentError
from ..._protocol.operations import OutOfReach
from ..._protocol.ticket import LossRecord, State
from ..._recipes.condition import clear, outwait, release_and_queue, withdraw
from ..._recipes.nodes import PathCheck
from ..._runtime.interrupts import FRAMES, TRIES, check_depth
from ..._runtime.wait_loops import Steps, outlast
from .lock_core import LockCore
from .node_data import node_data

# The longest that an interrupted wait goes on while ZooKeeper is out of reach.
MAX_OUTAGE = 1 / 3  # of the session timeout


class ConditionWait:
    """One wait of one thread or task. It makes two calls, as the second call must follow however the first call ends.

    Attributes:
        hold: the lock's hold, which the wait releases.
        call: the call that releases the hold and waits.
        begun: how many times the wait has begun to acquire the lock again.
    """

    __slots__ = ("_errors", "_lock", "_owner", "_path_check", "_waiters", "begun", "call", "hold")

    def __init__(self, lock: LockCore, waiters: str, hold: Hold, owner: int, path_check: PathCheck) -> None:
        # The lock must not be released if the stack has no room to acquire it again.
        check_depth(FRAMES + 5)
        self._lock = lock
        self._path_check = path_check
        self._waiters = waiters
        self._owner = owner
        self.hold = hold
        self.begun = self._errors = 0
        self.call = Call(lock.session, waiters, lock.path_state)

    def steps(self, deadline: float | None) -> Steps[bool]:
        """Release the hold and wait; return whether the waiter was notified, or may have been.

        Raises:
            LockLostError: the lock was lost before it was released.
            RuntimeError: another thread has just released it.
        """
        call, hold, path_state, story = self.call, self.hold, self._lock.path_state, self.hold.ticket.story
        if not path_state.claim(hold, self._owner):
            raise RuntimeError(self._lock.not_held_message("cannot wait on un-acquired lock"))
        call.given_up = hold.ticket
        path_state.drop(hold)
        # The request has no deadline: the caller must know the outcome before it goes on.
        recipe = release_and_queue(hold.ticket, self._waiters, node_data(self._owner), self._path_check)
        ticket = yield from call.run(recipe)
        call.settled = True
        if story is not None:
            story.emit()
        if ticket is not None:
            if (yield from call.run(outwait(ticket), deadline)):
                return True
            return bool((yield from call.run(withdraw(ticket))))
        if hold.ticket.state is State.LOST:
            raise lost_error(hold)
        return True

    def finish(self) -> bool:
        """End the wait; return whether the lock was released and must be acquired again. A second call changes nothing.

        Never waits.
        """
        hold, path_state = self.hold, self._lock.path_state
        if hold.claimant != self._owner:
            # The hold was never claimed, or was put back already.
            return False
        self.call.abandon()
        if hold.alive or hold.ticket.state is State.LOST:  # it was not released
            path_state.put_back(hold)
            return False
        self._lock.session.discard(hold.ticket)
        return True

    def reacquire(self, calls: Calls, struck: BaseException | None) -> Steps[BaseException | None]:
        """Acquire the lock at its former depth; return the last interrupt that came meanwhile.

        An interrupt at a sleep does not disturb the call, which keeps its place in the queue. After an interrupt at
        another line, a new call queues. After either, the call gives up if ZooKeeper stays out of reach for
        `MAX_OUTAGE`, and the hold is lost.

        Args:
            calls: the container for the calls that this makes.
            struck: the error that has ended the wait, if any.

        Raises:
            ZkConcurrentError: the lock can't be acquired.
            Exception: the last of too many errors to be interrupts.
        """
        lock, hold = self._lock, self.hold
        session = lock.session
        late: BaseException | None = None
        max_outage = None if isinstance(struck or Exception(), Exception) else MAX_OUTAGE

        def note(error: BaseException) -> None:
            nonlocal late, max_outage
            late = error
            if not isinstance(error, Exception):
                # From now on the limit applies, even for the sleep that the interrupt has struck.
                call.max_outage = max_outage = MAX_OUTAGE

        while True:
            self.begun += 1
            call = calls.add(Call(session, lock.path, lock.path_state, max_outage=max_outage))
            attempt = lock.attempt(self._owner, True, None, depth=hold.depth, for_block=hold.owned)
            try:
                if lock.mine() is None:
                    yield from outlast(lock.acquire_steps(call, attempt), note)
                # This call is separate from the acquire, so abandoning this call does not give up the lock.
                call = calls.add(Call(session, self._waiters, max_outage=max_outage))
                for ticket in self.call.tickets:
                    if not session.is_gone(ticket):
                        yield from outlast(call.run(clear(ticket)), note)
                lock.path_state.lend_again(hold, lock.mine())
                return late
            except (GeneratorExit, ZkConcurrentError):
                raise
            except OutOfReach:
                if lock.mine() is None:
                    hold.ticket.loss = LossRecord(LossCause.NOT_REACQUIRED)
                    hold.ticket.become(State.LOST)
                    lock.path_state.put_back(hold)
                lock.path_state.lend_again(hold, lock.mine())
                return late
            except BaseException as error:  # struck outside a sleep
                call.abandon()
                note(error)
                self._errors += isinstance(error, Exception)
                if self._errors > TRIES:
                    raise
