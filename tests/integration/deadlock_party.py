"""A process that takes part in a deadlock.

    python -m tests.integration.deadlock_party HOSTS SESSION_TIMEOUT PATH JOB ON_DEADLOCK STEP...

A step is a letter and a name: `l` acquires the RLock of that name, `r` and `w` the two sides of a ReadWriteLock, `s` a
permit of two, and `d` a DetachedLock, for an owner named as the process. The process prints a word after each step, and
reads a line before the last. That one it waits for: it prints what came of it, and after how long, and before that a
word if it has told of a possible deadlock. Then it releases all that it holds, and ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from tests.helpers.party import say, started
from zkconcurrent import DeadlockError, DetachedLock, aio, namespace


def lock_of(names: Any, step: str) -> Any:
    """Return the lock of a step."""
    if step[0] == "l":
        return names.RLock(step[1:])
    if step[0] == "s":
        return names.Semaphore(step[1:], 2)
    if step[0] == "d":
        return DetachedLock(names.client, f"{names.path}/{step[1:]}", str(os.getpid()))
    pair = names.ReadWriteLock(step[1:])
    return pair.read_lock if step[0] == "r" else pair.write_lock


class Warned(logging.Handler):
    """Counts the warnings of deadlocks."""

    count = 0

    def handle(self, record: logging.LogRecord) -> bool:
        """Count one; tell of one that ends no wait."""
        Warned.count += 1
        if record.getMessage().startswith("a possible"):
            say("warned")
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
            held.enter_context(lock_of(names, step))
            say(step)
        sys.stdin.readline()
        began = time.monotonic()
        try:
            with lock_of(names, steps[-1]):
                tell("got", began)
        except DeadlockError as error:
            tell("victim", began, error)


async def tasks(names: Any, steps: list[str]) -> None:
    """Take the steps in a task."""
    async with AsyncExitStack() as held:
        for step in steps[:-1]:
            await held.enter_async_context(lock_of(names, step))
            say(step)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        began = time.monotonic()
        try:
            async with lock_of(names, steps[-1]):
                tell("got", began)
        except DeadlockError as error:
            tell("victim", began, error)


def main(hosts: str, session: str, path: str, job: str, on_deadlock: Any, *steps: str) -> None:
    """Do a job."""
    logging.getLogger("zkconcurrent.deadlocks").addHandler(Warned())
    zk = started(hosts, session)
    if job == "tasks":
        asyncio.run(tasks(aio.namespace(zk, path, on_deadlock=on_deadlock), [*steps]))
    else:
        threads(namespace(zk, path, on_deadlock=on_deadlock), [*steps])
    zk.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
