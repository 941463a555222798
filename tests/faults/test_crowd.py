"""More threads than kazoo's pipe has room for, on one client."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from zkconcurrent import Lock

THREADS = 300  # each with two requests under way, where the pipe holds 278


@pytest.mark.fault(26)
@pytest.mark.long
def test_hundreds_of_threads_on_one_client(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """However many requests are under way at once, nobody waits for kazoo with what kazoo waits for."""
    client = connect(timeout=60)  # so many threads may keep the heartbeat waiting for long

    def work(number: int) -> int:
        lock = Lock(client, f"{zk_path}/{number}")
        for _ in range(3):
            with lock:
                pass
        return number

    futures = [in_thread(work, number) for number in range(THREADS)]
    assert [future.result(60) for future in futures] == list(range(THREADS))
    eventually(lambda: all(queued(zk, f"{zk_path}/{number}", 0)() for number in range(THREADS)))
