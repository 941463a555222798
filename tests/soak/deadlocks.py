"""What the search for deadlocks promises, measured on a real server, with clients in processes of their own.

    python -m tests.soak.deadlocks rings --tries 1000       each deadlock has one victim, soon
    python -m tests.soak.deadlocks contention --seconds 600  waits in one order are searched, and nothing is found

Each prints its figures, and the load of the machine beside them, as JSON; the exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

from kazoo.client import KazooClient

from zkconcurrent import DeadlockError, Lock, ReadWriteLock, Semaphore, connect, namespace
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

MOST_MEMBERS = 8
# What a try, or a member's answer, may take on any machine.
PATIENCE = 120.0
Report = dict[str, Any]

# -- a process -------------------------------------------------------------------------------------------------------


class Warned(logging.Handler):
    """Counts the warnings of deadlocks."""

    count = 0

    def handle(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        """Count one."""
        Warned.count += 1
        return True


def member(hosts: str, job: str, ends: Sequence[Connection]) -> None:
    """Do a job in a process: on one client, in a thread for each pipe, until the pipes are closed."""
    logging.getLogger("zkconcurrent.deadlocks").addHandler(Warned())
    logging.getLogger("zkconcurrent.waits").setLevel(logging.ERROR)
    with connect(f"zk://{hosts}?timeout=30") as client:
        threads = [
            threading.Thread(target={"rings": ring, "contention": contend}[job], args=(client, end)) for end in ends
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def ring(client: KazooClient, orders: Connection) -> None:
    """Take part in rings: hold one lock, say so, then wait for another one when told to; tell what came of it."""
    names = namespace(client, "/rings", on_deadlock="raise")
    while (order := orders.recv()) is not None:
        mine, wanted = order
        said: tuple[str, float, int]
        try:
            with names.RLock(mine):
                orders.send("held")
                orders.recv()
                began = time.monotonic()
                try:
                    with names.RLock(wanted):
                        said = "got", time.monotonic() - began, 0
                except DeadlockError as error:
                    said = "victim", time.monotonic() - began, len(error.cycle)
        except Exception as error:
            said = repr(error), 0.0, 0
        orders.send(said)


def contend(client: KazooClient, orders: Connection) -> None:
    """Take random locks in one order, and hold them so long that the waits of others are searched."""
    seed, seconds = orders.recv()
    rng, until = random.Random(seed), time.monotonic() + seconds
    acquired = errors = 0
    while time.monotonic() < until:
        with ExitStack() as held:
            try:
                for number in sorted(rng.sample(range(24), rng.randint(3, 5))):
                    path = f"/contention/{number}"
                    if number % 8 == 1:
                        held.enter_context(Semaphore(client, path, 2))
                    elif number % 3:
                        pair = ReadWriteLock(client, path, on_deadlock="raise")
                        held.enter_context(pair.read_lock if rng.random() < 0.4 else pair.write_lock)
                    else:
                        held.enter_context(Lock(client, path, on_deadlock="raise"))
                    acquired += 1
                time.sleep(rng.uniform(0.5, 1.5))
            except DeadlockError:
                errors += 1
    orders.send((acquired, errors, Warned.count, Session.of(client).deadlocks.requests))
    orders.recv()


@contextmanager
def members(job: str, lanes: int) -> Iterator[list[list[Connection]]]:
    """Start a server, and the processes; the pipes to them, for each lane one to each process."""
    spawn = multiprocessing.get_context("spawn")
    with Server() as server, ExitStack() as stack:
        pipes = [[spawn.Pipe() for _ in range(lanes)] for _ in range(MOST_MEMBERS)]
        for each in pipes:
            process = spawn.Process(target=member, args=(server.hosts, job, [end for _, end in each]))
            process.start()
            stack.callback(process.join)
        yield [[pipes[number][lane][0] for number in range(MOST_MEMBERS)] for lane in range(lanes)]
        for near, _ in (pipe for each in pipes for pipe in each):
            near.send(None)


def answer(pipe: Connection) -> Any:
    """Return what a member says."""
    if not pipe.poll(PATIENCE):
        raise TimeoutError("a member says nothing")
    return pipe.recv()


def each_in_a_thread(call: Callable[[Any], object], args: Sequence[Any]) -> None:
    """Call a function with each of some arguments, at the same time."""
    threads = [threading.Thread(target=call, args=(each,)) for each in args]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- what is measured ------------------------------------------------------------------------------------------------


def rings(tries: int, lanes: int) -> tuple[Report, bool]:
    """Close rings of two to eight processes, some at the same time; of each, wait for what comes of its members."""
    waited: list[float] = []
    bad: list[object] = []
    numbers = count()

    def close_rings(pipes: list[Connection]) -> None:
        while (number := next(numbers)) < tries:
            size = 2 + number % (MOST_MEMBERS - 1)
            ring = random.sample(pipes, size)
            for place, pipe in enumerate(ring):
                pipe.send((f"{number}-{place}", f"{number}-{(place + 1) % size}"))
            held = [answer(pipe) for pipe in ring]
            for pipe in ring:
                pipe.send("close")
            said = [answer(pipe) for pipe in ring]
            victims = [each for each in said if each[0] == "victim"]
            if set(held) != {"held"} or len(victims) != 1 or victims[0][2] != size or len(said) != size:
                bad.append(said)
            # The one that has queued last counts: from when it began to.
            waited.extend(seconds for _, seconds, _ in victims)

    with members("rings", lanes) as pipes:
        each_in_a_thread(close_rings, pipes)
    within = sum(each <= 2.0 for each in waited)
    median = statistics.median(waited or [0.0])
    report = {"rings": tries, "not one victim of the whole ring": bad, "within 2 s": within, "median, s": median}
    return report, not bad and len(waited) == tries


def contention(seconds: float, lanes: int) -> tuple[Report, bool]:
    """Have the threads of all processes contend for locks, in one order."""
    told: list[tuple[int, int, int, int]] = []

    def run(pipe: Connection) -> None:
        pipe.send((random.random(), seconds))
        while not pipe.poll(1.0):
            pass
        told.append(pipe.recv())

    with members("contention", lanes) as pipes:
        each_in_a_thread(run, [pipe for lane in pipes for pipe in lane])
    acquired, errors, warned = (sum(each[n] for each in told) for n in range(3))
    # Each thread tells of its process.
    requests = sum(each[3] for each in told) // lanes
    report = {"seconds": seconds, "acquires": acquired, "errors": errors, "warnings": warned, "requests": requests}
    return report, errors == warned == 0 and requests > 0


def main() -> int:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.deadlocks", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("what", choices=["rings", "contention"])
    parser.add_argument("--tries", type=int, default=50, help="how many rings (default: %(default)s)")
    parser.add_argument(
        "--lanes", type=int, default=4, help="rings at a time, or threads a process (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=60, help="of contention (default: %(default)s)")
    options = parser.parse_args()
    before = os.getloadavg()[0]
    if options.what == "rings":
        report, kept = rings(options.tries, options.lanes)
    else:
        report, kept = contention(options.seconds, options.lanes)
    report["load"] = [round(before, 1), round(os.getloadavg()[0], 1)]
    sys.stdout.write(f"{json.dumps({options.what: report}, indent=1)}\n")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
