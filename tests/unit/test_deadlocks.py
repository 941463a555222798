"""The search for deadlocks: random programs against an oracle, seeded bugs, and what it costs and reads."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.helpers.deadlock_model import Options, Program
from zkconcurrent._protocol import deadlocks
from zkconcurrent._protocol.deadlocks import MOST_REQUESTS, UNREADABLE, Place, SearchResult, Waiter, search
from zkconcurrent._protocol.node_names import is_marked, unique
from zkconcurrent._protocol.operations import Node
from zkconcurrent._protocol.rules import Rule, behind, holders
from zkconcurrent._protocol.told import Told

PROGRAMS = int(os.environ.get("DEADLOCK_PROGRAMS", "600"))

KINDS = {
    "plain": Options(),
    "waits that end": Options(timeouts=True),
    "waits that can't be ended": Options(unending=True, repeats=True),
    "unfair locks": Options(unfair=True),
    "others may release": Options(bare=True),
    "permits": Options(permits=True),
    "permits, and others may release": Options(permits=True, bare=True),
    "a stranger": Options(strangers=True, repeats=True),
    "a stranger, and permits": Options(strangers=True, repeats=True, permits=True, bare=True),
    "everything": Options(unending=True, repeats=True, unfair=True, bare=True, permits=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_deadlock_is_missed_or_imagined(kind: str) -> None:
    """An error is raised only in a deadlock; each has one victim, or is told of; at the end nobody is left in one.

    The same of possible deadlocks, which end no wait: one member of each tells of it.
    """
    victims = possible = 0
    for seed in range(PROGRAMS):
        program = Program(seed, KINDS[kind]).run()
        assert (program.false, program.twice, program.unseen) == (0, 0, False), f"{kind}, program {seed}"
        assert (program.imagined, program.repeated, program.missed) == (0, 0, False), f"{kind}, program {seed}"
        victims += program.victims
        possible += program.possible
    assert victims >= PROGRAMS / 50
    options = KINDS[kind]
    assert (possible >= PROGRAMS / 50) is (options.bare or options.permits or options.strangers)


def no_soft_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those behind a waiter are not looked at."""

    def behind_holder(name: str, line: Sequence[str], rule: Rule) -> list[str]:
        return behind(name, line, rule) if name in holders(line, rule) else []

    monkeypatch.setattr(deadlocks, "behind", behind_holder)


def oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is to find it, by one search after its create."""
    monkeypatch.setattr(deadlocks, "left_out", lambda me, node, _: node.czxid < me.czxid)


def nothing(_: pytest.MonkeyPatch) -> None:
    """The mutant is in the options alone."""


def only_those_that_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Younger ones that can't be ended are not left out."""
    monkeypatch.setattr(deadlocks, "left_out", lambda me, node, told: node.czxid > me.czxid and told.ends)


def every_waiter_wants_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many permits a waiter wants is not read."""
    monkeypatch.setattr(deadlocks._Walk, "_wanted", lambda *_: 1)


def nobody_is_strange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers are not looked for."""
    monkeypatch.setattr(deadlocks, "is_strange", lambda *_: False)


# Of each mutant: what changes it, the programs that find it, by what.
MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Options, str]] = {
    "no confirmation": (nothing, Options(timeouts=True, confirms=False), "false"),
    "soft edges ignored": (no_soft_edges, Options(), "unseen"),
    "victim = oldest": (oldest, Options(), "unseen"),
    "holds as of the node before": (nothing, Options(stale_holds=True), "unseen"),
    "a hold named by its token": (nothing, Options(names_tokens=True), "unseen"),
    "waits inside a process unseen": (nothing, Options(unfair=True, inner_waits_queue=False), "unseen"),
    "a lock that others release counted": (nothing, Options(bare=True, counts_bare=True), "false"),
    "checked once": (nothing, Options(unending=True), "unseen"),
    "what others may release untold": (nothing, Options(bare=True, loose_tells=False), "missed"),
    "a possible one not confirmed": (nothing, Options(bare=True, confirms=False), "imagined"),
    "every waiter wants one permit": (every_waiter_wants_one, Options(permits=True), "missed"),
    "strangers are not looked for": (nobody_is_strange, Options(strangers=True, repeats=True), "missed"),
    "a possible one left to those that end": (only_those_that_end, Options(bare=True), "repeated"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule of the search is needed: without it, some program shows an error or a deadlock that nobody tells of."""
    change, options, by = MUTANTS[mutant]
    change(monkeypatch)
    for seed in range(10_000):
        if getattr(Program(seed, options).run(), by):
            return
    pytest.fail(f"no program finds it: {mutant}")


# -- by hand -------------------------------------------------------------------------------------------------------


class Tree:
    """Queues and data, which a search reads."""

    def __init__(self) -> None:
        self.queues: dict[str, list[str]] = {}
        self.nodes: dict[Place, Node] = {}
        self.asked: list[Any] = []

    def add(self, path: str, holds: Sequence[Place] = (), role: str = "lock-", **more: object) -> Place:
        """Add a node to a queue; later ones are younger."""
        number, czxid = len(self.queues.setdefault(path, [])), len(self.nodes) + 1
        mark = str(uuid.UUID(int=czxid))
        name = f"_c_{mark[:24]}{'8' if holds else '0'}{mark[25:]}-{role}{number:010d}"
        data: dict[str, object] = {"host": "h", "pid": 1, "thread": f"t{czxid}", "ends": 1, **more}
        if holds:
            data["holds"] = [[each.path, unique(each.name)] for each in holds]
        assert is_marked(name) == bool(holds)
        self.queues[path].append(name)
        self.nodes[Place(path, name)] = Node(json.dumps(data).encode(), czxid, 100.0 + czxid, 1)
        return Place(path, name)

    def search(self, place: Place, *, ends: bool = True, waited: float = 2.0) -> SearchResult:
        """Return what the search of a waiter finds."""
        node = self.nodes[place]
        told = Told.by_data(node.data)
        steps = search(Waiter(place, node.czxid, told.holds, ends, lambda: waited, told.loose))
        try:
            ask = next(steps)
            while True:
                self.asked.append(ask)
                listings: list[list[str] | None] = [self.queues.get(path, []) for path in ask.paths]
                for n, path in enumerate(ask.paths):
                    if path.startswith("/secret"):
                        listings[n] = None
                ask = steps.send((listings, [self.nodes.get(each) for each in ask.nodes]))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def ring(tree: Tree, size: int, **more: object) -> list[Place]:
    """Add owners of one lock each who wait for the next one's, the last for the first's; return their waiters."""
    held = [tree.add(f"/{n}") for n in range(size)]
    return [tree.add(f"/{(n + 1) % size}", [held[n]], **more) for n in range(size)]


def test_what_is_told() -> None:
    """The edges go from the waiter to its own hold, with who waits for how long."""
    tree = Tree()
    waiters = ring(tree, 3)
    found = tree.search(waiters[2])
    assert [edge.path for edge in found.cycle] == ["/0", "/1", "/2"]
    assert [edge.thread for edge in found.cycle] == ["t6", "t4", "t5"]
    assert [edge.age for edge in found.cycle] == [2.0, 4.0, 3.0]
    assert all(edge.hard for edge in found.cycle)
    assert "thread 't6' of process 1 on host 'h' waits for /0" in deadlocks.described(found.cycle)
    # Three lists and two reads, then all three lists again behind a sync, and the waiter's own node.
    assert found.requests == 10
    assert [tree.search(each).cycle for each in waiters[:2]] == [(), ()]


def test_what_an_ordinary_wait_costs() -> None:
    """A waiter whose one lock nobody waits for takes one listing, and none if its owner holds nothing."""
    tree = Tree()
    held = tree.add("/held")
    tree.add("/wanted")
    found = tree.search(tree.add("/wanted", [held]))
    assert found == SearchResult((), ("/held",), 0, True, 1, False)


def test_a_long_chain_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a chain of waits, each waiter reads its neighbour alone; if nothing were left out, it would read them all."""
    tree = Tree()
    held = [tree.add(f"/{n}") for n in range(60)]
    chain = [tree.add(f"/{n}", [held[n + 1]]) for n in range(59)]
    assert sum(tree.search(each).requests for each in chain) <= 2 * len(chain)
    monkeypatch.setattr(deadlocks, "left_out", lambda *_: False)
    assert sum(tree.search(each).requests for each in chain) > len(chain) ** 2 / 2


def test_the_limit_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that would take more requests ends, and says so; it makes nobody a victim."""
    monkeypatch.setattr(deadlocks, "left_out", lambda *_: False)
    tree = Tree()
    held = tree.add("/0")
    me = tree.add("/wanted", [held])
    for n in range(1, MOST_REQUESTS + 10):
        tree.add("/0", [tree.add(f"/more{n}")])
    found = tree.search(me)
    assert (found.cycle, found.finished) == ((), False)
    assert MOST_REQUESTS - 64 < found.requests <= MOST_REQUESTS
    assert all(len(ask.paths) + len(ask.nodes) <= 64 for ask in tree.asked)


def test_what_can_not_be_followed() -> None:
    """Queues that may not be read, data that are not ours, and holds that are left out, are counted."""
    tree = Tree()
    hidden, first, second = Place("/secret", "_c_x"), tree.add("/0"), tree.add("/1")
    kazoo = Place("/kazoo", f"{'0' * 32}__lock__0000000001")
    tree.queues["/kazoo"] = [kazoo.name]
    tree.add("/wanted")
    tree.nodes[tree.add("/0", [second])] = UNREADABLE
    tree.nodes[tree.add("/0", [second])] = Node(b"10.0.0.1", 3, 0.0, 1)
    tree.add("/0", [second], more=2, ends=0)
    me = tree.add("/wanted", [hidden, first, kazoo])
    # The nodes above are older than mine.
    assert tree.search(me).unfollowed == 5
    assert tree.search(me).cycle == ()


@pytest.mark.parametrize(
    "data",
    [b"{", b"[]", b'{"holds": 7}']
    + [
        b'{"host":"h","pid":1,"thread":"t","holds":%b}' % holds
        for holds in (b'[["/a"]]', b'[["", ""], ["/\\ud800", ""]]')
    ],
)
def test_strange_data(data: bytes) -> None:
    """Whatever a node says, the search goes on."""
    tree = Tree()
    waiters = ring(tree, 2)
    tree.nodes[waiters[0]] = Node(data, 3, 0.0, 1)
    assert tree.search(waiters[1]).cycle == ()
    assert {path for ask in tree.asked for path in ask.paths} <= {"/0", "/1"}


def test_a_wait_that_is_over() -> None:
    """A member whose timeout has run out by the servers' clock does not count, though its node is still there."""
    tree = Tree()
    held = [tree.add("/0"), tree.add("/1")]
    tree.add("/1", [held[0]], timeout=5.0)
    me = tree.add("/0", [held[1]])
    assert len(tree.search(me, waited=3.0).cycle) == 2
    assert tree.search(me, waited=4.5).cycle == ()


def test_a_member_that_goes_meanwhile() -> None:
    """A node that is gone when all is listed again does not count."""
    tree = Tree()
    waiters = ring(tree, 2)
    steps = tree.queues["/1"]

    class Going(list[str]):
        def __iter__(self) -> Any:
            listed = [*steps]
            if any(ask.again for ask in tree.asked):
                listed.remove(waiters[0].name)
            return iter(listed)

    tree.queues["/1"] = Going(steps)
    assert tree.search(waiters[1]).cycle == ()


def test_a_soft_edge() -> None:
    """A reader waits behind a writer that waits itself."""
    tree = Tree()
    reads = tree.add("/rw", role="__READ__")
    other = tree.add("/0")
    tree.add("/rw", role="__WRIT__")
    tree.add("/rw", [other], role="__READ__", ends=0)
    me = tree.add("/0", [reads])
    found = tree.search(me)
    assert [edge.hard for edge in found.cycle] == [True, False, True]
    assert [edge.path for edge in found.cycle] == ["/0", "/rw", "/rw"]


def test_a_waiter_that_can_not_end_leaves_out_all_younger_ones() -> None:
    """So one of several that can only tell of a deadlock does."""
    tree = Tree()
    waiters = ring(tree, 3, ends=0)
    assert [bool(tree.search(each, ends=False).cycle) for each in waiters] == [False, False, True]


def test_a_younger_one_for_whose_holds_nobody_waits() -> None:
    """Where the youngest can't be ended, and another one is a member by its place alone, a third is the victim."""
    tree = Tree()
    reads, outer, other = tree.add("/rw", role="__READ__"), tree.add("/outer"), tree.add("/other")
    me = tree.add("/outer", [reads])
    writer = tree.add("/rw", [other], role="__WRIT__")
    youngest = tree.add("/rw", [outer], role="__READ__", ends=0)
    assert [edge.hard for edge in tree.search(me).cycle] == [True, False, True]
    assert tree.search(writer).cycle == ()
    assert len(tree.search(youngest, ends=False).cycle) == 3


@pytest.mark.parametrize("loose", [(True, True), (True, False), (False, True)])
def test_a_possible_deadlock(loose: tuple[bool, bool]) -> None:
    """One hold that others may end is enough: the youngest tells of it, and it is not certain."""
    tree = Tree()
    held = [tree.add("/0"), tree.add("/1")]
    first, second = (
        tree.add(f"/{1 - n}", [held[n]], **({"loose": [[held[n].path, unique(held[n].name)]]} if loose[n] else {}))
        for n in range(2)
    )
    for each, is_loose in zip((first, second), loose, strict=True):
        if is_loose:
            node = tree.nodes[each]
            data = {**json.loads(node.data), "holds": []}
            tree.nodes[each] = node._replace(data=json.dumps(data).encode())
    found = tree.search(second)
    assert (len(found.cycle), found.certain) == (2, False)
    assert tree.search(first).cycle == ()


class Permits:
    """A semaphore of a `Tree`."""

    def __init__(self, tree: Tree, path: str, size: int, added: int = 0) -> None:
        self._tree, self._path, self._held = tree, path, 0
        number = str(size - added).encode()
        tree.nodes[Place(path, "permits")] = Node(number + b" resized" * (added > 0), 1, 0.0, 0)
        tree.queues[f"{path}/permits"] = [f"{uuid.uuid4()}-{added}"] if added else []

    def hold(self) -> Place:
        """Have a permit held."""
        return self._tree.add(f"{self._path}/leases", role="lease-")

    def wait(self, held: Sequence[Place], permits: int = 1) -> Place:
        """Have an owner wait, that holds what others may end."""
        return waits_loosely(self._tree, f"{self._path}/locks", held, permits=permits)


def waits_loosely(tree: Tree, path: str, held: Sequence[Place], **more: object) -> Place:
    """Add a waiter whose owner holds what others may end."""
    loose = [[each.path, unique(each.name)] for each in held]
    place = tree.add(path, held, **more)
    node = tree.nodes[place]
    data = {**json.loads(node.data), "holds": [], "loose": loose}
    tree.nodes[place] = node._replace(data=json.dumps(data).encode())
    return place


@pytest.mark.parametrize(
    ("size", "wanted", "found"), [(1, 1, True), (2, 1, False), (2, 2, True), (3, 2, False), (3, 3, True)]
)
@pytest.mark.parametrize("added", [0, 1])
def test_permits(size: int, wanted: int, added: int, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder of a permit waits for the lock of a waiter for permits: stuck, if the others would be too few."""
    tree = Tree()
    permits = Permits(tree, "/s", size, added)
    mine, theirs = permits.hold(), tree.add("/l")
    others = [permits.hold() for _ in range(size - 1)]
    permits.wait([theirs], wanted)
    me = waits_loosely(tree, "/l", [mine])
    result = tree.search(me)
    assert (len(result.cycle), result.certain) == (2 * found, False)
    assert [edge.path for edge in result.cycle] == ["/l", "/s/locks"][: 2 * found]
    if found:
        del tree.queues["/s/leases"][0]
        assert tree.search(me).cycle == ()
    assert len(others) == size - 1
    # Without the rule, any wait for a permit would count as one for all of them.
    monkeypatch.setattr(deadlocks._Walk, "_find_free", lambda _: set())
    assert bool(tree.search(me).cycle) is not found


def test_permits_of_which_nobody_waits() -> None:
    """The queue for them is what is looked at again."""
    tree = Tree()
    permits = Permits(tree, "/s", 2)
    mine = permits.hold()
    tree.add("/wanted")
    assert tree.search(waits_loosely(tree, "/wanted", [mine])).idle == ("/s/locks",)


def test_a_stranger() -> None:
    """Java holds what I wait for, and waits in the same session for my hold, or behind one of us: possible."""
    for session, found in ((7, True), (8, False)):
        tree = Tree()
        theirs, mine, others = tree.add("/b"), tree.add("/a"), tree.add("/c")
        waits = tree.add("/c")
        tree.add("/a", [others])
        me = tree.add("/b", [mine])
        for place, its in ((theirs, 7), (waits, session)):
            tree.nodes[place] = Node(b"10.0.0.1", 3, 100.0, its)
        result = tree.search(me)
        assert [edge.path for edge in result.cycle] == ["/b", "/c", "/a"] * found
        assert not result.certain


def test_its_own_hold() -> None:
    """A wait for a hold of one's own is told of as it begins, and not again here."""
    tree = Tree()
    assert tree.search(tree.add("/0", [tree.add("/0")])) == SearchResult((), ("/0",), 0, True, 1, False)
