"""`Election` for tasks, which wraps the class for threads."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

from .._arguments.limits import check_seconds
from .._engine.holds import Hold
from .._kazoo.link import KazooClient
from .._recipes.election import Leader
from .._runtime.public import ErrorKind, Traceback, public
from .._threads.base.candidacy import Candidate, LeaderLock, core_of_leader_lock
from .._threads.base.primitive import kind_of
from .._threads.election import candidate_id, check_leader
from ._held import Held, HeldByTask
from ._losses import Holding
from ._tasks import of_tasks
from ._twin import LockBase, PrimitiveTwin, awaited, forwarded, resolve

P = ParamSpec("P")
T = TypeVar("T")


_Core = of_tasks(LeaderLock)


@public
class Term(HeldByTask):
    """One candidate's time as the leader, as `Election.lead` and `Election.wait` return it."""

    def __init__(self, leader_lock: LeaderLock, hold: Hold) -> None:
        super().__init__(core_of_leader_lock(leader_lock), hold)
        self._leader_lock: LeaderLock = leader_lock

    async def publish(self, data: bytes) -> None:
        """Replace the data of the leader's node; see `zkconcurrent.Term.publish`."""
        # If tasks own a leader lock, its methods return pending calls.
        leader_lock: Any = self._leader_lock
        await leader_lock.publish(self._hold, data)


class Leading:
    """An `async with` block that leads; `Election.lead` makes it."""

    def __init__(self, twin: LockBase, leader_lock: LeaderLock, timeout: float | None, cancel_on_loss: bool) -> None:
        if timeout is not None:
            check_seconds("timeout", timeout)
        self._leader_lock = leader_lock
        self._holding: Holding[Held] = Holding(
            twin, None if timeout is None else max(timeout, 0.0), True, cancel_on_loss
        )

    async def __aenter__(self) -> Term:
        leader_lock = self._leader_lock
        held = await self._holding.__aenter__()
        return Term(leader_lock, held._hold)

    async def __aexit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        await self._holding.__aexit__(kind, error, traceback)


class Election(PrimitiveTwin):
    """An election for tasks: one of the candidates of all processes that open the same path leads.

    Layout, invariant and cost are those of `zkconcurrent.Election`. Threads and tasks are candidates at the same path.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the election's path; missing nodes are created as containers.
        id: the candidate's name, which all candidates and Java see; None stands for `<pid>@<host>#<hex>`.
        layout: `"selector"` or `"latch"`; all processes must give the same.
        label: as for `Lock`, but it is not written into the nodes, which contain the id instead.

    Raises:
        TypeError: the id, the path or the label is not a string.
        ValueError: the layout is unknown; the path or the label is invalid; or this client already uses the
            path for another primitive or with the other layout.
    """

    def __init__(
        self,
        client: KazooClient,
        path: str,
        *,
        id: str | None = None,  # noqa: A002 - as Curator has it
        layout: str = "selector",
        label: str | None = None,
    ) -> None:
        self._id = candidate_id(id, client)
        super().__init__(_Core(client, path, layout, self._id.encode(), label))
        self._leader_lock = LockBase(self._core)

    @property
    def id(self) -> str:
        """The candidate's name."""
        return self._id

    def lead(self, timeout: float | None = None, *, cancel_on_loss: bool = True) -> Leading:
        """Return an `async with` block in which the task leads; `as` gives its `Term`.

        When the term is lost, the block's task is cancelled, and the block raises `LockLostError` in place of the
        cancellation.

        Args:
            timeout: how long to wait for the term, in seconds; None waits forever, zero or less makes one attempt.
            cancel_on_loss: whether to cancel the block's task. If False, the block raises `LockLostError` once its body
                has ended.

        Raises:
            TimeoutError: another candidate still led at the deadline. The start of the block raises this, and all other
                errors but `LockLostError`.
            LockLostError: the term was lost. The end of the block raises this.
            RuntimeError: the task leads already, or its client stands as a candidate: the task would wait for itself.
        """
        return Leading(self._leader_lock, self._core, timeout, cancel_on_loss)

    async def run(self, func: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Wait until this candidate leads, and await an async function; return its result. The term ends with the call.

        It raises the errors of the function and of `lead`. If the term is lost, `lead` cancels the function.

        Raises:
            ValueError: the function is not callable.
        """
        check_leader(func)
        async with self.lead():
            return await func(*args, **kwargs)

    def leader_only(self, function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T | None]]:
        """Decorate an async function so that it runs only in the process that leads; elsewhere, a call returns None.

        See `zkconcurrent.Election.leader_only`. A lost term does not cancel the function.

        Raises:
            ValueError: the function is not callable.
        """
        check_leader(function)

        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T | None:
            if (term := await self.wait(0)) is None:
                return None
            result = await function(*args, **kwargs)
            _ = term.fencing_token  # raises if it is over
            return result

        return call

    stand: Final = awaited(
        LeaderLock.stand,
        """Stand as a candidate, in the background, until `withdraw()`; see `zkconcurrent.Election.stand`.

        The candidacy belongs to the client and the path: neither the task nor the loop ends it.
        """,
    )

    withdraw: Final = awaited(
        LeaderLock.withdraw,
        "End the candidacy that `stand` has begun, and its term; see `zkconcurrent.Election.withdraw`.",
    )

    is_leader: Final = forwarded(
        LeaderLock.leads, "Return whether this client leads; see `zkconcurrent.Election.is_leader`. Sends nothing."
    )

    async def wait(self, timeout: float | None = None) -> Term | None:
        """Wait until this client's candidacy, which `stand` has begun, leads; return its term, or None.

        Args:
            timeout: how long to wait, in seconds; None waits forever, zero or less looks once.
        """
        core = self._core
        return await resolve(core.wait(timeout, lambda hold: Term(core, hold)))

    async def leader(self) -> Candidate | None:
        """Return the leader, read from the server; None if no candidate leads. Cost: 3 reads, in 2 round trips."""
        return await self._core.leader()  # type: ignore[no-any-return]

    async def candidates(self) -> list[Candidate]:
        """Read all candidates from the server, the leader first. Cost: 2 + n reads for n candidates."""
        return await self._core.candidates()  # type: ignore[no-any-return]

    async def observe(self) -> AsyncIterator[Candidate | None]:
        """Yield the leader, at once and then after each change of the leader or its data; None if none leads."""
        seen: tuple[Leader] | None = None
        while True:
            seen = await self._core.follow(seen)
            yield self._core.candidate(seen[0])

    def __repr__(self) -> str:
        name = kind_of(self)
        return f"<{name} at {id(self):#x}: id={self._id!r} {self._core.standing()}>"
