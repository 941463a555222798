"""The link to kazoo: its requests, answers, states and errors in the library's own terms.

Answers are completed on kazoo's connection thread: no hop through its completion thread. That is private, as are the
way to the negotiated session timeout, and all that `_wire.py` leans on; the contract tests fail loudly where a new
kazoo changes it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import (
    CheckVersion,
    Create2,
    GetChildren,
    GetData,
    SetData,
    Sync,
    Transaction,
    int_struct,
    read_string,
    write_string,
)
from kazoo.protocol.serialization import Create as CreateRequest
from kazoo.protocol.serialization import Delete as DeleteRequest
from kazoo.protocol.states import KazooState, ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from ._errors import RefusedError
from ._ops import BadVersion, Check, ConnectionLost, Create, Delete, NoNode, NotEmpty, SessionExpired, Set
from ._wire import Wire

EPHEMERAL = 1
EPHEMERAL_SEQUENTIAL = 3
CONTAINER = 4

__all__ = [
    "Answer",
    "Callback",
    "KazooClient",
    "KazooState",
    "Link",
    "Made",
    "ZnodeStat",
    "failure",
    "kazoo_errors",
    "nobody",
]


class CreateContainer(Create2):  # type: ignore[misc]
    """Create2's request with an opcode of its own; kazoo has no call for it."""

    type = 19


class Made(NamedTuple):
    """What is known of a node made in a multi, by the names of its stat, which the server does not tell there."""

    czxid: int
    ephemeralOwner: int  # noqa: N815


class GetEphemerals:
    """Ask for the paths of all ephemeral nodes of the session, below a prefix; kazoo has no call for it."""

    type = 103

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def serialize(self) -> bytes:
        """Return the request's body."""
        return write_string(self.prefix)  # type: ignore[no-any-return]

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> list[str]:
        """Return the paths in the answer's body."""
        count = int_struct.unpack_from(answer, offset)[0]
        offset += int_struct.size
        paths = []
        for _ in range(count):
            path, offset = read_string(answer, offset)
            paths.append(path)
        return paths


def nobody() -> None:
    """Wake nobody."""


class Answer:
    """The answer to one request, for a thread that waits; has what kazoo uses of its `AsyncResult`."""

    __slots__ = ("done", "error", "value", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None
        self.wake = wake

    def set(self, value: Any = None) -> None:
        """Take the answer; on kazoo's connection thread."""
        self.value, self.done = value, True
        self.wake()

    def set_exception(self, error: Exception) -> None:
        """Take the failure; on kazoo's connection thread."""
        self.error, self.done = error, True
        self.wake()


class Callback(Answer):
    """The answer to one request with which a function is called, on kazoo's connection thread; done when that is over.

    Not before: a thread that waits for it may look at any time, woken by something else.
    """

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[Callback], None], wake: Callable[[], None] = nobody) -> None:
        super().__init__(wake)
        self._then = then

    def set(self, value: Any = None) -> None:
        """Take the answer; on kazoo's connection thread."""
        self.value = value
        self._taken()

    def set_exception(self, error: Exception) -> None:
        """Take the failure; on kazoo's connection thread."""
        self.error = error
        self._taken()

    def _taken(self) -> None:
        try:
            self._then(self)
        finally:
            self.done = True
            self.wake()


class Signal:
    """A `threading.Event` for one thread that waits, and looks again whenever it is woken; made of a single lock."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake whoever waits, or else the next wait at once."""
        try:  # noqa: SIM105 - who is woken waits for this
            self._lock.release()
        except RuntimeError:  # it was set before
            pass

    def wait(self, timeout: float) -> bool:
        """Wait until it is set; return whether it was in so many seconds. It is not any more."""
        return self._lock.acquire(True, timeout)

    def clear(self) -> None:
        """Forget that it was set since."""
        self._lock.acquire(False)


class Link:
    """What the session and the driver need of one kazoo client, in the library's own terms.

    Paths here are as the user writes them; the client's chroot is added and taken off in this class.
    """

    def __init__(self, client: KazooClient) -> None:
        self.client = client
        self.handler = client.handler
        self.wire = Wire.of(client)
        self._send = self.wire.send
        self.identity = identity(client.handler)
        # What one thread waits with, often: half the work of kazoo's.
        self.signal = Signal if type(client.handler) is SequentialThreadingHandler else client.handler.event_object
        self.containers = True  # until the server says otherwise, as of the next
        self.lists_ephemerals = True

    # -- state ---------------------------------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Whether the client was never started, is stopped, or has given up connecting."""
        routine = self.client._connection._connection_routine
        if routine is None or self.client._stopped.is_set():
            return True
        return not routine.is_alive() if hasattr(routine, "is_alive") else bool(routine.dead)

    @property
    def connected(self) -> bool:
        """Whether a server is reached at the moment."""
        return bool(self.client.connected)

    def session(self) -> int | None:
        """Return the present session's id while connected."""
        client_id = self.client.client_id
        return None if client_id is None else client_id[0]

    def timeout(self) -> float:
        """Return the negotiated session timeout, in seconds.

        kazoo keeps it in local variables only: of `_connect`, which calls the state listeners, and, later, as two
        thirds of it, of `_connect_attempt`, at the bottom of its connection thread.
        """
        found = _negotiated(sys._getframe())
        until = time.monotonic() + 1.0
        while not found and time.monotonic() < until:
            routine = self.client._connection._connection_routine
            frame = getattr(routine, "gr_frame", None) or sys._current_frames().get(
                getattr(routine, "ident", None) or 0
            )
            if (found := _negotiated(frame)) is None:
                break
            if not found:
                time.sleep(0.001)
        return found or float(self.client._session_timeout) / 1000.0

    def on_own_thread(self) -> bool:
        """Whether the caller runs on one of kazoo's threads, where waiting for an answer waits for ever."""
        me = self.identity()
        for worker in (self.client._connection._connection_routine, *self.handler._workers):
            if getattr(worker, "ident", None) == me or id(worker) == me:
                return True
        return False

    # -- requests ------------------------------------------------------------------------------------------------

    def full(self, path: str) -> str:
        """Return `path` below the client's chroot."""
        return f"{self.client.chroot}{path}"

    def place(self, path: str) -> tuple[str, tuple[tuple[str, int], ...]]:
        """Return where a path is for everybody: its full name, and the servers, as far as the client knows them."""
        return self.full(path), tuple(sorted(self.client.hosts))

    def _acl(self) -> Sequence[Any]:
        return self.client.default_acl or OPEN_ACL_UNSAFE  # type: ignore[no-any-return]

    def create(self, prefix: str, data: bytes, answer: Answer) -> None:
        """Make an EPHEMERAL_SEQUENTIAL node; the answer is its full path and its stat."""
        self._send(Create2(self.full(prefix), data, self._acl(), EPHEMERAL_SEQUENTIAL), answer)

    def multi(self, operations: Sequence[Create | Delete | Set | Check], answer: Answer) -> None:
        """Do all or nothing; the answer is each operation's, as if it came alone, or why nothing was done."""

        def answered(whole: Callback) -> None:
            why = (each for each in whole.value or () if isinstance(each, Exception))
            error = whole.error or next((each for each in why if not isinstance(each, _NOT_THE_CAUSE)), None)
            if error is not None:
                answer.set_exception(error)
                return
            # On the connection's thread, these two are of the answer that is being read.
            made = Made(self.client.last_zxid, self.session() or 0)
            answer.set([(each, made) if isinstance(each, str) else each for each in whole.value])

        self._send(Transaction([self._part(each) for each in operations]), Callback(answered))

    def _part(self, step: Create | Delete | Set | Check) -> Any:
        if isinstance(step, Check):
            return CheckVersion(self.full(step.path), step.version)
        if isinstance(step, Delete):
            return DeleteRequest(self.full(step.path), step.version)
        if isinstance(step, Set):
            return SetData(self.full(step.path), step.data, step.version)
        flags = EPHEMERAL if step.number else EPHEMERAL_SEQUENTIAL
        return CreateRequest(self.full(step.path), step.data, self._acl(), flags)

    def make_container(self, path: str, answer: Answer) -> None:
        """Make a container, or a persistent node where the server has no containers."""
        if self.containers:
            self._send(CreateContainer(self.full(path), b"", self._acl(), CONTAINER), answer)
        else:
            self._send(Create2(self.full(path), b"", self._acl(), 0), answer)

    def make(self, path: str, data: bytes, answer: Answer) -> None:
        """Make a PERSISTENT node."""
        self._send(CreateRequest(self.full(path), data, self._acl(), 0), answer)

    def set(self, path: str, data: bytes, version: int, answer: Answer) -> None:
        """Write a node's data, if it has that version."""
        self._send(SetData(self.full(path), data, version), answer)

    def children(self, path: str, answer: Answer, watcher: Callable[[Any], None] | None = None) -> None:
        """List the children's names, and leave a watch there if the node exists."""
        self._send(GetChildren(self.full(path), watcher), answer)

    def sync(self, path: str, answer: Answer) -> None:
        """Have the server catch up with its leader."""
        self._send(Sync(self.full(path)), answer)

    def get(self, path: str, answer: Answer, watcher: Callable[[Any], None] | None = None) -> None:
        """Read a node's data and stat, and leave a watch there if it exists."""
        self._send(GetData(self.full(path), watcher), answer)

    def delete(self, path: str, answer: Answer, version: int = -1) -> None:
        """Delete a node, if it has that version; -1: any."""
        self._send(DeleteRequest(self.full(path), version), answer)

    def ephemerals(self, answer: Answer) -> None:
        """List the full paths of the session's ephemeral nodes, this client's chroot or another's."""
        self._send(GetEphemerals(self.full("") or "/"), answer)

    def own(self, paths: Sequence[str]) -> list[str]:
        """Take the chroot off full paths, leaving out what lies outside it."""
        root = self.full("/")
        return [path[len(root) - 1 :] for path in paths if path.startswith(root)]


def _negotiated(frame: FrameType | None) -> float | None:
    """Return the session timeout that a stack of kazoo's knows; 0.0 while it is handed from the one to the other."""
    while frame is not None:
        if frame.f_code.co_name == "_connect" and "negotiated_session_timeout" in frame.f_locals:
            return float(frame.f_locals["negotiated_session_timeout"]) / 1000.0
        if frame.f_code.co_name == "_connect_attempt":
            return float(frame.f_locals["read_timeout"]) * 1.5 if "last_send" in frame.f_locals else 0.0
        frame = frame.f_back
    return None


def identity(handler: Any) -> Callable[[], int]:
    """Return the function that says who calls: the thread, or the greenlet where the handler uses greenlets."""
    get_ident: Callable[[], int] = threading.get_ident
    if "gevent" in handler.name:
        from gevent.thread import get_ident  # type: ignore[no-redef]
    elif "eventlet" in handler.name:
        from eventlet.green.thread import get_ident  # type: ignore[no-redef]
    return get_ident


def failure(error: Exception, path: str) -> Exception:
    """Translate kazoo's error into an operation's failure, or into the library's error where nothing can be done."""
    if isinstance(error, kazoo_errors.NoNodeError):
        return NoNode()
    if isinstance(error, kazoo_errors.BadVersionError):
        return BadVersion()
    if isinstance(error, kazoo_errors.NotEmptyError):
        return NotEmpty()
    if isinstance(error, kazoo_errors.SessionExpiredError):  # also ConnectionClosedError
        return SessionExpired()
    if isinstance(error, _TRY_AGAIN):
        return ConnectionLost()
    if isinstance(error, kazoo_errors.KazooException):
        reason = _REASONS.get(type(error), "see the server's log")
        return RefusedError(path, f"ZooKeeper refused the request ({type(error).__name__}): {reason}")
    return error


# What a failed multi answers for those of its operations that did not fail themselves.
_NOT_THE_CAUSE = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
_TRY_AGAIN = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.RequestTimeoutError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.ThrottledOpError,
)
_REASONS = {
    kazoo_errors.NoAuthError: "this client may not do that here; give it credentials (auth_data) or change the ACL",
    kazoo_errors.AuthFailedError: "the client's credentials were not accepted; correct them and open a new client",
    kazoo_errors.InvalidACLError: "the client's default_acl is not valid for its credentials",
    kazoo_errors.NotReadOnlyCallError: "the server is read-only while it is cut off; try again once it has a quorum",
    kazoo_errors.QuotaExceededError: "the quota of the path is used up",
    kazoo_errors.NoChildrenForEphemeralsError: "a node above the path is ephemeral and can't have children",
    kazoo_errors.SessionClosedRequireSaslError: "the server demands SASL authentication (sasl_options)",
}
