"""A folder, and a process in it, that cannot outlive the Python process that owns them, not even when it is killed.

A few lines of shell watch a pipe; only the owner holds its other end. When that end closes, on purpose or because the
owner is gone, the shell kills the guarded process and removes the folder.

The guarded process itself writes its pid into the pipe, before it runs the command. So at no moment does it run
unknown to the shell.
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
    """Ties a new temporary folder, and one process at a time, to the life of this process.

    Attributes:
        folder: Removed by `close`, or when this process ends.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="zkconcurrent-"))
        self._owner = os.getpid()
        read, self._write = os.pipe()
        try:
            # In a session of its own, or Ctrl-C in a terminal would end it before it could be of use.
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

    @property
    def is_ours(self) -> bool:
        """False in a forked child: the guarded process belongs to its parent."""
        return self._owner == os.getpid()

    def start(self, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the process, in the folder; only `kill` may end it.

        Args:
            command: The program and its arguments.
            log: Receives the process's output.
        """
        return subprocess.Popen(
            ["sh", "-c", _GUARDED, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=self._write,
            stderr=log,
            cwd=self.folder,
            start_new_session=True,
        )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill and reap the process."""
        process.kill()
        # The shell is told before the process is reaped; from then on the pid may belong to another process.
        os.write(self._write, _NOBODY)
        process.wait()

    def close(self) -> None:
        """Remove the folder, and kill a process that is left."""
        _guards.discard(self)
        os.close(self._write)
        self._watch.wait()


def _after_fork() -> None:
    # A forked child that lives on would keep the pipe open, and the shell waiting.
    for guard in list(_guards):
        os.close(guard._write)


os.register_at_fork(after_in_child=_after_fork)
