"""The mirror: a copy of the children of one node, which a recursive watch keeps current.

The client sets the watch first and then reads the children, so no change falls between the two. Every state that this
client reads or writes comes with the zxid of the change that led to the state. The copy takes a state only if it has no
newer state of the same node. A node that is known to be missing leaves a tombstone, with the zxid as of which the node
is missing. So an older result, which a slow thread brings late, does not bring the node back.

The reads of a `Dict` or `Set` come from such a copy. A thread keeps it current: it sets a recursive watch, reads the
entries behind a `sync`, and then reads each entry that an event names. kazoo 2.11 has no `addWatch`, and drops the
events of such a watch, as it looks for watchers of exactly the event's path. So `_kazoo/transport.py` passes the path
of each event on, and the ticket registry keeps the paths below a watched path. One-shot watches would work on older
servers. But each new key would cost every client a listing, and each entry a watch.

A tombstone stays until every call that began earlier has ended.

When the last object is gone, the watch of the tree is removed. For that, ZooKeeper 3.9 has a watch type of its own in
`removeWatches`. Older servers refuse this type, and write one error into their log; the client then removes the data
and child watches, of which such a watch consists there.

A data watch that the user sets on the parent of the entries replaces the recursive one on servers before 3.9. The
transport reports each reply to such a request, and the thread then begins anew: watch, `sync`, listing. The copy is
served meanwhile, as it only falls behind. If the listing's zxid is less than an entry's, the servers were set up again
or restored, and the library drops the copy.

Each connection has its own handshake object, which kazoo's thread replaces before any reply comes. A read compares it
with the object of the last listing, in less than a microsecond. So a read notices a reconnect by itself.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple

from ..._arguments.paths import escape, unescape
from ..._protocol import operations as op
from ..._protocol.operations import Recipe
from ..._protocol.ticket import Ticket
from ..destroy import Tree
from ..lock import create
from ..nodes import FIRST_FLIGHT, foreign_data, lay_out_marked, next_flight
from ..receipts import Receipt, ReceiptPool

NEVER = object()  # a connection that never was


class MapLayout(NamedTuple):
    """The paths of a map's nodes, and what all clients must agree on."""

    path: str
    kind: str
    ephemeral: bool = False

    @property
    def entries(self) -> str:
        """The parent of the entries, each of which is a node named by its key."""
        return f"{self.path}/entries"

    @property
    def writers(self) -> str:
        """The parent of the writers, ephemeral nodes that show which writes were applied."""
        return f"{self.path}/writers"

    @property
    def header(self) -> bytes:
        """The data of the node at the path; that node's version counts the entries made and deleted."""
        return f"{self.kind} {'ephemeral' if self.ephemeral else 'persistent'}".lower().encode()

    def entry(self, key: str) -> str:
        """Return the node of a key."""
        return f"{self.entries}/{escape(key)}"

    def check(self, node: op.Node) -> None:
        """Refuse a node of another kind.

        Raises:
            ForeignNodeError: the path belongs to something else.
            ValueError: the map was made as the other kind, or with another lifetime of its entries.
        """
        if node.data == self.header:
            return
        if node.data in HEADERS:
            raise ValueError(
                f"{self.path!r} was made as {node.data.decode()!r}, and this client opens it as "
                f"{self.header.decode()!r}: all clients must give the same"
            )
        raise foreign_data(self.path, node.data, f"a {self.kind}'s is {self.header!r}")


HEADERS = {MapLayout("", kind, ephemeral).header for kind in ("Dict", "Set") for ephemeral in (False, True)}


class Entry(NamedTuple):
    """One key in the copy: its data, and the zxid of the change that has written them."""

    data: bytes
    zxid: int


class Tombstone(NamedTuple):
    """A record that a key has no entry.

    Attributes:
        zxid: the zxid as of which the key has no entry.
        number: when this client learned that; a call that began later can't bring an older state.
    """

    zxid: int
    number: int


class Mirror(ReceiptPool):
    """The copy that all objects of one client and path share, and their writers, which are ephemeral receipts.

    Attributes:
        at: the map.
        guard: held for each change of the copy. It is re-entrant: a signal handler may write on top of a change.
        stamp: counts the changes. A change that was decided at another stamp is decided anew. CPython runs no signal
            handler between a condition that is met and the first call after it.
        entries: the copy, by key.
        tombstones: the tombstones, by key.
        changes: the nodes that have changed and were not read yet; the parent of the entries among them means that
            another watch may have replaced ours, or that no object uses the mirror any more.
        listed_on: the connection on which the entries were listed; a listing on an earlier connection is not served.
        listed: the entries were listed at least once.
        under_way: the reads and writes whose results are still to be taken, with the numbers at which they began.
        closed: no object uses the mirror any more.
        ticket: the ticket that waits for changes.
    """

    ephemeral = True

    def __init__(self, at: MapLayout, guard: AbstractContextManager[object]) -> None:
        super().__init__(at.writers, at.writers)
        self.at = at
        self.guard = guard
        self.entries: dict[str, Entry] = {}
        self.tombstones: dict[str, Tombstone] = {}
        self.changes: deque[str] = deque()
        self.stamp = 0
        self.listed_on: object = NEVER
        self.listed = False
        self.numbers = itertools.count(1)
        # The keys are weak, as an interrupt may keep a call from `note_ended`.
        self.under_way: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
        self.closed = False
        self.ticket: Ticket | None = None

    @property
    def tree(self) -> Tree:
        """The map's nodes, entries included; a client that has written in its present session uses the map."""
        at = self.at

        def idle() -> set[str]:
            return {each.member.node for each in list(self.idle) if each.member is not None}

        return Tree(at.path, "Dict", self._is_map, {at.entries: bool}, (at.writers,), idle)

    def lay_out(self) -> Recipe[None]:
        """Make the nodes that all clients share.

        Raises:
            ForeignNodeError: the path belongs to something else.
            ValueError: the map was made as the other kind, or with another lifetime of its entries.
        """
        at, self.laid_out = self.at, False
        parts = op.Create(at.entries, b""), op.Container(at.writers)
        yield from lay_out_marked("Dict", op.Create(at.path, at.header), parts, self._is_map)
        self.laid_out = True

    def _is_map(self, node: op.Node) -> bool:
        if node.data:
            self.at.check(node)
        return bool(node.data)

    def enter(self, ticket: Ticket, receipt: Receipt, label: bytes) -> Recipe[None]:  # noqa: ARG002
        """Make the node of a writer. From then on, no client destroys the map.

        Another client may already have destroyed the map, and made something else.
        """
        (above,) = yield from create(ticket, "writer-", label, (op.Get(self.at.path),))
        if above is None or above.data != self.at.header:
            raise op.NoNode

    def note_begun(self, call: object) -> None:
        """Note that a call begins: each state that it brings is no older than the states known now."""
        with self.guard:
            self.under_way[call] = next(self.numbers)

    def note_ended(self, call: object) -> None:
        """Note that a call has ended; forget each tombstone that is older than every other call under way."""
        with self.guard:
            self.under_way.pop(call, None)
            others = [other for each in self.under_way.keyrefs() if (other := each()) is not None]
            oldest = min((self.under_way.get(other, math.inf) for other in others), default=math.inf)
            for key, gone in list(self.tombstones.items()):
                if gone.number < oldest and key in self.tombstones and self.tombstones[key] is gone:
                    self.tombstones.pop(key, None)

    def record(self, key: str, node: op.Node | None, zxid: int) -> None:
        """Record a state of a key: its node, or the fact that there is none as of that zxid."""
        if node is not None:
            self.keep(key, node.data, node.mzxid, zxid)
        else:
            self.drop(key, zxid)

    def keep(self, key: str, data: bytes, zxid: int, read_at: int = 0) -> None:
        """Record the entry that a change has made, unless a newer state is known.

        If the entry was read as of that newer state's zxid, or later, the servers were restored from a backup and have
        forgotten that state: then the entry is recorded nevertheless.
        """
        entry = Entry(data, zxid)
        with self.guard:
            while True:
                stamp, known, gone = self.stamp, self.entries.get(key), self.tombstones.get(key)
                newer = known is None or known.zxid < zxid or zxid < known.zxid <= read_at
                if not (newer and (gone is None or gone.zxid < zxid or gone.zxid <= read_at)):
                    return
                if self.stamp == stamp:
                    self.entries[key] = entry
                    self.stamp = stamp + 1
                    return

    def drop(self, key: str, zxid: int) -> None:
        """Note that a key has no entry, unless a newer state is known."""
        with self.guard:
            while True:
                stamp, known, gone = self.stamp, self.entries.get(key), self.tombstones.get(key)
                if known is not None and known.zxid > zxid:
                    return
                if gone is None or gone.zxid < zxid:
                    gone = Tombstone(zxid, next(self.numbers))
                if self.stamp == stamp:
                    self.tombstones[key] = gone
                    self.stamp = stamp + 1
                    self.entries.pop(key, None)
                    return

    def begin_anew(self) -> None:
        """Forget all states: the servers were set up anew, and their zxids begin again."""
        with self.guard:
            self.entries.clear()
            self.tombstones.clear()
            self.stamp += 1

    def close(self) -> None:
        """Stop keeping the copy current. A finalizer may call this, so it never waits."""
        self.closed = True
        # The follower may have read `closed` just before, and be about to sleep. A change keeps it awake.
        self.changes.append(self.at.entries)
        if self.ticket is not None:
            self.ticket.note_change()


def follow(mirror: Mirror, listed: Callable[[], None]) -> Recipe[None]:
    """Keep the copy current while one connection and its watch last; call `listed` once it may be served."""
    ticket: Ticket = yield op.NewTicket(mirror.at.entries)
    mirror.ticket = ticket
    # All entries are listed after this, so older changes add nothing.
    mirror.changes.clear()
    # `read` may be cut short before its `note_ended`; the next `follow` lists all entries again.
    with suppress(op.ConnectionLost, op.Requeue):
        connection = yield op.WatchRecursive(ticket, mirror.changes)
        yield from _list(mirror)
        mirror.listed, mirror.listed_on = True, connection
        listed()
        while not mirror.closed and (yield op.WaitRecursive(ticket, mirror.changes, connection)):
            if not (yield from _catch_up(mirror)):
                break
    yield op.Discard(ticket)


def _list(mirror: Mirror) -> Recipe[None]:
    """Read all entries, behind a `sync`, and also those in the copy that the listing lacks."""
    at = mirror.at
    newest = max((entry.zxid for entry in list(mirror.entries.values())), default=0)
    _, (node, zxid), names = yield op.Sync(at.path), op.GetWithZxid(at.path), op.Children(at.entries)
    if zxid < newest:
        mirror.begin_anew()
    if node is not None and node.data:
        at.check(node)
        mirror.laid_out = True
    keys = dict.fromkeys(key for name in names if (key := unescape(name)) is not None)
    yield from read(mirror, [*{**keys, **dict.fromkeys(list(mirror.entries))}], mirror)


def _catch_up(mirror: Mirror) -> Recipe[bool]:
    """Read the entries that have changed; return False if the watch was replaced."""
    changed: dict[str, None] = {}
    while mirror.changes:
        node = mirror.changes.popleft()
        if node == mirror.at.entries:
            return False
        key = unescape(node.rpartition("/")[2])
        if key is not None:
            changed[key] = None
    yield from read(mirror, [*changed], mirror)
    return True


def read(mirror: Mirror, keys: list[str], call: object) -> Recipe[None]:
    """Read the states of these keys into the copy; `call` stands for this read: see `Mirror.note_begun`."""
    first, most = 0, FIRST_FLIGHT
    while some := keys[first : first + most]:
        mirror.note_begun(call)
        found = yield tuple(op.GetWithZxid(mirror.at.entry(key)) for key in some)
        for key, (node, zxid) in zip(some, found, strict=True):
            mirror.record(key, node, zxid)
        mirror.note_ended(call)
        first, most = first + most, next_flight([node for node, _ in found])
