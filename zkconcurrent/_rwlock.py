"""`ReadWriteLock`: many may read together, or one may write, across every process that opens the same path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._engine.driver import Call
from ._engine.waiting import Steps
from ._kazoo.link import KazooClient
from ._recipes.operations import Recipe
from ._recipes.queue import downgrade
from ._recipes.rules import READ, WRITE
from ._recipes.ticket import Ticket
from ._rlock import RLock


class ReadWriteLock:
    """A pair of locks: `read_lock`, which any number may hold together, and `write_lock`, which one holds alone.

    Both are granted in the order of arrival, so that writers never starve: a reader waits for the writers that came
    before it, a writer for everybody. Both may be acquired again by the thread that holds them. Who writes may read as
    well, and then give up writing only: no other writer gets in between. Who only reads can't begin to write.

    Layout:
        `<path>/_c_<uuid>-__READ__<sequence>` and `<path>/_c_<uuid>-__WRIT__<sequence>`, EPHEMERAL_SEQUENTIAL, one for
        each thread and role that holds or waits: the znodes of Curator's InterProcessReadWriteLock. The read node of a
        thread that holds the write lock is EPHEMERAL and has that one's number. The path itself is a container.

    Invariant:
        A reader holds unless a writer is ahead of it, and watches the nearest one that is; a writer holds if nobody is
        ahead of it, and watches the node just ahead. A read node is made with a writer's number only while that
        writer's node is there.

    Cost:
        As `Lock`. To read while writing is one write in one round trip. The release of a writer wakes the readers
        behind it, up to the next writer, or that writer; the release of a reader wakes at most one.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: the path that is the pair; missing nodes are made as containers.
        on_lost: called with the read or the write lock, on a thread of its own, once for each hold that is lost.

    Raises:
        ValueError: the path is bad, or is another primitive of this client already.

    Source:
        java.util.concurrent's `ReentrantReadWriteLock`; ZooKeeper's shared locks recipe; Curator's
        `InterProcessReadWriteLock`.
    """

    def __init__(self, client: KazooClient, path: str, *, on_lost: Callable[[Any], object] | None = None) -> None:
        self._read_lock = ReadLock(client, path, on_lost=on_lost)
        self._write_lock = WriteLock(client, path, on_lost=on_lost)

    @property
    def read_lock(self) -> ReadLock:
        """The lock that any number may hold together."""
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
        """The path that is the pair."""
        return self._read_lock.path

    def __reduce__(self) -> Any:
        return self._read_lock.__reduce__()

    def __repr__(self) -> str:
        readers = sum(hold.alive for hold in self._read_lock._path_state.all(READ.role))
        writer = self._write_lock._newest()
        held = f"writer={writer.owner} " if writer is not None and writer.alive else ""
        name = f"zkconcurrent.{type(self).__name__}"
        return f"<{name} object {held}readers={readers} path={self.path!r} at {id(self):#x}>"


class ReadLock(RLock):
    """The lock of a `ReadWriteLock` that any number of threads and processes may hold together.

    It has the whole interface of `RLock`. A thread that holds the write lock gets it at once, in that one's place in
    the queue; it fences with the same token. `locked()` speaks of readers; `owner()` is the first of those who hold,
    in either role, and `waiters()` are those in the queue, of both roles, who don't.
    """

    _kind = "ReadWriteLock"
    _rule = READ

    def _acquire_steps(self, call: Call, wait: bool, deadline: float | None, owner: int, depth: int) -> Steps[bool]:
        writing = self._path_state.own(WRITE.role, owner)
        if (yield from super()._acquire_steps(call, wait, deadline, owner, depth)):
            return True
        if writing is not None:
            self._check(writing)
        return False

    def _recipe(self, wait: bool, data: bytes, owner: int) -> Recipe[Ticket | None]:
        writing = self._path_state.own(WRITE.role, owner)
        if writing is None:
            return super()._recipe(wait, data, owner)
        self._check(writing)
        return downgrade(writing.ticket, READ, data)


class WriteLock(RLock):
    """The lock of a `ReadWriteLock` that one thread of one process holds alone.

    It has the whole interface of `RLock`. To acquire it while holding only the read lock is a RuntimeError, at once:
    it would wait for itself, as would two readers that both want to write. `locked()` speaks of a writer; `owner()` and
    `waiters()` are those of the pair.
    """

    _kind = "ReadWriteLock"
    _rule = WRITE

    def _acquire_steps(self, call: Call, wait: bool, deadline: float | None, owner: int, depth: int) -> Steps[bool]:
        self._refuse_upgrade("release the read lock first, and look again at what was read once the write lock is held")
        return (yield from super()._acquire_steps(call, wait, deadline, owner, depth))

    def _release_save(self) -> int:
        self._check_may_wait()
        return super()._release_save()

    def _check_may_wait(self) -> None:
        self._refuse_upgrade("release it before waiting for a condition")

    def _refuse_upgrade(self, remedy: str) -> None:
        """Refuse what could only wait for ever.

        Raises:
            LockLostError: this thread held the read lock, and has not settled its loss.
            RuntimeError: it holds the read lock.
        """
        reading = self._path_state.own(READ.role, self._identity())
        if reading is None:
            return
        self._check(reading)
        raise RuntimeError(
            f"this thread holds the read lock of {self._path}, and the write lock waits until all readers are gone, "
            f"this one too: {remedy}"
        )
