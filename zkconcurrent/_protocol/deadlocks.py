"""The search for a deadlock, from one node that waits: pure, as a generator that asks for listings and data.

A node waits for each node ahead of it that excludes it, whether that one holds (a *hard* edge) or waits (*soft*). A
node that holds ends only if its owner goes on, and the owner goes on only if the node ends with which it waits. The
data of that node name its holds; nothing tells where the owner of a hold waits. So the search goes backwards: from my
holds to those that wait for them, to the holds of these, and so on. If it comes to my own node, there is a deadlock.

* **All are found.** The youngest node of a deadlock closed it. The others wait for it, and it is the last of its queue,
  so they wait for a hold of its owner. One search by each waiter whose owner holds something, after its create, is
  enough.
* **One victim.** A search leaves out the holds of younger waiters: what leads through these, they find themselves, and
  end. So the victim is the youngest of those that can end and for whose holds a member waits.
* **None is imagined.** All queues are listed once more, behind a `sync`. What is in both listings of a node's queue was
  there in between, a name never comes back, and the order of a queue never changes. So at one instant between the two
  all those edges existed at once.

This is so of what only its owner ends: the holds that `holds` names. If nothing is found, a second search follows those
in `loose`, too, which any thread of their process may end. What it finds is a *possible* deadlock, and nobody is its
victim. So it leaves out the holds of all younger waiters: the youngest member alone tells of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from .._errors import DeadlockEdge, ForeignNodeError
from .operations import Node
from .rules import LATCH, MUTEX, READ, Rule, check_queue, line_up, role_of
from .ticket import is_marked, unique
from .told import Told

MOST_REQUESTS = 1000
MOST_AT_ONCE = 64
UNREADABLE = Node(b"", 0, 0.0, 0)
"""Stands for a node whose data may not be read."""

_RULES = {MUTEX.role: MUTEX, LATCH.role: LATCH, **dict.fromkeys(READ.roles, READ)}


class Place(NamedTuple):
    """A node: the full path of its queue, and its name."""

    path: str
    name: str


class Waiter(NamedTuple):
    """The node for which the search is made.

    Attributes:
        place: where it is.
        czxid: its creation zxid.
        holds: what its owner holds, as in its data.
        ends: a deadlock may end its wait; otherwise it is only reported.
        waited: returns how long the node has been there, in seconds.
        loose: what else its owner holds that others may end.
    """

    place: Place
    czxid: int
    holds: Sequence[tuple[str, str]]
    ends: bool
    waited: Callable[[], float]
    loose: Sequence[tuple[str, str]] = ()


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
"""What an `Ask` is answered by, in its order; None for a node that is gone."""


class SearchResult(NamedTuple):
    """What a search has found.

    Attributes:
        cycle: the edges of a deadlock, from the waiter's own node to a hold of its owner; empty if there is none.
        idle: nobody waits for a hold of the waiter's owner.
        unfollowed: how many nodes and queues could not be followed: the holds of their owners are not all known.
        finished: the search was not ended by the limit of requests.
        requests: how many it took.
        certain: only the owners of the deadlock's holds can end them.
    """

    cycle: tuple[DeadlockEdge, ...]
    idle: bool
    unfollowed: int
    finished: bool
    requests: int
    certain: bool


class _Queue:
    """The nodes of one queue, in the order of their turns."""

    def __init__(self, names: Iterable[str], rule: Rule) -> None:
        self.rule = rule
        self.line = line_up([*names], rule)
        self.by_unique = {unique(name): name for name in self.line}

    def behind(self, name: str) -> list[str]:
        """Return the nodes that wait for one, whatever else they wait for."""
        key, alone = self.rule.key, self.rule.alone
        mine, excludes = key(name), alone in name
        return [each for each in self.line if (excludes or alone in each) and key(each) > mine]

    def behind_waiter(self, name: str) -> list[str]:
        """Return the nodes that wait for a waiting one, and not surely also for what that one waits for."""
        return self.behind(name) if self.rule.alone else []


class SearchView:
    """All that was read. Several searches may share what was listed once.

    Attributes:
        queues: the queues, by path; None if one could not be followed.
        nodes: the data of nodes; None if a node is gone.
        expired: the waiters whose time is up.
        unfollowed: how many queues and nodes could not be followed.
        loosely: holds that others may end count, too.
        requests: how many it took to read it.
    """

    def __init__(self) -> None:
        self.queues: dict[str, _Queue | None] = {}
        self.nodes: dict[Place, tuple[Node, Told] | None] = {}
        self.expired: set[Place] = set()
        self.unfollowed = 0
        self.loosely = False
        self.requests = 0

    def copy(self) -> SearchView:
        """Return a view to which others add nothing."""
        view = SearchView()
        view.queues, view.nodes, view.unfollowed = {**self.queues}, {**self.nodes}, self.unfollowed
        view.loosely, view.requests = self.loosely, self.requests
        return view

    def add(self, ask: Ask, answer: Answer) -> None:
        """Add what was read; of a queue that is listed again, keep what is in both listings."""
        listings, nodes = answer
        self.requests += len(listings) + len(nodes) + ask.again
        for path, names in zip(ask.paths, listings, strict=True):
            before = self.queues.get(path)
            if path not in self.queues:
                self.queues[path] = queue = queue_of(path, names)
                self.unfollowed += queue is None
            elif before is not None:
                self.queues[path] = _Queue({*before.line} & {*(names or ())}, before.rule)
        for place, node in zip(ask.nodes, nodes, strict=True):
            told = None if node is None else Told.by_data(node.data)
            self.nodes[place] = None if node is None or told is None else (node, told)
            self.unfollowed += told is not None and (told.pid is None or told.more > 0)


def queue_of(path: str, names: Listing) -> _Queue | None:
    """Return the queue that a listing shows; None if it could not be listed, or has nodes that are no contenders."""
    if names is None:
        return None
    rule = next((_RULES[role] for name in names if (role := role_of(name)) in _RULES), MUTEX)
    try:
        check_queue(path, names, rule)
    except ForeignNodeError:
        return None
    return _Queue(names, rule)


class _Found(NamedTuple):
    """What can be told from a view.

    Attributes:
        chain: of each edge the waiting node, the node that it waits for, and whether that one holds; from mine on, to
            one of my owner's holds. Empty if no such chain is known.
        idle: see `SearchResult`.
        paths: the queues, and
        nodes: the nodes, that have yet to be read.
    """

    chain: Sequence[tuple[Place, Place, bool]]
    idle: bool
    paths: Sequence[str]
    nodes: Sequence[Place]


def left_out(me: Waiter, node: Node, told: Told) -> bool:
    """Return whether a waiter, rather than `me`, finds the deadlocks of which its owner's holds are a part.

    Its place in its queue is not left out: where others only wait for that one, its own search would not find them.
    """
    return node.czxid > me.czxid and (told.ends or not me.ends)


def _search(me: Waiter, view: SearchView) -> _Found:
    """Find who waits, directly or not, for the holds of my owner, as far as the view tells."""
    # Of each hold, the node with which its owner waits; None for mine. Of each waiter, the node that it waits for.
    held: dict[Place, Place | None] = {}
    awaits: dict[Place, Place] = {}
    todo: deque[Place] = deque()
    paths: dict[str, None] = {}
    nodes: dict[Place, None] = {}
    idle = True

    def hold(holds: Iterable[tuple[str, str]], waiter: Place | None) -> None:
        for path, mark in holds:
            if path not in view.queues:
                if _is_path(path):
                    paths[path] = None
            elif (queue := view.queues[path]) is not None and (name := queue.by_unique.get(mark)) is not None:
                place = Place(path, name)
                if place not in held and place not in awaits:
                    held[place] = waiter
                    todo.append(place)

    hold(me.holds, None)
    while todo:
        place = todo.popleft()
        queue = view.queues[place.path]
        assert queue is not None
        mine = place in held and held[place] is None
        for name in queue.behind(place.name) if place in held else queue.behind_waiter(place.name):
            each = Place(place.path, name)
            if each == me.place:
                # A wait for my own hold alone is told of when it begins.
                if not mine:
                    return _Found(_chain(each, place, held, awaits), False, (), ())
                continue
            idle = idle and not mine
            if each in held or each in awaits or each in view.expired:
                continue
            told = Told()
            if is_marked(name):
                if each not in view.nodes:
                    nodes[each] = None
                    continue
                if (found := view.nodes[each]) is None:
                    continue
                if not left_out(me, *found):
                    told = found[1]
            awaits[each] = place
            todo.append(each)
            hold(told.holds, each)
            if view.loosely:
                hold(told.loose, each)
    return _Found((), idle, [*paths], [*nodes])


def _is_path(path: str) -> bool:
    """Return whether a request can have this path, which any program may have written."""
    return path.startswith("/") and not any("\ud800" <= each <= "\udfff" for each in path)


def _chain(
    mine: Place, last: Place, held: dict[Place, Place | None], awaits: dict[Place, Place]
) -> list[tuple[Place, Place, bool]]:
    chain = [(mine, last, last in held)]
    while (waiter := held.get(last, last)) is not None:
        last = awaits[waiter]
        chain.append((waiter, last, last in held))
    return chain


def search(me: Waiter, view: SearchView | None = None) -> Generator[Ask, Answer, SearchResult]:
    """Search for a deadlock of which `me` is a part, and is the one to tell or to end.

    Args:
        me: the waiter.
        view: what was read already, to which the search adds what it asks for.
    """
    view = view or SearchView()
    view.loosely, view.requests = False, 0
    result = yield from _searched(me, view)
    if result.cycle or not result.finished:
        return result
    view.loosely, view.requests = True, result.requests
    return (yield from _searched(me._replace(holds=(*me.holds, *me.loose), ends=False), view))


def _searched(me: Waiter, view: SearchView) -> Generator[Ask, Answer, SearchResult]:
    """Search, and add to the view what that takes."""
    while True:
        found = _search(me, view)
        paths = found.paths[:MOST_AT_ONCE]
        ask = Ask(paths, found.nodes[: MOST_AT_ONCE - len(paths)])
        wanted = len(ask.paths) + len(ask.nodes)
        if not wanted:
            break
        if view.requests + wanted > MOST_REQUESTS:
            return SearchResult((), False, view.unfollowed, False, view.requests, False)
        view.add(ask, (yield ask))
    cycle: tuple[DeadlockEdge, ...] = ()
    if found.chain:
        view = view.copy()
        again = Ask([path for path, queue in view.queues.items() if queue is not None], again=True)
        view.add(again, (yield again))
        cycle = yield from _confirm(me, view)
    return SearchResult(cycle, found.idle, view.unfollowed, True, view.requests, bool(cycle) and not view.loosely)


def _confirm(me: Waiter, view: SearchView) -> Generator[Ask, Answer, tuple[DeadlockEdge, ...]]:
    """Return the edges of a deadlock that is left among what was listed twice."""
    while chain := _search(me, view).chain:
        # Those who hold nothing but their place in a queue were not read yet; nor was mine.
        unread = [waiter for waiter, _, _ in chain if waiter not in view.nodes]
        if unread:
            view.add(ask := Ask(nodes=unread), (yield ask))
        if (found := view.nodes[me.place]) is None:
            break
        now = found[0].ctime + me.waited()
        late = {waiter for waiter, _, _ in chain if _is_late(view.nodes[waiter], now)} - {me.place}
        if not late:
            return tuple(_edge(view, *each, now) for each in chain)
        view.expired |= late
    return ()


def _is_late(found: tuple[Node, Told] | None, now: float) -> bool:
    """Return whether the wait of a node is over, by the server's clock, though the node is still there."""
    if found is None:
        return True
    node, told = found
    return told.timeout is not None and node.ctime + told.timeout < now


def _edge(view: SearchView, waiter: Place, blocker: Place, hard: bool, now: float) -> DeadlockEdge:
    found = view.nodes[waiter]
    assert found is not None
    node, told = found
    return DeadlockEdge(
        waiter.path,
        waiter.name,
        blocker.name,
        told.host,
        told.pid,
        told.thread,
        max(0.0, now - node.ctime),
        hard,
        told.label,
    )


def described(cycle: Sequence[DeadlockEdge]) -> str:
    """Return a deadlock in words, for an error or the log."""
    names = [Told(each.host, each.pid, each.thread, label=each.label).whole_name(each.waiter) for each in cycle]
    return "; ".join(
        f"{name} waits for {each.path} (for {each.age:.1f} s), {'held by' if each.hard else 'behind'} {blocker}"
        for each, name, blocker in zip(cycle, names, [*names[1:], names[0]], strict=True)
    )
