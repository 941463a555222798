"""`connect` for tasks: the client starts and stops on a thread, so that the loop goes on running."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, NoReturn

from .._client.connect import Client, prepare
from .._engine.call import Call
from .._engine.session import Session
from .._runtime.public import ErrorKind, Traceback, public
from .._runtime.wait_loops import call_soon
from ._tasks import Pending, in_background


class Connecting(AbstractAsyncContextManager[Client, None]):
    """An `async with` block with a started client; `connect()` makes it."""

    def __init__(self, block: AbstractAsyncContextManager[Client, Any]) -> None:
        self._block = block
        self._entered = False

    def __await__(self) -> NoReturn:
        raise TypeError(
            "connect() is for an async with block, which closes the client: write "
            "`async with aio.connect(url) as zk:`, or `await stack.enter_async_context(aio.connect(url))` with a "
            "contextlib.AsyncExitStack"
        )

    async def __aenter__(self) -> Client:
        if self._entered:
            raise RuntimeError("a connect() is for one block: call connect() again for the next")
        self._entered = True
        return await self._block.__aenter__()

    async def __aexit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        await self._block.__aexit__(kind, error, traceback)


@public
def connect(url: str, **options: Any) -> Connecting:
    """Open and start a client: `async with aio.connect("zk://host1,host2:2182/app?timeout=10") as zk:`.

    The client starts on a thread of its own, and stops on another one: the threads of the loop's default executor may
    all be busy, or waiting for the client to stop. Tasks and threads may use the client together. At the end of the
    block, the client first waits, for up to a third of the session timeout, for background work that its tasks have
    begun, such as an `Event.set()` that no task awaits; then it stops.

    A cancellation waits for nothing. If the client is starting, the thread that starts it closes it, which can take as
    long as one more attempt to connect. If the client is stopping, its thread continues to stop it. The process does
    not end before that thread.

    Args:
        url: the address of ZooKeeper; see `zkconcurrent.connect`.
        **options: those of `zkconcurrent.connect`.

    Raises:
        ValueError, TimeoutError, RefusedError, RuntimeError: as `zkconcurrent.connect`, when the block is entered.

    Source:
        `zkconcurrent.connect`.
    """
    return Connecting(_connected(url, **options))


@asynccontextmanager
async def _connected(url: str, **options: Any) -> AsyncIterator[Client]:
    client, start = prepare(url, **options)
    await _start(client, start)
    try:
        yield client
    finally:
        try:
            await await_background_calls(client)
        finally:
            stopping = _begin_stop(client)
            await asyncio.wait([stopping])  # which does not cancel it
            stopping.result()


async def _start(client: Client, start: Callable[..., None]) -> None:
    # The thread takes the turn when the client has started; the task takes it when it gives up. Whichever comes
    # second stops the client.
    turn = [True]

    def run() -> None:
        try:
            start(given_up=lambda: not turn)
        except BaseException:
            if turn:
                raise
        else:
            if not _claim_once(turn):
                _stop(client)

    starting = _in_thread(run, "start")
    try:
        await asyncio.wait([starting])
    except BaseException:
        if not _claim_once(turn):
            _begin_stop(client)
        raise
    starting.result()


def _claim_once(turn: list[bool]) -> bool:
    try:
        return turn.pop()
    except IndexError:
        return False


def _stop(client: Client) -> None:
    client.__exit__(None, None, None)


def _begin_stop(client: Client) -> asyncio.Future[None]:
    return _in_thread(partial(_stop, client), "stop")


def _in_thread(function: Callable[[], None], name: str) -> asyncio.Future[None]:
    """Begin to run a function on a thread of its own: the loop's executor may be shut down, or full of waiting calls.

    Unlike with `to_thread`, a cancellation does not keep it from running.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    # asyncio would warn of an error that no task retrieves. This callback retrieves the error, even if no task waits.
    ended.add_done_callback(asyncio.Future.exception)

    def run() -> None:
        try:
            function()
        except BaseException as error:
            # Catch every error: the task waits for this future.
            call_soon(loop, partial(ended.set_exception, error))
        else:
            call_soon(loop, partial(ended.set_result, None))

    try:
        threading.Thread(target=run, name=f"zkconcurrent {name}").start()
    except RuntimeError:
        # No thread can be started, so the loop itself waits: otherwise a client that should stop would keep all its
        # holds.
        run()
    return ended


async def await_background_calls(client: Client) -> None:
    """Wait until the calls that run in the background have ended."""
    session = Session.of(client)
    try:
        # Calls in the background run one after the other, so this one ends last.
        last = in_background(session, Pending(Call(session, ""), _nothing()))
    except RuntimeError:
        # No thread can be started, so the calls in the background do not run.
        return
    ending = asyncio.ensure_future(last)
    await asyncio.wait([ending], timeout=session.timeout / 3)
    ending.cancel()


def _nothing() -> Generator[None, bool, None]:
    return
    yield
