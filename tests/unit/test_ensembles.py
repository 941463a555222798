"""Several ensembles as one: where a path is, who may use their list, and a model of lists that grow, without a server.

The model has one path, which moves from an old ensemble to a new one, and runs the library's rules step by step: each
step is one request, and a random one of the processes is next. Sessions end at any step.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import pytest

from zkconcurrent._protocol.ensembles import List, Plan, Record, first_part, floor, place

OLD, NEW = ("a",), ("a", "c")
PART = next(str(n) for n in range(100) if place(NEW, str(n)) == "c")
SEEDS = 1000


# -- the rules ---------------------------------------------------------------------------------------------------------


def test_a_place_never_changes() -> None:
    """The place of a path is the same in every version of the library: another one would be another lock."""
    names = ("zk1:2181#3f", "zk2:2181#70", "zk3:2181#a9")
    assert [place(names, part)[2] for part in ("7", "cart", "stock", "ä", "")] == ["1", "3", "2", "3", "2"]
    assert place(tuple(reversed(names)), "cart") == place(names, "cart")


def test_one_more_ensemble_takes_its_share() -> None:
    """The ensembles have equal shares, and one more takes its own from each; no path moves between the others."""
    names: List = tuple(f"zk{n}" for n in range(4))
    parts = [str(n) for n in range(4000)]
    before = {part: place(names, part) for part in parts}
    assert all(900 < each < 1100 for each in Counter(before.values()).values())
    after = {part: place((*names, "new"), part) for part in parts}
    moved = [part for part in parts if before[part] != after[part]]
    assert {after[part] for part in moved} == {"new"}
    assert 720 < len(moved) < 880
    assert {before[part] for part in moved} == set(names)


@pytest.mark.parametrize("base", ["/", "/app", "/app/ä"])
def test_the_first_part(base: str) -> None:
    """What lies directly below the base decides."""
    above = base.rstrip("/")
    assert first_part(base, f"{above}/7") == first_part(base, f"{above}/7/cart/x") == "7"


def test_who_may_use_an_ensemble() -> None:
    """Before a move the old list and those that move; while it is closed, only these; after it, these and the new."""
    old, moving, new = Plan(OLD, OLD), Plan(OLD, NEW), Plan(NEW, NEW)
    other, later = Plan(OLD, ("a", "d")), Plan(NEW, ("a", "c", "d"))
    plans = [old, moving, new, other, later, Plan(("c",), ("c",)), Plan(("c",), NEW)]
    may = {
        Record("a", (OLD,)): [old, moving, other],
        Record("a", (OLD,), NEW): [moving],
        Record("a", (OLD, NEW)): [moving, new, later],
        Record("a", (OLD, NEW), ("a", "c", "d")): [later],
        Record("c", (), NEW): [moving, new, Plan(("c",), NEW)],
        Record("c"): [],
    }
    for record, allowed in may.items():
        assert [plan for plan in plans if plan.may_use(record)] == allowed, record
        assert Record.load(record.dump()) == record


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"name": "a"}',
        b'{"name": "a", "lists": 3, "next": null}',
        b'{"name": 5, "lists": [["a"]], "next": null}',
        b'{"name": "a", "lists": "a", "next": null}',
        b'{"name": "a", "lists": [[["a"]]], "next": null}',
        b'{"name": "a", "lists": [], "next": "a"}',
    ],
)
def test_foreign_data(data: bytes) -> None:
    """Fault 338: data of another program are no record."""
    assert Record.load(data) is None


# -- the model ---------------------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """The parts that are left out, to see that the model finds it."""

    checks: bool = True
    closes: bool = True
    readmits: bool = True
    looks_last: bool = True
    raises: bool = True


class Expired(Exception):
    """The session is over."""


class Ensemble:
    """One ensemble: its record, its members' plans, and the queue of the path's lock."""

    def __init__(self, zxid: int, record: Record) -> None:
        self.zxid, self.record, self.version, self.mark = zxid, record, 0, 0
        self.members: dict[tuple[int, int], Plan] = {}
        self.queue: dict[int, tuple[int, int]] = {}

    def write(self, record: Record) -> None:
        """Write the record."""
        self.zxid += 1
        self.record, self.version = record, self.version + 1

    def create(self, session: tuple[int, int]) -> int:
        """Queue a node of a session; return its creation zxid."""
        self.zxid += 1
        self.queue[self.zxid] = session
        return self.zxid

    def expire(self, session: tuple[int, int]) -> None:
        """End a session: all its nodes go."""
        self.zxid += 1
        self.members.pop(session, None)
        self.queue = {zxid: owner for zxid, owner in self.queue.items() if owner != session}


class World:
    """The two ensembles, whoever is inside, and the resource that keeps the highest token."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.of = {"a": Ensemble(1000, Record("a", (OLD,))), "c": Ensemble(0, Record("c", (), NEW))}
        self.inside: int | None = None
        self.token = 0
        self.entries: Counter[str] = Counter()

    def enter(self, who: int, plan: Plan, token: int) -> None:
        """Let a holder in, and its token to the resource."""
        assert self.inside is None, "two are inside"
        assert token >= self.token, "the token fell"
        self.inside, self.token = who, token
        self.entries["moving" if plan.moves else str(len(plan.ends))] += 1


class Process:
    """One process with its plan; `steps` yields before each request."""

    def __init__(self, world: World, who: int, plan: Plan) -> None:
        self.world, self.who, self.plan = world, who, plan
        self.sessions = dict.fromkeys(world.of, 0)
        self.admitted: dict[str, int] = {}
        self.seen: dict[str, int] = {}

    def expire(self, name: str) -> None:
        """End its session on one ensemble; its lease has ended before, so it has left."""
        self.world.of[name].expire((self.who, self.sessions[name]))
        self.sessions[name] += 1
        if self.world.inside == self.who:
            self.world.inside = None

    def steps(self, cycles: int) -> Iterator[None]:
        """Begin, take the lock some times, and end."""
        if self.plan == Plan(NEW, NEW) and not (yield from self.move()):
            return
        for name in self.plan.ends:
            yield
            self.seen[name] = self.world.of[name].version
            if not self.plan.may_use(self.world.of[name].record):
                return
        for _ in range(cycles):
            try:
                if not (yield from self.cycle()):
                    break
            except Expired:
                pass
        for name, each in self.world.of.items():
            each.expire((self.who, self.sessions[name]))

    def move(self) -> Generator[None, None, bool]:
        """As `close` and `move` of the recipes."""
        old, new = self.world.of["a"], self.world.of["c"]
        while True:
            yield
            record, version = old.record, old.version
            if record.lists[-1] == NEW:
                break
            if record.next is None and self.world.fault.closes:
                yield
                if old.version == version:
                    old.write(record._replace(next=NEW))
                continue
            yield
            others = any(plan.ends != NEW for plan in old.members.values())
            yield
            if old.version == version:
                if others:
                    old.write(record._replace(next=None))
                    return False
                old.write(Record("a", (OLD, NEW)))
                old.mark = old.zxid
        yield
        new.write(Record("c", (OLD, NEW)))
        return True

    def admit(self, name: str, session: int) -> Generator[None, None, bool]:
        """As `_admit` of the engine."""
        there = self.world.of[name]
        while self.admitted.get(name) != session and (self.world.fault.readmits or name not in self.admitted):
            yield
            if self.sessions[name] != session:
                raise Expired
            if there.version == self.seen[name] or not self.world.fault.checks:
                there.members[self.who, session] = self.plan
                self.admitted[name] = session
            elif not self.plan.may_use(there.record):
                return False
            else:
                self.seen[name] = there.version
        return True

    def cycle(self) -> Generator[None, None, bool]:
        """Take the path's lock where the plan has it, once; False if that is refused."""
        places = dict.fromkeys((place(self.plan.uses, PART), place(self.plan.ends, PART)))
        held: dict[str, tuple[int, int]] = {}
        mark = None
        try:
            for name in places:
                there, session = self.world.of[name], self.sessions[name]
                if not (yield from self.admit(name, session)):
                    return False
                yield
                if self.sessions[name] != session:
                    raise Expired
                held[name] = there.create((self.who, session)), session
                while min(there.queue, default=0) != held[name][0]:
                    yield
                    if self.sessions[name] != session:
                        raise Expired
                if mark is None and not self.world.fault.looks_last:
                    yield
                    mark = self.world.of["a"].mark
            yield
            if any(self.sessions[name] != session for name, (_, session) in held.items()):
                raise Expired
            mark = self.world.of["a"].mark if mark is None or self.world.fault.looks_last else mark
            at = place(NEW if mark and "c" in held else self.plan.uses, PART)
            more = floor((OLD, NEW), PART, lambda *_: mark or 0) if at == "c" and self.world.fault.raises else 0
            self.world.enter(self.who, self.plan, held[at][0] + more)
            yield
            if self.world.inside == self.who:
                self.world.inside = None
            return True
        finally:
            for name, (zxid, _) in held.items():
                self.world.of[name].queue.pop(zxid, None)


def history(seed: int, fault: Fault) -> Counter[str]:
    """Run one; return how often the processes of each kind were inside."""
    choose = random.Random(seed)
    world = World(fault)
    plans = [Plan(OLD, OLD), Plan(OLD, NEW), Plan(OLD, NEW), Plan(NEW, NEW)]
    waiting = [(Process(world, who, choose.choice(plans)), choose.randrange(60)) for who in range(8)]
    running: list[tuple[Process, Any]] = []
    for time in range(2000):
        running += [(each, each.steps(choose.randrange(1, 4))) for each, begins in waiting if begins == time]
        if not running and time > 60:
            break
        if running:
            process, steps = choose.choice(running)
            if choose.random() < 0.03:
                process.expire(choose.choice(["a", "c"]))
            if next(steps, "over") == "over":
                running.remove((process, steps))
    return world.entries


def test_random_moves() -> None:
    """Fault 321: in no history are two inside, of whichever lists, nor does a token fall; all kinds get inside."""
    entries: Counter[str] = Counter()
    for seed in range(SEEDS):
        entries += history(seed, Fault())
    assert min(entries[kind] for kind in ("1", "moving", "2")) > SEEDS / 10, entries


@pytest.mark.parametrize("left_out", Fault._fields)
def test_the_model_finds_what_is_left_out(left_out: str) -> None:
    """Each part of the rules is needed: without it, some history has two inside, or a token that falls."""

    def breaks(seed: int) -> bool:
        try:
            history(seed, Fault(**{left_out: False}))
        except AssertionError:
            return True
        return False

    assert any(breaks(seed) for seed in range(4 * SEEDS))
