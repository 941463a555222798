"""What every primitive is: an object for one path of one client, whose calls wait as `threading` does."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from ._engine.driver import Call
from ._engine.event_loop import check_may_block
from ._engine.holds import PathState
from ._engine.identity import name
from ._engine.session import Session
from ._engine.waiting import Steps, Waiting, wait
from ._kazoo.link import KazooClient
from ._paths import check_path
from ._recipes.operations import Recipe

T = TypeVar("T")
R = TypeVar("R")
_HOST = socket.gethostname()


class Waiter:
    """How calls wait: on the calling thread, or greenlet. `aio` has another, for tasks."""

    def _await(self, call: Waiting, steps: Steps[T]) -> T:
        """Run a call to its end; the last thing that a method does."""
        return wait(call, steps, self._session.link.sleep_event())

    def _deadline(self, blocking: bool, timeout: float) -> float | None:
        """Return when to give up, by the monotonic clock, of a timeout as `threading` locks take it."""
        check_timeout(blocking, timeout)
        if blocking and timeout:
            self._check_may_block()
        if not blocking:
            timeout = 0.0  # a try: the driver has its question answered, and does not wait
        return None if timeout == -1 else self._session.now() + timeout

    def _until(self, timeout: float | None) -> float | None:
        """Return when to give up, of a timeout as `threading` waits take it: None is for ever, 0 or less is a try."""
        return self._deadline(True, -1 if timeout is None else max(timeout, 0.0))

    _check_may_block = staticmethod(check_may_block)
    _session: Session


class Primitive(Waiter):
    """An object for one path of one client; all objects of the two share one `PathState`.

    Attributes:
        _kind: what the path is; nothing else may be made of it.
        _part: the name of what lies below the path and is a primitive of its own, if there is such a thing.
    """

    _kind: str
    _part = ""

    def __init__(self, client: KazooClient, path: str) -> None:
        self._path = check_path(path)
        self._client = client
        self._session = session = Session.of(client)
        self._identity = session.identity
        kind = self._kind
        self._path_state = session.path_state(path, kind, lambda: PathState(session, path, kind), self._part)

    @property
    def client(self) -> KazooClient:
        """The kazoo client."""
        return self._client

    @property
    def path(self) -> str:
        """The path that all processes share it by."""
        return self._path

    def _run(self, recipe: Recipe[T], then: Callable[[T], R], deadline: float | None = None, late: Any = None) -> R:
        """Run a recipe; return what `then` makes of its result, or `late` if the deadline passed before."""
        call = Call(self._session, self._path)

        def steps() -> Steps[R]:
            result: Any = yield from call.run(recipe, deadline)
            return late if result is None and deadline is not None else then(result)

        return self._await(call, steps())

    def __reduce__(self) -> Any:
        raise TypeError(
            f"cannot pickle {type(self).__name__} {self._path!r}: open a client in the other process and make the "
            "same there, from the same path"
        )


def nothing(_: object) -> None:
    """Return nothing of a result."""


def node_data(owner: int) -> bytes:
    """Return what our nodes say of their maker."""
    # The beginning of a name tells it: how large a request is must not depend on what a program calls its threads.
    return b'%b, "time": %.6f}' % (_who(os.getpid(), name(owner)[:60]), time.time())


@lru_cache
def _who(pid: int, thread: str) -> bytes:
    """Return the part that stays the same, as JSON that goes on."""
    return json.dumps({"host": _HOST, "pid": pid, "thread": thread})[:-1].encode()


def check_timeout(blocking: bool, timeout: float) -> None:
    """Refuse what `threading` refuses.

    Raises:
        ValueError: a timeout without blocking, or a negative one other than -1.
        OverflowError: a timeout above `threading.TIMEOUT_MAX`.
    """
    if not blocking and timeout != -1:
        raise ValueError("can't specify a timeout for a non-blocking call")
    if timeout != timeout:
        raise ValueError("Invalid value NaN (not a number)")
    if timeout < 0 and timeout != -1:
        raise ValueError("timeout value must be a non-negative number")
    if timeout > threading.TIMEOUT_MAX:
        raise OverflowError("timeout value is too large")


def entered(got: bool, lock: object) -> bool:
    """Return True, from `__enter__`, if `acquire()` got the lock.

    Raises:
        RuntimeError: it did not, and the block must not run.
    """
    if not got:
        raise RuntimeError(f"acquire() returned False, so nothing is held and the block does not run: {lock!r}")
    return True
