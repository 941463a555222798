"""The Event for tasks."""

from __future__ import annotations

from typing import Final

from .._kazoo.link import KazooClient
from .._recipes.event import Flag, turn
from .._threads import event as _event
from .._threads.base.primitive import discard_result
from ._tasks import Completion, Tasks
from ._twin import PrimitiveTwin, awaited


class _EventCore(Tasks, _event.Event):
    """`zkconcurrent.Event`, for tasks."""

    def seen(self) -> bool:
        """Return whether the flag is set, as last seen."""
        seen = self._path_state.last_seen
        return isinstance(seen, Flag) and seen.is_set

    def begin_turn(self, wanted: bool) -> object:
        """Note the flag as it will be; return the call that changes it. Its reply may come after the next change."""
        self._session.check_usable(self._path)
        self._path_state.note(Flag(0, wanted))
        return self._run_query(turn(self._path, wanted), discard_result)


class Event(PrimitiveTwin):
    """`asyncio.Event` for every process that opens the same path; see `zkconcurrent.Event`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the event's path; its node is created by the first `set`, or by a `wait` that has to wait.
    """

    def __init__(self, client: KazooClient, path: str) -> None:
        super().__init__(_EventCore(client, path))

    def is_set(self) -> bool:
        """Return whether the flag is set, as last seen; updated from the server at most once a second."""
        self._refresh("is_set", self._core.is_set)
        return bool(self._core.seen())

    fetch: Final = awaited(_event.Event.is_set)

    def set(self) -> Completion:
        """Set the flag and wake all waiters."""
        return self._in_background(self._core.begin_turn(True))

    def clear(self) -> Completion:
        """Clear the flag."""
        return self._in_background(self._core.begin_turn(False))

    wait: Final = awaited(_event.Event.wait)
    destroy: Final = awaited(_event.Event.destroy)
