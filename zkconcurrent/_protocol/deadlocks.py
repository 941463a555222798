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
in `loose`, too, which others may end. What it finds is a *possible* deadlock, and nobody is its victim. So it leaves
out the holds of all younger waiters: the youngest member alone tells of it.

* **Permits.** A waiter may get any permit. So once all that may be members are known, those are taken away that could
  go on if all but the members gave their permits back, and those that wait for these alone. What is left is stuck.
* **Strangers.** The node of another program, such as Curator's, does not name its holds. So a third search asks whether
  the node that holds what I wait for is a stranger's, of a session that also waits, through whomever, for a hold of my
  owner. A stranger searches for nothing: whoever waits for its hold tells.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from .._errors import DeadlockEdge, ForeignNodeError
from .node_names import is_marked, unique
from .operations import Node
from .permits import count, number_in
from .rules import LATCH, MUTEX, PERMIT, READ, Rule, behind, check_queue, holders, in_the_way, line_up, role_of
from .told import Told

MOST_REQUESTS = 1000
MOST_AT_ONCE = 64
UNREADABLE = Node(b"", 0, 0.0, 0)
"""Stands for a node whose data may not be read."""

_RULES = {MUTEX.role: MUTEX, LATCH.role: LATCH, PERMIT.role: PERMIT, **dict.fromkeys(READ.roles, READ)}
# Of so many holders, a search asks whether they are strangers.
_MOST_HOLDERS = 16


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
        permits: how many it waits for; 0 if it waits for a lock.
    """

    place: Place
    czxid: int
    holds: Sequence[tuple[str, str]]
    ends: bool
    waited: Callable[[], float]
    loose: Sequence[tuple[str, str]] = ()
    permits: int = 0


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
        idle: the queues for the holds of the waiter's owner, if nobody waits there; otherwise empty.
        unfollowed: how many nodes and queues could not be followed: the holds of their owners are not all known.
        finished: the search was not ended by the limit of requests.
        requests: how many it took.
        certain: only the owners of the deadlock's holds can end them.
        strange: a part of it may be a stranger's.
    """

    cycle: tuple[DeadlockEdge, ...]
    idle: tuple[str, ...]
    unfollowed: int
    finished: bool
    requests: int
    certain: bool
    strange: bool = False


class _Queue:
    """The nodes of one queue, in the order of their turns."""

    def __init__(self, names: Iterable[str], rule: Rule) -> None:
        self.rule = rule
        self.line = line_up([*names], rule)
        self.by_unique = {unique(name): name for name in self.line}


class SearchView:
    """All that was read. Several searches may share what was listed once.

    Attributes:
        queues: the queues, by path; None if one could not be followed.
        nodes: the data of nodes; None if a node is gone.
        added: how many permits the children of each semaphore's node `permits` add; None if that is not known.
        expired: the waiters whose time is up.
        unfollowed: how many queues and nodes could not be followed.
        loosely: holds that others may end count, too.
        strangely: those of the strangers count, too, that hold what I wait for.
        requests: how many it took to read it.
    """

    def __init__(self) -> None:
        self.queues: dict[str, _Queue | None] = {}
        self.nodes: dict[Place, tuple[Node, Told] | None] = {}
        self.added: dict[str, int | None] = {}
        self.expired: set[Place] = set()
        self.unfollowed = 0
        self.loosely = self.strangely = False
        self.requests = 0

    def copy(self) -> SearchView:
        """Return a view to which others add nothing."""
        view = SearchView()
        view.queues, view.nodes, view.added = {**self.queues}, {**self.nodes}, {**self.added}
        view.unfollowed, view.requests = self.unfollowed, self.requests
        view.loosely, view.strangely = self.loosely, self.strangely
        return view

    def add(self, ask: Ask, answer: Answer) -> None:
        """Add what was read; of a queue that is listed again, keep what is in both listings."""
        listings, nodes = answer
        self.requests += len(listings) + len(nodes) + ask.again
        for path, names in zip(ask.paths, listings, strict=True):
            if path in self.added:
                # None of them ever goes, so the later listing has no fewer.
                self.added[path] = None if names is None else count(names)
                continue
            before = self.queues.get(path)
            if path not in self.queues:
                self.queues[path] = queue = queue_of(path, names)
                self.unfollowed += queue is None
            elif before is not None:
                self.queues[path] = _Queue({*before.line} & {*(names or ())}, before.rule)
        for place, node in zip(ask.nodes, nodes, strict=True):
            told = None if node is None else Told.by_data(node.data)
            self.nodes[place] = None if node is None or told is None else (node, told)
            self.unfollowed += told is not None and place.path not in self.added and (told.pid is None or told.more > 0)

    def size(self, semaphore: str) -> int | None:
        """Return how many permits a semaphore has; None if that is not known."""
        added, node = self.added.get(f"{semaphore}/permits"), self.nodes.get(Place(semaphore, "permits"))
        number = None if node is None else number_in(node[0].data)
        return None if added is None or number is None else added + number[0]

    def strangers(self, me: Waiter) -> tuple[list[Place], dict[int, Place]]:
        """Return the strangers' nodes that hold what I wait for, by their sessions; first, what is unread of that."""
        queue = self.queues.get(me.place.path)
        if queue is None or me.place.name not in queue.line:
            return [], {}
        way = {*in_the_way(me.place.name, queue.line, queue.rule)}
        holding = [Place(me.place.path, name) for name in holders(queue.line, queue.rule) if name in way]
        first = holding[:_MOST_HOLDERS]
        found = {place: self.nodes[place] for place in first if place in self.nodes}
        return [place for place in first if place not in found], {
            each[0].session: place for place, each in found.items() if each is not None and is_strange(*each)
        }


def is_strange(node: Node, told: Told) -> bool:
    """Return whether another program than this library has made a node, in a session that is known."""
    return told.pid is None and node is not UNREADABLE and node.session != 0


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


def left_out(me: Waiter, node: Node, told: Told) -> bool:
    """Return whether a waiter, rather than `me`, finds the deadlocks of which its owner's holds are a part.

    Its place in its queue is not left out: where others only wait for that one, its own search would not find them.
    """
    return node.czxid > me.czxid and (told.ends or not me.ends)


class _Walk:
    """Finds who waits, directly or not, for the holds of my owner, as far as a view tells.

    Args:
        me: the waiter.
        view: what was read.
        free: waiters that can go on, whatever the others do.

    Attributes:
        chain: of each edge the waiting node, the node that it waits for, and whether that one holds; from mine on, to
            one of my owner's holds. Empty if no such chain is known.
        idle: nobody waits for a hold of my owner.
        mine: the queues for the holds of my owner.
        strange: strangers wait for what was followed, or others of whom that is not known.
        paths: the queues, and
        nodes: the nodes, that have yet to be read.
        free: waiters that could go on, as there would be permits.
    """

    def __init__(self, me: Waiter, view: SearchView, free: set[Place]) -> None:
        self._me = me
        self._view = view
        self._skipped = view.expired | free
        # Of each hold, the node with which its owner waits; None for mine. Of each waiter, the node that it waits for.
        self._held: dict[Place, Place | None] = {}
        self._awaits: dict[Place, Place] = {}
        # Of each queue for permits that was met, the semaphore.
        self._semaphores: dict[str, str] = {}
        self._todo: deque[Place] = deque()
        self._strangers: dict[int, Place] = {}
        self.chain: list[tuple[Place, Place, bool]] = []
        self.idle = True
        self.mine: dict[str, None] = {}
        self.strange = False
        self.free: set[Place] = set()
        self.paths: dict[str, None] = {}
        self.nodes: dict[Place, None] = {}
        if view.strangely:
            unread, self._strangers = view.strangers(me)
            self.nodes.update(dict.fromkeys(unread))
            self._list(me.place.path)
            if not self._strangers:
                return
        self._hold(me.holds, None)
        while self._todo and not self._is_found():
            self._follow(self._todo.popleft())
        if self.chain and self.is_complete():
            self.free = self._find_free()

    def is_complete(self) -> bool:
        """Return whether all was read that tells whether the chain is one."""
        return self._is_found() or not (self.paths or self.nodes)

    def _list(self, path: str) -> bool:
        """Have a queue listed; return whether it was."""
        if path not in self._view.queues and _is_path(path):
            self.paths[path] = None
        return self._view.queues.get(path) is not None

    def _hold(self, holds: Iterable[tuple[str, str]], waiter: Place | None) -> None:
        for path, mark in holds:
            if self._list(path) and (name := self._queue(path).by_unique.get(mark)) is not None:
                place = Place(path, name)
                if place not in self._held and place not in self._awaits:
                    self._held[place] = waiter
                    self._todo.append(place)

    def _queue(self, path: str) -> _Queue:
        queue = self._view.queues[path]
        assert queue is not None
        return queue

    def _behind(self, place: Place, *, mine: bool) -> Iterable[Place]:
        """Return the nodes that wait for one."""
        queue = self._queue(place.path)
        semaphore = place.path.rpartition("/")[0]
        path = f"{semaphore}/locks" if queue.rule is PERMIT else place.path
        if mine:
            self.mine[path] = None
        if queue.rule is not PERMIT:
            # In a queue in which all exclude each other, those behind a waiter also wait for what that one waits for.
            waits_in_mutex = not (queue.rule.alone or place in self._held or place.path in self._semaphores)
            names = [] if waits_in_mutex else behind(place.name, queue.line, queue.rule)
            return [Place(path, name) for name in names]
        if not self._list(path) or not (waiting := self._queue(path).line):
            return ()
        self._semaphores[path] = semaphore
        number, added = Place(semaphore, "permits"), f"{semaphore}/permits"
        if self._view.added.setdefault(added, None) is None:
            self.paths[added] = None
        if number not in self._view.nodes:
            self.nodes[number] = None
        return [Place(path, name) for name in waiting]

    def _follow(self, place: Place) -> None:
        """Note who waits for a node, and what they hold."""
        me, view = self._me, self._view
        mine = place in self._held and self._held[place] is None
        for each in self._behind(place, mine=mine):
            if each == me.place:
                # A wait for my own hold alone is told of when it begins.
                if not mine and not view.strangely and not self.chain:
                    self.chain = self._chain_from(place)
                continue
            self.idle = self.idle and not mine
            if each in self._held or each in self._awaits or each in self._skipped:
                continue
            told, strange = Told(), True
            if is_marked(each.name) or self._strangers:
                if each not in view.nodes:
                    self.nodes[each] = None
                    continue
                if (found := view.nodes[each]) is None:
                    continue
                if self._is_stranger(each, *found):
                    self._awaits[each] = place
                    hold = self._strangers[found[0].session]
                    self._held[hold] = each
                    self.chain = self._chain_from(hold)
                    return
                if not left_out(me, *found):
                    told = found[1]
                strange = found[1].pid is None
            self.strange = self.strange or strange
            self._awaits[each] = place
            self._todo.append(each)
            self._hold(told.holds, each)
            if view.loosely:
                self._hold(told.loose, each)

    def _is_stranger(self, place: Place, node: Node, told: Told) -> bool:
        return is_strange(node, told) and place not in self._strangers.values() and node.session in self._strangers

    def _chain_from(self, last: Place) -> list[tuple[Place, Place, bool]]:
        """Return the edges from my node to one of my owner's holds, of which the first goes to `last`."""
        chain = [(self._me.place, last, last in self._held)]
        while (waiter := self._held.get(last, last)) is not None:
            last = self._awaits[waiter]
            chain.append((waiter, last, last in self._held))
        return chain

    def _is_found(self) -> bool:
        """Return whether the chain is known, and all that decides whether its permits are too few."""
        return bool(self.chain) and not any(waiter.path in self._semaphores for waiter, _, _ in self.chain)

    def _find_free(self) -> set[Place]:
        """Return the waiters that would get permits if all others gave theirs back."""
        free: set[Place] = set()
        if self._is_found():
            return free
        held = Counter(place.path for place in self._held)
        for path, semaphore in self._semaphores.items():
            size = self._view.size(semaphore)
            left = None if size is None else size - held[f"{semaphore}/leases"]
            for name in self._queue(path).line:
                place = Place(path, name)
                if place not in self._awaits and place != self._me.place:
                    continue
                if left is not None and left < self._wanted(place, left):
                    # Those behind it wait for it, too.
                    break
                free.add(place)
        return free

    def _wanted(self, place: Place, left: int) -> int:
        """Return how many permits a waiter wants, if so many would be left; its data may have to be read."""
        if place == self._me.place:
            return self._me.permits
        if left > 0 and place not in self._view.nodes:
            self.nodes[place] = None
        found = self._view.nodes.get(place)
        return max(1, 0 if found is None else found[1].permits)


def _search(me: Waiter, view: SearchView) -> _Walk:
    """Find who waits, directly or not, for the holds of my owner, as far as the view tells."""
    free: set[Place] = set()
    while (walk := _Walk(me, view, free)).free and walk.is_complete():
        free |= walk.free
        if me.place in free:
            walk.chain = []
            break
    if not walk.is_complete():
        walk.chain = []
    return walk


def _is_path(path: str) -> bool:
    """Return whether a request can have this path, which any program may have written."""
    return path.startswith("/") and not any("\ud800" <= each <= "\udfff" for each in path)


def search(me: Waiter, view: SearchView | None = None) -> Generator[Ask, Answer, SearchResult]:
    """Search for a deadlock of which `me` is a part, and is the one to tell or to end.

    Args:
        me: the waiter.
        view: what was read already, to which the search adds what it asks for.
    """
    view = view or SearchView()
    view.loosely, view.strangely, view.requests = False, False, 0
    result = yield from _searched(me, view)
    everyone = me._replace(holds=(*me.holds, *me.loose), ends=False)
    for view.loosely, view.strangely in ((True, False), (True, True)):
        if result.cycle or not result.finished or (view.strangely and not result.strange):
            break
        result = yield from _searched(everyone, view)
    return result


def _searched(me: Waiter, view: SearchView) -> Generator[Ask, Answer, SearchResult]:
    """Search, and add to the view what that takes."""
    while True:
        found = _search(me, view)
        paths = [*found.paths][:MOST_AT_ONCE]
        ask = Ask(paths, [*found.nodes][: MOST_AT_ONCE - len(paths)])
        wanted = len(ask.paths) + len(ask.nodes)
        if found.chain or not wanted:
            break
        if view.requests + wanted > MOST_REQUESTS:
            return SearchResult((), (), view.unfollowed, False, view.requests, False)
        view.add(ask, (yield ask))
    cycle: tuple[DeadlockEdge, ...] = ()
    if found.chain:
        view = view.copy()
        listed = [path for path, queue in view.queues.items() if queue is not None]
        again = Ask([*listed, *(path for path in view.added if path not in listed)], again=True)
        view.add(again, (yield again))
        cycle = yield from _confirm(me, view)
    idle = tuple(found.mine) if found.idle else ()
    return SearchResult(
        cycle, idle, view.unfollowed, True, view.requests, bool(cycle) and not view.loosely, found.strange
    )


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
