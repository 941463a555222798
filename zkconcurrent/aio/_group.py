"""`Group` and `DoubleBarrier` for tasks, over those of threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from types import TracebackType
from typing import Any

from .. import _double_barrier, _group
from .._engine.driver import Call
from .._engine.identity import release_at_end
from .._errors import LockLostError
from .._kazoo.link import KazooClient
from .._primitive import check_timeout, reports_loss
from ._locks import PrimitiveTwin, Twin
from ._losses import Lost
from ._tasks import Pending, Tasks


class _GroupCore(Tasks, _group.Group):
    """`zkconcurrent.Group`, for tasks."""


class Membership(Twin):
    """A membership of a group, which `Group.join` returns; see `zkconcurrent.Membership`."""

    _core: _group.Membership

    @property
    def id(self) -> str:
        """The member's id."""
        return self._core.id

    @property
    def data(self) -> bytes:
        """The member's data."""
        return self._core.data

    @property
    def path(self) -> str:
        """The path of the member's node."""
        return self._core.path

    @property
    def active(self) -> bool:
        """Whether the member's node exists, as far as this client knows: False from an expiry until it has rejoined."""
        return self._core.active

    @property
    def lost(self) -> Lost:
        """Set when the membership has ended without `leave()`, for good: see `zkconcurrent.Membership.lost`."""
        return Lost([(self._core._session, lambda: self._core._loss)])

    async def leave(self) -> None:
        """Leave the group. A second call, or one after the membership was lost, does nothing."""
        core: Any = self._core
        await core.leave()

    def __reduce__(self) -> Any:
        return self._core.__reduce__()

    def __repr__(self) -> str:
        return repr(self._core).replace("zkconcurrent.", "zkconcurrent.aio.", 1)


class Joining:
    """A `join` that has not begun: a task awaits it, or uses it as an `async with` block that leaves at its end."""

    def __init__(self, core: _group.Membership, begun: Pending[_group.Membership]) -> None:
        self._core = core
        self._begun = begun

    def __await__(self) -> Generator[Any, Any, Membership]:
        yield from self._begun.__await__()
        return Membership(self._core)

    async def __aenter__(self) -> Membership:
        return await self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is GeneratorExit or asyncio._get_running_loop() is None:  # the loop is gone, and this task with it
            self._core._give_up()
        else:
            await Membership(self._core).leave()


class Group(PrimitiveTwin):
    """The processes that are present, for tasks; see `zkconcurrent.Group`.

    ::

        async with workers.join(b"10.0.0.7:8000") as me:
            print(await workers.members())

    A membership belongs to the client, not to a task. A cancelled `join` leaves no node: a thread of the library
    deletes the node if need be, and the cancellation waits for nothing.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the group's path; missing nodes are created as containers.
    """

    def __init__(self, client: KazooClient, path: str) -> None:
        super().__init__(_GroupCore(client, path))

    def join(
        self,
        data: bytes | None = None,
        id: str | None = None,  # noqa: A002
        *,
        wait: float = 0.0,
    ) -> Joining:
        """Join the group; `await` it, or use it as an `async with` block that leaves at its end.

        Args:
            data: the bytes that the others see; None for the host, process, task and time, as JSON.
            id: a name that no other member has; None generates one.
            wait: how long to wait, in seconds, for an id that another member has.

        Raises:
            TypeError: the data is not bytes, or the id is not a string.
            ValueError: another member has the id; the id is not a valid node name; or `wait` is negative.
        """
        core: Any = self._core
        membership = core._new_membership(data, id, wait)
        call = Call(core._session, core._path, membership)
        return Joining(membership, Pending(call, membership._joining(call)))

    async def members(self) -> dict[str, bytes]:
        """Return the data of all members by their ids, in the order of joining; asks the leader."""
        found: dict[str, bytes] = await self._core.members()
        return found

    def observe(self, timeout: float | None = None) -> AsyncIterator[dict[str, bytes]]:
        """Yield what `members` returns: at once, and then each time that it has changed.

        Args:
            timeout: how long to wait for each change, in seconds; then the iteration ends. None waits forever.
        """
        check_timeout(True, -1 if timeout is None else max(timeout, 0.0))
        return self._observe(timeout)

    async def _observe(self, timeout: float | None) -> AsyncIterator[dict[str, bytes]]:
        seen: dict[str, bytes] | None = None
        while (seen := await self._core._next(seen, timeout)) is not None:
            yield dict(seen)


class _DoubleBarrierCore(Tasks, _double_barrier.DoubleBarrier):
    """`zkconcurrent.DoubleBarrier`, whose parties are tasks."""

    def end_owner(self, owner: int, *, thrown_away: bool) -> bool:
        """If the task was thrown away with its loop, take its party out. Otherwise it has left, or stays."""
        if thrown_away:
            self._forsake_party(owner)
        return False


class DoubleBarrier(PrimitiveTwin):
    """A barrier that parties, tasks and threads of any processes, enter together and leave together.

    Otherwise it is a `zkconcurrent.DoubleBarrier`. A cancelled `enter` leaves no node, and after a cancelled `leave`
    the party has left; the cancellation waits for nothing. A task that ends inside the barrier stays a party until its
    session ends: use `async with`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the barrier's path; missing nodes are created as containers.
        parties: how many must arrive before they enter; all processes must give the same.
    """

    def __init__(self, client: KazooClient, path: str, parties: int) -> None:
        super().__init__(_DoubleBarrierCore(client, path, parties))

    @property
    def parties(self) -> int:
        """How many parties must arrive before they enter."""
        return int(self._core.parties)

    async def enter(self, timeout: float | None = None) -> bool:
        """Enter; wait until enough parties have arrived. Errors as `zkconcurrent.DoubleBarrier.enter`.

        Args:
            timeout: how long to wait for them, in seconds; None waits forever, zero or less makes one attempt.

        Returns:
            Whether the caller is inside. If False, the attempt leaves no node behind.
        """
        inside = bool(await self._core.enter(timeout))
        if inside:
            release_at_end(self._core._identity(), self._core)
        return inside

    async def leave(self, timeout: float | None = None) -> bool:
        """Leave, and wait until all other parties have left; errors as `zkconcurrent.DoubleBarrier.leave`.

        Args:
            timeout: how long to wait for them, in seconds; None waits forever, zero or less does not wait.

        Returns:
            Whether all have left; False at the deadline.
        """
        return bool(await self._core.leave(timeout))

    async def __aenter__(self) -> bool:
        return await self.enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is GeneratorExit or asyncio._get_running_loop() is None:
            return  # the loop is gone, and this task with it: see `end_owner`
        try:
            await self.leave(None if kind is None else 0.0)
        except LockLostError:
            if reports_loss(kind):
                raise

    async def destroy(self) -> None:
        """Remove the node that stays behind if all parties died inside; see `zkconcurrent.DoubleBarrier.destroy`."""
        await self._core.destroy()
