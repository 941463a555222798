"""A signal handler or finalizer that would wait for the call that it has interrupted: it would wait forever.

The interpreter runs both on top of whatever the thread does, in the middle of a call of this library, say.
"""

from __future__ import annotations

import functools
import sys
from types import FrameType
from typing import Any

from .._errors import ClientError

# Methods that call other methods, which a subclass may override.
_OVERRIDABLE = ("__enter__", "__exit__", "acquire")


def check_not_interrupted(call: Any) -> None:
    """Refuse to let a call wait, in a signal handler or a finalizer, for the very call that it has interrupted.

    That call is on the stack of the calling thread, and ends only when this one returns. Its frames have it in a
    local variable named `call`, or the primitive in `self`.

    The call of a task is not checked. A handler has no task, unless it runs an event loop of its own; and CPython
    keeps every frame looked at, and its locals if they were read, for as long as the task waits.

    Raises:
        ClientError: the thread was interrupted in a call at this path.
    """
    if call.path_state is None or call.settled or call.deserted is not None:
        return
    frame = _caller_of_library(sys._getframe(1))
    calls_out, settled = True, False
    while frame is not None:
        known = frame.f_locals if _is_library(frame.f_globals.get("__name__")) else {}
        other, primitive = known.get("call"), known.get("self")
        parts = getattr(other, "calls", (other,))  # several locks may be acquired as one
        if call in parts:  # a wrapper stands between the call's own frames
            frame = _caller_of_library(frame)
            continue
        if not known:
            calls_out, settled = True, False
        elif calls_out and frame.f_code.co_name in _OVERRIDABLE and "call" not in known:
            pass  # not interrupted: it has called a subclass's method, which made this call
        else:
            calls_out = False
            settled = settled or getattr(other, "settled", False)
            under_way = [getattr(part, "path_state", None) for part in parts if not getattr(part, "settled", False)]
            if not settled and call.path_state in (*under_way, getattr(primitive, "_path_state", None)):
                raise ClientError(
                    call.path,
                    "this thread was interrupted in a call here, and continues only when the calling signal "
                    "handler or finalizer returns: do not wait there (blocking=False, block=False), or use another "
                    "thread",
                )
        frame = frame.f_back


def _caller_of_library(frame: FrameType | None) -> FrameType | None:
    while frame is not None and _is_library(frame.f_globals.get("__name__")):
        frame = frame.f_back
    return frame


@functools.lru_cache(1000)  # each wait asks for each of its frames
def _is_library(module: object) -> bool:
    return str(module).startswith("zkconcurrent._")
