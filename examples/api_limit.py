"""An API that allows three calls at a time: many processes keep to that limit together.

    python examples/api_limit.py HOSTS        # such as 127.0.0.1:2181

Four processes with two threads each call the same API, which counts the calls in progress and refuses a fourth. An
upload takes two of the three permits at once. Before all this a process takes every permit and is killed: the permits
come back.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zkconcurrent import BoundedSemaphore, connect

LIMIT = 3
PROCESSES, THREADS, CALLS = 4, 2, 12
SESSION = 4.0  # seconds until the permits of a process that was killed are free


class Api:
    """The API, simulated by a folder: a call in progress has one file for each permit that it needs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def call(self, weight: int) -> Iterator[None]:
        """Make a call; the API answers one call too many with 429."""
        files = [self._folder / f"{os.getpid()}-{threading.get_ident()}-{n}" for n in range(weight)]
        for file in files:
            file.touch()
        try:
            assert len(list(self._folder.iterdir())) <= LIMIT, "429 Too Many Requests"
            yield
        finally:
            for file in files:
                file.unlink()


def work(hosts: str, path: str, folder: Path) -> None:
    """Call the API from several threads, within its limit."""
    client = connect(f"zk://{hosts}", timeout=SESSION)
    limit, api = BoundedSemaphore(client, path, LIMIT), Api(folder)
    refused: list[BaseException] = []

    def run() -> None:
        try:
            for n in range(CALLS):
                weight = 2 if n % 3 == 0 else 1
                limit.acquire(permits=weight)
                try:
                    with api.call(weight):
                        time.sleep(0.005)  # the call
                finally:
                    limit.release(weight)
        except BaseException as error:
            refused.append(error)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.stop()
    client.close()
    sys.exit(f"refused: {refused[0]!r}" if refused else 0)


def hold_all(hosts: str, path: str) -> None:
    """Take all permits, then kill this process."""
    client = connect(f"zk://{hosts}", timeout=SESSION)
    BoundedSemaphore(client, path, LIMIT).acquire(permits=LIMIT)
    os.kill(os.getpid(), signal.SIGKILL)


def main(hosts: str, path: str = "/examples/api-limit") -> None:
    """Run the processes and print the outcome."""
    context = multiprocessing.get_context("spawn")
    dead = context.Process(target=hold_all, args=(hosts, path))
    dead.start()
    dead.join()
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=work, args=(hosts, path, Path(folder))) for _ in range(PROCESSES)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES, "the API has refused a call"
    calls = PROCESSES * THREADS * CALLS
    print(f"{calls} calls were made, never more than {LIMIT} at a time, although a process died with all the permits")


if __name__ == "__main__":
    main(*sys.argv[1:])
