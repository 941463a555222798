"""One process of a run: threads that use the locks at random, until told to end.

It is told by lines on its standard input:

* `stay SECONDS`: a thread that is inside a lock, or comes in within a moment, stays there for as long, or until its
  hold is lost;
* `finish`: every thread ends its present call, takes each lock once more, and is done;
* `end`: the clients are stopped, and the process ends.

At the end of the input it ends at once: its parent is no more.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

from kazoo.client import KazooClient, KazooState

from tests.soak.callers.caller import Mood, have_losses_told
from tests.soak.events import Log, What, clock
from tests.soak.workload import WORKLOADS, Entry

CONNECT = {"max_tries": -1, "delay": 0.05, "max_delay": 1.0}
PULSE, STARVED = 0.1, 0.5  # seconds: how often the process looks at the clock, and the longest gap


class Party:
    """One client, and its locks.

    Args:
        log: where its sessions are written down.
        number: of the client.
        hosts: where it connects.
        session: the session timeout, in seconds.
        paths: the workload.
    """

    def __init__(self, log: Log, number: int, hosts: str, session: float, paths: dict[str, Entry]) -> None:
        self.number = number
        self._log = log
        self._paths = paths
        self._session: int | None = None
        self.client = KazooClient(hosts, timeout=session, connection_retry=CONNECT)
        self.client.add_listener(self._listen)
        self.client.start(timeout=60)
        have_losses_told(self.client)
        self.locks = {path: self._make(path, entry) for path, entry in paths.items()}

    def _make(self, path: str, entry: Entry) -> dict[str, Any]:
        def called(lock: object) -> None:
            role = next(role for role, part in locks.items() if part is lock)
            self._log.add(0, What.CALLED, path=path, role=role, client=self.number)

        locks = entry.roles(entry.make(self.client, path, on_lost=called))
        return locks

    def callers(self, thread: int, random: Random, mood: Mood, session: float) -> dict[str, Any]:
        """Return what writes down a thread's calls, by path."""
        numbers = itertools.count(1)
        return {
            path: self._paths[path].caller(self._log, thread, self.number, path, locks, random, mood, session, numbers)
            for path, locks in self.locks.items()
        }

    def _listen(self, state: str) -> None:
        known = self.client.client_id
        if state == KazooState.CONNECTED and known is not None and known[0] != self._session:
            self._session, password = known
            self._log.add(0, What.SESSION, client=self.number, note=f"{self._session:#x} {password.hex()}")


def use(party: Party, thread: int, paths: dict[str, Entry], log: Log, mood: Mood, options: Any) -> None:
    """The work of a thread, from beginning to end."""
    random = Random(f"{options.seed}/{options.process}/{thread}")
    callers = party.callers(thread, random, mood, options.session)
    while not mood.finish.is_set():
        path = random.choice(list(paths))
        paths[path].visit(callers[path])
        time.sleep(random.choice([0, 0.002, 0.01, 0.02]))
    for path, entry in paths.items():
        entry.visit(callers[path], plain=True)
    log.add(thread, What.DONE)


def feel_pulse(log: Log) -> None:
    """Write down when nothing of this process ran for a while: not for its own fault."""
    before = clock()
    while True:
        time.sleep(PULSE)
        now = clock()
        if now - before > STARVED:
            log.add(0, What.STARVED, now, limit=now - before)
        before = now


def follow_orders(mood: Mood) -> None:
    """Take orders until the last of them, to end."""
    for line in sys.stdin:
        match line.split():
            case ["stay", seconds]:
                mood.stay(float(seconds))
            case ["finish"]:
                mood.finish.set()
            case ["end"]:
                mood.end.set()
                return
    os._exit(1)  # the parent is gone, and the servers with it


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("process")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--session", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    options = parser.parse_args()

    # In a process group of its own it hears no Ctrl-C, which is for the parent; and should the parent be killed while
    # this one is stopped, the system ends it, as it does with any stopped group that is left alone.
    os.setpgrp()
    faulthandler.register(signal.SIGUSR1)  # so that one that hangs can be asked where
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    log, mood, paths = Log(options.folder, options.process), Mood(), WORKLOADS[options.workload]
    threading.excepthook = lambda failure: fail(log, failure)
    spawn(follow_orders, mood)  # before anything that may take long
    spawn(feel_pulse, log)
    # The last two threads have a client of their own, so that threads of one process meet as parties too.
    parties = [Party(log, number, options.hosts, options.session, paths) for number in range(2)]
    for thread in range(1, options.threads):
        spawn(use, parties[thread == options.threads - 1], thread, paths, log, mood, options)
    use(parties[1], options.threads, paths, log, mood, options)
    mood.end.wait()
    for party in parties:
        party.client.stop()
        party.client.close()


def spawn(target: Any, *arguments: Any) -> None:
    """Run it on a thread of its own."""
    threading.Thread(target=target, args=arguments, daemon=True).start()


def fail(log: Log, failure: threading.ExceptHookArgs) -> None:
    """Write down the error that ended a thread, and end the process."""
    threading.__excepthook__(failure)
    log.add(0, What.FAILED, note=f"a thread ended with {failure.exc_type.__name__}: {failure.exc_value}")
    os._exit(1)


if __name__ == "__main__":
    main()
