"""The atomic numbers for tasks."""

from __future__ import annotations

from typing import Final

from .._kazoo.link import KazooClient
from .._threads import atomic as _atomic
from ._shared_value import PerLoop
from ._tasks import of_tasks
from ._twin import PrimitiveTwin, awaited


class AtomicLong(PrimitiveTwin):
    """A number of 64 bits that all processes share; see `zkconcurrent.AtomicLong`.

    A cancelled change either was applied or never will be; the caller can't tell which.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the number's path; its node is created by the first change.
    """

    _kind = of_tasks(_atomic.AtomicLong, PerLoop)

    def __init__(self, client: KazooClient, path: str) -> None:
        super().__init__(self._kind(client, path))

    get: Final = awaited(_atomic.AtomicLong.get)
    set: Final = awaited(_atomic.AtomicLong.set)
    add: Final = awaited(_atomic.AtomicLong.add)
    get_and_add: Final = awaited(_atomic.AtomicLong.get_and_add)
    compare_and_set: Final = awaited(_atomic.AtomicLong.compare_and_set)

    update: Final = awaited(
        _atomic.AtomicLong.update,
        """Replace the number by a plain function's result; return the new number.

        Args:
            func: takes the present number, returns the new one. It is called again after a conflict.
        """,
    )

    destroy: Final = awaited(_atomic.AtomicLong.destroy)


class AtomicInteger(AtomicLong):
    """An `AtomicLong` of 32 bits; see `zkconcurrent.AtomicInteger`."""

    _kind: type[_atomic.AtomicLong] = of_tasks(_atomic.AtomicInteger, PerLoop)
