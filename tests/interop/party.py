"""A Python process that takes a lock of ours, for tests that need one to count, to kill, or both.

    python -m tests.interop.party HOSTS SESSION_TIMEOUT PATH [KIND.]hold
    python -m tests.interop.party HOSTS SESSION_TIMEOUT PATH [KIND.]increment FILE CYCLES

The kinds are `mutex`, an RLock, which is taken if none is named; `write`, of a ReadWriteLock; and
`semaphore`, one of one permit.
`hold` prints a line when it holds, and releases at the end of its input. `increment` adds one to the number in the
file, CYCLES times, in a way that is only right if nobody else does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.helpers.lock_types import write_lock
from tests.helpers.party import say, started
from zkconcurrent import MultiLock, RLock, Semaphore

KINDS: dict[str, Callable[..., RLock | Semaphore]] = {
    "mutex": RLock,
    "write": write_lock,
    "semaphore": Semaphore,
}


def hold(lock: RLock | Semaphore) -> None:
    """Hold the lock until the input ends."""
    with lock:
        say("held")
        sys.stdin.read()


def increment(lock: RLock | Semaphore | MultiLock, file: str, cycles: str) -> None:
    """Add one, again and again."""
    counter = Path(file)
    for _ in range(int(cycles)):
        with lock:
            value = int(counter.read_text())
            os.sched_yield()
            counter.write_text(str(value + 1))


def main(hosts: str, session_timeout: str, path: str, job: str, *arguments: str) -> None:
    """Do the job, and leave in order."""
    client = started(hosts, session_timeout)
    kind, _, job = job.rpartition(".")
    lock = KINDS[kind or "mutex"](client, path)
    try:
        if job == "hold":
            hold(lock)
        else:
            increment(lock, *arguments)
    finally:
        client.stop()
        client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
