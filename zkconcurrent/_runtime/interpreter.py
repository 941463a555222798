"""The interpreter must allow daemon threads: kazoo and the library have several."""

from __future__ import annotations

import _thread


def check_interpreter() -> None:
    """Refuse to begin in an isolated subinterpreter, where no client could ever connect.

    Raises:
        RuntimeError: this is an isolated subinterpreter.
    """
    allowed = getattr(_thread, "daemon_threads_allowed", _can_start_daemon_threads)  # since Python 3.12
    if not allowed():
        raise RuntimeError(
            "zkconcurrent can't be used in an isolated subinterpreter, which has no daemon threads: use it in the main "
            "interpreter, or in a process of its own"
        )


def _can_start_daemon_threads() -> bool:
    try:
        _thread.start_new_thread(lambda: None, ())
    except RuntimeError as error:
        # Other failures are raised later, when a thread is needed.
        return "isolated" not in str(error)
    return True
