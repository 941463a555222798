"""Locks against a model, under calls and faults that Hypothesis draws: a state machine such as a program's tests have.

No attempt waits, so the model knows the outcome of each. Orders of waits are the simulation's.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from kazoo.client import KazooClient

from zkconcurrent import Lock, LockLostError, RLock
from zkconcurrent.testing import MemoryServer

CLIENTS = 3
SETTINGS = settings(max_examples=int(os.environ.get("PROPERTY_EXAMPLES", "10")), stateful_step_count=12, deadline=None)
clients = st.integers(0, CLIENTS - 1)


class Attempts(RuleBasedStateMachine):
    """The clients of one server try a lock, and release it; their sessions end, and their connections break.

    Attributes:
        levels: how many levels of a hold each client has not released, or has not settled after a loss.
        lost: which clients have lost their hold.
        token: the highest fencing token yet.
    """

    kind: ClassVar[Any]
    server: ClassVar[MemoryServer]
    opened: ClassVar[list[KazooClient]]
    numbers = itertools.count()

    @initialize()
    def begin(self) -> None:
        """Use a new path."""
        path = f"/attempts/{next(self.numbers)}"
        self.locks = [self.kind(client, path) for client in self.opened]
        self.levels, self.lost, self.token = [0] * CLIENTS, [False] * CLIENTS, 0

    def others_hold(self, n: int) -> bool:
        """Return whether another client holds the lock, as far as the model knows."""
        return any(self.levels[m] and not self.lost[m] for m in range(CLIENTS) if m != n)

    @rule(n=clients)
    def acquire(self, n: int) -> None:
        """One holds at a time; a re-entrant lock lets its holder in again. Who lost a hold settles that first."""
        if self.lost[n]:
            with pytest.raises(LockLostError):
                self.locks[n].acquire(blocking=False)
            return
        may = not self.others_hold(n) and (self.kind is RLock or not self.levels[n])
        assert self.locks[n].acquire(blocking=False) is may
        self.levels[n] += may
        if may and self.levels[n] == 1:
            assert self.locks[n].fencing_token > self.token
            self.token = self.locks[n].fencing_token

    @rule(n=clients)
    def release(self, n: int) -> None:
        """A release ends a level, or settles one; without a hold it is an error."""
        if self.lost[n]:
            with pytest.raises(LockLostError):
                self.locks[n].release()
        elif self.levels[n]:
            self.locks[n].release()
        else:
            with pytest.raises(RuntimeError):
                self.locks[n].release()
        self.levels[n] -= bool(self.levels[n])
        self.lost[n] = self.lost[n] and self.levels[n] > 0

    @rule(n=clients, expires=st.booleans())
    def strike(self, n: int, expires: bool) -> None:
        """The end of a session ends its hold, and the holder is told. A broken connection ends nothing."""
        lost = self.locks[n].lost
        if not expires:
            self.server.drop_connections()
        else:
            self.server.expire(self.opened[n])
            if self.levels[n]:
                assert lost.wait(20)
                self.lost[n] = True
        for each in range(CLIENTS):
            self.await_connection(each)

    def await_connection(self, n: int) -> None:
        """Wait until a client is connected: an attempt would not wait for that."""
        self.opened[n].retry(self.opened[n].exists, "/")
        with Lock(self.opened[n], f"/connected/{n}"):
            pass

    @invariant()
    def is_held_by_its_holder(self) -> None:
        """Each client knows whether it holds."""
        for n, lock in enumerate(self.locks):
            if self.levels[n] and not self.lost[n]:
                assert 0 < lock.fencing_token <= self.token
            else:
                with pytest.raises(LockLostError if self.lost[n] else RuntimeError):
                    _ = lock.fencing_token

    def teardown(self) -> None:
        """Leave nothing that the next example could meet."""
        for n, levels in enumerate(getattr(self, "levels", ())):
            for _ in range(levels):
                self.release(n)


@pytest.fixture(scope="module")
def server() -> Iterator[MemoryServer]:
    """Start a server."""
    with MemoryServer() as started:
        yield started


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_attempts(kind: type[Lock | RLock], server: MemoryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt, release and loss has the outcome that the model has."""
    with ExitStack() as stack:
        opened = [stack.enter_context(server.client()) for _ in range(CLIENTS)]
        for name, value in {"kind": kind, "server": server, "opened": opened}.items():
            monkeypatch.setattr(Attempts, name, value, raising=False)
        run_state_machine_as_test(Attempts, settings=SETTINGS)
