"""The two loops that wait: `wait()` for threads and greenlets, `wait_async()` for tasks of an event loop.

The control flow of a call (one acquire, release or wait of a primitive) is a generator of steps. It yields for how many
seconds it would sleep, None until it is woken, and is sent whether it was woken. Whatever wakes it calls the call's
`wake`, from any thread. Only the loops here resume it, so the same steps serve threads and tasks.

What strikes a sleeping call (an interrupt, a cancellation) is raised in its steps, which end in good order. What
strikes elsewhere, before the loop has returned, abandons the call: that undoes a grant, too, and never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Steps: TypeAlias = Generator["float | None", bool, T]
WakeUp: TypeAlias = Callable[[], None]
# CPython sees an interrupt that comes just before the system call that waits only when that call ends.
LONGEST_SLEEP = 10.0


class Waiting(Protocol):
    """A call, as the loops know it."""

    def begin(self, wake: WakeUp, deserted: Callable[[], bool] | None = None) -> None:
        """Begin; to call `wake`, on any thread, ends its sleep, or else the next.

        Once `deserted` returns True, no loop will resume the call: it is to be abandoned.
        """

    def end(self) -> None:
        """Take note that its steps have come to their end."""

    def hurry(self) -> None:
        """Wait no more for what is cleaned up: the task is cancelled, and the keeper goes on."""

    def abandon(self) -> None:
        """Undo whatever the call has done, without waiting. To do so twice changes nothing."""


def wait(call: Waiting, steps: Steps[T], event: Any) -> T:
    """Run a call to its end, on the calling thread or greenlet.

    Args:
        call: the call.
        steps: its steps.
        event: has `set`, `wait` and `clear`, and is nobody else's.
    """
    try:
        call.begin(event.set)
        try:
            pause = next(steps)
            while True:
                try:
                    woken = bool(event.wait(LONGEST_SLEEP if pause is None else pause))
                    event.clear()
                except BaseException as error:
                    pause = steps.throw(error)
                else:
                    pause = steps.send(woken)
        except StopIteration as end:
            call.end()
            return end.value  # type: ignore[no-any-return]
    except BaseException:
        _end(call, steps)
        raise


async def wait_async(call: Waiting, steps: Steps[T]) -> T:
    """Run a call to its end, in the running task."""
    import asyncio  # programs of threads need none of it

    loop = asyncio.get_running_loop()
    sleep: asyncio.Future[None] | None = None
    signalled = False

    def rouse() -> None:  # on the loop
        nonlocal signalled
        signalled = True
        if sleep is not None:
            _end_sleep(sleep)

    def wake() -> None:  # on any thread
        with suppress(RuntimeError):  # the loop is closed; the keeper abandons the call
            loop.call_soon_threadsafe(rouse)

    try:
        call.begin(wake, loop.is_closed)
        try:
            pause = next(steps)
            while True:
                try:
                    if not signalled:
                        sleep = loop.create_future()
                        timer = None if pause is None else loop.call_later(pause, _end_sleep, sleep)
                        try:
                            await sleep
                        finally:
                            sleep = None
                            if timer is not None:
                                timer.cancel()
                    woken, signalled = signalled, False
                except BaseException as error:
                    if isinstance(error, GeneratorExit):  # the loop is gone, and with it this task
                        raise
                    call.hurry()
                    pause = steps.throw(error)
                else:
                    pause = steps.send(woken)
        except StopIteration as end:
            call.end()
            return end.value  # type: ignore[no-any-return]
    except BaseException:
        _end(call, steps)
        raise


def _end(call: Waiting, steps: Steps[Any]) -> None:
    """End a call that did not come to its own end."""
    try:
        steps.close()  # now, and not when the last traceback goes
    finally:
        call.abandon()


def _end_sleep(sleep: asyncio.Future[None]) -> None:
    if not sleep.done():
        sleep.set_result(None)
