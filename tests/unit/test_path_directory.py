"""The paths of a client's primitives: one state for each path, also if a signal handler opens the same path."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from zkconcurrent._engine.path_directory import PathDirectory


class Thing:
    """A state."""

    kind = "Lock"
    part = ""


@pytest.fixture
def untraced() -> Iterator[None]:
    """Put coverage's own trace function back."""
    before = sys.gettrace()
    yield
    sys.settrace(before)


@pytest.mark.fault(260)
@pytest.mark.usefixtures("untraced")
def test_a_handler_opens_the_same_path() -> None:
    """At whichever line it strikes, both have one state, which later objects find."""
    for line in itertools.count(1):
        directory, lines, theirs = PathDirectory(), itertools.count(1), list[Any]()

        def strike(frame: FrameType, event: str, _: Any) -> Any:
            if frame.f_code.co_name == "<lambda>":
                return None
            if event == "line" and next(lines) == line:  # noqa: B023 - it is called within this turn
                sys.settrace(None)
                theirs.append(directory.open("/a/b", "Lock", Thing))  # noqa: B023
            return strike

        sys.settrace(strike)
        try:
            ours = directory.open("/a/b", "Lock", Thing)
        finally:
            sys.settrace(None)
        if not theirs:
            assert line > 10
            return
        assert [ours, directory.open("/a/b", "Lock", Thing)] == [*theirs, *theirs], line
        ours = theirs.clear()
        directory.closed("/a/b")
        assert directory.open("/a", "Lock", Thing).part == ""
