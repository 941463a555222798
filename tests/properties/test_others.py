"""Events, barriers, elections, queues, values and maps: none goes on too early or waits in vain; counts are exact."""

from __future__ import annotations

import queue
import threading
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.properties.machine import ANY, PATH, SHORT, Machine, explore, processes
from tests.properties.stage import PENDING, Actor
from zkconcurrent import JSON, AtomicLong, Barrier, Dict, Election, Event, LockLostError, Queue, SharedValue


class EventMachine(Machine):
    """`Event`: all that wait go on when it is set, and none before; also those that were cut off meanwhile."""

    OF: ClassVar[Any] = (Event,)
    OPS: ClassVar[list[Any]] = ["wait", "wait", "timed", "set", "clear", "set clear"]
    is_set = False

    def do(self, actor: Actor, op: str) -> None:
        of = self.at(actor)
        if op == "wait":
            self.begin(actor, self.is_set or PENDING, of.wait)
        elif op == "timed":
            self.begin(actor, self.is_set, of.wait, SHORT)
        else:
            self.begin(actor, None, lambda: [getattr(of, each)() for each in op.split()][-1])
            self.turn(op)

    def turn(self, op: str) -> None:
        """Set the flag, clear it, or both."""
        self.is_set = op == "set"
        for actor in list(self.pending) if op != "clear" else ():
            self.learns(actor, True)

    def seen(self) -> object:
        return self.stage.ask(self.outside.is_set)

    def modelled(self) -> object:
        return self.is_set

    def finish(self) -> None:
        self.stage.ask(self.outside.set)
        self.turn("set")


class BarrierMachine(Machine):
    """`Barrier`: three go on together, each with a place of its own, or none does.

    Attributes:
        misses: a party has died, and no other has seen that yet.
    """

    OF: ClassVar[Any] = (Barrier, 3)
    OPS: ClassVar[list[Any]] = ["wait", "wait", "wait", "timed", "reset", "reset", "abort"]
    broken = misses = False

    def do(self, actor: Actor, op: str) -> None:
        of = self.at(actor)
        if op in ("reset", "abort"):
            self.begin(actor, None, getattr(of, op))
            self.break_it(op == "abort")
            return
        breaks = self.broken or self.misses or (op == "timed" and len(self.pending) < 2)
        outcome = threading.BrokenBarrierError if breaks else PENDING
        self.begin(actor, outcome, of.wait, SHORT if op == "timed" else None)
        if breaks:
            self.break_it()
        elif len(self.pending) == 3:
            for index, each in enumerate(list(self.pending)):
                self.learns(each, index)

    def break_it(self, broken: bool = True) -> None:
        """End the waits."""
        self.broken, self.misses = broken, False
        for actor in list(self.pending):
            self.learns(actor, threading.BrokenBarrierError)

    def restored(self, process: str) -> None:
        if self.misses and any(each.process.name == process for each in self.pending):
            self.break_it()

    def expired(self, process: str) -> None:
        if any(each.process.name == process for each in self.pending):
            self.break_it()

    def gone(self, process: str) -> None:
        left = [each for each in self.pending if each.process.name != process]
        self.misses = self.misses or left != self.pending
        self.pending = left
        for each in {each.process.name for each in left} - self.cut:
            self.restored(each)

    def seen(self) -> object:
        return self.stage.ask(lambda: (self.outside.n_waiting, self.outside.broken))

    def modelled(self) -> object:
        return len(self.pending), self.broken

    def finish(self) -> None:
        self.stage.ask(self.outside.abort)
        self.break_it()


class ElectionMachine(Machine):
    """`Election`: the candidate that has stood longest leads; one whose session ends stands again, as the last."""

    OPS: ClassVar[list[Any]] = ["stand", "stand", "withdraw"]
    line: tuple[str, ...] = ()

    def make(self, client: Any) -> Any:
        return Election(client, PATH, id=client._connection.process.name)

    def do(self, actor: Actor, op: str) -> None:
        process = actor.process.name
        self.begin(actor, None, getattr(self.at(actor), op))
        if op == "withdraw":
            self.gone(process)
        elif process not in self.line:
            self.line += (process,)

    def expired(self, process: str) -> None:
        stands = process in self.line
        self.gone(process)
        self.line += (process,) * stands

    def gone(self, process: str) -> None:
        self.line = tuple(each for each in self.line if each != process)

    def seen(self) -> object:
        line = tuple(each.id for each in self.stage.ask(self.outside.candidates))
        return line, {name: each.is_leader() for name, each in self.objects.items()}

    def modelled(self) -> object:
        # One that is cut off does not trust its lease.
        return self.line, {each: self.line[:1] == (each,) and each not in self.cut for each in self.objects}

    def finish(self) -> None:
        for name in self.objects:
            self.do(self.actors[f"{name}1"], "withdraw")


class QueueMachine(Machine):
    """`Queue`: each item is taken once, in order; a claim that fails, or ends with its session, gives its item back.

    A client that keeps a listing sees an item which was given back only in the next one, so others may pass that item.

    Attributes:
        items: each item, with the actor that has claimed it.
        returned: the items that were given back.
        claiming: whether the last take of each actor is a claim.
        claims: those that have not ended.
    """

    TAKE: ClassVar[dict[str, dict[str, Any]]] = {"wait": {}, "try": {"block": False}, "timed": {"timeout": SHORT}}
    OPS: ClassVar[list[Any]] = [
        "put",
        "put",
        "ack",
        "fail",
        *((how, claims) for how in TAKE for claims in (True, False)),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.put_so_far = 0
        self.items: dict[int, Actor | None] = {}
        self.returned: set[int] = set()
        self.claiming: dict[Actor, bool] = {}
        self.claims: dict[Actor, Any] = {}

    def make(self, client: Any) -> Any:
        return Queue(client, PATH, codec=JSON)

    def free(self) -> list[int]:
        """Return the items that nobody has claimed."""
        return [item for item, owner in self.items.items() if owner is None]

    def do(self, actor: Actor, op: Any) -> None:
        """An actor has one claim at a time."""
        if op == "put":
            self.begin(actor, None, self.at(actor).put, self.new_item())
        elif op in ("ack", "fail"):
            self.end_claim(actor, op == "fail")
        elif actor not in self.claims:
            self.take(actor, *op)
        self.deliver()

    def new_item(self) -> int:
        """Add an item to the model; return it."""
        self.put_so_far += 1
        self.items[self.put_so_far] = None
        return self.put_so_far

    def take(self, actor: Actor, how: str, claims: bool) -> None:
        """Get the next item, or claim it."""

        def claim(**how: Any) -> Any:
            begun = self.at(actor).claim(**how)
            begun.__enter__()
            self.claims[actor] = begun
            return begun.item

        free, self.claiming[actor] = self.free(), claims
        outcome = ANY if free else PENDING if how == "wait" else queue.Empty
        self.begin(actor, outcome, claim if claims else self.at(actor).get, **self.TAKE[how])
        if free:
            self.stage.rest()
            first = [each for each in free if each not in self.returned][:1]
            assert actor.outcome in {*first, *self.returned.intersection(free)}, f"{actor.outcome}, of {free}"
            self.hand_out(actor.outcome, actor)

    def end_claim(self, actor: Actor, fails: bool) -> None:
        """Acknowledge an item, or give it back; if the claim is lost, another consumer may have it."""
        if (claim := self.claims.pop(actor, None)) is None:
            return
        item = next((item for item, owner in self.items.items() if owner is actor), None)
        error = ValueError() if fails else None
        outcome = LockLostError if item is None and not fails else None
        self.begin(actor, outcome, claim.__exit__, type(error) if fails else None, error, None)
        if item is not None and fails:
            self.give_back(item)
        elif item is not None:
            del self.items[item]

    def give_back(self, item: int) -> None:
        """End the claim of an item."""
        self.items[item] = None
        self.returned.add(item)

    def hand_out(self, item: Any, actor: Actor) -> None:
        """Give an item to a consumer."""
        self.learns(actor, item)
        if self.claiming[actor]:
            self.items[item] = actor
        else:
            del self.items[item]

    def deliver(self) -> None:
        """Give free items to those that wait; one that is cut off keeps its place, and the others behind it."""
        while self.pending and not self.is_cut(self.pending[0]) and self.free():
            self.hand_out(self.free()[0], self.pending[0])

    def restored(self, process: str) -> None:
        self.deliver()

    def expired(self, process: str) -> None:
        """Its consumers queue again: those that have an item already come first, in the order of the items."""
        again, line = [each for each in self.pending if each.process.name == process], self.line()
        self.without(process)
        place: Any = {each: (1, line.index(each.name)) if each.name in line else (0, each.outcome) for each in again}
        self.pending += sorted(again, key=place.get)
        self.deliver()

    def without(self, process: str) -> None:
        """Take away all that a session had; others get its items, each in its old place."""
        for item, owner in self.items.items():
            if owner is not None and owner.process.name == process:
                self.give_back(item)
        self.pending = [each for each in self.pending if each.process.name != process]
        self.deliver()

    def gone(self, process: str) -> None:
        self.claims = {actor: each for actor, each in self.claims.items() if actor.process.name != process}
        self.without(process)

    def line(self) -> list[str]:
        """Return the consumers that queue."""
        return self.stage.names_at(f"{PATH}/consumers")

    def seen(self) -> object:
        return self.stage.ask(self.outside.qsize), self.line()

    def modelled(self) -> object:
        return len(self.free()), [actor.name for actor in self.pending]

    def finish(self) -> None:
        while self.pending:
            self.stage.ask(lambda: self.outside.put(self.new_item()))
            self.deliver()
        self.stage.rest()
        self.the_world_is_as_modelled()
        for actor in list(self.claims):
            self.end_claim(actor, False)
            self.stage.rest()

    def left(self) -> list[str]:
        """The nodes of members stay for as long as their clients; claims and consumers do not."""
        return [each for each in super().left() if "/members/" not in each]


class AtomicLongMachine(Machine):
    """`AtomicLong`: each `add` is made once, also if replies are lost: it has an interval of the sum to itself.

    The calls overlap, so their outcomes are not known before: the machine looks at all of them together.

    Attributes:
        under_way: the calls that have not ended, each with its addend and its number.
        ended: the others, each with its outcome.
    """

    OF: ClassVar[Any] = (AtomicLong,)
    OPS: ClassVar[list[Any]] = [1, 2, 5]
    WHILE_CUT = True
    begun = 0

    def __init__(self) -> None:
        super().__init__()
        self.under_way: dict[Actor, tuple[int, int]] = {}
        self.ended: list[tuple[tuple[int, int], Any]] = []

    def do(self, actor: Actor, op: int) -> None:
        self.begun += 1
        self.under_way[actor] = op, self.begun
        self.begin(actor, ANY, self.change, self.at(actor), *self.under_way[actor])

    def change(self, of: Any, n: int, number: int) -> Any:
        """Make a change."""
        return of.add(n)

    @rule(moves=st.integers(0, 60), cuts=st.sets(processes), served=st.integers(0, 3))
    def all_at_once(self, moves: int, cuts: set[str], served: int) -> None:
        """Have all make a change at once; cut processes off meanwhile, so that requests and replies are lost."""
        for actor in self.actors.values():
            if not self.is_waiting(actor):
                self.do(actor, 1)
        self.stage.rest(moves_left=moves)
        for process in sorted(cuts - self.cut):
            self.cut.add(process)
            self.stage.cut(self.processes[process], served)
        self.stage.rest()

    def check(self, found: Any) -> None:
        """Compare the value with the outcomes."""
        end = 0
        for (n, _), total in sorted(self.ended, key=lambda each: each[1]):
            assert total - n >= end, f"{total} after an add of {n}: {self.ended}"
            end = total
        least = sum(n for (n, _), _ in self.ended)
        assert least <= found <= least + sum(n for n, _ in self.under_way.values()), f"{found}: {self.ended}"

    def seen(self) -> object:
        """Only calls of processes that are cut off go on."""
        for actor in [each for each in self.under_way if not self.is_waiting(each)]:
            self.ended.append((self.under_way.pop(actor), actor.outcome))
        self.check(self.stage.ask(self.outside.get))
        return [self.is_cut(each) for each in self.under_way]

    def modelled(self) -> object:
        return [True for _ in self.under_way]

    def left(self) -> list[str]:
        """Receipts stay for as long as their clients."""
        return []


class SharedValueMachine(AtomicLongMachine):
    """`SharedValue`: a list to which each `update` appends a word of its own."""

    def make(self, client: Any) -> Any:
        return SharedValue(client, PATH, [], codec=JSON)

    def change(self, of: Any, n: int, number: int) -> Any:
        return of.update(lambda old: [*old, number])

    def check(self, found: Any) -> None:
        """Each result continues those before it, and ends with its own word; each word is there once."""
        line = [*sorted((result for _, result in self.ended), key=len), found[0]]
        words = {word for (_, word), _ in self.ended}
        assert all(later[: len(one)] == one for one, later in pairwise(line)), f"{line}"
        assert all(result[-1] == word for (_, word), result in self.ended), f"{self.ended}"
        assert len(found[0]) == len(set(found[0])), f"{found}"
        assert words <= set(found[0]) <= words | {word for _, word in self.under_way.values()}, f"{found} {self.ended}"


class DictMachine(Machine):
    """`Dict`: the writes of one client after the other; all copies follow.

    Attributes:
        entries: the value of each key, and the process that wrote it.
    """

    EPHEMERAL: ClassVar[bool] = False
    OPS: ClassVar[list[Any]] = [
        (key, how) for key in "xy" for how in ("set", "setdefault", "replace", "pop", "remove", "pop by all")
    ]
    writes = 0

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, tuple[str, str]] = {}

    def make(self, client: Any) -> Any:
        return Dict(client, PATH, codec=JSON, ephemeral=self.EPHEMERAL)

    def do(self, actor: Actor, op: Any) -> None:
        key, how = op
        self.writes += 1
        of, new, (old, _) = self.at(actor), str(self.writes), self.entries.get(key, (None, ""))
        if how == "pop by all":
            self.pop_by_all(key, old)
        else:
            calls: dict[str, Any] = {
                "set": (None, of.__setitem__, key, new),
                "setdefault": (new if old is None else old, of.setdefault, key, new),
                "replace": (old is not None, of.replace, key, old, new),
                "pop": (old, of.pop, key, None),
                "remove": (False, of.remove, key, "another"),
            }
            self.begin(actor, *calls[how])
        if how.startswith("pop"):
            self.entries.pop(key, None)
        elif how == "set" or (how == "setdefault" and old is None) or (how == "replace" and old is not None):
            self.entries[key] = new, actor.process.name

    def pop_by_all(self, key: str, old: str | None) -> None:
        """Of several that pop a key at once, one gets the value."""
        actors = [each for each in self.actors.values() if not self.is_cut(each)]
        for actor in actors:
            self.begin(actor, ANY, self.at(actor).pop, key, None)
        self.stage.rest()
        got = [each.outcome for each in actors if each.outcome is not None]
        assert got == ([] if old is None else [old]), f"{got}, expected: {old}"

    def expired(self, process: str) -> None:
        """Entries that are ephemeral go with the session of their writer."""
        if self.EPHEMERAL:
            self.entries = {key: each for key, each in self.entries.items() if each[1] != process}

    gone = expired

    def seen(self) -> object:
        """Return the copies of all that are connected."""
        copies = [self.objects[each].copy for each in "ab" if each not in self.cut]
        return [self.stage.ask(copy) for copy in (self.outside.copy, *copies)]

    def modelled(self) -> object:
        return [{key: value for key, (value, _) in self.entries.items()}] * (3 - len(self.cut))

    def left(self) -> list[str]:
        """The writers' nodes stay for as long as their clients."""
        return []


class EphemeralDictMachine(DictMachine):
    """`Dict(ephemeral=True)`."""

    EPHEMERAL = True


OTHERS = [
    *(EventMachine, BarrierMachine, ElectionMachine, QueueMachine),
    *(AtomicLongMachine, SharedValueMachine, DictMachine, EphemeralDictMachine),
]


@pytest.mark.parametrize("machine", OTHERS)
def test_properties(machine: type[Machine]) -> None:
    """No sequence of steps makes a difference between the library and the model."""
    explore(machine)
