"""A folder, and a process in it, that never outlive this Python process, even if this process is killed.

The watch, a few lines of shell, reads from a pipe whose other end only this process holds. When that end closes, on
purpose or because this process is gone, the watch kills the guarded process and removes the folder.

The guarded process itself writes its pid into the pipe, before it executes its command. So it never runs without the
watch knowing its pid.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO

_WATCH = """
while read -r line; do pid=$line; done
[ -z "$pid" ] || kill -9 "$pid"
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"""
_GUARDED = 'echo $$; exec "$@" >&2'
_NOBODY = b"\n"

_guards: weakref.WeakSet[ProcessGuard] = weakref.WeakSet()


class ProcessGuard:
    """Bind a new temporary folder, and one process at a time, to the life of this process.

    Attributes:
        folder: the folder; `close` or the end of this process removes it.
        is_ours: whether this process made the guard; False in a forked child.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="zkconcurrent-"))
        self.is_ours = True
        read, self._write = os.pipe()
        try:
            # In its own session: otherwise Ctrl-C in a terminal would kill it before its work is done.
            self._watch = subprocess.Popen(
                ["sh", "-c", _WATCH, "sh", str(self.folder)],
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            os.close(self._write)
            self.folder.rmdir()
            raise
        finally:
            os.close(read)
        _guards.add(self)

    def start(self, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the process in the folder; end it only with `kill`.

        Args:
            command: the program and its arguments.
            log: the file for its output.
        """
        return subprocess.Popen(
            ["sh", "-c", _GUARDED, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=self._write,
            stderr=log,
            cwd=self.folder,
            # In the locale C, which containers and cron have, Java takes paths for ASCII.
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill and reap the process."""
        process.kill()
        # Tell the watch before the process is reaped: afterwards, its pid may be reused.
        os.write(self._write, _NOBODY)
        process.wait()

    def close(self) -> None:
        """Remove the folder, and kill the process if it still runs."""
        _guards.discard(self)
        os.close(self._write)
        self._watch.wait()


def _after_fork() -> None:
    # A surviving forked child would keep the pipe open, and the watch waiting.
    for guard in list(_guards):
        os.close(guard._write)
        guard.is_ours = False


os.register_at_fork(after_in_child=_after_fork)
