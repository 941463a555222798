"""A process that joins a group, to be killed by a test.

    python -m tests.integration.group_party HOSTS SESSION_TIMEOUT PATH JOB ID

It prints a word at each step and reads a line where it waits to be told to go on.
"""

from __future__ import annotations

import sys

from tests.helpers.party import say, started
from zkconcurrent import Group


def main(hosts: str, session: str, path: str, job: str, name: str) -> None:
    """Do a job."""
    zk = started(hosts, session)
    if job == "join":
        Group(zk, path).join(b"mine", name)  # no reference is kept
        say("joined")
        sys.stdin.readline()
    elif job == "exit":
        Group(zk, path).join(b"mine", name)
        say("joined")
        return  # without stop(): the interpreter's exit deletes the node
    zk.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
