"""What is left of a server, seen from outside."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path


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
