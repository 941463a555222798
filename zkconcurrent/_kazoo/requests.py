"""Requests that kazoo lacks, or whose replies it can't read or would read in full; and those it must not send."""

from __future__ import annotations

import contextlib
import threading
from typing import NamedTuple

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.serialization import (
    CloseInstance,
    Create,
    Create2,
    GetChildren,
    GetChildren2,
    MultiHeader,
    SetData,
    Transaction,
    int_struct,
    multiheader_struct,
    read_string,
    stat_struct,
)

from .._protocol.operations import Names
from .private_parts import PrivateParts


class TooLarge(Exception):
    """The request has more bytes than a server may take."""


class CreateContainer(Create2):  # type: ignore[misc]
    """The request to create a container: Create2 with another opcode; kazoo has no call for it."""

    type = 19


class MultiWithContainers(Transaction):  # type: ignore[misc]
    """A multi with creates of containers, whose results, a path and a stat each, kazoo can't read."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> list[object]:
        """Read the results as kazoo does; for a container, only the path."""
        results: list[object] = []
        while True:
            header, after = MultiHeader.deserialize(buffer, offset)
            if header.done:
                return results
            if header.type == Create2.type:
                made, after = read_string(buffer, after)
                results.append(made)
                offset = after + stat_struct.size
            else:
                # kazoo reads until it finds an end mark, so it gets this one result with an end mark behind it.
                size = _SIZES.get(header.type, 0)
                if header.type == Create.type:
                    size = read_string(buffer, after)[1] - after
                results += Transaction.deserialize(buffer[offset : after + size] + _END, 0)
                offset = after + size


# The sizes of the results in a multi.
_SIZES = {SetData.type: stat_struct.size, -1: int_struct.size}
_END = multiheader_struct.pack(-1, True, -1)


class ListChildren(GetChildren2):  # type: ignore[misc]
    """The request for the names of children; of the stat in its reply, only the needed field is read."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Names:
        """Read the reply: the names, and the node's stat, which ends with dataLength, numChildren and pzxid."""
        names = Names(GetChildren.deserialize(buffer, offset))
        (names.data_length,) = int_struct.unpack_from(buffer, len(buffer) - 16)
        return names


class CreatedStat(NamedTuple):
    """The known fields of the stat of a node made in a multi, for which the server sends no stat."""

    czxid: int
    ephemeralOwner: int  # noqa: N815


def refuse_of_other_sessions(parts: PrivateParts) -> None:
    """Remove and fail the requests at the head of the client's queue that must not be sent in its session.

    A thread checks which session is open before it makes a request. The thread may be suspended in between until the
    session is over and the next has begun, which serves another owner: the delete of a node whose name is not unique
    would then meet the next owner's node, and a create would make a node that no client knows.
    """
    queue = parts.queue
    while queue and getattr(queue[0][1], "session", None) not in (None, parts.session_id):
        queue.popleft()[1].set_exception(kazoo_errors.SessionExpiredError())


def request_close(client: KazooClient) -> threading.Event:
    """Ask to end the session; return the event of its end, for which `client.stop()` would wait ten seconds."""
    parts = PrivateParts(client)
    stopped: threading.Event = parts.connection.connection_stopped
    if not parts.stopped.is_set():
        parts.stopped.set()
        parts.queue.append((CloseInstance, None))
        with contextlib.suppress(AttributeError, OSError):  # it is down
            parts.write_sock.send(b"\0")
    return stopped
