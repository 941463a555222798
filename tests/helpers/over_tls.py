"""Doors to a server for TLS alone; what comes through is passed on to the server without TLS."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from pathlib import Path

from tests.helpers.forwarder import Connection

# A server's certificate for localhost alone, and its issuer's; for 100 years.
TLS = Path(__file__).parents[1] / "integration" / "tls"


class OverTls(Connection):
    """One connection over TLS that is passed on without."""

    def handle(self) -> None:
        """Copy both ways until either side ends; visitors who don't like the certificate go."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "server.pem")
        with (
            contextlib.suppress(OSError),
            self.connect() as far,
            context.wrap_socket(self.request, server_side=True) as near,
        ):
            while True:
                ready = [near] if near.pending() else select.select([near, far], [], [])[0]
                if near in ready:
                    if not (data := near.recv(65536)):
                        return
                    far.sendall(data)
                if far in ready:
                    if not (data := self.record(far)):
                        return
                    near.sendall(data)

    def record(self, far: socket.socket) -> bytes:
        """Read what is sent in one record: one answer, as ZooKeeper does it; b"" at the end."""
        length = far.recv(4, socket.MSG_WAITALL)
        return length + far.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL) if length else b""


class InOneRecord(OverTls):
    """Another one: answers that come together go in one record, as many proxies send them."""

    def record(self, far: socket.socket) -> bytes:
        """Read what has come in a moment."""
        time.sleep(0.05)
        return far.recv(16_000)
