"""What the library raises of its own: each error names the path, says what to do next, and can be pickled."""

from __future__ import annotations


class ZkConcurrentError(Exception):
    """The base of the library's own errors.

    Attributes:
        path: the path of the primitive concerned.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path

    def __str__(self) -> str:
        return f"{self.args[1]} [{self.path}]"


class LockLostError(ZkConcurrentError, RuntimeError):
    """A hold ended before its thread gave it up: the session expired, its lease ran out, or its node was deleted.

    It is raised until the thread has settled the loss: once for each `release()` it owes.
    """


class ClientError(ZkConcurrentError, RuntimeError):
    """The client can't be used here, and no waiting will change that.

    It was never started, or is stopped; it has given up connecting, as a client with a finite `connection_retry` does;
    it was inherited through `fork()`; or the call comes from one of its own threads.
    """


class ForeignNodeError(ZkConcurrentError):
    """What is at the path is not ours: a child of a lock that is no contender, or does not exclude ours; or other data.

    Such are the nodes of kazoo's own recipes, and those of another primitive whose path lies below.
    """


class SequenceExhaustedError(ZkConcurrentError):
    """ZooKeeper has no ordered numbers left to give under the path."""


class RefusedError(ZkConcurrentError):
    """ZooKeeper refused a request: authentication, access rights, quota, a missing chroot."""
