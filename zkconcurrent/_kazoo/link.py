"""The link to one kazoo client: its requests and the state of its connection, in the library's own terms.

Replies are completed on kazoo's connection thread, without a hop through its completion thread. The same thread records
what these replies prove of the session's lease (`leases.py`). The library checks the private parts of kazoo at first
use (`private_parts.py`).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.protocol.serialization import CheckVersion, Create2, Exists, GetData, SetData, Sync, Transaction
from kazoo.protocol.serialization import Create as CreateRequest
from kazoo.protocol.serialization import Delete as DeleteRequest
from kazoo.protocol.states import KazooState, KeeperState, ZnodeStat
from kazoo.security import (
    ACL,
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    Permissions,
    make_acl,
    make_digest_acl_credential,
)

from .._protocol import operations as op
from .._protocol.session_lease import Lease
from .._runtime import serving
from .._runtime.events import AutoResetEvent, SteadyEvent
from .._runtime.identity import of_thread
from .addresses import OF_TLS, WHY_HUNG_UP, WHY_NO_TLS, shown
from .failures import NOT_THE_CAUSE, kazoo_errors
from .leases import Leases
from .opening import CONNECTED_STATES
from .reply import Reply, Request
from .requests import CreateContainer, CreatedStat, ListChildren, MultiWithContainers
from .transport import Transport
from .watches import CHILDREN, DATA, TREE, AddWatch, RemovalWithdrawn, RemoveWatches, Watcher, forget_watcher, has_watch

EPHEMERAL = 1
SEQUENTIAL = 2
EPHEMERAL_SEQUENTIAL = 3
CONTAINER = 4
FORKED = (
    "the client was opened before fork(), so it belongs to the parent process: open one, or make a namespace('local'), "
    "in each child after the fork, as in the start-up hook of a worker (multiprocessing: initializer=, Celery: "
    "worker_process_init, gunicorn: post_worker_init); a lock on a client of connect() does that itself if it is an "
    "argument of the function that a pool runs"
)
TRY_OUT = "to start a server to try things out: python -m zkconcurrent.testing"
WHY_UNTRUSTED = "the server's certificate must come from an issuer in `ca`, name this host, and be valid today"

__all__ = [
    "ACL",
    "CREATOR_ALL_ACL",
    "OPEN_ACL_UNSAFE",
    "CreatedStat",
    "KazooClient",
    "KazooState",
    "Link",
    "Permissions",
    "TransactionRequest",
    "ZnodeStat",
    "make_acl",
    "make_digest_acl_credential",
]


class Link:
    """One kazoo client, as the session and the driver use it, in the library's own terms.

    Paths here are as the user writes them; only this class adds and removes the client's chroot.

    Attributes:
        leases: the leases of the client's sessions.
        send: sends requests, which the methods here make: see `Transport.send`.
        seen_chroot: the chroot that was seen to exist; empty at first, as for a client without a chroot.
    """

    def __init__(self, client: KazooClient) -> None:
        self.client = client
        self.handler = client.handler
        self.transport = Transport.of(client)
        self.send = self.transport.send
        self._parts = self.transport.parts
        self.leases = Leases(self._parts, self.transport.opening)
        self.identity = of_thread
        # Returns the number in `Thread.ident`, which the system may give to another thread later.
        self.thread = threading.get_ident
        # kazoo's threads, and their numbers.
        self._own_threads: tuple[list[object], set[object]] = [], set()
        # The events that a call, or the keeper, sleeps on, and those that users see. No interrupted thread can keep
        # either kind from being set, and the first kind takes half the work of kazoo's events.
        self.sleep_event = AutoResetEvent
        self.user_event = SteadyEvent
        # Whether other clients, too, may have primitives below a path.
        self.is_directory: Callable[[str], bool] = lambda _: False
        self.seen_chroot = ""
        # See `kinds_of_trees`. None until the servers were asked.
        self._trees: tuple[int, ...] | None = None

    # -- state ---------------------------------------------------------------------------------------------------

    def why_stopped(self) -> str:
        """Return why the client is `stopped`, and what to do."""
        parts, connection = self._parts, self._parts.connection
        if parts.stopped.is_set():
            was_started = parts.xid is not None or not connection.connection_closed.is_set()
            return f"the client {'is stopped' if was_started else 'is not started'}: call client.start() first"
        routine = parts.routine
        if routine is None or not (routine.dead if hasattr(routine, "dead") else not routine.is_alive()):
            return "another thread has stopped the client during this call, and started it again: call once more"
        if connection.connection_stopped.is_set():
            if self.transport.opening.refusal is not None:
                return "the servers have refused the client's credentials: correct them, and open another client"
            retry = connection.retry_sleeper
            if retry.max_tries in (None, -1) and retry.deadline is None:
                return "an unexpected error, in the log or on standard error, has ended the client: open another one"
            return "the client has given up connecting, as its connection_retry is used up: open another one"
        # kazoo's thread is gone without a note of its end: only a fork does that.
        return FORKED

    @property
    def stopping(self) -> bool:
        """Whether the program has stopped the client, or is stopping it."""
        return bool(self._parts.stopped.is_set())

    @property
    def gave_up(self) -> bool:
        """Whether the client has ended its session by itself: no server was found, or its credentials were refused."""
        return self.client.client_state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED)

    @property
    def stopped(self) -> bool:
        """Whether the client was never started, is stopped, or has given up connecting."""
        parts = self._parts
        routine = parts.routine
        if routine is None or parts.stopped.is_set():
            return True
        if hasattr(routine, "dead"):  # a greenlet
            return bool(routine.dead)
        # An exception that a signal handler raises within `Thread.is_alive()` makes CPython before 3.13 take the thread
        # for dead. So this does not call it, but reads the note that an earlier call, or a fork, has made. kazoo's own
        # event shows any other end.
        noted = getattr(routine, "_is_stopped", None)
        return not routine.is_alive() if noted is None or parts.connection.connection_stopped.is_set() else bool(noted)

    def open_at_use(self) -> None:
        """Open the client of unpickled objects, which opens at its first use; owners start all other clients."""
        if (opens := getattr(self.client, "open_at_use", None)) is not None:
            opens()

    @property
    def connected(self) -> bool:
        """Whether a server is connected now."""
        # kazoo's `connected` changes a moment later, on its thread: meanwhile, each request would be refused at once.
        return self.client.client_state in CONNECTED_STATES

    @property
    def was_connected(self) -> bool:
        """Whether the client has been connected since it was started."""
        return self.connected or self.transport.opening.handshake is not None or bool(self._parts.session_id)

    @property
    def requested_timeout(self) -> float:
        """The session timeout that the client asks for, in seconds."""
        return self._parts.requested_timeout

    def failures(self) -> str:
        """Return how the last attempts to connect ended, by address, and what to do."""
        hosts = ",".join(shown(host, port) for host, port in self.client.hosts)
        addresses = self.transport.opening.addresses
        attempts = addresses.describe() or f"{hosts}: no reply"
        if os.strerror(errno.EMFILE) in attempts:
            advice = "find what keeps files open in this process, or raise its limit: ulimit -n"
        elif addresses.none_resolved:
            advice = "check the host's name"
        elif "CERTIFICATE_VERIFY_FAILED" in attempts:
            advice = WHY_UNTRUSTED
        elif self.client.use_ssl and (OF_TLS in attempts or os.strerror(errno.ECONNRESET) in attempts):
            advice = WHY_NO_TLS
        else:
            advice = WHY_HUNG_UP if addresses.hung_up else TRY_OUT
        return f"{attempts} ({advice})"

    def session(self) -> int | None:
        """Return the present session's id while connected."""
        # Not kazoo's `client_id`, which is set a moment after the state that `connected` reads.
        return (self._parts.session_id or None) if self.connected else None

    @property
    def connection(self) -> object:
        """An object that identifies the present connection, or the last one; None if it is older than the transport."""
        return self.transport.opening.handshake

    def begin_connection(self) -> Lease | None:
        """Note a connection that was just made, on kazoo's connection thread; return the session's lease.

        None if the connection was requested before the transport was there: see `Leases.adopt`.
        """
        session = self.session()
        lease = None if session is None else self.leases.begin_connection(session)
        if lease is not None:
            # This server may be newer than the last one.
            self._trees = None
        return lease

    def adopt(self) -> Lease | None:
        """Return the lease of a connection older than the transport; None while its timeout is unknown."""
        session = self.session()
        return None if session is None else self.leases.adopt(session)

    # -- threads -------------------------------------------------------------------------------------------------

    def spawn(self, run: Callable[[], object], name: str, *, daemon: bool = True) -> None:
        """Run a function on a thread of its own.

        Args:
            run: the function.
            name: the thread's name, as stack dumps and debuggers show it: its work, and the path.
            daemon: whether the interpreter exits without waiting for it.
        """
        threading.Thread(target=run, name=f"zkconcurrent {name}", daemon=daemon).start()

    def on_own_thread(self) -> bool:
        """Return whether the caller runs on a thread where a wait for a reply would never end.

        These are kazoo's threads, and the thread of a service in the memory of this process.
        """
        threads = [self._parts.routine, *self._parts.workers]
        known, idents = self._own_threads
        if threads != known:
            idents = {number for each in threads for number in (getattr(each, "ident", None), id(each))}
            self._own_threads = threads, idents
        here = self.thread()
        return here in idents or here in serving.threads

    # -- requests ------------------------------------------------------------------------------------------------

    def full(self, path: str) -> str:
        """Return `path` below the client's chroot; / is the chroot itself."""
        return f"{self.client.chroot}{path}" if path != "/" else self.client.chroot or path

    def location(self, path: str) -> tuple[str, tuple[tuple[str, int], ...]]:
        """Return a path's full name and the servers, as far as the client knows them: the same for all clients."""
        return self.full(path), tuple(sorted(self.client.hosts))

    def acl(self) -> Sequence[ACL]:
        """Return the access rights of a new node."""
        return self.client.default_acl or OPEN_ACL_UNSAFE  # type: ignore[no-any-return]

    def create(self, prefix: str, data: bytes, reply: Reply) -> Request:
        """Make an EPHEMERAL_SEQUENTIAL node; the reply is its full path and its stat."""
        return Create2(self.full(prefix), data, self.acl(), EPHEMERAL_SEQUENTIAL), self.leases.as_write(reply)

    def multi(self, operations: Sequence[op.Part], reply: Reply) -> Request:
        """Do all operations or none; the reply has each one's reply, as if sent alone, or the cause of the failure.

        The cause has the number of the operation that failed, in `part`.
        """
        requests = [_PARTS[type(each)](self, self.full(each.path), each) for each in operations]

        def on_reply(reply: Reply) -> None:
            if reply.error is not None:
                return
            results, reply.value = reply.value, None
            for part, each in enumerate(results):
                if isinstance(each, Exception) and not isinstance(each, NOT_THE_CAUSE):
                    reply.error = each
                    each.part = part  # type: ignore[attr-defined]
                    # A local session that lives gets this error for ephemerals, too: then the caller asks the leader.
                    if not op.makes_ephemerals(operations):
                        self._leave_if_over(each)
                    return
            self.leases.note_write(reply)
            # On the connection thread, the last zxid and the session are those of the reply that is being read.
            made = CreatedStat(self.client.last_zxid, self.session() or 0)
            reply.value = [(each, made) if isinstance(each, str) else each for each in results]

        return self._transact(requests, reply, on_reply)

    def check(self, paths: Sequence[str], reply: Reply) -> Request:
        """Ask a majority whether the nodes exist; the reply has, for each, True or the error.

        All nodes before the first failure exist; for the nodes after it, nothing is known. Without paths, this asks
        about the root, which always exists.
        """

        def on_reply(reply: Reply) -> None:
            results = reply.value or ()
            if all(each is True for each in results):
                self.leases.note_write(reply)
            for each in results:
                self._leave_if_over(each)

        checks = [CheckVersion(self.full(path), -1) for path in paths] or [CheckVersion("/", -1)]
        return self._transact(checks, reply, on_reply)

    def _transact(self, parts: list[object], reply: Reply, on_reply: Callable[[Reply], None]) -> Request:
        """Return a multi. kazoo takes its reply for a success even if its parts failed; `on_reply` looks at them."""
        reply.sent, reply.on_reply = self.transport.opening.clock(), on_reply
        made = any(type(part) is CreateContainer for part in parts)
        return MultiWithContainers(parts) if made else Transaction(parts), reply

    def _leave_if_over(self, result: object) -> None:
        """Cut the connection if the leader refused a request because the session is over; the next server reports that.

        A server may keep the connection of such a session and serve its reads, if the session was closed through
        another connection to this server just as the client came back.
        """
        if isinstance(result, kazoo_errors.SessionExpiredError):
            self.transport.drop()

    def container(self, path: str) -> CreateContainer:
        """Return the request that makes a container."""
        acl = (getattr(self.client, "directory_acl", None) if self.is_directory(path) else None) or self.acl()
        return CreateContainer(self.full(path), b"", acl, CONTAINER)

    def create_persistent(self, path: str, data: bytes, reply: Reply) -> Request:
        """Make a PERSISTENT node."""
        return CreateRequest(self.full(path), data, self.acl(), 0), self.leases.as_write(reply)

    def set_data(self, path: str, data: bytes, version: int, reply: Reply) -> Request:
        """Write a node's data, if it has that version."""
        return SetData(self.full(path), data, version), self.leases.as_write(reply)

    def delete(self, path: str, reply: Reply, version: int = -1) -> Request:
        """Delete a node, if it has that version; -1 stands for any."""
        return DeleteRequest(self.full(path), version), self.leases.as_write(reply)

    def children(self, path: str, reply: Reply, watcher: Watcher | None = None) -> Request:
        """List the children's names; with a watcher, also leave a watch there, if the node exists."""
        return ListChildren(self.full(path), watcher), reply

    def sync(self, path: str, reply: Reply) -> Request:
        """Have the server catch up with its leader."""
        return Sync(self.full(path)), self.leases.as_sync(reply)

    def get(self, path: str, reply: Reply, watcher: Watcher | None = None) -> Request:
        """Read a node's data and stat; with a watcher, also leave a watch there, if the node exists."""
        return GetData(self.full(path), watcher), reply

    def exists(self, path: str, reply: Reply, watcher: Watcher | None = None) -> Request:
        """Read a node's stat; None if there is no node. With a watcher, also leave a watch there in either case."""
        return Exists(self.full(path), watcher), reply

    def get_with_zxid(self, path: str, reply: Reply) -> Request:
        """Read a node's data and stat. The reply has both, or None if there is no node; and the zxid of that state."""

        def on_reply(found: Reply) -> None:
            if found.error is None or isinstance(found.error, kazoo_errors.NoNodeError):
                # On the connection thread, the last zxid is that of this reply.
                found.value, found.error = (found.value, self.client.last_zxid), None

        reply.on_reply = on_reply
        return GetData(self.full(path), None), reply

    def watch_tree(self, path: str, reply: Reply) -> Request:
        """Have the transport's `on_raw_event` called for each change at or below a path; the reply is `connection`."""

        def on_reply(reply: Reply) -> None:
            # On the connection thread, this is the connection that has answered.
            reply.value = self.connection

        reply.on_reply = on_reply
        return AddWatch(self.full(path)), reply

    def watches(self, path: str, watcher: Watcher) -> list[int]:
        """Return which kinds of watches a watcher has on a path, or has asked for."""
        full = self.full(path)
        return [kind for kind in (CHILDREN, DATA) if has_watch(self._parts, full, kind, watcher)]

    def kinds_of_trees(self) -> tuple[int, ...]:
        """Return the kinds of watches to remove for the watch of a tree; none while a server is being asked for them.

        A server before 3.9 refuses the kind `TREE`, and writes an error into its log each time. So it is asked once.
        """
        if self._trees is not None:
            return self._trees
        self._trees = ()
        return (TREE,)

    def remove_watch(self, path: str, kind: int, reply: Reply, watcher: Watcher | None = None) -> None:
        """Remove a watch, unless the program has a watcher there, too.

        Args:
            path: the path.
            kind: one of the `watches`, or of the `kinds_of_trees`.
            reply: takes the reply: `RemovalWithdrawn` if the removal is to be tried again later.
            watcher: whose watch it is; None for the watch of a tree.
        """
        request = RemoveWatches(self.full(path), kind, watcher)

        def on_reply(reply: Reply) -> None:
            older = kind == TREE and isinstance(reply.error, kazoo_errors.MarshallingError)
            if kind == TREE:
                self._trees = (DATA, CHILDREN) if older else None if reply.error is not None else (TREE,)
            if reply.error is None or isinstance(reply.error, kazoo_errors.NoWatcherError):
                # This comes before the next reply is read, as that may be the reply to a new watch.
                forget_watcher(self._parts, request)
                reply.error = None
            elif older or isinstance(reply.error, kazoo_errors.ThrottledOpError):
                reply.error = RemovalWithdrawn()

        reply.on_reply = on_reply
        self.transport.send_by_kazoo((request, reply))

    def make_chroot(self) -> None:
        """Make the chroot of a client of `connect` again: the servers may have lost it, as when they begin anew."""
        if not hasattr(self.client, "directory_acl"):
            return
        path, acl, creates = "", self.client.directory_acl or self.acl(), []
        for part in self.client.chroot.split("/")[1:]:
            path = f"{path}/{part}"
            creates.append((CreateRequest(path, b"", acl, 0), Reply()))
        self.send(*creates)


# The request of each operation that a `Multi` may contain.
_PARTS: dict[type, Callable[[Link, str, Any], object]] = {
    op.CreateEphemeral: lambda link, path, step: CreateRequest(
        path, step.data, link.acl(), EPHEMERAL if step.number else EPHEMERAL_SEQUENTIAL
    ),
    op.Create: lambda link, path, step: CreateRequest(
        path, step.data, link.acl(), EPHEMERAL * step.ephemeral + SEQUENTIAL * step.sequential
    ),
    op.Container: lambda link, _, step: link.container(step.path),
    op.SetNode: lambda _, path, step: SetData(path, step.data, step.version),
    op.Delete: lambda _, path, step: DeleteRequest(path, step.version),
    op.Check: lambda _, path, step: CheckVersion(path, step.version),
}
