"""A process that changes a number, to be killed by a test.

    python -m tests.integration.atomic_party HOSTS SESSION_TIMEOUT PATH

It adds without an end, and prints a word once each add is answered.
"""

from __future__ import annotations

import sys

from tests.helpers.party import say, started
from zkconcurrent import AtomicLong


def main(hosts: str, session: str, path: str) -> None:
    """Count until it is killed."""
    number = AtomicLong(started(hosts, session), path)
    while True:
        number.add()
        say("added")


if __name__ == "__main__":
    main(*sys.argv[1:])
