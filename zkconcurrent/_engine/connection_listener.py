"""The listener: follows the state of one client's connection, and takes its watch events.

kazoo's threads call it, so nothing here waits: it ends the lease of a session that is over, and posts the rest of the
work. kazoo has never reported a connection that is older than the library, so the keeper has the listener adopt it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from .._kazoo.link import KazooState
from .._kazoo.watches import of_library
from .._protocol.session_lease import Lease
from .client_state import ClientState

ADOPT_INTERVAL = 0.01  # seconds
# The keeper looks once a second, so the hint comes within two seconds.
HINT_AFTER = 0.9  # seconds


class Listener:
    """The listener of one session.

    Args:
        client: the session.
        began: called with the lease of a session that has begun, or goes on; the session's lock is held.
        ended: called with the lease of a session that is over; the session's lock is held.

    Attributes:
        own_changed: called with a ticket whose node had an event, and with whether the event is the node's deletion;
            the session's lock is held.
    """

    own_changed: Callable[..., None]

    def __init__(
        self,
        client: ClientState,
        began: Callable[[Lease], None],
        ended: Callable[[Lease], None],
    ) -> None:
        self._client = client
        self._began = began
        self._ended = ended
        # When `hint` first found that the client has never been connected; infinity after `hint` has logged that.
        self._tries_since: float | None = None

    def start(self) -> None:
        """Begin to listen. A second call changes nothing."""
        client, transport = self._client, self._client.link.transport
        # kazoo keeps its listeners in a set, so a second call adds none.
        client.link.client.add_listener(self._on_state)
        transport.on_close = self._on_close
        transport.opening.on_old_timeout = self.adopt
        transport.reader.on_raw_event = self._on_raw_event
        transport.reader.on_data_watch = self._on_data_watch
        transport.on_renewed = partial(self._on_state, KazooState.CONNECTED)
        if client.registry.session is None:
            transport.nudge()
            self.adopt()

    # -- called by kazoo's threads: never block ------------------------------------------------------------------------

    def _on_state(self, state: str) -> bool | None:
        client = self._client
        if client.forked:
            # kazoo removes a listener that returns True.
            return True
        if state == KazooState.CONNECTED:
            self._opened(client.link.begin_connection())
        elif state == KazooState.LOST:
            self._on_close()
        client.wake_calls()
        client.wake_keeper()
        return None

    def _on_close(self) -> None:
        """Note that the session is over, or will be in a moment, as it is being closed."""
        # The lease ends at once, before the posted work is done: other threads read it without the lock.
        self._client.link.leases.end_with_session()
        self._client.post(partial(self._ended, self._client.registry.lease))

    def _opened(self, lease: Lease | None) -> None:
        client = self._client
        if lease is None:
            return
        client.negotiated(lease.timeout)
        if client.registry.lease.session not in (0, lease.session):
            # This goes before any other request of the new session.
            client.link.make_chroot()
        client.post(partial(self._began, lease))

    @of_library
    def on_event(self, event: Any) -> None:
        """Take a watch event. All watches share this one watcher, so that no node has two of them."""
        self._client.post(partial(self._client.registry.note_change, event.path))

    def _on_raw_event(self, path: str, deleted: bool) -> None:
        """Note an event in the order of the replies; `on_event`, a watcher, may be called later."""
        client, link = self._client, self._client.link
        node = link.client.unchroot(path)
        if (own := client.registry.note_event(node, link.connection, deleted=deleted)) is not None:
            client.post(partial(self.own_changed, own, deleted=deleted))
        if client.registry.trees:
            client.post(partial(client.registry.note_change_in, node.rpartition("/")[0], node))

    def _on_data_watch(self, path: str) -> None:
        """Note a watch on the data of a node: a server before ZooKeeper 3.9 then ends the watch of its tree."""
        client = self._client
        if client.registry.trees:
            tree = client.link.client.unchroot(path)
            client.post(partial(client.registry.note_change_in, tree, tree))

    # -- called by the keeper, or as the client begins: a connection that nothing has reported ------------------------

    def adopt(self) -> float | None:
        """Take over a connection that is older than the library, once its timeout is known.

        Returns:
            In how many seconds to call again; None if there is nothing to take over.
        """
        client = self._client
        if not client.link.connected or client.registry.session is not None:
            return None
        self._opened(client.link.adopt())
        client.wake_calls()
        return ADOPT_INTERVAL if client.registry.session is None else None

    def hint(self) -> None:
        """Log, once, which servers a client that has never been connected has failed to reach."""
        client = self._client
        if self._tries_since == math.inf:
            return
        if client.link.stopped or client.link.was_connected:
            self._tries_since = None
        elif self._tries_since is None:
            self._tries_since = client.now()
        elif client.now() - self._tries_since > HINT_AFTER:
            self._tries_since = math.inf
            client.warn_later("no ZooKeeper server has replied yet: %s", client.link.failures())
