"""Threads on which a call would wait for itself: threads that serve others, and threads that call listeners.

The program's code may run even on a thread that serves others: the garbage collector runs finalizers on any thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .stacks import frames_from

threads: set[int] = set()
"""The numbers of the threads that serve others, as `threading.get_ident` returns them."""

# The numbers of the threads that call listeners now; an interrupt may leave a number behind.
_calling: set[int] = set()


@contextmanager
def serving() -> Iterator[None]:
    """Count the calling thread among those that serve others, within the block."""
    # Each step is atomic, so this needs no lock. A finalizer could wait for a lock forever.
    threads.add(threading.get_ident())
    try:
        yield
    finally:
        threads.discard(threading.get_ident())


def call_listeners(calls: Callable[[], object]) -> None:
    """Run a function that calls listeners, so that `in_listener` recognizes them."""
    _calling.add(threading.get_ident())
    try:
        calls()
    finally:
        _calling.discard(threading.get_ident())


def in_listener() -> bool:
    """Return whether the caller is a listener, which must not wait."""
    if threading.get_ident() not in _calling:
        return False
    if any(frame.f_code is _CALLS for frame in frames_from(sys._getframe(1))):
        return True
    _calling.discard(threading.get_ident())
    return False


_CALLS = call_listeners.__code__
if hasattr(os, "register_at_fork"):
    # A forked child has none of these threads, and a new thread in it may have the number of one of these.
    os.register_at_fork(after_in_child=threads.clear)
