"""Journals: each thread records its own steps, and all journals share one clock.

A thread writes each line with one system call, so a line that a process wrote survives its SIGKILL. The clock is
`time.monotonic`, which reads the same in every process of a machine, so lines of different processes can be ordered.
"""

import json
import os
import time
from dataclasses import astuple, dataclass
from enum import Enum
from pathlib import Path


class Step(str, Enum):
    """The steps of a thread that matter to the outcome, in their order."""

    WAITS = "waits"  # before acquire
    ENTERS = "enters"  # after acquire
    READS = "reads"
    PAUSES = "pauses"  # in the middle of its critical section, on the parent's order
    WRITES = "writes"  # after the store took the number
    REFUSED = "refused"  # the store had seen a higher fencing token and took nothing
    LEAVES = "leaves"  # before release
    LOST = "lost"  # the end of the `with` block raised LockLostError
    TOLD = "told"  # on_lost was called; it belongs to the process, so the thread is 0


@dataclass(frozen=True)
class Entry:
    """One line of a journal; `token` is the hold's, or 0 without one."""

    at: float
    worker: int
    thread: int
    step: Step
    token: int = 0
    number: int = 0
    writer: int = 0  # READS: the token under which the number read was written


class Journal:
    """The journal of one thread."""

    def __init__(self, folder: Path, worker: int, thread: int) -> None:
        self._who = worker, thread
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(folder / f"worker-{worker}-thread-{thread}.journal", flags, 0o600)

    def add(self, step: Step, token: int = 0, number: int = 0, writer: int = 0) -> None:
        """Records one step with the current time."""
        entry = Entry(time.monotonic(), *self._who, step, token, number, writer)
        os.write(self._file, json.dumps(astuple(entry)).encode() + b"\n")


class Journals:
    """All journals of a folder, read while they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def news(self) -> list[Entry]:
        """The entries written since the last call, in order of time."""
        entries = []
        for path in self._folder.glob("*.journal"):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            for line in whole.splitlines():
                at, worker, thread, step, *rest = json.loads(line)
                entries.append(Entry(at, worker, thread, Step(step), *rest))
        return sorted(entries, key=lambda entry: entry.at)
