"""Stacks: the frames of one, and those of other threads, which are read while no garbage is collected.

CPython 3.11 makes the object of a frame as it is asked for, and that allocation may collect garbage. A finalizer then
lets other threads run, and the one whose stack is read returns from just this frame: the reader gets an object of any
type, walks in circles, or crashes. `sys._current_frames` besides holds a lock that every thread takes as it starts or
ends, so all would stand still forever (gh-106883).
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# One reader at a time, as the first that ends has garbage collected again. A signal handler may interrupt one and read.
_reading = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A child would find it taken, and never collect garbage.
    os.register_at_fork(before=_reading.acquire, after_in_parent=_reading.release, after_in_child=_reading.release)


@contextmanager
def read_stacks() -> Iterator[None]:
    """Collect no garbage while `sys._current_frames()` is called, and what it returns is read."""
    with _reading:
        collects = gc.isenabled()
        try:
            # Inside, as an interrupt may come right behind it.
            gc.disable()
            yield
        finally:
            if collects:
                gc.enable()


def frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those that have called it, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back
