"""Shared values of any type, for tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, Generic, TypeVar, overload

from .._arguments.codec import BYTES, Codec
from .._kazoo.link import KazooClient
from .._recipes.value import Seen
from .._threads import shared_value as _shared_value
from .._threads.base.value_base import Combiner
from .._threads.shared_value import VersionedValue
from ._tasks import Tasks, of_tasks
from ._twin import PrimitiveTwin, awaited

T = TypeVar("T")


class PerLoop(Tasks):
    """The tasks of each loop make their changes together, so that a stuck loop delays only its own tasks."""

    def _combiner(self) -> Combiner:
        combiner: Combiner = self._path_state.loop_combiners.setdefault(asyncio.get_running_loop(), Combiner())
        return combiner


_Core = of_tasks(_shared_value.SharedValue, PerLoop)


class SharedValue(PrimitiveTwin, Generic[T]):
    """A value that all processes share; see `zkconcurrent.SharedValue`. `AtomicReference` is another name for it.

    A cancelled change either was applied or never will be; the caller can't tell which.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the value's path; its node is created at the first use.
        value: the value until a client sets another; all processes must give the same.
        codec: turns the value into bytes and back.
    """

    @overload
    def __init__(self: SharedValue[bytes], client: KazooClient, path: str, value: bytes) -> None: ...
    @overload
    def __init__(self, client: KazooClient, path: str, value: T, *, codec: Codec[T]) -> None: ...
    def __init__(self, client: KazooClient, path: str, value: Any, *, codec: Codec[Any] = BYTES) -> None:
        super().__init__(_Core(client, path, value, codec=codec))

    get: Final = awaited(_shared_value.SharedValue[T].get)
    set: Final = awaited(_shared_value.SharedValue[T].set)
    compare_and_set: Final = awaited(_shared_value.SharedValue[T].compare_and_set)

    update: Final = awaited(
        _shared_value.SharedValue[T].update,
        """Replace the value by a plain function's result; return the new value.

        Args:
            func: takes the present value, returns the new one. It is called again after a conflict.
        """,
    )

    wait_for: Final = awaited(_shared_value.SharedValue[T].wait_for)

    async def watch(self, timeout: float | None = None) -> AsyncIterator[VersionedValue[T]]:
        """Iterate over the value and its changes: yield the present value, then the newest value after each change.

        Args:
            timeout: how long to wait for each value, in seconds; the iterator ends when the timeout has passed.
        """
        seen: Seen | None = None
        while (seen := await self._core._next(seen, timeout)) is not None:
            yield self._core._decode(seen)

    destroy: Final = awaited(_shared_value.SharedValue[T].destroy)


AtomicReference = SharedValue
