"""What tests do with a ZooKeeper service, be it one server or an ensemble: connect to it, and expire sessions."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kazoo.client import KazooClient

PATIENCE = 10.0  # seconds; kazoo's `start()` has more


class Service(ABC):
    """Something that clients can connect to."""

    @property
    @abstractmethod
    def hosts(self) -> str:
        """The addresses to give to clients, such as ``"127.0.0.1:21810"``."""

    @contextmanager
    def client(self, **options: Any) -> Iterator[KazooClient]:
        """Open a client that is started, and stopped when the block is left.

        Args:
            **options: As for `kazoo.client.KazooClient`, such as ``timeout`` (of the session, in seconds).
        """
        from kazoo.client import KazooClient

        client = KazooClient(**{"hosts": self.hosts, **options})
        try:
            client.start()
            yield client
        finally:
            client.stop()
            client.close()

    def expire(self, client: KazooClient) -> None:
        """End the session of a client as the server would: its ephemeral znodes go, and it is told when it reconnects.

        A second connection enters the same session and closes it, which is how ZooKeeper's own tests do it; it does so
        until it is given another. When this returns the server has ended the session.

        Raises:
            ValueError: The client is not connected, so that its session is not known.
        """
        from kazoo.handlers.threading import KazooTimeoutError

        session = client.client_id
        if session is None:
            raise ValueError("the client is not connected: there is no session to expire")
        entered, until = session, time.monotonic() + PATIENCE
        while entered is None or entered[0] == session[0]:  # the client, back before it was closed, cut us off
            try:
                with self.client(client_id=session) as second:
                    entered = second.client_id
            except KazooTimeoutError:  # so soon that kazoo takes it for not connected at all
                if time.monotonic() > until:
                    raise
