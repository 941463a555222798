"""`synchronized` for `async def`: each call holds a lock, at a path made from the call's arguments."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from .._kazoo.link import KazooClient
from .._runtime.identity import of_caller
from .._runtime.public import ErrorKind, Traceback, public
from .._threads.base.reentrant_core import Levels
from .._threads.synchronized import Args, DecoratedCalls, Function, Kind, KwArgs, LockedBy, calls_are
from ._namespace import Namespace
from ._rlock import RLock

Where: TypeAlias = KazooClient | Namespace | Callable[[], KazooClient | Namespace]
ReleasesAtEnd: TypeAlias = AbstractAsyncContextManager[object, bool | None]


class LockedByTask(LockedBy):
    """The blocks of `synchronized` and `once_per`."""

    _namespace = Namespace
    _rlock = RLock
    _caller = staticmethod(of_caller)

    async def __aenter__(self) -> Any:
        lock = self._begin_block()
        try:
            return await lock.__aenter__()
        except BaseException:
            self._end_block()
            raise

    async def __aexit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        await self._end_block().__aexit__(kind, error, traceback)


@public
class synchronized(LockedByTask):  # noqa: N801 - as wrapt has it
    """Decorate an `async def` so that each call holds a lock: `@aio.synchronized(zk, "/users/{user.id}")`.

    Templates, values and paths are as for `zkconcurrent.synchronized`. The lock is the `aio.RLock` at the path, so
    coroutine functions with the same path may await each other in one task. `@aio.synchronized(lock)` holds an existing
    lock of `aio` or `asyncio`, and `async with aio.synchronized(zk, "/app/report"):` holds the lock
    for a block.

    The path is made when the function is called. A coroutine holds the lock while it runs. An async generator holds it
    from its first step until it ends, is closed or raises, even while suspended at a `yield`; after a `break` out of
    `async for`, the event loop closes it. The task that takes the first step owns the hold, and may acquire the lock
    again. Any task may take the other steps; in each, the generator's own code may acquire the lock again. Below the
    decorator `contextlib.asynccontextmanager`, it makes an `async with` block.

    Args:
        where: a client, from `connect`; or a namespace of `aio`, to whose path `path` is relative; or a plain
            function without arguments that returns one of these, called for each call. Or a lock.
        path: the path, absolute for a client and relative for a namespace.

    Raises:
        TypeError: as `zkconcurrent.synchronized`, but the target must be `async def`.
        ValueError: as `zkconcurrent.synchronized`.
        LockLostError: the hold of a call was lost; raised as at the end of an `async with` block.

    Source:
        `wrapt.synchronized`.
    """

    _lock_kind = AbstractAsyncContextManager

    def __init__(self, where: Where | ReleasesAtEnd, path: str | None = None) -> None:
        super().__init__(where, path)

    def _kind(self, function: Function) -> Kind:
        if calls_are(inspect.isasyncgenfunction, function):
            return _ASYNC_GENERATOR
        if not calls_are(inspect.iscoroutinefunction, function):
            name = getattr(function, "__qualname__", repr(function))
            raise TypeError(
                f"aio.synchronized is for async functions, and {name} is none: use zkconcurrent.synchronized"
            )
        return _COROUTINE

    async def __aenter__(self) -> None:
        await super().__aenter__()


async def _await(lock: ReleasesAtEnd, function: Function, args: Args, kwargs: KwArgs) -> object:
    """Await a coroutine with the lock held."""
    async with lock:
        return await function(*args, **kwargs)


def plain_coroutine(calls: DecoratedCalls) -> Function:
    """Return a coroutine function that makes the calls."""

    async def call(*args: object, **kwargs: object) -> object:
        return await calls.call(args, kwargs)

    return call


def _iterate(lock: ReleasesAtEnd, function: Function, args: Args, kwargs: KwArgs) -> object:
    """Begin an async generator, which holds the lock from its first step to its end."""
    generator = function(*args, **kwargs)
    return _relay(lambda: (lock, generator))()


def _async_generator(calls: DecoratedCalls) -> Function:
    return _relay(lambda *args, **kwargs: (calls.lock(args, kwargs), calls.function(*args, **kwargs)))


def _relay(
    begin: Callable[..., tuple[ReleasesAtEnd, AsyncGenerator[object, object]]],
) -> Callable[..., AsyncGenerator[object, object]]:
    """Return a function that runs an async generator with a lock held, step by step: there is no async `yield from`."""

    async def call(*args: object, **kwargs: object) -> AsyncGenerator[object, object]:
        lock, generator = begin(*args, **kwargs)
        async with lock:
            levels = Levels(lock, asyncio.get_running_loop())
            try:
                step = _first_step(generator)
                while True:
                    try:
                        value = await _run(step)
                    except StopAsyncIteration:
                        return
                    try:
                        sent = yield value
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        step = generator.athrow(error)
                    else:
                        step = generator.asend(sent)
            finally:
                try:
                    await generator.aclose()
                finally:
                    levels.over = True

    return call


def _first_step(generator: AsyncGenerator[object, object]) -> Awaitable[object]:
    """Return the first step of a generator that only its caller closes.

    When the event loop ends, it closes all generators. If it closed this one, too, the caller would release the lock
    before this generator has ended.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, lambda _: None)
    try:
        return generator.__anext__()
    finally:
        sys.set_asyncgen_hooks(*hooks)


async def _run(step: Awaitable[object]) -> object:
    """Await a step here: a cancellation then reaches it through the frame of `call`, whose `levels` name the holds."""
    return await step


_COROUTINE = Kind(_await, plain_coroutine)
_ASYNC_GENERATOR = Kind(_iterate, _async_generator)
