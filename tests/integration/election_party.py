"""A process that leads, to be killed by a test.

    python -m tests.integration.election_party HOSTS SESSION_TIMEOUT PATH ID [LAYOUT]

It prints its token when it leads.
"""

from __future__ import annotations

import sys

from tests.helpers.party import say, started
from zkconcurrent import Election


def main(hosts: str, session: str, path: str, name: str, layout: str = "selector") -> None:
    """Lead until the end."""
    zk = started(hosts, session)
    with Election(zk, path, id=name, layout=layout).lead() as term:
        say(term.fencing_token)
        sys.stdin.readline()
    zk.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
