"""`--watch`: reads again and again. A terminal shows the newest report; other output gets each changed report.

No reading sets a watch on the server, so nothing is left there, however the command ends.
"""

from __future__ import annotations

import math
import select
import sys
import time
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from kazoo.client import KazooClient

from .outcome import CommandError, Exit, escaped, say, write
from .server import check_connected, command_errors
from .terminal import BOLD, has_screen, size, styled

T = TypeVar("T")

_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
# Lines that are too long are cut by the terminal, which knows how wide their characters are.
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"


def repeat(
    client: KazooClient,
    read: Callable[[T | None], T],
    text: Callable[[T], Sequence[str]],
    seconds: float,
    title: str | None,
) -> NoReturn:
    """Keep reading every few seconds, through outages, until the command is interrupted or its output has no reader.

    Args:
        client: the client.
        read: returns a new report; it is called with the previous report, at first with None.
        text: returns the lines that show a report.
        seconds: the time between the beginnings of two readings.
        title: the first line on a terminal; if None, each changed report goes below the last, even on a terminal.
    """
    before: T | None = None
    reached = True
    while True:
        began = time.monotonic()
        try:
            with command_errors(client):
                check_connected(client)
                report = read(before)
        except CommandError as error:
            if error.code != Exit.UNREACHABLE:
                raise
            if reached:
                say(f"{error}; it is asked again and again")
            reached = False
        else:
            reached = True
            if title is not None and has_screen():
                _show_screen(title, text(report))
            elif report != before:
                write("".join(f"{line}\n" for line in text(report)))
            before = report
        _pause(began + seconds - time.monotonic())


def _show_screen(title: str, lines: Sequence[str]) -> None:
    """Overwrite what the terminal shows with as many of the lines as fit."""
    # The last line is the cursor's.
    height = size().lines
    room = max(height - 1, 1)
    if len(lines) >= room:
        more = f"... {len(lines) - room + 2} more lines"
        lines = [*lines[: max(room - 2, 0)], more][: room - 1]
    # Erase each line before its text: afterwards, a text as wide as the terminal would lose its last character.
    text = "".join(f"{_END_OF_LINE}{line}\n" for line in (styled(BOLD, escaped(title)), *lines))
    if height < 2:
        # A newline would scroll the only line away.
        text = text.removesuffix("\n")
    write(f"{_HOME}{_CUT}{text}{_BELOW}{_WRAP}")


def _pause(seconds: float) -> None:
    """Wait.

    Raises:
        BrokenPipeError: standard output has lost its reader. This shows at once, even if nothing is written.
    """
    poll = select.poll()
    # `poll` always reports that the reader is gone.
    poll.register(sys.stdout, 0)
    if poll.poll(math.ceil(1000 * max(0.0, seconds))):
        raise BrokenPipeError
