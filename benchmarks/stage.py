"""The stage: one server, the contestants' processes, and networks; all of it ends with the `with` block.

Every process reads its orders from a pipe, and ends when that does: also when this one is killed. They are in sessions
of their own, so that Ctrl-C in a terminal reaches this process alone, which ends them in order.
"""

from __future__ import annotations

import itertools
import math
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple, final
from zipfile import ZipFile

from kazoo.client import KazooClient

from benchmarks.figures import BEFORE, OURS
from benchmarks.meter import Cost, Counters, Meter
from zkconcurrent.testing import Ensemble, Server, find_installation
from zkconcurrent.testing._java import find_java

ROOT = Path(__file__).parents[1]
PATIENCE = 180.0  # seconds that anything may take
LOOKS = 5  # that find no request, before a queue is at rest
SESSION_TIMEOUT = 60.0  # so long that pings and heartbeats hardly count
JAVA = "CuratorPlayer"
CORES = os.cpu_count() or 1
# The threads that ZooKeeper takes if it is told nothing; a `Server` for tests has fewer.
OWN_THREADS = {
    "zookeeper.nio.numSelectorThreads": max(1, math.isqrt(CORES // 2)),
    "zookeeper.nio.numWorkerThreads": 2 * CORES,
    "zookeeper.commitProcessor.numWorkerThreads": CORES,
}
KINDS = ("lock", "read", "write", "semaphore")
OF_TASKS = ("aio", "pool", "aiozk")  # the contestants whose contenders are tasks of one event loop


class BenchmarkError(Exception):
    """A contestant failed at what it was told to do, or has ended."""


class Player:
    """A contestant's process."""

    def __init__(self, name: str, command: Sequence[str], home: Path = ROOT) -> None:
        self.name = name
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            cwd=home,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")])]),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def line(self) -> str:
        """Return the next line that it prints."""
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise BenchmarkError(f"{self.name} does not answer") from None
        if not line:
            self._errors.seek(0)
            raise BenchmarkError(f"{self.name} has ended:\n{self._errors.read()[-3000:]}")
        return line.rstrip("\n")

    def tell(self, *words: object) -> None:
        """Send an order; `answer` has what came of it."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """Return what the oldest order that was told came to."""
        outcome, _, answer = self.line().partition("\t")
        if outcome != "ok":
            raise BenchmarkError(f"{self.name}: {answer}")
        return answer

    def ask(self, *words: object) -> str:
        """Send an order, and wait for its answer."""
        self.tell(*words)
        return self.answer()

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]


class Turn(NamedTuple):
    """One time that somebody had the lock, in nanoseconds of the machine's clock."""

    asked: int
    acquired: int
    released: int
    player: int


@final
class Stage:
    """The server, and the processes that use it.

    Args:
        warm_up: how many cycles of each kind a JVM does before it is measured.
        revision: the earlier revision to be measured, too; git knows it.
        service: the server or ensemble, if it is not to be the usual server.

    Attributes:
        hosts: the server, or all servers.
        servers: the same, the leader first; once the stage is entered.
        meter: reads what they count.
        installation: the ZooKeeper that it runs, with its jars.
        folder: for what is made on the way.
    """

    def __init__(
        self, warm_up: int = 600, revision: str | None = None, service: Server | Ensemble | None = None
    ) -> None:
        self._warm_up = warm_up
        self._revision = revision
        self._open = ExitStack()
        self._teams: dict[str, list[Player]] = {}
        self._networks: dict[float, str] = {}
        self._paths = itertools.count(1)
        self.installation = find_installation()
        self.service = service or Server(tick_time=2.0, installation=self.installation, properties=OWN_THREADS)
        self._is_compiled = False

    def __enter__(self) -> Stage:
        try:
            self._open.enter_context(self.service)
            self.folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="zkconcurrent-bench-")))
        except BaseException:
            self._open.close()
            raise
        self.hosts = self.service.hosts
        if isinstance(self.service, Ensemble):
            self.servers = [self.service.leader(), *self.service.followers()]
        else:
            self.servers = [self.service]
        self.meter = Meter(self.servers)
        if self._revision is not None:
            self._check_out(self._revision)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._open.close()

    def _check_out(self, revision: str) -> None:
        """Put an earlier revision of the package beside these benchmarks, which measure both."""
        archive = self.folder / "before.zip"
        command = ["git", "archive", "--output", str(archive), revision, "zkconcurrent"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise BenchmarkError(f"git has no package in revision {revision}: {done.stderr.strip()}")
        with ZipFile(archive) as packed:
            packed.extractall(self._home(BEFORE))
        (self._home(BEFORE) / "benchmarks").symlink_to(Path(__file__).parent)

    def _home(self, contestant: str) -> Path:
        return self.folder / BEFORE if contestant == BEFORE else ROOT

    def path(self) -> str:
        """Return a path that nobody has used."""
        return f"/bench/p{next(self._paths)}"

    def team(self, contestant: str, size: int) -> list[Player]:
        """Return so many processes of a contestant, without sessions, warmed up; they are kept for the next."""
        team = self._teams.setdefault(contestant, [])
        fresh = [self._start(contestant) for _ in range(size - len(team))]
        team += fresh
        for player in fresh:
            _check_clock(player)
        if contestant == BEFORE and fresh and Path(fresh[0].ask("package")).parent != self._home(BEFORE):
            raise BenchmarkError("the package of the earlier revision is not the one that is imported")
        if contestant == "curator" and fresh:  # a JVM is slow until it has compiled what it runs
            with sessions(fresh, self.hosts):
                for kind in KINDS:
                    for player in fresh:
                        player.tell("time", kind, self.path(), self._warm_up)
                    for player in fresh:
                        player.answer()
        return team[:size]

    @contextmanager
    def guest(self, contestant: str) -> Iterator[Player]:
        """Have a process of a contestant that has done nothing yet, with a session, for a while."""
        player = self.newcomer(contestant)
        yield player
        player.ask("close")
        player.end()

    def newcomer(self, contestant: str, timeout: float = SESSION_TIMEOUT) -> Player:
        """Return a process of a contestant that has done nothing yet, with a session."""
        player = self._start(contestant)
        player.ask("open", self.hosts, timeout)
        return player

    def _start(self, contestant: str) -> Player:
        if contestant == "curator":
            command = [*self._java(), "-Xmx512m", "-cp", self._class_path(), JAVA]
        else:
            module = "benchmarks.task_player" if contestant in OF_TASKS else "benchmarks.player"
            command = [sys.executable, "-m", module, OURS if contestant == BEFORE else contestant]
        return self._hire(contestant, command)

    def _hire(self, name: str, command: Sequence[str]) -> Player:
        player = Player(name, command, self._home(name))
        self._open.callback(player.end)
        return player

    def _java(self) -> list[str]:
        return [str(find_java()), "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]

    def _class_path(self) -> str:
        jars = self.installation.curator_class_path
        if not jars:
            raise BenchmarkError("there is no Curator here: Debian's package is libcurator-recipes-java")
        path = os.pathsep.join(map(str, jars))
        if not self._is_compiled:
            source = Path(__file__).with_name(f"{JAVA}.java")
            brief = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
            compiler = [str(find_java()), *brief, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
            compiled = subprocess.run(
                [*compiler, "-cp", path, "-d", str(self.folder), str(source)], capture_output=True, text=True
            )
            if compiled.returncode:
                raise BenchmarkError(f"{source.name} does not compile; a JDK is needed\n{compiled.stderr}")
            self._is_compiled = True
        return f"{self.folder}{os.pathsep}{path}"

    def network(self, delay: float) -> str:
        """Return the address of the server behind a network that takes `delay` seconds each way."""
        if delay not in self._networks:
            command = [sys.executable, "-m", "benchmarks.network", self.hosts, str(delay)]
            self._networks[delay] = self._hire("the network", command).line()
        return self._networks[delay]

    # -- what the server counts ----------------------------------------------------------------------------------

    def watched_nodes(self) -> int:
        """Return how many watches there are on nodes, not on lists of children; quicker to ask."""
        return sum(int(told.rpartition(":")[2]) for told in self.meter.ask("wchs"))

    def wait_for_waiters(self, count: int) -> None:
        """Wait until so many wait, each for another node."""
        until = time.monotonic() + PATIENCE
        while self.watched_nodes() < count:
            if time.monotonic() > until:
                raise BenchmarkError(f"{self.watched_nodes()} watches instead of {count}: somebody does not wait")
            time.sleep(0.0005)

    def settle(self, watches: int) -> Counters:
        """Wait until there are so many watches, of all who wait, and nothing is sent any more; return the counters."""
        until = time.monotonic() + PATIENCE
        before, looks = self.meter.read(), 0
        while True:
            time.sleep(0.05)
            now = self.meter.read()
            quiet = now.events == before.events and now.requests - before.requests <= 2  # but for a ping
            looks = looks + 1 if quiet and now.watches >= watches else 0
            # On a busy machine, a thread may be about to send the next request.
            if looks == LOOKS:
                return now
            if time.monotonic() > until:
                raise BenchmarkError(f"the queue does not come to rest: {now}; {watches} watches are to be")
            before = now


class Queue(NamedTuple):
    """The result of a crowd's turns: from a queue at rest to a queue at rest."""

    turns: list[Turn]
    cost: Cost
    seconds: float

    def hand_overs(self, waited: float = 0.0) -> Iterator[float]:
        """Yield how long each hand-over between processes took, in milliseconds.

        Args:
            waited: how long, in milliseconds, the next must have waited then.
        """
        for before, after in itertools.pairwise(self.turns):
            if before.player != after.player and before.released - after.asked >= waited * 1e6:
                yield (after.acquired - before.released) / 1e6


def everyone(team: Sequence[Player], *words: object) -> list[str]:
    """Give all the same order at once; return their answers."""
    for player in team:
        player.tell(*words)
    return [player.answer() for player in team]


@contextmanager
def sessions(team: Sequence[Player], hosts: str, timeout: float = SESSION_TIMEOUT) -> Iterator[None]:
    """Have everyone open a session, and close it; after an error nobody is asked, as the stage ends with it."""
    everyone(team, "open", hosts, timeout)
    yield
    everyone(team, "close")


def compete(
    stage: Stage,
    team: Sequence[Player],
    kind: str,
    contenders: int,
    seconds: float,
    *,
    hold: float = 0.0,
    own: bool = False,
    one_by_one: bool = True,
    hosts: str | None = None,
) -> Queue:
    """Let contenders, spread over the processes, take turns for a while.

    It begins and ends with one holder and all others waiting, so that the server's counts belong to just these turns.

    Args:
        stage: where.
        team: the processes.
        kind: of lock.
        contenders: how many threads in all.
        seconds: how long.
        hold: how many seconds each keeps it.
        own: whether each thread has a session of its own.
        one_by_one: whether they come in turns, so that neighbours in the queue are of different processes.
        hosts: the server's address for the processes, if it is not the stage's.
    """
    path = stage.path()
    with sessions(team, hosts or stage.hosts):
        base, nodes = stage.meter.read().watches, stage.watched_nodes()
        join = ("join", kind, path, round(hold * 1e6))
        if one_by_one:
            for number in range(contenders):
                team[number % len(team)].ask(*join, 1, int(own))
                stage.wait_for_waiters(nodes + number)
        else:
            shares = [len(range(at, contenders, len(team))) for at in range(len(team))]
            for player, share in zip(team, shares, strict=True):
                player.tell(*join, share, int(own))
            for player in team:
                player.answer()
        before = stage.settle(base + contenders - 1)
        start = time.monotonic_ns()
        everyone(team, "go")
        time.sleep(seconds)
        everyone(team, "pause")
        end = time.monotonic_ns()
        after = stage.settle(base + contenders - 1)
        turns = []
        for number, entries in enumerate(everyone(team, "log")):
            for entry in entries.split():
                asked, acquired, released = map(int, entry.split(":"))
                turns.append(Turn(asked, acquired, released, number))
    turns.sort(key=lambda turn: turn.acquired)
    # The one that has it when all are told to pause ends the stretch; a turn takes longer than the order with a herd.
    last = max([end, *(turn.released for turn in turns)])
    return Queue(turns, after.since(before), (last - start) / 1e9)


def share(stage: Stage, team: Sequence[Player], kind: str, contenders: int, seconds: float) -> float:
    """Let contenders come and go for a while, whether or not the server sees who waits; return cycles per second."""
    with sessions(team, stage.hosts):
        path = stage.path()
        for number in range(contenders):
            team[number % len(team)].ask("join", kind, path, 0, 1, 0)
        time.sleep(0.3)
        start = time.monotonic_ns()
        everyone(team, "go")
        time.sleep(seconds)
        everyone(team, "pause")
        end = time.monotonic_ns()
        time.sleep(0.2)
        count = sum(len(entries.split()) for entries in everyone(team, "log"))
    return count / (end - start) * 1e9


def flow(
    stage: Stage,
    team: Sequence[Player],
    joining: Sequence[tuple[int, str]],
    seconds: float,
    backlog: tuple[str, int] | None = None,
) -> float:
    """Let threads put into a queue and take from it for a while; return how many items were taken in a second.

    Args:
        stage: where.
        team: the processes.
        joining: for each thread its process and its kind; those of the last one's kind take.
        seconds: how long, or until nothing is left.
        backlog: the player that puts items before, and how many.
    """
    path = stage.path()
    with sessions(team, stage.hosts):
        if backlog is not None:
            team[0].ask("time", backlog[0], path, backlog[1])
        for number, kind in joining:
            team[number].ask("join", kind, path, 0, 1, 0)
        time.sleep(0.3)
        start = time.monotonic_ns()
        everyone(team, "go")
        time.sleep(seconds)
        everyone(team, "pause")
        time.sleep(0.2)
        takers = {number for number, kind in joining if kind == joining[-1][1]}
        logs = everyone(team, "log")
        ends = [int(entry.rpartition(":")[2]) for number in takers for entry in logs[number].split()]
    return len(ends) / (max(ends) - start) * 1e9 if ends else 0.0


def events_of_items(stage: Stage, team: Sequence[Player], put: str, take: str, consumers: int, items: int) -> float:
    """Return how many watch events the server sends for an item, while consumers wait and items come one by one."""
    path = stage.path()
    with sessions(team, stage.hosts):
        team[0].ask("time", put, path, consumers)
        for number in range(consumers):
            team[number % len(team)].ask("join", take, path, 0, 1, 0)
        everyone(team, "go")
        before = stage.settle(1)
        for _ in range(items):
            team[0].ask("time", put, path, 1)
            time.sleep(0.03)
        after = stage.settle(1)
        taken = sum(len(entries.split()) for entries in everyone(team, "log"))
    if taken != consumers + items:
        raise BenchmarkError(f"{taken} of {consumers + items} items were taken")
    return (after.events - before.events) / items


def take_over(stage: Stage, contestant: str, timeout: float) -> tuple[float, float]:
    """Kill a leader whose session has that timeout.

    Returns:
        When the next one led: in seconds from the kill; and in milliseconds from the end of the session, which is when
        another client, in this process, has the event that the leader's node is gone. It may have it later than the
        follower, and the figure is negative then.
    """
    path, (follower,) = stage.path(), stage.team(contestant, 1)
    gone: queue.SimpleQueue[int] = queue.SimpleQueue()
    onlooker = KazooClient(stage.hosts, timeout=SESSION_TIMEOUT)
    onlooker.start(30)
    try:
        with sessions([follower], stage.hosts, timeout):
            leader = stage.newcomer(contestant, timeout)
            leader.ask("hold", "lead", path)
            (node,) = onlooker.get_children(path)
            waiting = stage.watched_nodes()
            follower.tell("hold", "lead", path)
            stage.wait_for_waiters(waiting + 1)
            onlooker.exists(f"{path}/{node}", lambda _: gone.put(time.monotonic_ns()))
            killed = time.monotonic_ns()
            leader.end()
            leads = int(follower.answer())
            return (leads - killed) / 1e9, (leads - gone.get(timeout=PATIENCE)) / 1e6
    finally:
        onlooker.stop()
        onlooker.close()


def resident(player: Player) -> float:
    """Return how much memory a process has, in kilobytes."""
    words = Path(f"/proc/{player.pid}/statm").read_text().split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def peak(player: Player) -> float:
    """Return how much memory a process has had at most, in kilobytes."""
    lines = Path(f"/proc/{player.pid}/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))


def _check_clock(player: Player) -> None:
    """Refuse a process whose clock is not ours: hand-overs are measured from one process to another."""
    before = time.monotonic_ns()
    theirs = int(player.ask("clock"))
    if not before <= theirs <= time.monotonic_ns():
        raise BenchmarkError(f"the clock of {player.name} is not CLOCK_MONOTONIC")
