"""Interleavings: threads that run one step at a time, in an order that a test chooses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .._arguments.functions import check_callable
from .._runtime.clock import monotonic

# In seconds. It is long, as it only matters for a test that hangs.
_PATIENCE = 30.0
# In seconds, after Ctrl-C.
_MOMENT = 1.0
_POLL_INTERVAL = 0.001

_here = threading.local()


def pause() -> None:
    """Let `interleave` decide which thread goes on; in a thread that it has not started, do nothing.

    Call it wherever another thread may come in between: before each access to the data that a lock protects, for
    instance in a test double of a database.
    """
    turn: _Turn | None = getattr(_here, "turn", None)
    if turn is not None:
        turn.pause()


def interleave(
    choose: Callable[[Sequence[int]], int], calls: Sequence[Callable[[], object]], locks: Sequence[Any] = ()
) -> list[object]:
    """Run calls on threads, one at a time from `pause` to `pause`, in the order that `choose` decides.

    A step ends when its thread pauses, ends, or waits for one of the locks. So the same choices always give the same
    interleaving. With Hypothesis, let `choose` draw: `lambda ready: data.draw(st.sampled_from(ready))`.

    Args:
        choose: takes the indexes of the calls that can go on, and returns one of them.
        calls: the functions to call, each on a thread of its own.
        locks: all locks, of all clients, for which the calls may wait, even briefly. Each must be a fair `Lock` or
            `RLock`, or belong to a fair `ReadWriteLock`, and no other program may use it.

    Returns:
        What the calls have returned.

    Raises:
        TypeError: one of the locks is of another class, or a call is a coroutine function.
        ValueError: `choose` has returned something that is not one of the indexes.
        RuntimeError: all calls that have not ended wait for each other, in a deadlock. `cancel_waits()` has ended
            their waits.
        TimeoutError: a call neither pauses nor ends in 30 seconds, and does not wait for one of the locks.
        BaseException: the error of a call; if several calls fail, the error of the first one in `calls`.
    """
    for func in (choose, *calls):
        check_callable("each call, and `choose`,", func)
    for lock in locks:
        if not (hasattr(lock, "waiters") and hasattr(lock, "cancel_waits")):
            raise TypeError(f"interleave knows no waiters of this: name the locks that it consists of: {lock!r}")
    turns = [_Turn(call) for call in calls]
    try:
        while True:
            _settle(turns, locks)
            ready = [n for n, turn in enumerate(turns) if turn.paused]
            if not ready:
                break
            chosen = choose(ready)
            if chosen not in ready:
                raise ValueError(f"choose returns one of the indexes that it is given, {ready}, not {chosen!r}")
            turns[chosen].go_on()
        if waiting := [n for n, turn in enumerate(turns) if not turn.ended]:
            raise RuntimeError(f"a deadlock: the calls {waiting} wait for each other")
    except BaseException as error:
        # Let the threads run to their ends, in any order.
        _join(turns, locks, _PATIENCE if isinstance(error, Exception) else _MOMENT)
        raise
    for turn in turns:
        if turn.error is not None:
            raise turn.error
    return [turn.result for turn in turns]


class _Turn:
    """One of the threads, which runs one call.

    Attributes:
        paused: whether the thread waits to go on.
        ended: whether the call has ended.
        result: the call's result, once it has returned.
        error: the call's error, if it has raised one.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self.paused = False
        self.ended = False
        self.result: object = None
        self.error: BaseException | None = None
        self._call = call
        self._for_good = False
        self._go = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def pause(self) -> None:
        """Wait to go on."""
        if not self._for_good:
            self.paused = True
            self._go.acquire()

    def go_on(self, *, for_good: bool = False) -> None:
        """Let the thread continue; with `for_good`, it does not pause again."""
        self._for_good = for_good
        if self.paused:
            self.paused = False
            self._go.release()

    def _run(self) -> None:
        _here.turn = self
        try:
            self.pause()
            self.result = self._call()
        except BaseException as error:
            self.error = error
        finally:
            self.ended = True


def _settle(turns: Sequence[_Turn], locks: Sequence[Any]) -> None:
    """Wait until each thread has paused, has ended, or waits for a lock.

    This also waits for a thread that a release has woken, until it pauses, ends or waits again.
    """
    until = monotonic() + _PATIENCE
    while running := [n for n, turn in enumerate(turns) if not (turn.paused or turn.ended)]:
        if len({each.node for lock in locks for each in lock.waiters()}) == len(running):
            return
        if monotonic() > until:
            raise TimeoutError(f"the calls {running} neither pause nor end, and not all of them wait for a lock")
        time.sleep(_POLL_INTERVAL)


def _join(turns: Sequence[_Turn], locks: Sequence[Any], patience: float) -> None:
    """Wait until all threads have ended; cancel their waits, so that a deadlock ends, too."""
    until = monotonic() + patience
    while not all(turn.ended for turn in turns) and monotonic() < until:
        for turn in turns:
            turn.go_on(for_good=True)
            turn.thread.join(_POLL_INTERVAL)
        for lock in locks:
            lock.cancel_waits()
