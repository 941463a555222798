"""A single thread that works while there is work: it is started when work comes, and ends when no work is left.

Signal handlers and finalizers add work too, at any line, so no lock may guard it. The right to work is the only element
of a deque. A thread takes the right in one step (R4) once it runs. Its starter does not take the right for it: an
interrupt may strike before the thread is started.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sized
from functools import partial


class Worker:
    """The right to be the thread that works.

    Args:
        left: the work that is left; a thread that has work adds it here, then calls `start`.
    """

    def __init__(self, left: Sized) -> None:
        self._left = left
        self._right = deque([True])

    @property
    def idle(self) -> bool:
        """Whether no thread works."""
        return bool(self._right)

    def start(self, spawn: Callable[[Callable[[], None]], object], work: Callable[[], None]) -> None:
        """Start a thread, unless one is working: that thread checks for new work before it ends.

        Args:
            spawn: starts a thread that calls a function.
            work: does what is left, and returns when nothing is.
        """
        if self._right:
            spawn(partial(self._run, spawn, work))

    def _run(self, spawn: Callable[[Callable[[], None]], object], work: Callable[[], None]) -> None:
        try:
            self._right.pop()
        except IndexError:
            return
        try:
            work()
        finally:
            self._right.append(True)
            # Do this even if an error ends this thread: otherwise the rest of the work would wait for more to come.
            if self._left:
                self.start(spawn, work)
