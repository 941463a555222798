"""A process that takes part in an election, to be killed by a test.

    python -m tests.integration.election_party HOSTS SESSION_TIMEOUT PATH JOB ID

It prints its token when it leads, and a word at each further step; it reads a line where it waits to be told to go on.
"""

from __future__ import annotations

import sys

from tests.helpers.party import say, started
from zkconcurrent import Election


def main(hosts: str, session: str, path: str, job: str, name: str, layout: str = "selector") -> None:
    """Do a job."""
    zk = started(hosts, session)
    election = Election(zk, path, id=name, layout=layout)
    if job == "lead":
        with election.lead() as term:
            say(term.token)
            sys.stdin.readline()
        say("over")
    elif job == "stand":
        election.stand()
        won = election.wait()
        assert won is not None
        say(won.token)
        sys.stdin.readline()
        election.withdraw()
        say("withdrawn")
        sys.stdin.readline()
    zk.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
