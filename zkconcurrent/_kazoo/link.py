"""The link to kazoo: its requests, answers, states and errors in the library's own terms.

Answers are completed on kazoo's connection thread: no hop through its completion thread. The same thread takes note
here of what they prove of the lease. What is private of kazoo is checked when it is first used: see `transport.py`.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

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
)
from kazoo.protocol.serialization import Create as CreateRequest
from kazoo.protocol.serialization import Delete as DeleteRequest
from kazoo.protocol.states import KazooState, ZnodeStat
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_acl

from .._engine.identity import ident, identity
from .._engine.lease import MARGIN, NEVER, Lease
from .._recipes.operations import Check, CreateEphemeral, Delete, Set
from .replies import NO_REPLY, NOT_THE_CAUSE, HandledReply, Reply, kazoo_errors
from .session_timeout import negotiated
from .transport import Transport

# `time.monotonic` stands still while a machine sleeps, and the server does not wait for it. On Linux the clock of the
# boot time goes on; on macOS the one that the system calls monotonic does.
boot_clock: Callable[[], float] = time.monotonic
if hasattr(time, "clock_gettime"):
    boot_clock = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
# A thread that is not among these was started later than this.
_imported = boot_clock()
_alive_at_import: weakref.WeakSet[threading.Thread] = weakref.WeakSet(threading.enumerate())

EPHEMERAL = 1
EPHEMERAL_SEQUENTIAL = 3
CONTAINER = 4

__all__ = [
    "CREATOR_ALL_ACL",
    "OPEN_ACL_UNSAFE",
    "CreatedStat",
    "KazooClient",
    "KazooState",
    "Link",
    "ZnodeStat",
    "boot_clock",
    "make_acl",
]


class CreateContainer(Create2):  # type: ignore[misc]
    """Create2's request with an opcode of its own; kazoo has no call for it."""

    type = 19


class CreatedStat(NamedTuple):
    """What is known of a node made in a multi, by the names of its stat, which the server does not tell there."""

    czxid: int
    ephemeralOwner: int  # noqa: N815


class AutoResetEvent:
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
        self.transport = Transport.of(client)
        self.clock = boot_clock
        self._leases: dict[int, Lease] = {}  # by session; written to on kazoo's connection thread
        self.identity = identity(client.handler.name)
        # What one thread waits with, often: half the work of kazoo's.
        self.sleep_event = (
            AutoResetEvent if type(client.handler) is SequentialThreadingHandler else client.handler.event_object
        )
        self.containers: bool | None = None  # whether the servers know them, once that was asked
        self._probes = 0

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

    # -- the lease -----------------------------------------------------------------------------------------------

    @property
    def clock(self) -> Callable[[], float]:
        """What leases are measured by."""
        return self._clock

    @clock.setter
    def clock(self, clock: Callable[[], float]) -> None:
        self._clock = self.transport.clock = clock

    def opened(self) -> Lease | None:
        """Begin a connection, on kazoo's connection thread, which has just made it; return the session's lease.

        None where the wire was not there when the connection was asked for: see `adopt`.
        """
        session, handshake = self.session(), self.transport.handshake
        if session is None or handshake is None:
            return None
        lease = self._leases.setdefault(session, self._new_lease(session))
        lease.opened(*handshake)
        return lease

    def adopt(self) -> Lease | None:
        """Return the lease of a connection that was there first; None while its session's timeout can't be told."""
        session, timeout = self.session(), self._negotiated()
        if session is None or not timeout:
            return None
        lease = self._new_lease(session)
        lease.opened(self._connected_since(), timeout)
        return self._leases.setdefault(session, lease)  # kazoo's thread may have been quicker

    def ended(self) -> None:
        """End the lease with its session, on kazoo's connection thread."""
        for lease in list(self._leases.values()):
            lease.ended()
        self._leases.clear()

    def _new_lease(self, session: int) -> Lease:
        return Lease(session, getattr(self.client, "tick", None), getattr(self.client, "margin", MARGIN))

    def _connected_since(self) -> float:
        """Return a moment before the connection was asked for, as late as is certain: its thread's start."""
        routine = self.client._connection._connection_routine
        if not isinstance(routine, threading.Thread) or self.clock is not boot_clock:
            return NEVER
        return max(_started(routine), NEVER if routine in _alive_at_import else _imported)

    def _negotiated(self) -> float | None:
        """Return the session timeout of the present connection, in seconds; None if unknown."""
        if self.transport.handshake is not None:
            return self.transport.handshake.timeout
        return negotiated(self.client._connection._connection_routine)

    def on_own_thread(self) -> bool:
        """Whether the caller runs on one of kazoo's threads, where waiting for an answer waits for ever."""
        me = ident(self.identity())
        for worker in (self.client._connection._connection_routine, *self.handler._workers):
            if getattr(worker, "ident", None) == me or id(worker) == me:
                return True
        return False

    # -- requests ------------------------------------------------------------------------------------------------

    def full(self, path: str) -> str:
        """Return `path` below the client's chroot."""
        return f"{self.client.chroot}{path}"

    def location(self, path: str) -> tuple[str, tuple[tuple[str, int], ...]]:
        """Return where a path is for everybody: its full name, and the servers, as far as the client knows them."""
        return self.full(path), tuple(sorted(self.client.hosts))

    def _acl(self) -> Sequence[Any]:
        return self.client.default_acl or OPEN_ACL_UNSAFE  # type: ignore[no-any-return]

    def _write(self, request: Any, reply: Reply) -> None:
        """Send what a majority must agree to."""
        reply.on_success = self._note_write
        reply.sent = self._clock()
        self.transport.send(request, reply)

    def _note_write(self, reply: Reply) -> None:
        if (lease := self._leases.get(self.client._session_id)) is not None:
            lease.answered(reply.sent, self._clock(), write=True)

    def _note_sync(self, reply: Reply) -> None:
        if (lease := self._leases.get(self.client._session_id)) is not None:
            lease.answered(reply.sent, self._clock(), write=False)

    def create(self, prefix: str, data: bytes, reply: Reply) -> None:
        """Make an EPHEMERAL_SEQUENTIAL node; the answer is its full path and its stat."""
        self._write(Create2(self.full(prefix), data, self._acl(), EPHEMERAL_SEQUENTIAL), reply)

    def multi(self, operations: Sequence[CreateEphemeral | Delete | Set | Check], reply: Reply) -> None:
        """Do all or nothing; the answer is each operation's, as if it came alone, or why nothing was done."""

        def on_reply(whole: HandledReply) -> None:
            why = (each for each in whole.value or () if isinstance(each, Exception))
            error = whole.error or next((each for each in why if not isinstance(each, NOT_THE_CAUSE)), None)
            if error is not None:
                reply.set_exception(error)
                return
            self._note_write(whole)
            # On the connection's thread, these two are of the answer that is being read.
            made = CreatedStat(self.client.last_zxid, self.session() or 0)
            reply.set([(each, made) if isinstance(each, str) else each for each in whole.value])

        self._transact([self._part_request(each) for each in operations], HandledReply(on_reply))

    def check(self, paths: Sequence[str], reply: Reply) -> None:
        """Ask a majority whether the nodes are there; the answer is, for each, True or why that is not known.

        Up to the first that fails all are there; of those behind it nothing is said.
        """
        self._check([self.full(path) for path in paths], reply)

    def check_root(self, reply: Reply) -> None:
        """Ask a majority, of what is always there."""
        self._check(["/"], reply)

    def _check(self, paths: Sequence[str], reply: Reply) -> None:

        def on_reply(whole: HandledReply) -> None:
            if whole.error is not None:
                reply.set_exception(whole.error)
                return
            if all(each is True for each in whole.value):
                self._note_write(whole)
            reply.set(whole.value)

        self._transact([CheckVersion(path, -1) for path in paths], HandledReply(on_reply))

    def _transact(self, parts: list[Any], reply: HandledReply) -> None:
        """Send a multi, which is answered as a success also where its parts failed."""
        reply.sent = self._clock()
        self.transport.send(Transaction(parts), reply)

    def _part_request(self, step: CreateEphemeral | Delete | Set | Check) -> Any:
        if isinstance(step, Check):
            return CheckVersion(self.full(step.path), step.version)
        if isinstance(step, Delete):
            return DeleteRequest(self.full(step.path), step.version)
        if isinstance(step, Set):
            return SetData(self.full(step.path), step.data, step.version)
        flags = EPHEMERAL if step.number else EPHEMERAL_SEQUENTIAL
        return CreateRequest(self.full(step.path), step.data, self._acl(), flags)

    def make_container(self, path: str, reply: Reply, *, directory: bool = False) -> None:
        """Make a container, or a persistent node where the server has no containers.

        Args:
            path: where.
            reply: to it.
            directory: others may have primitives of their own below it.
        """
        acl = (getattr(self.client, "directory_acl", None) if directory else None) or self._acl()
        if self.containers is False:
            self._write(Create2(self.full(path), b"", acl, 0), reply)
            return

        def on_reply(first: HandledReply) -> None:
            if isinstance(first.error, kazoo_errors.UnimplementedError):
                self.containers = False
                reply.set_exception(kazoo_errors.ConnectionLoss())  # again, the old way
            elif first.error is not None:
                reply.set_exception(first.error)
            else:
                reply.set(first.value)

        self._write(CreateContainer(self.full(path), b"", acl, CONTAINER), HandledReply(on_reply))

    def probe(self) -> None:
        """Ask whether the servers know containers, ahead of everything else: one that does not may hang up.

        So nothing is held when that happens. The node that is to be made is ZooKeeper's own, and is there.
        """

        def on_reply(reply: HandledReply) -> None:
            if isinstance(reply.error, kazoo_errors.UnimplementedError):
                self.containers = False
            elif reply.error is None or type(reply.error) not in NO_REPLY:
                self.containers = True
            elif self._probes > 1:  # it hangs up each time
                self.containers = False

        self._probes += 1
        self.transport.send(CreateContainer("/zookeeper", b"", OPEN_ACL_UNSAFE, CONTAINER), HandledReply(on_reply))

    def create_persistent(self, path: str, data: bytes, reply: Reply) -> None:
        """Make a PERSISTENT node."""
        self._write(CreateRequest(self.full(path), data, self._acl(), 0), reply)

    def set_data(self, path: str, data: bytes, version: int, reply: Reply) -> None:
        """Write a node's data, if it has that version."""
        self._write(SetData(self.full(path), data, version), reply)

    def children(self, path: str, reply: Reply, watcher: Callable[[Any], None] | None = None) -> None:
        """List the children's names, and leave a watch there if the node exists."""
        self.transport.send(GetChildren(self.full(path), watcher), reply)

    def sync(self, path: str, reply: Reply) -> None:
        """Have the server catch up with its leader."""
        reply.on_success = self._note_sync
        reply.sent = self._clock()
        self.transport.send(Sync(self.full(path)), reply)

    def get(self, path: str, reply: Reply, watcher: Callable[[Any], None] | None = None) -> None:
        """Read a node's data and stat, and leave a watch there if it exists."""
        self.transport.send(GetData(self.full(path), watcher), reply)

    def delete(self, path: str, reply: Reply, version: int = -1) -> None:
        """Delete a node, if it has that version; -1 is any."""
        self._write(DeleteRequest(self.full(path), version), reply)


def _started(thread: threading.Thread) -> float:
    """Return when a thread was started, by the clock of the boot time, or a moment before; `NEVER` if unknown."""
    try:
        with open(f"/proc/self/task/{thread.native_id}/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        started = ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return NEVER
    return started if 0 < started <= boot_clock() else NEVER
