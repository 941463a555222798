"""Claims of the pages that no test of a primitive shows."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import InThread
from tests.helpers.eventually import eventually
from zkconcurrent import Lock
from zkconcurrent._command.main import main
from zkconcurrent.testing import Ensemble, Server

PATIENCE = 60.0


@pytest.mark.fault(31, 360)
def test_a_read_only_server(zookeeper: Server, in_thread: InThread, capsys: pytest.CaptureFixture[str]) -> None:
    """It counts as out of reach: a timed acquire returns False, one without a deadline gets in with the quorum.

    Fault 360: `doctor` does not count it among the servers that serve.
    """
    with Ensemble(properties={"readonlymode.enabled": "true"}) as ensemble:
        first, second, third = ensemble.servers
        client = KazooClient(first.hosts, timeout=6.0, read_only=True)
        try:
            second.kill()
            third.kill()
            eventually(lambda: first.command("isro") == "ro", patience=PATIENCE)
            main(["doctor", "--url", f"zk://{zookeeper.hosts},{first.hosts}/unused?start_timeout={PATIENCE:g}"])
            found = capsys.readouterr().out
            assert f"warn  server {first.hosts}: it serves read-only clients alone: it has no quorum" in found
            assert "warn  quorum: 1 of 2 servers of the URL serve" in found
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
