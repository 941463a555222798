"""Elections of this process alone, for `namespace("local")`: a line of candidates, of which the first leads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import ParamSpec, TypeVar

from ._election import Candidate, candidate_id, check_callable, check_data
from ._engine.identity import identity

P = ParamSpec("P")
T = TypeVar("T")


class Term:
    """One candidate, and its time as leader."""

    def __init__(self, election: Election, owner: int | None) -> None:
        self._election = election
        self._owner = owner
        self._token = next(election._tokens)
        self._since = datetime.now(timezone.utc)
        self._data = election.id.encode()
        self._lost = threading.Event()

    @property
    def token(self) -> int:
        """The fencing token.

        Raises:
            RuntimeError: the term has ended.
        """
        self._check()
        return self._token

    @property
    def lost(self) -> threading.Event:
        """Set when the term ends by `withdraw()`; no term is lost here."""
        return self._lost

    def publish(self, data: bytes) -> None:
        """Replace the leader's data."""
        check_data(data)
        with self._election._changed:
            self._check()
            self._data = data
            self._election._changed.notify_all()

    def _check(self) -> None:
        if self not in self._election._line:
            raise RuntimeError(f"the term at {self._election.path} has ended")

    def _candidate(self) -> Candidate:
        node = f"{self._election.path}/{self._token:010d}"
        return Candidate(self._data.decode("utf-8", "replace"), self._data, 0, self._since, node, self._token)


class Election:
    """The election of a name, in which only this process stands."""

    def __init__(self, path: str, id: str | None) -> None:  # noqa: A002
        self.path = path
        self.id = candidate_id(id)
        self._changed = threading.Condition()
        self._line: list[Term] = []
        self._tokens = itertools.count(1)
        self._standing: Term | None = None  # the last that `stand` has begun
        self._identity = identity()

    @contextmanager
    def lead(self, timeout: float | None = None) -> Iterator[Term]:
        """Lead in a `with` block; see `zkconcurrent.Election.lead`."""
        me = self._identity()
        with self._changed:
            if any(each._owner == me for each in self._line):
                raise RuntimeError(f"the caller leads at {self.path}, and would wait for itself")
            if self._standing in self._line:
                raise RuntimeError(f"the process stands at {self.path} already: call wait(), or withdraw() first")
            term = Term(self, me)
        try:
            with self._changed:
                self._line.append(term)  # here: an interrupt takes it out again
                if not self._changed.wait_for(lambda: self._line[0] is term, timeout):
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
        standing = self._standing  # once: another thread may stand anew
        if standing is not None:
            standing._lost.set()
            self._leave(standing)

    def is_leader(self) -> bool:
        """Return whether a candidate of this process leads: whether there is any."""
        return bool(self._line)

    def wait(self, timeout: float | None = None) -> Term | None:
        """Wait until the candidacy leads; return its term, or None at the deadline or if it is withdrawn."""
        term = self._standing
        if term is None:
            raise RuntimeError(f"the process does not stand at {self.path}: call stand() first")
        with self._changed:
            self._changed.wait_for(lambda: term not in self._line or self._line[0] is term, timeout)
            return term if self._line[:1] == [term] else None

    def leader(self) -> Candidate | None:
        """Return the leader."""
        return next(iter(self.candidates()), None)

    def candidates(self) -> list[Candidate]:
        """Return all candidates, the leader first."""
        return [each._candidate() for each in list(self._line)]

    def observe(self) -> Iterator[Candidate | None]:
        """Yield the leader, and then each change."""
        seen: Candidate | None = None
        yield (seen := self.leader())
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.leader() != seen)  # noqa: B023
                seen = self.leader()
            yield seen
