"""`--watch`: looks again and again. A terminal shows the newest look; anything else gets each that differs.

Every look is of reads alone, and none sets a watch at the server: so nothing is left there, whatever ends the command.
"""

from __future__ import annotations

import math
import select
import sys
import time
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from .._kazoo.link import Link
from .outcome import CommandError, Exit, escaped, say, write
from .server import check_connected, told
from .terminal import BOLD, has_screen, size, styled

T = TypeVar("T")

_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
# Lines that are too long are cut by the terminal, which knows how wide their characters are.
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"


def again(
    link: Link, look: Callable[[T | None], T], tell: Callable[[T], Sequence[str]], seconds: float, title: str | None
) -> NoReturn:
    """Look every few seconds, even after an outage, until the command is interrupted or its output has no reader.

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
            if title is not None and has_screen():
                _show_screen(title, tell(found))
            elif found != seen:
                write("".join(f"{line}\n" for line in tell(found)))
            seen = found
        _pause(began + seconds - time.monotonic())


def _show_screen(title: str, lines: Sequence[str]) -> None:
    """Write lines over those that a terminal shows, as many as fit."""
    # The last line is the cursor's.
    height = size().lines
    room = max(height - 1, 1)
    if len(lines) >= room:
        more = f"... {len(lines) - room + 2} more lines"
        lines = [*lines[: max(room - 2, 0)], more][: room - 1]
    # Erased first: behind a line that is as wide as the terminal, its last character would go.
    text = "".join(f"{_END_OF_LINE}{line}\n" for line in (styled(BOLD, escaped(title)), *lines))
    if height < 2:
        # A new line would scroll the only one away.
        text = text.removesuffix("\n")
    write(f"{_HOME}{_CUT}{text}{_BELOW}{_WRAP}")


def _pause(seconds: float) -> None:
    """Wait.

    Raises:
        BrokenPipeError: standard output has lost its reader. This shows at once, even if nothing is written.
    """
    poll = select.poll()
    # Of this, the end of the reader is always told.
    poll.register(sys.stdout, 0)
    if poll.poll(math.ceil(1000 * max(0.0, seconds))):
        raise BrokenPipeError
