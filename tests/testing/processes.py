"""Python programs that use a server, and what is left of it, seen from outside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def python(*arguments: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run Python with some arguments; its temporary files go to a folder."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_from(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline()


def processes_of(folder: Path) -> list[str]:
    """The processes that name a folder among their arguments."""
    found = []
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            found.append(arguments.read_text(errors="replace").replace("\0", " "))
    return [line for line in found if str(folder) in line]


def wait_until_gone(folder: Path, timeout: float = 20) -> None:
    """Wait until neither the folder nor any process of it is left."""
    deadline = time.monotonic() + timeout
    while folder.exists() or processes_of(folder):
        assert time.monotonic() < deadline, f"still there: {folder} {processes_of(folder)}"
        time.sleep(0.02)
