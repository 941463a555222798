"""`--watch`: looks again and again. A terminal shows the newest look; anything else gets each that differs.

Every look is of reads alone, and none sets a watch at the server: so nothing is left there, whatever ends the command.
"""

from __future__ import annotations

import math
import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from .._kazoo.link import Link
from .outcome import CommandError, Exit, escaped, say, write
from .server import check_connected, told

T = TypeVar("T")

_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
# Lines that are too long are cut by the terminal, which knows how wide their characters are.
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"
_BOLD, _NORMAL = "\x1b[1m", "\x1b[m"


def again(
    link: Link, look: Callable[[T | None], T], tell: Callable[[T], Sequence[str]], seconds: float, title: str | None
) -> NoReturn:
    """Look every few seconds, also after an outage, until the command is interrupted or nobody reads on.

    Args:
        link: the client's.
        look: looks; it gets what it has seen before, or None.
        tell: returns the lines that tell what was seen.
        seconds: from the beginning of one look to that of the next.
        title: the first line on a terminal; None: write there, too, what differs, one after the other.
    """
    seen: T | None = None
    reached = True
    while True:
        began = time.monotonic()
        try:
            with told(link):
                check_connected(link)
                found = look(seen)
        except CommandError as error:
            if error.code != Exit.UNREACHABLE:
                raise
            if reached:
                say(f"{error}; it is asked again and again")
            reached = False
        else:
            reached = True
            if title is not None and _has_screen():
                _show_screen(title, tell(found))
            elif found != seen:
                write("".join(f"{line}\n" for line in tell(found)))
            seen = found
        _pause(began + seconds - time.monotonic())


def _has_screen() -> bool:
    """Return whether standard output is a terminal that can be written over."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _show_screen(title: str, lines: Sequence[str]) -> None:
    """Write lines over those that a terminal shows, as many as fit."""
    # The last line is the cursor's.
    height = _height()
    room = max(height - 1, 1)
    if len(lines) >= room:
        more = f"... {len(lines) - room + 2} more lines"
        lines = [*lines[: max(room - 2, 0)], more][: room - 1]
    title = escaped(title) if os.environ.get("NO_COLOR") else f"{_BOLD}{escaped(title)}{_NORMAL}"
    text = "".join(f"{line}{_END_OF_LINE}\n" for line in (title, *lines))
    if height < 2:
        # A new line would scroll the only one away.
        text = text.removesuffix("\n")
    write(f"{_HOME}{_CUT}{text}{_BELOW}{_WRAP}")


def _height() -> int:
    """Return how many lines the terminal has; LINES, which shells export, may be of its size before."""
    try:
        lines = os.get_terminal_size(sys.stdout.fileno()).lines
    except OSError:
        lines = 0
    return lines or shutil.get_terminal_size().lines


def _pause(seconds: float) -> None:
    """Wait.

    Raises:
        BrokenPipeError: nobody reads standard output any more; this is known at once, though nothing is written.
    """
    poll = select.poll()
    # Of this, the end of the reader is always told.
    poll.register(sys.stdout, 0)
    if poll.poll(math.ceil(1000 * max(0.0, seconds))):
        raise BrokenPipeError
