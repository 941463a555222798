"""`find_deadlocks`: rings of waits, found from outside, by the search that the members' own processes make.

It lists all queues below the path, reads the data of their nodes, and makes a search from each waiter whose node names
its owner's holds. Anything else that a search asks for is read during the search. If a search meets a waiter outside of
the path, another search begins at that waiter, as only the youngest member's search finds a ring. In the end, the
queues of all suspected rings are listed once more, after a `sync`: what both listings contain was there at one instant
between the two listings, so every ring that is reported existed. The waits that a search can't judge are reported
beside the rings, for a person to judge.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from .._errors import DeadlockEdge
from .._kazoo import full_paths
from .._kazoo.failures import kazoo_errors
from .._kazoo.link import KazooClient, Link
from .._kazoo.reply import node_of
from .._observe.deadlock_search import AGAIN_AFTER
from .._protocol.blocking_rules import PERMIT
from .._protocol.deadlock_cycle import UNREADABLE, Answer, Ask, Cycle, Listing, Place, Waiter, queue_of, search
from .._protocol.layout import is_of_kazoo, role_of
from .._protocol.node_info import NodeInfo
from .._protocol.operations import Node
from .._runtime.clock import wall_clock
from .._runtime.public import public
from ._paths import RULES, Scan, TreeReport
from ._reads import Reads

_NO_HOLDS = "its data do not tell what it holds: it is no node of this library, or was asked to let go"
_NOT_READABLE = "it may not be read by this client"
_NO_QUEUE = "other nodes than those of one kind of lock are there, so they do not wait for each other"
_TOO_LARGE = "the search from this node took too many steps"
_PERMITS = "it holds locks, and waits for permits, which any thread may give back"

_Steps: TypeAlias = Generator[Ask, Any, "Cycle | None"]


@public
@dataclass(frozen=True)
class DeadlockMember:
    """One member of a deadlock.

    Attributes:
        edge: who it is, and what it waits for. All paths are full, with the client's chroot.
        by: the thread or task, as the `by` of a `Contender`.
        session: its session, as the `session` of a `Contender`.
        held_path: the path of its hold for which the previous member waits; None if the previous member only waits
            behind it in a queue.
        held_node: the name of the hold's node at that path; None if there is no such hold.
        token: the fencing token of that hold; 0 if there is no such hold.
    """

    edge: DeadlockEdge
    by: str | None
    session: int
    held_path: str | None = None
    held_node: str | None = None
    token: int = 0

    def whole_name(self) -> str:
        """Return its name, as messages show it."""
        edge = self.edge
        return NodeInfo(edge.host, edge.pid, edge.thread, label=edge.label).whole_name(edge.waiter)


@public
@dataclass(frozen=True)
class Deadlock:
    """A deadlock.

    Attributes:
        members: each waits for the next one, the last for the first.
    """

    members: tuple[DeadlockMember, ...]


@public
@dataclass(frozen=True)
class UnjudgedWait:
    """A wait that the search can't judge: deadlocks that lead through it are not found.

    Attributes:
        path: the full path of the queue.
        node: the name of the node; None for the whole queue.
        why: the reason, for people.
    """

    path: str
    node: str | None
    why: str


@public
@dataclass(frozen=True)
class DeadlockReport:
    """What a search for deadlocks has found.

    Attributes:
        tree: the holders and the waiters when the search began.
        deadlocks: the deadlocks that were confirmed.
        unjudged: the waits that the search can't judge.
    """

    tree: TreeReport
    deadlocks: tuple[Deadlock, ...]
    unjudged: tuple[UnjudgedWait, ...]


@public
def find_deadlocks(client: KazooClient, path: str = "/", *, timeout: float = 30.0) -> DeadlockReport:
    """Return the deadlocks of all processes that involve a path, or the paths below it.

    Each process finds its own deadlocks, and logs them. This function finds them from outside, even if the logs of the
    processes are out of reach. Each deadlock that it returns existed, with all its waits, at one instant during the
    call.

    Cost:
        The cost of `inspect`. If a deadlock is suspected, its queues are listed once more, a quarter of a second later.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient` that is started.
        path: the path at which the search begins.
        timeout: how long ZooKeeper may leave a request without a reply, in seconds.

    Raises:
        TypeError, ValueError, TimeoutError, ClientError, RefusedError: as `inspect`.
    """
    scan = Scan(client, path, timeout)
    primitives = scan.read(None)
    link = scan.reads.link
    kinds = {_place_of(link, each.node): found.kind for found in primitives for each in found.waiters}
    known = _KnownTree(scan)
    unjudged = [UnjudgedWait(link.full(each), None, _NOT_READABLE) for each in scan.unreadable]
    suspected: list[tuple[_Steps, Ask]] = []
    now, todo = wall_clock(), [*kinds]
    while todo:
        place = todo.pop()
        if (node := known.node(place)) is None:
            continue
        info = NodeInfo.parse(node.data)
        why = _doubt(info, kinds.get(place))
        if info.holds and not why:
            steps = search(Waiter(place, node.czxid, info.holds, partial(_age, node, now)))
            end = _advance(steps, None, known)
            if isinstance(end, Ask):
                suspected.append((steps, end))
            elif end is None:
                why = _TOO_LARGE
        if why:
            unjudged.append(UnjudgedWait(*place, why))
        todo += known.met
        known.met = []
    for folder, names in known.listings.items():
        if names is None or (any(map(_is_contender, names)) and queue_of(folder, names) is None):
            unjudged.append(UnjudgedWait(folder, None, _NOT_READABLE if names is None else _NO_QUEUE))
    cycles = {frozenset(edge.waiter for edge in cycle): cycle for cycle in _confirmed(known, suspected)}
    return DeadlockReport(
        scan.report(primitives),
        tuple(Deadlock(tuple(_members(known, cycle))) for cycle in cycles.values()),
        tuple(unjudged),
    )


class _KnownTree:
    """All that was read: first by the scan, then for the searches. All paths are full, with the chroot.

    Attributes:
        reads: the reads of the client.
        listings: the first listing of each queue.
        met: the nodes that were read for the searches, and from which no search was made yet.
    """

    def __init__(self, scan: Scan) -> None:
        self.reads: Reads = scan.reads
        link = self.reads.link
        self.listings: dict[str, Listing] = {link.full(path): names for path, names in scan.listings.items()}
        self._nodes: dict[Place, Node | None] = {_place_of(link, path): node for path, node in scan.nodes.items()}
        self.met: list[Place] = []

    def answer(self, ask: Ask) -> Answer:
        """Return what a search asks for; read what is still missing."""
        paths = [path for path in ask.paths if path not in self.listings]
        self.listings |= self.list_now(paths)
        nodes = [place for place in ask.nodes if place not in self._nodes]
        results = self.reads.ask(full_paths.get, ["/".join(place) for place in nodes])
        for place, result in zip(nodes, results, strict=True):
            if isinstance(result, Exception):
                self._nodes[place] = None if isinstance(result, kazoo_errors.NoNodeError) else UNREADABLE
            else:
                self._nodes[place] = node_of(result)
        self.met += nodes
        return [self.listings[path] for path in ask.paths], [self._nodes[place] for place in ask.nodes]

    def list_now(self, paths: Sequence[str]) -> dict[str, Listing]:
        """List queues, even those that were listed already."""
        listings: dict[str, Listing] = {}
        results = self.reads.ask(full_paths.children, paths)
        for path, result in zip(paths, results, strict=True):
            if isinstance(result, Exception):
                listings[path] = () if isinstance(result, kazoo_errors.NoNodeError) else None
            else:
                listings[path] = result[0]
        return listings

    def node(self, place: Place) -> Node | None:
        """Return a node; None if it is gone."""
        (node,) = self.answer(Ask(nodes=[place]))[1]
        return node


def _place_of(link: Link, path: str) -> Place:
    """Return the place of a node whose path begins below the chroot."""
    folder, _, name = link.full(path).rpartition("/")
    return Place(folder, name)


def _doubt(info: NodeInfo, kind: str | None) -> str:
    """Return why a wait can't be judged; an empty string if it can, or if its owner holds nothing."""
    if info.by is None:
        return _NO_HOLDS
    if info.holds and info.timeout is not None:
        return f"it holds locks, and gives up by itself, {info.timeout:.1f} s after it has queued"
    return _PERMITS if info.holds and kind == "Semaphore" else ""


def _age(node: Node, now: float) -> float:
    return max(0.0, now - node.ctime)


def _advance(steps: _Steps, answer: Answer | None, known: _KnownTree) -> Ask | Cycle | None:
    """Continue a search until it ends, or asks for new listings; an answer of None begins the search."""
    try:
        ask = steps.send(answer)
        while not ask.again:
            ask = steps.send(known.answer(ask))
    except StopIteration as end:
        cycle: Cycle | None = end.value
        return cycle
    return ask


def _confirmed(known: _KnownTree, suspected: Sequence[tuple[_Steps, Ask]]) -> Iterator[Cycle]:
    """List all queues of the suspected cycles once more, and yield the cycles that are still there."""
    if not suspected:
        return
    paths = [*dict.fromkeys(path for _, ask in suspected for path in ask.paths)]
    link = known.reads.link
    link.handler.sleep_func(AGAIN_AFTER)
    known.reads.ask(full_paths.sync, paths[:1])
    listings = known.list_now(paths)
    for steps, ask in suspected:
        end = _advance(steps, ([listings[path] for path in ask.paths], []), known)
        if end and not isinstance(end, Ask):
            yield end


def _members(known: _KnownTree, cycle: Sequence[DeadlockEdge]) -> Iterator[DeadlockMember]:
    before = cycle[-1]
    for edge in cycle:
        node = known.node(Place(edge.path, edge.waiter)) or UNREADABLE
        member = DeadlockMember(edge, NodeInfo.parse(node.data).by, node.session)
        if before.hard:
            held = Place(before.path, before.blocker)
            hold = known.node(held)
            member = DeadlockMember(edge, member.by, member.session, *held, hold.czxid if hold else 0)
        before = edge
        yield member


def _is_contender(name: str) -> bool:
    """Return whether a node may wait for its siblings: it is a lock's, one of kazoo's recipes', or of unknown kind."""
    role = role_of(name)
    waits = name.startswith("_c_") if role is None else role in RULES and role != PERMIT.role
    return waits or is_of_kazoo(name)
