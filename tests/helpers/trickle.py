"""A host that is no ZooKeeper: it accepts each connection, and sends a byte now and then."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_BETWEEN = 0.1  # seconds


@contextmanager
def trickling(byte: bytes = b"x") -> Iterator[int]:
    """Run such a host; the block has its port. Four of `x` are a length of two gigabytes to a client of ZooKeeper."""
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while not ended.wait(_BETWEEN):
                connection.sendall(byte)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threads.append(threading.Thread(target=serve, args=(connection,)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threads = [threading.Thread(target=accept)]
        threads[0].start()
        try:
            yield listening.getsockname()[1]
        finally:
            ended.set()
            # Ends `accept`, which `close` alone would not.
            listening.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
