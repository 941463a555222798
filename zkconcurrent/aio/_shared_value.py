"""The values of any type for tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

from .._arguments.codec import BYTES, Codec
from .._kazoo.link import KazooClient
from .._recipes.value import Seen
from .._threads import shared_value as _shared_value
from .._threads.base.value_base import Combiner
from .._threads.shared_value import VersionedValue
from ._tasks import Tasks
from ._twin import PrimitiveTwin

T = TypeVar("T")


class _PerLoop(Tasks):
    """The tasks of each loop make their changes together, so that a stuck loop delays only its own tasks."""

    def _turn(self) -> Combiner:
        turns: Any = self._path_state.loops
        turn: Combiner = turns.setdefault(asyncio.get_running_loop(), Combiner())
        return turn


class _SharedValueCore(_PerLoop, _shared_value.SharedValue[Any]):
    """`zkconcurrent.SharedValue`, for tasks."""


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
