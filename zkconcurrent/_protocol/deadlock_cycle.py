"""The search for a deadlock, from one node that waits: pure, as a generator that asks for listings and data.

A node waits for each node ahead of it that excludes it, whether the node ahead holds (a *hard* edge) or waits (*soft*).
A node that holds goes away only when its owner continues, and an owner that waits continues only when it is the turn of
its waiting node. The data of a waiting node name its owner's holds; nothing shows where the owner of a hold waits. So
the search goes backwards: from my holds to the nodes that wait for them, to the holds of their owners, and so on. If it
comes to my own node, there is a deadlock.

* **All are found.** The youngest node of a deadlock closed it. As this node is the last in its queue, no node is behind
  it: the deadlock's other members wait for a hold of its owner. So it is enough that each waiter whose owner holds
  something searches once, after its create.
* **One victim.** A search leaves out the holds of younger waiters, which find and end the deadlocks that lead through
  these holds. A waiter that can be ended leaves out only waiters that can be ended, too. So the victim is the youngest
  waiter that can be ended and for whose holds a member waits. If another member is younger, it has already reported the
  deadlock.
* **None is imagined.** All queues are listed once more, behind a `sync`. A name that is in both listings of a queue was
  there in between, as no name comes back; and the order of a queue never changes. So at one instant between the two
  listings, all these edges existed together.

Only certain edges count: waits without a deadline, and holds that the data name, as only their owner ends these. The
search skips a node whose data do not describe its wait, such as another program's node, and a node whose wait has a
deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from .._errors import DeadlockEdge, ForeignNodeError
from .blocking_rules import LATCH, MUTEX, READ, Rule, behind, check_queue, line_up
from .layout import role_of
from .node_info import NodeInfo
from .node_names import is_marked, unique
from .operations import Node

AFTER = 1.0  # seconds
"""How long a wait lasts before its client searches for a deadlock, and before the wait must show in a queue."""
MOST_REQUESTS = 1000
MOST_AT_ONCE = 64
UNREADABLE = Node(b"", 0, 0.0, 0)
"""Stands for a node whose data may not be read."""

_RULES = {LATCH.role: LATCH, **dict.fromkeys(READ.roles, READ)}


class Place(NamedTuple):
    """A node: the full path of its queue, and its name."""

    path: str
    name: str


class Waiter(NamedTuple):
    """The node for which the search is made.

    Attributes:
        place: its queue and its name.
        czxid: its creation zxid.
        holds: what its owner holds, as in its data.
        waited: returns how long the node has been there, in seconds.
        ends: a deadlock ends the wait; otherwise the deadlock is only reported.
    """

    place: Place
    czxid: int
    holds: Sequence[tuple[str, str]]
    waited: Callable[[], float]
    ends: bool = False


class Ask(NamedTuple):
    """What the search asks for: the children of paths, and the data of nodes.

    `again` asks for new listings: a moment later, and behind a `sync`.
    """

    paths: Sequence[str] = ()
    nodes: Sequence[Place] = ()
    again: bool = False


Listing: TypeAlias = "Sequence[str] | None"
"""The children of a path; None if they may not be listed."""

Answer: TypeAlias = "tuple[Sequence[Listing], Sequence[Node | None]]"
"""The answer to an `Ask`, in its order; None for a node that is gone."""

Cycle: TypeAlias = tuple[DeadlockEdge, ...]
"""The edges of a deadlock, from the waiter's own node to a hold of its owner; empty if there is none."""


class _Queue:
    """The nodes of one queue, in the order of their turns."""

    def __init__(self, names: Iterable[str], rule: Rule) -> None:
        self.rule = rule
        self.line = line_up([*names], rule)
        self.by_unique = {unique(name): name for name in self.line}


class _View:
    """All that a search has read.

    Attributes:
        queues: the queues, by path; None for a queue that could not be followed.
        nodes: the nodes, and their data; None for a node that is gone, is another program's, or may end its wait by
            itself.
        requests: how many requests these reads took.
    """

    def __init__(self) -> None:
        self.queues: dict[str, _Queue | None] = {}
        self.nodes: dict[Place, tuple[Node, NodeInfo] | None] = {}
        self.requests = 0

    def add(self, ask: Ask, answer: Answer) -> None:
        """Add what was read; if a queue is listed again, keep the names that are in both listings."""
        listings, nodes = answer
        self.requests += len(listings) + len(nodes)
        for path, names in zip(ask.paths, listings, strict=True):
            before = self.queues.get(path)
            if path not in self.queues:
                self.queues[path] = queue_of(path, names)
            elif before is not None:
                self.queues[path] = _Queue({*before.line} & {*(names or ())}, before.rule)
        for place, node in zip(ask.nodes, nodes, strict=True):
            info = NodeInfo() if node is None else NodeInfo.parse(node.data)
            self.nodes[place] = None if node is None or info.pid is None or info.timeout is not None else (node, info)


def queue_of(path: str, names: Listing) -> _Queue | None:
    """Return the queue that a listing shows; None if it could not be listed, or has nodes that are not contenders."""
    if names is None:
        return None
    rule = next((_RULES[role] for name in names if (role := role_of(name)) in _RULES), MUTEX)
    try:
        check_queue(path, names, rule)
    except ForeignNodeError:
        return None
    return _Queue(names, rule)


def left_out(me: Waiter, node: Node, info: NodeInfo) -> bool:
    """Return whether a waiter, rather than `me`, finds the deadlocks that lead through that waiter's holds.

    The search still follows the nodes behind the waiter, whose own search would not find a deadlock in which the others
    wait only for its place in the queue.
    """
    return node.czxid > me.czxid and (info.ends or not me.ends)


class _Walk:
    """Finds who waits, directly or not, for the holds of my owner, as far as a view shows.

    Attributes:
        chain: the edges that lead from my node to one of my owner's holds; each has the waiting node, the node that it
            waits for, and whether the latter holds. Empty if no such chain is known.
    """

    def __init__(self, me: Waiter, view: _View) -> None:
        self._me = me
        self._view = view
        # For each hold, the node with which its owner waits; None for mine. For each waiter, the node that it waits
        # for.
        self._held: dict[Place, Place | None] = {}
        self._awaits: dict[Place, Place] = {}
        self._todo: deque[Place] = deque()
        self.chain: list[tuple[Place, Place, bool]] = []
        # The queues, and the nodes, that are still to be read.
        self._paths: dict[str, None] = {}
        self._nodes: dict[Place, None] = {}
        self._hold(me.holds, None)
        while self._todo and not self.chain:
            self._follow(self._todo.popleft())

    def unread(self) -> Ask:
        """Return what is still to be read; for a chain, my own node and the nodes of waiters without holds."""
        if self.chain:
            return Ask(nodes=[waiter for waiter, _, _ in self.chain if waiter not in self._view.nodes])
        paths = [*self._paths][:MOST_AT_ONCE]
        return Ask(paths, [*self._nodes][: MOST_AT_ONCE - len(paths)])

    def _hold(self, holds: Iterable[tuple[str, str]], waiter: Place | None) -> None:
        for path, mark in holds:
            if path not in self._view.queues and _is_path(path):
                self._paths[path] = None
            queue = self._view.queues.get(path)
            if queue is not None and (name := queue.by_unique.get(mark)) is not None:
                place = Place(path, name)
                if place not in self._held and place not in self._awaits:
                    self._held[place] = waiter
                    self._todo.append(place)

    def _follow(self, place: Place) -> None:
        """Note who waits for a node, and what they hold."""
        queue = self._view.queues[place.path]
        assert queue is not None
        if place not in self._held and not queue.rule.alone:
            # If all contenders exclude each other, the nodes behind a waiter also wait for the node that the waiter
            # waits for.
            return
        for name in behind(place.name, queue.line, queue.rule):
            each = Place(place.path, name)
            if each == self._me.place:
                # A wait for my own hold alone is refused, or logged, when it begins.
                if self._held.get(place, place) is not None:
                    self.chain = self._chain_from(place)
                    return
            elif each not in self._held and each not in self._awaits:
                self._await(each, place)

    def _await(self, waiter: Place, place: Place) -> None:
        """If a node certainly waits for another one, note that, and what the waiting node's owner holds."""
        if waiter not in self._view.nodes and is_marked(waiter.name):
            self._nodes[waiter] = None
        elif self._view.nodes.get(waiter, self) is not None:
            self._awaits[waiter] = place
            self._todo.append(waiter)
            found = self._view.nodes.get(waiter)
            if found is not None and not left_out(self._me, *found):
                self._hold(found[1].holds, waiter)

    def _chain_from(self, last: Place) -> list[tuple[Place, Place, bool]]:
        """Return the edges from my node to one of my owner's holds; the first edge leads to `last`."""
        chain = [(self._me.place, last, last in self._held)]
        while (waiter := self._held.get(last, last)) is not None:
            last = self._awaits[waiter]
            chain.append((waiter, last, last in self._held))
        return chain


def _is_path(path: str) -> bool:
    """Return whether a request can have this path, which any program may have written."""
    return path.startswith("/") and not any("\ud800" <= each <= "\udfff" for each in path)


def search(me: Waiter) -> Generator[Ask, Answer, Cycle | None]:
    """Search for a deadlock that `me` reports or ends; return None if that takes too many requests."""
    view, confirmed = _View(), False
    while True:
        walk = _Walk(me, view)
        ask = walk.unread()
        if not (ask.paths or ask.nodes):
            if not walk.chain or confirmed:
                return _cycle(me, view, walk.chain)
            ask = Ask([path for path, queue in view.queues.items() if queue is not None], again=True)
        if view.requests + len(ask.paths) + len(ask.nodes) > MOST_REQUESTS:
            return None
        view.add(ask, (yield ask))
        confirmed = ask.again or (confirmed and not ask.paths)


def _cycle(me: Waiter, view: _View, chain: Sequence[tuple[Place, Place, bool]]) -> Cycle:
    """Return the edges of a chain; none if my own node is gone."""
    if not chain or (mine := view.nodes[me.place]) is None:
        return ()
    now, edges = mine[0].ctime + me.waited(), list[DeadlockEdge]()
    for waiter, blocker, hard in chain:
        found = view.nodes[waiter]
        assert found is not None
        node, info = found
        age = max(0.0, now - node.ctime)
        edges.append(DeadlockEdge(*waiter, blocker.name, info.host, info.pid, info.thread, age, hard, info.label))
    return tuple(edges)


def described(cycle: Sequence[DeadlockEdge]) -> str:
    """Return a deadlock in words, for an error or the log."""
    names = [NodeInfo(each.host, each.pid, each.thread, label=each.label).whole_name(each.waiter) for each in cycle]
    return "; ".join(
        f"{name} waits for {each.path} (for {each.age:.1f} s), {'held by' if each.hard else 'behind'} {blocker}"
        for each, name, blocker in zip(cycle, names, [*names[1:], names[0]], strict=True)
    )
