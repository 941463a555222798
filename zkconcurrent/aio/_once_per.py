"""`once_per` for `async def`: a job starts at most once in each period, on all machines together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from .._runtime.public import ErrorKind, Traceback, public
from .._runtime.wait_loops import wait_async
from .._threads.once_per import Job, Periods, Turn
from .._threads.synchronized import Args, Function, Kind, KwArgs, calls_are, name_of
from ._rlock import RLock
from ._synchronized import LockedByTask, Where, plain_coroutine

P = ParamSpec("P")
R = TypeVar("R")


class JobBlock:
    """An `async with` block that holds a job's lock, takes the job's turn, and records the job's success.

    It is a class, as an event loop that ends would close an async generator by itself, while the block still runs.
    """

    def __init__(self, job: Job, lock: RLock) -> None:
        self._job, self._lock = job, lock
        (self._core,) = lock._lock_cores()

    async def __aenter__(self) -> Turn:
        await self._lock.__aenter__()
        try:
            self._turn = await wait_async(*self._job.take_turn(self._core))
            return self._turn
        except BaseException as error:
            await self._lock.__aexit__(type(error), error, None)
            raise

    async def __aexit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        try:
            if kind is None and self._turn and self._job.until_success:
                await wait_async(*self._job.succeeded(self._core))
        except BaseException as failed:
            await self._lock.__aexit__(type(failed), failed, None)
            raise
        await self._lock.__aexit__(kind, error, traceback)


@public
class once_per(Periods, LockedByTask):  # noqa: N801 - as `synchronized`
    """Start a job at most once in each period, on all machines together: `@aio.once_per(zk, "/jobs/hourly", 3300)`.

    It is `zkconcurrent.once_per` for coroutine functions, and for blocks: `async with aio.once_per(...) as turn:`. The
    lock is the `aio.RLock` at the path; tasks, threads, and `zkconcurrent run --once-per` share the lock and the mark.
    A call that is cancelled before the job starts does not start it, but may have written the mark of a start.

    Args:
        where: a client, from `connect`; or a namespace of `aio`, to whose path `path` is relative; or a plain
            function without arguments that returns one of these, called for each call.
        path, seconds, until_success: as for `zkconcurrent.once_per`.

    Raises:
        TypeError: as `zkconcurrent.once_per`, but the target must be `async def`.
        ValueError, LockLostError, RefusedError, ForeignNodeError: as `zkconcurrent.once_per`.

    Source:
        As `zkconcurrent.once_per`.
    """

    def __init__(self, where: Where, path: str, seconds: float, *, until_success: bool = False) -> None:
        super().__init__(where, path, seconds, until_success=until_success)

    def __call__(  # type: ignore[override]
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R | None]]:
        """Return a function that runs the job if it is the call's turn, and otherwise returns None."""
        return self._decorate(function)  # type: ignore[no-any-return]

    def _lock(self, arguments: KwArgs) -> JobBlock:
        return JobBlock(self._job(), super()._lock(arguments))

    def _kind(self, function: Function) -> Kind:
        if not calls_are(inspect.iscoroutinefunction, function):
            raise TypeError(
                f"aio.once_per is for coroutine functions, and {name_of(function)} is none: use zkconcurrent.once_per, "
                "or for an async generator decorate the coroutine function that uses it up"
            )
        return _COROUTINE

    async def __aenter__(self) -> Turn:
        return await super().__aenter__()  # type: ignore[no-any-return]


async def _run(block: JobBlock, function: Function, args: Args, kwargs: KwArgs) -> object:
    """Await a coroutine if it is the call's turn."""
    async with block as turn:
        return await function(*args, **kwargs) if turn else None


_COROUTINE = Kind(_run, plain_coroutine)
