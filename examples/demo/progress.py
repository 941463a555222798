"""The progress of a run: on a terminal one line that is rewritten, elsewhere a new line every two seconds."""

import sys
import time
from collections.abc import Sequence
from itertools import takewhile

from journal import Entry, Step


class Progress:
    """The count, the pace, and the current holder."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._shown = time.monotonic()

    def show(self, entries: Sequence[Entry]) -> None:
        """Shows the state of the journals, unless it was shown a moment ago."""
        now = time.monotonic()
        if not entries or now - self._shown < (0.1 if self._terminal else 2):
            return
        self._shown = now
        count = next((entry.number for entry in reversed(entries) if entry.step is Step.WRITES), 0)
        recent = list(takewhile(lambda entry: entry.at > now - 1, reversed(entries)))
        cycles = sum(entry.step is Step.LEAVES for entry in recent)
        last = next((entry for entry in recent if entry.step is Step.ENTERS), None)
        holder = f"worker {last.worker}, thread {last.thread} is inside" if last else "no thread gets in"
        status = f"{now - entries[0].at:5.1f} s   count {count:6,}   {cycles:4,} cycles/s   {holder}"
        self._print(status, "" if self._terminal else "\n")

    def say(self, words: str) -> None:
        """Prints a line that stays."""
        self._print(f"          {words}", "\n")

    def clear(self) -> None:
        """Removes the line to make room for others."""
        if self._terminal:
            self._print("", "")

    def _print(self, line: str, end: str) -> None:
        print(f"\r\x1b[K{line}" if self._terminal else line, end=end, flush=True)
