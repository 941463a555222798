"""How soon a client is back once the service is: kazoo's own back-off doubles its pauses, up to an hour."""

from __future__ import annotations

import socket
import threading
from itertools import pairwise

import zkconcurrent
from tests.conftest import Eventually
from tests.helpers.proxy import Proxy
from tests.soak.events import clock
from zkconcurrent.testing import Server

OUTAGE = 8.0  # seconds


def test_a_client_that_was_cut_off_for_long_goes_on_trying(zookeeper: Server, eventually: Eventually) -> None:
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
