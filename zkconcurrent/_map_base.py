"""What `Dict` and `Set` share: the copy that serves their reads, and their writes."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ._engine.driver import Call
from ._engine.holds import PathState
from ._engine.session import Dropped, Session, log
from ._engine.waiting import Steps
from ._errors import ClientError, OutcomeUnknownError
from ._kazoo.link import KazooClient
from ._paths import check_length, check_path, plain
from ._primitive import Primitive, discard_result, node_data
from ._recipes import entries
from ._recipes.entries import Flight, Unknown
from ._recipes.mirror import NEVER, Entry, Layout, Mirror, follow
from ._recipes.operations import Recipe
from ._recipes.ticket import Ticket

T = TypeVar("T")
R = TypeVar("R")
POLL_INTERVAL = 0.5  # seconds


class MirrorState(PathState):
    """The state that all objects of one client and path share: the copy, and the thread that keeps it current.

    Attributes:
        mirror: the copy.
        follower: the thread that keeps it current.
    """

    def __init__(self, session: Session, kind: str, at: Layout) -> None:
        super().__init__(session, at.path, kind)
        self.mirror = Mirror(at, session.lock)
        self.follower = _Follower(self.mirror)
        weakref.finalize(self, _drop, self.mirror, session.dropped).atexit = False

    @property
    def fresh(self) -> bool:
        """Whether the copy was listed on the present connection."""
        link = self.session.link
        return link.connected and self.mirror.listed_on is link.connection

    @property
    def current(self) -> bool:
        """Whether reads may use the copy: it was listed on this connection, or there is no connection to list it on."""
        link, mirror = self.session.link, self.mirror
        return mirror.listed_on is link.connection or (mirror.listed and not link.connected)

    def forget(self) -> None:
        """Serve nothing in a forked child."""
        super().forget()
        self.mirror.listed, self.mirror.listed_on = False, NEVER


class _Follower:
    """The thread that keeps a copy current. It refers to the copy alone, so that dropped objects can be collected.

    Attributes:
        error: the error that has ended the thread.
        thread: the thread's number, while it runs.
    """

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.error: Exception | None = None
        self.thread: int | None = None
        self._idle = deque([True])  # the thread that takes it follows

    def start(self, session: Session) -> None:
        """Start the thread, unless it runs. If several callers start threads at the same time, one of these stays."""
        if self._idle:
            self.error = None
            session.link.handler.spawn(self._follow, session)

    def _follow(self, session: Session) -> None:
        try:
            self._idle.pop()  # here: an interrupt may strike the caller anywhere
        except IndexError:
            return
        mirror, self.thread = self.mirror, session.identity()
        try:
            while not mirror.closed:
                call = Call(session, mirror.at.path)
                call.wait(call.run(self._told(session)))
        except Exception as error:
            self.error = error
            log.debug("the copy of %s is not kept current any more: %r", mirror.at.path, error)
        finally:
            mirror.listed, mirror.listed_on = False, NEVER
            mirror.end(mirror)  # a read of it may have failed
            session.stop_watching_tree(mirror.at.entries, mirror.changes)
            self.thread = None
            self._idle.append(True)
            session.wake_calls()

    def _told(self, session: Session) -> Recipe[None]:
        return follow(self.mirror, session.wake_calls)


def _drop(mirror: Mirror, dropped: Any) -> None:
    """Finalize: only queue the work, as a finalizer may run anywhere."""
    dropped.append(Dropped([], [writer.ticket for writer in mirror.writers]))
    mirror.close()


class _Landing:
    """Ends the flight of a call. Does so again if an interrupt strikes meanwhile and the call is abandoned."""

    def __init__(self, session: Session, flight: Flight) -> None:
        self._session = session
        self._flight = flight

    def drop_tickets(self, _tickets: Sequence[Ticket]) -> None:
        """Give the writer back, or discard it if it is unknown what was applied."""
        if (useless := self._flight.end()) is not None:
            self._session.dropped.append(Dropped([], [useless]))
            self._session.wake_keeper()


class MapBase(Primitive):
    """The methods that `Dict` and `Set` share."""

    _path_state: MirrorState

    def __init__(self, client: KazooClient, path: str, *, ephemeral: bool = False) -> None:
        self._ephemeral = bool(ephemeral)
        self._layout = Layout(check_path(path), self._kind, self._ephemeral)
        super().__init__(client, path)
        self._mirror = mirror = self._path_state.mirror
        self._link = self._session.link
        if mirror.at != self._layout:
            raise ValueError(
                f"this client has made the {self._kind} at {path!r} with ephemeral={mirror.at.ephemeral}, not "
                f"{self._layout.ephemeral}: all must give the same"
            )

    def _new_state(self) -> MirrorState:
        return MirrorState(self._session, self._kind, self._layout)

    @property
    def stale(self) -> bool:
        """Whether the copy may be old: no server is in reach, or it is from an earlier connection. Sends nothing."""
        mirror = self._mirror
        return self._session.suspect or mirror.listed_on is not self._link.connection

    def ready(self) -> None:
        """Wait until the copy is listed on the present connection. Without this call, the first read waits for that.

        Raises:
            ClientError: the client can't be used here.
            ForeignNodeError: the path belongs to something else.
            ValueError: other clients use the path with another `ephemeral`.
        """
        return self._catch_up(False)

    def clear(self) -> None:
        """Remove all entries that exist when the call begins."""
        return self._write(entries.clear, discard_result)

    def destroy(self) -> None:
        """Remove all nodes, entries included.

        Raises:
            RuntimeError: another client has written here in its present session; nothing was deleted. If that client
                came during the call, and there were more than 100 entries, some entries may be gone.
            ClientError: the client can't be used here.
            ForeignNodeError: the path belongs to something else, and no node of that is deleted. If one of our own
                nodes has children, some of the others may be gone.
        """
        return self._run(entries.destroy(self._mirror), self._check_unused)

    # -- how ---------------------------------------------------------------------------------------------------------

    def _copy(self) -> dict[str, Entry]:
        """Return the copy, as soon as it may be served."""
        mirror = self._mirror
        if mirror.listed_on is not self._link.connection:
            self._await_copy()
        return mirror.entries

    def _await_copy(self) -> None:
        if not self._path_state.current:
            self._catch_up(True)

    def _catch_up(self, serves_old: bool) -> None:
        """Wait until the copy is listed. With `serves_old`, an earlier listing will do while no server is in reach."""
        session, state = self._session, self._path_state
        call = Call(session, self._path)

        def steps() -> Steps[None]:
            began = False
            while not (state.current if serves_old else state.fresh):
                session.check_usable(self._path)
                if began and (error := state.follower.error) is not None:
                    raise error.with_traceback(None)
                state.follower.start(session)
                began = True
                yield POLL_INTERVAL
                session.run_posted()

        if state.follower.thread == session.identity():
            raise ClientError(
                self._path,
                "a finalizer reads the copy on the thread that updates it, and would wait for it: use another thread",
            )
        self._check_may_block()
        return self._await(call, steps())

    def _write(self, make: Callable[[Flight], Recipe[T]], then: Callable[[T], R]) -> R:
        """Run a write; return `then(result)`."""
        session = self._session
        flight = Flight(self._mirror, node_data(self._identity()))
        landing = _Landing(session, flight)
        call = Call(session, self._path, landing)

        def steps() -> Steps[R]:
            flight.mirror.begin(flight)
            try:
                result: Any = yield from call.run(make(flight))
            except Unknown:
                raise OutcomeUnknownError(
                    self._path,
                    "the session ended, so it is unknown whether the write was applied; read the entry, and decide "
                    "whether to repeat the write",
                ) from None
            finally:
                landing.drop_tickets([])
            return then(result)

        return self._await(call, steps())

    def _check_key(self, key: Any) -> str:
        """Return the key, if an entry can have it.

        Raises:
            TypeError: it is not a string.
            ValueError: it is empty, or too long.
        """
        if not isinstance(key, str):
            raise TypeError(f"a key must be a str, not {type(key).__name__}")
        if not key:
            raise ValueError("a key must not be empty")
        check_length("the path of a key", self._layout.entry(key))
        return plain(key)

    def __repr__(self) -> str:
        mirror = self._mirror
        known = f"{len(mirror.entries)} entries{', stale' * self.stale}" if mirror.listed else "not read yet"
        return f"<zkconcurrent.{type(self).__name__} at {id(self):#x} path={self._path!r}: {known}>"
