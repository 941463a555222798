"""`ReadWriteLock`: a lock that many readers or one writer hold, across all processes that open the same path.

One recipe serves all locks. Only the `Rule` differs: the role in our own node's name, the roles at which names are cut,
the mark of exclusive nodes, the mark of nodes to refuse, and whether a release may hand over within the process. A
thread that writes and then reads already has the writer's place in the queue. So its read node takes the writer's
number, in one `multi` that fails unless the writer's node exists. No other client can have got in before it, and a
listing after the writer's release shows the reader in the writer's place. After a lost reply the node is found by its
unique name, as always.

A thread that holds the read lock and asks for the write lock would wait for itself, and two such threads for each
other. Such a call is refused at once, even in `Condition.wait()`, which asks for the write lock again.
"""

from __future__ import annotations

from typing import Any

from .._engine.call import Attempt, Call
from .._errors import DeadlockError
from .._kazoo.link import KazooClient
from .._observe.deadlock_search import OnDeadlock
from .._observe.hold_limits import AfterLimit
from .._protocol.blocking_rules import READ, WRITE
from .._protocol.operations import Recipe
from .._protocol.ticket import Ticket
from .._recipes.lock import downgrade
from .._runtime.identity import ident
from .._runtime.wait_loops import Steps
from .base.lock_base import core_of
from .base.node_data import node_data
from .base.primitive import OnLost, OnSuspect, PickledByPath, kind_of
from .base.reentrant_core import ReentrantCore
from .rlock import RLock


class ReadWriteLock(PickledByPath):
    """A pair of locks: any number of threads hold `read_lock` together; one thread holds `write_lock` alone.

    Both locks are granted in the order of arrival, so writers never starve: a reader waits for the writers that arrived
    before it, a writer for all contenders that arrived before it. Both are re-entrant. A thread that holds the write
    lock may also acquire the read lock, and then release the write lock: no other writer holds the lock in between. A
    thread that holds only the read lock can't acquire the write lock.

    Layout:
        `<path>/_c_<uuid>-__READ__<sequence>` and `<path>/_c_<uuid>-__WRIT__<sequence>`, EPHEMERAL_SEQUENTIAL, one for
        each thread and role that holds or waits: the znodes of Curator's InterProcessReadWriteLock. The read node of a
        thread that holds the write lock is EPHEMERAL and has the number of its write node. The path itself is a
        container.

    Invariant:
        A reader holds the lock unless a writer is ahead of it; it watches the nearest writer ahead. A writer holds the
        lock if no contender is ahead of it; it watches the node just ahead. A read node gets a writer's number only
        while that writer's node exists.

    Cost:
        As `Lock`. A writer that begins to read sends one write, in one round trip. A writer's release wakes the readers
        behind it up to the next writer, or that writer if it is next; a reader's release wakes at most one waiter.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the path of the pair; missing nodes are created as containers.
        on_lost: called with the read lock or the write lock, on a thread of its own, once for each hold that is lost.
        on_suspect: called like `on_lost`, but also with the number of seconds that the hold is sure to last, each time
            a hold becomes suspect.
        on_revoke: called like `on_lost`, once each time a client asks a holder to let go, by `revoke()` or by Curator's
            `Revoker`.
        on_deadlock, hold_limit, on_hold_limit, label: as for `Lock`; for the holds of both locks.

    Raises:
        TypeError: the path is not a string, `hold_limit` is not a number, or a callback is not callable.
        ValueError: the path is invalid, or this client already uses it for another primitive; or an option has an
            unknown value.

    Source:
        java.util.concurrent's `ReentrantReadWriteLock`; ZooKeeper's shared locks recipe; Curator's
        `InterProcessReadWriteLock`.
    """

    def __init__(
        self,
        client: KazooClient,
        path: str,
        *,
        on_lost: OnLost | None = None,
        on_suspect: OnSuspect | None = None,
        on_revoke: OnLost | None = None,
        on_deadlock: OnDeadlock = "warn",
        hold_limit: float | None = None,
        on_hold_limit: AfterLimit = "warn",
        label: str | None = None,
    ) -> None:
        self._on_lost, self._on_suspect, self._on_revoke = on_lost, on_suspect, on_revoke
        self._hold_limit, self._on_hold_limit = hold_limit, on_hold_limit
        self._on_deadlock, self._label = on_deadlock, label
        called: Any = {"on_lost": on_lost, "on_suspect": on_suspect, "on_revoke": on_revoke}
        options: Any = {"on_deadlock": on_deadlock, "hold_limit": hold_limit, "on_hold_limit": on_hold_limit}
        options["label"] = label
        self._read_lock = ReadLock(client, path, **called, **options)
        self._write_lock = WriteLock(client, path, **called, **options)

    @property
    def read_lock(self) -> ReadLock:
        """The lock that any number of threads may hold together."""
        return self._read_lock

    @property
    def write_lock(self) -> WriteLock:
        """The lock that one thread of one process holds alone."""
        return self._write_lock

    @property
    def client(self) -> KazooClient:
        """The kazoo client."""
        return self._read_lock.client

    @property
    def path(self) -> str:
        """The path of the pair."""
        return self._read_lock.path

    def __repr__(self) -> str:
        readers = sum(hold.alive for hold in core_of(self._read_lock).all())
        writer = core_of(self._write_lock).newest()
        held = f"writer={ident(writer.owner)} " if writer is not None and writer.alive else ""
        name = kind_of(self)
        return f"<{name} object {held}readers={readers} path={self.path!r} at {id(self):#x}>"


class ReadCore(ReentrantCore):
    """The machinery of a read lock, which also knows the hold of the write lock."""

    def unreported_steps(self, call: Call, attempt: Attempt) -> Steps[bool]:
        writing = self.path_state.own(WRITE.role, attempt.owner)
        if (yield from super().unreported_steps(call, attempt)):
            return True
        if writing is not None:
            self.check(writing)
        return False

    def recipe(self, call: Call, attempt: Attempt) -> Recipe[Ticket | None]:
        writing = self.path_state.own(WRITE.role, attempt.owner)
        if writing is None:
            return super().recipe(call, attempt)
        self.check(writing)
        return downgrade(writing.ticket, READ, node_data(attempt.owner, self.label))


class WriteCore(ReentrantCore):
    """The machinery of a write lock, which also knows the holds of the read lock."""

    def unreported_steps(self, call: Call, attempt: Attempt) -> Steps[bool]:
        self._refuse_upgrade("release the read lock first, and read the state again once you hold the write lock")
        return (yield from super().unreported_steps(call, attempt))

    def check_may_wait(self) -> None:
        self._refuse_upgrade("release the read lock before you wait on a condition")

    def _refuse_upgrade(self, remedy: str) -> None:
        """Refuse a wait for the write lock that would never end.

        Raises:
            LockLostError: this thread held the read lock, and has not settled its loss.
            DeadlockError: this thread holds the read lock.
        """
        reading = self.path_state.own(READ.role, self.identity())
        if reading is None:
            return
        self.check(reading)
        raise DeadlockError(
            self.path,
            "the caller holds the read lock, and the write lock would wait for all readers, this one included: "
            + remedy,
        )


class ReadLock(RLock):
    """The lock of a `ReadWriteLock` that any number of threads and processes may hold together.

    It has the whole interface of `RLock`. A thread that holds the write lock acquires the read lock at once, in the
    writer's place in the queue and with the same fencing token. `locked()` reports readers. `owner()` returns the first
    holder in either role; `waiters()` returns the waiters in both roles.
    """

    _kind = "ReadWriteLock"
    _rule = READ
    _core_type = ReadCore


class WriteLock(RLock):
    """The lock of a `ReadWriteLock` that one thread of one process holds alone.

    It has the whole interface of `RLock`. A thread that holds only the read lock gets a DeadlockError from `acquire` at
    once: it would wait for itself, and two readers that both want to write would wait for each other. `locked()`
    reports a writer. `owner()` and `waiters()` report contenders in both roles, as for `ReadLock`.
    """

    _kind = "ReadWriteLock"
    _rule = WRITE
    _core_type = WriteCore
