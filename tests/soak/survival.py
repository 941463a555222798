"""Which share of holds survives the death of the leader, and how long it is before the service answers again.

python -m tests.soak.survival --kills 10 --timeouts 10 20 30

Three servers with the settings of production (a tick of 2 s); the leader is killed by SIGKILL, which its followers see
at once, and started again when another one is elected. Holders sit at all three servers, each with a client and a lock
of its own, and do nothing else.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kazoo.client import KazooClient

import zkconcurrent
from tests.soak.events import clock
from zkconcurrent import Lock, LockLostError
from zkconcurrent.testing import Ensemble

RETRY = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}
SETTLE = 60.0  # seconds


@dataclass
class Row:
    """The results of the kills at one session timeout.

    Attributes:
        timeout: of the sessions, in seconds.
        survived: of each hold at each kill, whether it did.
        elections: seconds from each kill until another server led.
        outages: seconds from each kill until each client was answered again.
    """

    timeout: float
    survived: list[bool] = field(default_factory=list)
    elections: list[float] = field(default_factory=list)
    outages: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        share = sum(self.survived) / len(self.survived)
        return (
            f"{self.timeout:7g} {len(self.elections):6} {len(self.survived):6} {share:9.1%}"
            f" {statistics.median(self.elections):12.2f} {max(self.elections):6.2f}"
            f" {statistics.median(self.outages):12.2f} {max(self.outages):6.2f}"
        )


HEAD = "T [s]    kills  holds  survived  election [s]    max   outage [s]    max"


@contextmanager
def holders(ensemble: Ensemble, timeout: float, count: int, options: dict[str, Any]) -> Iterator[list[Lock]]:
    """Clients at all servers in turn, each with a lock that it holds."""
    with ExitStack() as stack:
        locks = []
        servers = [server.hosts for server in ensemble.servers]
        for number in range(count):
            hosts = ",".join(servers[number % 3 :] + servers[: number % 3])
            client = zkconcurrent.connect(
                f"zk://{hosts}",
                timeout=timeout,
                randomize_hosts=False,
                connection_retry=dict(RETRY),
                start_timeout=SETTLE,
                **options,
            )
            stack.enter_context(client)
            locks.append(Lock(client, f"/survival/{number}"))
            locks[-1].acquire()
        yield locks


def answered(client: KazooClient, killed: float, outages: list[float]) -> None:
    """Ask until there is an answer, which none is that was on its way; note how long that took."""
    while clock() - killed < SETTLE:
        try:
            client.set_async("/survival", b"").get(timeout=SETTLE)
        except Exception:  # the connection was lost meanwhile
            time.sleep(0.02)
        else:
            outages.append(clock() - killed)
            return


def kill(ensemble: Ensemble, locks: list[Lock], row: Row) -> None:
    """Kill the leader once, and note what comes of it."""
    lost = [lock.lost for lock in locks]
    leader = ensemble.leader()
    killed = clock()
    leader.kill()
    asking = [threading.Thread(target=answered, args=(lock.client, killed, row.outages), daemon=True) for lock in locks]
    for thread in asking:
        thread.start()
    ensemble.leader(SETTLE)
    row.elections.append(clock() - killed)
    leader.start()
    for thread in asking:
        thread.join()
    # A hold is lost within the session timeout, by the clock of its client.
    time.sleep(max(0.0, killed + row.timeout + 1 - clock()))
    row.survived += [not each.is_set() for each in lost]
    for lock, each in zip(locks, lost, strict=True):
        if each.is_set():
            try:
                lock.release()
            except LockLostError:
                lock.acquire()


def main() -> int:
    """Kill leaders, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.survival", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--kills", type=int, default=10, help="at each timeout (default: %(default)s)")
    parser.add_argument("--timeouts", type=float, nargs="+", default=[10.0, 20.0, 30.0], help="session timeouts")
    parser.add_argument("--holders", type=int, default=9, help="clients (default: %(default)s)")
    parser.add_argument("--tick", type=float, default=2.0, help="of the servers, in seconds (default: %(default)s)")
    parser.add_argument("--known", action="store_true", help="the clients are told what the tick is")
    parser.add_argument("--seed", type=int, default=1, help="of the moments at which leaders are killed")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    random = Random(options.seed)
    known = {"tick": options.tick} if options.known else {}
    say(f"{options.holders} holders; tick {options.tick:g} s, {'known' if known else 'unknown'} to the clients")
    say(HEAD)
    for timeout in options.timeouts:
        row = Row(timeout)
        settings = {"initLimit": 10, "syncLimit": 5}
        with (
            Ensemble(tick_time=options.tick, settings=settings) as ensemble,
            holders(ensemble, timeout, options.holders, known) as locks,
        ):
            for _ in range(options.kills):
                time.sleep(timeout / 2 + random.random() * timeout / 3)  # anywhere between two proofs
                kill(ensemble, locks, row)
        say(str(row))
    return 0


def say(words: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
