"""The events, as told by their actors: one line for each event, one file for each process, one clock for all.

A line is written with one system call, so the lines that a process wrote before SIGKILL are still there after it. The
clock is the one that leases are measured by, which every process of a machine reads alike: events of different
processes can be put in order. Each event is stamped on the safe side: a hold's begin after `acquire` returned, its end
before `release` is called. So a stretch of time between the two stamps is one in which the thread surely believed that
it held.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import astuple, dataclass
from enum import Enum
from pathlib import Path

# The faults that excuse a process, or a client of it: a history must know these by name.
KILLED = "process killed"
STOPPED_LONG = "process stopped, for long"
STOPPED_SHORT = "process stopped, for a moment"
EXPIRED = "session expired"

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Return the time, in seconds, alike in every process."""
    return time.clock_gettime(_CLOCK)


class What(str, Enum):
    """The events of a thread and its locks; the words of the files."""

    ASKS = "asks"  # before acquire
    GRANTED = "granted"  # acquire returned True
    REFUSED = "refused"  # acquire returned False
    LEAVES = "leaves"  # before release
    LEFT = "left"  # release returned
    SENT = "sent"  # release returned without waiting for the reply
    LOST = "lost"  # acquire or release raised LockLostError
    FAILED = "failed"  # something raised what it should not
    TOLD = "told"  # `lock.lost` was set
    CALLED = "called"  # `on_lost` was called
    SESSION = "session"  # a client is connected; the note has its session
    STARVED = "starved"  # nothing of the process ran, for as long as `limit` says, up to now
    DONE = "done"  # the thread has ended as it should

    # Of queues, where ASKS is before `put`, `get` or `claim`, and REFUSED is Full or Empty.
    PUT = "put"  # put returned
    UNKNOWN = "unknown"  # put, or a change of data, raised OutcomeUnknownError
    TAKEN = "taken"  # get returned
    CLAIMED = "claimed"  # the block of a claim begins; the note has the attempts
    ACKNOWLEDGES = "acknowledges"  # before the end of the block
    ACKNOWLEDGED = "acknowledged"  # the block has ended; LOST if that raised LockLostError
    GIVES_BACK = "gives back"  # before the block fails
    GAVE_BACK = "gave back"  # the block has failed
    BURIED = "buried"  # the item is among the dead, at the end

    # Of numbers, values and maps, where the note of ASKS has the call.
    ANSWERED = "answered"  # the call returned; the note has what


@dataclass(frozen=True)
class Event:
    """One line.

    Attributes:
        at: when.
        process: "2.1" is the first process in the second worker's place, "2.2" the one that took its place.
        thread: from 1; 0 where it is the process.
        what: the kind of event.
        path: of the lock.
        role: the part of the path: "lock", or of a read-write lock "read" or "write"; of a queue "put", "get" or
            "claim"; of a map the key.
        hold: the thread's number of the hold; the same at every level of a re-entrant one.
        token: the fencing token; 0 where none is known.
        client: which of the process's clients.
        limit: of ASKS, the seconds within which the call must return; None for ever.
        note: an addition.
        item: of a queue.
    """

    at: float
    process: str
    thread: int
    what: What
    path: str = ""
    role: str = ""
    hold: int = 0
    token: int = 0
    client: int = 0
    limit: float | None = None
    note: str = ""
    item: str = ""

    def __str__(self) -> str:
        parts = [f"{self.at:.4f} {self.process}/{self.thread} {self.what.value} {self.role} {self.path}".rstrip()]
        if self.hold:
            parts.append(f"hold {self.hold}")
        if self.token:
            parts.append(f"token {self.token}")
        if self.limit is not None:
            parts.append(f"within {self.limit:.2f} s")
        parts += filter(None, (self.item, self.note))
        return " ".join(parts)


@dataclass(frozen=True)
class Fault:
    """Something that was done to the system.

    Attributes:
        kind: the action, in words.
        at: just before it was done.
        until: when it was healed, or at once if there is nothing to heal.
        process: the process it was done to, if it was one.
        client: which of the process's clients.
        note: an addition.
    """

    kind: str
    at: float
    until: float
    process: str = ""
    client: int = 0
    note: str = ""

    def __str__(self) -> str:
        return f"{self.at:.4f} {self.kind} {self.process} {self.note} until {self.until:.4f}".replace("  ", " ")


class Log:
    """The file of one process; any of its threads may write to it.

    Attributes:
        process: its name.
    """

    def __init__(self, folder: Path, process: str) -> None:
        self.process = process
        self._file = os.open(folder / f"{process}.events", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, thread: int, what: What, at: float | None = None, **details: object) -> None:
        """Write one event, stamped with the present time if no other is given."""
        event = Event(clock() if at is None else at, self.process, thread, what, **details)  # type: ignore[arg-type]
        os.write(self._file, json.dumps(astuple(event)).encode() + b"\n")


class Logs:
    """All files of a folder, read while they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def news(self, *kinds: What) -> list[Event]:
        """Return the events written since the last call, of these kinds, or all; those of one process are in order."""
        words = [f'"{kind.value}"'.encode() for kind in kinds]
        found = []
        for path in sorted(self._folder.glob("*.events")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            for line in whole.splitlines():
                if not words or any(word in line for word in words):
                    at, process, thread, what, *rest = json.loads(line)
                    found.append(Event(at, process, thread, What(what), *rest))
        return found
