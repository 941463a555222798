"""The entries of a map: each write is one `multi`, applied once even if its reply is lost.

Every `multi` also writes our *writer*, an ephemeral node that no other client writes, in the version that we know. So
after a lost reply the writer's version tells whether the `multi` was applied. The same `multi` may be sent again, as
only one of the two can find that version. A `multi` that slips into a later session fails.

Every `multi` that makes or deletes an entry also writes the node at the path. A write that depends on a read names the
versions of both nodes. So it fails if the entry was deleted and made anew meanwhile, even if the new entry has the same
version. The client reads these versions while its writer is there. The writer keeps other clients from destroying the
map, which could have the same versions after it is made anew.

A writer is ephemeral, so nothing has to be swept; the price is that an outcome stays unknown if the reply is lost and
the session ends as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ..._arguments.paths import unescape
from ..._errors import ForeignNodeError, RefusedError
from ..._protocol.operations import (
    BadVersion,
    Check,
    CheckChroot,
    Children,
    ConnectionLost,
    Container,
    Create,
    CreateEphemeral,
    Delete,
    DetachTicket,
    Discard,
    Failure,
    Get,
    GetWithZxid,
    Multi,
    NewTicket,
    Node,
    NodeExists,
    NodeGone,
    NoNode,
    NotEmpty,
    Part,
    Recipe,
    Requeue,
    SessionExpired,
    SetNode,
    Sync,
    next_version,
)
from ..._protocol.ticket import State, Ticket
from ..destroy import Tree, Users
from ..destroy import destroy as remove
from ..lock import find
from ..nodes import lay_out_marked
from ..receipts import OutcomeLost
from .mirror import Layout, Mirror

DELETED_TOGETHER = 100


class Ended(OutcomeLost):
    """Its session is over, so it is unknown whether a `multi` was applied; what it made for that session is gone."""


class Writer:
    """The node that tells which of our writes were applied.

    Attributes:
        ticket: the node's ticket.
        version: the version in which the next `multi` writes it.
    """

    __slots__ = ("ticket", "version")

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.version = 0

    @property
    def usable(self) -> bool:
        """Whether its node is there, as far as is known."""
        return self.ticket.state is State.QUEUED and not self.ticket.changed


class MapWrite:
    """One write under way.

    Attributes:
        mirror: the copy.
        label: the data of this client's nodes.
        writer: the writer that this write uses.
        doubt: it is unknown whether the `multi` was applied.
    """

    def __init__(self, mirror: Mirror, label: bytes) -> None:
        self.mirror = mirror
        self.label = label
        self.writer: Writer | None = None
        self.doubt = False

    def end(self) -> Ticket | None:
        """End; return the ticket of a writer that is of no more use. A second call changes nothing.

        An interrupt in between leaves the writer unused until its session ends. Two writes with one writer would be
        worse.
        """
        self.mirror.end(self)
        writer, self.writer = self.writer, None
        if writer is not None and not self.doubt:
            self.mirror.writers.append(writer)
        return writer.ticket if writer is not None and self.doubt else None


def put(map_write: MapWrite, key: str, data: bytes) -> Recipe[None]:
    """Write the entry of a key, whatever it is."""
    at, mirror = map_write.mirror.at, map_write.mirror
    entry, exists = at.entry(key), key in mirror.entries
    while True:
        parts: tuple[Part, ...] = (Create(entry, data, at.ephemeral), _count(at))
        if exists:
            # An ephemeral entry is made anew, so that it goes with our session, whichever session has made it.
            parts = (Delete(entry), *parts) if at.ephemeral else (SetNode(entry, data, -1),)
        try:
            results = yield from write(map_write, parts)
        except NoNode as failed:
            if exists and failed.part == 0:
                exists = False
            else:
                yield from lay_out(mirror)
        except NodeExists:
            exists = True
        except Ended:
            if not at.ephemeral:
                raise
        else:
            yield from _note(mirror, key, data, results)
            return


def put_if_absent(map_write: MapWrite, key: str, data: bytes) -> Recipe[bytes | None]:
    """Make the entry of a key, unless there is one; return what that has, or None if this has made it."""
    at, mirror = map_write.mirror.at, map_write.mirror
    entry, found = at.entry(key), key in mirror.entries
    while True:
        if not found:
            try:
                results = yield from write(map_write, (Create(entry, data, at.ephemeral), _count(at)))
                yield from _note(mirror, key, data, results)
                return None
            except NodeExists:
                pass
            except NoNode:
                yield from lay_out(mirror)
                continue
            except Ended:
                if not at.ephemeral:
                    raise
                continue
        _, (node, zxid) = yield Sync(entry), GetWithZxid(entry)
        mirror.take(key, node, zxid)
        if node is not None:
            return node.data  # type: ignore[no-any-return]
        found = False


def replace(map_write: MapWrite, key: str, data: bytes, matches: Callable[[bytes], bool]) -> Recipe[bool]:
    """Write the entry of a key, if there is one and its data match; return whether it did."""
    at, mirror = map_write.mirror.at, map_write.mirror
    entry = at.entry(key)
    while True:
        found = yield from _find(map_write, key, matches)
        if found is None:
            return False
        above, node = found
        parts: tuple[Part, ...] = (Check(at.path, above.version), SetNode(entry, data, node.version))
        if at.ephemeral:
            made = Create(entry, data, at.ephemeral)
            parts = (Check(at.path, above.version), Delete(entry, version=node.version), made, _count(at))
        try:
            results = yield from write(map_write, parts, same_writer=True)
        except (NoNode, BadVersion):
            continue  # another client was faster
        yield from _note(mirror, key, data, results)
        return True


def take(map_write: MapWrite, key: str, matches: Callable[[bytes], bool]) -> Recipe[bytes | None]:
    """Delete the entry of a key, if there is one and its data match; return these, else None."""
    at, mirror = map_write.mirror.at, map_write.mirror
    while True:
        found = yield from _find(map_write, key, matches)
        if found is None:
            return None
        above, node = found
        delete = Delete(at.entry(key), version=node.version)
        try:
            results = yield from write(map_write, (Check(at.path, above.version), delete, _count(at)), same_writer=True)
        except (NoNode, BadVersion):
            continue  # another client was faster
        yield from _note(mirror, key, None, results)
        return node.data


def delete(map_write: MapWrite, key: str) -> Recipe[bool]:
    """Delete the entry of a key; return whether there was one."""
    at, mirror = map_write.mirror.at, map_write.mirror
    try:
        results = yield from write(map_write, (Delete(at.entry(key)), _count(at)))
    except NoNode:
        yield from _note(mirror, key, None, None)
        return False
    yield from _note(mirror, key, None, results)
    return True


def clear(map_write: MapWrite) -> Recipe[None]:
    """Delete all entries that are there now."""
    at, mirror = map_write.mirror.at, map_write.mirror
    _, names = yield Sync(at.entries), Children(at.entries)
    left = [key for name in names if (key := unescape(name)) is not None]
    while left:
        some = left[-DELETED_TOGETHER:]
        try:
            results = yield from write(map_write, (*(Delete(at.entry(key)) for key in some), _count(at)))
        except NoNode as failed:
            gone = some[failed.part] if failed.part is not None and failed.part < len(some) else None
            if gone is None:
                return  # the whole map was destroyed
            left.remove(gone)
            yield from _note(mirror, gone, None, None)
            continue
        del left[-DELETED_TOGETHER:]
        for key in some:
            yield from _note(mirror, key, None, results)


def destroy(mirror: Mirror) -> Recipe[Users]:
    """Remove all nodes of the map, unless other clients write to it; return their nodes."""
    at = mirror.at

    def check(node: Node) -> None:
        if node.data:
            at.check(node)

    spent: dict[str, Writer] = {}

    def idle() -> Iterable[str]:
        now = {writer.ticket.node: writer for writer in list(mirror.writers)}
        spent.update(now)
        return now

    using = yield from remove(Tree(at.path, "Dict", check, {at.entries: bool}, (at.writers,), idle))
    if not using:
        for writer in spent.values():
            # R2: the writer leaves the idle ones last. If it stays, the next write finds that its node is gone.
            yield Discard(writer.ticket)
            with suppress(ValueError):
                mirror.writers.remove(writer)
        for key in list(mirror.entries):
            yield from _note(mirror, key, None, None)
    return using


def write(map_write: MapWrite, parts: tuple[Part, ...], *, same_writer: bool = False) -> Recipe[Sequence[Any] | None]:
    """Apply operations together, exactly once; return their results, or None if these were lost with the reply.

    Args:
        map_write: the write.
        parts: the operations.
        same_writer: the operations name versions that were read while our writer was there, so no other writer may go
            with them.

    Raises:
        Failure: nothing was applied, as the operation with the number in `part` failed.
        BadVersion: nothing was applied: a version has changed, or our writer is gone, so read the versions anew.
        ForeignNodeError: nothing was applied, as a node to be deleted has children.
        OutcomeLost: it is unknown whether it was applied; `Ended` if its session is over, too.
    """
    while True:
        if same_writer and map_write.writer is None:
            raise BadVersion
        writer = yield from _ready(map_write)
        node = writer.ticket.node
        again = map_write.doubt
        if map_write.doubt:
            why, found = OutcomeLost, None
            try:
                _, found = yield Sync(node, writer.ticket), Get(node, writer.ticket)
            except SessionExpired:
                why = Ended
            except NodeGone:
                pass
            map_write.doubt = False
            if found is None:
                yield from _drop_writer(map_write)
                raise why
            if found.version != writer.version:
                writer.version = found.version
                return None
        map_write.doubt = True
        try:
            results = yield Multi(writer.ticket, (SetNode(node, map_write.label, writer.version), *parts))
        except ConnectionLost:
            continue
        except Requeue:
            # The request was not sent, or it was sent in a later session, in which our writer may still have existed.
            _, found = yield Sync(node), Get(node)
            map_write.doubt = False
            applied = found is not None and found.version != writer.version
            yield from _drop_writer(map_write)
            if applied:
                return None
        except Failure as failed:
            # The first request may have been applied after the look: if it went by way of a follower, the leader may
            # have answered the look without it.
            if again and not failed.part:
                continue
            map_write.doubt = False
            if not failed.part:
                # Our writer is gone, or another client has written it.
                yield from _drop_writer(map_write)
            elif isinstance(failed, NotEmpty):
                raise ForeignNodeError(parts[failed.part - 1].path, "an entry has children; delete them") from None
            else:
                failed.part -= 1
                raise
        except RefusedError:
            # Only the server's refusal ends the doubt. A signal handler may raise any other exception while the request
            # is under way.
            map_write.doubt = False
            raise
        else:
            writer.version = next_version(writer.version)
            map_write.doubt = False
            return results[1:]  # type: ignore[no-any-return]


def _ready(map_write: MapWrite) -> Recipe[Writer]:
    """Return a writer, whose node is of the present session as far as is known."""
    mirror = map_write.mirror
    if not mirror.laid_out:
        yield from lay_out(mirror)
    while not (yield from _has_writer(map_write)):
        ticket: Ticket = yield NewTicket(mirror.at.writers)
        try:
            try:
                _, above = yield CreateEphemeral(ticket, "writer-", map_write.label), Get(mirror.at.path)
            except ConnectionLost:
                yield from find(ticket)
                above = yield Get(mirror.at.path)
        except NoNode:
            yield Discard(ticket)
            yield from lay_out(mirror)
        except Requeue:
            yield Discard(ticket)
        else:
            # From here on, no client destroys the map. Another may have before, and have made something else.
            if above is None or above.data != mirror.at.header:
                yield Discard(ticket)
                yield from lay_out(mirror)
                continue
            # R1: the writer is recorded before its ticket is detached. Until then, the ticket is the call's, which
            # discards it.
            map_write.writer = Writer(ticket)
            yield DetachTicket(ticket)
    assert map_write.writer is not None
    return map_write.writer


def _has_writer(map_write: MapWrite) -> Recipe[bool]:
    """Return whether a write has a writer, if need be an idle one."""
    while map_write.writer is None:
        try:
            map_write.writer = map_write.mirror.writers.pop()
        except IndexError:
            return False
        if not map_write.writer.usable:
            yield from _drop_writer(map_write)
    return True


def _drop_writer(map_write: MapWrite) -> Recipe[None]:
    writer, map_write.writer = map_write.writer, None
    if writer is not None:
        yield Discard(writer.ticket)


def _count(at: Layout) -> SetNode:
    """Return the write that accompanies the creation, or the deletion, of an entry."""
    return SetNode(at.path, at.header, -1)


def _find(map_write: MapWrite, key: str, matches: Callable[[bytes], bool]) -> Recipe[tuple[Node, Node] | None]:
    """Return the node at the path and the key's node, read behind a `sync`; None if one is missing or does not match.

    The recipe reads both while our writer is there, so no client destroys the map afterwards. Otherwise the map could
    be made anew, with other entries of the same versions.
    """
    mirror, at = map_write.mirror, map_write.mirror.at
    entry = at.entry(key)
    while True:
        protected = yield from _has_writer(map_write)
        _, above, (node, zxid) = yield Sync(entry), Get(at.path), GetWithZxid(entry)
        mirror.take(key, node, zxid)
        if above is None:
            yield CheckChroot(at.path)
        if above is None or node is None or not matches(node.data):
            return None
        if above.version == -1:
            # A check takes the version -1 for any version, so the node is written once more.
            with suppress(ConnectionLost):
                yield _count(at)
        elif protected:
            return above, node
        else:
            yield from _ready(map_write)


def _note(mirror: Mirror, key: str, data: bytes | None, results: Sequence[Any] | None) -> Recipe[None]:
    """Give the copy the written state, or a newer one; `data` is None if the entry was deleted."""
    if results is None:
        node, zxid = yield GetWithZxid(mirror.at.entry(key))
        mirror.take(key, node, zxid)
    elif data is None:
        mirror.drop(key, results[-1].mzxid)
    else:
        mirror.keep(key, data, results[-1].mzxid)


def lay_out(mirror: Mirror) -> Recipe[None]:
    """Make the nodes that all clients share.

    Raises:
        ForeignNodeError: the path belongs to something else.
        ValueError: other clients use it in another way.
    """
    at, mirror.laid_out = mirror.at, False

    def is_map(node: Node) -> bool:
        if node.data:
            at.check(node)
        return bool(node.data)

    parts = Create(at.entries, b""), Container(at.writers)
    yield from lay_out_marked("Dict", Create(at.path, at.header), parts, is_map)
    mirror.laid_out = True
