"""`AtomicLong`, `AtomicInteger` and `SharedValue` for tasks, over those of threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

from .. import _atomic, _shared_value
from .._codec import BYTES, Codec
from .._kazoo.link import KazooClient
from .._recipes.value import Seen
from .._shared_value import VersionedValue
from .._value import Turn
from ._locks import PrimitiveTwin
from ._tasks import Tasks

T = TypeVar("T")


class _PerLoop(Tasks):
    """The tasks of each loop make their changes together, so that a stuck loop delays only its own tasks."""

    def _turn(self) -> Turn:
        turns: Any = self._path_state.loops
        turn: Turn = turns.setdefault(asyncio.get_running_loop(), Turn())
        return turn


class _AtomicLongCore(_PerLoop, _atomic.AtomicLong):
    """`zkconcurrent.AtomicLong`, for tasks."""


class _AtomicIntegerCore(_PerLoop, _atomic.AtomicInteger):
    """`zkconcurrent.AtomicInteger`, for tasks."""


class _SharedValueCore(_PerLoop, _shared_value.SharedValue[Any]):
    """`zkconcurrent.SharedValue`, for tasks."""


class AtomicLong(PrimitiveTwin):
    """A number of 64 bits that all processes share; see `zkconcurrent.AtomicLong`.

    A cancelled change either was applied or never will be; the caller can't tell which.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the number's path; its node is created by the first change.
    """

    _kind: Callable[..., _atomic.AtomicLong] = _AtomicLongCore

    def __init__(self, client: KazooClient, path: str) -> None:
        super().__init__(self._kind(client, path))

    async def get(self) -> int:
        """Return the number; asks the leader."""
        return int(await self._core.get())

    async def set(self, value: int) -> None:
        """Set the number; errors as `zkconcurrent.AtomicLong.set`."""
        await self._core.set(value)

    async def add(self, n: int = 1) -> int:
        """Add to the number; return the new one."""
        return int(await self._core.add(n))

    async def get_and_add(self, n: int = 1) -> int:
        """Add to the number; return the old one."""
        return int(await self._core.get_and_add(n))

    async def compare_and_set(self, expected: int, value: int) -> bool:
        """Set the number if it is the expected one; return whether it was set."""
        return bool(await self._core.compare_and_set(expected, value))

    async def update(self, func: Callable[[int], int]) -> int:
        """Replace the number by a plain function's result; return the new number."""
        return int(await self._core.update(func))

    async def destroy(self) -> None:
        """Remove the number's nodes; see `zkconcurrent.AtomicLong.destroy`."""
        await self._core.destroy()


class AtomicInteger(AtomicLong):
    """An `AtomicLong` of 32 bits; see `zkconcurrent.AtomicInteger`."""

    _kind = _AtomicIntegerCore


class SharedValue(PrimitiveTwin, Generic[T]):
    """A value that all processes share; see `zkconcurrent.SharedValue`. `AtomicReference` is another name for it.

    A cancelled change either was applied or never will be; the caller can't tell which.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the value's path; its node is created at the first use.
        value: the value until a client sets another; all processes must give the same.
        codec: turns the value into bytes and back.
    """

    def __init__(self, client: KazooClient, path: str, value: T, *, codec: Codec = BYTES) -> None:
        super().__init__(_SharedValueCore(client, path, value, codec=codec))

    async def get(self) -> VersionedValue:
        """Return the value and its version; asks the leader."""
        value: VersionedValue = await self._core.get()
        return value

    async def set(self, value: T) -> None:
        """Set the value; errors as `zkconcurrent.SharedValue.set`."""
        await self._core.set(value)

    async def compare_and_set(self, expected: tuple[T, int], value: T) -> bool:
        """Set the value if no client has written since `get` returned the expected one; return whether it was set.

        Args:
            expected: what `get` or `watch` has returned: a value and its version.
            value: the new value.
        """
        return bool(await self._core.compare_and_set(expected, value))

    async def update(self, func: Callable[[T], T]) -> T:
        """Replace the value by a plain function's result; return the new value."""
        value: T = await self._core.update(func)
        return value

    async def wait_for(self, predicate: Callable[[T], Any], timeout: float | None = None) -> Any:
        """Wait until a predicate is true of the value; return its last result.

        Args:
            predicate: is called with the value, and again whenever the value has changed.
            timeout: how long to wait, in seconds; None waits forever, zero or less reads the value once.
        """
        return await self._core.wait_for(predicate, timeout)

    async def watch(self, timeout: float | None = None) -> AsyncIterator[VersionedValue]:
        """Iterate over the value and its changes: the present value, then each time the newest.

        Args:
            timeout: how long to wait for each value, in seconds; the iterator ends when the timeout has passed.
        """
        seen: Seen | None = None
        while (seen := await self._core._next(seen, timeout)) is not None:
            yield self._core._decode(seen)

    async def destroy(self) -> None:
        """Remove the value's nodes; see `zkconcurrent.SharedValue.destroy`."""
        await self._core.destroy()


AtomicReference = SharedValue
