"""One contestant in a process of its own, which gets each command as a line, and replies with a line.

`CuratorPlayer.java` speaks the same lines, so Python and Java can take turns. Words have tabs between; the answer is
`ok` or `error`, and a text. The commands:

- `open hosts timeout`, `close`: begin and end; everything of a session, whose timeout is in seconds, goes with it.
- `time kind path n`: acquire and release n times; how long each took, in nanoseconds.
- `again kind path n`: the same while it is held (`kind` is re-entrant), as one figure for all.
- `hold kind path`: acquire for good, and say when that was.
- `try kind path n`: fail n times to acquire; how long each took.
- `join kind path hold n own`: n more threads that acquire, wait `hold` microseconds, and release, again and again, each
  on a session of its own (1) or all on one (0). While paused, as it is at first, the holder keeps it.
- `fleet kind path n query`: hold n more locks, `path/0` and so on: all in one session, or, if there is a query such as
  `timeout=10&tick=1` of `zkconcurrent.connect`, each in a session of its own (kazoo's: with the timeout of `open`).
- `go`, `pause`, `log`: let them run, stop them, and tell of each release since: when it was asked for, when it was
  acquired, and when release was called, on the clock of the machine.
- `package`: the folder of the package that it measures (Python's alone).
- `clock`: the time on that clock. All clocks are CLOCK_MONOTONIC, in nanoseconds.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from kazoo.client import KazooClient

import zkconcurrent
from benchmarks.contestants import CONTESTANTS, Acquirable, Maker

clock = time.monotonic_ns


STANDARD: dict[str, Maker] = {  # the locks of the standard library, to be as near to as can be
    "rlock": lambda _client, _path: threading.RLock(),
    "python rlock": lambda _client, _path: threading._PyRLock(),  # type: ignore[attr-defined]
}


class Player:
    """The commands; each is a method."""

    def __init__(self, contestant: str) -> None:
        self._makers = STANDARD if contestant == "standard" else CONTESTANTS[contestant]
        self._hosts, self._timeout = "", 0.0
        self._clients: list[KazooClient] = []
        self._objects: dict[tuple[str, str], Acquirable] = {}
        self._go = threading.Event()
        self._log: list[tuple[int, int, int]] = []
        self._closing = False

    def clock(self) -> int:
        """Tell the time."""
        return clock()

    def package(self) -> str:
        """Tell where the package is."""
        return str(Path(zkconcurrent.__file__).parent)

    def open(self, hosts: str, timeout: str) -> None:
        """Begin, with one session."""
        self._hosts, self._timeout, self._closing = hosts, float(timeout), False
        self._connect()

    def _connect(self, query: str = "") -> KazooClient:
        if query and self._makers is CONTESTANTS["ours"]:
            client: KazooClient = zkconcurrent.connect(f"zk://{self._hosts}?{query}", start_timeout=60)
        else:
            client = KazooClient(self._hosts, timeout=self._timeout)
            client.start(timeout=60)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """End all sessions, and with them the threads."""
        clients, self._clients, self._closing = self._clients, [], True
        if clients:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(_close, clients))
        self._objects.clear()
        self._log = []  # a new one: threads that end late have the old
        self._go.set()
        self._go = threading.Event()

    def _make(self, kind: str, path: str) -> Acquirable:
        """Return the object, which the one main thread uses again and again."""
        if (kind, path) not in self._objects:
            self._objects[kind, path] = self._makers[kind](self._clients[0] if self._clients else None, path)
        return self._objects[kind, path]

    def time(self, kind: str, path: str, count: str) -> str:
        """Acquire and release, again and again."""
        lock = self._make(kind, path)
        taken = []
        for _ in range(int(count)):
            start = clock()
            lock.acquire()
            lock.release()
            taken.append(clock() - start)
        return " ".join(map(str, taken))

    def again(self, kind: str, path: str, count: str) -> int:
        """Do it while it is held."""
        lock = self._make(kind, path)
        acquire, release, n = lock.acquire, lock.release, range(int(count))
        acquire()
        start = clock()
        for _ in n:
            acquire()
            release()
        taken = clock() - start
        release()
        return taken

    def hold(self, kind: str, path: str) -> int:
        """Acquire for good."""
        self._make(kind, path).acquire()
        return clock()

    def fleet(self, kind: str, path: str, count: str, query: str = "") -> None:
        """Acquire many for good."""

        def hold(place: str) -> None:
            client = self._connect(query) if query else self._clients[0]
            self._objects[kind, place] = lock = self._makers[kind](client, place)
            lock.acquire()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(hold, (f"{path}/{number}" for number in range(int(count)))))

    def tries(self, kind: str, path: str, count: str) -> str:
        """Fail to acquire, again and again."""
        lock = self._make(kind, path)
        taken = []
        for _ in range(int(count)):
            start = clock()
            if lock.acquire(blocking=False):
                raise RuntimeError("a try succeeded, though somebody holds")
            taken.append(clock() - start)
        return " ".join(map(str, taken))

    def join(self, kind: str, path: str, hold: str, count: str, own: str) -> None:
        """Send more threads."""
        for _ in range(int(count)):
            client = self._connect() if own == "1" else self._clients[0]
            lock = self._makers[kind](client, path)
            arguments = (lock, int(hold) / 1e6, self._go, self._log)
            threading.Thread(target=self._take_turns, args=arguments, daemon=True).start()

    def _take_turns(self, lock: Acquirable, hold: float, go: threading.Event, log: list[tuple[int, int, int]]) -> None:
        with suppress(Exception):  # closed
            while not self._closing:
                asked = clock()
                lock.acquire()
                acquired = clock()
                if hold:
                    time.sleep(hold)
                go.wait()
                released = clock()
                log.append((asked, acquired, released))
                lock.release()

    def go(self) -> None:
        """Let them run."""
        self._go.set()

    def pause(self) -> None:
        """Have the next holder keep it."""
        self._go.clear()

    def log(self) -> str:
        """Tell of the turns since the last time."""
        told = " ".join(f"{asked}:{acquired}:{released}" for asked, acquired, released in self._log)
        self._log.clear()
        return told


def _close(client: KazooClient) -> None:
    client.stop()
    client.close()


def end_with_parent() -> None:
    """End this process once its parent has: a command that waits for ever would not see that the input has ended."""
    if not hasattr(os, "pidfd_open"):
        return
    parent = os.pidfd_open(os.getppid())

    def outlive() -> None:
        select.select([parent], [], [])
        os._exit(1)

    threading.Thread(target=outlive, name="parent", daemon=True).start()


def main() -> None:
    """Serve until the input ends."""
    end_with_parent()
    logging.disable(logging.CRITICAL)  # any error of a request that the end of its session cut off
    threading.excepthook = lambda _: None
    player = Player(sys.argv[1])
    out = sys.stdout
    for line in sys.stdin:
        name, *arguments = line.rstrip("\n").split("\t")
        try:
            answer = getattr(player, {"try": "tries"}.get(name, name))(*arguments)
        except Exception as error:
            out.write(f"error\t{error!r}\n")
        else:
            out.write(f"ok\t{'' if answer is None else answer}\n")
        out.flush()
    player.close()


if __name__ == "__main__":
    main()
