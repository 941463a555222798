"""The watcher of loops tells of what keeps a loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.aio.loops import run


def compute() -> None:
    """Compute for a while."""
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize("block", [lambda: time.sleep(0.5), lambda: threading.Event().wait(0.5), compute])
def test_a_loop_that_is_kept(block: Callable[[], object]) -> None:
    """A callback that sleeps, waits for another thread or computes too long fails the test that runs it."""

    async def main() -> None:
        block()

    with pytest.raises(AssertionError, match="took"):
        run(main())
