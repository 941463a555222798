"""How a load grows, from one client to thousands: counts and processor time at the servers.

A *point* is some work at one size, with all that the servers counted and computed meanwhile. Counts are exact, and
processor time depends little on what else the machine does; only rates (`work a second`) do, and so nothing is derived
from them. A full run keeps its points in `points.json`, in place of earlier ones: `plan` fits its model to them.

python -m benchmarks scale                  everything, an hour on a busy machine
python -m benchmarks scale sessions flood   some parts
python -m benchmarks scale --small          a small size of each, which nobody keeps: whether it works, two minutes
python -m benchmarks scale --show           tables, chart and the model's errors of the points that are kept
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.protocol.serialization import (
    Close,
    Connect,
    Create,
    Delete,
    GetChildren,
    Sync,
    int_int_struct,
    int_struct,
)
from kazoo.security import OPEN_ACL_UNSAFE

from benchmarks.charts import COLORS, Curves, curves
from benchmarks.figures import OURS
from benchmarks.machine import describe
from benchmarks.meter import Cost, heap
from benchmarks.plan import errors
from benchmarks.points import Point, Run, lease_of
from benchmarks.report import number, table
from benchmarks.stage import OWN_THREADS, ROOT, SESSION_TIMEOUT, Stage, compete, sessions
from zkconcurrent.testing import Ensemble, Server

TICK = 1.0  # of the servers, in seconds
TEAM = 4  # processes that share the sessions, waiters and calls of a point
PIECE = 25  # sessions or locks that a process is told to open at a time
CALLS = 500  # of what is measured call by call
EPHEMERAL, SEQUENCE = 1, 2  # flags of a create


class Setting(NamedTuple):
    """A series of points: a part, its sizes in a full run and in a small one, and where."""

    part: str
    sizes: tuple[int, ...]
    small: int
    who: str = OURS
    how: str = ""
    servers: int = 1
    sync: bool = False


Work = tuple[float, float, Cost, float]  # of a point


def processes(stage: Stage, setting: Setting, size: int, small: bool) -> Work:
    """So many processes acquire and release, each a lock of its own."""
    # A disk, or a follower, takes milliseconds for each.
    cycles = 800 if setting.sync or setting.servers > 1 else 4000
    team, calls = stage.team(setting.who, size), 20 if small else max(cycles // size, 100)
    with sessions(team, stage.hosts):
        paths = [stage.path() for _ in team]

        def cycle(count: int) -> None:
            for player, path in zip(team, paths, strict=True):
                player.tell("time", "lock", path, count)
            for player in team:
                player.answer()

        cycle(calls // 5)
        return measured(stage, lambda: cycle(calls), size * calls)


def held(stage: Stage, setting: Setting, size: int, small: bool) -> Work:
    """So many sessions hold a lock each, and do nothing else; or one session holds so many."""
    before, path, lease = heap(stage.servers[0]), stage.path(), lease_of(setting.how)
    one = setting.part == "paths"
    team = stage.team(setting.who, 1 if one else TEAM)
    with sessions(team, stage.hosts, lease.timeout):
        pieces = [range(at, min(at + PIECE, size)) for at in range(0, size, PIECE)]
        hired = [team[number_ % len(team)] for number_ in range(len(pieces))]
        for at, (player, piece) in enumerate(zip(hired, pieces, strict=True)):
            player.tell("fleet", "lock", f"{path}/{at}", len(piece), "" if one else setting.how)
        for player in hired:
            player.answer()
        kept = heap(stage.servers[0]) - before
        # New holds have their first proofs and watches; these come for a hundred holds in each beat.
        time.sleep(1.0 if small else lease.timeout + lease.beat * size / 100 * one)
        # All began at about the same time, so only whole cycles of their proofs have as many as there are on average.
        seconds = 2.0 if small else lease.spacing * round(20 / lease.spacing + 1)
        return (*measured(stage, lambda: time.sleep(seconds), seconds)[:3], kept)


def waiters(stage: Stage, setting: Setting, size: int, small: bool) -> Work:
    """So many threads wait for one lock, in a few processes, and take turns."""
    queue = compete(stage, stage.team(setting.who, TEAM), "lock", size + 1, 0.3 if small else 5.0)
    return len(queue.turns), queue.seconds, queue.cost, 0.0


def items(stage: Stage, setting: Setting, size: int, small: bool) -> Work:
    """Calls on a queue with so many items, or on a number with so many receipts."""
    (player,), path, calls = stage.team(setting.who, 1), stage.path(), 10 if small else CALLS
    with sessions([player], stage.hosts):
        player.ask("time", "add" if setting.how == "add" else "put", path, 10)
        fill(stage, f"{path}/receipts/full-" if setting.how == "add" else f"{path}/items/queue-", size)
        return measured(stage, lambda: player.ask("time", setting.how, path, calls), calls)


def fill(stage: Stage, prefix: str, count: int) -> None:
    """Create as many nodes as there are to be, as copies of the first one there."""
    client, wire = KazooClient(stage.hosts, timeout=SESSION_TIMEOUT), Wire(stage.hosts)
    client.start(30)
    folder = prefix.rpartition("/")[0]
    data, _ = client.get(f"{folder}/{client.get_children(folder)[0]}")
    client.stop()
    client.close()
    for at in range(0, count, 500):
        wire.exchange([Create(prefix, data, OPEN_ACL_UNSAFE, SEQUENCE)] * min(500, count - at))
    wire.close()


def flood(stage: Stage, setting: Setting, size: int, small: bool) -> Work:
    """So many requests come at once, again and again: what they cost a server that hardly has to be woken."""
    path, calls = stage.path(), 200 if small else min(30_000, 1000 * size)
    # Of an ensemble, the last server: a follower, as two thirds of all clients have.
    wire = Wire(stage.servers[-1].hosts)
    wire.exchange([Create(path.rpartition("/")[0], b"", OPEN_ACL_UNSAFE, 0), Create(path, b"", OPEN_ACL_UNSAFE, 0)])
    kinds: dict[str, Callable[[int], list[Any]]] = {
        "create": lambda at: [Create(f"{path}/n-{at:010d}", b"x" * 100, OPEN_ACL_UNSAFE, 0)],
        "sync": lambda _: [Sync("/")],
        # A cycle of a lock, with a listing that has one name or none.
        "cycle": lambda at: [
            Create(f"{path}/n-{at:010d}", b"x" * 100, OPEN_ACL_UNSAFE, EPHEMERAL),
            GetChildren(path, None),
            Delete(f"{path}/n-{at:010d}", -1),
        ],
    }
    each = [kinds[setting.how](at) for at in range(calls)]
    batches = [[request for some in each[at : at + size] for request in some] for at in range(0, calls, size)]
    done = measured(stage, lambda: deque(map(wire.exchange, batches), maxlen=0), calls)
    wire.close()
    return done


class Wire:
    """A session by hand, whose requests are sent together: kazoo could not keep a server busy."""

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), SESSION_TIMEOUT)
        self._replies = self._socket.makefile("rb")
        self._send([bytes(Connect(0, 0, round(SESSION_TIMEOUT * 1000), 0, bytes(16), None).serialize())])

    def exchange(self, requests: Sequence[Any]) -> None:
        """Send requests, and wait for their replies."""
        heads = (int_int_struct.pack(number_, each.type) for number_, each in enumerate(requests, 1))
        self._send([head + bytes(each.serialize()) for head, each in zip(heads, requests, strict=True)])

    def _send(self, frames: Sequence[bytes]) -> None:
        self._socket.sendall(b"".join(int_struct.pack(len(frame)) + frame for frame in frames))
        for _ in frames:
            (length,) = int_struct.unpack(self._replies.read(4))
            self._replies.read(length)

    def close(self) -> None:
        """End the session."""
        self._send([int_int_struct.pack(0, Close.type)])
        self._replies.close()
        self._socket.close()


def measured(stage: Stage, work: Callable[[], object], units: float) -> Work:
    """Do it; return how much was done, how long it took, and its cost."""
    before, start = stage.meter.read(), time.monotonic()
    work()
    seconds = time.monotonic() - start
    return units, seconds, stage.meter.read().since(before), 0.0


PARTS: dict[str, tuple[str, Callable[[Stage, Setting, int, bool], Work]]] = {
    "processes": ("processes that acquire and release locks of their own", processes),
    "sessions": ("idle sessions that hold a lock each; figures of a second", held),
    "paths": ("locks that one session holds; figures of a second", held),
    "waiters": ("threads of four processes that wait for one lock; figures of a hand-over", waiters),
    "items": ("items of a queue, or receipts of a number, that are there; figures of a call", items),
    "flood": ("requests that come at once; figures of a request, or a cycle", flood),
}
SERIES = [
    *(Setting("processes", (1, 2, 4, 8, 16), 2, who) for who in ("raw", "kazoo", OURS)),
    Setting("sessions", (10, 100, 300, 1000), 3, "kazoo", "timeout=10"),
    Setting("sessions", (10, 100, 300, 1000), 3, OURS, "timeout=10"),
    Setting("sessions", (10, 100, 300), 3, OURS, "timeout=10&tick=1"),
    Setting("sessions", (100, 300, 1000, 2000), 3, OURS, "timeout=20&tick=1"),
    Setting("paths", (1, 100, 1000, 10_000), 3, OURS, "timeout=10"),
    Setting("waiters", (1, 10, 100, 1000), 3, "kazoo"),
    Setting("waiters", (1, 10, 100, 1000, 5000), 3),
    # More than are taken, as a `get` waits for an item.
    *(Setting("items", (2 * CALLS, 10_000, 100_000), 20, OURS, how) for how in ("put", "get", "add")),
    *(Setting("flood", (1, 10, 100, 1000), 10, "raw", how) for how in ("create", "sync")),
    Setting("flood", (10, 1000), 10, "raw", "cycle"),
    *(
        Setting("processes", (1, 4, 16), 2, OURS, servers=servers, sync=sync)
        for servers, sync in ((1, True), (3, False), (3, True))
    ),
    Setting("sessions", (10, 100, 300), 3, OURS, "timeout=10", servers=3),
    Setting("waiters", (1, 10, 100), 3, OURS, servers=3),
    *(Setting("flood", (1, 100, 1000), 10, "raw", how, 3) for how in ("create", "sync")),
    Setting("flood", (10, 1000), 10, "raw", "cycle", 3),
    *(Setting("flood", (1, 1000), 10, "raw", "create", servers, True) for servers in (1, 3)),
]


def service(servers: int, sync: bool) -> Server | Ensemble:
    """Return servers, which are new for each point: what an earlier one left would be measured, too."""
    if servers == 1:
        return Server(tick_time=TICK, force_sync=sync, properties=OWN_THREADS)
    return Ensemble(servers, tick_time=TICK, force_sync=sync, properties=OWN_THREADS)


def measure(series: Sequence[Setting], small: bool, say: Callable[[str], object]) -> Iterator[Point]:
    """Yield the points of the series, one by one."""
    for setting in series:
        for size in (setting.small,) if small else setting.sizes:
            say(f"{setting.part}: {size} {setting.who} {setting.how}\n")
            with Stage(0, service=service(setting.servers, setting.sync)) as stage:
                # Java compiles what it runs often; before, everything takes several times as long.
                flood(stage, Setting("flood", (), 0, "raw", "cycle"), 3, small)
                work = PARTS[setting.part][1](stage, setting, size, small)
            yield Point(setting.part, size, setting.who, setting.how, setting.servers, setting.sync, *work)


def tables(points: Sequence[Point]) -> Iterator[str]:
    """Yield a table for each part that was measured."""
    head = [
        "size",
        "who",
        "servers",
        "work a second",
        "requests",
        "transactions",
        "events",
        "server, us",
        "busiest thread",
    ]
    for part, (title, _) in PARTS.items():
        if mine := [point for point in points if point.part == part]:
            yield f"\n### {part}: {title}\n"
            yield from table([*head, "others, us", "log, bytes", "heap, kB"], map(_row, mine))


def _row(point: Point) -> list[str]:
    cost = Cost(*(each / point.work for each in point.cost))
    return [
        f"{point.size:,}",
        f"{point.who} {point.how}",
        f"{point.servers}{', sync' if point.sync else ''}",
        number(point.work / point.seconds),
        *map(number, (cost.requests, cost.transactions, cost.events)),
        *(number(each * 1e6) for each in (cost.cpu, cost.busiest, cost.followers)),
        number(cost.log),
        number(point.heap / 1000) if point.heap else "",
    ]


def chart(points: Sequence[Point]) -> str:
    """Draw the growth with sessions and waiters, on one server."""
    fleets = {
        "kazoo": ("kazoo", "kazoo", "timeout=10"),
        OURS: ("zkconcurrent, T = 10 s", OURS, "timeout=10"),
        "tick": ("the same, tick known", OURS, "timeout=10&tick=1"),
        "long": ("T = 20 s, tick known", OURS, "timeout=20&tick=1"),
    }

    def of(part: str, who: str, how: str, take: Callable[[Cost], float]) -> list[tuple[float, float]]:
        found = [each for each in points if each.series == (part, who, how, 1, False)]
        return [(each.size, take(each.cost) / each.work) for each in found]

    panels = [
        Curves(
            "transactions a second, idle holders",
            "sessions",
            {
                name: of("sessions", who, how, lambda cost: cost.transactions)
                for name, (_, who, how) in fleets.items()
                if name != "kazoo"
            },
        ),
        Curves(
            "requests a second, idle holders",
            "sessions",
            {name: of("sessions", who, how, lambda cost: cost.requests) for name, (_, who, how) in fleets.items()},
        ),
        Curves(
            "ms of the server for a hand-over",
            "waiters",
            {who: of("waiters", who, "", lambda cost: cost.cpu * 1000) for who in ("kazoo", OURS)},
        ),
    ]
    colors = [COLORS["kazoo"], COLORS[OURS], COLORS["unfair"], COLORS["curator"]]
    who = {name: (words, color) for (name, (words, *_)), color in zip(fleets.items(), colors, strict=True)}
    return curves("How the load grows", "One server; kazoo's idle holders make no transactions.", panels, who)


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=f"all, or some of: {', '.join(PARTS)}")
    parser.add_argument("--small", action="store_true", help="one small size of each")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    run = Run(describe(Stage()), []) if options.small else Run.read()
    if not options.show:
        series = [each for each in SERIES if not options.parts or each.part in options.parts]
        for point in measure(series, options.small, sys.stderr.write):
            at = [(each.series, each.size) for each in run.points]
            if (same := (point.series, point.size)) in at:
                run.points[at.index(same)] = point
            else:
                run.points.append(point)
            if not options.small:
                run._replace(machine=describe(Stage())).write()
    lines = [*(f"{what:13} {words}" for what, words in run.machine.items()), *tables(run.points)]
    if not options.small:
        (ROOT / "docs" / "charts" / "scale.svg").write_text(chart(run.points), "utf-8")
        for servers in (1, 3):
            lines += [
                f"\n### the model, fitted to {servers} of them: by how much it differs\n",
                *errors(run.points, servers),
            ]
    for line in lines:
        sys.stdout.write(f"{line}\n")
    return 0
