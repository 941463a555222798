"""Claims of the pages that no test of a primitive shows."""

from __future__ import annotations

from kazoo.client import KazooClient

from tests.conftest import Eventually, InThread
from zkconcurrent import Lock
from zkconcurrent.testing import Ensemble

PATIENCE = 60.0


def test_a_read_only_server(in_thread: InThread, eventually: Eventually) -> None:
    """It counts as out of reach: a timed acquire returns False, one without a deadline gets in with the quorum."""
    with Ensemble(properties={"readonlymode.enabled": "true"}) as ensemble:
        first, second, third = ensemble.servers
        client = KazooClient(first.hosts, timeout=6.0, read_only=True)
        try:
            second.kill()
            third.kill()
            eventually(lambda: first.command("isro") == "ro", patience=PATIENCE)
            client.start_async()
            lock = Lock(client, "/lock")
            assert not lock.acquire(timeout=1.0)
            waiting = in_thread(lock.acquire)
            second.start()
            assert waiting.result(PATIENCE)
            lock.release()
        finally:
            client.stop()
            client.close()
