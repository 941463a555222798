"""A process that takes part in a deadlock.

    python -m tests.integration.deadlock_party HOSTS SESSION_TIMEOUT PATH NAME OTHER

It holds the RLock of the one name, says so, and reads a line. Then it acquires the other, and says that it has it.
"""

from __future__ import annotations

import sys

from tests.helpers.party import say, started
from zkconcurrent import namespace


def main(hosts: str, session: str, path: str, name: str, other: str) -> None:
    """Hold the one, and acquire the other."""
    zk = started(hosts, session)
    names = namespace(zk, path, on_deadlock="raise")
    with names.RLock(name):
        say("held")
        sys.stdin.readline()
        with names.RLock(other):
            say("got")
    zk.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
