"""Calls near the recursion limit, as a program makes them that calls itself too often."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
LIMIT = 400  # above what pytest needs, and not many more, as each call goes down to it


@contextmanager
def recursion_limit(limit: int) -> Iterator[None]:
    """Lower the recursion limit, for all threads.

    No garbage is collected meanwhile: a finalizer of what another test has left would find no frames, and pytest takes
    that for a failure of this test.
    """
    before, collects = sys.getrecursionlimit(), gc.isenabled()
    gc.disable()
    sys.setrecursionlimit(limit)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
        if collects:
            gc.enable()


def depth() -> int:
    """Return how many frames the caller has below it."""
    frame, frames = sys._getframe(1), 0
    while frame.f_back is not None:
        frame, frames = frame.f_back, frames + 1
    return frames


def with_frames_left(frames: int, call: Callable[[], T]) -> T:
    """Make a call where so many frames are left up to the limit; return its result."""
    with recursion_limit(LIMIT):
        return _down(LIMIT - depth() - frames, call)


def _down(frames: int, call: Callable[[], T]) -> T:
    return call() if frames <= 0 else _down(frames - 1, call)
