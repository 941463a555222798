"""A driver for OpenStack's tooz, on this library's lock, group and election: `pip install 'zkconcurrent[tooz]'`.

tooz finds it by the scheme of a coordinator's URL: `zkconcurrent://host1,host2/app?timeout=30`. A service that uses
tooz keeps its code. It also learns when it has lost a lock, a leadership or a membership, which tooz's own driver for
ZooKeeper, on kazoo's recipes, does not report.

tooz's calls belong to an object, not to a thread: the object that has acquired a lock releases it, on any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress

# Bound here: a test of the program may patch `os.getpid`.
from os import getpid
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote, unquote_to_bytes, urlencode

try:
    import tooz
    from tooz import coordination, locking, utils
except ImportError as _missing:
    raise ImportError(
        "zkconcurrent.tooz needs tooz: pip install 'zkconcurrent[tooz]'", name=_missing.name
    ) from _missing

from kazoo import exceptions as kazoo_errors

from . import (
    Client,
    Election,
    Group,
    LockLostError,
    LossCause,
    Membership,
    RefusedError,
    Term,
    ZkConcurrentError,
    connect,
)
from ._threads.object_lock import Levels, ObjectLock, least_remaining

__all__ = ["Driver", "DriverLock"]

T = TypeVar("T")
# In bytes: the most that a request adds to its path and data, and a length that no member's path exceeds.
_REQUEST_OVERHEAD = 2_048
_LONGEST_PATH = 10_000
_log = logging.getLogger("zkconcurrent.losses")


@contextmanager
def _as_tooz() -> Iterator[None]:
    """Raise the errors of this library, and kazoo's, as a `ToozError`."""
    try:
        yield
    except (ZkConcurrentError, kazoo_errors.KazooException) as error:
        raise tooz.ToozError(str(error) or repr(error), cause=error) from error


def _end_quietly(leading: AbstractContextManager[Term]) -> None:
    """End a term, if it has begun and has not ended; suppress its errors, as the caller raises another error."""
    with suppress(Exception):
        leading.__exit__(None, None, None)


def _named(name: bytes | str) -> str:
    """Return the name of the node for a name of tooz's, which may contain any bytes."""
    node = quote(name, safe="")
    # ZooKeeper refuses these two names, and `quote` leaves dots as they are.
    return node.replace(".", "%2E") if node in (".", "..") else node


class DriverLock(locking.Lock):
    """A lock of tooz: it belongs to this object, not to the thread that has acquired it."""

    def __init__(self, driver: Driver, name: bytes) -> None:
        super().__init__(name)
        self._client = driver.client
        self._lock = ObjectLock(self._client, f"/locks/{_named(name)}", driver.held)

    def acquire(self, blocking: bool = True, shared: bool = False, timeout: float | None = None) -> bool:
        """Acquire the lock; raise the same errors as tooz's `Lock.acquire`.

        Args:
            blocking: whether to wait; a number is a timeout.
            shared: whether to share the lock with others that share it. A thread that shares the lock can share it
                again at once, even by another object. To change the mode, release first.
            timeout: how long to wait, in seconds; None waits forever.
        """
        blocking, timeout = utils.convert_blocking(blocking, timeout)
        level = object()
        try:
            with _as_tooz():
                return self._lock.acquire(level, blocking, timeout, shared=shared)
        except BaseException:
            # If an interrupt struck after the grant, the caller does not know that it holds the lock.
            self._lock.drop(level, shared=shared)
            raise

    def _release(self) -> tuple[bool, LockLostError | None]:
        """Release the lock; return whether this object held it until now, and the loss if the hold was lost."""
        with _as_tooz():
            try:
                return self._lock.release(), None
            except LockLostError as lost:
                # Log the loss: few programs check what tooz's `release` returns.
                fields = {"zk_path": lost.path, "zk_token": lost.token, "zk_cause": lost.cause and lost.cause.value}
                _log.warning("%s", lost, extra=fields)
                return False, lost

    def release(self) -> bool:
        """Release the lock; return False if this object does not hold it, or has lost it."""
        return self._release()[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the lock; a block that has lost it ends with a `ToozError`, unless it ends with an error anyway."""
        _, lost = self._release()
        if lost is not None and kind is None:
            raise tooz.ToozError(str(lost), cause=lost) from lost

    @property
    def acquired(self) -> bool:
        """Whether this object holds the lock; False as soon as the hold is lost. Sends nothing."""
        return self.remaining() > 0

    def is_still_owner(self) -> bool:
        """Return `acquired`."""
        return self.acquired

    def remaining(self) -> float:
        """Return how many seconds this object is sure to hold the lock; 0 if it does not hold it. Sends nothing."""
        return self._lock.remaining()

    def break_(self) -> bool:
        """Delete the nodes of all holders of the lock, whoever they are; return whether there were any."""
        broken = False
        with _as_tooz():
            for holder in self._lock.holders():
                with suppress(kazoo_errors.NoNodeError):
                    broken = bool(self._client.delete(holder.node))
        return broken


class Driver(coordination.CoordinationDriverCachedRunWatchers):
    """The driver of `zkconcurrent://` URLs, and of `zkconcurrents://` for TLS.

    The rest of the URL is as for `connect`; the default path is `/tooz`. All members must use the same path.

    Layout:
        Below the path, `locks/<name>` is a `ReadWriteLock`, `groups/<id>` is a `Group` at a persistent node, and
        `leaders/<id>` is an `Election`. Names and ids are percent-encoded.

    Attributes:
        held: the lock and the hold of each `acquire` that was not released; the user need not keep the lock.
    """

    CHARACTERISTICS: tuple[coordination.Characteristics, ...] = (
        coordination.Characteristics.NON_TIMEOUT_BASED,
        coordination.Characteristics.DISTRIBUTED_ACROSS_THREADS,
        coordination.Characteristics.DISTRIBUTED_ACROSS_PROCESSES,
        coordination.Characteristics.DISTRIBUTED_ACROSS_HOSTS,
        coordination.Characteristics.SEQUENTIAL,
    )

    def __init__(self, member_id: bytes, parsed_url: Any, options: dict[str, Any]) -> None:
        super().__init__(member_id, parsed_url, options)
        scheme, given = parsed_url.scheme.replace("zkconcurrent", "zk"), urlencode(utils.collapse(options))
        self._url = f"{scheme}://{parsed_url.netloc}{parsed_url.path or '/tooz'}{'?' if given else ''}{given}"
        self._client: Client | None = None
        self._stopping = False
        self.held: Levels = {}
        self._memberships: dict[bytes, Membership] = {}
        # Each term, with the block that ends it.
        self._terms: dict[bytes, tuple[Term, AbstractContextManager[Term]]] = {}

    @property
    def client(self) -> Client:
        """The client, from `start` to `stop`.

        Raises:
            ToozError: there is no client, or this is a forked child, in which the parent's client has no threads.
        """
        if (client := self._client) is None:
            raise tooz.ToozError("the driver is not started")
        if self._process != getpid():
            raise tooz.ToozError("the driver was started before fork(): start one in each child")
        return client

    def _start(self) -> None:
        try:
            self._client, self._process = connect(self._url), getpid()
        except (TimeoutError, RefusedError) as error:
            raise coordination.ToozConnectionError(str(error), cause=error) from error
        self._stopping = False
        # One thread, so that each call sees what earlier calls have done, even if no caller has asked for their result.
        self._worker = ThreadPoolExecutor(1, "zkconcurrent tooz")

    def stop(self) -> None:
        """Stop the client, which ends all its holds and memberships; in a forked child, only forget the client."""
        # tooz would wait for each leave, and for a heartbeat that succeeds. While ZooKeeper is out of reach, it would
        # wait forever.
        self._joined_groups.clear()
        self._stopping = True
        super().stop()

    def _stop(self) -> None:
        client = self._client
        of_parent = client is not None and self._process != getpid()
        if client is not None and not of_parent:
            client.stop()
            client.close()
        # R2: a `stop` that was interrupted is called again.
        self._client = None
        if not of_parent:
            self._worker.shutdown()
        self.held.clear()
        self._memberships.clear()
        self._terms.clear()

    def heartbeat(self) -> float:
        """Return the seconds for which all of this member's holds are sure to last; the session timeout if it has none.

        tooz need not call it: the library's own thread keeps the session alive.

        Raises:
            ToozConnectionError: ZooKeeper is out of reach; the error says how long the holds will last.
        """
        client = self.client
        left = [least_remaining(self.held), *(term.remaining() for term, _ in list(self._terms.values()))]
        least = min(filter(None, left), default=None)
        if not (client.connected or self._stopping):
            lasting = "nothing is held" if least is None else f"what is held lasts for {least:.1f} s"
            raise coordination.ToozConnectionError(f"ZooKeeper is out of reach; {lasting}")
        return client.session_timeout or 0.0 if least is None else least

    def _submit(self, func: Callable[..., T], *args: object) -> coordination.CoordAsyncResult[T]:
        self.client  # noqa: B018 - an error if it is not started
        return coordination.CoordinatorResult(self._worker.submit(func, *args), _as_tooz)

    def get_lock(self, name: bytes) -> DriverLock:
        """Return the lock with that name."""
        return DriverLock(self, name)

    # -- groups ----------------------------------------------------------------------------------------------------

    def _group(self, group_id: bytes) -> Group:
        return Group(self.client, f"/groups/{_named(group_id)}")

    def create_group(self, group_id: bytes) -> coordination.CoordAsyncResult[None]:
        """Create a group, as a persistent node."""

        def create() -> None:
            try:
                self.client.create(self._group(group_id).path, makepath=True)
            except kazoo_errors.NodeExistsError:
                raise coordination.GroupAlreadyExist(group_id) from None

        return self._submit(create)

    def delete_group(self, group_id: bytes) -> coordination.CoordAsyncResult[None]:
        """Delete a group that has no members."""

        def delete() -> None:
            try:
                self.client.delete(self._group(group_id).path)
            except kazoo_errors.NoNodeError:
                raise coordination.GroupNotCreated(group_id) from None
            except kazoo_errors.NotEmptyError:
                raise coordination.GroupNotEmpty(group_id) from None

        return self._submit(delete)

    def get_groups(self) -> coordination.CoordAsyncResult[list[bytes]]:
        """Return the ids of all groups."""

        def groups() -> list[bytes]:
            try:
                return [unquote_to_bytes(name) for name in self.client.get_children("/groups")]
            except kazoo_errors.NoNodeError:
                return []

        return self._submit(groups)

    def join_group(
        self, group_id: bytes, capabilities: coordination.Capabilities | None = None
    ) -> coordination.CoordAsyncResult[None]:
        """Join a group; when the session has expired, the library joins the group again."""

        def join() -> None:
            group = self._group(group_id)
            if self.client.exists(group.path) is None:
                raise coordination.GroupNotCreated(group_id)
            try:
                joined = group.join(utils.dumps(capabilities), _named(self._member_id))
            except ValueError:
                raise coordination.MemberAlreadyExist(group_id, self._member_id) from None
            self._memberships[group_id] = joined
            self._joined_groups.add(group_id)

        return self._submit(join)

    def leave_group(self, group_id: bytes) -> coordination.CoordAsyncResult[None]:
        """Leave a group, even if another process has joined it with this member's id, as in tooz's own drivers."""

        def leave() -> None:
            membership = self._memberships.pop(group_id, None)
            self._joined_groups.discard(group_id)
            if membership is not None:
                # After a loss, the node may belong to another process.
                if membership.lost.is_set():
                    raise coordination.MemberNotJoined(group_id, self._member_id)
                membership.leave()
                return
            try:
                self.client.delete(f"{self._group(group_id).path}/{_named(self._member_id)}")
            except kazoo_errors.NoNodeError:
                raise coordination.MemberNotJoined(group_id, self._member_id) from None

        return self._submit(leave)

    def _found(self, group_id: bytes) -> dict[bytes, bytes]:
        group = self._group(group_id)
        found = group.members()
        if not found and self.client.exists(group.path) is None:
            raise coordination.GroupNotCreated(group_id)
        return {unquote_to_bytes(name): data for name, data in found.items()}

    def get_members(self, group_id: bytes) -> coordination.CoordAsyncResult[set[bytes]]:
        """Return the ids of a group's members."""
        return self._submit(lambda: set(self._found(group_id)))

    def get_members_with_capabilities(
        self, group_id: bytes
    ) -> coordination.CoordAsyncResult[dict[bytes, coordination.Capabilities | None]]:
        """Return the capabilities of a group's members, by their ids."""
        return self._submit(lambda: {name: utils.loads(data) for name, data in self._found(group_id).items()})

    def _info(self, group_id: bytes, member_id: bytes) -> dict[str, Any]:
        path = f"{self._group(group_id).path}/{_named(member_id)}"
        try:
            if not member_id or len(path) > _LONGEST_PATH:
                raise kazoo_errors.NoNodeError
            self.client.sync(path)
            data, stat = self.client.get(path)
        except kazoo_errors.NoNodeError:
            raise coordination.MemberNotJoined(group_id, member_id) from None
        return {
            "capabilities": utils.loads(data),
            "created_at": utils.millis_to_datetime(stat.ctime),
            "updated_at": utils.millis_to_datetime(stat.mtime),
        }

    def get_member_capabilities(
        self, group_id: bytes, member_id: bytes
    ) -> coordination.CoordAsyncResult[coordination.Capabilities | None]:
        """Return the capabilities of a member."""
        return self._submit(lambda: self._info(group_id, member_id)["capabilities"])

    def get_member_info(self, group_id: bytes, member_id: bytes) -> coordination.CoordAsyncResult[dict[str, Any]]:
        """Return the capabilities of a member, and the times when its node was created and last changed."""
        return self._submit(self._info, group_id, member_id)

    def update_capabilities(
        self, group_id: bytes, capabilities: coordination.Capabilities | None
    ) -> coordination.CoordAsyncResult[None]:
        """Replace this member's capabilities."""

        def update() -> None:
            membership = self._memberships.get(group_id)
            if membership is None or membership.lost.is_set():
                raise coordination.MemberNotJoined(group_id, self._member_id)
            data, path = utils.dumps(capabilities), membership.path
            # kazoo sends a request of any size, and the server ends the connection if the request is too large.
            most = self.client.max_request - _REQUEST_OVERHEAD - len(path.encode())
            if len(data) > most:
                raise RefusedError(path, f"capabilities of {len(data):,} bytes; one request has room for {most:,}")
            # If the node is gone with an expired session, the library creates it again, with this data.
            membership.data = membership._member.data = data
            with suppress(kazoo_errors.NoNodeError):
                self.client.set(path, data)

        return self._submit(update)

    def run_watchers(self, timeout: float | None = None) -> list[Any]:
        """Call the watchers of groups and elections; log if another process has removed this member from a group."""
        events = super().run_watchers(timeout)
        for group_id, membership in list(self._memberships.items()):
            # A `Membership` joins again when its node is deleted; in tooz, a deleted node means that the member is out.
            if membership.lost.is_set() or membership._member.cause is LossCause.NODE_DELETED:
                _log.warning("another process has ended the membership %s", membership.path)
                del self._memberships[group_id]
                self._joined_groups.discard(group_id)
                membership.leave()
        self.run_elect_coordinator()
        return events

    # -- leaders ---------------------------------------------------------------------------------------------------

    def _election(self, group_id: bytes) -> Election:
        return Election(self.client, f"/leaders/{_named(group_id)}", id=_named(self._member_id))

    def run_elect_coordinator(self) -> None:
        """Lead each group that has no leader; a member that leads again after a loss is notified again."""
        for group_id, hooks in list(self._hooks_elected_leader.items()):
            if (led := self._terms.get(group_id)) is not None:
                if led[0].remaining() > 0:
                    continue
                self.stand_down_group_leader(group_id)
            with _as_tooz():
                leading = self._election(group_id).lead(timeout=0)
                try:
                    self._terms[group_id] = leading.__enter__(), leading
                except TimeoutError:
                    continue
                except BaseException:
                    # If an interrupt strikes after the grant, no caller ends the term.
                    _end_quietly(leading)
                    raise
            hooks.run(coordination.LeaderElected(group_id, self._member_id))

    def stand_down_group_leader(self, group_id: bytes) -> bool:
        """End this member's leadership; return False if it does not lead, or leads no longer."""
        led = self._terms.get(group_id)
        if led is None:
            return False
        self.client  # noqa: B018 - an error in a forked child, where the end of the block would pass silently
        _, leading = led
        with _as_tooz():
            try:
                self._terms.pop(group_id, None)
                leading.__exit__(None, None, None)
            except LockLostError:
                return False
            except BaseException:
                # If an interrupt strikes before the term's end, no caller repeats the call.
                _end_quietly(leading)
                raise
        return True

    def get_leader(self, group_id: bytes) -> coordination.CoordAsyncResult[bytes]:
        """Return the id of the member that leads; None if no member leads."""

        def leader() -> Any:  # tooz's annotation has no None
            found = self._election(group_id).leader()
            return None if found is None else unquote_to_bytes(found.id)

        return self._submit(leader)
