"""A network with a delay: a forwarder in a process of its own, so that its work does not weigh on a contestant.

Everything is passed on a fixed time after it came, each way, so a delay adds to round trips and takes nothing from the
throughput. It sleeps by the system's fine timer; a selector's time-outs, which are of whole milliseconds, would not do.
Prints its address, and ends when its input does: `python -m benchmarks.network host:port seconds`.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TypeAlias

Parcels: TypeAlias = "deque[tuple[float, bytes]]"  # when each is due, and its bytes


def main() -> None:
    """Forward until the input ends."""
    (host, _, port), delay = sys.argv[1].rpartition(":"), float(sys.argv[2])
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, args=(listener, (host, int(port)), delay), daemon=True).start()
    sys.stdout.write("{}:{}\n".format(*listener.getsockname()))
    sys.stdout.flush()
    sys.stdin.read()


def accept(listener: socket.socket, target: tuple[str, int], delay: float) -> None:
    """Pass each connection on."""
    while True:
        near, _ = listener.accept()
        far = socket.create_connection(target)
        for source, sink in ((near, far), (far, near)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            parcels: Parcels = deque()
            ready = threading.Semaphore(0)
            threading.Thread(target=receive, args=(source, parcels, ready, delay), daemon=True).start()
            threading.Thread(target=deliver, args=(sink, parcels, ready), daemon=True).start()


def receive(
    source: socket.socket, parcels: deque[tuple[float, bytes]], ready: threading.Semaphore, delay: float
) -> None:
    """Note when each piece is due; the last, an empty one, is the end."""
    data = b"?"
    while data:
        data = b""
        with suppress(OSError):
            data = source.recv(1 << 16)
        parcels.append((time.monotonic() + delay, data))
        ready.release()


def deliver(sink: socket.socket, parcels: Parcels, ready: threading.Semaphore) -> None:
    """Pass each piece on when it is due."""
    with suppress(OSError):
        while True:
            ready.acquire()
            due, data = parcels.popleft()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(data)


if __name__ == "__main__":
    main()
