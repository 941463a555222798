"""A program that leaves its holds to the end of the interpreter: generators that hold, and objects that release.

Usage: python -m tests.faults.at_exit <hosts> <path> [acquires]; the last has daemon threads acquire
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import zkconcurrent
from zkconcurrent import Lock, RLock

client = zkconcurrent.connect(f"zk://{sys.argv[1]}{sys.argv[2]}")
LOCKS: dict[str, Callable[[str], Any]] = {
    "lock": lambda path: Lock(client, path),
    "unfair": lambda path: Lock(client, path, fair=False),
    "rlock": lambda path: RLock(client, path),
    "read": lambda path: zkconcurrent.ReadWriteLock(client, path).read_lock,
    "semaphore": lambda path: zkconcurrent.Semaphore(client, path, 2),
    "condition": lambda path: zkconcurrent.Condition(client, path),
    "several": lambda path: zkconcurrent.MultiLock([Lock(client, f"{path}/a"), RLock(client, f"{path}/b")]),
}
BLOCKS: dict[str, Callable[[str], Any]] = {
    **LOCKS,
    "hold": lambda path: Lock(client, path).hold(),
    "lead": lambda path: zkconcurrent.Election(client, path).lead(),
    "group": lambda path: zkconcurrent.Group(client, path).join(),
    "claim": lambda path: claim(zkconcurrent.Queue(client, path)),
}


def claim(queue: zkconcurrent.Queue[bytes]) -> Any:
    """Return the claim of an item."""
    queue.put(b"item")
    return queue.claim()


def held(block: Any) -> Iterator[None]:
    """Hold at each step."""
    with block:
        yield


class Holder:
    """Holds while it lives."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        lock.acquire()

    def __del__(self) -> None:
        self._lock.release()


def acquire_again_and_again(path: str) -> None:
    """Acquire and release until the process ends."""
    lock = RLock(client, path)
    while True:
        with lock:
            pass


if sys.argv[3:]:
    for _ in range(3):
        threading.Thread(target=acquire_again_and_again, args=("/thread",), daemon=True).start()
    time.sleep(0.3)
else:
    generators = [held(make(f"/block-{name}")) for name, make in BLOCKS.items()]
    for each in generators:
        next(each)
    holders = [Holder(make(f"/object-{name}")) for name, make in LOCKS.items()]
    again = Holder(holders[2]._lock)  # a second level of the RLock

    def elsewhere() -> None:
        """Have another thread hold."""
        of_a_thread = held(RLock(client, "/block-of-a-thread"))
        next(of_a_thread)
        generators.append(of_a_thread)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
sys.stdout.write("held\n")
