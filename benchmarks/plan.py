"""What an ensemble must carry for a fleet of clients: a model, and the command that asks it.

How many requests and transactions there are follows from docs/reference/costs.md, and for heartbeats from the library's
own `Lease`: nothing of that is fitted. Fitted to the points of `scale`, each time anew, is what they cost a server: its
processor time, as so much for each transaction, each read, each name in a listing and each time that the server sleeps
and must be woken; the bytes of its log; and its memory.

The largest size of each series is left out of the fit; `python -m benchmarks scale` shows how far the model misses it.
Of a server that wakes for each request, waking is most of the work; of a full one it is nothing. So a load is compared
with what a full server can carry, not with what an idle one seems to need.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from benchmarks.figures import OURS
from benchmarks.points import Point, Run, lease_of
from benchmarks.report import number, table

DAY = 86_400
ZXIDS = 1 << 32  # of one leader: then there is an election
PIECE = 100  # nodes that one proof checks
# What a server of the plan has: its zxids are to last for a week, and the other two are the defaults of many systems.
WEEK, HEAP, CONNECTIONS = 7 * DAY, 1e9, 60_000


class Load(NamedTuple):
    """Requests, of an operation or a second: transactions, reads (a `sync` is one), and names in listings."""

    transactions: float = 0.0
    reads: float = 0.0
    names: float = 0.0

    def times(self, count: float) -> Load:
        """Return that of so many."""
        return Load(*(each * count for each in self))


class Operation(NamedTuple):
    """What clients do: in words, its load by docs/reference/costs.md, and the points that show the bytes of its log."""

    words: str
    load: Load
    logged: tuple[tuple[str, str], ...]


CYCLE = Load(2, 1, 1)
ADD = Load(1, 3 / 8, 1 / 8)
# The semaphore's nodes are as large as a lock's.
OPERATIONS = {
    "cycles": Operation("acquire and release a lock", CYCLE, (("processes", ""),)),
    "permits": Operation("acquire and release a semaphore", Load(3, 4, 2), (("processes", ""),)),
    "items": Operation("put and get an item of a queue", Load(2, 1 + 4 / 64, 1), (("items", "put"), ("items", "get"))),
    "adds": Operation("add to a number", ADD, (("items", "add"),)),
}


def contended(waiting: float) -> Load:
    """Return the load of a hand-over, with so many others in the queue: two listings, and a read with a watch."""
    return Load(2, 3, 2 * (waiting + 1))


def idle(query: str, nodes: float = 1) -> Load:
    """Return the load of a session that holds something, a second: proofs, each behind a `sync`, and beats."""
    lease = lease_of(query)
    return Load(math.ceil(nodes / PIECE) / lease.spacing, 1 / lease.spacing + 1 / lease.beat)


def expected(point: Point) -> Load | None:
    """Return the load of a point, if it is documented."""
    size = point.size
    loads: dict[tuple[str, str], Callable[[], Load]] = {
        ("processes", "raw"): lambda: Load(2),
        ("processes", OURS): lambda: CYCLE,
        ("sessions", OURS): lambda: idle(point.how).times(size),
        ("paths", OURS): lambda: idle(point.how, size),
        ("waiters", OURS): lambda: contended(size),
        ("items", OURS): lambda: {
            "put": Load(1),
            # A listing is for 64 of them, or for a 64th of the queue.
            "get": Load(1, 1 + 4 / max(64, size / 64), min(64, size / 64)),
            "add": ADD,
        }[point.how],
        ("flood", "raw"): lambda: {"create": Load(1), "sync": Load(0, 1), "cycle": CYCLE}[point.how],
    }
    load = loads.get((point.part, point.who))
    return load and load().times(point.work)


class Model(NamedTuple):
    """What a load costs.

    Attributes:
        leader: seconds of the leader's processors for each transaction, read, name, and waking; and for a second.
        thread: the same of its busiest thread.
        followers: the same of all followers together.
        nap: requests that come within so many seconds of another, on average, find the server awake.
        log: bytes of the log for each of the operations, and for a proof.
        heap: bytes for a session that holds a lock.
    """

    leader: tuple[float, ...]
    thread: tuple[float, ...]
    followers: tuple[float, ...]
    nap: float
    log: dict[str, float]
    heap: float


def is_checked(point: Point, points: Sequence[Point]) -> bool:
    """Return whether a point is left out of the fit: it is the largest of its series, or nothing like it is fitted."""
    sizes = [each.size for each in points if each.series == point.series]
    return (len(sizes) > 2 and point.size == max(sizes)) or point.part == "items" or point.how == "cycle"


def causes(point: Point, nap: float) -> tuple[float, ...]:
    """Return what a server's work is due to, in the order of a model's costs."""
    load = expected(point)
    assert load is not None
    requests = load.transactions + load.reads
    # A flood's requests come together.
    wakes = requests / point.size if point.part == "flood" else requests / (1 + requests / point.seconds * nap)
    return (*load, wakes, point.seconds)


def fit(points: Sequence[Point], servers: int = 1) -> Model:
    """Fit the model to the points of so many servers; of several, listings are split as those of one server cost."""
    known = [each for each in points if not is_checked(each, points) and expected(each)]
    mine = [each for each in known if each.servers == servers and not each.sync]
    one = fit(points) if servers > 1 else None

    def costs(nap: float, take: Callable[[Point], float], share: float = 1.0) -> tuple[float, ...]:
        rows, values = [causes(each, nap) for each in mine], list(map(take, mine))
        if not any(values):
            return (0.0,) * 5
        if one is None:
            return least(rows, values)
        name = one.leader[2] * share
        known = [min(name * row[2] / value, 0.9) for row, value in zip(rows, values, strict=True)]
        others = [value * (1 - part) for value, part in zip(values, known, strict=True)]
        found = least([(*row[:2], *row[3:]) for row in rows], others)
        return (*found[:2], name, *found[2:])

    def misses(nap: float) -> float:
        found = costs(nap, lambda each: each.cost.cpu, 1 / servers)
        return sum((total(found, causes(each, nap)) / each.cost.cpu - 1) ** 2 for each in mine)

    nap = one.nap if one else min((10 ** (power / 10) for power in range(-50, -10)), key=misses)

    def logged(part: str, how: str = "") -> float:
        found = [each for each in points if (each.part, each.who, each.servers) == (part, OURS, 1) and how in each.how]
        return median(each.cost.log / each.cost.transactions for each in found)

    log = {
        name: each.load.transactions * sum(logged(*where) for where in each.logged) / len(each.logged)
        for name, each in OPERATIONS.items()
    }
    sizes = [each.heap / each.size for each in known if each.part == "sessions" and each.size >= 100 and each.heap]
    return Model(
        costs(nap, lambda each: each.cost.cpu, 1 / servers),
        costs(nap, lambda each: each.cost.busiest, 1 / servers),
        costs(nap, lambda each: each.cost.followers, 1 - 1 / servers),
        nap,
        {**log, "proofs": logged("sessions")},
        median(sizes),
    )


def total(costs: Sequence[float], counts: Sequence[float]) -> float:
    """Return the sum of so much of each."""
    return sum(cost * count for cost, count in zip(costs, counts, strict=False))


def least(rows: Sequence[Sequence[float]], values: Sequence[float]) -> tuple[float, ...]:
    """Return the factors of the columns whose sums differ least from the values, in proportion; none is negative."""
    columns = list(range(len(rows[0])))
    scaled = [[cell / value for cell in row] for row, value in zip(rows, values, strict=True)]
    while True:
        found = solve(
            [
                [sum(row[a] * row[b] for row in scaled) for b in columns] + [sum(row[a] for row in scaled)]
                for a in columns
            ]
        )
        if min(found) >= 0:
            return tuple(found[columns.index(at)] if at in columns else 0.0 for at in range(len(rows[0])))
        columns.remove(columns[found.index(min(found))])


def solve(matrix: list[list[float]]) -> list[float]:
    """Solve linear equations, whose last column is the right side, by elimination."""
    for at in range(len(matrix)):
        pivot = max(range(at, len(matrix)), key=lambda row: abs(matrix[row][at]))
        matrix[at], matrix[pivot] = matrix[pivot], matrix[at]
        matrix[at] = [cell / matrix[at][at] for cell in matrix[at]]
        for row in range(len(matrix)):
            if row != at:
                factor = matrix[row][at]
                matrix[row] = [cell - factor * mine for cell, mine in zip(matrix[row], matrix[at], strict=True)]
    return [row[-1] for row in matrix]


def errors(points: Sequence[Point], servers: int = 1) -> Iterator[str]:
    """Yield a table: by how much the model misses each point, also those that it was fitted to."""
    model = fit(points, servers)
    rows = []
    for point in points:
        load = expected(point)
        if load is not None and point.servers == servers and not point.sync:
            said = (load.transactions + load.reads, load.transactions, total(model.leader, causes(point, model.nap)))
            pairs = zip(said, (point.cost.requests, point.cost.transactions, point.cost.cpu), strict=True)
            cells = [f"{(ours / theirs - 1) * 100:+.0f} %" if theirs > 5e-3 else "" for ours, theirs in pairs]
            fitted = "" if is_checked(point, points) else "yes"
            rows.append([point.part, f"{point.size:,}", f"{point.who} {point.how}", *cells, fitted])
    yield from table(["part", "size", "who", "requests", "transactions", "processor time", "fitted"], iter(rows))


class Limit(NamedTuple):
    """Something that an ensemble has only so much of: the share that is used, and what to do when it is used up."""

    words: str
    share: float
    then: str


WRITE_LESS = (
    "send fewer writes: a longer timeout, `tick` and `survive` (docs/how-to/operate.md); hold locks for longer; "
    "or put paths on several ensembles (docs/explanation/scaling.md)"
)


def plan(options: argparse.Namespace, model: Model) -> Iterator[str]:
    """Yield what the fleet needs, line by line."""
    clients, servers = options.clients, options.servers
    settings = {"timeout": options.timeout, "tick": options.tick, "survive": options.survive}
    query = "&".join(f"{name}={value:g}" for name, value in settings.items() if value is not None)
    holders = clients * options.holding
    loads = {
        f"{holders:,.0f} clients hold something": idle(query).times(holders),
        f"{clients - holders:,.0f} clients hold nothing": Load(0, 3 / options.timeout).times(clients - holders),
    }
    written = next(iter(loads.values())).transactions * model.log["proofs"]
    for name, operation in OPERATIONS.items():
        rate = clients * getattr(options, name) / 60
        load = contended(options.queue) if options.queue and name == "cycles" else operation.load
        loads[f"{number(rate)} times {operation.words}"] = load.times(rate)
        written += rate * model.log[name]
    load = Load(*map(sum, zip(*loads.values(), strict=True)))
    requests = load.transactions + load.reads

    yield f"{clients:,} clients, {query}; servers: {servers}, with {options.cores} processors each\n"
    rows = ([words, *map(number, each)] for words, each in [*loads.items(), ("together", load)] if any(each))
    yield from table(["a second", *Load._fields], rows)

    wakes = requests / (1 + requests * model.nap)
    days = ZXIDS / load.transactions / DAY if load.transactions else math.inf
    follower = tuple(each / max(servers - 1, 1) for each in model.followers)
    busy = total(model.leader, (*load, wakes, 1))
    yield f"\nthe leader computes     {busy:.2f} s a second"
    yield f"its log grows by        {written * DAY / 1e9:,.1f} GB a day"
    yield f"a leader's zxids last   {number(days)} days; then there is an election"
    yield f"connections             {clients / servers:,.0f} for each server"
    yield f"memory                  {clients * model.heap / 1e6:,.0f} MB of each server's heap\n"

    limits = [
        Limit("the leader's processors", total(model.leader[:3], load) / options.cores, WRITE_LESS),
        Limit("the leader's busiest thread", total(model.thread[:3], load), WRITE_LESS),
        Limit(
            "a follower's processors", total(follower[:3], load) / options.cores, "add servers for reads; " + WRITE_LESS
        ),
        Limit(
            "an election a week, for new zxids",
            load.transactions * WEEK / ZXIDS,
            f"expect an election each {number(days)} days, of which holds survive a short one; or {WRITE_LESS}",
        ),
        Limit(f"a heap of {HEAP / 1e9:g} GB", clients * model.heap / HEAP, "give the servers more memory: -Xmx"),
        Limit(
            f"{CONNECTIONS:,} connections",
            clients / servers / CONNECTIONS,
            "raise their limit of open files; add observers",
        ),
    ]
    limits.sort(key=lambda each: -each.share)
    rows = ([each.words, f"{each.share:.1%}", f"{clients / each.share:,.0f}"] for each in limits if each.share)
    yield from table(["limit", "used", "clients that use it up"], rows)
    first = limits[0]
    yield f"\n{'TOO MUCH: ' if first.share > 1 else ''}the first limit is {first.words}. Then {first.then}."


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks plan", description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, required=True, metavar="N", help="processes, or sessions, in all")
    for name, operation in OPERATIONS.items():
        words = f"how often each of them does this in a minute: {operation.words}"
        parser.add_argument(f"--{name}", type=float, default=0, metavar="N", help=words)
    parser.add_argument("--queue", type=float, default=0, metavar="N", help="how many wait for each lock, on average")
    parser.add_argument(
        "--holding", type=float, default=1, metavar="SHARE", help="of clients that hold something (default: 1)"
    )
    parser.add_argument("--timeout", type=float, default=20, metavar="S", help="of the sessions (default: 20)")
    parser.add_argument("--tick", type=float, metavar="S", help="if the clients know it")
    parser.add_argument("--survive", type=float, metavar="S", help="if it is set")
    parser.add_argument("--servers", type=int, choices=(1, 3), default=3, help="(default: 3)")
    parser.add_argument("--cores", type=int, default=4, metavar="N", help="of each server (default: 4)")
    options = parser.parse_args(arguments)
    for line in plan(options, fit(Run.read().points, options.servers)):
        sys.stdout.write(f"{line}\n")
    return 0
