"""The renewal: the socket of a connection that is older than the library is replaced, once, beneath kazoo.

A client that was started before its first primitive has a connection that proves nothing yet. The request that begins
a connection reaches the leader, and a write after it proves the lease. So the first acquire that needs a proof has the
old connection replaced by another one of the same session, and need not wait until other requests are old enough.

kazoo's thread connects between two requests, when no reply is outstanding, and goes on with the new socket. kazoo
itself notices nothing: its state stays, so listeners see nothing, and requests that are queued meanwhile go out on the
new socket. Watches stay, too: the client asks for them again, and the server sends an event for each node that has
changed since the last reply. That request distinguishes watches for a node's changes from watches for its creation, but
kazoo notes both alike. So the thread first asks, on the old connection, which of these nodes exist.

If another connection can't be made, the old one stays, unless the server has ended it. It also stays while the program
always waits for some reply, and if the watches would not fit into one request of moderate size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Exists
from kazoo.protocol.states import KeeperState

from .large import LARGE
from .opening import Opening
from .private_parts import PrivateParts
from .reply import Reply
from .watches import SetWatches


class Renewal:
    """The renewal of one client's connection.

    Args:
        parts: the private parts of the client.
        opening: how its connections are opened.
        drop: drops the connection.

    Attributes:
        wanted: the renewal is to be done as soon as nothing waits for a reply.
    """

    def __init__(self, parts: PrivateParts, opening: Opening, drop: Callable[[], None]) -> None:
        self.wanted = False
        self._parts = parts
        self._opening = opening
        self._drop = drop
        self._failed = False
        # For each node whose data the client watches, whether it exists.
        self._exist: dict[str, bool] = {}

    @property
    def possible(self) -> bool:
        """Whether the connection is older than the library, and may be replaced.

        TLS and SASL need a host's name and credentials, which may no longer be valid.
        """
        client, connection = self._parts.client, self._parts.connection
        return (
            not (self._failed or self._opening.handshake is not None)
            and isinstance(connection, ConnectionHandler)
            and client.client_state == KeeperState.CONNECTED
            and not (self._parts.stopped.is_set() or client.use_ssl or connection.sasl_options or client.read_only)
        )

    def note_event(self, path: str) -> None:
        """Note that a node has changed."""
        self._exist.pop(path, None)

    def _note(self, path: str, reply: Reply) -> None:
        self._exist[path] = reply.value is not None
        self._failed = self._failed or reply.error is not None

    def ask(self) -> int:
        """Ask which watched nodes exist, if that is unknown; return how many it asks about. On kazoo's thread."""
        open_ones = [path for path, users in self._parts.data_watchers.items() if users and path not in self._exist]
        self._parts.queue.extend((Exists(path, None), Reply(None, partial(self._note, path))) for path in open_ones)
        return len(open_ones)

    def replace(self) -> bool:
        """Replace the socket, and queue the request for the watches; return whether that was done. On kazoo's thread.

        Raises:
            SessionExpiredError: the session is over.
            AuthFailedError: the server does not accept the client's credentials any more.
        """
        parts, old, request = self._parts, self._parts.socket, self._request()
        self.wanted = False
        if not self.possible or len(request.serialize()) > LARGE:
            return False
        try:
            host, port = old.getpeername()[:2]
            parts.connect(host, host, port)
        except (kazoo_errors.SessionExpiredError, kazoo_errors.AuthFailedError):
            old.close()
            raise
        except (kazoo_errors.KazooException, parts.connection.handler.timeout_exception, OSError):
            self._failed = True
            if parts.socket is not old:
                parts.socket.close()
                parts.socket = old
            return False
        old.close()
        if request:
            # This request goes before any other that may leave a watch there.
            parts.queue.appendleft((request, Reply(None, self._watched)))
        return True

    def _request(self) -> SetWatches:
        parts = self._parts
        data = [path for path, users in parts.data_watchers.items() if users]
        return SetWatches(
            parts.client.last_zxid,
            [path for path in data if self._exist.get(path)],
            [path for path in data if not self._exist.get(path)],
            [path for path, users in parts.child_watchers.items() if users],
        )

    def _watched(self, reply: Reply) -> None:
        if reply.error is not None:
            # kazoo then tells the watchers that the connection was lost.
            self._drop()
