"""The watcher of loops tells of what keeps a loop.

On a busy machine the watcher looks seldom, so each of these keeps its loop until the watcher has seen enough.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from tests.aio.loops import LOOK, SLOW, Watcher, watching
from tests.conftest import PATIENCE


def sleep(watcher: Watcher) -> None:
    """Sleep."""
    until = time.monotonic() + PATIENCE
    while not watcher._stack and time.monotonic() < until:
        time.sleep(2 * SLOW)


def wait(watcher: Watcher) -> None:
    """Wait for another thread."""
    until, event = time.monotonic() + PATIENCE, threading.Event()
    while not watcher._stack and time.monotonic() < until:
        event.wait(2 * SLOW)


def compute(watcher: Watcher) -> None:
    """Compute for a while."""
    end, until = time.thread_time() + 2 * SLOW, time.monotonic() + PATIENCE
    while (time.thread_time() < end or watcher._looks * LOOK < SLOW) and time.monotonic() < until:
        pass


@pytest.mark.parametrize("block", [sleep, wait, compute])
def test_a_loop_that_is_kept(block: Callable[[Watcher], None]) -> None:
    """A callback that sleeps, waits for another thread or computes too long fails the test that runs it."""

    async def main(watcher: Watcher) -> None:
        asyncio.get_running_loop().slow_callback_duration = SLOW
        block(watcher)

    with pytest.raises(AssertionError, match="took"), watching() as watcher:
        asyncio.run(main(watcher), debug=True)


def test_a_loop_that_is_not_kept() -> None:
    """Callbacks that take less than that fail nothing."""

    async def main() -> None:
        asyncio.get_running_loop().slow_callback_duration = 0.0
        for _ in range(20):
            await asyncio.sleep(SLOW / 50)

    with watching() as watcher:
        asyncio.run(main(), debug=True)
    assert not watcher.slow
