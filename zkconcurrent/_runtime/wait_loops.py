"""The two trampolines, loops that wait: `wait()` for threads and greenlets, `wait_async()` for tasks.

The control flow of a call (one acquire, release or wait of a primitive) is a generator of steps. The steps yield how
many seconds to sleep, or None to sleep until woken; the loop sends back whether the call was woken. Any thread may wake
the call, through the call's `wake`. Only the loops here resume the steps, so the same steps serve threads and tasks.

If an interrupt or a cancellation comes during the sleep, the loop raises it in the steps, which then clean up. If it
comes elsewhere, before the loop has returned, the loop abandons the call. This also undoes a grant, and never waits.

Another thread may end a call, too: it gives the call a function `why_end`, and wakes it. The loop calls `why_end` after
each sleep. If `why_end` returns an error, the loop raises the error in the steps, like an interrupt, and does not call
`why_end` again. Once an interrupt has struck, nothing else may end the call: a signal handler may call `end_early` and
then raise an error, and the call must raise the handler's error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from .events import AutoResetEvent
from .interrupts import FRAMES, TRIES, check_depth, insist

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
R = TypeVar("R")
Steps: TypeAlias = Generator["float | None", bool, T]
WakeUp: TypeAlias = Callable[[], None]
WhyEnd: TypeAlias = Callable[[], "Exception | None"]
# If an interrupt comes just before the system call that waits, CPython handles it only when the system call ends.
LONGEST_SLEEP = 10.0  # seconds
_RELEASE = operator.methodcaller("_release_save")


def no_wakeup() -> None:
    """Wake no thread."""


class Resumable(Protocol):
    """A call, as the loops see it.

    Attributes:
        session: the client's session, whose link makes the events that threads sleep on.
        settled: the call has nothing left to do, except perhaps to wait.
        path: the primitive's path.
        wake: see `begin`.
        owned_locks: the locks of sessions that its thread already had when the call was made.
        waits_for: the objects for which the call waits, and whose `cancel_waits()` may end it.
        why_end: a function that returns the error with which to end the call early, or None to continue; None if there
            is no such function.
    """

    session: Any
    settled: bool
    wake: WakeUp
    waits_for: tuple[object, ...]
    why_end: WhyEnd | None

    @property
    def path(self) -> str: ...

    @property
    def owned_locks(self) -> Collection[Any]: ...

    def begin(self, wake: WakeUp, deserted: Callable[[], bool] | None = None) -> None:
        """Begin the call. `wake`, called on any thread, ends the call's sleep or, if it does not sleep, its next one.

        Once `deserted` returns True, no loop will resume the call: the keeper abandons it.
        """

    def end(self) -> None:
        """Note that the steps have ended."""

    def leave_clean_up(self) -> None:
        """Stop waiting for the clean-up, as the task is cancelled: the keeper finishes the clean-up."""

    def abandon(self) -> None:
        """Undo everything that the call has done, without waiting. A second call changes nothing."""


class Stopped(Exception):
    """A user's function has raised StopIteration, the cause of this error.

    Python turns a StopIteration that leaves a generator into a RuntimeError.
    """


def call_user(function: Callable[..., R], *args: object) -> R:
    """Call a user's function within steps, so that the loops raise any error of the function unchanged.

    Raises:
        Stopped: the function has raised StopIteration.
    """
    try:
        return function(*args)
    except StopIteration as stop:
        raise Stopped from stop


def wait(call: Resumable, steps: Steps[T], event: AutoResetEvent | None = None) -> T:
    """Run a call to its end, on the calling thread or greenlet.

    Args:
        call: the call.
        steps: its steps.
        event: an event that only this call uses; if it is not given, the link makes one.
    """
    if not call.settled:
        check_depth(FRAMES)
    if event is None:
        event = call.session.link.sleep_event()
    # The `partial` is made now: when it is needed, no memory may be left.
    end = partial(_abandon, call, steps)
    try:
        call.begin(event.set)
        try:
            pause = next(steps)
            while True:
                try:
                    woken = _sleep(call, event, LONGEST_SLEEP if pause is None else min(pause, LONGEST_SLEEP))
                    event.clear()
                except BaseException as error:
                    pause = steps.throw(error)
                else:
                    pause = steps.send(woken) if call.why_end is None else _send_or_end(call, steps, woken)
        except StopIteration as over:
            call.end()
            return over.value  # type: ignore[no-any-return]
    except BaseException as error:
        try:
            insist(end)
        finally:
            # Another interrupt may have struck before `insist` began. R3: ending the call again changes nothing.
            insist(end)
        if isinstance(error, Stopped) and error.__cause__ is not None:
            raise error.__cause__ from None
        raise


def _send_or_end(call: Resumable, steps: Steps[object], woken: bool) -> float | None:
    """Resume a call; if `why_end` returns an error, raise it in the steps."""
    error = None if call.why_end is None else call.why_end()
    if error is None:
        return steps.send(woken)
    # The clean-up may sleep, too, and nothing may end that sleep.
    ends_by_itself(call)
    try:
        return steps.throw(error)
    finally:
        # Otherwise the traceback of the error and this frame would keep each other, and the call, alive.
        del error


def end_early(call: Resumable, why: WhyEnd) -> bool:
    """End a call with an error, unless something else has; return whether this call did. Runs on any thread."""
    # R4: another thread, or an interrupt, may end the wait at the same moment.
    ended = vars(call).setdefault("why_end", why) is why
    call.wake()
    # R2: a caller that was interrupted may call again, and must then find the wait.
    call.waits_for = ()
    return ended


def ends_by_itself(call: Resumable) -> None:
    """Let nothing else end a call that has begun to clean up: the call must raise the error that has ended it."""
    call.why_end, call.waits_for = None, ()


def _sleep(call: Resumable, event: AutoResetEvent, pause: float) -> bool:
    """Sleep; return whether the call was woken.

    A signal handler or finalizer may have interrupted a thread that had the lock of a session, and may now wait for
    something that another thread must do. So this function releases the lock during the sleep. The other threads then
    see the same half-done step as the handler; the session allows for that: see the head of `_engine/client_state.py`.
    """
    owned = call.owned_locks
    if not owned:
        return event.wait(pause)
    lent: list[tuple[Any, object]] = []
    try:
        # R4: this releases and records each lock in one step, so no interrupt can lose one.
        lent.extend(zip(owned, map(_RELEASE, owned), strict=True))
        return event.wait(pause)
    finally:
        try:
            insist(partial(_take_back, lent))
        finally:
            # As in `wait`: another interrupt may have struck before `insist` began.
            _take_back(lent)


def _take_back(lent: Collection[tuple[Any, object]]) -> None:
    for lock, state in lent:
        if not lock._is_owned():
            lock._acquire_restore(state)


class _Wakeup:
    """Ends the sleep of one call in one task. Closures would take more memory for each task."""

    __slots__ = ("loop", "signalled", "sleep")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.sleep: asyncio.Future[None] | None = None
        self.signalled = False

    def wake(self) -> None:  # on any thread
        # If the loop is closed, this wakes nothing; the keeper then abandons the call.
        call_soon(self.loop, self._rouse)

    def _rouse(self) -> None:  # on the loop
        self.signalled = True
        if self.sleep is not None:
            _end_sleep(self.sleep)


async def wait_async(call: Resumable, steps: Steps[T]) -> T:
    """Run a call to its end, in the running task."""
    # `aio` has imported asyncio already. Programs that use only threads do not need asyncio.
    import asyncio

    if not call.settled:
        check_depth(FRAMES)
    loop = asyncio.get_running_loop()
    wakeup = _Wakeup(loop)
    end = partial(_abandon, call, steps)  # as in `wait`
    try:
        call.begin(wakeup.wake, loop.is_closed)
        try:
            pause = next(steps)
            while True:
                try:
                    if not wakeup.signalled:
                        wakeup.sleep = loop.create_future()
                        timer = None if pause is None else loop.call_later(pause, _end_sleep, wakeup.sleep)
                        try:
                            await wakeup.sleep
                        finally:
                            wakeup.sleep = None
                            if timer is not None:
                                timer.cancel()
                                timer = None
                    woken, wakeup.signalled = wakeup.signalled, False
                except BaseException as error:
                    if isinstance(error, GeneratorExit):
                        # The loop is closed, and this task was thrown away with it, so the steps can't wait for their
                        # clean-up.
                        raise
                    call.leave_clean_up()
                    pause = steps.throw(error)
                else:
                    pause = steps.send(woken) if call.why_end is None else _send_or_end(call, steps, woken)
        except StopIteration as over:
            call.end()
            return over.value  # type: ignore[no-any-return]
    except BaseException as error:
        try:
            insist(end)
        finally:
            # Another interrupt may have struck before `insist` began. R3: ending the call again changes nothing.
            insist(end)
        if isinstance(error, Stopped) and error.__cause__ is not None:
            raise error.__cause__ from None
        raise


def outlast(steps: Steps[T], strike: Callable[[BaseException], object]) -> Steps[T]:
    """Run steps that must complete: an error raised at a sleep goes to `strike`, and the steps continue.

    So the steps need not restart, however often the task is cancelled or Ctrl-C is pressed. An error that strikes at
    any other line leaves the steps, as everywhere. After `TRIES` sleeps in a row that ended with an `Exception`, the
    next `Exception` leaves the steps, too: the sleep itself may be broken.
    """
    tries = 0
    try:
        pause = next(steps)
        while True:
            woken = False
            try:
                woken = yield pause
            except GeneratorExit:
                raise
            except BaseException as error:
                tries += isinstance(error, Exception)
                if tries > TRIES:
                    raise
                strike(error)
            else:
                tries = 0
            pause = steps.send(woken)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Have an event loop call a function, unless the loop is closed. Any thread may call this."""
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        # Only a closed loop is expected to raise this. A RecursionError is a RuntimeError, too, and a signal handler
        # may raise one.
        if not loop.is_closed():
            raise


def _abandon(call: Resumable, steps: Steps[object]) -> None:
    """Close the steps of a call that have not reached their end, and abandon the call."""
    try:
        # Close the steps now, not when the last traceback is garbage collected.
        steps.close()
    finally:
        call.abandon()


def _end_sleep(sleep: asyncio.Future[None]) -> None:
    if not sleep.done():
        sleep.set_result(None)
