"""How the tests of `aio` run their loops: in debug mode, and failing where the library has a loop's thread wait."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import zkconcurrent
from tests.conftest import PATIENCE
from zkconcurrent._engine.session import Session
from zkconcurrent._runtime.events import AutoResetEvent
from zkconcurrent._runtime.stacks import frames_from

T = TypeVar("T")
LIBRARY = str(Path(zkconcurrent.__file__).parent)


class Errors(logging.Handler):
    """Takes note of what asyncio logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take note."""
        self.texts.append(record.getMessage())


def by_the_library() -> bool:
    """Return whether the caller's wait is the library's, and not that until a new thread has begun."""
    frames = list(frames_from(sys._getframe(2)))
    begins = any(frame.f_code is threading.Thread.start.__code__ for frame in frames)
    return not begins and any(frame.f_code.co_filename.startswith(LIBRARY) for frame in frames)


@contextmanager
def watching(*, errors: bool = False) -> Iterator[None]:
    """Fail if the library has this thread wait within the block.

    Args:
        errors: whether asyncio may log errors, such as a task that nobody awaited.
    """
    handler, logger, mine, waits = Errors(), logging.getLogger("asyncio"), threading.get_ident(), list[str]()

    def watched(wait: Callable[..., bool]) -> Callable[..., bool]:
        def wait_here(*args: Any, **options: Any) -> bool:
            if threading.get_ident() == mine and asyncio._get_running_loop() is not None and by_the_library():
                waits.append("".join(traceback.format_stack(limit=30)))
            return wait(*args, **options)

        return wait_here

    logger.addHandler(handler)
    try:
        with (
            patch.object(threading.Condition, "wait", watched(threading.Condition.wait)),
            patch.object(AutoResetEvent, "wait", watched(AutoResetEvent.wait)),
        ):
            yield
    finally:
        logger.removeHandler(handler)
    assert not waits, f"the library has the loop wait:\n{waits[0]}"
    assert errors or not handler.texts, "\n".join(handler.texts)


def run(main: Coroutine[Any, Any, T], *, errors: bool = False) -> T:
    """Run a coroutine to its end in a loop of its own, in debug mode."""

    async def watched() -> T:
        # What a callback takes tells of the machine.
        asyncio.get_running_loop().slow_callback_duration = math.inf
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
    new_ticket, send = session.new_ticket, session.link.send

    def new_ticket_counted(*args: Any, **options: Any) -> Any:
        counts.tickets += 1
        return new_ticket(*args, **options)

    def send_counted(*requests: Any) -> None:
        counts.requests += len(requests)
        send(*requests)

    with patch.object(session, "new_ticket", new_ticket_counted), patch.object(session.link, "send", send_counted):
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
