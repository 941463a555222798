"""A schedule: the actions of each thread, and the faults and their times; of plain values, to be printed and shrunk."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from tests.simulation.world.workload import Visit

TIMEOUT = 6.0  # of the sessions, in seconds
LENGTHS = (0.0, 0.05, 0.3, 1.0, 2.5, 4.4, 5.8, 6.5, 14.0)  # around the heartbeat, the lease and the timeout
ROUND_TRIPS = (0.06, 0.15, 0.3)  # in seconds
LAST = 2_147_483_647


class Deviation(NamedTuple):
    """A difference from the calm run.

    Attributes:
        after: how many decisions after the deviation before.
        kind: its kind; a method of `Run` of that name does it.
        which: its target, where there is a choice.
        length: for how long, as an index into `LENGTHS`; or how, as the kind says.
    """

    after: int
    kind: str
    which: int
    length: int

    def __str__(self) -> str:
        return f"after {self.after}: {self.kind} {self.which} {self.length}"


class Schedule(NamedTuple):
    """A workload and the deviations from its calm run.

    Attributes:
        threads: of each process, of each of its threads, when it starts and its visits.
        deviations: in their order.
        round_trip: between clients and servers, in seconds.
    """

    threads: list[list[tuple[float, list[Visit]]]]
    deviations: list[Deviation]
    round_trip: float = 0.0

    def __str__(self) -> str:
        lines = [
            f"{'abc'[p]}{t} from {start:g}: " + "; ".join(map(_told, visits))
            for p, process in enumerate(self.threads)
            for t, (start, visits) in enumerate(process)
        ]
        if self.round_trip:
            lines.append(f"round trip {self.round_trip:g}")
        return "\n".join([*lines, *map(str, self.deviations)])


def _told(visit: Any) -> str:
    """Return a visit in words: the fields that have no default, and those that differ from theirs."""
    plain = visit._field_defaults
    fields = visit._asdict().items()
    return ", ".join(
        f"{value}" if name not in plain else f"{name} {value}"
        for name, value in fields
        if plain.get(name, ...) != value
    )


# How often each is chosen.
KINDS = {
    "turn": 30,
    "starve": 8,
    "straddle": 5,
    "late": 8,
    "cut": 20,
    "stall": 5,
    "clog": 2,
    "lag": 6,
    "cut_off": 6,
    "hear_late": 3,
    "stand_still": 3,
    "usurp": 5,
    "limit": 2,
    "stop": 5,
    "kill": 2,
    "interrupt": 7,
    "remove": 4,
    "expire": 6,
    "reap": 2,
    "number": 1,
    "close": 1,
    "quit": 1,
}


def random_schedule(random: Random) -> Schedule:
    """Draw a schedule."""
    few = random.random() < 0.5
    threads = [
        [
            (random.choice((0.0, 0.0, 0.0, 0.5, 2.0)), [_visit(random) for _ in range(random.randint(1, 3))])
            for _ in range(random.randint(1, 3 if few else 2))
        ]
        for _ in range(2 if few else 3)
    ]
    deviations = random_deviations(random, KINDS, 2, 24)
    return Schedule(threads, deviations, random.choice((0.0,) * 5 + ROUND_TRIPS))


def random_deviations(random: Random, weights: dict[str, int], least: int, most: int) -> list[Deviation]:
    """Draw deviations, each kind by its weight."""
    dense, kinds, shares = random.choice((4, 12, 30)), list(weights), list(weights.values())
    return [
        Deviation(
            int(random.expovariate(1 / dense)) + 1,
            random.choices(kinds, shares)[0],
            random.randrange(8),
            random.randrange(len(LENGTHS)),
        )
        for _ in range(random.randint(least, most))
    ]


# The faults that concern a lease.
LEASE_KINDS = {
    "usurp": 6,
    "cut_off": 6,
    "hear_late": 4,
    "stand_still": 4,
    "limit": 2,
    "stop": 3,
    "cut": 3,
    "stall": 2,
    "late": 1,
    "turn": 2,
    "remove": 1,
}


def lease_schedule(random: Random) -> Schedule:
    """Draw one in which locks are held for long, some after nothing was asked for a while, and little is shared."""
    threads = [
        [(random.choice((0.0, 0.0, 3.0, 7.0)), [_stay(random) for _ in range(random.randint(1, 2))])] for _ in range(2)
    ]
    kinds, weights = list(LEASE_KINDS), list(LEASE_KINDS.values())
    deviations = [
        Deviation(
            int(random.expovariate(1 / random.choice((3, 15, 60)))) + 1,
            random.choices(kinds, weights)[0],
            random.randrange(8),
            random.randrange(len(LENGTHS)),
        )
        for _ in range(random.randint(2, 8))
    ]
    if random.random() < 0.4:
        deviations.insert(0, Deviation(1, "limit", random.randrange(8), random.randrange(len(LENGTHS))))
    return Schedule(threads, deviations, random.choice((0.0,) * 5 + ROUND_TRIPS))


def _stay(random: Random) -> Visit:
    return Visit(random.choice(("/app/l", "/app/l", "/app/m")), stay=random.choice((1.0, 7.0, 14.0)))


def _visit(random: Random, inner: bool = False) -> Visit:
    reentrant = inner or random.random() < 0.3
    path = "/app/r" if reentrant else "/app/l"
    wait = random.choice((-1, -1, -1, -1, 0, 0.05, 1.0, 1.0, 3.0))
    within = _visit(random, inner=True) if not reentrant and random.random() < 0.15 else None
    stay = random.choice((0.0, 0.0, 0.05, 1.0, 1.0, 3.0, 7.0))
    leave = random.choice(("release", "release", "release", "with", "with", "lend", "forget"))
    return Visit(path, reentrant, wait, random.randint(1, 3) if reentrant else 1, stay, leave, within)
