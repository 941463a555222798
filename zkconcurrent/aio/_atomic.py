"""The atomic numbers for tasks."""

from __future__ import annotations

from collections.abc import Callable

from .._kazoo.link import KazooClient
from .._threads import atomic as _atomic
from ._shared_value import _PerLoop
from ._twin import PrimitiveTwin


class _AtomicLongCore(_PerLoop, _atomic.AtomicLong):
    """`zkconcurrent.AtomicLong`, for tasks."""


class _AtomicIntegerCore(_PerLoop, _atomic.AtomicInteger):
    """`zkconcurrent.AtomicInteger`, for tasks."""


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
