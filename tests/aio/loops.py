"""How the tests of `aio` run their event loops: in debug mode, and failing where a callback keeps the loop too long.

asyncio logs each callback that takes more than `SLOW` seconds. On a busy machine most of these have only waited for a
processor, and the clock of a virtual one may go on while it stands. So a slow callback fails the test if it computed
that long while another thread of the process, the watcher, looked at it several times; or if its thread slept at one
instruction that long while the watcher ran on time. Where a third thread was ready to run, that may be the one for
which the callback waits, and it may have been kept from a processor: such times count a tenth.
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
from types import FrameType
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.conftest import PATIENCE
from zkconcurrent._engine.session import Session
from zkconcurrent._runtime.stacks import read_stacks

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
        self._native = threading.get_native_id()
        self._began = 0.0  # by the CPU time of the loop's thread
        self._collects_since = 0.0  # by the same
        self._collects = False
        self._callbacks = 0
        self._looks = 0  # at the present callback
        self._runs = False
        self._stood = 0.0
        self._stack = ""
        self._over = threading.Event()

    def run(self, handle: asyncio.Handle, run: Callable[[asyncio.Handle], None]) -> None:
        """Run a callback."""
        if threading.get_ident() != self._thread:
            run(handle)
            return
        self._stood, self._stack, self._looks, self._began = 0.0, "", 0, time.thread_time()
        self._callbacks += 1
        self._runs = True
        try:
            run(handle)
        finally:
            self._runs = False

    def forgive(self) -> None:
        """Do not count for how long the present callback has stood or computed: it was the test itself."""
        self._stood, self._stack, self._looks, self._began = 0.0, "", 0, time.thread_time()

    def collecting(self, phase: str, _: object) -> None:
        """Do not count what a collection of garbage computes: it looks at all that pytest has made."""
        self._collects = phase == "start"
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collects_since = time.thread_time()
        else:
            self._began += time.thread_time() - self._collects_since

    def look(self) -> None:
        """See, again and again, where the loop's thread stands; on the watcher's own thread."""
        last: tuple[object, ...] = ()
        before, looking = time.monotonic(), threading.current_thread()
        while not self._over.wait(LOOK):
            if self._collects:  # by any thread: CPython 3.11 crashes if it makes a frame for what is collected
                continue
            now = time.monotonic()
            with read_stacks():
                frame = sys._current_frames().get(self._thread)
            # No reference to a frame, or a task, is kept, so that a task's objects become garbage in time.
            place = (self._callbacks, id(frame), frame and frame.f_lasti)
            self._looks += self._runs
            on_time = frame is not None and self._runs and place == last and now - before < 2 * LOOK
            if on_time and not starts_a_thread(frame) and not ready(self._native):
                busy = any(ready(each.native_id) for each in threading.enumerate() if each is not looking)
                self._stood += (now - before) * (0.1 if busy else 1)
                if self._stood > SLOW and not self._stack:
                    with read_stacks():
                        self._stack = "".join(traceback.format_stack(frame))
            elif place != last and not self._stack:
                self._stood = 0.0
            last, before = place, now
            del frame

    def emit(self, record: logging.LogRecord) -> None:
        """Take note of what asyncio logs; it does so right after the callback."""
        text = record.getMessage()
        if "took" not in text or "Executing" not in text:
            self.errors.append(text)
        elif self._callbacks and (  # not uvloop's
            ((computed := time.thread_time() - self._began) >= SLOW and self._looks * LOOK * 2 >= SLOW)
            or computed >= 10 * SLOW
            or self._stack
        ):
            self.slow.append(f"{text}\ncomputed {computed:.3f} s, stood {self._stood:.3f} s\n{self._stack}")


def ready(thread: int | None) -> bool:
    """Return whether a thread runs or waits for a processor, as far as is known, and does not sleep in the kernel."""
    try:
        with open(f"/proc/self/task/{thread}/stat") as state:  # no Path: it is asked hundreds of times a second
            return state.read().rpartition(") ")[2][0] not in "SD"
    except OSError:  # it has ended; or there is no /proc
        return False


def starts_a_thread(frame: FrameType | None) -> bool:
    """Return whether it only waits until a new thread was given a processor."""
    with read_stacks():
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
    gc.callbacks.append(watcher.collecting)
    looking.start()
    try:
        with (
            patch.object(asyncio.Handle, "_run", lambda handle: watcher.run(handle, handle_run)),
            # In debug mode, each future and callback asks whether the source files have changed.
            patch.object(linecache, "checkcache", lambda _=None: None),
        ):
            yield watcher
    finally:
        gc.callbacks.remove(watcher.collecting)
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
    task, late = asyncio.current_task(), list[bool]()
    assert task is not None
    timer = asyncio.get_running_loop().call_later(patience, lambda: late.append(task.cancel()))
    try:
        return await awaitable
    except asyncio.CancelledError:
        assert not late, f"not within {patience} s"  # a cancellation is what many a test expects
        raise
    finally:
        timer.cancel()


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Wait until a task that is being cancelled has ended so."""
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


def owning(acquire: Callable[[], Any]) -> asyncio.Task[Any]:
    """Acquire in a task that does more than that."""

    async def own() -> object:
        return await acquire()

    return asyncio.create_task(own())


def sent_by(client: KazooClient) -> int:
    """Return how many requests the client has sent on this connection."""
    return int(repr(Session.of(client).link.transport._xids)[len("count(") : -1])


class Counts:
    """What the library does with a client within a block of `counting`.

    Attributes:
        tickets: how many nodes it was to make, one for each ticket.
        requests: how many requests it has sent.
    """

    def __init__(self) -> None:
        self.tickets = self.requests = 0

    def __repr__(self) -> str:
        return f"<{self.tickets} tickets, {self.requests} requests>"


@contextmanager
def counting(client: KazooClient) -> Iterator[Counts]:
    """Count the nodes and requests of a client within the block."""
    session, counts = Session.of(client), Counts()
    transport = session.link.transport
    new_ticket, send = session.new_ticket, transport.send

    def new_ticket_counted(*args: Any, **options: Any) -> Any:
        counts.tickets += 1
        return new_ticket(*args, **options)

    def send_counted(*args: Any) -> None:
        counts.requests += 1
        send(*args)

    with patch.object(session, "new_ticket", new_ticket_counted), patch.object(transport, "send", send_counted):
        yield counts


async def idle(*clients: KazooClient) -> None:
    """Wait until these clients have no request outstanding, and nothing is left to do in the loop.

    A task that is asleep then waits for another. The round trip of a `sync` brings all earlier replies and events.
    After that a task either sends a request or is done.
    """
    loop, quiet = asyncio.get_running_loop(), 0
    sent = [0 for _ in clients]
    while quiet < 2:
        for client in clients:
            await asyncio.to_thread(client.sync, "/")
        await asyncio.sleep(0 if hasattr(loop, "_ready") else 0.002)  # uvloop does not show what is ready: run it
        before, sent = sent, [sent_by(client) for client in clients]
        busy = any(now > then + 1 for then, now in zip(before, sent, strict=True))  # one is the `sync`
        busy = busy or any(client._pending or client._queue for client in clients)
        busy = busy or any(thread.name == "zkconcurrent background" for thread in threading.enumerate())
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


def throw_away(begin: Coroutine[Any, Any, None], then: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a loop that is closed and dropped with the tasks that are left, and another beside them."""
    loop = asyncio.new_event_loop()
    gc.disable()
    try:
        loop.run_until_complete(begin)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        del loop
        asyncio.run(then)  # not `run`, which has the garbage collector look at nothing made before
    finally:
        gc.enable()
