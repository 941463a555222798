"""What servers count, and what they compute: figures that a busy machine hardly changes, unlike times.

Requests and events are the servers' own counts (`mntr`), transactions are the difference of two zxids, and processor
time is what Linux has for each thread of a server (`schedstat`, in nanoseconds). The threads of Java's compiler are
left out: they work while a server is young, whatever it is asked.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from zkconcurrent.testing import Server
from zkconcurrent.testing._java import find_java

COUNTER = (1 << 32) - 1  # the lower half of a zxid; the upper one is the leader's number
COMPILERS = ("C1 CompilerThre", "C2 CompilerThre", "Sweeper thread")
CHANGES = ("created", "deleted", "changed", "children")


class Cost(NamedTuple):
    """The growth of the counters while something was done.

    Attributes:
        requests: that the servers received.
        events: watch events that they sent.
        transactions: that they made.
        log: bytes of the leader's log.
        cpu: the leader's processor time, in seconds.
        busiest: that of the one of its threads that worked most.
        followers: that of all other servers together.
    """

    requests: float
    events: float
    transactions: float
    log: float
    cpu: float
    busiest: float
    followers: float


class Counters(NamedTuple):
    """The counters of all servers: requests received, watch events sent, and watches that are left; see also `Cost`."""

    requests: int
    events: int
    watches: int
    transactions: int
    log: int
    leader: Mapping[str, float]  # seconds, by thread
    followers: float

    def since(self, before: Counters) -> Cost:
        """Return what was added."""
        spent = [seconds - before.leader.get(thread, 0.0) for thread, seconds in self.leader.items()]
        return Cost(
            self.requests - before.requests,
            self.events - before.events,
            self.transactions - before.transactions,
            self.log - before.log,
            sum(spent),
            max(spent, default=0.0),
            self.followers - before.followers,
        )


class Meter:
    """Reads the counters of servers, of which the first is the leader; what it asks is no request."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers
        self._words = 0  # that were asked of the servers: they count them as requests
        lines = self.ask("conf")[0].splitlines()
        self._log = Path(next(line.partition("=")[2] for line in lines if line.startswith("dataLogDir=")))

    def ask(self, word: str) -> list[str]:
        """Ask each server a word."""
        self._words += len(self._servers)
        return [server.command(word) for server in self._servers]

    def read(self) -> Counters:
        """Return the counters."""
        (zxid,) = (line.split()[1] for line in self.ask("srvr")[0].splitlines() if line.startswith("Zxid"))
        told = [dict(line.split("\t", 1) for line in each.splitlines() if "\t" in line) for each in self.ask("mntr")]
        # The rest of a file of the log is a hole, made beforehand.
        log = sum(file.stat().st_blocks * 512 for file in self._log.glob("log.*"))
        leader, *others = (threads(server.pid) for server in self._servers)
        return Counters(
            sum(int(each["zk_packets_received"]) for each in told) - self._words,
            sum(int(each[f"zk_sum_node_{change}_watch_count"]) for each in told for change in CHANGES),
            sum(int(each["zk_watch_count"]) for each in told),
            int(zxid, 16) & COUNTER,
            log,
            leader,
            sum(sum(each.values()) for each in others),
        )


def threads(process: int) -> dict[str, float]:
    """Return the processor time, in seconds, of each thread of a process but Java's compiler's; none but on Linux."""
    taken = {}
    for task in Path("/proc").glob(f"{process}/task/*"):
        try:
            name, times = (task / "comm").read_text().strip(), (task / "schedstat").read_text()
        except OSError:  # it has just ended
            continue
        if name not in COMPILERS:
            taken[f"{name} {task.name}"] = int(times.split()[0]) / 1e9
    return taken


def heap(server: Server) -> float:
    """Return the bytes of all that a server's Java can reach; it collects its garbage for that."""
    command = [str(find_java()), "-m", "jdk.jcmd/sun.tools.jcmd.JCmd", str(server.pid), "GC.class_histogram"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(next(line.split()[2] for line in told.splitlines() if line.startswith("Total")))
