"""The frames and generators of a stack; and the stacks of other threads, read without garbage collection.

CPython 3.11 makes the object of a frame on demand, and that allocation may collect garbage. A finalizer may then let
other threads run, and the thread whose stack is read may return from this very frame. The reader then gets an object of
any type, walks in circles, or crashes. `sys._current_frames` also holds a lock that every thread takes when it starts
or ends: if a thread starts or ends meanwhile, all threads stand still forever (gh-106883).
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_ASYNC_GENERATOR, CO_GENERATOR
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
_YIELDS = CO_GENERATOR | CO_ASYNC_GENERATOR
# Packages whose functions enter `with` blocks on behalf of their callers.
_BEGIN_BLOCKS = ("zkconcurrent", "contextlib", "wrapt")
# One reader at a time: whichever ends first re-enables garbage collection. The lock is re-entrant, as a signal handler
# may read on top of a reader.
_reading = threading.RLock()
if hasattr(os, "register_at_fork"):
    # Otherwise a child that is forked during a read would find the lock taken, and would never collect garbage.
    os.register_at_fork(before=_reading.acquire, after_in_parent=_reading.release, after_in_child=_reading.release)


@contextmanager
def read_stacks() -> Iterator[None]:
    """Disable garbage collection while the block calls `sys._current_frames()` and reads the result."""
    with _reading:
        collects = gc.isenabled()
        try:
            # Within the `try`, as an interrupt may come right after it.
            gc.disable()
            yield
        finally:
            if collects:
                gc.enable()


def frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def in_generator() -> bool:
    """Return whether the block that the caller begins is in a generator, where another thread or task may end it.

    FastAPI may run the two halves of a yielding dependency on different threads of a pool, and asyncio closes an
    asynchronous generator in a task of its own.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_flags & _YIELDS:
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _BEGIN_BLOCKS:
            return False
        frame = frame.f_back
    return frame is not None


def generator_locals(name: str, kind: type[T]) -> Iterator[T]:
    """Yield the local variable of that name and type of each generator that the caller runs, the innermost first."""
    for frame in frames_from(sys._getframe(1)):
        code = frame.f_code
        if code.co_flags & _YIELDS and name in code.co_varnames and isinstance(found := frame.f_locals.get(name), kind):
            yield found
