"""A warning for programs that block asyncio's event loop.

The library blocks the calling thread, and a hold belongs to its thread. An event loop runs all its tasks in one thread.
So while one task waits for a lock, all tasks stand still; and a re-entrant lock lets all of them in.

A notebook's kernel runs its cells in an event loop of its own. To the user, a cell without `await` is not a task: it
may block, and all cells share the holds of one thread.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE
from types import FrameType

from .identity import Task

_AWAITS = CO_COROUTINE | CO_ASYNC_GENERATOR


def check_may_block(holders: Callable[[], Iterable[tuple[str, Task | None]]]) -> None:
    """Warn, once for each line of the program, about a call that would stop an event loop while it waits.

    Args:
        holders: returns the paths that the call would wait for, and the tasks that hold them.

    Raises:
        RuntimeError: one of these tasks belongs to the loop that the call would stop, so it would never release.
    """
    # No loop runs if asyncio was never imported, or is still being imported.
    running = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    if running is None or (loop := running()) is None:
        return
    for path, task in holders():
        if task is not None and not task.done() and task.get_loop() is loop:
            raise RuntimeError(
                f"{task.get_name()} holds {path}, and could never release it, as this call would stop its event loop: "
                "await a lock of zkconcurrent.aio instead"
            )
    if _in_cell():
        return
    warn(
        "this call waits in the thread of a running event loop: all its tasks stand still, and a re-entrant lock lets "
        "all of them in. Await a class of zkconcurrent.aio instead, or call it through asyncio.to_thread()"
    )


def _in_cell() -> bool:
    """Return whether the innermost running coroutine is a notebook kernel's: the caller is a cell without `await`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_flags & _AWAITS:
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("IPython", "ipykernel")


def warn(text: str) -> None:
    """Warn; the warning names the line of the program that called the library."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
        "zkconcurrent",
        "wrapt",
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RuntimeWarning, stacklevel=level)
