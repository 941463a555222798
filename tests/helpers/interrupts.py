"""What strikes at any line of the library: an interrupt, which a trace function raises."""

from __future__ import annotations

import functools
import gc
import itertools
import linecache
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import zkconcurrent
from tests.helpers.places import FEWER

PACKAGE = str(Path(zkconcurrent.__file__).parent)
FILES = [str(path) for path in Path(PACKAGE).rglob("*.py")]


@functools.cache
def _signals_come_here(file: str, line: int) -> bool:
    """Return whether CPython may deliver a signal at the line; a trace function can raise at any.

    A `with` line is visited again on the way out, before `__exit__` is called, and no signal is delivered between the
    two (bpo-29988); nor before a constant is returned or assigned, nor at a `try:`, which does nothing; nor before the
    end of another block is called.
    """
    return not re.match(
        r"\s*(with |try:|(return|\w+ =) (None|True|False|0)\b|[\w.]+\.__exit__\()", linecache.getline(file, line)
    )


class InterruptAt:
    """Raise an error, `KeyboardInterrupt`, at the n-th line run below the first frame of the library; count the lines.

    A line counts the first `FEWER` times that it is run: each request runs the engine's lines anew, and the simulation
    interrupts every operation of every recipe. With `files`, only their lines count. An interrupt that is swallowed is
    an error.
    """

    def __init__(self, line: int, *files: str, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.error = error
        self.line = self.left = line
        self.files = files or ("",)
        for name in self.files:
            assert any(file.endswith(name) for file in FILES), f"the library has no file {name}"
        self.where = ""
        self._runs: Counter[tuple[str, int]] = Counter()

    def __enter__(self) -> None:
        gc.disable()  # an interrupt in a generator of the call before, which is being collected, is ignored
        self._before = sys.gettrace()  # that of coverage
        sys.settrace(self._trace)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        sys.settrace(self._before)
        gc.enable()
        assert not self.where or kind is not None, f"the interrupt at {self.where} was swallowed"

    def _trace(self, frame: FrameType, event: str, _arg: Any) -> Any:
        file = frame.f_code.co_filename
        if event == "call" and not (file.startswith(PACKAGE) and file.endswith(self.files)):
            return None  # nor is this called for its lines
        line = frame.f_lineno
        if event == "line" and file.endswith(self.files) and _signals_come_here(file, line):
            self._runs[file, line] += 1
            self.left -= self._runs[file, line] <= FEWER
            if self.left == 0:
                self.where = f"{Path(file).name}:{line} {frame.f_code.co_name}"
                raise self.error
        return self._trace


def at_every_line(*files: str, step: int = 1, error: type[BaseException] = KeyboardInterrupt) -> Iterator[InterruptAt]:
    """Yield an interrupt at each line of a call, one after the other, until one comes after the call's last line."""
    for line in itertools.count(1, step):
        hook = InterruptAt(line, *files, error=error)
        yield hook
        if not hook.where:
            return
