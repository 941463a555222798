"""`Group` and `DoubleBarrier` of a namespace on the standard library alone; `aio`'s wait in a coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from types import TracebackType
from typing import Any

from .._arguments.limits import check_positive
from .._threads.base.primitive import check_timeout
from .._threads.group import check_data, check_id, check_wait


class Membership:
    """A membership of a group, which `Group.join` returns: a context manager that leaves the group at its end.

    Attributes:
        id: the member's id.
        data: its data.
        path: where its node would be in ZooKeeper.
        lost: an event that is never set, as no membership is lost here.
    """

    def __init__(self, group: Group, name: str, data: bytes) -> None:
        self._group = group
        self.id = name
        self.data = data
        self.path: str = f"{group.path}/{name}"
        self.lost: threading.Event = threading.Event()

    @property
    def active(self) -> bool:
        """Whether the member has not left yet."""
        return self._group._members.get(self.id) is self

    def leave(self) -> None:
        """Leave the group. A second call does nothing."""
        with self._group._changed:
            if self.active:
                del self._group._members[self.id]
                self._group._changed.notify_all()

    def __enter__(self) -> Membership:  # noqa: PYI034
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()


class Group:
    """The members of a group of this process."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._changed = threading.Condition()
        self._members: dict[str, Membership] = {}

    def join(
        self,
        data: bytes | None = None,
        id: str | None = None,  # noqa: A002
        *,
        wait: float = 0.0,
    ) -> Membership:
        """Join the group.

        Raises:
            TypeError: the data is not bytes, or the id is not a string.
            ValueError: another member has the id; or the id is no valid name of a node.
        """
        membership = Membership(self, check_id(self.path, id), check_data(data))
        check_wait(wait)
        with self._changed:
            if not self._changed.wait_for(lambda: membership.id not in self._members, wait):
                raise ValueError(f"the group {self.path!r} has another member {membership.id!r}: give another id")
            self._members[membership.id] = membership
            self._changed.notify_all()
        return membership

    def members(self) -> dict[str, bytes]:
        """Return the data of all members by their ids, the longest-standing member first."""
        return {name: member.data for name, member in list(self._members.items())}

    def observe(self, timeout: float | None = None) -> Iterator[dict[str, bytes]]:
        """Yield what `members` returns: at once, and then each time that it has changed."""
        seen = self.members()

        def changed() -> bool:
            return list(self.members().items()) != list(seen.items())

        yield dict(seen)
        while True:
            with self._changed:
                if not self._changed.wait_for(changed, timeout):
                    return
                seen = self.members()
            yield dict(seen)


class Round:
    """The parties of a double barrier; a caller holds the barrier's lock, or is of its loop.

    Attributes:
        there: the parties that wait or are inside, by owner. Each is an object of its own, as a node is: an owner that
            has left may come back before the others know.
        open: enough parties have come, and not all of them have left.
    """

    def __init__(self, parties: int) -> None:
        self.parties = parties
        self.there: dict[object, object] = {}
        self.open = False

    def arrive(self, owner: object) -> None:
        """Add a party.

        Raises:
            RuntimeError: the owner has a party there already.
        """
        if owner in self.there:
            raise RuntimeError("the caller is inside the double barrier already: leave() it first")
        self.there[owner] = object()
        self.open = self.open or len(self.there) >= self.parties

    def go(self, owner: object) -> Callable[[], bool]:
        """Remove a party; return a function that returns whether all others that were there have left.

        Raises:
            RuntimeError: the owner has no party there.
        """
        if owner not in self.there:
            raise RuntimeError("the caller is not inside the double barrier: enter() it first")
        del self.there[owner]
        self.open = self.open and bool(self.there)
        others = set(self.there.values())
        return lambda: others.isdisjoint(self.there.values())


class DoubleBarrier:
    """A barrier that threads enter together and leave together."""

    def __init__(self, parties: int) -> None:
        self._round = Round(check_positive("parties", parties))
        self._changed = threading.Condition()

    @property
    def parties(self) -> int:
        """How many parties must arrive before they enter."""
        return self._round.parties

    def enter(self, timeout: float | None = None) -> bool:
        """Enter; wait until enough parties have arrived. Return whether the caller is inside."""
        check_timeout(True, -1 if timeout is None else max(timeout, 0.0))
        me, parties = threading.get_ident(), self._round
        inside = False
        with self._changed:
            parties.arrive(me)
            self._changed.notify_all()
            try:
                inside = self._changed.wait_for(lambda: parties.open, timeout)
            finally:
                if not inside:
                    parties.go(me)
        return inside

    def leave(self, timeout: float | None = None) -> bool:
        """Leave, and wait until all other parties have left; return whether they have."""
        check_timeout(True, -1 if timeout is None else max(timeout, 0.0))
        with self._changed:
            all_left = self._round.go(threading.get_ident())
            self._changed.notify_all()
            return self._changed.wait_for(all_left, timeout)

    def __enter__(self) -> bool:
        return self.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave(None if kind is None else 0.0)


class AsyncMembership:
    """A membership, which `AsyncGroup.join` returns: await it, or use it as an `async with` block."""

    def __init__(self, group: AsyncGroup, name: str, data: bytes, wait: float) -> None:
        self._group = group
        self._patience = wait
        self.id = name
        self.data = data
        self.path: str = f"{group.path}/{name}"

    @property
    def active(self) -> bool:
        """Whether it is a member."""
        return self._group._members.get(self.id) is self

    def __await__(self) -> Generator[Any, Any, AsyncMembership]:
        return self._join().__await__()

    async def _join(self) -> AsyncMembership:
        members = self._group._members
        if not await self._group._wait(lambda: self.id not in members, self._patience):
            raise ValueError(f"the group {self._group.path!r} has another member {self.id!r}: give another id")
        members[self.id] = self
        self._group._change()
        return self

    async def leave(self) -> None:
        """Leave the group. A second call does nothing."""
        if self.active:
            del self._group._members[self.id]
            self._group._change()

    async def __aenter__(self) -> AsyncMembership:  # noqa: PYI034
        return await self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.leave()


class AsyncWaits:
    """Tasks of one loop wait until a condition is true; each change wakes them."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def _change(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def _wait(self, is_true: Callable[[], bool], timeout: float | None) -> bool:
        check_timeout(True, -1 if timeout is None else max(timeout, 0.0))
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while not is_true():
            left = None if until is None else until - loop.time()
            if left is not None and left <= 0:
                return False
            future = loop.create_future()
            self._waiting.add(future)
            try:
                await asyncio.wait([future], timeout=left)
            finally:
                self._waiting.discard(future)
        return True


class AsyncGroup(AsyncWaits):
    """The members of a group of one loop."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self._members: dict[str, AsyncMembership] = {}

    def join(
        self,
        data: bytes | None = None,
        id: str | None = None,  # noqa: A002
        *,
        wait: float = 0.0,
    ) -> AsyncMembership:
        """Join the group; see `Group.join`."""
        check_wait(wait)
        return AsyncMembership(self, check_id(self.path, id), check_data(data), wait)

    async def members(self) -> dict[str, bytes]:
        """Return the data of all members by their ids, the longest-standing member first."""
        return {name: member.data for name, member in self._members.items()}

    async def observe(self, timeout: float | None = None) -> AsyncIterator[dict[str, bytes]]:
        """Yield what `members` returns: at once, and then each time that it has changed."""
        seen = await self.members()
        yield dict(seen)

        def changed() -> bool:
            return {name: member.data for name, member in self._members.items()} != seen

        while await self._wait(changed, timeout):
            seen = await self.members()
            yield dict(seen)


class AsyncDoubleBarrier(AsyncWaits):
    """A barrier that tasks of one loop enter together and leave together."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        self._round = Round(check_positive("parties", parties))

    @property
    def parties(self) -> int:
        """How many parties must arrive before they enter."""
        return self._round.parties

    async def enter(self, timeout: float | None = None) -> bool:
        """Enter; wait until enough parties have arrived. Return whether the caller is inside."""
        me, inside = asyncio.current_task(), False
        self._round.arrive(me)
        self._change()
        try:
            inside = await self._wait(lambda: self._round.open, timeout)
        finally:
            if not inside:
                self._round.go(me)
        return inside

    async def leave(self, timeout: float | None = None) -> bool:
        """Leave, and wait until all other parties have left; return whether they have."""
        all_left = self._round.go(asyncio.current_task())
        self._change()
        return await self._wait(all_left, timeout)

    async def __aenter__(self) -> bool:
        return await self.enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.leave(None if kind is None else 0.0)
