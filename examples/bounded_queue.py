"""A bounded queue of files: several processes fill it, several others empty it.

    python examples/bounded_queue.py HOSTS        # such as 127.0.0.1:2181

A producer that finds the queue full waits for room; a consumer that finds it empty waits for an item. Two conditions
share one lock, so a producer wakes only a consumer and a consumer only a producer. No process polls.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from pathlib import Path

from zkconcurrent import Client, Condition, RLock, connect

PRODUCERS = 2
CONSUMERS = 2
ITEMS = 30  # of each producer
ROOM = 3


class BoundedQueue:
    """`queue.Queue(maxsize=ROOM)` between processes; the items are files in a directory that they share."""

    def __init__(self, client: Client, path: str, directory: Path) -> None:
        lock = RLock(client, f"{path}/lock")
        self.not_empty = Condition(client, f"{path}/not-empty", lock)
        self.not_full = Condition(client, f"{path}/not-full", lock)
        self.directory = directory

    def _items(self) -> list[Path]:
        items = sorted(self.directory.iterdir())
        assert len(items) <= ROOM, "the queue has overflowed"
        return items

    def put(self, item: str) -> None:
        """Wait for room, then put an item in."""
        with self.not_full:
            self.not_full.wait_for(lambda: len(self._items()) < ROOM)
            (self.directory / item).touch()
            self.not_empty.notify()

    def get(self) -> str:
        """Wait for an item, then take it out."""
        with self.not_empty:
            self.not_empty.wait_for(self._items)
            item = self._items()[0]
            item.unlink()
            self.not_full.notify()
            return item.name


def work(hosts: str, path: str, directory: Path, producer: int | None) -> list[str]:
    """Fill the queue or empty it; return the items that this process took out."""
    client = connect(f"zk://{hosts}")
    try:
        queue = BoundedQueue(client, path, directory)
        if producer is None:
            return [queue.get() for _ in range(PRODUCERS * ITEMS // CONSUMERS)]
        for n in range(ITEMS):
            queue.put(f"{n:03}-{producer}")
        return []
    finally:
        client.stop()
        client.close()


def main(hosts: str, path: str = "/examples/bounded-queue") -> None:
    """Run the processes and print the outcome."""
    roles = [*range(PRODUCERS), *[None] * CONSUMERS]
    with tempfile.TemporaryDirectory() as disk, multiprocessing.get_context("spawn").Pool(len(roles)) as pool:
        done = pool.starmap(work, [(hosts, path, Path(disk), role) for role in roles], chunksize=1)
        taken = sorted(item for items in done for item in items)
        assert taken == sorted(f"{n:03}-{producer}" for n in range(ITEMS) for producer in range(PRODUCERS))
        print(f"{len(taken)} items went through a queue with room for {ROOM}, each once")


if __name__ == "__main__":
    main(*sys.argv[1:])
