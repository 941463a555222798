"""The threads of this process that serve others: a call that waits on one of them would wait for itself.

A program's code does run there: the garbage collector runs finalizers on any thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

threads: set[int] = set()
"""Their numbers, as `threading.get_ident` returns them."""


@contextmanager
def serving() -> Iterator[None]:
    """Have the calling thread be one of them within the block."""
    # Each step is atomic, so no lock is needed for which a finalizer could wait.
    threads.add(threading.get_ident())
    try:
        yield
    finally:
        threads.discard(threading.get_ident())


if hasattr(os, "register_at_fork"):
    # A forked child has none of them, and a thread of its own may have the number of one.
    os.register_at_fork(after_in_child=threads.clear)
