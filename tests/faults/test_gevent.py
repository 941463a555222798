"""Where gevent has patched all, a greenlet is what a thread is elsewhere, and the hub is never blocked."""

from __future__ import annotations

import pytest

from tests.helpers.forwarder import Forwarder
from tests.helpers.over_tls import TLS, InOneRecord
from tests.helpers.processes import run_python
from zkconcurrent.testing import Server

pytestmark = [pytest.mark.fault(268), pytest.mark.long]

# Replies that come together, within a time in which kazoo sends no ping.
TOGETHER = """
import sys
from gevent import monkey; monkey.patch_all()
from kazoo.handlers.gevent import SequentialGeventHandler as Handler
import zkconcurrent
with zkconcurrent.connect(sys.argv[1], handler=Handler(), timeout=60) as zk:
    for _ in range(3):
        replies = [zk.exists_async("/") for _ in range(5)]
        assert all(reply.wait(20) for reply in replies)
"""


def test_greenlets(zookeeper: Server, zk_path: str) -> None:
    """Greenlets exclude each other, own what they hold, wait with time-outs, are told of losses, and stall nobody."""
    done = run_python("-m", "tests.faults.greens", zookeeper.hosts, zk_path, timeout=240)
    assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.fault(405)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_replies_in_one_record_of_tls(zookeeper: Server) -> None:
    """No reply is left until other data arrives."""
    with Forwarder(zookeeper.port) as door:
        door.RequestHandlerClass = InOneRecord
        url = f"zks://localhost:{door.server_address[1]}?ca={TLS / 'ca.pem'}"
        run_python("-W", "ignore", "-c", TOGETHER, url)
        door.shutdown()
