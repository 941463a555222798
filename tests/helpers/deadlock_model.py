"""Random programs that may deadlock, and an oracle: the search of `_protocol/deadlock_cycle.py` runs in them.

Owners acquire and release mutexes, some of which others may release, and read-write locks. Some waits have a deadline,
others are cancelled. One owner may be a stranger, whose nodes tell nothing. Each reads from a server that may lag, and
all of a search's reads interleave with what the others do. The oracle knows the true state at each instant. It knows
nothing of the search: an owner is in a deadlock if it waits, through whomever, for itself, each wait has no deadline,
and only its owner may release each hold.
"""

from __future__ import annotations

import json
import math
import random
import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from zkconcurrent._errors import DeadlockEdge
from zkconcurrent._protocol.blocking_rules import MUTEX, READ, WRITE, Rule, in_the_way
from zkconcurrent._protocol.deadlock_cycle import Place, Waiter, search
from zkconcurrent._protocol.node_info import NodeInfo
from zkconcurrent._protocol.node_names import unique
from zkconcurrent._protocol.operations import Node


@dataclass
class Options:
    """What the programs do."""

    timeouts: bool = False
    unending: bool = False
    unfair: bool = False
    bare: bool = False
    strangers: bool = False
    repeats: bool = False


@dataclass(eq=False)
class Znode:
    """A node, from its create on."""

    place: Place
    rule: Rule
    owner: Owner
    czxid: int
    ctime: float
    data: bytes
    bare: bool = False
    gone: float = math.inf
    # The nodes ahead of it, as of the transaction `seen`.
    ahead: list[Znode] = field(default_factory=list)
    seen: int = 0


@dataclass(eq=False)
class Owner:
    """A thread of a process."""

    number: int
    process: int
    budget: int
    at: int = 0
    holds: list[Znode] = field(default_factory=list)
    waits: Znode | None = None
    # It waits for this path inside of its process, without a node.
    inner: str | None = None
    until: float = math.inf
    ends: bool = True
    strange: bool = False

    @property
    def gives_up(self) -> bool:
        """Whether its wait has a deadline; otherwise one that ends is cancelled, and nobody knows before."""
        return self.until < math.inf and self.number % 2 > 0


@dataclass(eq=False)
class Check:
    """A search that is under way."""

    node: Znode
    steps: Iterator[None]
    was_stuck: bool = False


class Program:
    """One random program.

    Attributes:
        victims: how many waits were ended by an error.
        reported: the waits that reported a deadlock, and can't be ended.
        false: how many reports there were by a wait that was in no deadlock while it searched.
        twice: how many deadlocks had two victims, or were reported by two waits that can't be ended.
        unseen: whether owners are left in a deadlock that nobody has reported, or one of them could have been ended.
    """

    def __init__(self, seed: int, options: Options) -> None:
        self.random = rng = random.Random(seed)
        self.options = options
        self.zxid = 0
        self.now = 0.0
        self.nodes: list[Znode] = []
        paths = [f"/l{n}" for n in range(rng.randint(2, 5))]
        self.kinds = {path: rng.choice(("mutex", "mutex", "rw")) for path in paths}
        self.unfair = {path for path in paths if options.unfair and self.kinds[path] == "mutex" and rng.random() < 0.7}
        count = rng.randint(2, 6)
        self.owners = [Owner(n, rng.randrange(2) if options.unfair else n, rng.randint(2, 6)) for n in range(count)]
        self.owners[0].strange = options.strangers
        # How much faster the owners are than the searches.
        self.haste = rng.choice((1, 1, 4))
        self.checks: list[Check] = []
        self.victims = self.false = self.twice = 0
        self.reported: set[str] = set()
        self.unseen = False
        self.tellers: dict[tuple[bool, frozenset[str]], str] = {}

    # -- ZooKeeper -----------------------------------------------------------------------------------------------

    def there(self, path: str, zxid: float = math.inf) -> list[Znode]:
        """Return the nodes of a queue, at present or as of a transaction."""
        zxid = min(zxid, self.zxid)
        return [each for each in self.nodes if each.place.path == path and each.czxid <= zxid < each.gone]

    def create(self, owner: Owner, path: str, rule: Rule, number: str = "", *, bare: bool = False) -> Znode:
        """Create a node of an owner."""
        holds = [[each.place.path, unique(each.place.name)] for each in owner.holds if not (number or each.bare)]
        data: dict[str, Any] = {"host": "h", "pid": owner.process, "thread": f"t{owner.number}"}
        if holds:
            data["holds"] = holds
            if owner.ends:
                data["ends"] = 1
        if owner.gives_up:
            data["timeout"] = owner.until - self.now
        mark = uuid.UUID(int=self.random.getrandbits(128))
        text = str(mark)[:24] + ("8" if holds else "0") + str(mark)[25:]
        self.zxid += 1
        number = number or f"{len([each for each in self.nodes if each.place.path == path]):010d}"
        node = Znode(
            Place(path, f"_c_{text}-{rule.role}{number}"),
            rule,
            owner,
            self.zxid,
            self.now,
            b"10.0.0.1" if owner.strange else json.dumps(data).encode(),
            bare or owner.strange,
        )
        self.nodes.append(node)
        owner.at = self.zxid
        return node

    def delete(self, node: Znode) -> None:
        """Delete a node."""
        self.zxid += 1
        node.gone = self.zxid

    def ahead(self, node: Znode) -> list[Znode]:
        """Return the nodes that a node waits for; they are the same until a transaction."""
        if node.seen != self.zxid:
            node.ahead, node.seen = self._ahead(node), self.zxid
        return node.ahead

    def _ahead(self, node: Znode) -> list[Znode]:
        there = {each.place.name: each for each in self.there(node.place.path)}
        blocking = set(in_the_way(node.place.name, list(there), node.rule))
        number = node.rule.key(node.place.name)
        return [there[name] for name in blocking if node.rule.key(name) != number]

    def blocked(self, node: Znode) -> bool:
        """Return whether a node must wait."""
        return bool(self.ahead(node))

    # -- the oracle ----------------------------------------------------------------------------------------------

    def blockers(self, owner: Owner, holds: Owner | None = None) -> set[Owner]:
        """Return the owners that certainly must go on before this one can; of one of them, only its `holds` count."""
        if owner.strange or owner.gives_up:
            return set()
        if owner.inner is not None:
            nodes = [each for each in self.there(owner.inner) if each.owner.process == owner.process]
        else:
            nodes = [] if owner.waits is None else self.ahead(owner.waits)
        waits = {each.owner for each in nodes if each.owner.waits is each} - {holds}
        return waits | {each.owner for each in nodes if each.owner.waits is not each and not each.bare}

    def awaited(self, holds: Owner | None = None) -> dict[Owner, set[Owner]]:
        """Return for whom each owner waits, through whomever; of one of them, only its `holds` count."""
        edges = {each: self.blockers(each, holds) for each in self.owners}
        found: dict[Owner, set[Owner]] = {}
        for owner in self.owners:
            found[owner] = seen = set(edges[owner])
            todo = list(seen)
            while todo:
                new = edges[todo.pop()] - seen
                seen |= new
                todo += new
        return found

    def stuck(self) -> set[Owner]:
        """Return the owners that wait, through whomever, for themselves."""
        return {owner for owner, seen in self.awaited().items() if owner in seen}

    # -- what owners do ------------------------------------------------------------------------------------------

    def run(self) -> Program:
        """Run the program to its end."""
        rounds = 0
        for _ in range(20_000):
            ready = [each for each in self.owners if self.can_act(each)]
            actors: list[Owner | Check] = [*ready * self.haste, *self.checks]
            if not actors:
                waiting = [each.waits for each in self.owners if each.waits is not None]
                if rounds == 2 or not self.options.repeats or not waiting:
                    break
                rounds += 1
                for node in waiting:
                    # By then, its server has caught up.
                    node.owner.at = self.zxid
                    self.begin_check(node)
                continue
            self.now += 1
            before = self.zxid
            actor = self.random.choice(actors)
            if isinstance(actor, Check):
                if next(actor.steps, self) is self and actor in self.checks:
                    self.checks.remove(actor)
            else:
                self.act(actor)
            if self.zxid != before:
                rounds = 0
            self.checks = [each for each in self.checks if each.node.owner.waits is each.node]
            if self.checks:
                stuck = self.stuck()
                for each in self.checks:
                    each.was_stuck = each.was_stuck or each.node.owner in stuck
        # Of each that is left in one, somebody for whom it waits has reported it.
        spoke = {each for each in self.owners if each.waits is not None and each.waits.place.name in self.reported}
        self.unseen = any(owner in seen and not seen & spoke for owner, seen in self.awaited().items())
        # One that holds nothing, or for whose holds nobody waits, could not help by giving up.
        could = [each for each in self.owners if each.waits is not None and each.ends]
        self.unseen = self.unseen or any(each in self.awaited(each)[each] for each in could)
        return self

    def can_act(self, owner: Owner) -> bool:
        """Return whether an owner can do anything now."""
        if owner.waits is not None:
            return owner.until < math.inf or not self.blocked(owner.waits)
        if owner.inner is not None:
            mates = [each for each in self.there(owner.inner) if each.owner.process == owner.process]
            return bool(owner.holds) or not mates or owner.until < math.inf
        return owner.budget > 0 or bool(owner.holds)

    def act(self, owner: Owner) -> None:
        """Have an owner do one thing."""
        rng = self.random
        if owner.waits is not None:
            if not self.blocked(owner.waits):
                owner.holds.append(owner.waits)
                owner.waits, owner.until = None, math.inf
            elif owner.until <= self.now:
                self.give_up(owner)
        elif owner.inner is not None:
            mates = [each for each in self.there(owner.inner) if each.owner.process == owner.process]
            if owner.until <= self.now:
                owner.inner, owner.until = None, math.inf
            elif not mates or (owner.holds and rng.random() < 0.3):
                path, owner.inner = owner.inner, None
                self.queue(owner, path, MUTEX)
        elif owner.budget and (not owner.holds or rng.random() < 0.75):
            owner.budget -= 1
            writes = [each.place.path for each in owner.holds if each.rule == WRITE]
            self.acquire(owner, rng.choice(writes if writes and rng.random() < 0.5 else sorted(self.kinds)))
        elif owner.holds:
            self.release(owner, rng.choice(owner.holds))
        if self.options.bare and rng.random() < 0.3:
            bare = [(each, hold) for each in self.owners for hold in each.holds if hold.bare]
            if bare:
                self.release(*rng.choice(bare))

    def acquire(self, owner: Owner, path: str) -> None:
        """Begin an acquire."""
        mine = [each for each in owner.holds if each.place.path == path]
        rule = self.random.choice((READ, WRITE)) if self.kinds[path] == "rw" else MUTEX
        if mine and self.kinds[path] == "rw":
            rule = READ
        owner.ends = not self.options.unending or self.random.random() < 0.67
        ends = self.options.timeouts and self.random.random() < 0.5
        owner.until = self.now + self.random.randint(5, 60) if ends else math.inf
        if mine:
            writer = next((each for each in mine if each.rule == WRITE), None)
            if rule == READ and writer is not None and len(mine) == 1:
                owner.until = math.inf
                owner.holds.append(self.create(owner, path, READ, READ.key(writer.place.name)))
            return
        if path in self.unfair and any(each.owner.process == owner.process for each in self.there(path)):
            owner.inner = path
        else:
            self.queue(owner, path, rule)

    def queue(self, owner: Owner, path: str, rule: Rule) -> None:
        """Create the node of a waiter, which may hold at once."""
        bare = self.options.bare and rule == MUTEX and self.random.random() < 0.5
        node = owner.waits = self.create(owner, path, rule, bare=bare)
        if self.blocked(node):
            self.begin_check(node)

    def release(self, owner: Owner, hold: Znode) -> None:
        """Release a hold."""
        owner.holds.remove(hold)
        self.delete(hold)

    def give_up(self, owner: Owner) -> None:
        """End a wait."""
        assert owner.waits is not None
        self.delete(owner.waits)
        owner.waits, owner.until = None, math.inf

    def catch_up(self, owner: Owner) -> None:
        """Have the owner's server catch up with its leader, or not."""
        if self.random.random() < 0.4:
            owner.at = self.random.randint(owner.at, self.zxid)

    # -- the search ----------------------------------------------------------------------------------------------

    def begin_check(self, node: Znode) -> None:
        """Begin the search of a waiter, if its data tell of holds."""
        if not (node.owner.strange or node.owner.gives_up) and "holds" in json.loads(node.data):
            check = Check(node, iter(()))
            check.steps = self.check(check)
            self.checks.append(check)

    def check(self, check: Check) -> Generator[None, None, None]:
        """Run a search, read by read."""
        node, owner = check.node, check.node.owner
        for _ in range(self.random.choice((0, 2, 10))):
            yield
        check.was_stuck = owner in self.stuck()
        info = NodeInfo.parse(node.data)
        steps = search(Waiter(node.place, node.czxid, info.holds, lambda: self.now - node.ctime, info.ends))
        ask = next(steps)
        while True:
            if ask.again:
                for _ in range(self.random.randrange(3)):
                    yield
                owner.at = self.zxid
            listings, nodes = [], []
            for path in ask.paths:
                yield
                self.catch_up(owner)
                listings.append([each.place.name for each in self.there(path, owner.at)])
            for place in ask.nodes:
                yield
                self.catch_up(owner)
                found = next((each for each in self.there(place.path, owner.at) if each.place == place), None)
                nodes.append(found and Node(found.data, found.czxid, found.ctime, found.owner.number + 1))
            try:
                ask = steps.send((listings, nodes))
            except StopIteration as end:
                if end.value:
                    self.found(check, end.value)
                return

    def found(self, check: Check, cycle: tuple[DeadlockEdge, ...]) -> None:
        """Report a deadlock, or end the wait that has found it."""
        owner, name = check.node.owner, check.node.place.name
        self.false += not check.was_stuck
        members = frozenset(edge.waiter for edge in cycle)
        self.twice += self.tellers.setdefault((owner.ends, members), name) != name
        if not owner.ends:
            self.reported.add(name)
            return
        self.victims += 1
        self.give_up(owner)
        for hold in list(owner.holds):
            self.release(owner, hold)
