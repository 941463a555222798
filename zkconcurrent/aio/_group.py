"""The Group for tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import Final

from .._kazoo.link import KazooClient
from .._runtime.public import ErrorKind, Traceback, public
from .._threads import group as _group
from ._losses import Lost
from ._tasks import Pending, is_thrown_away, of_tasks
from ._twin import PrimitiveTwin, awaited

_Core = of_tasks(_group.Group)


@public
class Membership(_group.BaseMembership):
    """A membership of a group, which `Group.join` returns; see `zkconcurrent.Membership`.

    Attributes:
        id: the member's id.
        data: the bytes that the others see.
    """

    @property
    def lost(self) -> Lost:
        """Set when the membership has ended for good without `leave()`: see `zkconcurrent.Membership.lost`."""
        return Lost([(self._session, lambda: self._loss)])

    async def leave(self) -> None:
        """Leave the group; see `zkconcurrent.Membership.leave`."""
        await Pending(*self._begin_leave())


@public
class Joining:
    """A `join` that has not begun: await it once, or use it in one `async with` block, which leaves at its end."""

    def __init__(self, membership: Membership, begun: Pending[Membership]) -> None:
        self._membership = membership
        self._begun: Pending[Membership] | None = begun

    def __await__(self) -> Generator[object, object, Membership]:
        if self._begun is None:
            raise RuntimeError("a join() is for one await or block: call join() again for the next")
        begun, self._begun = self._begun, None
        return begun.__await__()

    async def __aenter__(self) -> Membership:
        return await self

    async def __aexit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        if is_thrown_away(kind):
            self._membership._give_up()
        else:
            await self._membership.leave()


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
        super().__init__(_Core(client, path))

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
            TypeError: the data is not bytes, the id is not a string, or `wait` is not a number.
            ValueError: another member has the id; the id is not a valid node name; or `wait` is negative.
        """
        membership, call, steps = self._core._begin_join(Membership, data, id, wait)
        return Joining(membership, Pending(call, steps))

    members: Final = awaited(_group.Group.members)

    def observe(self, timeout: float | None = None) -> AsyncIterator[dict[str, bytes]]:
        """Yield what `members` returns: at once, and then each time that it has changed.

        Args:
            timeout: how long to wait for each change, in seconds; then the iteration ends. None waits forever.
        """
        self._core._until(timeout)
        return self._observe(timeout)

    async def _observe(self, timeout: float | None) -> AsyncIterator[dict[str, bytes]]:
        seen: dict[str, bytes] | None = None
        while (seen := await self._core._next(seen, timeout)) is not None:
            yield dict(seen)
