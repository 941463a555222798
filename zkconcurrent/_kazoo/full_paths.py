"""Reads by full path, wherever the client's chroot lies: a search for a deadlock follows holds to any queue.

The replies are kazoo's own: a path that does not exist is an error.
"""

from __future__ import annotations

from kazoo.protocol.serialization import GetChildren2, GetData, Sync

from .link import Link
from .reply import Reply


def send_children(link: Link, path: str, reply: Reply) -> None:
    """List the children's names, with the stat of the path."""
    link.transport.send(GetChildren2(path, None), reply)


def send_get(link: Link, path: str, reply: Reply) -> None:
    """Read a node's data and stat."""
    link.transport.send(GetData(path, None), reply)


def send_sync(link: Link, path: str, reply: Reply) -> None:
    """Have the server catch up with its leader."""
    link.transport.send(Sync(path), reply)
