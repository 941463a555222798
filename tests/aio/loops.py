"""How the tests of `aio` run their event loops: in debug mode, and failing where a callback keeps the loop too long.

asyncio logs each callback that takes more than `SLOW` seconds. On a busy machine most of these have only waited for a
processor. So a slow callback fails the test if it computed that long, or if its thread slept at one instruction that
long while another thread of the process, the watcher, ran on time.
"""

from __future__ import annotations

import asyncio
import gc
import linecache
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar
from unittest.mock import patch

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.conftest import PATIENCE
from zkconcurrent._engine.session import Session

T = TypeVar("T")
SLOW = 0.05  # seconds
LOOK = 0.005  # seconds between two looks of the watcher


class Watcher(logging.Handler):
    """Watches the callbacks of one loop, and asyncio's log.

    Attributes:
        slow: the callbacks that took too long, each with the stack where it stood.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.slow: list[str] = []
        self.errors: list[str] = []
        self._thread = threading.get_ident()
        self._state = Path(f"/proc/self/task/{threading.get_native_id()}/stat")
        self._began = 0.0  # by the CPU time of the loop's thread
        self._callbacks = 0
        self._runs = False
        self._stood = 0.0
        self._stack = ""
        self._over = threading.Event()

    def run(self, handle: asyncio.Handle, run: Callable[[asyncio.Handle], None]) -> None:
        """Run a callback."""
        if threading.get_ident() != self._thread:
            run(handle)
            return
        self._stood, self._stack, self._began = 0.0, "", time.thread_time()
        self._callbacks += 1
        self._runs = True
        try:
            run(handle)
        finally:
            self._runs = False

    def forgive(self) -> None:
        """Do not count for how long the present callback has stood or computed: it was the test itself."""
        self._stood, self._stack, self._began = 0.0, "", time.thread_time()

    def look(self) -> None:
        """See, again and again, where the loop's thread stands; on the watcher's own thread."""
        last: tuple[object, ...] = ()
        before = time.monotonic()
        while not self._over.wait(LOOK):
            now = time.monotonic()
            frame = sys._current_frames().get(self._thread)
            # No reference to a frame, or a task, is kept: what they have shall be garbage when it is.
            place = (self._callbacks, id(frame), frame and frame.f_lasti)
            waits = frame is not None and self._runs and place == last and now - before < 2 * LOOK and self._sleeps()
            if waits and not starts_a_thread(frame):
                self._stood += now - before
                if self._stood > SLOW and not self._stack:
                    self._stack = "".join(traceback.format_stack(frame))
            elif place != last and not self._stack:
                self._stood = 0.0
            last, before = place, now
            del frame

    def _sleeps(self) -> bool:
        """Return whether the thread sleeps in the kernel, and does not wait for a processor, as far as is known."""
        return not self._state.exists() or self._state.read_text().rpartition(") ")[2][0] in "SD"

    def emit(self, record: logging.LogRecord) -> None:
        """Take note of what asyncio logs; it does so right after the callback."""
        text = record.getMessage()
        if "took" not in text or "Executing" not in text:
            self.errors.append(text)
        elif self._callbacks and (
            (computed := time.thread_time() - self._began) >= SLOW or self._stack
        ):  # not uvloop's
            self.slow.append(f"{text}\ncomputed {computed:.3f} s, stood {self._stood:.3f} s\n{self._stack}")


def starts_a_thread(frame: FrameType | None) -> bool:
    """Return whether it only waits until a new thread was given a processor."""
    while frame is not None and frame.f_globals.get("__name__") == "threading":
        if frame.f_code is threading.Thread.start.__code__:
            return True
        frame = frame.f_back
    return False


@contextmanager
def watching(*, errors: bool = False) -> Iterator[Watcher]:
    """Watch the loop that this thread runs within the block.

    Args:
        errors: whether asyncio may log errors, such as a task that nobody awaited.
    """
    watcher, handle_run = Watcher(), asyncio.Handle._run
    looking = threading.Thread(target=watcher.look, name="watcher")
    logger = logging.getLogger("asyncio")

    logger.addHandler(watcher)
    looking.start()
    gc.freeze()  # a collection looks at what this test has made, and not at all of pytest
    try:
        with (
            patch.object(asyncio.Handle, "_run", lambda handle: watcher.run(handle, handle_run)),
            # In debug mode, each future and callback asks whether the source files have changed.
            patch.object(linecache, "checkcache", lambda _=None: None),
        ):
            yield watcher
    finally:
        gc.unfreeze()
        logger.removeHandler(watcher)
        watcher._over.set()
        looking.join()
    assert not watcher.slow, "\n".join(watcher.slow)
    assert errors or not watcher.errors, "\n".join(watcher.errors)


def run(main: Coroutine[Any, Any, T], *, errors: bool = False) -> T:
    """Run a coroutine to its end in a loop of its own, in debug mode."""

    async def watched() -> T:
        asyncio.get_running_loop().slow_callback_duration = SLOW
        return await main

    with watching(errors=errors):
        return asyncio.run(watched(), debug=True)


async def until(condition: Callable[[], object], what: str = "", patience: float = PATIENCE) -> None:
    """Wait until a condition is true; it is asked on a thread, as it may ask a server."""
    began = time.monotonic()
    while not await asyncio.to_thread(condition):
        waited = time.monotonic() - began
        assert waited < patience, f"not within {patience} s: {what or condition}"
        await asyncio.sleep(min(max(0.002, waited / 20), 0.1))  # seldom after a while: to ask is dear


async def soon(awaitable: Any, patience: float = PATIENCE) -> Any:
    """Await something that must not take long; in the running task, as that may be to own a lock."""
    timer = asyncio.get_running_loop().call_later(patience, asyncio.current_task().cancel)  # type: ignore[union-attr]
    try:
        return await awaitable
    finally:
        timer.cancel()


async def idle(*clients: KazooClient) -> None:
    """Wait until these clients have no request outstanding, and nothing is left to do in the loop.

    A task that is asleep then waits for another. The round trip of a `sync` brings all answers and events of before.
    """
    loop, quiet = asyncio.get_running_loop(), 0
    while quiet < 2:
        for client in clients:
            await asyncio.to_thread(client.sync, "/")
        await asyncio.sleep(0 if hasattr(loop, "_ready") else 0.002)  # uvloop does not show what is ready: run it
        busy = any(client._pending or client._queue for client in clients)
        busy = busy or any(thread.name == "zkconcurrent-background" for thread in threading.enumerate())
        quiet = 0 if busy or getattr(loop, "_ready", ()) else quiet + 1


def nodes(client: KazooClient, path: str, session: int | None = None) -> list[str]:
    """Return the ephemeral nodes below a path, of all sessions or of one."""
    try:
        owner = client.get(path)[1].ephemeralOwner
        names = client.get_children(path)
    except NoNodeError:
        return []
    found = [path] if owner and session in (None, owner) else []
    return found + [node for name in names for node in nodes(client, f"{path}/{name}", session)]


def remains(client: KazooClient) -> dict[str, int]:
    """Return what the library still knows of calls of a client: nothing, when all have come to their end."""
    session = Session.of(client)
    session.sweep()
    with session.lock:
        registry = session.registry
        counts = {
            "tickets": len(registry.tickets),
            "deletes": len(registry.deletes),
            "awaited": len(registry._awaiting),
            "calls": len(session.calls),
            "dropped": len(session.dropped),
        }
    return {what: n for what, n in counts.items() if n}


def left(*clients: KazooClient) -> dict[str, int]:
    """Return what several clients have left."""
    return {f"{what} of client {i}": n for i, client in enumerate(clients) for what, n in remains(client).items()}
