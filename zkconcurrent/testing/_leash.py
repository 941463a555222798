"""A folder, and a process in it, that cannot outlive the Python process they belong to, not even when it is killed.

A few lines of shell watch a pipe of which only this process holds the other end. When this end is closed, on purpose or
because the process is gone, the watch kills the leashed process and removes the folder.

The leashed process writes its pid into the pipe itself, before it becomes what it should be: so there is no moment in
which it runs and the watch does not know of it.
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
_LEASHED = 'echo $$; exec "$@" >&2'
_NOBODY = b"\n"

_leashes: weakref.WeakSet[Leash] = weakref.WeakSet()


class Leash:
    """Ties a new temporary folder, and one process at a time, to the life of this process.

    Attributes:
        folder: It is removed by `close`, or when this process ends.
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
        _leashes.add(self)

    @property
    def is_ours(self) -> bool:
        """False in a forked child: what is leashed belongs to its parent."""
        return self._owner == os.getpid()

    def start(self, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the process, in the folder; it must be ended by `kill`.

        Args:
            command: The program and its arguments.
            log: Where what it prints goes.
        """
        return subprocess.Popen(
            ["sh", "-c", _LEASHED, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=self._write,
            stderr=log,
            cwd=self.folder,
            start_new_session=True,
        )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill and reap the process."""
        process.kill()
        # Told before the process is reaped: from then on its pid may be another's.
        os.write(self._write, _NOBODY)
        process.wait()

    def close(self) -> None:
        """Remove the folder, and make sure that no process is left."""
        _leashes.discard(self)
        os.close(self._write)
        self._watch.wait()


def _after_fork() -> None:
    # A forked child that lives on would keep the pipe open, and the watch waiting.
    for leash in list(_leashes):
        os.close(leash._write)


os.register_at_fork(after_in_child=_after_fork)
