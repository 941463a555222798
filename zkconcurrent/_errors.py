"""The library's own errors: each names the path, says what to do next, and can be pickled."""

from __future__ import annotations

import enum
from typing import NamedTuple


class ZkConcurrentError(Exception):
    """The base class of the library's own errors.

    Attributes:
        path: the path of the primitive.
    """

    __module__ = "zkconcurrent"

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            cls.__module__ = "zkconcurrent"

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path

    def __str__(self) -> str:
        return f"{self.args[1]} [{self.path}]"


class LossCause(str, enum.Enum):
    """Why a hold, or a membership of a group, was lost.

    Attributes:
        SESSION_EXPIRED: the servers have ended the client's session, or another client has closed it.
        CLIENT_STOPPED: the program has stopped the client.
        CLIENT_GAVE_UP: the client has given up connecting, or the servers have refused its credentials.
        LEASE_ENDED: this process could not prove in time that its session lives; the error says what prevented it.
        NODE_DELETED: the hold's node was deleted: by an operator, or by a client with the same credentials.
        NOT_REACQUIRED: a condition's wait was interrupted while ZooKeeper was out of reach, and ended without the lock.
        FORCED: another call has ended the hold of a `DetachedLock`.
        LIMIT: the hold has lasted longer than its `hold_limit`, and `on_hold_limit` is "lose".
    """

    __module__ = "zkconcurrent"

    SESSION_EXPIRED = "session_expired"
    CLIENT_STOPPED = "client_stopped"
    CLIENT_GAVE_UP = "client_gave_up"
    LEASE_ENDED = "lease_ended"
    NODE_DELETED = "node_deleted"
    NOT_REACQUIRED = "not_reacquired"
    FORCED = "forced"
    LIMIT = "limit"


class LockLostError(ZkConcurrentError, RuntimeError):
    """A hold ended before its thread released it: the session expired, its lease ran out, or its node was deleted.

    A thread that owes `release()` calls for the hold gets this error from each of these calls. Until it has made them,
    it also gets the error from `acquire`, `fencing_token` and `guard`.

    Attributes:
        cause: why the hold was lost; None if that is unknown.
        token: the hold's fencing token; 0 if it has none.
    """

    def __init__(self, path: str, message: str, cause: LossCause | None = None, token: int = 0) -> None:
        super().__init__(path, message)
        self.cause = cause
        self.token = token


class DeadlockEdge(NamedTuple):
    """One edge of a deadlock: a thread or task that waits, and what it waits for.

    Attributes:
        path: the full path of the queue in which the thread or task waits.
        waiter: the name of the node with which it waits.
        blocker: the name of the node that it waits for, which belongs to the thread of the next edge; for the last
            edge, to the thread of the first.
        host: the waiter's host, according to its node.
        pid: the waiter's process id, according to its node.
        thread: the name of the waiting thread or task, according to its node.
        age: how many seconds the waiter has waited.
        hard: whether the blocker is a holder; otherwise it only waits ahead in the queue.
        label: the `label` of the lock object with which the waiter waits, if that object has one.
    """

    path: str
    waiter: str
    blocker: str
    host: str | None
    pid: int | None
    thread: str | None
    age: float
    hard: bool
    label: str | None = None


DeadlockEdge.__module__ = "zkconcurrent"


class DeadlockError(ZkConcurrentError, RuntimeError):
    """The call would wait for a hold that only the caller can end, so it would wait forever; nothing has changed.

    Attributes:
        cycle: who waits for whom, beginning with the caller; empty if the caller would wait for itself alone.
    """

    def __init__(self, path: str, message: str, cycle: tuple[DeadlockEdge, ...] = ()) -> None:
        super().__init__(path, message)
        self.cycle = cycle


class ClientError(ZkConcurrentError, RuntimeError):
    """The client can't be used here, and waiting will not help.

    The client was never started, is stopped, or has given up connecting, as a client with a finite `connection_retry`
    does; the process inherited it through `fork()`; the interpreter is exiting; one of kazoo's own threads made the
    call; or a signal handler or finalizer would wait for the call that it has interrupted. The error is also raised if
    other processes use other ensembles for the namespace.
    """


class WaitCancelledError(ZkConcurrentError):
    """Another thread ended this wait by `cancel_waits()`: nothing is held, and no node is left."""


class ForeignNodeError(ZkConcurrentError):
    """The path has data or nodes that are not this primitive's, or contenders that do not exclude this library's.

    Examples are the nodes of kazoo's own recipes, and the nodes of another primitive whose path lies below this one.
    """


class SequenceExhaustedError(ZkConcurrentError):
    """ZooKeeper has no sequence numbers left under the path."""


class OutcomeUnknownError(ZkConcurrentError):
    """The reply to a write was lost, and the library could not find out whether the write was applied."""


class RefusedError(ZkConcurrentError):
    """ZooKeeper refused a request: authentication, access rights, quota, or a missing chroot."""
