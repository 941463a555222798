"""`deadlocks`: rings of waits, found from outside, by the search that the members' own processes make.

All queues below the path are listed, with the data of their nodes, and each waiter whose node names holds is searched.
Whatever else a search asks for is read then. A waiter that it meets outside of the path is searched as well, as the
youngest member of a ring finds it. In the end the queues of what was found are listed once more, behind a `sync`: what
both listings have was there at one instant between the two, so no ring is imagined. What the search does not judge is
reported beside the rings, for a person to judge.
"""

from __future__ import annotations

import shlex
import time
from argparse import Namespace
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from .._engine.deadlocks import AGAIN_AFTER
from .._errors import DeadlockEdge
from .._kazoo import full_paths
from .._kazoo.link import Link
from .._kazoo.replies import kazoo_errors, node_of
from .._protocol.deadlocks import UNREADABLE, Answer, Ask, Cycle, Listing, Place, Waiter, queue_of, search
from .._protocol.node_info import NodeInfo
from .._protocol.operations import Node
from .._protocol.rules import PERMIT, is_of_kazoo, role_of
from .look import RULES, Scan
from .outcome import document, escaped, write
from .server import ask_all, is_below, link_of, relative
from .terminal import age

FOUND = 1
# What a line shows of a stranger's text, in characters; JSON has the whole.
_LONGEST = 300
_SAYS_NOTHING = "its data do not tell what it holds: it is no node of this library, or was asked to let go"
_UNREADABLE = "it may not be read by this client"
_NO_QUEUE = "other nodes than those of one kind of lock are there, so they do not wait for each other"
_TOO_LARGE = "the search from this node took too many steps"
_PERMITS = "it holds locks, and waits for permits, which any thread may give back"

_Steps: TypeAlias = Generator[Ask, Any, Cycle | None]


class RingMember(NamedTuple):
    """One member of a ring.

    Attributes:
        edge: what it waits for.
        node: its node.
        held: the hold for which the member before it waits; None if that one waits only behind this one's place.
        token: the token of that hold.
    """

    edge: DeadlockEdge
    node: Node
    held: Place | None
    token: int

    def as_json(self) -> dict[str, Any]:
        """Return its fields for a document of JSON."""
        edge, info = self.edge, NodeInfo.parse(self.node.data)
        held = self.held and {"path": self.held.path, "node": self.held.name, "token": str(self.token)}
        return {
            "host": edge.host,
            "pid": edge.pid,
            "thread": edge.thread,
            "by": info.by,
            "session": f"{self.node.session & (1 << 64) - 1:#x}",
            "holds": held,
            "waits_for": edge.path,
            "node": edge.waiter,
            "blocker": edge.blocker,
            "edge": "hard" if edge.hard else "soft",
            "age": round(edge.age, 3),
        }


Ring: TypeAlias = Sequence[RingMember]
"""A deadlock: each of its members waits for the next one, the last for the first."""


class Unjudged(NamedTuple):
    """A wait that the search can't judge: it finds no ring through it.

    Attributes:
        path: the queue.
        node: the name of the node; None if it is the whole queue.
        why: the reason, for people.
    """

    path: str
    node: str | None
    why: str


class _Reader:
    """All that was read: first by the scan, then for the searches. All paths are full, with the chroot.

    Attributes:
        listings: the first listing of each queue.
        met: the nodes that were read for the searches, and were not searched yet.
    """

    def __init__(self, link: Link, scan: Scan) -> None:
        self._link = link
        self.listings: dict[str, Listing] = {link.full(path): names for path, names in scan.listings.items()}
        self._nodes: dict[Place, Node | None] = {place_of(link, path): node for path, node in scan.nodes.items()}
        self.met: list[Place] = []

    def answer(self, ask: Ask) -> Answer:
        """Return what was read, or read it."""
        paths = [path for path in ask.paths if path not in self.listings]
        self.listings |= self.list_now(paths)
        nodes = [place for place in ask.nodes if place not in self._nodes]
        results = ask_all(partial(full_paths.send_get, self._link), ["/".join(place) for place in nodes])
        for place, result in zip(nodes, results, strict=True):
            if isinstance(result, Exception):
                self._nodes[place] = None if isinstance(result, kazoo_errors.NoNodeError) else UNREADABLE
            else:
                self._nodes[place] = node_of(result)
        self.met += nodes
        return [self.listings[path] for path in ask.paths], [self._nodes[place] for place in ask.nodes]

    def list_now(self, paths: Sequence[str]) -> dict[str, Listing]:
        """List queues, whether they were listed before or not."""
        listings: dict[str, Listing] = {}
        results = ask_all(partial(full_paths.send_children, self._link), paths)
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


def place_of(link: Link, path: str) -> Place:
    """Return the place of a node whose path begins below the chroot."""
    folder, _, name = link.full(path).rpartition("/")
    return Place(folder, name)


def find(link: Link, path: str) -> tuple[list[Ring], list[Unjudged]]:
    """Return the rings that lead through a path or what is below it, and what could not be judged."""
    scan = Scan(link)
    kinds = {place_of(link, each.contender.node): each.kind for each in scan.places(path, None) if not each.holds}
    now = time.time()
    reader = _Reader(link, scan)
    unjudged = [Unjudged(link.full(path), None, _UNREADABLE) for path in scan.unreadable]
    pending: list[tuple[_Steps, Ask]] = []
    todo = [*kinds]
    while todo:
        place = todo.pop()
        if (node := reader.node(place)) is None:
            continue
        info = NodeInfo.parse(node.data)
        why = _doubt(info, kinds.get(place))
        if info.holds and not why:
            steps = search(Waiter(place, node.czxid, info.holds, partial(_age, node, now)))
            end = _advance(steps, None, reader)
            if isinstance(end, Ask):
                pending.append((steps, end))
            elif end is None:
                why = _TOO_LARGE
        if why:
            unjudged.append(Unjudged(*place, why))
        todo += reader.met
        reader.met = []
    for folder, names in reader.listings.items():
        if names is None or (any(map(_is_contender, names)) and queue_of(folder, names) is None):
            unjudged.append(Unjudged(folder, None, _UNREADABLE if names is None else _NO_QUEUE))
    rings = {frozenset(edge.waiter for edge in cycle): cycle for cycle in _confirmed(link, reader, pending)}
    return [[*_members(reader, cycle)] for cycle in rings.values()], unjudged


def _doubt(info: NodeInfo, kind: str | None) -> str:
    """Return why a wait is not judged; empty if it is, or if its owner holds nothing."""
    if info.by is None:
        return _SAYS_NOTHING
    if info.holds and info.timeout is not None:
        return f"it holds locks, and gives up by itself, {info.timeout:.1f} s after it has queued"
    return _PERMITS if info.holds and kind == "Semaphore" else ""


def _age(node: Node, now: float) -> float:
    return max(0.0, now - node.ctime)


def _advance(steps: _Steps, answer: Answer | None, reader: _Reader) -> Ask | Cycle | None:
    """Go on with a search until it ends, or asks for new listings; at its begin, there is no answer yet."""
    try:
        ask = steps.send(answer)
        while not ask.again:
            ask = steps.send(reader.answer(ask))
    except StopIteration as end:
        cycle: Cycle | None = end.value
        return cycle
    return ask


def _confirmed(link: Link, reader: _Reader, pending: Sequence[tuple[_Steps, Ask]]) -> Iterator[Cycle]:
    """List all queues of what was found once more, and return the rings that are still there."""
    if not pending:
        return
    paths = [*dict.fromkeys(path for _, ask in pending for path in ask.paths)]
    time.sleep(AGAIN_AFTER)
    ask_all(partial(full_paths.send_sync, link), paths[:1])
    listings = reader.list_now(paths)
    for steps, ask in pending:
        end = _advance(steps, ([listings[path] for path in ask.paths], []), reader)
        if end and not isinstance(end, Ask):
            yield end


def _members(reader: _Reader, cycle: Sequence[DeadlockEdge]) -> Iterator[RingMember]:
    before = cycle[-1]
    for edge in cycle:
        node = reader.node(Place(edge.path, edge.waiter))
        held = Place(before.path, before.blocker) if before.hard else None
        hold = None if held is None else reader.node(held)
        before = edge
        yield RingMember(edge, node or UNREADABLE, held, hold.czxid if hold else 0)


def _is_contender(name: str) -> bool:
    """Return whether a node may wait for its siblings, as one of an unknown kind may, or one of a kind of lock."""
    role = role_of(name)
    waits = name.startswith("_c_") if role is None else role in RULES and role != PERMIT.role
    return waits or is_of_kazoo(name)


def deadlocks(found: Namespace) -> int:
    """Report the deadlocks at a path and below it; return the exit code."""
    with link_of(found) as link:
        rings, unjudged = find(link, found.path)
        chroot = link.client.chroot
    if found.json:
        told = [{"members": [member.as_json() for member in ring]} for ring in rings]
        missing = [each._asdict() for each in unjudged]
        write(f"{document('deadlocks', {'path': found.path}, rings=told, unjudged=missing)}\n")
    else:
        lines = [line for ring in rings for line in picture(ring, chroot)]
        if not rings:
            lines = [f"no deadlock at {found.path} or below"]
        lines += [
            f"not judged: {_shown(each.path, chroot)}{'' if each.node is None else f', node {each.node}'}: {each.why}"
            for each in unjudged
        ]
        write("".join(f"{escaped(line)}\n" for line in lines))
    return FOUND if rings else 0


def picture(ring: Ring, chroot: str) -> Iterator[str]:
    """Return a ring as people read it, each member with its hold and its wait."""
    yield f"a deadlock of {len(ring)} waits: each waits for the next, the last for the first"
    for number, member in enumerate(ring, 1):
        edge, info, next_one = member.edge, NodeInfo.parse(member.node.data), number % len(ring) + 1
        yield f"  {number}. {info.whole_name(edge.waiter)}"
        if member.held is not None:
            yield f"     holds {_shown(member.held.path, chroot)}, token {member.token}"
        blocked = f"which {next_one} holds (hard)" if edge.hard else f"behind {next_one}, which waits itself (soft)"
        yield f"     waits for {_shown(edge.path, chroot)} for {age(edge.age)}, {blocked}"
    yield "  None goes on before another one ends: end one of these processes."
    yield "  If none can be reached, break a hold:"
    held = [(member.held.path, member.token) for member in ring if member.held is not None]
    # `break` takes no path that is not below its URL's chroot. The path is whole: else it would be another one.
    path, token = next((each for each in held if is_below(each[0], chroot)), held[0])
    yield f"  zkconcurrent break {shlex.quote(relative(path, chroot))} --holder {token}"


def _shown(path: str, chroot: str) -> str:
    return relative(path, chroot)[:_LONGEST]
