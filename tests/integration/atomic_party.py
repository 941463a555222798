"""A process that changes a number, to be killed by a test.

    python -m tests.integration.atomic_party HOSTS SESSION_TIMEOUT PATH JOB [ARGUMENTS]

It prints a word at each step and reads a line where it waits to be told to go on.
"""

from __future__ import annotations

import sys
import threading

from tests.helpers.party import say, started
from zkconcurrent import AtomicLong


def main(hosts: str, session: str, path: str, job: str, *arguments: str) -> None:
    """Do a job."""
    zk = started(hosts, session)
    number = AtomicLong(zk, path)
    if job == "add":  # so often, by so many threads
        count, threads = map(int, arguments)
        adding = [threading.Thread(target=lambda: [number.add() for _ in range(count)]) for _ in range(threads)]
        for thread in adding:
            thread.start()
        for thread in adding:
            thread.join()
        say("done")
        sys.stdin.readline()
    elif job == "count":  # without an end, one thread; each is told once it is answered
        while True:
            number.add()
            say("added")
    zk.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
