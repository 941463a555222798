"""The classes for tasks with the interface of threads, also those that `on_tasks.APART` leaves out.

Here a call is only made, and not compared with that of threads in each detail; so a block, or an awaited write, may
stand for a plain call of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from tests.helpers import on_tasks
from tests.helpers.kinds import primitives
from tests.helpers.on_tasks import OnTasks, call
from zkconcurrent import aio


def iterated(changes: Any) -> Iterator[Any]:
    """Iterate as a task does."""
    while True:
        try:
            yield call(changes.__anext__)
        except StopAsyncIteration:
            return


class Apart(OnTasks):
    """A class whose interface for tasks differs."""

    def __setitem__(self, key: str, value: Any) -> None:
        call(lambda: self._made.put(key, value))

    def __len__(self) -> int:
        return len(self._made)

    def join(self, *args: Any, **options: Any) -> Any:
        """Join a group; or wait until a queue's items are done."""
        made = self._made
        return OnTasks.__getattr__(self, "join")() if isinstance(made, aio.Queue) else member(made, *args, **options)

    def observe(self, timeout: float | None = None) -> Iterator[Any]:
        """Iterate over the members of a group."""
        return iterated(call(lambda: self._made.observe(timeout)))

    def watch(self, timeout: float | None = None) -> Iterator[Any]:
        """Iterate over the changes of a value."""
        return iterated(call(lambda: self._made.watch(timeout)))


def member(group: aio.Group, *args: Any, **options: Any) -> Any:
    """Join a group."""

    async def join() -> aio.Membership:
        return await group.join(*args, **options)

    joined = call(join)
    return SimpleNamespace(leave=lambda: call(joined.leave))


DIFFER = {*on_tasks.APART, "SharedValue"}
TASKS: Any = SimpleNamespace(
    __name__="tasks",
    **{
        name: type(name, (Apart,), {"_twin": getattr(aio, name)}) if name in DIFFER else getattr(on_tasks, name)
        for name in primitives(aio)
    },
)
"""All classes."""
