"""Where gevent has patched all, a greenlet is what a thread is elsewhere, and the hub is never blocked."""

from __future__ import annotations

import socket

import pytest
from kazoo.client import KazooClient

from tests.helpers.forwarder import Forwarder, SlowConnection, SlowToTheServer
from tests.helpers.over_tls import TLS, InOneRecord
from tests.helpers.processes import run_python
from tests.helpers.trickle import trickling
from zkconcurrent import SharedValue
from zkconcurrent.testing import Server

pytestmark = [pytest.mark.fault(268), pytest.mark.long]

# Replies that come together, within a time in which kazoo sends no ping.
TOGETHER = """
import sys
if sys.argv[1] == "gevent":
    from gevent import monkey; monkey.patch_all()
    from kazoo.handlers.gevent import SequentialGeventHandler as Handler
else:
    from kazoo.handlers.threading import SequentialThreadingHandler as Handler
import zkconcurrent
with zkconcurrent.connect(sys.argv[2], handler=Handler(), timeout=60) as zk:
    for _ in range(3):
        replies = [zk.exists_async("/") for _ in range(5)]
        assert all(reply.wait(20) for reply in replies)
"""

# A value that comes, or goes, for longer than a third of the session timeout.
LARGE = """
import sys
from gevent import monkey; monkey.patch_all()
from kazoo.handlers.gevent import SequentialGeventHandler as Handler
import zkconcurrent
from zkconcurrent._engine.session import Session
with zkconcurrent.connect(sys.argv[1], handler=Handler()) as zk:
    shared, before = zkconcurrent.SharedValue(zk, sys.argv[3], b""), Session.of(zk).link.connection
    if sys.argv[2] == "reply":
        assert len(shared.get().value) == 700_000
    else:
        shared.set(bytes(900_000))
    assert Session.of(zk).link.connection is before
"""

# A client that nobody answers, but for a byte now and then.
TRICKLED = """
import sys
from gevent import monkey; monkey.patch_all()
from kazoo.handlers.gevent import SequentialGeventHandler as Handler
import zkconcurrent
try:
    zkconcurrent.connect(sys.argv[1], handler=Handler())
except TimeoutError as error:
    print(error)
"""

# Attempts to connect by TLS where nobody listens; the loop of the greenlets is there, and its files, before.
REFUSED = """
import gc, os, sys
from gevent import monkey; monkey.patch_all()
from kazoo.handlers.gevent import SequentialGeventHandler as Handler
import zkconcurrent
gc.disable()
left = []
for _ in range(2):
    try:
        zkconcurrent.connect(sys.argv[1], handler=Handler())
    except TimeoutError:
        left.append(len(os.listdir("/proc/self/fd")))
assert left[0] == left[1], left
"""


def test_greenlets(zookeeper: Server, zk_path: str) -> None:
    """Greenlets exclude each other, own what they hold, wait with time-outs, are told of losses, and stall nobody."""
    done = run_python("-m", "tests.faults.greens", zookeeper.hosts, zk_path, timeout=240)
    assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.fault(497)
@pytest.mark.parametrize("handler", ["gevent", "threads"])
def test_a_client_that_was_started_before(handler: str, zookeeper: Server, zk_path: str) -> None:
    """The session timeout is found, a free lock is acquired, and waits let the other greenlets run.

    Nothing lists the objects of the process: a real thread that is making a tuple then fails with a SystemError.
    """
    run_python("-W", "ignore", "-m", "tests.faults.started_before", zookeeper.hosts, zk_path, handler, timeout=120)


@pytest.mark.fault(405)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("handler", ["gevent", "threads"])
def test_replies_in_one_record_of_tls(handler: str, zookeeper: Server) -> None:
    """Under gevent and on threads, none leaves a reply until other data arrives."""
    with Forwarder(zookeeper.port) as door:
        door.RequestHandlerClass = InOneRecord
        url = f"zks://localhost:{door.server_address[1]}?ca={TLS / 'ca.pem'}"
        run_python("-W", "ignore", "-c", TOGETHER, handler, url)
        door.shutdown()


@pytest.mark.fault(407)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("what", ["reply", "request"])
def test_large_values_over_a_slow_link(what: str, zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """A connection on which parts of a large reply or request pass is kept, as with threads."""
    SharedValue(zk, zk_path, b"").set(bytes(700_000 if what == "reply" else 1))
    with Forwarder(zookeeper.port) as link:
        link.RequestHandlerClass = SlowConnection if what == "reply" else SlowToTheServer
        link.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        url = f"zk://localhost:{link.server_address[1]}?timeout={7 if what == 'reply' else 9}"
        run_python("-W", "ignore", "-c", LARGE, url, what, zk_path)
        link.shutdown()


@pytest.mark.fault(331)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_host_that_trickles() -> None:
    """`connect` gives up in time, as with threads."""
    with trickling() as port:
        # The first attempt takes 0.4 s, on a machine that has nothing else to do.
        url = f"zk://127.0.0.1:{port}?start_timeout=5"
        done = run_python("-W", "ignore", "-c", TRICKLED, url, timeout=120)
    assert "no reply of a ZooKeeper" in done.stdout, done.stdout + done.stderr


@pytest.mark.fault(481)
def test_the_socket_of_a_failed_handshake() -> None:
    """Each attempt to connect by TLS that fails closes its socket, as with threads."""
    with socket.socket() as nobodys:
        nobodys.bind(("127.0.0.1", 0))
        url = f"zks://127.0.0.1:{nobodys.getsockname()[1]}?start_timeout=0.5"
        done = run_python("-W", "error::ResourceWarning", "-c", REFUSED, url, timeout=120)
    assert "unclosed <" not in done.stderr
