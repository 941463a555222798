"""The session timeout that a connection negotiated before the library saw it, read from kazoo's stack.

kazoo keeps the timeout in local variables only: first in `_connect`, which calls the state listeners; later, as two
thirds of the timeout, in `_connect_attempt`, at the bottom of the connection thread's stack.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any


def negotiated(routine: Any) -> float | None:
    """Return the timeout in seconds; 0.0 while kazoo passes it from one function to the other, None if unknown.

    Args:
        routine: kazoo's connection thread, or greenlet.
    """
    number = getattr(routine, "ident", None) or 0
    frame = getattr(routine, "gr_frame", None) or _innermost_frame(number)
    if frame is None:
        frame = getattr(_greenlet(number), "gr_frame", None)
    while frame is not None:
        if frame.f_code.co_name == "_connect" and "negotiated_session_timeout" in frame.f_locals:
            return float(frame.f_locals["negotiated_session_timeout"]) / 1000.0
        if frame.f_code.co_name == "_connect_attempt":
            return float(frame.f_locals["read_timeout"]) * 1.5 if "last_send" in frame.f_locals else 0.0
        frame = frame.f_back
    return None


def _innermost_frame(thread: int) -> FrameType | None:
    # CPython 3.11 takes a lock here that every thread takes as it starts or ends. A finalizer that the garbage
    # collector ran meanwhile would let those threads in, and all would stand still forever (gh-106883).
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread)
    finally:
        if collects:
            gc.enable()


def _greenlet(number: int) -> Any:
    """Return the greenlet that a patched `threading` made in the place of a thread, and numbered by its address.

    Neither gevent nor eventlet has a list of them. So this looks through all objects, once for a client that was
    started before the library saw it.
    """
    greenlets = sys.modules.get("greenlet")
    if greenlets is None:
        return None
    return next(
        (each for each in gc.get_objects() if id(each) == number and isinstance(each, greenlets.greenlet)), None
    )
