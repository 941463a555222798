"""Reads by full path, wherever the client's chroot lies: a search for a deadlock follows holds to any queue.

The replies are kazoo's own: a path that does not exist is an error.
"""

from __future__ import annotations

from kazoo.protocol.serialization import GetChildren2, GetData, Sync

from .reply import Reply, Request


def children(path: str, reply: Reply) -> Request:
    """List the children's names, with the stat of the path."""
    return GetChildren2(path, None), reply


def get(path: str, reply: Reply) -> Request:
    """Read a node's data and stat."""
    return GetData(path, None), reply


def sync(path: str, reply: Reply) -> Request:
    """Have the server catch up with its leader."""
    return Sync(path), reply
