"""The library's own errors: each names the path, says what to do next, and can be pickled."""

from __future__ import annotations


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


class LockLostError(ZkConcurrentError, RuntimeError):
    """A hold ended before its thread released it: the session expired, its lease ran out, or its node was deleted.

    A thread that owes `release()` calls for the hold gets this error from each of them, and until then from `acquire`,
    `fencing_token` and `guard`, too.
    """


class ClientError(ZkConcurrentError, RuntimeError):
    """The client can't be used here, and waiting will not help.

    The client was never started, is stopped, or has given up connecting, as a client with a finite `connection_retry`
    does; the process inherited it through `fork()`; the interpreter is exiting; one of kazoo's own threads made the
    call; or a signal handler or finalizer would wait for the call that it has interrupted.
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
