"""How far a run is: a bar that is drawn anew on a terminal; elsewhere, a plain line for each part."""

from __future__ import annotations

import sys
import time

WIDTH = 30


class Progress:
    """The bar, over the time that all parts are expected to take."""

    def __init__(self, total: float) -> None:
        self._total = total
        self._start = time.monotonic()
        self._terminal = sys.stdout.isatty()
        self._part = ""

    def show(self, done: float, part: str, doing: str) -> None:
        """Show that so many of the expected seconds are done, and name the part that runs."""
        passed = time.monotonic() - self._start
        share = min(done / self._total, 1.0)
        if self._terminal:
            bar = ("#" * round(share * WIDTH)).ljust(WIDTH, ".")
            self._write(f"\r\x1b[K[{bar}] {share:4.0%} {passed:4.0f} s  {part}: {doing}"[:110])
        elif part != self._part:
            self._write(f"{passed:4.0f} s  {part}\n")
        self._part = part

    def clear(self) -> None:
        """Remove the bar, so that other lines can be printed."""
        if self._terminal:
            self._write("\r\x1b[K")

    def _write(self, words: str) -> None:
        sys.stdout.write(words)
        sys.stdout.flush()
