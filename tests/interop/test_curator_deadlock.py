"""A ring with a member that is Java's: its nodes do not tell what it holds, so nobody is made a victim of a guess."""

from __future__ import annotations

import logging
import threading

import pytest
from kazoo.client import KazooClient

from tests.conftest import InThread
from tests.helpers.contenders import queued
from tests.helpers.curator import CuratorClient
from tests.helpers.curator_threads import LONG
from tests.helpers.eventually import eventually
from zkconcurrent import RLock, WaitCancelledError


@pytest.mark.parametrize("java_closes", [True, False])
def test_a_ring_with_java(
    java_closes: bool,
    java: CuratorClient,
    client: KazooClient,
    zk_path: str,
    in_thread: InThread,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Fault 335: whoever closes it, we tell of a possible deadlock, and wait until our timeout; then Java goes on."""
    mine, theirs = (RLock(client, f"{zk_path}-{name}", on_deadlock="raise") for name in "ab")

    def warned() -> list[str]:
        found = [each for each in caplog.records if each.name == "zkconcurrent.deadlocks"]
        return [each.getMessage() for each in found if each.levelno == logging.WARNING]

    def wait() -> bool:
        with mine:
            held.set()
            closed.wait(LONG)
            return theirs.acquire(timeout=20)

    held, closed = threading.Event(), threading.Event()
    assert java.call("mutex.acquire", theirs.path).result(LONG) == "true"
    running = in_thread(wait)
    assert held.wait(LONG)
    if java_closes:
        closed.set()
        eventually(queued(client, theirs.path, 2))
    waiting = java.call("mutex.acquire", mine.path)
    eventually(queued(client, mine.path, 2))
    closed.set()
    eventually(warned, patience=20)
    assert theirs.cancel_waits() == 1
    with pytest.raises(WaitCancelledError):
        running.result(LONG)
    assert waiting.result(LONG) == "true"
    assert len(warned()) == 1
    assert warned()[0].startswith("a possible deadlock of 2 waits")
