"""Elections as locks, so that their terms are checked as holds are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tests.soak.callers.caller import Caller, TellingEvent
from zkconcurrent import Election, LockLostError


class Block:
    """Leads in a block.

    Args:
        client: the kazoo client.
        path: the election's.
        on_lost: is called with this, once for each term that is lost.
    """

    def __init__(self, client: Any, path: str, on_lost: Callable[[Any], None]) -> None:
        self._election = Election(client, path)
        self._on_lost = on_lost
        self._mine = threading.local()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Lead, if that comes to be in time."""
        block = self._election.lead((None if timeout == -1 else timeout) if blocking else 0)
        try:
            term = block.__enter__()
        except TimeoutError:
            return False
        self._begin(block, term)
        return True

    def _begin(self, block: AbstractContextManager[Any] | None, term: Any) -> None:
        self._mine.block, self._mine.term = block, term
        lost = term.lost
        assert isinstance(lost, TellingEvent)
        lost.on_set(lambda _: self._on_lost(self))

    def release(self) -> None:
        """End the term."""
        self._mine.block.__exit__(None, None, None)

    @property
    def fencing_token(self) -> int:
        """The term's."""
        return int(self._mine.term.token)

    @property
    def lost(self) -> threading.Event:
        """The term's."""
        lost: threading.Event = self._mine.term.lost
        return lost

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Candidacy(Block):
    """Stands, waits for the term, and withdraws. The client stands, not a thread: so its threads take turns."""

    def __init__(self, client: Any, path: str, on_lost: Callable[[Any], None]) -> None:
        super().__init__(client, path, on_lost)
        self._turn = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Stand, and wait for the term."""
        until = time.monotonic() + timeout
        if not self._turn.acquire(blocking, max(timeout, 0.0) if blocking and timeout != -1 else -1):
            return False
        try:
            self._election.stand()
            left = None if blocking and timeout == -1 else max(until - time.monotonic(), 0.0) if blocking else 0.0
            term = self._election.wait(left)
        except BaseException:
            self._turn.release()
            raise
        if term is None:
            self._end()
            return False
        self._begin(None, term)
        return True

    def release(self) -> None:
        """Withdraw; say so if the term was lost before."""
        lost = self.lost.is_set()
        self._end()
        if lost:
            raise LockLostError(self._election.path, "the term was lost")

    def _end(self) -> None:
        try:
            self._election.withdraw()
        finally:
            self._turn.release()


class CandidacyCaller(Caller):
    """One thread at a candidacy. To stand has no deadline: it waits until the service is in reach."""

    def _limit(self, blocking: bool = True, timeout: float | None = -1) -> float | None:  # noqa: ARG002
        return None
