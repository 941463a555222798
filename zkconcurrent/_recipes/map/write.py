"""The entries of a map: each write is one `multi`, applied once even if its reply is lost.

Every `multi` also writes our *writer*, an ephemeral receipt (`receipts`); the write names the version that we know. So
after a lost reply the writer's version shows whether the `multi` was applied. The same `multi` may be sent again, as
only one of the two can find that version.

Every `multi` that makes or deletes an entry also writes the node at the path. A write that depends on a read names the
versions of both nodes. So it fails if the entry was deleted and made anew meanwhile, even if the new entry has the same
version. The client reads these versions while its writer is there. The writer keeps other clients from destroying the
map, which could have the same versions after it is made anew.

A writer is ephemeral, so nothing has to be swept; the price is that an outcome stays unknown if the reply is lost and
the session ends as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..._arguments.paths import unescape
from ..._errors import ForeignNodeError, RefusedError
from ..._protocol import operations as op
from ..._protocol.operations import Recipe
from ..._protocol.ticket import Ticket
from ..destroy import Users
from ..receipts import OutcomeLost, PendingWrite, Receipt, ready
from ..receipts import destroy as remove
from .mirror import MapLayout, Mirror, read

T = TypeVar("T")
DELETED_TOGETHER = 100


class Ended(OutcomeLost):
    """The session of a `multi` is over, so its outcome is unknown; what it made for that session is gone."""


class MapWrite(PendingWrite):
    """One write under way, with an ephemeral receipt: its writer.

    Attributes:
        view: the copy, with the writers.
        doubt: it is unknown whether the `multi` was applied.
    """

    view: Mirror

    def __init__(self, mirror: Mirror, label: bytes) -> None:
        super().__init__(mirror, label)
        self.doubt = False

    def finish_write(self) -> Ticket | None:
        """End the write; return its writer's ticket if the writer is of no more use. A second call changes nothing.

        An interrupt in between leaves the writer unused until its session ends. Two writes with one writer would be
        worse.
        """
        self.view.note_ended(self)
        useless = None
        if self.doubt and self.receipt is not None:
            useless, self.receipt.member = self.receipt.member, None
        self.put_down()
        return useless


def put(map_write: MapWrite, key: str, data: bytes) -> Recipe[None]:
    """Write the entry of a key, whether there is one or not."""
    at, mirror = map_write.view.at, map_write.view
    entry, exists = at.entry(key), key in mirror.entries
    while True:
        parts: tuple[op.Part, ...] = (op.Create(entry, data, at.ephemeral), _count(at))
        if exists:
            # An ephemeral entry is made anew, so that it ends with our session, whichever session has made it before.
            parts = (op.Delete(entry), *parts) if at.ephemeral else (op.SetNode(entry, data, -1),)
        try:
            results = yield from write(map_write, parts)
        except op.NoNode as failed:
            if exists and failed.part == 0:
                exists = False
            else:
                yield from mirror.lay_out()
        except op.NodeExists:
            exists = True
        except Ended:
            if not at.ephemeral:
                raise
        else:
            yield from _note(mirror, key, data, results)
            return


def put_if_absent(map_write: MapWrite, key: str, data: bytes) -> Recipe[bytes | None]:
    """Make a key's entry unless it exists; return the existing data, or None if this call has made the entry."""
    at, mirror = map_write.view.at, map_write.view
    entry, found = at.entry(key), key in mirror.entries
    while True:
        if not found:
            try:
                results = yield from write(map_write, (op.Create(entry, data, at.ephemeral), _count(at)))
                yield from _note(mirror, key, data, results)
                return None
            except op.NodeExists:
                pass
            except op.NoNode:
                yield from mirror.lay_out()
                continue
            except Ended:
                if not at.ephemeral:
                    raise
                continue
        _, (node, zxid) = yield op.Sync(entry), op.GetWithZxid(entry)
        mirror.record(key, node, zxid)
        if node is not None:
            return node.data  # type: ignore[no-any-return]
        found = False


def replace(map_write: MapWrite, key: str, data: bytes, matches: Callable[[bytes], bool]) -> Recipe[bool]:
    """Write the entry of a key, if there is one and its data match; return whether this call wrote it."""
    at, mirror = map_write.view.at, map_write.view
    entry = at.entry(key)
    while True:
        found = yield from _find(map_write, key, matches)
        if found is None:
            return False
        above, node = found
        parts: tuple[op.Part, ...] = (op.Check(at.path, above.version), op.SetNode(entry, data, node.version))
        if at.ephemeral:
            made = op.Create(entry, data, at.ephemeral)
            parts = (op.Check(at.path, above.version), op.Delete(entry, version=node.version), made, _count(at))
        try:
            results = yield from write(map_write, parts, same_writer=True)
        except (op.NoNode, op.BadVersion):
            continue  # another client was faster
        yield from _note(mirror, key, data, results)
        return True


def pop(map_write: MapWrite, key: str, matches: Callable[[bytes], bool]) -> Recipe[bytes | None]:
    """Delete the entry of a key if it exists and its data match; return the data, or None if no entry was deleted."""
    at, mirror = map_write.view.at, map_write.view
    while True:
        found = yield from _find(map_write, key, matches)
        if found is None:
            return None
        above, node = found
        delete = op.Delete(at.entry(key), version=node.version)
        try:
            results = yield from write(
                map_write, (op.Check(at.path, above.version), delete, _count(at)), same_writer=True
            )
        except (op.NoNode, op.BadVersion):
            continue  # another client was faster
        yield from _note(mirror, key, None, results)
        return node.data


def delete(map_write: MapWrite, key: str) -> Recipe[bool]:
    """Delete the entry of a key; return whether there was one."""
    at, mirror = map_write.view.at, map_write.view
    try:
        results = yield from write(map_write, (op.Delete(at.entry(key)), _count(at)))
    except op.NoNode:
        yield from _note(mirror, key, None, None)
        return False
    yield from _note(mirror, key, None, results)
    return True


def nothing(result: T) -> Recipe[T]:
    """Write nothing; return the result."""
    yield from ()
    return result


def clear(map_write: MapWrite) -> Recipe[None]:
    """Delete all entries that are there now."""
    at, mirror = map_write.view.at, map_write.view
    _, names = yield op.Sync(at.entries), op.Children(at.entries)
    left = [key for name in names if (key := unescape(name)) is not None]
    while left:
        some = left[-DELETED_TOGETHER:]
        try:
            results = yield from write(map_write, (*(op.Delete(at.entry(key)) for key in some), _count(at)))
        except op.NoNode as failed:
            if failed.part not in range(len(some)):
                return  # the whole map was destroyed
            # Another client that clears the map, too, was probably faster with most of these. The entry whose delete
            # failed was gone for a moment at least, which is enough.
            there = yield tuple(op.Exists(at.entry(key)) for key in some)
            gone = [key for n, key in enumerate(some) if n == failed.part or not there[n]]
            found = yield tuple(op.GetWithZxid(at.entry(key)) for key in gone)
            for key, (node, zxid) in zip(gone, found, strict=True):
                mirror.record(key, node, zxid)
            left[-DELETED_TOGETHER:] = [key for key in some if key not in gone]
            continue
        del left[-DELETED_TOGETHER:]
        for key in some:
            yield from _note(mirror, key, None, results)


def destroy(mirror: Mirror) -> Recipe[Users]:
    """Remove all nodes of the map, unless other clients write to it; return their nodes."""
    using = yield from remove(mirror)
    if not using:
        yield from read(mirror, list(mirror.entries), MapWrite(mirror, b""))
    return using


def write(
    map_write: MapWrite, parts: tuple[op.Part, ...], *, same_writer: bool = False
) -> Recipe[Sequence[Any] | None]:
    """Apply operations together, exactly once; return their results, or None if these were lost with the reply.

    Args:
        map_write: the write.
        parts: the operations.
        same_writer: the operations name versions that were read while our writer was there, so only the same writer may
            go with them.

    Raises:
        Failure: nothing was applied, as the operation with the number in `part` failed.
        BadVersion: nothing was applied: a version has changed, or our writer is gone, so read the versions anew.
        ForeignNodeError: nothing was applied, as a node to be deleted has children.
        OutcomeLost: it is unknown whether the operations were applied; `Ended` if their session is over, too.
    """
    while True:
        receipt, again = map_write.receipt, map_write.doubt
        if same_writer and (receipt is None or receipt.member is None):
            raise op.BadVersion
        if not (same_writer or again):
            receipt = yield from ready(map_write)
        assert receipt is not None
        assert receipt.member is not None
        writer, node = receipt.member, receipt.path
        if map_write.doubt:
            why, found = OutcomeLost, None
            try:
                _, found = yield op.Sync(node, writer), op.Get(node, writer)
            except op.SessionExpired:
                why = Ended
            except op.NodeGone:
                pass
            map_write.doubt = False
            # An older version means that a backup was restored.
            if found is None or found.version not in (receipt.version, op.next_version(receipt.version)):
                yield from _drop_writer(receipt)
                raise why
            if found.version != receipt.version:
                receipt.version = found.version
                return None
        map_write.doubt = True
        try:
            results = yield op.Multi(writer, (op.SetNode(node, map_write.label, receipt.version), *parts))
        except op.ConnectionLost:
            continue
        except op.Requeue:
            # The request was not sent.
            map_write.doubt = False
            yield from _drop_writer(receipt)
        except op.Failure as failed:
            # The first request may have been applied after the read: if it went through a follower, the leader may have
            # answered the read without it.
            if again and not failed.part:
                continue
            map_write.doubt = False
            if not failed.part:
                # Our writer is gone, or another client has written it.
                yield from _drop_writer(receipt)
            elif isinstance(failed, op.NotEmpty):
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
            receipt.version = op.next_version(receipt.version)
            map_write.doubt = False
            return results[1:]  # type: ignore[no-any-return]


def _drop_writer(receipt: Receipt) -> Recipe[None]:
    writer, receipt.member = receipt.member, None
    if writer is not None:
        yield op.Discard(writer)


def _count(at: MapLayout) -> op.SetNode:
    """Return the write that accompanies the creation, or the deletion, of an entry."""
    return op.SetNode(at.path, at.header, -1)


def _find(map_write: MapWrite, key: str, matches: Callable[[bytes], bool]) -> Recipe[tuple[op.Node, op.Node] | None]:
    """Return the nodes of the path and the key, read behind a `sync`; None if one is missing, or the data do not match.

    The recipe reads both while our writer is there, so no client destroys the map afterwards. Otherwise the map could
    be made anew, with other entries that have the same versions.
    """
    mirror, at = map_write.view, map_write.view.at
    entry = at.entry(key)
    while True:
        if map_write.receipt is None:
            map_write.receipt = mirror.take_receipt()
        protected = map_write.receipt.usable
        _, above, (node, zxid) = yield op.Sync(entry), op.Get(at.path), op.GetWithZxid(entry)
        mirror.record(key, node, zxid)
        if above is None or node is None or not matches(node.data):
            return None
        if protected:
            return above, node
        yield from ready(map_write)


def _note(mirror: Mirror, key: str, data: bytes | None, results: Sequence[Any] | None) -> Recipe[None]:
    """Give the copy the written state, or a newer one; `data` is None if the entry was deleted."""
    if results is None:
        node, zxid = yield op.GetWithZxid(mirror.at.entry(key))
        mirror.record(key, node, zxid)
    elif data is None:
        mirror.drop(key, results[-1].mzxid)
    else:
        mirror.keep(key, data, results[-1].mzxid)
