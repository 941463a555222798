"""The project's targets, and whether a run reached them. Nothing fails here: figures are reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.figures import OURS, Figure, find
from benchmarks.parts import ADDS, CROWDS, EVENTS, OF_ITEM, REQUESTS, SINCE_END, TIME

BUDGET = (
    5  # requests of a hand-over and of queueing again: delete; list; create with list, get: docs/reference/costs.md
)


class Target(NamedTuple):
    """A bound on a ratio to a peer, or on a figure itself.

    Attributes:
        words: its subject.
        part: where it was measured, with the case and the quantity.
        case: see there; one that ends with `*` is about the greatest of all cases that begin so.
        quantity: see there.
        peer: the contestant that ours is compared to; None: none.
        bound: at most, or at least, this.
        at_least: which of the two.
        ours: the contestant that is compared.
        digits: how exact it is; a heartbeat now and then is among the requests.
    """

    words: str
    part: str
    case: str
    quantity: str
    peer: str | None
    bound: float
    at_least: bool = False
    ours: str = OURS
    digits: int = 2

    def measured(self, figures: Sequence[Figure]) -> float | None:
        """Return what a run says, if it says anything."""
        if self.case.endswith("*"):
            every = [find(figures, self.part, f"{count} waiting", self.quantity, self.ours) for count in CROWDS]
            return max((each.median for each in every if each is not None), default=None)
        mine = find(figures, self.part, self.case, self.quantity, self.ours)
        if mine is None:
            return None
        if self.peer is None:
            return mine.median
        other = find(figures, self.part, self.case, self.quantity, self.peer)
        return None if other is None else mine.ratio(other)

    def is_reached(self, measured: float) -> bool:
        """Whether that is within the bound."""
        shown = round(measured, self.digits)
        return shown >= self.bound if self.at_least else shown <= self.bound


TARGETS = [
    Target("uncontended Lock, against kazoo's Lock", "uncontended", "Lock", "ms", "kazoo", 0.65),
    Target("against kazoo's raw create + delete", "uncontended", "Lock", "ms", "raw", 0.9),
    Target("against Curator's InterProcessMutex", "uncontended", "Lock", "ms", "curator", 0.95),
    Target("read lock, against Curator's", "uncontended", "read", "ms", "curator", 1.0),
    Target("write lock, against Curator's", "uncontended", "write", "ms", "curator", 1.0),
    Target("uncontended Lock, 1 ms each way, against Curator", "network", "Lock, 1 ms each way", "ms", "curator", 0.75),
    Target(
        "release not waited for, against waited for",
        "network",
        "Lock, 1 ms each way",
        "ms",
        OURS,
        0.55,
        ours="unwaited",
    ),
    Target("semaphore, against kazoo's Semaphore", "uncontended", "semaphore", "ms", "kazoo", 0.38),
    Target("semaphore, against Curator's", "uncontended", "semaphore", "ms", "curator", 0.8),
    Target("re-entrant, against threading._PyRLock", "reentrant", "RLock", "µs", "threading._PyRLock", 2),
    Target("requests of that", "reentrant", "RLock", "requests", None, 0),
    Target("failing try, against kazoo's", "try", "Lock", "ms", "kazoo", 0.35),
    Target("eight threads, against kazoo", "threads", "8 threads", "cycles/s", "kazoo", 1.7, True),
    Target("eight threads, against Curator", "threads", "8 threads", "cycles/s", "curator", 1.8, True),
    Target("eight threads, fair=False, against kazoo", "threads", "8 threads", "cycles/s", "kazoo", 50, True, "unfair"),
    Target("the same, against Curator", "threads", "8 threads", "cycles/s", "curator", 50, True, "unfair"),
    *(
        Target(f"hand-over, {count} processes, against {name}", "handover", f"{count} processes", "ms", peer, bound)
        for count in (2, 8)
        for name, peer, bound in (("kazoo", "kazoo", 0.85), ("Curator", "curator", 1.0 if count == 2 else 1.15))
    ),
    Target(
        "the same, held for 2 ms, 2 processes, against Curator",
        "handover",
        "2 processes, held 2 ms",
        "ms",
        "curator",
        0.8,
    ),
    Target(
        "the same, held for 10 ms, with 1 ms each way",
        "handover",
        "2 processes, held 10 ms, 1 ms each way",
        "ms",
        "curator",
        0.65,
    ),
    Target("a cycle with 1 waiter in line, against Curator", "crowd", "1 waiting", TIME, "curator", 0.9),
    Target("8 readers in 4 processes, against Curator", "readers", "8 readers", "cycles/s", "curator", 1.1, True),
    Target("clients woken per release, 1 to 1000 waiters", "crowd", "*", EVENTS, None, 1),
    Target("hand-over, 500 waiters, against Curator", "crowd", "500 waiting", TIME, "curator", 0.15),
    Target("requests per cycle, 1 to 1000 waiters", "crowd", "*", REQUESTS, None, BUDGET, digits=1),
    *(
        Target(f"tasks against as many threads: {words}", "tasks", case, "ms", "twin", 1.3, ours=ours)
        for words, case, ours in (
            ("uncontended", "uncontended", "aio"),
            ("release awaited", "uncontended", "awaited"),
            ("8 on one lock", "8 tasks", "aio"),
            ("1000 on one lock", "1000 tasks", "aio"),
            ("hand-over, 2 processes", "2 processes", "aio"),
        )
    ),
    Target(
        "memory of a waiting task, kB, 1000 waiting",
        "task-memory",
        "1000 waiting",
        "kB per waiter",
        None,
        8,
        ours="aio",
    ),
    Target("the same, 3000 waiting", "task-memory", "3000 waiting", "kB per waiter", None, 8, ours="aio"),
    Target(
        "10000 waiting, fair=False", "task-memory", "10000 waiting, fair=False", "kB per waiter", None, 8, ours="aio"
    ),
    Target("put, against a raw create", "queues", "put", "ms", "raw", 1.0),
    Target("claim + acknowledge, against two raw writes", "queues", "claim + acknowledge", "ms", "raw", 1.5),
    Target("the same, against kazoo's LockingQueue", "queues", "claim + acknowledge", "ms", "locking", 0.5),
    Target(
        "8 consumers, against kazoo's LockingQueue", "queues", "8 consumers of a backlog", "items/s", "locking", 2, True
    ),
    *(
        Target(
            f"watch events of an item, 8 consumers that {what}",
            "queues",
            "8 consumers wait",
            OF_ITEM,
            None,
            2,
            ours=ours,
        )
        for what, ours in (("claim", OURS), ("get", "getting"))
    ),
    *(
        Target(f"AtomicLong.add, against {peer}", "atomics", "8 threads, 2 processes", ADDS, peer, 2, True)
        for peer in ("kazoo", "curator")
    ),
    Target("Dict.get, µs", "reads", "get", "µs", None, 5),
    Target("requests of that", "reads", "get", "requests", None, 0),
    Target(
        "leader killed: the next, ms after the session's end", "leaders", "kill -9 of the leader", SINCE_END, None, 2
    ),
    Target("import, beyond importing kazoo, ms of processor", "import", "zkconcurrent", "ms", None, 45),
]
