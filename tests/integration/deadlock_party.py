"""A process that takes part in a deadlock.

    python -m tests.integration.deadlock_party HOSTS SESSION_TIMEOUT PATH JOB STEP...

A step is `l` and a name: it acquires the RLock of that name. The process prints a word after each step, and reads a
line before the last. That one it waits for: it prints what came of it, and after how long. Then it releases all that it
holds, and ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from tests.helpers.party import say, started
from zkconcurrent import DeadlockError, aio, namespace
from zkconcurrent._engine import deadlocks


class Warned(logging.Handler):
    """Counts the warnings of deadlocks."""

    count = 0

    def handle(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        """Count one."""
        Warned.count += 1
        return True


def tell(outcome: str, began: float, error: DeadlockError | None = None) -> None:
    """Say what came of the last step; of a victim, once the log has told of it, on a thread of its own."""
    waited = time.monotonic() - began
    while error is not None and not Warned.count and time.monotonic() < began + 30.0:
        time.sleep(0.01)
    cycle = [] if error is None else [[edge.path, edge.pid, edge.hard] for edge in error.cycle]
    said = {"outcome": outcome, "waited": waited, "cycle": cycle, "warned": Warned.count}
    say(json.dumps(said))


def threads(names: Any, steps: list[str]) -> None:
    """Take the steps on a thread."""
    with ExitStack() as held:
        for step in steps[:-1]:
            held.enter_context(names.RLock(step[1:]))
            say(step)
        sys.stdin.readline()
        began = time.monotonic()
        try:
            with names.RLock(steps[-1][1:]):
                tell("got", began)
        except DeadlockError as error:
            tell("victim", began, error)


async def tasks(names: Any, steps: list[str]) -> None:
    """Take the steps in a task."""
    async with AsyncExitStack() as held:
        for step in steps[:-1]:
            await held.enter_async_context(names.RLock(step[1:]))
            say(step)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        began = time.monotonic()
        try:
            async with names.RLock(steps[-1][1:]):
                tell("got", began)
        except DeadlockError as error:
            tell("victim", began, error)


def main(hosts: str, session: str, path: str, job: str, *steps: str) -> None:
    """Do a job."""
    logging.getLogger("zkconcurrent.deadlocks").addHandler(Warned())
    deadlocks.AFTER = 0.3
    zk = started(hosts, session)
    if job == "tasks":
        asyncio.run(tasks(aio.namespace(zk, path, on_deadlock="raise"), [*steps]))
    else:
        threads(namespace(zk, path, on_deadlock="raise"), [*steps])
    zk.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
