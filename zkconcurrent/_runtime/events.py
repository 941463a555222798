"""Events for threads; an error that a signal handler raises can't keep them from being set."""

from __future__ import annotations

import threading
from collections import deque


class AutoResetEvent:
    """An event for one thread, which checks again at each wake-up: a `threading.Event` made of a single lock."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the waiting thread; if none waits, the next wait returns at once."""
        # Not `suppress`: the woken thread would wait while `suppress` runs.
        try:
            self._lock.release()
        except RecursionError:  # a RuntimeError, too
            raise
        except RuntimeError:  # it was set already
            pass

    def wait(self, timeout: float) -> bool:
        """Wait until the event is set, and clear it; return whether it was set within `timeout` seconds."""
        return self._lock.acquire(True, timeout)

    def clear(self) -> None:
        """Clear the event."""
        self._lock.acquire(False)


class SteadyEvent(threading.Event):
    """A `threading.Event` without its lock, which a signal handler's error in `set` or `wait` would leave locked."""

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        # One event for each waiting thread.
        self._sleepers: deque[AutoResetEvent] = deque()

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self._is_set

    def set(self) -> None:
        """Set the event, and wake all threads that wait. R3: a caller that was interrupted here calls this again."""
        self._is_set = True
        for sleeper in list(self._sleepers):
            sleeper.set()

    def clear(self) -> None:
        """Clear the event."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set; return whether it was set within `timeout` seconds. `None` waits forever."""
        if self._is_set:
            return True
        sleeper = AutoResetEvent()
        self._sleepers.append(sleeper)
        try:
            # The event may have been set since the check above.
            return self._is_set or sleeper.wait(-1 if timeout is None else max(0.0, timeout))
        finally:
            self._sleepers.remove(sleeper)
