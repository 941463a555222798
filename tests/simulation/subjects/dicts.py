"""Dictionaries in the simulation: threads that read, write, replace and remove.

The ensemble's log is the truth: each value is written by one call only, so a value tells which state a read has seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from tests.models import dictionary, history
from tests.models.dictionary import Entry
from tests.simulation.checks.invariants import Checks
from tests.simulation.world.calls import Call, CallChecks, CallRun, CallWorker, LosingRun, lagging
from tests.simulation.world.ensemble import Transport, removed_by, writes
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import Schedule, random_schedule
from tests.simulation.world.world import Violation
from zkconcurrent._errors import OutcomeUnknownError
from zkconcurrent._memory import changes
from zkconcurrent._recipes.map.mirror import NEVER
from zkconcurrent._threads.base.map_base import MirrorState
from zkconcurrent._threads.dict import Dict

PATH = "/app/d"
ENTRIES = f"{CHROOT}{PATH}/entries/"
KEYS = "xyz"
NOT_HERE = {"number": "lose", "clog": "lose", "late": "lose", "reap": "lose", "quit": "lag"}


class Step(NamedTuple):
    """An action with a key: "put", "del", "setdefault", "replace", "remove", "pop", "read", "all" or "sleep".

    "replace" and "remove" go by the value that was read before.
    """

    what: str
    key: str = ""
    seconds: float = 0.0


class Steps(NamedTuple):
    """The steps of a thread with a dictionary."""

    ephemeral: bool
    steps: list[Step]


class State(NamedTuple):
    """A key's value, None for none, from one change on and before another."""

    value: bytes | None
    since: int
    until: float


class DictChecks(CallChecks):
    """The invariants of a dictionary.

    Attributes:
        ephemeral: its entries are.
        known: since which change each process must know of each key.
        opened: how much the server of each connection had applied when that was opened.
    """

    model = dictionary.Dict()
    piecemeal = ("clear", "destroy")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ephemeral = False
        self.known: dict[tuple[object, str], int] = {}
        self.opened: dict[Transport, int] = {}

    def step(self) -> None:
        """Take note of connections."""
        super().step()
        for process in self.processes:
            wire = process.connection.wire
            if wire is not None and wire not in self.opened:
                self.opened[wire] = wire.server.applied

    def history(self, key: str) -> Iterator[State]:
        """Yield the states of a key."""
        path, value, since = ENTRIES + key, None, 0
        for n, step in self.ensemble.steps():
            if writes(step, path):
                after = step.data
            elif path in removed_by(step):
                after = None
            else:
                continue
            yield State(value, since, n)
            value, since = after, n
        yield State(value, since, math.inf)

    def saw(self, process: Any, key: str, value: bytes | None) -> None:
        """Take note of what a process has read: it is no older than what it knew, nor than its connection."""
        floor = self.known.get((process, key), 0)
        wire = process.connection.wire
        if wire is not None and process.client.connected:
            floor = max(floor, self.opened.get(wire, 0))
        for state in self.history(key):
            if state.value == value and state.until > floor:
                self.known[process, key] = max(floor, state.since)
                return
        raise Violation(f"{process.name} reads {key} as {value!r}, which it is not since change {floor}")

    def wrote(self, call: Call, step: changes.Step) -> None:
        """Take note of a step that changes an entry."""
        if isinstance(step, changes.Made | changes.Written | changes.Removed) and step.path.startswith(ENTRIES):
            if self.ephemeral and isinstance(step, changes.Written):
                raise Violation(f"{call.what} has written an entry that may go with another session")
            if isinstance(step, changes.Made) and bool(step.owner) != self.ephemeral:
                raise Violation(f"{call.what} has made an entry of {step.owner}")
            call.wrote.append((len(self.ensemble.log), step))

    def state(self, before: Any, step: changes.Step) -> frozenset[Entry]:
        """Return the entries after a step of a change."""
        entries = {each.key: each for each in before or ()}
        if isinstance(step, changes.Made | changes.Written) and step.path.startswith(ENTRIES):
            key = step.path.removeprefix(ENTRIES)
            entries[key] = Entry(key, step.data)
        for path in removed_by(step):
            entries.pop(path.removeprefix(ENTRIES), None)
        return frozenset(entries.values())

    def judge(self, call: Call) -> None:
        """Have the model judge a call; an entry that has gone with its session is written again, or never was there."""
        if self.ephemeral:
            call.effects = call.effects[-1:]
            if call.what == "setdefault" and call.outcome not in (history.OPEN, call.args[1]) and self.is_over(call):
                call.effects = []
        super().judge(call)

    def is_over(self, call: Call) -> bool:
        """Whether the session of what a call has written is over."""
        return any(self.ensemble.sessions[step.owner].closed for _, step in call.wrote[:1])

    def truth(self) -> dict[str, bytes]:
        """Return what the leader has."""
        nodes = self.ensemble.leader.nodes
        return {path.removeprefix(ENTRIES): node.data for path, node in nodes.items() if path.startswith(ENTRIES)}

    def quiet(self) -> None:
        """When nothing is amiss, each copy that is followed is true."""
        Checks.quiet(self)
        if self.faults():
            return
        for process in self.processes:
            wire = process.connection.wire
            if not process.alive or wire is None or not process.client.connected or process.client._queue:
                continue
            for state in list(process.session.directory.values()):
                if not isinstance(state, MirrorState) or state.mirror.listed_on is NEVER:
                    continue
                mirror = state.mirror
                have = {key: entry.data for key, entry in mirror.entries.items()}
                if mirror.listed_on is not process.session.link.connection:
                    raise Violation(f"{process.name} does not list its copy anew")
                if have != self.truth():
                    raise Violation(f"the copy of {process.name} is {have}, and the truth is {self.truth()}")
                if mirror.tombstones and not mirror.under_way:
                    raise Violation(f"{process.name} keeps {mirror.tombstones}")

    def end(self) -> None:
        """Nothing is left but the entries."""
        super().end()
        for process in self.processes:
            if process.alive and process.session.registry.trees:
                raise Violation(f"left in {process.name}: {process.session.registry.trees}")

    def stays(self, path: str) -> bool:
        """Whether it is an entry."""
        return path.startswith(ENTRIES)


class DictWorker(CallWorker):
    """A thread that uses a dictionary."""

    checks: DictChecks
    map: Dict[bytes] | None = None
    number = 0

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            self.map = None  # the last one that uses it drops it

    def _visit(self, steps: Steps) -> None:  # type: ignore[override]
        self.map = Dict(self.process.client, PATH, ephemeral=steps.ephemeral)
        for step in steps.steps:
            try:
                self._do(step)
            except KeyboardInterrupt:
                self.world.say("is interrupted")

    def _read(self, key: str) -> bytes | None:
        assert self.map is not None
        with self.calling(f"read {key}"):
            self.map.get(key)  # waits for the copy
            value = self.map.get(key)
            self.checks.saw(self.process, key, value)
        return value

    def _do(self, step: Step) -> None:
        checks, key = self.checks, step.key
        assert self.map is not None
        if step.what == "sleep":
            self.world.sleep(step.seconds)
        elif step.what == "read":
            self._read(key)
        elif step.what == "all":
            with self.calling("all"):
                len(self.map)
                found = self.map.copy()
                for each in KEYS:
                    checks.saw(self.process, each, found.get(each))
        else:
            self.number += 1
            value = f"{self.name} {self.number}".encode()
            old = (self._read(key) or b"") if step.what in ("replace", "remove") else b""
            session = self.process.session.registry.session
            what, args = {
                "put": ("set", (key, value)),
                "replace": ("replace", (key, old, value)),
                "remove": ("remove", (key, old)),
                "setdefault": ("setdefault", (key, value)),
            }.get(step.what, (step.what, (key,)))
            with self.calling(what, None, *args) as call:
                try:
                    call.outcome = self._write(what, *args)
                except OutcomeUnknownError:
                    if not self._is_over(session) and not checks.removed:
                        raise Violation(f"{call}: its outcome can be found out") from None
                    return
            if call.wrote:
                at = max(at for at, _ in call.wrote)
                checks.known[self.process, key] = max(at, checks.known.get((self.process, key), 0))
            self._read(key)

    def _write(self, what: str, key: str, *values: Any) -> Any:
        d: Any = self.map
        if what == "set":
            d[key] = values[0]
        elif what == "del":
            try:
                del d[key]
            except KeyError:
                return KeyError
        else:
            return getattr(d, what)(key, *values, *([None] if what == "pop" else []))
        return None

    def _is_over(self, session: int | None) -> bool:
        return session is None or self.checks.ensemble.sessions[session].closed


class DictRun(LosingRun, CallRun):
    """A run of such workers."""

    path = PATH
    worker = DictWorker
    invariants = DictChecks
    checks: DictChecks

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        first: Any = schedule.threads[0][0][1][0]
        self.checks.ephemeral = first.ephemeral

    def rescue(self) -> None:
        """Nobody waits for ever."""


def random_steps(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    threads, deviations, _ = random_schedule(random)
    ephemeral = seed % 3 == 2
    keys = KEYS[: random.choice((1, 1, 2, 3))]
    steps: list[Any] = [
        [
            (start, [Steps(ephemeral, [_step(random, keys) for _ in range(random.randint(3, 9))])])
            for start, _ in process
        ]
        for process in threads
    ]
    kinds = [random.choices((None, "lose", "starve"), (6, 3, 3))[0] for _ in deviations]
    chosen = [each._replace(kind=kind or each.kind) for kind, each in zip(kinds, deviations, strict=True)]
    return Schedule(steps, lagging(random, chosen, NOT_HERE))


WHAT = ("put", "put", "put", "del", "del", "setdefault", "replace", "replace", "remove", "pop")


def _step(random: Random, keys: str) -> Step:
    if random.random() < 0.35:
        what = random.choice(("read", "read", "all", "sleep"))
        return Step(what, "" if what in ("all", "sleep") else random.choice(keys), random.choice((0.05, 0.3, 1.0, 3.0)))
    return Step(random.choice(WHAT), random.choice(keys))
