"""The wait for a condition: no test sleeps for luck."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 30.0


def eventually(condition: Callable[[], T], what: str = "", patience: float = PATIENCE) -> T:
    """Wait until a condition is true, and return what it returned."""
    began = time.monotonic()
    while not (result := condition()):
        waited = time.monotonic() - began
        assert waited < patience, f"not within {patience} s: {what or condition}"
        # Seldom after a while: to ask is dear, as most conditions ask a server, and some look at all processes.
        time.sleep(min(max(0.005, waited / 20), 0.1))
    return result
