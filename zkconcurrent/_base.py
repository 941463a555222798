"""What all lock-like primitives share: what this process holds at a path, and the face of `threading` over it.

Threads take tickets through recipes; a granted ticket becomes a `Hold` of the thread that asked for it. A lost hold
stays with its thread until the thread has settled it, so that no `release()` can ever touch a newer hold.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import warnings
import weakref
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timezone
from types import TracebackType
from typing import Any, NamedTuple

from ._driver import UNANSWERED, Driver
from ._errors import LockLostError
from ._kazoo import KazooClient
from ._ops import Node, Recipe
from ._paths import check_path
from ._recipes import acquire, contenders, list_queue, try_acquire
from ._registry import State, Ticket
from ._rules import Rule, holders
from ._session import Session, log

_HOST = socket.gethostname()


class Contender(NamedTuple):
    """One node in a queue, and whose it is; fields that its maker did not tell are None.

    Attributes:
        host: the host's name; of a Curator client, the text it left there, its address as a rule.
        pid: the process.
        thread: the thread's name.
        session: the ZooKeeper session, as the server's logs name it.
        since: when it queued, by the server's clock.
        node: the node's path.
        token: the node's creation zxid, the fencing token of its hold.
    """

    host: str | None
    pid: int | None
    thread: str | None
    session: int
    since: datetime
    node: str
    token: int

    @classmethod
    def of(cls, path: str, name: str, node: Node) -> Contender:
        """Read what a node says of its maker."""
        try:
            said = json.loads(node.data)
            host, pid, thread = said["host"], said["pid"], said["thread"]
        except (ValueError, TypeError, KeyError):
            host, pid, thread = node.data.decode("utf-8", "replace") or None, None, None
        since = datetime.fromtimestamp(node.ctime, timezone.utc)
        return cls(host, pid, thread, node.session, since, f"{path}/{name}", node.czxid)


def who_i_am(ident: int) -> bytes:
    """Return what our nodes say of their maker."""
    # Not threading.current_thread(), which leaves a dummy for a thread that threading did not start.
    names = (thread.name for thread in threading.enumerate() if thread.ident == ident)
    said = {"host": _HOST, "pid": os.getpid(), "thread": next(names, str(ident)), "time": time.time()}
    return json.dumps(said).encode()


class Hold:
    """A granted ticket, as its thread knows it.

    Attributes:
        ticket: the node; `State.HELD` for as long as it is held.
        role: what it was acquired as, where a path has several roles.
        owner: the thread that acquired it.
        depth: how often it was acquired and not released.
        lost: set when it is lost.
    """

    __slots__ = ("depth", "lost", "owner", "role", "ticket")

    def __init__(self, ticket: Ticket, role: str, owner: int, lost: threading.Event, depth: int = 1) -> None:
        self.ticket = ticket
        self.role = role
        self.owner = owner
        self.depth = depth
        self.lost = lost

    @property
    def alive(self) -> bool:
        """Whether it is held still, as far as this process knows."""
        return self.ticket.state is State.HELD


class Place:
    """What this process holds at one path of one client: the state behind every object made for the two.

    Attributes:
        holds: by role and owner; held ones, and lost ones that their thread has not settled.
        idle: the `lost` of the hold to come, by role.
        faces: the objects that want to be told of losses.
    """

    def __init__(self, session: Session, path: str, kind: str) -> None:
        self.session = session
        self.path = path
        self.kind = kind
        self.holds: dict[tuple[str, int], Hold] = {}
        self.faces: weakref.WeakSet[LockFace] = weakref.WeakSet()
        self.idle: defaultdict[str, threading.Event] = defaultdict(session.link.handler.event_object)
        weakref.finalize(self, _drop, session.dropped, path, self.holds).atexit = False

    def own(self, role: str, owner: int) -> Hold | None:
        """Return the hold of `owner`, alive or lost."""
        hold = self.holds.get((role, owner))
        return None if hold is None or hold.ticket.state is State.DISCARDED else hold

    def all(self, role: str) -> list[Hold]:
        """Return the holds of the process in that role, alive or lost."""
        return [hold for each, owner in list(self.holds) if each == role and (hold := self.own(role, owner))]

    def newest(self, role: str) -> Hold | None:
        """Return the newest hold of the process; one that lives before one that is lost."""
        return max(self.all(role), key=lambda hold: (hold.alive, hold.ticket.token), default=None)

    def take(self, ticket: Ticket, role: str, owner: int, depth: int = 1) -> Hold:
        """Make the granted ticket a hold of `owner`."""
        with self.session.lock:
            before = self.holds.get((role, owner))
            if before is not None and before.ticket.state is State.LOST:
                raise lost_error(before)
            hold = self.holds[role, owner] = Hold(ticket, role, owner, self.idle[role], depth)
            del self.idle[role]
        if ticket.state is State.LOST:
            self.tell_lost(ticket)
        return hold

    def drop(self, hold: Hold) -> None:
        """Forget a hold that was released or settled."""
        with self.session.lock:
            if self.holds.get((hold.role, hold.owner)) is hold:
                del self.holds[hold.role, hold.owner]

    def tell_lost(self, ticket: Ticket) -> None:
        """Tell whoever wants to know that the ticket's hold is lost; once, and on no thread of kazoo's."""
        with self.session.lock:
            hold = next((hold for hold in self.holds.values() if hold.ticket is ticket), None)
            if hold is None or hold.lost.is_set():
                return
            hold.lost.set()
            faces = [face for face in self.faces if face._rule.role == hold.role]
        for face in faces:
            self.session.link.handler.spawn(_call_on_lost, face)

    def forget(self) -> None:
        """Forget all holds, in a forked child: they are the parent's."""
        self.holds.clear()


def _drop(dropped: Any, path: str, holds: dict[tuple[str, int], Hold]) -> None:
    """Finalize a place: only queue the work, as this may run anywhere."""
    held = [hold.ticket for hold in holds.values() if hold.alive]
    dropped.append((path, held))
    if held:
        warnings.warn(f"the last object of {path!r} was garbage collected while held", ResourceWarning, stacklevel=2)


def _call_on_lost(face: LockFace) -> None:
    try:
        assert face._on_lost is not None
        face._on_lost(face)
    except Exception:
        log.exception("on_lost of %r failed", face)


def lost_error(hold: Hold) -> LockLostError:
    """Return the error of a thread whose hold is lost and not settled."""
    return LockLostError(
        hold.ticket.path,
        "the hold was lost (its session expired, its lease ran out, or its node was deleted), and others may have "
        f"held since; call release() to acknowledge the loss ({hold.depth} to go), then acquire again",
    )


class LockFace(ABC):
    """The face that all locks share, over what their place holds."""

    _kind: str
    _rule: Rule

    def __init__(self, client: KazooClient, path: str, *, on_lost: Callable[[Any], object] | None = None) -> None:
        self._path = check_path(path)
        if on_lost is not None and not callable(on_lost):
            raise TypeError(f"on_lost must be callable, not {type(on_lost).__name__}")
        self._on_lost = on_lost
        self._client = client
        self._session = Session.of(client)
        self._place = self._session.place(path, self._kind, lambda: Place(self._session, path, self._kind))
        if on_lost is not None:
            with self._session.lock:  # else a loss told meanwhile trips over the set that grows
                self._place.faces.add(self)

    # -- the face of threading -----------------------------------------------------------------------------------

    def _take(self, blocking: bool, timeout: float, depth: int = 1) -> bool:
        """Get a new hold for the calling thread; False if that was not possible in time."""
        session, path, me = self._session, self._path, self._session.identity()
        driver = Driver(session, path, _deadline(session, blocking, timeout))
        hold = None
        try:
            ticket = driver.run(self._recipe(blocking and timeout != 0, who_i_am(me)))
            if ticket is None:
                return False
            hold = self._place.take(ticket, self._rule.role, me, depth)
            if ticket.late:
                log.warning("the sequence numbers of %s are running out: let it fall idle", path)
            log.debug("acquired %s", ticket.node)
            return True
        except BaseException:
            driver.abandon()
            if hold is not None:
                self._place.drop(hold)
            raise

    def _recipe(self, wait: bool, data: bytes) -> Recipe[Ticket | None]:
        """Return how the calling thread gets a new hold: waiting for it, or only if nobody is in the way."""
        return (acquire if wait else try_acquire)(self._path, self._rule, data)

    def _check(self, hold: Hold) -> None:
        """Refuse to go on with a hold that is lost, by our own clock too.

        Raises:
            LockLostError: it is lost.
        """
        self._session.check_lease()
        if hold.ticket.state is State.LOST:
            raise lost_error(hold)

    def _leave(self, hold: Hold) -> None:
        """Give up one level of a hold, or settle one level of a lost one."""
        try:
            self._check(hold)
        except LockLostError:
            if hold.depth > 1:
                hold.depth -= 1
            else:
                self._place.drop(hold)
            raise
        if hold.depth > 1:
            hold.depth -= 1
        else:
            self._give_up(hold)

    def _give_up(self, hold: Hold) -> None:
        """End a hold, whatever its depth."""
        log.debug("releasing %s", hold.ticket.node)
        try:
            Driver(self._session, self._path).release(hold.ticket)
        finally:
            if hold.alive:  # interrupted before anything was done
                self._session.discard(hold.ticket)
            self._place.drop(hold)

    @abstractmethod
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; see `threading`."""

    @abstractmethod
    def release(self) -> None:
        """Release the lock; see `threading`."""

    def locked(self) -> bool:
        """Return whether anybody, in any process, holds the lock; asks the leader. Cost: 2 reads, pipelined."""
        names = Driver(self._session, self._path).run(list_queue(self._path))
        return any(self._rule.is_ours(name) for name in holders(names or (), self._rule))

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._session.forked:
            return  # the hold is the parent's
        try:
            self.release()
        except LockLostError:
            if kind is None or (issubclass(kind, Exception) and not issubclass(kind, LockLostError)):
                raise

    def _at_fork_reinit(self) -> None:
        """Reset to unlocked, as `threading` does with its locks in a forked child."""
        for hold in self._place.all(self._rule.role):
            self._place.drop(hold)
            if hold.alive:
                self._session.discard(hold.ticket)

    # -- the extras ----------------------------------------------------------------------------------------------

    @property
    def client(self) -> KazooClient:
        """The kazoo client."""
        return self._client

    @property
    def path(self) -> str:
        """The path that is the lock."""
        return self._path

    def _mine(self) -> Hold | None:
        """Return the calling thread's hold, alive or lost."""
        return self._place.own(self._rule.role, self._session.identity())

    def _newest(self) -> Hold | None:
        """Return the newest hold of any thread of the process."""
        return self._place.newest(self._rule.role)

    def _own(self) -> Hold | None:
        """Return the hold that `release` and the extras speak of."""
        return self._mine()

    def _must_hold(self) -> Hold:
        self._session.check_lease()
        hold = self._own()
        if hold is None:
            raise RuntimeError(f"not held: {self._path}")
        self._check(hold)
        return hold

    @property
    def fencing_token(self) -> int:
        """A number that never decreases from holder to holder: the creation zxid of the holder's node.

        Raises:
            LockLostError: the hold is lost.
            RuntimeError: nothing is held.
        """
        return self._must_hold().ticket.token

    @property
    def lost(self) -> threading.Event:
        """Set when the present hold is lost; a fresh one with the next hold."""
        with self._session.lock:
            hold = self._own() or self._newest()
            return self._place.idle[self._rule.role] if hold is None else hold.lost

    @property
    def suspect(self) -> bool:
        """Whether the lock is held, but the service is out of reach at the moment."""
        hold = self._own() or self._newest()
        return hold is not None and hold.alive and self._session.suspect

    def _contenders(self) -> tuple[list[Contender], list[Contender]]:
        hold, found = Driver(self._session, self._path).run(contenders(self._path, self._rule)) or (0, [])
        line = [Contender.of(self._path, name, node) for name, node in found]
        return line[:hold], line[hold:]

    def owner(self) -> Contender | None:
        """Return who holds the lock, asked of the server; None if nobody does. Cost: 2 + n reads for n in the queue."""
        return next(iter(self._contenders()[0]), None)

    def waiters(self) -> list[Contender]:
        """Return who waits for the lock, the next one first, asked of the server. Cost: as `owner`."""
        return self._contenders()[1]

    def guard(self, transaction: Any) -> Any:
        """Let a kazoo `TransactionRequest` commit only while this hold lives; return the transaction.

        Raises:
            LockLostError: the hold is lost already.
            RuntimeError: nothing is held.
            ValueError: the transaction's client has another chroot, so that it can't see the lock's node.
        """
        if transaction.client.chroot != self._client.chroot:
            raise ValueError(f"the transaction's client must have the lock's chroot: {self._client.chroot!r}")
        transaction.check(self._must_hold().ticket.node, -1)  # -1: any version; it must be there
        return transaction

    def __reduce__(self) -> Any:
        raise TypeError(
            f"cannot pickle {type(self).__name__} {self._path!r}: open a client in the other process and make the "
            "lock there, from the same path"
        )

    def _describe(self, hold: Hold | None) -> str:  # noqa: ARG002
        """Return what the repr says of the present hold."""
        return ""

    def __repr__(self) -> str:
        hold = self._newest()
        if hold is not None and not hold.alive:
            hold = None
        state = "unlocked" if hold is None else "locked"
        name = f"zkconcurrent.{type(self).__name__}"
        return f"<{state} {name} object {self._describe(hold)}path={self._path!r} at {id(self):#x}>"


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


def _deadline(session: Session, blocking: bool, timeout: float) -> float | None:
    """Return when to give up, by the monotonic clock."""
    check_timeout(blocking, timeout)
    if not blocking or timeout == 0:
        # A try is one question: no longer than it takes to see that a link is dead, and not at all while it is down.
        timeout = (session.timeout or UNANSWERED) / 3 if session.link.connected else 0.0
    return None if timeout == -1 else session.now() + timeout
