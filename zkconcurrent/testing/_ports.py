"""Ports for servers that may have to come back on the same one."""

from __future__ import annotations

import secrets
import socket

# Below the ports that systems lend to outgoing connections (from 32768 on Linux, from 49152 elsewhere): a client that
# keeps trying to reach a killed server can be lent that server's own port, and then keeps it from starting again.
_PORTS = range(20000, 32768)


def free_ports(count: int) -> list[int]:
    """Choose different loopback ports on which nobody listens now.

    Someone may still take one before it is used, so whoever uses them must be ready to try others.
    """
    ports: set[int] = set()
    while len(ports) < count:
        # Not `random`: test suites seed it alike in each of their processes.
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        if _is_free(port):
            ports.add(port)
    return list(ports)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
