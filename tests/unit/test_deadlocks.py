"""The search for deadlocks: random programs against an oracle, and what it costs and reads."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from tests.helpers.deadlock_model import Options, Program
from zkconcurrent._protocol import deadlock_cycle
from zkconcurrent._protocol.deadlock_cycle import MOST_REQUESTS, UNREADABLE, Cycle, Place, Waiter, search
from zkconcurrent._protocol.node_info import NodeInfo
from zkconcurrent._protocol.node_names import is_marked, unique
from zkconcurrent._protocol.operations import Node

PROGRAMS = int(os.environ.get("DEADLOCK_PROGRAMS", "400"))

KINDS = {
    "waits that end": Options(timeouts=True),
    "waits that can't be ended": Options(unending=True, repeats=True),
    "unfair locks": Options(unfair=True),
    "a stranger": Options(strangers=True),
    "everything": Options(timeouts=True, unending=True, repeats=True, unfair=True, bare=True, strangers=True),
}


@pytest.mark.fault(280)
@pytest.mark.parametrize("kind", KINDS)
def test_no_deadlock_is_missed_or_imagined(kind: str) -> None:
    """Only who is in a deadlock reports it; each has one victim, or is reported once; nobody is left in another one."""
    victims = 0
    for seed in range(PROGRAMS):
        program = Program(seed, KINDS[kind]).run()
        assert (program.false, program.twice, program.unseen) == (0, 0, False), f"{kind}, program {seed}"
        victims += program.victims
    assert victims >= PROGRAMS / 50


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
        data: dict[str, object] = {"host": "h", "pid": 1, "thread": f"t{czxid}", **more}
        if holds:
            data["holds"] = [[each.path, unique(each.name)] for each in holds]
        assert is_marked(name) == bool(holds)
        self.queues[path].append(name)
        self.nodes[Place(path, name)] = Node(json.dumps(data).encode(), czxid, 100.0 + czxid, 1)
        return Place(path, name)

    def search(self, place: Place) -> Cycle | None:
        """Return what the search of a waiter finds."""
        node = self.nodes[place]
        info = NodeInfo.parse(node.data)
        self.asked = []
        steps = search(Waiter(place, node.czxid, info.holds, lambda: 2.0, info.ends))
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

    def requests(self) -> int:
        """Return how many requests the last search has taken."""
        return sum(len(ask.paths) + len(ask.nodes) + ask.again for ask in self.asked)


def ring(tree: Tree, size: int, **more: object) -> list[Place]:
    """Add owners of one lock each who wait for the next one's, the last for the first's; return their waiters."""
    held = [tree.add(f"/{n}") for n in range(size)]
    return [tree.add(f"/{(n + 1) % size}", [held[n]], **more) for n in range(size)]


def test_what_is_told() -> None:
    """The edges go from the waiter to its own hold, with who waits for how long."""
    tree = Tree()
    waiters = ring(tree, 3)
    found = tree.search(waiters[2])
    assert found is not None
    # Three lists and two reads, then all three lists again behind a sync, and the waiter's own node.
    assert tree.requests() == 10
    assert [edge.path for edge in found] == ["/0", "/1", "/2"]
    assert [edge.thread for edge in found] == ["t6", "t4", "t5"]
    assert [edge.age for edge in found] == [2.0, 4.0, 3.0]
    assert all(edge.hard for edge in found)
    assert "thread 't6' of process 1 on host 'h' waits for /0" in deadlock_cycle.described(found)
    assert [tree.search(each) for each in waiters[:2]] == [(), ()]


def test_what_an_ordinary_wait_costs() -> None:
    """A waiter whose one lock nobody waits for takes one listing, and none if its owner holds nothing."""
    tree = Tree()
    held = tree.add("/held")
    tree.add("/wanted")
    assert tree.search(tree.add("/wanted", [held])) == ()
    assert tree.requests() == 1
    assert tree.search(tree.add("/wanted")) == ()
    assert tree.requests() == 0


@pytest.mark.fault(283)
def test_the_limit_of_requests() -> None:
    """A search that would take more requests ends, and says so; it makes nobody a victim."""
    tree = Tree()
    held = tree.add("/0")
    for n in range(1, MOST_REQUESTS + 10):
        tree.add("/0", [tree.add(f"/more{n}")])
    assert tree.search(tree.add("/wanted", [held])) is None
    assert MOST_REQUESTS - 64 < tree.requests() <= MOST_REQUESTS
    assert all(len(ask.paths) + len(ask.nodes) <= 64 for ask in tree.asked)


@pytest.mark.fault(283)
@pytest.mark.parametrize("why", ["gives up", "tells nothing", "may not be read", "queue may not be read", "kazoo's"])
def test_what_is_not_certain(why: str) -> None:
    """A ring through a wait that gives up by itself, or through what can't be followed, is none."""
    tree = Tree()
    first, second = tree.add("/secret" if why == "queue may not be read" else "/0"), tree.add("/1")
    other = tree.add("/1", [first], **{"timeout": 5.0} if why == "gives up" else {})
    me = tree.add(first.path, [second])
    if why == "kazoo's":
        tree.queues["/1"].append(f"{'0' * 32}__lock__0000000001")
    elif why in ("tells nothing", "may not be read"):
        tree.nodes[other] = Node(b"10.0.0.1", 3, 0.0, 1) if why == "tells nothing" else UNREADABLE
    assert tree.search(me) == ()


@pytest.mark.parametrize(
    "data", [b"{", b'{"holds": 7}', b'{"host":"h","pid":1,"thread":"t","holds":[["", ""], ["/\\ud800", ""]]}']
)
def test_strange_data(data: bytes) -> None:
    """Whatever a node says, the search goes on."""
    tree = Tree()
    waiters = ring(tree, 2)
    tree.nodes[waiters[0]] = Node(data, 3, 0.0, 1)
    assert tree.search(waiters[1]) == ()
    assert {path for ask in tree.asked for path in ask.paths} <= {"/0", "/1"}


@pytest.mark.fault(283)
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
    assert tree.search(waiters[1]) == ()
