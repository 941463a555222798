"""A process that calls a job, to be killed or stopped by a test at a stage of the call.

    python -m tests.integration.once_party HOSTS SESSION_TIMEOUT PATH SECONDS STAGE [DONE]

It says `ready` and reads a line before each call. At STAGE, one of `marking`, `marked` and `working`, it says so and
reads a line. At its end it says `ran`, `skipped` or `lost`. The job says `started`. With DONE, `until_success`.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.helpers.party import say, started
from zkconcurrent import LockLostError, once_per
from zkconcurrent._protocol.operations import Recipe
from zkconcurrent._recipes import once


def main(hosts: str, session: str, path: str, seconds: str, stage: str, done: str = "") -> None:
    """Call the job."""
    zk = started(hosts, session)

    def reach(name: str) -> None:
        if name == stage:
            say(name)
            sys.stdin.readline()

    write = once.write

    def staged(*arguments: Any) -> Recipe[None]:
        reach("marking")
        yield from write(*arguments)
        reach("marked")

    once.write = staged

    @once_per(zk, path, float(seconds), until_success=bool(done))
    def job() -> str:
        say("started")
        reach("working")
        return "ran"

    say("ready")
    while sys.stdin.readline():
        try:
            say(job() or "skipped")
        except LockLostError:
            say("lost")


if __name__ == "__main__":
    main(*sys.argv[1:])
