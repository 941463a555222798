"""`inspect`: the contenders at a path and below it.

A listing alone shows, by the locks' own rules, which children of a node are contenders, of which kind they are, and
which of them are holders. Data and times are read for the nodes of contenders alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from .._arguments.paths import check_path
from .._errors import ForeignNodeError, SequenceExhaustedError
from .._kazoo.failures import kazoo_errors
from .._kazoo.link import KazooClient
from .._kazoo.reply import node_of
from .._protocol import blocking_rules
from .._protocol.blocking_rules import LATCH, MUTEX, PERMIT, READ, WRITE, Rule, check_queue, holders, line_up
from .._protocol.layout import is_of_kazoo, role_of
from .._protocol.node_info import origin_of
from .._protocol.operations import Node
from .._recipes.queue.order import is_item
from .._runtime.public import public
from .._threads.base.contender import Contender, note_holders
from ._reads import Reads

RULES = {rule.role: rule for rule in (MUTEX, LATCH, READ, WRITE, PERMIT)}
_KINDS = {MUTEX: "Lock", LATCH: "Election", READ: "ReadWriteLock", WRITE: "ReadWriteLock", PERMIT: "Semaphore"}
_LEASES, _LOCKS = "leases", "locks"
# Where the clients of a `Queue` wait, for an item or for room. No client holds anything there.
_LINES = {"consumers": "consumer", "producers": "producer"}
# A client that has taken an item of a `Queue`, and not acknowledged it yet, has a node with the item's name here.
_CLAIMS = "claims"
# The children that a `Queue` has if a client waits in it.
_OF_QUEUES = {_CLAIMS, "items", "members", "receipts"}
# Nodes that are parts of the node above them; the listing of the node above shows its kind.
_PARTS = {_LEASES, _LOCKS, _CLAIMS, *_LINES}
_RESERVED = "/zookeeper"


@public
@dataclass(frozen=True)
class PathReport:
    """The holders of one primitive, and its waiters.

    Attributes:
        path: its path, without the client's chroot.
        kind: its class, as far as the nodes show it; "Lock" may be an `RLock`, or the lock that a `Condition` uses.
        holders: one for a lock, all readers or the writer, one for each permit or for each claimed item.
        waiters: its waiters, the next in turn first.
    """

    path: str
    kind: str
    holders: tuple[Contender, ...]
    waiters: tuple[Contender, ...]

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """The holders and the waiters."""
        return self.holders + self.waiters


@public
@dataclass(frozen=True)
class TreeReport:
    """The primitives that `inspect` has found at a path and below it.

    Attributes:
        path: the path that was inspected.
        exists: whether the path is there. ZooKeeper deletes a lock's node a minute or so after its last use.
        primitives: the primitives that a client holds or waits for, sorted by path. A path has two if it has
            contenders of two kinds, which do not exclude each other.
        unusable: the paths at which an acquire would raise an error, or will soon, each with the reason.
        unreadable: the paths that this client is not allowed to read.
        of_kazoo: the paths that kazoo's own recipes use, each with the number of kazoo's nodes there, which do not
            show which client holds.
        is_whole: whether all was read; False if there are nodes below the levels that were asked for.
    """

    path: str
    exists: bool
    primitives: tuple[PathReport, ...]
    unusable: Mapping[str, str]
    unreadable: tuple[str, ...]
    of_kazoo: Mapping[str, int]
    is_whole: bool

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """The holders and the waiters of all primitives."""
        return tuple(each for primitive in self.primitives for each in primitive.contenders)


@public
def inspect(
    client: KazooClient,
    path: str = "/",
    *,
    depth: int | None = None,
    before: TreeReport | None = None,
    timeout: float = 30.0,
) -> TreeReport:
    """Return who holds and who waits at a path and below it: all processes, threads and tasks, Curator's included.

    It shows locks of all kinds, semaphores, elections, and the consumers, producers and claims of queues. It does not
    show events, values, items, maps, latches, barriers and groups, for which clients do not queue.

    Cost:
        A listing for each node except contenders and items, and a read for each contender, hundreds at a time.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient` that is started.
        path: the path at which the listings begin.
        depth: how many levels below the path to read; None reads all, 0 only the primitive at the path.
        before: an earlier report of the same path; a holder that it shows keeps its `first_seen_holding`.
        timeout: how long ZooKeeper may leave a request without a reply, in seconds.

    Returns:
        The report. Its listings are read one after the other, so two paths may be shown as of different moments.

    Raises:
        TypeError: the client is not a kazoo client, or the timeout is not a number.
        ValueError: the path is invalid.
        TimeoutError: ZooKeeper does not reply in time.
        ClientError: the client can't be used here.
        RefusedError: ZooKeeper refuses the requests.
    """
    scan = Scan(client, path, timeout)
    return scan.report(scan.read(depth, () if before is None else before.contenders))


class _Listing(NamedTuple):
    """The contenders in one listing.

    Attributes:
        path: the primitive's path.
        folder: the path of the node that was listed; empty for the root, so that a child is always folder/name.
        kind: the primitive's class, as far as the names show.
        rule: the rule of the queue.
        names: the names of the contenders' nodes.
    """

    path: str
    folder: str
    kind: str
    rule: Rule
    names: list[str]

    def holders(self) -> list[str]:
        """Return the names of the holders, in the order of their turns."""
        # Claims, like permits, have no order and block no client.
        if self.rule is PERMIT:
            return line_up(self.names, PERMIT)
        # In the queue of a semaphore, even the first client waits for permits; in a `Queue`, for an item or for room.
        return [] if self.kind in ("Semaphore", "Queue") else holders(self.names, self.rule)

    def mode(self) -> str | None:
        """Return the mode that all contenders have; None if each node's name shows its own mode."""
        if self.kind == "Queue":
            return _LINES.get(self.folder.rpartition("/")[2], "claim")
        return "permit" if self.kind == "Semaphore" else None

    def line(self, nodes: Mapping[str, Node]) -> Iterator[Contender]:
        """Return the contenders whose nodes were there, in the order of their turns."""
        holding, mode, position = set(self.holders()), self.mode(), 0
        for name, blocker in blocking_rules.nearest(self.names, self.rule).items():
            held = name in holding
            position += not held
            if (node := nodes.get(f"{self.folder}/{name}")) is not None:
                made = Contender.of(self.folder, name, node, *((0, None) if held else (position, blocker)))
                yield made if mode is None else made._replace(mode=mode)


class Scan:
    """All contenders at a path and below it.

    Args:
        client: the client.
        path: the path at which the listings begin.
        timeout: how long ZooKeeper may leave a request without a reply, in seconds.

    Attributes:
        reads: the reads of the client.
        listings: the names of each node's children, by the node's path; contenders are not listed.
        nodes: the contenders' nodes, by their paths.
    """

    def __init__(self, client: KazooClient, path: str, timeout: float) -> None:
        self._path = path if path == "/" else check_path(path)
        self.reads = Reads(client, path, timeout)
        self._semaphores: set[str] = set()
        self._queues: set[str] = set()
        # The nodes with claims and items: a `Queue` that no client uses has no others, and Curator's never has.
        self._with_items: set[str] = set()
        self._errors: dict[str, Exception] = {}
        self._is_whole = True
        self.listings: dict[str, list[str]] = {}
        self.nodes: dict[str, Node] = {}

    @property
    def unreadable(self) -> tuple[str, ...]:
        """The paths that this client is not allowed to read."""
        return tuple(path for path, error in self._errors.items() if isinstance(error, kazoo_errors.NoAuthError))

    def report(self, primitives: Sequence[PathReport]) -> TreeReport:
        """Return a report of what was read, with these primitives."""
        whys = {path: _why_unusable(path, names) for path, names in sorted(self.listings.items())}
        of_kazoo = {path: sum(map(is_of_kazoo, names)) for path, names in self.listings.items()}
        return TreeReport(
            self._path,
            not isinstance(self._errors.get(self._path), kazoo_errors.NoNodeError),
            tuple(primitives),
            {path: why for path, why in whys.items() if why is not None},
            self.unreadable,
            {path: count for path, count in of_kazoo.items() if count},
            self._is_whole,
        )

    def read(self, depth: int | None, before: Sequence[Contender] = ()) -> list[PathReport]:
        """Return the primitives at the path and below it; `before` has the contenders of an earlier report."""
        link = self.reads.link
        found = self._list_down_to(depth)
        paths = [f"{listing.folder}/{name}" for listing in found for name in listing.names]
        for path, got in zip(paths, self.reads.ask(link.get, paths), strict=True):
            if isinstance(got, Exception):
                self._errors[path] = got
            else:
                self.nodes[path] = node_of(got)
        lines: dict[tuple[str, str], list[Contender]] = {}
        for listing in sorted(found):
            line = [*listing.line(self.nodes)]
            lines.setdefault((listing.path, self._kind(listing, line)), []).extend(line)
        return [
            PathReport(
                *primitive,
                tuple(note_holders([each for each in line if not each.position], before, {})),
                tuple(sorted((each for each in line if each.position), key=attrgetter("position"))),
            )
            for primitive, line in sorted(lines.items())
            if line
        ]

    def _kind(self, listing: _Listing, line: Sequence[Contender]) -> str:
        """Return the class of a primitive, which may depend on the data of its nodes."""
        if listing.kind == "Lock" and any(origin_of(self.nodes[each.node].data)[0] for each in line):
            return "Election"
        if listing.kind == "Lock" and any(each.owner is not None for each in line):
            return "DetachedLock"
        return listing.kind

    def _list_down_to(self, depth: int | None) -> list[_Listing]:
        ask, children = self.reads.ask, self.reads.link.children
        found: list[_Listing] = []
        if self._path.rpartition("/")[2] in _PARTS:
            # The children of a part do not show the kind of the node above.
            (names,) = ask(children, [_above(self._path)])
            if not isinstance(names, Exception):
                self._note_kind(_above(self._path), names)
        level = [self._path]
        while level:
            below: list[str] = []
            for node, names in zip(level, ask(children, level), strict=True):
                if isinstance(names, Exception):
                    self._errors[node] = names
                    continue
                self.listings[node] = names
                listings, others = self._sort(node, names)
                found += listings
                # The parts of a semaphore, or of a `Queue`, belong to it, and do not count as a level.
                parts = {_LEASES, _LOCKS} & set(others) if node in self._semaphores else set()
                parts |= _LINES.keys() & set(others) if node in self._queues else set()
                parts |= {_CLAIMS} & set(others) if node in self._with_items else set()
                deeper = others if depth is None or depth > 0 else parts
                self._is_whole = self._is_whole and len(deeper) == len(others)
                below += [f"{'' if node == '/' else node}/{name}" for name in sorted(deeper)]
            depth = None if depth is None else max(depth - 1, 0)
            level = [each for each in below if each != _RESERVED]
        return found

    def _note_kind(self, node: str, names: Sequence[str]) -> None:
        if {_LEASES, "permits"} & set(names):
            self._semaphores.add(node)
        if set(names) >= _OF_QUEUES:
            self._queues.add(node)
        if {_CLAIMS, "items"} <= set(names):
            self._with_items.add(node)

    def _sort(self, node: str, names: Sequence[str]) -> tuple[list[_Listing], list[str]]:
        """Return a node's contenders, by kind, and the other children. Call it for the node above first.

        This library refuses two kinds on one path, but other libraries do not. Contenders of two kinds do
        not wait for each other: they form two queues.
        """
        above, last = _above(node), node.rpartition("/")[2]
        kinds: dict[str, list[str]] = {}
        others: list[str] = []
        # Items, and their claims, have nothing below them.
        items = [name for name in names if is_item(name)] if above in self._with_items else []
        for name in set(names).difference(items) if items else names:
            role = role_of(name)
            # Kazoo's contenders, too, have nothing below them.
            if role is None and not is_of_kazoo(name):
                others.append(name)
            elif role in RULES:
                kinds.setdefault(_KINDS[RULES[role]], []).append(name)
        self._note_kind(node, others)
        listed = partial(_Listing, folder="" if node == "/" else node)
        found: list[_Listing] = []
        if items and last == _CLAIMS:
            found.append(listed(above, kind="Queue", rule=PERMIT, names=items))
        for kind, contenders in kinds.items():
            path, rule = node, RULES[role_of(contenders[0]) or ""]
            if last == _LOCKS and above in self._semaphores:
                path, kind = above, "Semaphore"
            elif last in _LINES and above in self._queues:
                path, kind = above, "Queue"
            elif rule is PERMIT and last == _LEASES:
                path = above
            found.append(listed(path, kind=kind, rule=rule, names=contenders))
        return found, others


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _why_unusable(path: str, names: Sequence[str]) -> str | None:
    """Return why a lock would refuse a queue, and what to do; None for a usable queue, or for no queue at all."""
    ours = [name for name in names if name.startswith("_c_") and role_of(name) in RULES]
    if not ours:
        return None
    rule = RULES[role_of(ours[0]) or ""]
    try:
        check_queue(path, names, rule)
        late = blocking_rules.check_sequence(path, line_up(ours, rule)[-1], rule)
    except (ForeignNodeError, SequenceExhaustedError) as error:
        return str(error)
    return f"{path}: its sequence numbers run out: leave it idle, or use another path" if late else None
