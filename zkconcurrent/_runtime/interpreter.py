"""Checks of the interpreter: it must allow daemon threads; gevent, if used, must have patched it at the start."""

from __future__ import annotations

import _thread
import threading


def _threads_by() -> str:
    """Return the package that makes the program's threads: Python's own `_thread`, or a replacement such as gevent."""
    return threading.get_ident.__module__.partition(".")[0]


_BY = _threads_by()


def check_interpreter(handler: str = "") -> None:
    """Raise an error in an environment in which no client could work.

    Args:
        handler: the name of the client's handler.

    Raises:
        RuntimeError: this is an isolated subinterpreter; the program or the handler uses eventlet; or it uses gevent,
            which had not patched the program when the library was imported.
    """
    by = _threads_by() + handler
    if "eventlet" in by:
        raise RuntimeError("zkconcurrent does not work on eventlet: use gevent, or threads")
    if "gevent" in by and _BY != "gevent":
        raise RuntimeError(
            "gevent must patch the program before zkconcurrent is imported: begin the program with `from gevent import "
            "monkey; monkey.patch_all()`; with gunicorn's gevent workers, import zkconcurrent nowhere before the hooks "
            "of the configuration run"
        )
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
