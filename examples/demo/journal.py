"""What happened, as told by those who did it: each thread writes its own journal, and all journals share one clock.

A line is written with one system call, so what a process wrote before SIGKILL is still there after it. The clock is
`time.monotonic`, which every process of a machine reads alike: lines of different processes can be put in order.
"""

import json
import os
import time
from dataclasses import astuple, dataclass
from enum import Enum
from pathlib import Path


class Step(str, Enum):
    """What a thread can do that matters to the outcome, in the order in which it does it."""

    WAITS = "waits"  # before acquire
    ENTERS = "enters"  # after acquire
    READS = "reads"
    PAUSES = "pauses"  # in the middle of its critical section, because it was told to
    WRITES = "writes"  # after the store took the number
    REFUSED = "refused"  # the store saw a higher fencing token and took nothing
    LEAVES = "leaves"  # before release
    LOST = "lost"  # leaving ended in LockLostError
    TOLD = "told"  # on_lost was called: of a process, so its thread is 0


@dataclass(frozen=True)
class Entry:
    """One line of a journal; `token` is that of the hold, 0 where there is none."""

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
        """Writes down one step, stamped with the present time."""
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
