"""Ports for servers that may have to come back on the same one."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable

# Below the ports that systems lend to outgoing connections (from 32768 on Linux, from 49152 elsewhere): a client that
# keeps trying to reach a killed server can be lent that server's own port, and then keeps it from starting again.
_PORTS = range(20000, 32768)

_ATTEMPTS = 5


class PortTakenError(RuntimeError):
    """Someone else listens on a port that was to be the server's."""


def free_ports(count: int) -> list[int]:
    """Choose different loopback ports on which nobody listens now; someone may still take one before it is used."""
    ports: set[int] = set()
    while len(ports) < count:
        # Not `random`: test suites seed it alike in each of their processes.
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        if _is_free(port):
            ports.add(port)
    return list(ports)


def try_ports(start: Callable[[], None]) -> None:
    """Start something that chooses its ports itself, again if someone was quicker to take one of them.

    Raises:
        PortTakenError: That happened every time, so there must be another reason.
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
