"""The requests for watches that kazoo has no calls for, and how to remove a watch that the program has no use for.

A server keeps one watch for each client, path and kind, which all watchers of the client share. So the library may
remove it only if no watcher of the program is there, too. The program's requests go through kazoo's queue, and kazoo
notes the watcher of a request when the reply comes. So kazoo's connection thread decides, as it takes the removal off
the queue: the watchers of all earlier requests are noted, or pending, and each later request sets the watch anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from kazoo.protocol.serialization import (
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    int_struct,
    long_struct,
    write_string,
)
from kazoo.protocol.states import WatchedEvent

from .private_parts import PrivateParts

Watcher: TypeAlias = Callable[[WatchedEvent], object]
PERSISTENT_RECURSIVE = 1  # a mode of watches
# The kinds of watches. Servers know the last one since 3.9.
CHILDREN, DATA, TREE = 1, 2, 5
_OF_CHILDREN = (GetChildren.type, GetChildren2.type)
OF_DATA = (Exists.type, GetData.type)
# By the types of events: a node was made, has ended, has other data, has other children.
_KINDS_OF_EVENTS = {1: (DATA,), 2: (DATA, CHILDREN), 3: (DATA,), 4: (CHILDREN,)}
W = TypeVar("W", bound=Callable[..., object])


def of_library(watcher: W) -> W:
    """Mark the library's watcher, which is called on the connection thread itself; it must not wait."""
    watcher.of_library = True  # type: ignore[attr-defined]
    return watcher


def is_of_library(watcher: Watcher) -> bool:
    """Return whether a watcher is the library's."""
    return getattr(watcher, "of_library", False)


class _WatchRequest:
    """A request that names a path and a kind of watch, and whose reply only shows that it was done."""

    def __init__(self, path: str, kind: int) -> None:
        self.path = path
        self.kind = kind

    def serialize(self) -> bytearray:
        """Return the request's bytes."""
        return bytearray(write_string(self.path) + int_struct.pack(self.kind))

    @classmethod
    def deserialize(cls, _buffer: bytes, _offset: int) -> None:
        """Read the reply."""


class AddWatch(_WatchRequest):
    """The request to watch a path and all nodes below it until the connection ends."""

    type = 106

    def __init__(self, path: str) -> None:
        super().__init__(path, PERSISTENT_RECURSIVE)


class RemoveWatches(_WatchRequest):
    """The request to remove this client's watch of one kind on a path.

    Attributes:
        path: the path.
        kind: the kind of watch. Servers before 3.9 keep a tree's watch as two watches, of the kinds `DATA` and
            `CHILDREN`.
        ours: the watcher that no longer needs it; None for a tree, as kazoo notes no watcher of a tree.
    """

    type = 18

    def __init__(self, path: str, kind: int, ours: Watcher | None) -> None:
        super().__init__(path, kind)
        self.ours = ours


class SetWatches:
    """The request to set again the watches that the session had on its last connection.

    For each node that has changed since, the server sends an event instead of setting the watch.

    Args:
        zxid: the zxid of the last reply on that connection.
        *paths: the paths of three kinds of watches: on the data of nodes; on their creation; and on their children.
    """

    type = 101
    path = ""

    def __init__(self, zxid: int, *paths: Sequence[str]) -> None:
        self._zxid = zxid
        self._paths = paths

    def __bool__(self) -> bool:
        return any(self._paths)

    def serialize(self) -> bytearray:
        """Return the request's bytes."""
        body = bytearray(long_struct.pack(self._zxid))
        for paths in self._paths:
            body += int_struct.pack(len(paths)) + b"".join(map(write_string, paths))
        return body

    @classmethod
    def deserialize(cls, _buffer: bytes, _offset: int) -> None:
        """Read the reply."""


class RemovalWithdrawn(Exception):
    """A removal was withdrawn or refused for now, and is to be tried again later."""


def withdraw_removals(parts: PrivateParts) -> bool:
    """Take the removals that must not be sent off the head of the client's queue; return whether there were any.

    The caller is about to send the head.
    """
    queue, withdrawn = parts.queue, False
    while queue and isinstance(queue[0][0], RemoveWatches):
        request, reply = queue[0]
        pending = set(_asked_for(request.path, request.kind, parts.pending))
        users = {*pending, *noted_watchers(parts, request.kind).get(request.path, ())}
        if request.kind == TREE or users == {request.ours} - {None}:
            break
        queue.popleft()
        withdrawn = True
        if pending or request.ours is None:
            reply.set_exception(RemovalWithdrawn())
        else:
            # The watch has fired already, or the program uses it, too.
            forget_watcher(parts, request)
            reply.set()
    return withdrawn


def event_tables(parts: PrivateParts, event: int) -> list[dict[str, set[Watcher]]]:
    """Return kazoo's tables of the watchers that an event of this type concerns, as in its `_read_watch_event`."""
    return [noted_watchers(parts, kind) for kind in _KINDS_OF_EVENTS.get(event, ())]


def request_table(parts: PrivateParts, request: Any) -> dict[str, set[Watcher]]:
    """Return kazoo's table that takes the watcher of a request."""
    return noted_watchers(parts, CHILDREN if request.type in _OF_CHILDREN else DATA)


def noted_watchers(parts: PrivateParts, kind: int) -> dict[str, set[Watcher]]:
    """Return kazoo's watchers of one kind of watch, by path."""
    return parts.child_watchers if kind == CHILDREN else parts.data_watchers  # type: ignore[no-any-return]


def forget_watcher(parts: PrivateParts, request: RemoveWatches) -> None:
    """Have kazoo forget the watcher of a removal; on its connection thread."""
    noted = noted_watchers(parts, request.kind)
    users = noted.get(request.path)
    if users is not None:
        users.discard(request.ours)
        if not users:
            del noted[request.path]


def has_watch(parts: PrivateParts, path: str, kind: int, ours: Watcher) -> bool:
    """Return whether a watcher is on a path, or is asked for by a request without a reply."""
    return ours in noted_watchers(parts, kind).get(path, ()) or ours in _asked_for(
        path, kind, [*parts.queue, *parts.pending]
    )


def _asked_for(path: str, kind: int, requests: Iterable[tuple[Any, ...]]) -> Iterator[Watcher]:
    """Yield the watchers of the requests that will set a watch of one kind on a path."""
    types = _OF_CHILDREN if kind == CHILDREN else OF_DATA
    for request, *_ in list(requests):
        if getattr(request, "type", None) in types and request.watcher is not None and request.path == path:
            yield request.watcher
