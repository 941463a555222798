"""A process that uses a group or a double barrier, to be killed by a test.

    python -m tests.integration.group_party HOSTS SESSION_TIMEOUT PATH JOB [ARGUMENTS]

It prints a word at each step and reads a line where it waits to be told to go on.
"""

from __future__ import annotations

import sys

from tests.helpers.party import say, started
from zkconcurrent import DoubleBarrier, Group


def main(hosts: str, session: str, path: str, job: str, *arguments: str) -> None:
    """Do a job."""
    zk = started(hosts, session)
    if job == "join":
        Group(zk, path).join(b"mine", arguments[0])  # no reference is kept
        say("joined")
        sys.stdin.readline()
    elif job == "exit":
        Group(zk, path).join(b"mine", arguments[0])
        say("joined")
        return  # without stop(): the interpreter's exit deletes the node
    elif job == "party":
        barrier = DoubleBarrier(zk, path, int(arguments[0]))
        barrier.enter()
        say("inside")
        sys.stdin.readline()
        say(barrier.leave())
    elif job == "rounds":
        barrier = DoubleBarrier(zk, path, int(arguments[0]))
        for n in range(int(arguments[1])):
            with barrier:
                say(f"in {n}")
            say(f"out {n}")
    zk.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
