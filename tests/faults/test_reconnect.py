"""How soon a client is back once the service is: kazoo's own back-off doubles its pauses, up to an hour."""

from __future__ import annotations

import socket
import threading
import time
from itertools import pairwise
from unittest.mock import patch

import pytest
from kazoo.exceptions import ConnectionLoss, SessionExpiredError

import zkconcurrent
from tests.conftest import Eventually
from tests.helpers.proxy import Proxy
from tests.soak.events import clock
from zkconcurrent._engine.session import Session
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


@pytest.mark.parametrize("error", [ConnectionLoss, SessionExpiredError])
def test_deletes_that_fail_at_once(zookeeper: Server, eventually: Eventually, error: type[Exception]) -> None:
    """Fault 109: kazoo refuses each delete before its thread tells that the connection is over: the keeper waits."""
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}", timeout=4) as client, zookeeper.client() as other:
        lock, session, worked = zkconcurrent.Lock(client, f"/at-once/{error.__name__}"), Session.of(client), []
        work = session.do_due_work

        def counted() -> float:
            worked.append(time.monotonic())
            return work()

        with (
            patch.object(session, "do_due_work", counted),
            patch.object(session.link, "delete", lambda _, reply: reply.set_exception(error())),
        ):
            lock.acquire()
            lock.release()
            began = time.monotonic()
            eventually(lambda: time.monotonic() > began + 0.5)
            assert len(worked) < 50
        client._connection._socket.shutdown(socket.SHUT_RDWR)  # a new connection begins all deletes anew
        eventually(lambda: not other.get_children(lock.path))
