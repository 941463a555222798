"""Exceptions and calls that come at any line of the library, and the four rules that let it survive them.

The interpreter runs signal handlers and finalizers on top of whatever a thread does: between any two steps of its
bytecode, so at any line. A handler or finalizer may raise an error there, as Ctrl-C raises KeyboardInterrupt, or may
call the library again. Nothing prevents this: the program owns its signals, and a `finally` block may be struck as
well. Still, the library must not leave a node, hold or lock for which other threads or clients would wait forever. So
everything that needs a clean-up keeps to four rules. Comments cite them by name:

R1 Record before acting. Code notes what is about to exist (a ticket, a hold, a piece of work) before it makes the
   request or the change that creates it. An interrupt in between then leaves only what the note names.
R2 Clear last. Code forgets such a note only when its clean-up is complete.
R3 A step may run twice. A clean-up that was struck is run again, so each of its steps is idempotent.
R4 Move by one atomic operation. What passes from one owner to another is moved by one step that no signal handler can
   split: a deque's append or pop, a dict's setdefault or pop.

`insist` repeats a step until the step completes. Two more things here concern interrupts. Too deep a recursion
also raises its error at any line, and raises it in the clean-up again, so `check_depth` refuses to begin. And a handler
must not wait for the call that it has interrupted, so `check_not_interrupted` refuses that.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from itertools import accumulate
from types import FrameType
from typing import Any

from .._errors import ClientError

# An error that strikes more times than this comes not from a signal handler but, say, from too deep a recursion.
TRIES = 100
# When memory is exhausted, each try would fail at once; during the pause other threads may free some.
MEMORY_PAUSE = 0.01  # seconds
# More frames than any call of the library needs, not counting the frames of the program's functions.
FRAMES = 30
# Tuples, each within the next: `isinstance` recurses once for each.
_NESTED: Any = tuple(accumulate(range(2 * FRAMES), lambda nested, _: (nested,), initial=()))
# Methods of the library that call methods which a subclass may override.
_OVERRIDABLE = ("__enter__", "__exit__", "acquire", "_acquire_for_block")


def insist(step: Callable[[], object]) -> None:
    """Run an idempotent step (R3) until it completes, though up to `TRIES` errors strike it; raise the last of them.

    An error that strikes before this function has begun leaves the step undone.
    """
    struck: BaseException | None = None
    try:
        for _ in range(TRIES):
            try:
                if isinstance(struck, MemoryError):
                    time.sleep(MEMORY_PAUSE)
                step()
                break
            except BaseException as error:
                struck = error
    finally:
        # An error may have struck between two tries. R3: the step may run once more.
        step()
    if struck is not None:
        try:
            raise struck
        finally:
            # Otherwise the traceback of the error and this frame would keep each other alive.
            struck = None


def check_depth(frames: int) -> None:
    """Refuse to begin a call or block that could not end, because the stack has no room for these frames.

    A RecursionError strikes again and again, also in the clean-up. So a call begins only if all the frames that it may
    need are free. A block begins only if the frames that its end needs are free: otherwise the innermost block of an
    endless recursion would leave its lock held.

    Every call makes this check, so the check itself recurses only where there is no cheaper way.

    Raises:
        RecursionError: the recursion limit is near.
    """
    # `isinstance` recurses in C. Before Python 3.12, one count limits these recursions and the frames together.
    isinstance(None, _NESTED[frames])
    if sys.version_info < (3, 12):
        return
    try:
        # An inlined `__init__` counts twice, as it also has a frame that is not visible. A greenlet continues its
        # starter's count, but sees only its own frames.
        sys._getframe((sys.getrecursionlimit() - frames) // 2)
    except ValueError:
        # There is room even if each visible frame counts twice.
        if "greenlet" not in sys.modules:
            return
    _go_deeper(frames)


def _go_deeper(frames: int) -> None:
    if frames:
        _go_deeper(frames - 1)


def check_not_interrupted(call: Any) -> None:
    """In a signal handler or a finalizer, refuse a call that would wait for the very call that was interrupted.

    The interrupted call is on the stack of the calling thread, and ends only when the new call returns. The frames of
    the interrupted call have it in a local variable named `call`, or have its primitive in `self`.

    The call of a task is not checked. A handler can make such a call only if it runs an event loop of its own. And
    CPython would keep every frame that this function looks at, and the locals that it reads, while the task waits.

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
        # A call that acquires several locks as one consists of a call for each lock.
        parts = getattr(other, "calls", (other,))
        if call in parts:
            # This frame is one of the call's own. `_caller_of_library` stopped short of it, at a wrapper from another
            # module.
            frame = _caller_of_library(frame)
            continue
        if not known:
            calls_out, settled = True, False
        elif calls_out and frame.f_code.co_name in _OVERRIDABLE and "call" not in known:
            # This frame was not interrupted: it has called a method of a subclass, which made the call.
            pass
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


# Each wait calls this for each frame of its stack.
@functools.lru_cache(1000)
def _is_library(module: object) -> bool:
    return str(module).startswith("zkconcurrent._")
