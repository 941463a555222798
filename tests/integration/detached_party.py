"""A process that uses a detached lock, to be killed by a test.

    python -m tests.integration.detached_party HOSTS SESSION_TIMEOUT PATH JOB [ARGUMENTS]

It prints a word at each step and reads a line where it waits to be told to go on.
"""

from __future__ import annotations

import sys

from tests.helpers.party import say, started
from zkconcurrent import DetachedLock


def main(hosts: str, session: str, path: str, job: str, owner: str) -> None:
    """Do a job."""
    zk = started(hosts, session)
    lock = DetachedLock(zk, path, owner)
    if job == "hold":
        say(lock.acquire())
        say(lock.fencing_token)
        sys.stdin.readline()
    elif job == "exit":
        say(lock.acquire())  # without stop(): the interpreter's exit deletes the nodes of sessions
        return
    elif job == "release":
        lock.release()
        say("released")
    zk.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
