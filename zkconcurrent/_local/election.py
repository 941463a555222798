"""Elections of this process alone, for `namespace("local")`: a line of candidates, of which the first leads.

`aio`'s have tasks of one loop for candidates.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from abc import ABC
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timezone
from typing import Any, Generic, ParamSpec, TypeVar

from .._runtime.identity import identity
from .._threads.election import Candidate, candidate_id, check_callable, check_data
from .group import AsyncWaits

P = ParamSpec("P")
T = TypeVar("T")


class LineTerm(ABC):
    """One candidate in a line, and its time as leader.

    Attributes:
        owner: the thread or task that leads in a block; None for a candidacy that `stand` has begun.
        lost: set when the term ends by `withdraw()`; no term is lost here.
    """

    lost: Any

    def __init__(self, election: Line[Any], owner: object) -> None:
        self._election = election
        self.owner = owner
        self._token = next(election._tokens)
        self._since = datetime.now(timezone.utc)
        self._data = election.id.encode()

    @property
    def token(self) -> int:
        """The fencing token.

        Raises:
            RuntimeError: the term has ended.
        """
        self._check()
        return self._token

    def _check(self) -> None:
        if self not in self._election._line:
            raise RuntimeError(f"the term at {self._election.path} has ended: lead again for a new one")

    def _candidate(self) -> Candidate:
        node = f"{self._election.path}/{self._token:010d}"
        return Candidate(self._data.decode("utf-8", "replace"), self._data, 0, self._since, node, self._token)


LT = TypeVar("LT", bound=LineTerm)


class Line(Generic[LT]):
    """The candidates of a name in the order of arrival."""

    def __init__(self, path: str, id: str | None) -> None:  # noqa: A002
        super().__init__()
        self.path = path
        self.id: str = candidate_id(id)
        self._line: list[LT] = []
        self._tokens = itertools.count(1)
        # The last one that `stand` has begun.
        self._standing: LT | None = None

    def is_leader(self) -> bool:
        """Return whether a candidate of this process leads: whether there is any."""
        return bool(self._line)

    def _check_caller(self, me: object) -> None:
        """Refuse a caller that would wait for itself.

        Raises:
            RuntimeError: the caller would wait for itself.
        """
        if any(each.owner == me for each in self._line):
            raise RuntimeError(f"the caller leads at {self.path}, and would wait for itself: leave that block first")
        if self._standing in self._line:
            raise RuntimeError(f"the process stands at {self.path} already: call wait(), or withdraw() first")

    def _candidacy(self) -> LT:
        """Return the last candidacy that `stand` has begun.

        Raises:
            RuntimeError: `stand` was never called.
        """
        if self._standing is None:
            raise RuntimeError(f"the process does not stand at {self.path}: call stand() first")
        return self._standing

    def _leads(self, term: LT) -> bool:
        return self._line[:1] == [term]

    def _is_decided(self, term: LT) -> bool:
        """Return whether a candidacy leads, or is withdrawn."""
        return term not in self._line or self._line[0] is term

    def _candidates(self) -> list[Candidate]:
        return [each._candidate() for each in list(self._line)]

    def _leader(self) -> Candidate | None:
        return next(iter(self._candidates()), None)


class Term(LineTerm):
    """One candidate of an `Election`."""

    _election: Election

    def __init__(self, election: Election, owner: object) -> None:
        super().__init__(election, owner)
        self.lost: threading.Event = threading.Event()

    def publish(self, data: bytes) -> None:
        """Replace the leader's data."""
        check_data(data)
        with self._election._changed:
            self._check()
            self._data = data
            self._election._changed.notify_all()


class Election(Line[Term]):
    """The election of a name, in which only threads of this process stand."""

    def __init__(self, path: str, id: str | None) -> None:  # noqa: A002
        super().__init__(path, id)
        self._changed = threading.Condition()
        self._identity = identity()

    @contextmanager
    def lead(self, timeout: float | None = None) -> Iterator[Term]:
        """Lead in a `with` block; see `zkconcurrent.Election.lead`."""
        me = self._identity()
        with self._changed:
            self._check_caller(me)
            term = Term(self, me)
        try:
            with self._changed:
                # Only here, so that an interrupt takes it out again.
                self._line.append(term)
                if not self._changed.wait_for(lambda: self._leads(term), timeout):
                    raise TimeoutError(f"not elected at {self.path} within {timeout} s")
            yield term
        finally:
            self._leave(term)

    def _leave(self, term: Term) -> None:
        with self._changed:
            if term in self._line:
                self._line.remove(term)
            self._changed.notify_all()

    def run(self, func: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Wait until this candidate leads, and call a function; return its result."""
        check_callable(func)
        with self.lead():
            return func(*args, **kwargs)

    def stand(self) -> None:
        """Be a candidate until `withdraw()`."""
        with self._changed:
            if self._standing not in self._line:
                self._standing = Term(self, None)
                self._line.append(self._standing)
                self._changed.notify_all()

    def withdraw(self) -> None:
        """End the candidacy that `stand` has begun."""
        # It is read once, as another thread may stand anew.
        standing = self._standing
        if standing is not None:
            standing.lost.set()
            self._leave(standing)

    def wait(self, timeout: float | None = None) -> Term | None:
        """Wait until the candidacy leads; return its term, or None at the deadline or if it is withdrawn."""
        term = self._candidacy()
        with self._changed:
            self._changed.wait_for(lambda: self._is_decided(term), timeout)
            return term if self._leads(term) else None

    def leader(self) -> Candidate | None:
        """Return the leader."""
        return self._leader()

    def candidates(self) -> list[Candidate]:
        """Return all candidates, the leader first."""
        return self._candidates()

    def observe(self) -> Iterator[Candidate | None]:
        """Yield the leader, and then each change."""
        yield (seen := self._leader())
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._leader() != seen)  # noqa: B023
                seen = self._leader()
            yield seen


class AsyncTerm(LineTerm):
    """One candidate of an `AsyncElection`."""

    _election: AsyncElection

    def __init__(self, election: AsyncElection, owner: object) -> None:
        super().__init__(election, owner)
        self.lost = asyncio.Event()

    async def publish(self, data: bytes) -> None:
        """Replace the leader's data."""
        check_data(data)
        self._check()
        self._data = data
        self._election._change()


class AsyncElection(Line[AsyncTerm], AsyncWaits):
    """The election of a name, in which only tasks of one loop stand."""

    @asynccontextmanager
    async def lead(
        self,
        timeout: float | None = None,
        *,
        cancel_on_loss: bool = True,  # noqa: ARG002 - none is lost
    ) -> AsyncIterator[AsyncTerm]:
        """Lead in an `async with` block; see `zkconcurrent.aio.Election.lead`."""
        me = asyncio.current_task()
        self._check_caller(me)
        term = AsyncTerm(self, me)
        self._line.append(term)
        try:
            if not await self._wait(lambda: self._leads(term), timeout):
                raise TimeoutError(f"not elected at {self.path} within {timeout} s")
            yield term
        finally:
            self._leave(term)

    def _leave(self, term: AsyncTerm) -> None:
        if term in self._line:
            self._line.remove(term)
        self._change()

    async def run(self, func: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Wait until this candidate leads, and await an async function; return its result."""
        check_callable(func)
        async with self.lead():
            return await func(*args, **kwargs)

    async def stand(self) -> None:
        """Be a candidate until `withdraw()`."""
        if self._standing not in self._line:
            self._standing = AsyncTerm(self, None)
            self._line.append(self._standing)
            self._change()

    async def withdraw(self) -> None:
        """End the candidacy that `stand` has begun."""
        if self._standing is not None:
            self._standing.lost.set()
            self._leave(self._standing)

    async def wait(self, timeout: float | None = None) -> AsyncTerm | None:
        """Wait until the candidacy leads; return its term, or None at the deadline or if it is withdrawn."""
        term = self._candidacy()
        await self._wait(lambda: self._is_decided(term), timeout)
        return term if self._leads(term) else None

    async def leader(self) -> Candidate | None:
        """Return the leader."""
        return self._leader()

    async def candidates(self) -> list[Candidate]:
        """Return all candidates, the leader first."""
        return self._candidates()

    async def observe(self) -> AsyncIterator[Candidate | None]:
        """Yield the leader, and then each change."""
        yield (seen := self._leader())
        while True:
            await self._wait(lambda: self._leader() != seen, None)
            yield (seen := self._leader())
