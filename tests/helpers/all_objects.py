"""All objects of a process, looked at while none of its other threads runs.

The collector's list has the tuples, too, that another thread has not filled yet. To read such a one crashes CPython,
and while somebody else holds it, that thread can't grow it and fails with a SystemError.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Seconds for which a thread that has something to do keeps the others waiting: a look takes some tenths of one.
TURN = 5.0


def of_all_objects(ask: Callable[[list[object]], T]) -> T:
    """Return what `ask` says of all objects that are no garbage. It waits for nothing, and returns no tuple of them."""
    gc.collect()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    try:
        time.sleep(2 * interval)  # a thread that waits for its turn does so by the old interval until now
        return ask(gc.get_objects())
    finally:
        sys.setswitchinterval(interval)


def held_by(container: object) -> list[object]:
    """Return what a list, a tuple, a set, or a dictionary as its keys, holds; of a tuple, what is in it already."""
    return gc.get_referents(container) if isinstance(container, tuple) else list(container)  # type: ignore[call-overload]
