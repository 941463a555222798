"""The addresses of a client's servers: in which order kazoo tries them, for how long each, and how that ended.

A host name may have several addresses: those of one machine, IPv6 and IPv4, or of several machines. kazoo resolves all
names, and goes through the addresses in one list; once a connection ends, it goes on with the rest of that list, which
may be days old. Here:

* The list alternates between the names, and between the families of addresses. So a machine that is dead, or a network
  without IPv6, costs a reconnecting client the time of one attempt only.
* The attempts at all addresses together take no longer than the session timeout.
* The names are resolved again when a connection ends, and while no address replies. While a resolver does not reply,
  the client uses the last known addresses.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - `getaddrinfo` would load it at its first call
import math
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, zip_longest
from typing import TypeAlias

from kazoo.client import KazooClient

from .._runtime.clock import monotonic
from .._runtime.this_process import choices
from .private_parts import PrivateParts

# An attempt to connect gets one of at least this many equal shares of the session timeout. So a hold survives one
# attempt that gets no reply.
SHARES = 4
# In seconds: how long to wait for a resolver if the last addresses are known.
RESOLVER_PATIENCE = 0.1
RESOLVE_AGAIN = 0.5  # seconds
# The message of each TLS error contains this.
OF_TLS = "(_ssl.c:"
WHY_NO_TLS = (
    "the servers may demand a certificate of the client (certfile), as they do by default, which is valid today and "
    "comes from an issuer that they trust; or they speak TLS at another port alone (secureClientPort)"
)
# Only the server's log shows for sure which of these it was.
WHY_HUNG_UP = (
    "a server closes a connection at once while it starts or has no quorum, or if it has too many of them "
    "(maxClientCnxns), TLS alone, or less data than this client has seen, as after a loss or a restore: then restart "
    "this program"
)

_Host: TypeAlias = tuple[str, int]
# The name, the address, the port.
_Address: TypeAlias = tuple[str, str, int]


class Addresses:
    """The addresses of one client's servers. Only kazoo's connection thread calls it, except to describe failures.

    Attributes:
        walked: kazoo goes through these addresses, and no longer through a list of its own that it began earlier.
        trying: the address that is tried now, or was last.
        hung_up: since the last connection began, a server has closed a new connection before it was open.
        opened_at: when the last connection began.
        resolved_at: when the names were resolved last.
    """

    def __init__(self, client: KazooClient) -> None:
        self.walked = self.hung_up = False
        self.trying: _Address = ("", "", 0)
        self._client = client
        self._parts = PrivateParts(client)
        # The last known addresses of each name: family, address, port.
        self._found: dict[_Host, list[tuple[int, str, int]]] = {}
        self._failures: dict[_Host | _Address, str] = {}
        # For each name, the event that is set once the name is resolved.
        self._resolving: dict[_Host, threading.Event] = {}
        # The session timeout that was granted last.
        self._granted = math.inf
        # How many times kazoo has gone through all addresses since the last connection began.
        self._walks = 0
        self.resolved_at = self.opened_at = self._lost_at = -math.inf

    # -- how long each is tried ------------------------------------------------------------------------------------

    def share(self, timeout: float) -> float:
        """Return how long to wait for one server: an equal share while the session to be resumed may still live.

        Later, slow servers get more time: a share for each name, and twice as much each time that no server was
        reached.
        """
        number = len(self._client.hosts)
        if self._parts.session_id and monotonic() < self._lost_at + min(timeout, self._granted):
            timeout = min(timeout, self._granted)
            number = max(number, sum(len(self._found.get(host, ())) for host in set(self._hosts())))
        else:
            number >>= max(0, self._walks - 1) % SHARES
        return timeout / max(SHARES, number)

    def note_opened(self, granted: float) -> None:
        """Note that a connection has begun, and the session timeout that was granted."""
        self.opened_at, self._granted = monotonic(), granted
        self._failures.clear()
        self.hung_up = False
        self._walks = 0

    def note_lost(self) -> None:
        """Note that a connection has ended."""
        self._lost_at = monotonic()

    def away_for_long(self) -> bool:
        """Return whether the client was cut off for a session timeout, so longer than a server's restart takes."""
        return bool(monotonic() > self._lost_at + self._parts.requested_timeout)

    # -- what came of it -------------------------------------------------------------------------------------------

    def note_failed(self, error: Exception) -> None:
        """Note why the present attempt has failed."""
        self._failures[self.trying] = getattr(error, "strerror", None) or str(error) or "no reply"
        # A server may close a connection so early that the attempt to connect itself reports it.
        self.hung_up |= isinstance(error, BrokenPipeError | ConnectionResetError)

    @property
    def none_resolved(self) -> bool:
        """Whether the last attempts have failed, and all because no name could be resolved."""
        return bool(self._failures) and all(len(where) == 2 for where in list(self._failures))

    def describe(self) -> str:
        """Return how the last attempts ended: `zk1:2181 (10.0.0.1): Connection refused; ...`."""
        attempts = []
        for where, reason in list(self._failures.items()):
            resolved = f" ({where[1]})" if len(where) == 3 and where[1] != where[0] else ""
            attempts.append(f"{shown(where[0], where[-1])}{resolved}: {reason}")
        return "; ".join(attempts)

    # -- which is tried next ---------------------------------------------------------------------------------------

    def expand(self) -> Walk:
        """Return the addresses for kazoo to try."""
        self.walked = True
        self._walks += 1
        self.resolve()
        return Walk(self)

    def _hosts(self) -> list[_Host]:
        return [(host.strip(), port) for host, port in self._client.hosts]

    def resolve(self) -> None:
        """Resolve the names anew; wait only a moment if addresses are known already, otherwise until some are.

        Each name is resolved on a thread of its own, as a resolver may take a minute: no name waits for another one,
        and a client that is stopped waits for none.
        """
        hosts = self._hosts()
        self.resolved_at = monotonic()
        for host in hosts:
            if (family := _family_of(host[0])) is not None:
                # An address needs no resolver, which may be out of reach, or forbidden.
                self._found[host] = [(family, *host)]
            elif host not in self._resolving or self._resolving[host].is_set():
                self._begin_to_resolve(host)
        while not self._parts.stopped.is_set():
            left = [each for host, each in self._resolving.items() if host in hosts and not each.is_set()]
            patience = RESOLVER_PATIENCE
            if any(host in self._found for host in hosts):
                patience -= monotonic() - self.resolved_at
            if not left or patience <= 0:
                return
            left[0].wait(patience)

    def _begin_to_resolve(self, host: _Host) -> None:
        resolved = self._client.handler.event_object()

        def resolve() -> None:
            try:
                self._resolve_one(host)
            finally:
                resolved.set()

        self._failures[host] = "the resolver does not reply"
        try:
            self._client.handler.spawn(resolve)
        except RuntimeError:
            # No thread can be started now.
            if host in self._found:
                self._failures.pop(host, None)
            else:
                resolve()
        else:
            self._resolving[host] = resolved

    def _resolve_one(self, host: _Host) -> None:
        try:
            found = socket.getaddrinfo(*host, 0, 0, socket.IPPROTO_TCP)
        except Exception as error:
            # A text that can't be a name raises UnicodeError; a test that bans networking may raise anything.
            self._client.logger.warning("Cannot resolve %s: %s", host[0], error)
            self._failures[host] = getattr(error, "strerror", None) or str(error)
        else:
            self._failures.pop(host, None)
            self._found[host] = [(family, str(place[0]), int(place[1])) for family, _, _, _, place in found]

    def in_order(self, keys: dict[object, float]) -> list[_Address]:
        """Return all known addresses: one of each name, with the families alternating; then the next of each.

        Args:
            keys: random numbers by which names and addresses are sorted, if the client wants that; filled here.
        """
        hosts = self._hosts()
        if self._client.randomize_hosts:
            hosts.sort(key=lambda host: keys.setdefault(host, choices.random()))
        rows: list[list[_Address]] = []
        for host in hosts:
            families: dict[int, list[_Address]] = {}
            for family, address, port in self._found.get(host, ()):
                families.setdefault(family, []).append((host[0], address, port))
            for each in families.values() if self._client.randomize_hosts else ():
                each.sort(key=lambda address: keys.setdefault(address, choices.random()))
            row = [address for address in chain(*zip_longest(*families.values())) if address is not None]
            first = len(rows) % len(families) if families else 0
            rows.append(row[first:] + row[:first])
        return [address for address in chain(*zip_longest(*rows)) if address is not None]


class Walk:
    """The addresses, as kazoo goes through them; what is known of them may change meanwhile."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._keys: dict[object, float] = {}

    def __len__(self) -> int:
        return len(self._addresses.in_order(self._keys))

    def __iter__(self) -> Iterator[_Address]:
        addresses = self._addresses
        tried: set[_Address] = set()
        while True:
            left = [each for each in addresses.in_order(self._keys) if each not in tried]
            if not left:
                # kazoo pauses now, and then begins anew.
                return
            address, began = left[0], monotonic()
            tried.add(address)
            yield address
            now = monotonic()
            lived = addresses.opened_at >= began
            if lived and now - addresses.opened_at > RESOLVE_AGAIN:
                # The other servers may have recovered. But this one hung up, and is not tried again without a pause.
                tried = {address}
            if now - addresses.resolved_at > RESOLVE_AGAIN:
                addresses.resolve()


def shown(host: str, port: object) -> str:
    """Return a host and a port as they are written."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _family_of(host: str) -> int | None:
    """Return the family of an address; None if it is a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return family
    return None
