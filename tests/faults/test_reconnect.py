"""How soon a client is back once the service is: kazoo's own back-off doubles its pauses, up to an hour."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise

import pytest

import zkconcurrent
from tests.helpers.eventually import eventually
from tests.helpers.forwarder import Connection, Forwarder
from tests.helpers.proxy import Proxy
from tests.soak.events import clock
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

pytestmark = pytest.mark.fault(58)

OUTAGE = 8.0  # seconds


def test_a_client_that_was_cut_off_for_long_goes_on_trying(zookeeper: Server) -> None:
    """No pause between two attempts is longer than some two seconds, however long nobody has answered."""
    with Proxy(zookeeper.hosts) as proxy, zkconcurrent.connect(f"zk://{proxy.hosts}", timeout=4) as zk:
        host, _, port = proxy.hosts.rpartition(":")
        proxy.refuse()
        attempts: list[float] = []
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, int(port)))
            listener.listen()

            def request_close() -> None:
                while True:
                    connection, _ = listener.accept()
                    connection.close()
                    attempts.append(clock())

            def run() -> None:
                try:
                    request_close()
                except OSError:
                    return  # the end

            hanging_up = threading.Thread(target=run)
            hanging_up.start()
            cut = clock()
            proxy.cut()
            eventually(lambda: clock() > cut + OUTAGE)
            listener.shutdown(socket.SHUT_RDWR)
            hanging_up.join()
        pauses = [after - before for before, after in pairwise([cut, *attempts, cut + OUTAGE])]
        assert max(pauses) < 2.5, [f"{pause:.1f}" for pause in pauses]
        proxy.resume()
        eventually(lambda: zk.connected)


@pytest.mark.fault(200)
def test_one_of_three_servers_has_no_power(zookeeper: Server, dead_address: Callable[[], int]) -> None:
    """A client that tries that one first reaches another before its session, or a hold, ends."""
    with ExitStack() as ends:
        zk = ends.enter_context(zkconcurrent.connect(f"zk://{zookeeper.hosts}", timeout=6))
        held = zkconcurrent.Lock(zk, "/one-of-three")
        ends.enter_context(held)
        session, alive = zk.client_id, zookeeper.hosts
        zk.set_hosts(f"127.0.0.1:{dead_address()},{alive},{alive}", randomize_hosts=False)
        Session.of(zk).link.transport.drop()
        eventually(lambda: not zk.connected)
        eventually(lambda: zk.connected)
        assert zk.client_id == session
        assert not held.lost.is_set()


@pytest.mark.fault(222)
def test_the_only_server_never_replies_to_a_connection(proxy: Proxy) -> None:
    """As one does that is just starting: the client tries again before its session ends."""
    with zkconcurrent.connect(f"zk://{proxy.hosts}", timeout=6) as zk, (held := zkconcurrent.Lock(zk, "/no-reply")):
        session = zk.client_id
        with proxy.hold("connect") as request:
            proxy.cut()
            request.wait()
            eventually(lambda: zk.connected)
            assert zk.client_id == session
            assert not held.lost.is_set()


HEADER = struct.Struct("!iiqi")  # of a reply: its length, the request's number, the zxid, and the error


@pytest.mark.fault(413)
@pytest.mark.parametrize(
    "strange",
    [
        pytest.param(b"\0\0\0\5hello", id="too short"),
        pytest.param(HEADER.pack(16, -4, 0, 0), id="to credentials that were not sent"),
    ],
)
def test_a_reply_that_is_none(strange: bytes, zookeeper: Server, zk_path: str) -> None:
    """Something on the way puts in bytes that are no reply: the client connects again, and holds on."""
    near: list[socket.socket] = []

    class Tampered(Connection):
        def handle(self) -> None:
            near.append(self.request)
            super().handle()

    with Forwarder(zookeeper.port) as link:
        link.RequestHandlerClass = Tampered
        url = f"zk://127.0.0.1:{link.server_address[1]}?timeout=6"
        with zkconcurrent.connect(url) as zk, (held := zkconcurrent.Lock(zk, f"{zk_path}/held")):
            near[0].sendall(strange)
            eventually(lambda: len(near) == 2 and zk.connected)
            with zkconcurrent.Lock(zk, f"{zk_path}/other"):
                pass
            assert not held.lost.is_set()
        link.shutdown()
