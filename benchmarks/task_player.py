"""A contestant whose contenders are tasks of one event loop, in a process of its own; it speaks `player`'s lines.

The commands `open`, `close`, `time`, `join`, `go`, `pause`, `log` and `clock` are those of `player`. Besides:

- `hold kind path`: acquire for good.
- `try kind path n`: n tasks at once make one attempt each, which fails; how long all of them took, in nanoseconds.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from kazoo.client import KazooClient

from benchmarks.player import clock, end_with_parent
from zkconcurrent import aio

POOL = 2_000  # threads at most; the executor starts one only when all are busy


class AsyncLock(Protocol):
    """A lock as every contestant offers it to one task."""

    async def acquire(self) -> object:
        """Acquire it."""

    async def release(self) -> object:
        """Release it."""


class Library(Protocol):
    """A contestant: one session, and its locks."""

    async def open(self, hosts: str, timeout: float) -> None:
        """Open the session."""

    async def close(self) -> None:
        """Close it."""

    def lock(self, kind: str, path: str) -> AsyncLock:
        """Return a lock for one task."""


class Ours:
    """`zkconcurrent.aio`: all tasks share one lock. The kinds: `lock`, `awaited` (release), `unfair`."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, str], AsyncLock] = {}

    async def open(self, hosts: str, timeout: float) -> None:
        """Open the session."""
        self._client = KazooClient(hosts, timeout=timeout)
        await asyncio.to_thread(self._client.start, 30)

    async def close(self) -> None:
        """Close it."""
        self._locks.clear()
        await asyncio.to_thread(_stop, self._client)

    def lock(self, kind: str, path: str) -> Any:
        """Return the lock of that path."""
        if (kind, path) not in self._locks:
            lock = aio.Lock(self._client, path, fair=kind != "unfair")
            self._locks[kind, path] = (_Awaited if kind == "awaited" else _Plain)(lock)
        return self._locks[kind, path]


class _Plain:
    """Releases as `async with` does."""

    def __init__(self, lock: aio.Lock) -> None:
        self.lock = lock
        self.acquire = lock.acquire

    async def release(self) -> None:
        self.lock.release()


class _Awaited(_Plain):
    """Waits until the node is gone, as the twin of threads does."""

    async def release(self) -> None:
        await self.lock.release()


class Pool(Ours):
    """kazoo's Lock in a thread pool that is large enough.

    The loop's own pool has a few threads more than the machine has processors. When all of them wait, none is left to
    release the lock.
    """

    def lock(self, kind: str, path: str) -> Any:  # noqa: ARG002
        """Return a lock of its own: kazoo's serves one thread at a time."""
        return _InThreads(self._client.Lock(path))


class _InThreads:
    def __init__(self, lock: Any) -> None:
        self._lock = lock

    async def acquire(self) -> object:
        return await asyncio.to_thread(self._lock.acquire)

    async def release(self) -> None:
        await asyncio.to_thread(self._lock.release)


class Aiozk:
    """aiozk's Lock, which serves one task at a time: each task has its own."""

    async def open(self, hosts: str, timeout: float) -> None:
        """Open the session."""
        import aiozk

        self._client = aiozk.ZKClient(hosts, session_timeout=timeout)
        await self._client.start()

    async def close(self) -> None:
        """Close it."""
        await self._client.close()

    def lock(self, kind: str, path: str) -> Any:  # noqa: ARG002
        """Return a lock of its own."""
        return self._client.recipes.Lock(path)


LIBRARIES: dict[str, Callable[[], Library]] = {"aio": Ours, "pool": Pool, "aiozk": Aiozk}


class TaskPlayer:
    """The commands; each is a method."""

    def __init__(self, contestant: str) -> None:
        self._library = LIBRARIES[contestant]()
        self._is_open = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._alone: dict[tuple[str, str], AsyncLock] = {}
        self._go = asyncio.Event()
        self._log: list[tuple[int, int, int]] = []

    async def clock(self) -> int:
        """Tell the time."""
        return clock()

    async def open(self, hosts: str, timeout: str) -> None:
        """Begin, with one session."""
        await self._library.open(hosts, float(timeout))
        self._is_open = True

    async def close(self) -> None:
        """End all tasks, and the session."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self._alone.clear()
        self._log.clear()
        self._go.clear()
        if self._is_open:
            self._is_open = False
            await self._library.close()

    def _own(self, kind: str, path: str) -> AsyncLock:
        """Return the lock that the commands use again and again."""
        if (kind, path) not in self._alone:
            self._alone[kind, path] = self._library.lock(kind, path)
        return self._alone[kind, path]

    async def time(self, kind: str, path: str, count: str) -> str:
        """Acquire and release, again and again."""
        lock = self._own(kind, path)
        taken = []
        for _ in range(int(count)):
            start = clock()
            await lock.acquire()
            await lock.release()
            taken.append(clock() - start)
        return " ".join(map(str, taken))

    async def hold(self, kind: str, path: str) -> None:
        """Acquire for good."""
        await self._own(kind, path).acquire()

    async def tries(self, kind: str, path: str, count: str) -> int:
        """Fail to acquire, in so many tasks at once."""
        lock: Any = self._own(kind, path)
        start = clock()
        got = await asyncio.gather(*(_try(lock.lock) for _ in range(int(count))))
        if any(got):
            raise RuntimeError("a try succeeded, though another task holds")
        return clock() - start

    async def join(self, kind: str, path: str, hold: str, count: str, _own: str) -> None:
        """Send more tasks."""
        for _ in range(int(count)):
            lock = self._library.lock(kind, path)
            self._tasks.add(asyncio.create_task(self._take_turns(lock, int(hold) / 1e6)))

    async def _take_turns(self, lock: AsyncLock, hold: float) -> None:
        while True:
            asked = clock()
            await lock.acquire()
            acquired = clock()
            if hold:
                await asyncio.sleep(hold)
            await self._go.wait()
            released = clock()
            self._log.append((asked, acquired, released))
            await lock.release()

    async def go(self) -> None:
        """Let them run."""
        self._go.set()

    async def pause(self) -> None:
        """Have the next holder keep it."""
        self._go.clear()

    async def log(self) -> str:
        """Tell of the turns since the last time."""
        told = " ".join(f"{asked}:{acquired}:{released}" for asked, acquired, released in self._log)
        self._log.clear()
        return told


async def _try(lock: aio.Lock) -> bool:
    return await lock.acquire(blocking=False)


def _stop(client: KazooClient) -> None:
    client.stop()
    client.close()


async def main(contestant: str) -> None:
    """Serve until the input ends."""
    end_with_parent()
    logging.disable(logging.CRITICAL)  # the errors of tasks whose session is closed
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(POOL))
    loop.set_exception_handler(lambda _loop, _context: None)
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    player = TaskPlayer(contestant)
    while line := (await lines.readline()).decode():
        name, *arguments = line.rstrip("\n").split("\t")
        command: Callable[..., Awaitable[Any]] = getattr(player, {"try": "tries"}.get(name, name))
        try:
            answer = await command(*arguments)
        except Exception as error:
            sys.stdout.write(f"error\t{error!r}\n")
        else:
            sys.stdout.write(f"ok\t{'' if answer is None else answer}\n")
        sys.stdout.flush()
    await player.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
