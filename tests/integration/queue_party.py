"""A process that uses a queue, to be killed by a test.

    python -m tests.integration.queue_party HOSTS SESSION_TIMEOUT PATH JOB

It prints a word at each step and reads a line where it waits to be told to go on.
"""

from __future__ import annotations

import sys

from tests.helpers.party import say, started
from zkconcurrent import DelayQueue, Queue


def main(hosts: str, session: str, path: str, job: str) -> None:
    """Do a job."""
    zk = started(hosts, session)
    if job == "claim":
        with Queue[bytes](zk, path).claim() as claim:
            say(f"{claim.item.decode()} {claim.attempts}")
            sys.stdin.readline()
    elif job == "delayed":
        with DelayQueue[bytes](zk, path, max_attempts=5).claim() as claim:
            say(claim.item.decode())
            sys.stdin.readline()
    zk.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
