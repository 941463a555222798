"""The parts that are measured. Each sets a stage for its contestants, and gives the lanes that take turns there.

A lane is one contestant at one case: every call of its `measure` is one round, and returns quantities by name. A part
yields its lanes in groups; those of a group are on the stage together, and alternate.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import NamedTuple

from benchmarks.figures import BEFORE, OURS
from benchmarks.stage import (
    ROOT,
    BenchmarkError,
    Player,
    Queue,
    Stage,
    compete,
    events_of_items,
    flow,
    peak,
    resident,
    sessions,
    share,
    take_over,
)

PEERS = ("kazoo", "curator", OURS)
STRATEGIES = ("one node", "everyone", OURS)
CROWDS = (1, 10, 100, 500, 1000)
HERDS = (1, 3, 10, 30, 100, 300)
AIOZK = ("aiozk",) if find_spec("aiozk") else ()  # its figures are left out where it is not installed
TASKS = {"twin": OURS, "pool": "pool", **{name: name for name in AIOZK}, "aio": "aio"}  # with the processes they run in
# Of a queue: the process, and its names for a put and a claim.
FLOWS = {
    "raw": ("raw", "put", "claim"),
    "kazoo": ("kazoo", "put", "get"),
    "locking": ("kazoo", "locking put", "locking claim"),
    "curator": ("curator", "put", "claim"),
    OURS: (OURS, "put", "claim"),
    "getting": (OURS, "put", "get"),
}
CLAIMING = ("locking", "curator", OURS)
ITEMS, OF_ITEM, ADDS = "items/s", "watch events per item", "adds/s"
SINCE_KILL, SINCE_END = "s after the kill", "ms after the session's end"
BATCH = 10  # waiters that queue at once: each lists all before it, and these lists are to be few at a time
PROCESSES = 4  # of a crowd or herd
TIME, REQUESTS, EVENTS = "ms per hand-over", "requests per hand-over", "watch events per release"
KINDS = {
    "Lock": {"raw": "lock", "kazoo": "lock", "curator": "lock", OURS: "lock", "unwaited": "unwaited"},
    "RLock": {"curator": "rlock", OURS: "rlock"},
    "read": {"kazoo": "read", "curator": "read", OURS: "read"},
    "write": {"kazoo": "write", "curator": "write", OURS: "write"},
    "semaphore": {"kazoo": "semaphore", "curator": "semaphore", OURS: "semaphore"},
}


class Lane(NamedTuple):
    """One contestant at one case; `rounds` is set where fewer are bearable."""

    case: str
    contestant: str
    measure: Callable[[], dict[str, float]]
    rounds: int | None = None


Groups = Iterator[list[Lane]]


class Part(NamedTuple):
    """A part of the benchmark.

    Attributes:
        title: the measurement, in words.
        groups: sets the stage; told whether the run is a quick one.
        sets: how many groups there are.
        rounds: in a full run, and in a quick one.
        seconds: the duration of a full run, about; the progress bar's measure.
        warm_up: whether there is a round before the first, which does not count.
        ours: the contestant that the others are compared to.
    """

    title: str
    groups: Callable[[Stage, bool], Groups]
    sets: int
    rounds: tuple[int, int]
    seconds: int
    warm_up: bool = True
    ours: str = OURS


def uncontended(stage: Stage, quick: bool) -> Groups:
    """Acquire and release what nobody else wants."""
    yield from _alone(stage, stage.hosts, "{}", 50 if quick else 100)


def network(stage: Stage, quick: bool) -> Groups:
    """The same, with a network between."""
    for delay, cycles in ((1, 14), (5, 6)):
        yield from _alone(stage, stage.network(delay / 1000), f"{{}}, {delay} ms each way", cycles // (1 + quick))


def _alone(stage: Stage, hosts: str, case: str, cycles: int) -> Groups:
    players = {name: stage.team(name, 1)[0] for name in ("raw", *PEERS)}
    with sessions(list(players.values()), hosts):
        players["unwaited"] = players[OURS]
        yield [
            Lane(case.format(kind), name, partial(_cycles, players[name], "time", word, stage.path(), cycles))
            for kind, words in KINDS.items()
            for name, word in words.items()
        ]


def _cycles(player: Player, order: str, kind: str, path: str, cycles: int) -> dict[str, float]:
    return {"ms": median(map(int, player.ask(order, kind, path, cycles).split())) / 1e6}


def reentrant(stage: Stage, quick: bool) -> Groups:
    """Acquire once more what the thread holds, and release that."""
    pairs = 5_000 if quick else 50_000
    ours, standard, curator = (stage.team(name, 1)[0] for name in (OURS, "standard", "curator"))
    path = stage.path()
    with sessions([ours, curator], stage.hosts):
        yield [
            Lane("RLock", "threading.RLock", partial(_again, standard, "rlock", path, pairs)),
            Lane("RLock", "threading._PyRLock", partial(_again, standard, "python rlock", path, pairs)),
            Lane("RLock", "curator", partial(_again, curator, "rlock", path, pairs)),
            Lane("RLock", OURS, partial(_again, ours, "rlock", path, pairs, stage)),
        ]


def _again(player: Player, kind: str, path: str, pairs: int, counting: Stage | None = None) -> dict[str, float]:
    """Measure pairs of calls as one; with a stage to count on, also the requests that they send."""
    if counting is None:
        return {"µs": int(player.ask("again", kind, path, pairs)) / pairs / 1000}
    at = [counting.meter.read().requests]
    found = _again(player, kind, path, pairs)
    at.append(counting.meter.read().requests)
    player.ask("again", kind, path, 0)
    at.append(counting.meter.read().requests)
    return {**found, "requests": (at[1] - at[0]) - (at[2] - at[1])}


def tries(stage: Stage, quick: bool) -> Groups:
    """Try to get what somebody else holds, without waiting."""
    paths = {name: stage.path() for name in PEERS}
    teams = {name: stage.team(name, 2) for name in PEERS}
    with sessions([player for team in teams.values() for player in team], stage.hosts):
        for name, (holder, _) in teams.items():
            holder.ask("hold", "lock", paths[name])
        yield [
            Lane("Lock", name, partial(_cycles, other, "try", "lock", paths[name], 25 if quick else 100))
            for name, (_, other) in teams.items()
        ]


def threads(stage: Stage, quick: bool) -> Groups:
    """Eight threads of one process on one lock, as fast as they can."""

    def cycles(name: str) -> dict[str, float]:
        return {"cycles/s": share(stage, stage.team(name, 1), "lock", 8, 0.5 if quick else 1.0)}

    yield [Lane("8 threads", name, partial(cycles, name)) for name in (*PEERS, "unfair")]


def handover(stage: Stage, quick: bool) -> Groups:
    """From release called in one process to acquired in another, that waits; each keeps the lock for some ms."""
    yield [
        Lane(case, name, partial(_hand_over, stage, quick, name, processes, held))
        for case, processes, held in (("2 processes", 2, 6), ("2 processes, held 2 ms", 2, 2), ("8 processes", 8, 6))
        for name in PEERS
    ]
    hosts = stage.network(0.001)
    yield [
        Lane(
            "2 processes, held 10 ms, 1 ms each way",
            name,
            partial(_hand_over, stage, quick, name, 2, 10, hosts),
        )
        for name in PEERS
    ]


def _hand_over(
    stage: Stage, quick: bool, name: str, processes: int, held: int = 6, hosts: str | None = None
) -> dict[str, float]:
    """Measure hand-overs of a lock that is held for so many milliseconds, to those that have waited for half of that.

    They are surely in the queue.
    """
    seconds = 0.5 if quick else 1.0
    queue = compete(stage, stage.team(name, processes), "lock", processes, seconds, hold=held / 1000, hosts=hosts)
    return {"ms": median(queue.hand_overs(waited=held / 2))}


def crowd(stage: Stage, quick: bool) -> Groups:
    """So many threads of four processes wait, one session for each process; nobody keeps the lock."""

    def one_by_one(name: str, waiters: int) -> dict[str, float]:
        return _quantities(compete(stage, stage.team(name, PROCESSES), "lock", waiters + 1, 0.5 if quick else 1.5))

    yield [
        Lane(f"{waiters} waiting", name, partial(one_by_one, name, waiters), _fewer(name, waiters))
        for waiters in CROWDS
        for name in PEERS
        if not quick or waiters <= (100 if name == "curator" else 500)
    ]


def _fewer(name: str, waiters: int) -> int | None:
    return 1 if name == "curator" and waiters > 500 else None


def herd(stage: Stage, quick: bool) -> Groups:
    """So many sessions wait, by three strategies; nobody keeps the lock."""

    def all_at_once(name: str, waiters: int) -> dict[str, float]:
        team = stage.team(name, PROCESSES)
        seconds = 0.5 if quick else 1.5
        return _quantities(compete(stage, team, "lock", waiters + 1, seconds, own=True, one_by_one=False))

    yield [
        Lane(f"{waiters} waiting", name, partial(all_at_once, name, waiters))
        for waiters in HERDS
        for name in STRATEGIES
        if not quick or waiters <= 30
    ]


def _quantities(queue: Queue) -> dict[str, float]:
    if not queue.turns:
        raise BenchmarkError("nobody got the lock")
    count = len(queue.turns)
    return {
        TIME: queue.seconds / count * 1000,
        REQUESTS: queue.cost.requests / count,
        EVENTS: queue.cost.events / count,
    }


def readers(stage: Stage, quick: bool) -> Groups:
    """Eight readers in four processes come and go."""

    def cycles(name: str) -> dict[str, float]:
        return {"cycles/s": share(stage, stage.team(name, PROCESSES), "read", 8, 0.5 if quick else 1.0)}

    yield [Lane("8 readers", name, partial(cycles, name)) for name in PEERS]


IMPORT = """\
import time; start = time.process_time()
import kazoo.client; kazoo = time.process_time()
import zkconcurrent; package = time.process_time()
import zkconcurrent.aio
print(kazoo - start, package - kazoo, time.process_time() - kazoo)
"""
IMPORTS = ("zkconcurrent", "with aio")


def imports(stage: Stage, _quick: bool) -> Groups:
    """Import zkconcurrent, in an interpreter that has imported kazoo; in processor time."""
    # As after an installation: compiled already.
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(stage.folder / "pycache")}

    def fresh(which: int) -> dict[str, float]:
        command = [sys.executable, "-c", IMPORT]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
        return {"ms": float(done.stdout.split()[which]) * 1000}

    ours = [Lane(case, OURS, partial(fresh, which)) for which, case in enumerate(IMPORTS, 1)]
    yield [Lane("kazoo.client", "kazoo", partial(fresh, 0)), *ours]


def memory(stage: Stage, quick: bool) -> Groups:
    """By how much a process grows with each thread that waits, the thread included."""
    waiters = 50 if quick else 200

    def growth(name: str) -> dict[str, float]:
        with stage.guest(name) as player:
            path, base = stage.path(), stage.meter.read().watches
            player.ask("join", "lock", path, 0, 1, 0)
            before = resident(player)
            player.ask("join", "lock", path, 0, waiters, 0)
            stage.settle(base + waiters)
            return {"kB per waiter": (resident(player) - before) / waiters}

    yield [Lane(f"{waiters} waiting", name, partial(growth, name)) for name in ("kazoo", OURS)]


def tasks(stage: Stage, quick: bool) -> Groups:
    """Tasks of one event loop, beside as many threads: alone, in a queue, and from one process to another."""
    players = {name: stage.team(who, 1)[0] for name, who in TASKS.items()}
    cycles, seconds, crowd = (50, 0.5, 100) if quick else (100, 1.0, 1000)
    with sessions(list(players.values()), stage.hosts):
        yield [
            *(
                Lane("uncontended", name, partial(_cycles, player, "time", "lock", stage.path(), cycles))
                for name, player in players.items()
            ),
            Lane("uncontended", "awaited", partial(_cycles, players["aio"], "time", "awaited", stage.path(), cycles)),
        ]

    def take_turns(name: str, contenders: int) -> dict[str, float]:
        queue = compete(stage, stage.team(TASKS[name], 1), "lock", contenders, seconds, one_by_one=False)
        return {"ms": _quantities(queue)[TIME]}

    yield [
        *(Lane("8 tasks", name, partial(take_turns, name, 8)) for name in TASKS),
        *(Lane(f"{crowd} tasks", name, partial(take_turns, name, crowd), 3) for name in TASKS),
        *(Lane("2 processes", name, partial(_hand_over, stage, quick, TASKS[name], 2)) for name in TASKS),
    ]


def task_memory(stage: Stage, quick: bool) -> Groups:
    """The growth of a process with each task, or thread, that waits; and the costs of very many tasks."""
    some, more, many, tries = (100, 200, 300, 1_000) if quick else (1_000, 3_000, 10_000, 100_000)

    def growth(name: str, waiters: int, kind: str = "lock") -> dict[str, float]:
        has_nodes = kind != "unfair"  # the waiters of an unfair lock wait in their process
        with stage.guest(TASKS[name]) as player:
            path, base = stage.path(), stage.watched_nodes()
            player.ask("join", kind, path, 0, 1, 0)
            stage.settle(base)
            before, start = resident(player), time.monotonic()
            for joined in range(BATCH, waiters + 1, BATCH):
                player.ask("join", kind, path, 0, BATCH, 0)
                stage.wait_for_waiters(base + joined if has_nodes else base)
            waited = time.monotonic() - start
            stage.settle(base)
            return {"kB per waiter": (resident(player) - before) / waiters, "ms per waiter": waited / waiters * 1000}

    def failing() -> dict[str, float]:
        with stage.guest("aio") as player:
            path = stage.path()
            player.ask("hold", "lock", path)
            before = resident(player)
            taken = int(player.ask("try", "lock", path, tries))
            return {"kB per try": (peak(player) - before) / tries, "ms per try": taken / tries / 1e6}

    yield [
        *(Lane(f"{some} waiting", name, partial(growth, name, some)) for name in TASKS),
        # Each waiter of a fair lock lists all before it, so ten thousand of them take many minutes to queue.
        Lane(f"{more} waiting", "aio", partial(growth, "aio", more), 1),
        Lane(f"{many} waiting, fair=False", "aio", partial(growth, "aio", many, "unfair")),
        Lane(f"{tries} tries", "aio", failing),
    ]


def queues(stage: Stage, quick: bool) -> Groups:
    """Items of 100 bytes are put, taken, and claimed and acknowledged: alone, from process to process, by a crowd."""
    cycles, seconds, backlog, items = (20, 0.3, 200, 10) if quick else (100, 0.5, 500, 40)
    players = {name: stage.team(name, 1)[0] for name in ("raw", *PEERS)}

    def alone(name: str, put: str, kind: str) -> dict[str, float]:
        player, path = players[FLOWS[name][0]], stage.path()
        if kind != put:
            player.ask("time", put, path, cycles + 2)  # Curator's consumer is one item ahead
        return _cycles(player, "time", kind, path, cycles)

    with sessions(list(players.values()), stage.hosts):
        for kind in ("put", "get", "claim"):  # a JVM is slow until it has compiled what it runs
            path, count = stage.path(), 50 if quick else 600
            players["curator"].ask("time", "put", path, count + 2)
            players["curator"].ask("time", kind, path, count)
        yield [
            *(
                Lane("put", name, partial(alone, name, FLOWS[name][1], FLOWS[name][1]))
                for name in ("raw", "kazoo", *CLAIMING)
            ),
            *(Lane("get", name, partial(alone, name, "put", "get")) for name in ("raw", *PEERS)),
            *(Lane("claim + acknowledge", name, partial(alone, name, *FLOWS[name][1:])) for name in ("raw", *CLAIMING)),
        ]

    def through(name: str) -> dict[str, float]:
        who, put, claim = FLOWS[name]
        return {ITEMS: flow(stage, stage.team(who, 2), [(0, put), (1, claim)], seconds)}

    def drained(name: str, consumers: int) -> dict[str, float]:
        who, put, claim = FLOWS[name]
        team = stage.team(who, PROCESSES)
        joining = [(number % PROCESSES, claim) for number in range(consumers)]
        return {ITEMS: flow(stage, team, joining, seconds, (put, backlog))}

    yield [
        *(Lane("1 producer, 1 consumer", name, partial(through, name)) for name in CLAIMING),
        *(
            Lane(f"{count} consumer{'s' * (count > 1)} of a backlog", name, partial(drained, name, count))
            for count in (1, 2, 4, 8)
            for name in CLAIMING
        ),
    ]

    def awaited(name: str) -> dict[str, float]:
        who, put, claim = FLOWS[name]
        return {OF_ITEM: events_of_items(stage, stage.team(who, PROCESSES), put, claim, 8, items)}

    yield [Lane("8 consumers wait", name, partial(awaited, name)) for name in (*CLAIMING, "getting")]


def atomics(stage: Stage, quick: bool) -> Groups:
    """A number is incremented: by one thread, and by eight in two processes."""
    cycles, seconds = (20, 0.3) if quick else (200, 1.0)
    players = {name: stage.team(name, 1)[0] for name in PEERS}
    with sessions(list(players.values()), stage.hosts):
        players["curator"].ask("time", "add", stage.path(), 50 if quick else 600)  # a JVM is slow at first
        yield [
            Lane("add, alone", name, partial(_cycles, players[name], "time", "add", stage.path(), cycles))
            for name in PEERS
        ]

    def contended(name: str, processes: int) -> dict[str, float]:
        joining = [(number % processes, "add") for number in range(8)]
        return {ADDS: flow(stage, stage.team(name, processes), joining, seconds)}

    yield [
        Lane(f"8 threads, {processes} processes", name, partial(contended, name, processes))
        for processes in (2, 4)
        for name in PEERS
    ]


def reads(stage: Stage, quick: bool) -> Groups:
    """An entry of a hundred is read: from the server, or from a copy that is kept current."""
    players = {name: stage.team(name, 1)[0] for name in PEERS}
    calls = {"kazoo": 20 if quick else 500, "curator": (copied := 5_000 if quick else 50_000), OURS: copied}
    with sessions(list(players.values()), stage.hosts):
        paths = {name: stage.path() for name in PEERS}
        for name in PEERS:
            players[name].ask("again", "entry", paths[name], 0)  # makes the entries
        yield [
            Lane("get", name, partial(_again, players[name], "entry", paths[name], calls[name], counting))
            for name, counting in (("kazoo", None), ("curator", stage), (OURS, stage))
        ]


def leaders(stage: Stage, _quick: bool) -> Groups:
    """A leader is killed: when does the next one lead?"""
    timeout = 4.0  # of all sessions; the server grants no less

    def next_leads(who: str) -> dict[str, float]:
        since_kill, since_end = take_over(stage, who, timeout)
        return {SINCE_KILL: since_kill, SINCE_END: since_end}

    for player in stage.team("curator", 1):  # a JVM is slow until it has compiled what it runs
        with sessions([player], stage.hosts):
            player.ask("time", "lead", stage.path(), 50)
    whose = {"watch": "raw", **{name: name for name in PEERS}}  # the processes they run in
    yield [Lane("kill -9 of the leader", name, partial(next_leads, who)) for name, who in whose.items()]


def against(stage: Stage, quick: bool) -> Groups:
    """This revision and an earlier one."""
    both = (BEFORE, OURS)
    players = {name: stage.team(name, 1)[0] for name in both}
    cycles, pairs = (50, 5_000) if quick else (100, 50_000)

    def threads(name: str) -> dict[str, float]:
        queue = compete(stage, stage.team(name, 1), "lock", 8, 0.5 if quick else 1.0)
        return {"ms": _quantities(queue)[TIME]}

    with sessions(list(players.values()), stage.hosts):
        yield [
            *(
                Lane(f"{kind}, uncontended", name, partial(_cycles, players[name], "time", kind, stage.path(), cycles))
                for kind in ("lock", "rlock", "read", "write", "semaphore")
                for name in both
            ),
            *(
                Lane("rlock, again", name, partial(_again, players[name], "rlock", stage.path(), pairs))
                for name in both
            ),
        ]
    yield [
        *(
            Lane(f"hand-over, {count} processes", name, partial(_hand_over, stage, quick, name, count))
            for count in (2, 8)
            for name in both
        ),
        *(Lane("hand-over, 8 threads", name, partial(threads, name)) for name in both),
    ]


PARTS = {
    "uncontended": Part("acquire + release, nobody else there", uncontended, 1, (15, 3), 55),
    "network": Part("the same, with a network between", network, 2, (7, 2), 60),
    "reentrant": Part("acquire + release of what the thread holds already", reentrant, 1, (15, 3), 15),
    "try": Part("a try that fails, as another process holds", tries, 1, (15, 3), 10),
    "threads": Part("threads of one process on one lock", threads, 1, (9, 2), 40),
    "handover": Part("from release called in one process to acquired in another", handover, 2, (15, 2), 250),
    "crowd": Part("a crowd waits, in four processes", crowd, 1, (3, 1), 200, False),
    "queues": Part("items of 100 bytes", queues, 3, (5, 2), 240),
    "atomics": Part("a number that all increment", atomics, 2, (5, 2), 60),
    "reads": Part("an entry is read, from the server or from a copy", reads, 1, (15, 3), 20),
    "leaders": Part("from the end of a killed leader's session to the next leader", leaders, 1, (7, 1), 190, False),
    "readers": Part("readers share", readers, 1, (9, 2), 45),
    "import": Part("import zkconcurrent beyond importing kazoo", imports, 1, (15, 3), 10),
    "memory": Part("memory of a thread that waits", memory, 1, (3, 1), 10, False),
    "tasks": Part("tasks of one event loop, and as many threads", tasks, 2, (9, 2), 250, ours="aio"),
    "task-memory": Part("memory of a task that waits", task_memory, 1, (3, 1), 120, False, ours="aio"),
    "against": Part("this revision and an earlier one (--against)", against, 2, (21, 2), 150),
    "herd": Part("three strategies, each waiter in a session of its own", herd, 1, (3, 1), 120, False),
}
