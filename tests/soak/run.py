"""One run, from the start of the servers to the verdict on its history."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.models.lock import Lock
from tests.soak.checks.data import check_data
from tests.soak.checks.history import History, Violation, check
from tests.soak.checks.items import Stock, check_items
from tests.soak.events import Event, Fault, Logs, clock
from tests.soak.faults import Networks, Processes, Servers, Track
from tests.soak.keeper import Keeper
from tests.soak.testbed import SoakError, Testbed
from tests.soak.workers import Workers
from tests.soak.workload import WORKLOADS

if TYPE_CHECKING:
    from typing_extensions import Self


TRACKS = (Networks, Processes, Servers)


@dataclass(frozen=True)
class Plan:
    """The plan of a run; the same plan strikes the same faults in the same order.

    Attributes:
        seed: of the faults, and of the threads' actions.
        duration: seconds in which faults strike.
        places: how many worker processes there are at a time.
        session: their session timeout, in seconds.
        workload: the name of the threads' work.
    """

    seed: int
    duration: float = 60.0
    places: int = 4
    session: float = 4.0
    workload: str = "all"


@dataclass(frozen=True)
class Verdict:
    """The result of a run.

    Attributes:
        plan: its plan.
        history: its events and faults.
        diverged: the servers that found another digest than their leader's: their reads may be wrong.
        violations: the broken rules.
    """

    plan: Plan
    history: History
    violations: list[Violation]
    diverged: frozenset[int] = frozenset()


class Lookout:
    """Looks all the time whether the copies of the servers are the same.

    Attributes:
        diverged: the servers whose digest was not their leader's at some time; their logs are in the folder.
    """

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        self._testbed = testbed
        self._folder = folder
        self._over = threading.Event()
        self.diverged: set[int] = set()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.25):
            for number in set(self._testbed.diverged()) - self.diverged:
                self.diverged.add(number)
                log = self._testbed.servers[number - 1].log
                (self._folder / f"diverged-{number}.log").write_text(log, encoding="utf-8")


@contextmanager
def striking(tracks: list[Track]) -> Iterator[list[BaseException]]:
    """Let faults strike within the block; all are healed when it is left. Yields what went wrong with them."""
    errors: list[BaseException] = []

    def run(track: Track) -> None:
        try:
            track.run()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(track,)) for track in tracks]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        for track in tracks:
            track.over.set()
        for thread in threads:
            thread.join()


def run(plan: Plan, folder: Path) -> Verdict:
    """Run it; the files of the processes stay in the folder.

    Raises:
        SoakError: it could not be run to its end.
        NoServerError: there is no ZooKeeper.
    """
    leftovers: list[str] = []
    with Testbed(plan.places) as testbed, Lookout(testbed, folder) as lookout:
        with Workers(testbed, folder, plan.seed, plan.session, plan.workload, plan.places) as workers:
            workers.wait_until_connected()
            tracks: list[Track] = [kind(plan.seed, testbed, workers) for kind in TRACKS]
            with striking(tracks) as errors:
                until = time.monotonic() + plan.duration
                while time.monotonic() < until and not errors:
                    time.sleep(0.05)
            if errors:
                raise SoakError(f"the faults could not go on: {errors[0]!r}") from errors[0]
            healed = clock()
            with Keeper(testbed, folder, WORKLOADS[plan.workload]) as keeper:
                done = workers.finish()
                if done:
                    keeper.drain()
                    leftovers = _left(testbed, plan.session)
                    workers.end()
        faults = sorted((fault for track in tracks for fault in track.faults), key=lambda fault: fault.at)
    verdict = judge(plan, Logs(folder).news(), faults, healed, leftovers)
    return replace(verdict, diverged=frozenset(lookout.diverged))


def _left(testbed: Testbed, session: float) -> list[str]:
    """Return the ephemeral nodes that stay: those of processes that were killed go with their sessions."""
    until = time.monotonic() + 2 * session + 2
    while (left := _owned(testbed)) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def _owned(testbed: Testbed) -> list[str]:
    """Return the ephemeral nodes, but for those that stay as long as their client uses a queue, a value or a map."""
    return [path for path in testbed.ephemerals() if path.split("/")[-2] not in ("members", "writers")]


def judge(
    plan: Plan,
    events: list[Event],
    faults: list[Fault],
    healed: float,
    leftovers: list[str],
) -> Verdict:
    """Check what was written down."""
    entries = WORKLOADS[plan.workload].items()
    models = {path: entry.model for path, entry in entries if isinstance(entry.model, Lock)}
    queues = {path: entry.model for path, entry in entries if isinstance(entry.model, Stock)}
    data = {path: entry.model for path, entry in entries if not isinstance(entry.model, Lock | Stock)}
    history = History(events, faults, models, plan.session, healed, leftovers, queues, data)
    checks = (*check(history), *check_items(history), *check_data(history))
    found = sorted(checks, key=lambda violation: violation.at)
    return Verdict(plan, history, found)
