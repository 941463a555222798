"""How a command ends: its exit code, the message on standard error, and the line of JSON that gives the reason."""

from __future__ import annotations

import enum
import io
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TextIO

BY_SIGNAL = 128


class Exit(enum.IntEnum):
    """The exit codes; `--status-fd` reports their names, in lower case."""

    USAGE = 64
    NOTHING_THERE = 66
    UNREACHABLE = 69
    BUG = 70
    NO_PROCESS = 71
    NOT_WRITTEN = 74
    NOT_ACQUIRED = 75
    LOST = 76
    REFUSED = 77
    OTHER_KIND = 78
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127


def say(message: str) -> None:
    """Write a message to standard error, which may be closed."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"zkconcurrent: {escaped(message)}\n")
        sys.stderr.flush()


def write(text: str) -> None:
    """Write to standard output.

    Raises:
        CommandError: the text can't be written, for example because the disk is full.
        BrokenPipeError: the reader has closed the pipe.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # At its exit, Python would try to write to the old stream again.
        sys.stdout = open_null()
        raise CommandError(Exit.NOT_WRITTEN, f"standard output: {error.strerror}") from None


def document(command: str, fields: Mapping[str, object], **more: object) -> str:
    """Return a command's report as a line of JSON: its subject, the time, and the rest."""
    at = datetime.now(timezone.utc).isoformat()
    return json.dumps({"schema": f"zkconcurrent.{command}/1", **fields, "at": at, **more})


def settle_streams() -> None:
    """Make it possible to write any text, in any locale, even if standard output or error is closed."""
    # A stream is None if it is closed.
    sys.stdout, sys.stderr = sys.stdout or open_null(), sys.stderr or open_null()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def open_null() -> TextIO:
    """Return a stream that discards what is written."""
    return open(os.devnull, "w", encoding="utf-8")


def escaped(text: str) -> str:
    """Escape the characters that control a terminal: any program may have written the text of a node."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def lacks_threads(error: BaseException) -> bool:
    """Return whether an error of Python's means that the system has no more threads for this process."""
    return isinstance(error, RuntimeError) and "start new thread" in str(error)


class CommandError(Exception):
    """An error that ends the command.

    Attributes:
        code: the exit code.
    """

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Outcome:
    """What became of a `run`.

    Attributes:
        code: the exit code.
        outcome: how the run ended, in a word.
        signal: the signal that ended the command, or made `run` give up; 0 if none did.
        waited: how many seconds the run waited for the lock; None if it did not acquire it.
        held: how many seconds the run held the lock; None if it never held it.
        tokens: the fencing tokens, by path.
        cause: why the lock was lost: the value of a `LossCause`, `lease_ending` or `unknown`; None if it was not lost.
    """

    code: int = Exit.BUG
    outcome: str = "bug"
    signal: int = 0
    waited: float | None = None
    held: float | None = None
    tokens: dict[str, int] = field(default_factory=dict)
    cause: str | None = None

    def write(self, descriptor: int | None) -> None:
        """Write the line of JSON to a descriptor."""
        if descriptor is None:
            return
        fields = {"schema": "zkconcurrent.run/1", **vars(self), "signal": self.signal or None}
        fields["waited"], fields["held"] = (
            None if seconds is None else round(seconds, 3) for seconds in (self.waited, self.held)
        )
        # Many readers of JSON have no integers above 2**53.
        fields["tokens"] = {path: str(token) for path, token in self.tokens.items()}
        try:
            os.write(descriptor, json.dumps(fields).encode() + b"\n")
        except BrokenPipeError:
            # The reader has gone, and expects nothing more.
            pass
        except OSError as error:
            say(f"--status-fd {descriptor}: {error.strerror}")


def die_of(number: int) -> int:
    """End this process by a signal; where that is impossible, as in process 1, return the signal's exit code."""
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return BY_SIGNAL + number
