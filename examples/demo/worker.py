"""One worker process: its threads add to the counter, one at a time among all workers.

The parent writes orders to its standard input, one a line:

* `pause`: the next thread in its critical section stays there, between its read and its write;
* `resume`: that thread goes on;
* `stop`: every thread ends its current turn, then the process ends.

At the end of the input the process ends at once: its parent is gone.
"""

import argparse
import logging
import os
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from journal import Journal, Step
from kazoo.client import KazooClient
from store import StaleTokenError, Store

from zkconcurrent import LockLostError, RLock

LOCK_PATH = "/demo/counter"
THINK = 0.001  # seconds between reading the number and writing it


class Lock(AbstractContextManager[object], Protocol):
    """The part of a lock that a turn uses."""

    @property
    def fencing_token(self) -> int:
        """A number that grows from holder to holder."""


class NoLock(nullcontext[None]):
    """Keeps no thread out."""

    fencing_token = 0


class Orders:
    """The orders from standard input."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._pauses: SimpleQueue[None] = SimpleQueue()
        self._resume = threading.Event()

    def follow(self) -> None:
        """Takes orders until `stop`, the last one."""
        for line in sys.stdin:
            match line.strip():
                case "pause":
                    self._pauses.put(None)
                case "resume":
                    self._resume.set()
                case "stop":
                    self.stop.set()
                    self._resume.set()
                    return
        os._exit(1)  # the parent is gone, and perhaps the server with it

    def pause_wanted(self) -> bool:
        """Returns whether the caller must pause; each order is for one thread."""
        try:
            self._pauses.get_nowait()
        except Empty:
            return False
        return True

    def wait_for_resume(self) -> None:
        """Returns once the pause is over."""
        self._resume.wait()


class Adder:
    """One thread: it adds 1 to the counter, again and again."""

    def __init__(self, lock: Lock, store: Store, journal: Journal, orders: Orders) -> None:
        self.lock = lock
        self.store = store
        self.journal = journal
        self.orders = orders
        self.token = 0

    def run(self) -> None:
        """Takes turns until the order to stop."""
        while not self.orders.stop.is_set():
            self.journal.add(Step.WAITS)
            try:
                self.take_turn()
            except LockLostError:
                self.journal.add(Step.LOST, self.token)

    def take_turn(self) -> None:
        """Takes one turn, with the lock held all the time."""
        with self.lock:
            self.token = self.lock.fencing_token
            self.journal.add(Step.ENTERS, self.token)
            try:
                self.add(1)
            finally:
                self.journal.add(Step.LEAVES, self.token)

    def add(self, amount: int) -> None:
        """Adds to the counter. It takes the lock itself, so it is safe alone; `take_turn` makes it re-enter."""
        with self.lock:
            state = self.store.read(self.token)
            self.journal.add(Step.READS, self.token, state.number, state.writer)
            time.sleep(THINK)
            if self.orders.pause_wanted():
                with self.store.requests:
                    self.journal.add(Step.PAUSES, self.token)
                    self.orders.wait_for_resume()
            try:
                self.store.write(state.number + amount, self.token)
            except StaleTokenError:
                self.journal.add(Step.REFUSED, self.token, state.number + amount)
                raise
            self.journal.add(Step.WRITES, self.token, state.number + amount)


def main() -> None:
    """Runs the worker that the command line describes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("worker", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--session-timeout", type=float, required=True)
    parser.add_argument("--without-lock", action="store_true")
    options = parser.parse_args()

    # Ctrl-C is for the parent: a process group of its own does not get it. If the parent is killed while this process
    # is frozen, the system ends it, like every stopped process group that has become an orphan.
    os.setpgrp()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    def journal(thread: int) -> Journal:
        return Journal(options.folder, options.worker, thread)

    process_journal = journal(0)
    client = KazooClient(options.hosts, timeout=options.session_timeout)
    client.start(timeout=30)
    lock: Lock = RLock(client, LOCK_PATH, on_lost=lambda _: process_journal.add(Step.TOLD))
    if options.without_lock:
        lock = NoLock()
    orders = Orders()
    threading.excepthook = fail
    store = Store(options.folder / "counter")
    threads = []
    for number in range(1, options.threads + 1):
        adder = Adder(lock, store, journal(number), orders)
        threads.append(threading.Thread(target=adder.run))
        threads[-1].start()
    orders.follow()
    for thread in threads:
        thread.join()
    client.stop()
    client.close()


def fail(failure: threading.ExceptHookArgs) -> None:
    """Ends the whole worker with the error of one thread, so that the parent sees it."""
    threading.__excepthook__(failure)
    os._exit(1)


if __name__ == "__main__":
    main()
