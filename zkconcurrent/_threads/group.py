"""`Group`: processes that join a group, and see its other members."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NoReturn, TypeVar

from .._arguments.paths import check_name
from .._engine.call import Call
from .._engine.expired_holds import losses
from .._engine.holds import PathState, Possession
from .._engine.loss_cause import words
from .._engine.loss_signal import Loss
from .._engine.session import Session
from .._errors import ClientError, LossCause
from .._protocol.ticket import LossRecord
from .._recipes.group import Member, members, next_members, stay
from .._runtime.interrupts import insist
from .._runtime.public import ErrorKind, Self, Traceback, public
from .._runtime.this_process import new_uuid
from .._runtime.wait_loops import Steps, wait
from .base.node_data import node_data
from .base.primitive import Primitive, check_timeout, kind_of

M = TypeVar("M", bound="BaseMembership")


class GroupState(PathState):
    """The state of a group that all objects of one client and path share.

    Attributes:
        members: the memberships of this client, by id. Each is here from before its create is sent until its node is
            sure to be gone.
    """

    def __init__(self, session: Session, path: str, kind: str) -> None:
        super().__init__(session, path, kind)
        self.members: dict[str, BaseMembership] = {}


class BaseMembership:
    """What the memberships of threads and of tasks share.

    Attributes:
        id: the member's id.
        data: the member's data.
    """

    def __init__(self, group: Group, name: str, data: bytes, patience: float) -> None:
        self._state = state = group._path_state
        self._session = session = state.session
        self._member = Member(state.path, name, data, session.now, patience)
        self._loss = Loss(session.link.user_event)
        self._error: Exception | None = None
        self._cause: LossCause | None = None
        self._since = 0.0
        state.keeping.add(self)
        # Whether the membership's thread exists, or is about to be started.
        self._began = False
        self._over = False
        # The calls, by their `id()`, that wait for the membership to change.
        self._callers: dict[int, Call] = {}
        # The call that sends all requests of the membership, on a thread of the library.
        self._life: Call | None = None
        self.id = name
        self.data = data

    @property
    def path(self) -> str:
        """The path of the member's node."""
        return self._member.node

    @property
    def active(self) -> bool:
        """Whether the member's node exists, as far as this client knows: False from an expiry until it rejoins."""
        ticket = self._member.ticket
        return not self._over and ticket is not None and ticket.session == self._session.registry.session

    @property
    def cause(self) -> LossCause | None:
        """Why the membership was lost (its node went, or the client has ended); None while it is not lost."""
        return self._cause

    def _kept(self) -> Iterable[Possession]:
        """Return this membership, for `inspect()`."""
        ticket = self._member.ticket
        if ticket is None or not self.active:
            return ()
        return (Possession("member", ticket.token, None, self._session.now() - self._since),)

    def _begin_leave(self) -> tuple[Call, Steps[None]]:
        """Return the call that leaves, and its steps."""
        path = self._state.path
        self._session.check_not_forked(path)
        call = Call(self._session, path)
        return call, self._leaving(call)

    def _leaving(self, call: Call) -> Steps[None]:
        session = self._session
        limit = session.now() + session.reply_patience / 2
        self._callers[id(call)] = call
        try:
            self._give_up()
            while not self._over and session.link.connected and (pause := limit - session.now()) > 0:
                yield from self._sleep(pause)
        finally:
            self._callers.pop(id(call), None)

    def _joining(self, call: Call) -> Steps[Self]:
        """Begin the membership, and wait until the node exists."""
        state, session = self._state, self._session
        path = state.path
        session.check_usable(path)
        while (other := state.members.setdefault(self.id, self)) is not self:
            if not other._make_way(call):
                yield from self._sleep(None)  # until it has left
        self._callers[id(call)] = call
        try:
            self._began = True
            try:
                session.link.spawn(self._live, f"member {path}")
            except BaseException:
                self._began = False
                raise
            while not (self._member.joined or self._over):
                yield from self._sleep(None)
        except GeneratorExit:
            raise
        except BaseException:
            self._give_up()
            raise
        finally:
            self._callers.pop(id(call), None)
        if not self._member.joined:
            raise self._error or ClientError(path, "the membership ended before join() returned; join again")
        return self

    def _make_way(self, call: Call) -> bool:
        """Make way for a new membership with this id: end this one, then wake `call`; return whether it has ended."""
        if self._member.wanted:
            raise ValueError(
                f"this client is a member {self.id!r} of the group {self._state.path!r} already: give another id"
            )
        self._callers[id(call)] = call
        # R3: `call` may belong to a signal handler that has interrupted the leave of this membership.
        self._give_up()
        return self._over

    def _sleep(self, pause: float | None) -> Steps[None]:
        yield pause
        self._session.run_posted()

    def forget_tickets(self, _tickets: object) -> None:
        """Give the membership up, because the call of `join` was abandoned. Never waits."""
        self._give_up()

    def _give_up(self) -> None:
        """Have the node deleted. This takes no lock: the clean-up of an abandoned call may run it."""
        member = self._member
        member.wanted = False
        if not self._began and self._state.members.get(self.id) is self:
            self._state.members.pop(self.id, None)
        if (ticket := member.ticket) is not None:
            ticket.changed = True
        if (life := self._life) is not None:
            life.wake()

    def _live(self) -> None:
        """Be a member until the membership is given up or lost; on a thread of the library."""
        member, session = self._member, self._session
        try:
            self._life = call = Call(session, member.path)
            call.of_library = True
            if not wait(call, call.run(stay(member, self._note_joined))):
                self._error = ValueError(
                    f"the group {member.path!r} has another member {member.id!r}: give another id, or wait until the "
                    "session of that member is over (wait=...)"
                )
        except Exception as error:
            self._error = error
        finally:
            if member.ticket is not None:
                session.drop([member.ticket])
            self._state.members.pop(self.id, None)
            self._over = True
            if member.joined and member.wanted:
                self._tell_lost()
            self._wake_callers()

    def _tell_lost(self) -> None:
        session, error, cause = self._session, self._error, self._member.cause
        stopped = isinstance(error, ClientError)
        if stopped:
            gave_up = session.link.gave_up and not session.link.stopping
            cause = LossCause.CLIENT_GAVE_UP if gave_up else LossCause.CLIENT_STOPPED
        self._cause = cause
        with session.lock:
            self._loss.set()
        if not stopped:
            why = "its node is gone" if cause is None else words(LossRecord(cause))
            fields = {"zk_path": self.path, "zk_cause": cause and cause.value}
            # A log handler of the program may raise. The callers must still be woken.
            with suppress(Exception):
                losses.warning("the membership %s is lost: %s, and then: %s", self.path, why, error, extra=fields)

    def _note_joined(self) -> None:
        self._since = self._session.now()
        self._wake_callers()

    def _wake_callers(self) -> None:
        for call in list(self._callers.values()):
            call.wake()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle the membership {self.path!r}: join in the other process")

    def __repr__(self) -> str:
        state = "active" if self.active else "over" if self._over else "away"
        return f"<{kind_of(self)} {state} path={self.path!r}>"


@public
class Membership(BaseMembership):
    """A membership of a group, which `Group.join` returns: a context manager that leaves the group at its end.

    It belongs to the client, not to a thread. It lasts until `leave()` or the client's end, even if the program keeps
    no reference to it.

    Attributes:
        id: the member's id.
        data: the member's data.
    """

    @property
    def lost(self) -> threading.Event:
        """A `threading.Event` that is set when the membership has ended for good without `leave()`.

        It is set if another client took the id while the session was expired, or deleted the node and took the id; if
        the client is stopped; or if ZooKeeper refuses to create the node again. The library also logs a warning, unless
        the client was stopped.
        """
        with self._session.lock:
            return self._loss.event

    def leave(self) -> None:
        """Leave the group. A second call, or one after the membership was lost, does nothing.

        If ZooKeeper is out of reach, the call returns, and the library deletes the node after the reconnect.

        Raises:
            ClientError: the process was forked; the membership belongs to its parent.
        """
        return wait(*self._begin_leave())

    def __enter__(self) -> Membership:  # noqa: PYI034
        return self

    def __exit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        try:
            if not self._session.forked:  # the membership is the parent's
                self.leave()
        except BaseException:
            # If an interrupt struck before the leave, the membership still lasts; otherwise nothing is left to do.
            insist(self._give_up)
            raise


class Group(Primitive):
    """A group of the processes that are present; each member has an id and data, which all clients can see.

    ::

        workers = zkconcurrent.Group(zk, "/app/workers")
        with workers.join(b"10.0.0.7:8000") as me:
            print(workers.members())  # {'5f0c...': b'10.0.0.7:8000', ...}

    A member whose process dies disappears when its session ends. A membership outlives a lost connection. If its
    session expires, the others see the member leave. The member joins again, with the same id and data, as soon as
    ZooKeeper is in reach, as Curator's PersistentNode does.

    Layout:
        `<path>/<id>`, EPHEMERAL, with the data: the znodes of Curator's GroupMember. The path itself is a container.

    Invariant:
        An id has one member at a time, among all programs that use this library. One thread sends all requests of a
        membership, one after the other.

    Cost:
        `join`: 1 write, and 1 read with a watch that `join` does not wait for; each reconnect repeats the read.
        `leave`: 1 write. `members`: 2 reads, and 1 for each member, in 2 round trips. `observe`: before it waits, it
        reads the list and all members once. A change wakes each observer, which reads them again: once, or twice if a
        member came or went. Each membership has its own thread in the library, which mostly sleeps.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the group's path; missing nodes are created as containers.

    Raises:
        TypeError: the path is not a string.
        ValueError: the path is invalid, or this client already uses it for another primitive.

    Source:
        Curator's `GroupMember`.
    """

    _kind = "Group"
    _path_state: GroupState

    def _new_state(self) -> GroupState:
        return GroupState(self._session, self._path, self._kind)

    def join(
        self,
        data: bytes | None = None,
        id: str | None = None,  # noqa: A002
        *,
        wait: float = 0.0,
    ) -> Membership:
        """Join the group; wait until all others can see it.

        Args:
            data: the bytes that the others see; None stands for the host, process, thread and time, as JSON.
            id: a name that no other member has; None generates one.
            wait: how long to wait, in seconds, for an id that another member has. A killed process stays a member until
                its session ends, so a program that restarts with the same id may have to wait that long.

        Returns:
            The membership, a context manager that leaves the group at its end.

        Raises:
            TypeError: the data is not bytes, the id is not a string, or `wait` is not a number.
            ValueError: another member has the id; the id is not a valid node name; or `wait` is negative.
            OverflowError: `wait` is above `threading.TIMEOUT_MAX`.
            ForeignNodeError: a persistent node has the id as its name.
            RefusedError: ZooKeeper does not let this client create the node, or the data is too large.
            ClientError: the client can't be used here.
        """
        _, call, steps = self._begin_join(Membership, data, id, wait)
        if wait:
            self._check_may_block()
        return self._await(call, steps)

    def _begin_join(self, kind: type[M], data: bytes | None, name: str | None, wait: float) -> tuple[M, Call, Steps[M]]:
        """Return a new membership of that class, the call that begins it, and the call's steps."""
        name = check_id(self._path, name)
        check_timeout(True, wait, "wait")
        if wait < 0:
            raise ValueError("wait value must be a non-negative number")
        if data is not None and not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data must be bytes, not {type(data).__name__}")
        said = node_data(self._identity()) if data is None else bytes(data)
        membership = kind(self, name, said, wait)
        call = Call(self._session, self._path, membership)
        return membership, call, membership._joining(call)

    def members(self) -> dict[str, bytes]:
        """Return the data of all members by their ids, in the order of joining; asks the leader."""
        return self._run(members(self._path), dict)

    def observe(self, timeout: float | None = None) -> Iterator[dict[str, bytes]]:
        """Yield what `members` returns: at once, and again after each change.

        Changes that follow each other quickly may be seen as one.

        Args:
            timeout: how long to wait for each change, in seconds; then the iteration ends. None waits forever.

        Raises:
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            ClientError: the client can't be used here.
        """
        self._until(timeout)
        return self._observe(timeout)

    def _observe(self, timeout: float | None) -> Iterator[dict[str, bytes]]:
        seen: dict[str, bytes] | None = None
        while (seen := self._next(seen, timeout)) is not None:
            yield dict(seen)

    def _next(self, seen: dict[str, bytes] | None, timeout: float | None) -> dict[str, bytes] | None:
        call = Call(self._session, self._path)
        return self._await(call, self._await_change(call, seen, self._until(timeout)))

    def _await_change(
        self, call: Call, seen: dict[str, bytes] | None, deadline: float | None
    ) -> Steps[dict[str, bytes] | None]:
        found = yield from call.run(next_members(self._path, seen), None if seen is None else deadline)
        if found is None and seen is not None:
            # A change may have come whose reply was too late. So read a last time, and wait for the replies.
            found = yield from call.run(members(self._path), self._session.now())
            if found is not None and list(found.items()) == list(seen.items()):
                return None
        return found

    def __repr__(self) -> str:
        return f"<{kind_of(self)} at {id(self):#x} path={self._path!r}>"


def check_id(path: str, name: str | None) -> str:
    """Return a member's id; if `name` is None, a new one.

    Raises:
        TypeError: it is not a string.
        ValueError: it is not a valid name of a node.
    """
    if name is None:
        return new_uuid()
    base, _, plain = check_name(path, name).rpartition("/")
    if base != path:
        raise ValueError(f"the id of a member must not contain '/': {name!r}")
    return plain
