"""A thread that works while there is work: started when work comes, ended when none is left, never more than one.

Signal handlers and finalizers add work too, at any line, so no lock may guard it. The right to work is the only element
of a deque. A thread takes it in one step (R4) once it runs. Its starter does not take it for the thread: an interrupt
may strike before the thread is started.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sized
from functools import partial


class Worker:
    """The right to be the thread that works.

    Args:
        left: the work, to which any thread adds before it calls `start`.
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
            # Even if an error ends this thread: otherwise the rest of the work would wait until more comes.
            if self._left:
                self.start(spawn, work)
