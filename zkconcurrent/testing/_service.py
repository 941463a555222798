"""The common base of a server and an ensemble: with it, tests connect and expire sessions."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from .._runtime.clock import monotonic

# In seconds. kazoo's `start()` waits longer.
PATIENCE = 10.0
_POLL_INTERVAL = 0.02


class Service(ABC):
    """A ZooKeeper service that clients can connect to."""

    @property
    @abstractmethod
    def hosts(self) -> str:
        """The addresses to give to clients, such as `"127.0.0.1:21810"`."""

    @contextmanager
    def client(self, **options: Any) -> Iterator[KazooClient]:
        """Open a started client; the end of the block stops it.

        Args:
            **options: arguments of `kazoo.client.KazooClient`, such as `timeout` (of the session, in seconds).
        """
        client = KazooClient(**{"hosts": self.hosts, **options})
        try:
            client.start()
            yield client
        finally:
            client.stop()
            client.close()

    def expire(self, client: KazooClient) -> None:
        """End a client's session as its expiry would: its ephemeral nodes are removed.

        As in ZooKeeper's own tests, a second connection joins the session and closes it. The call repeats this until
        the server gives the second connection another session. When the call returns, the server has ended the session;
        the client learns of that when it reconnects.

        Raises:
            ValueError: the client is not connected, so its session is unknown; or the client belongs to another
                service.
        """
        session = client.client_id
        if session is None:
            raise ValueError("the client is not connected: there is no session to expire")
        entered, known, until = session, False, monotonic() + PATIENCE
        # If the client reconnected before the close, it cut off the second connection, and `entered` is None.
        while entered is None or entered[0] == session[0]:
            try:
                with self.client(client_id=session) as second:
                    entered = second.client_id
                    known |= entered is None or entered[0] == session[0]
            except KazooTimeoutError:
                # The client cut off the second connection so early that kazoo takes this for a failed start.
                if monotonic() > until:
                    raise
        # If the service had ended the session before this call, it has closed the client's connection.
        while not known and client.client_id == session:
            if monotonic() > until:
                raise ValueError(f"there is no session {session[0]:#x} here: is the client one of another service?")
            time.sleep(_POLL_INTERVAL)
