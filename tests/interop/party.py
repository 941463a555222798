"""A Python process that counts under a lock of ours.

    python -m tests.interop.party HOSTS SESSION_TIMEOUT PATH [KIND.]increment FILE CYCLES

The kinds are `mutex`, an RLock, which is taken if none is named; `write`, of a ReadWriteLock; and
`semaphore`, one of one permit.
It adds one to the number in the file, CYCLES times, in a way that is only right if nobody else does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.helpers.lock_types import write_lock
from tests.helpers.party import started
from zkconcurrent import RLock, Semaphore

KINDS: dict[str, Callable[..., RLock | Semaphore]] = {
    "mutex": RLock,
    "write": write_lock,
    "semaphore": Semaphore,
}


def increment(lock: RLock | Semaphore, file: str, cycles: str) -> None:
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
        increment(lock, *arguments)
    finally:
        client.stop()
        client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
