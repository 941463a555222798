"""A wait in a signal handler lends the lock that its thread has, and has it again however the wait ends."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.interrupts import at_every_line
from zkconcurrent._engine.waiting import _sleep

DEPTH = 2


def test_a_wait_interrupted_twice() -> None:
    """A second Ctrl-C, at any line after the first has ended the wait, leaves no frame without its lock."""
    lock = threading.RLock()
    call: Any = SimpleNamespace(sessions=[SimpleNamespace(lock=lock, has_lock=lock._is_owned)])  # type: ignore[attr-defined]

    class Interrupted:
        def wait(self, _pause: float) -> bool:
            assert not lock._is_owned()  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    for hook in at_every_line("waiting.py"):
        for _ in range(DEPTH):
            lock.acquire()
        with pytest.raises(KeyboardInterrupt), hook:
            _sleep(call, Interrupted(), 1.0)
        for _ in range(DEPTH):
            lock.release()  # else, after the interrupt at hook.where, a RuntimeError
        assert not lock._is_owned(), hook.where  # type: ignore[attr-defined]
    assert hook.line > 10
