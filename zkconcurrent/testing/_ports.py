"""Ports for servers that restart on the same port."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable

# Below the ephemeral ports (from 32768 on Linux, from 49152 elsewhere): a client that keeps trying to reach a killed
# server could get that server's own port for its connection, and the server could not start again.
_PORTS = range(20000, 32768)

_ATTEMPTS = 5


class PortTakenError(RuntimeError):
    """Another process listens on a port that was chosen for the server."""


def free_ports(count: int) -> list[int]:
    """Return different loopback ports that are free now; another process may still take one before its use."""
    ports: set[int] = set()
    while len(ports) < count:
        # Not `random`: a test suite may give each of its processes the same seed.
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        if _is_free(port):
            ports.add(port)
    return list(ports)


def try_ports(start: Callable[[], None]) -> None:
    """Call `start`, which chooses free ports, and retry if another process takes one first.

    Raises:
        PortTakenError: every attempt failed, so there must be another reason.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            start()
        except PortTakenError:
            continue
        return
    start()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
