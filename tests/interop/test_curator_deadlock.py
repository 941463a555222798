"""A ring with a member that is Java's: its nodes do not tell what it holds, so nobody is made a victim of a guess."""

from __future__ import annotations

from kazoo.client import KazooClient

from tests.conftest import Eventually
from tests.helpers.contenders import queued
from tests.helpers.curator import CuratorClient
from tests.helpers.curator_threads import LONG
from zkconcurrent import RLock
from zkconcurrent._engine.session import Session


def test_a_ring_with_java(java: CuratorClient, client: KazooClient, zk_path: str, eventually: Eventually) -> None:
    """We search, find nothing that could be followed, and wait until our timeout; then Java goes on."""
    mine = RLock(client, f"{zk_path}-a", on_deadlock="raise")
    with mine:
        assert java.call("mutex.acquire", f"{zk_path}-b").result(LONG) == "true"
        waiting = java.call("mutex.acquire", mine.path)
        eventually(queued(client, mine.path, 2))
        assert not RLock(client, f"{zk_path}-b", on_deadlock="raise").acquire(timeout=4)
        assert Session.of(client).deadlocks.requests >= 1
    assert waiting.result(LONG) == "true"
