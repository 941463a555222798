"""The two strategies that wake a herd, to be measured and to be read; nobody should use them.

A lock on ZooKeeper is an ephemeral node, which goes when its maker does. The strategies differ in the nodes that
everybody else watches:

1. `OneNode`: there is one node, with a fixed name. The client that makes it is the holder; all others watch it. When it
   goes, all of them are told, all try to make it, and one of them succeeds.
2. `EveryoneWatches`: everybody makes a node with a number, the lowest holds, and all watch the list. They are served in
   order; but when any client comes or goes, all are told, and all read the whole list.
3. Ours, and that of ZooKeeper's documentation: as 2, but each watches the one node ahead of its own. When a client
   goes, one other is told.
"""

from __future__ import annotations

import threading
import uuid
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NodeExistsError, NoNodeError


class OneNode:
    """One ephemeral node with a fixed name, that everyone tries to make, and watches."""

    def __init__(self, client: KazooClient, path: str) -> None:
        client.ensure_path(path)
        self._client, self._node = client, f"{path}/the-lock"
        self._me = uuid.uuid4().bytes
        self._changed = threading.Event()

    def acquire(self, blocking: bool = True) -> bool:
        """Make the node; else wait until it is gone, with all others."""
        while not self._made():
            if not blocking:
                return False
            self._changed.clear()
            if self._client.exists(self._node, self._wake) is not None:
                self._changed.wait()
        return True

    def _made(self) -> bool:
        try:
            self._client.create(self._node, self._me, ephemeral=True)
        except NodeExistsError:
            return False
        except ConnectionLoss:  # the reply is lost, and the node may be this client's or another's
            return self._is_mine()
        return True

    def _is_mine(self) -> bool:
        try:
            return bool(self._client.retry(self._client.get, self._node)[0] == self._me)
        except NoNodeError:
            return False

    def _wake(self, _event: Any) -> None:
        self._changed.set()

    def release(self) -> None:
        """Delete it, and wake everybody."""
        self._client.delete(self._node)


class EveryoneWatches:
    """Numbered ephemeral nodes, of which the lowest holds, while everyone watches the list."""

    def __init__(self, client: KazooClient, path: str) -> None:
        client.ensure_path(path)
        self._client, self._path, self._node = client, path, ""
        self._changed = threading.Event()

    def acquire(self, blocking: bool = True) -> bool:
        """Queue; look at the list whenever it changes, until our node is the first."""
        self._node = self._client.create(f"{self._path}/n-", ephemeral=True, sequence=True)
        while True:
            self._changed.clear()
            first = min(self._client.get_children(self._path, self._wake))
            if self._node.endswith(first):
                return True
            if not blocking:
                self.release()
                return False
            self._changed.wait()

    def _wake(self, _event: Any) -> None:
        self._changed.set()

    def release(self) -> None:
        """Delete our node, and wake everybody."""
        self._client.delete(self._node)
