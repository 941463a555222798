"""Ports for servers that restart on the same port.

The port of a server that is dead, or has not started yet, looks free, and so does the port on which a follower will
listen if it becomes the leader. So two suites that run at once could choose the same port. To prevent this, a UDP
socket reserves each port. It is in no server's way, as servers use TCP, and the system closes it when the process ends.
"""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Callable

# Below the ephemeral ports (from 32768 on Linux, from 49152 elsewhere): a client that keeps trying to reach a killed
# server could get that server's own port for its connection, and the server could not start again.
_PORTS = range(20000, 32768)

_ATTEMPTS = 5


class PortTakenError(RuntimeError):
    """Another process listens on a port that was chosen for the server."""


class ReservedPorts:
    """Loopback ports that are free, and that no other `ReservedPorts` of this machine has until `close`.

    A process that does not use this class may still take one.

    Args:
        count: how many ports to reserve.

    Attributes:
        numbers: the ports; none after `close`.

    Raises:
        RuntimeError: too few ports are free.
    """

    def __init__(self, count: int) -> None:
        self.numbers: tuple[int, ...] = ()
        self._reservations: list[socket.socket] = []
        # Not `random`: a test suite may give each of its processes the same seed.
        untried = secrets.SystemRandom().sample(_PORTS, len(_PORTS))
        while len(self.numbers) < count:
            if not untried:
                self.close()
                raise RuntimeError(f"not {count} ports are free from {_PORTS[0]} to {_PORTS[-1]}: stop some servers")
            port = untried.pop()
            reservation = _bound(socket.SOCK_DGRAM, port)
            if reservation is None:
                continue
            listener = _bound(socket.SOCK_STREAM, port)
            if listener is None:
                reservation.close()
                continue
            listener.close()
            self._reservations.append(reservation)
            self.numbers += (port,)

    def close(self) -> None:
        """Give the ports back."""
        self.numbers = ()
        while self._reservations:
            self._reservations.pop().close()


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


def in_use(port: int) -> bool:
    """Return whether another process keeps a server from listening on a loopback port."""
    with socket.socket() as probe:
        # A server sets this option, too: the last server's closed connections, which linger for a minute, are ignored.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
        return False


def _bound(kind: int, port: int) -> socket.socket | None:
    bound = socket.socket(socket.AF_INET, kind)
    try:
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.close()
        return None
    return bound
