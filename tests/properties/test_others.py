"""Latches, events, barriers, elections, queues, values and maps: as their models say, whatever is cut or killed."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from tests.models import barrier, dictionary, election, event, latch, queue, values
from tests.models.history import Call, Model
from tests.properties.machine import PATH, TIMEOUTS, Machine, explore
from tests.properties.stage import Actor
from zkconcurrent import JSON, AtomicLong, Barrier, CountDownLatch, Dict, Election, Event, Queue, SharedValue


class LatchMachine(Machine):
    """`CountDownLatch`."""

    OF: ClassVar[Any] = (CountDownLatch, 6)
    MODEL: ClassVar[Model] = latch.Latch(6)
    OPS: ClassVar[list[Any]] = ["wait", "wait", "timed", 1, 1, 2]

    def ask(self, actor: Actor, op: Any) -> None:
        of = self.at(actor)
        if op in TIMEOUTS:
            self.begin(actor, "wait", lambda: of.wait(TIMEOUTS[op]), timeout=TIMEOUTS[op])
        else:
            self.begin(actor, "count_down", lambda: of.count_down(op), op)

    def seen(self) -> object:
        return self.stage.ask(lambda: self.outside.count)

    def modelled(self, state: Any) -> object:
        return state

    def finish(self) -> None:
        self.stage.ask(lambda: self.outside.count_down(6))
        self.judge.happens(Call("outside", "count_down", (6,)))


class EventMachine(Machine):
    """`Event`."""

    OF: ClassVar[Any] = (Event,)
    MODEL: ClassVar[Model] = event.Event()
    OPS: ClassVar[list[Any]] = ["wait", "wait", "timed", "set", "clear", "pulse"]

    def ask(self, actor: Actor, op: str) -> None:
        of = self.at(actor)
        if op in TIMEOUTS:
            self.begin(actor, "wait", lambda: of.wait(TIMEOUTS[op]), timeout=TIMEOUTS[op])
        else:
            self.begin(actor, op, lambda: (of.set(), of.clear())[1] if op == "pulse" else getattr(of, op)())

    def seen(self) -> object:
        return self.stage.ask(self.outside.is_set)

    def modelled(self, state: Any) -> object:
        return state.is_set

    def finish(self) -> None:
        self.stage.ask(self.outside.set)
        self.judge.happens(Call("outside", "set"))


class BarrierMachine(Machine):
    """`Barrier`."""

    OF: ClassVar[Any] = (Barrier, 3)
    MODEL: ClassVar[Model] = barrier.Barrier(3)
    OPS: ClassVar[list[Any]] = ["wait", "wait", "wait", "timed", "reset", "reset", "abort"]

    def ask(self, actor: Actor, op: str) -> None:
        of = self.at(actor)
        if op in TIMEOUTS:
            self.begin(actor, "wait", lambda: of.wait(TIMEOUTS[op]), timeout=TIMEOUTS[op])
        else:
            self.begin(actor, op, getattr(of, op))

    def seen(self) -> object:
        return self.stage.ask(lambda: (self.outside.n_waiting, self.outside.broken))

    def modelled(self, state: Any) -> object:
        return len(state.waiting), state.broken

    def finish(self) -> None:
        self.stage.ask(self.outside.abort)
        self.judge.happens(Call("outside", "abort"))


class ElectionMachine(Machine):
    """`Election`."""

    MODEL: ClassVar[Model] = election.Election()
    OPS: ClassVar[list[Any]] = ["stand", "stand", "withdraw"]

    def make(self, client: Any) -> Any:
        return Election(client, PATH, id=client._connection.process.name)

    def ask(self, actor: Actor, op: str) -> None:
        self.begin(actor, op, getattr(self.at(actor), op))

    def seen(self) -> object:
        line = tuple(each.id for each in self.stage.ask(self.outside.candidates))
        return line, {name: each.is_leader() for name, each in self.objects.items()}

    def modelled(self, state: Any) -> object:
        # One that is cut off does not trust its lease.
        return state, {each: state[:1] == (each,) and each not in self.cut for each in self.objects}

    def finish(self) -> None:
        for process in self.objects:
            self.ask(self.actors[f"{process}1"], "withdraw")


class QueueMachine(Machine):
    """`Queue`.

    Attributes:
        put_so_far: how many items were put.
        claims: those of actors that have not ended.
    """

    OF: ClassVar[Any] = (Queue,)
    MODEL: ClassVar[Model] = queue.Queue()
    OPS: ClassVar[list[Any]] = [
        *("put", "put", "ack", "fail"),
        *((what, how) for how in TIMEOUTS for what in ("get", "claim")),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.put_so_far = 0
        self.claims: dict[Actor, Any] = {}

    def make(self, client: Any) -> Any:
        return Queue(client, PATH, codec=JSON)

    def ask(self, actor: Actor, op: Any) -> None:
        """An actor has one claim at a time."""
        if op == "put":
            self.put_so_far += 1
            self.begin(actor, "put", lambda item=self.put_so_far: self.at(actor).put(item), self.put_so_far)
        elif op in ("ack", "fail"):
            self.end_claim(actor, op)
        elif actor not in self.claims:
            what, how = op
            arguments = {"block": False} if how == "try" else {"timeout": TIMEOUTS[how]}
            take = self.at(actor).get if what == "get" else lambda **how: self.claim(actor, **how)
            self.begin(actor, what, lambda: take(**arguments), timeout=TIMEOUTS[how])

    def claim(self, actor: Actor, **how: Any) -> Any:
        """Claim an item."""
        begun = self.at(actor).claim(**how)
        begun.__enter__()
        self.claims[actor] = begun
        return begun.item

    def end_claim(self, actor: Actor, how: str) -> None:
        """Acknowledge an item, or give it back."""
        if (claim := self.claims.pop(actor, None)) is not None:
            error = ValueError() if how == "fail" else None
            self.begin(actor, how, lambda: claim.__exit__(error and ValueError, error, None))

    def replaced(self, process: str) -> None:
        self.claims = {actor: each for actor, each in self.claims.items() if actor.process.name != process}

    def seen(self) -> object:
        return self.stage.ask(self.outside.qsize), self.stage.names_at(f"{PATH}/consumers")

    def modelled(self, state: Any) -> object:
        return len(state.free), [each.actor for each in state.line]

    def finish(self) -> None:
        while self.state().line:
            self.put_so_far += 1
            self.stage.ask(lambda: self.outside.put(self.put_so_far))
            self.judge.happens(Call("outside", "put", (self.put_so_far,)))
            self.settle()
        for actor in list(self.claims):
            self.end_claim(actor, "ack")
            self.settle()

    def left(self) -> list[str]:
        """The nodes of members stay for as long as their clients; claims and consumers do not."""
        return [each for each in super().left() if "/members/" not in each]


class AtomicLongMachine(Machine):
    """`AtomicLong`."""

    OF: ClassVar[Any] = (AtomicLong,)
    MODEL: ClassVar[Model] = values.AtomicLong()
    OPS: ClassVar[list[Any]] = [1, 2, 5]
    WHILE_CUT = CUT_MEANWHILE = True

    def ask(self, actor: Actor, op: int) -> None:
        self.begin(actor, "add", lambda: self.at(actor).add(op), op)

    def seen(self) -> object:
        return self.stage.ask(self.outside.get)

    def modelled(self, state: Any) -> object:
        return state

    def left(self) -> list[str]:
        """Receipts stay for as long as their clients."""
        return []


class SharedValueMachine(AtomicLongMachine):
    """`SharedValue`: a list to which each `update` appends a word of its own."""

    MODEL: ClassVar[Model] = values.SharedValue()
    words = 0

    def make(self, client: Any) -> Any:
        return SharedValue(client, PATH, [], codec=JSON)

    def ask(self, actor: Actor, op: int) -> None:
        self.words += 1
        word = self.words
        self.begin(actor, "update", lambda: (*self.at(actor).update(lambda old: [*old, word]),), word)

    def seen(self) -> object:
        return tuple(self.stage.ask(self.outside.get).value)


class DictMachine(Machine):
    """`Dict`."""

    EPHEMERAL: ClassVar[bool] = False
    MODEL: ClassVar[Model] = dictionary.Dict(ephemeral=False)
    OPS: ClassVar[list[Any]] = [
        (how, key) for key in "xy" for how in ("set", "setdefault", "replace", "pop", "remove", "remove another")
    ]
    writes = 0

    def make(self, client: Any) -> Any:
        return Dict(client, PATH, codec=JSON, ephemeral=self.EPHEMERAL)

    def ask(self, actor: Actor, op: Any) -> None:
        how, key = op
        self.writes += 1
        of, new = self.at(actor), str(self.writes)
        old = next((each.value for each in self.state() if each.key == key), "none")
        if how == "set":
            self.begin(actor, how, lambda: of.__setitem__(key, new), key, new)
        elif how == "setdefault":
            self.begin(actor, how, lambda: of.setdefault(key, new), key, new)
        elif how == "pop":
            self.begin(actor, how, lambda: of.pop(key, None), key)
        elif how == "replace":
            self.begin(actor, how, lambda: of.replace(key, old, new), key, old, new)
        else:
            value = old if how == "remove" else "another"
            self.begin(actor, "remove", lambda: of.remove(key, value), key, value)

    def seen(self) -> object:
        """Return the copies of all that are connected."""
        copies = [self.objects[each].copy for each in "ab" if each not in self.cut]
        return [self.stage.ask(copy) for copy in (self.outside.copy, *copies)]

    def modelled(self, state: Any) -> object:
        return [{each.key: each.value for each in state}] * (3 - len(self.cut))

    def left(self) -> list[str]:
        """The writers' nodes stay for as long as their clients."""
        return []


class EphemeralDictMachine(DictMachine):
    """`Dict(ephemeral=True)`."""

    EPHEMERAL = True
    MODEL: ClassVar[Model] = dictionary.Dict(ephemeral=True)


OTHERS = [
    *(LatchMachine, EventMachine, BarrierMachine, ElectionMachine, QueueMachine),
    *(AtomicLongMachine, SharedValueMachine, DictMachine, EphemeralDictMachine),
]


@pytest.mark.parametrize("machine", OTHERS)
def test_properties(machine: type[Machine]) -> None:
    """No sequence of steps makes a difference between the library and the model."""
    explore(machine)
