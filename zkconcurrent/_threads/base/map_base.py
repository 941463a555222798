"""What `Dict` and `Set` share: the copy that serves their reads, and their writes."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from ..._arguments.paths import check_length, check_path, plain
from ..._engine.call import Call
from ..._engine.holds import PathState
from ..._engine.session import LeftTickets, Session, log
from ..._errors import OutcomeUnknownError
from ..._kazoo.link import KazooClient
from ..._protocol.operations import Recipe
from ..._protocol.ticket import Ticket
from ..._recipes.map import write
from ..._recipes.map.mirror import NEVER, Entry, MapLayout, Mirror, follow
from ..._recipes.map.write import MapWrite
from ..._recipes.receipts import OutcomeLost
from ..._runtime.this_process import choices
from ..._runtime.wait_loops import Steps
from ..._runtime.worker import Worker
from .node_data import node_data
from .primitive import Primitive, discard_result, kind_of

T = TypeVar("T")
R = TypeVar("R")
POLL_INTERVAL = 0.5  # seconds


class MirrorState(PathState):
    """The state that all objects of one client and path share: the copy, and its follower.

    Attributes:
        mirror: the copy.
        follower: the follower, which keeps the copy current.
    """

    def __init__(self, session: Session, kind: str, at: MapLayout) -> None:
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
        """Whether reads may use the copy: it was listed on this connection, or there is no connection."""
        link, mirror = self.session.link, self.mirror
        return mirror.listed_on is link.connection or (mirror.listed and not link.connected)

    def forget(self) -> None:
        """Forget the copy in a forked child."""
        super().forget()
        self.mirror.listed, self.mirror.listed_on = False, NEVER
        # A thread of the parent may have the old lock.
        self.mirror.guard = self.session.lock


class _Closed(Exception):
    """No object uses the copy any more."""


class _Follower:
    """Keeps a copy current, on a thread. It refers only to the copy, so that dropped objects can be garbage collected.

    Attributes:
        error: the error that has ended the thread; None if there is none.
    """

    def __init__(self, mirror: Mirror) -> None:
        self.error: Exception | None = None
        self._mirror = mirror
        self._worker = Worker(())

    @property
    def runs(self) -> bool:
        """Whether a thread keeps the copy current."""
        return not self._worker.idle

    def start(self, session: Session) -> None:
        """Have the thread started, unless it runs: by the keeper, as an interrupt may strike a start on this thread."""
        keeper, name = session.keeper, f"map {self._mirror.at.path}"
        if not self.runs:
            self.error = None
        self._worker.start(lambda run: keeper.start_soon(partial(keeper.spawn, run, name)), partial(self._run, session))

    def _run(self, session: Session) -> None:
        mirror = self._mirror
        try:
            while not mirror.closed:
                call = Call(session, mirror.at.path)
                # While no server is in reach, nothing else would end the wait for a map whose last object has gone.
                call.why_end = lambda: _Closed() if mirror.closed else None
                call.wait(call.run(follow(mirror, session.wake_calls)))
        except _Closed:
            pass
        except Exception as error:
            self.error = error
            log.debug("the copy of %s is not kept current any more: %r", mirror.at.path, error)
        finally:
            mirror.listed, mirror.listed_on = False, NEVER
            session.stop_watching_tree(mirror.at.entries, mirror.changes)
            session.wake_calls()


def _drop(mirror: Mirror, dropped: deque[LeftTickets]) -> None:
    """Queue the work of a finalizer, and close the copy. Do nothing else, as a finalizer may run at any line."""
    dropped.append(LeftTickets([], [each.member for each in mirror.idle if each.member is not None]))
    mirror.close()


class EndWrite:
    """Ends the write of a call. If an interrupt strikes meanwhile, the abandoned call ends the write again (R3)."""

    def __init__(self, session: Session, map_write: MapWrite) -> None:
        self._session = session
        self._map_write = map_write

    def forget_tickets(self, _tickets: Sequence[Ticket]) -> None:
        """Give the writer back; discard it if it is unknown whether the write was applied."""
        if (useless := self._map_write.finish_write()) is not None:
            self._session.dropped.append(LeftTickets([], [useless]))
            self._session.wake_keeper()


class MapBase(Primitive):
    """The methods that `Dict` and `Set` share."""

    _path_state: MirrorState

    def __init__(self, client: KazooClient, path: str, *, ephemeral: bool = False) -> None:
        self._ephemeral = bool(ephemeral)
        self._layout = MapLayout(check_path(path), self._kind, self._ephemeral)
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
        """Wait until the copy is listed on the present connection. Otherwise the first read waits for that.

        Raises:
            ClientError: the client can't be used here.
            ForeignNodeError: the path belongs to something else.
            ValueError: other clients use the path with another `ephemeral`.
        """
        return self._catch_up(False)

    def clear(self) -> None:
        """Remove all entries that exist when the call begins."""
        return self._write(write.clear, discard_result)

    def destroy(self) -> None:
        """Remove all nodes, entries included.

        Raises:
            RuntimeError: another client has written here in its present session; nothing was deleted. If that client
                came during the call, and there were more than 1,000 entries, some entries may be gone.
            ClientError: the client can't be used here.
            ForeignNodeError: the path has other nodes; none of them is deleted.
        """
        return self._run(write.destroy(self._mirror), self._destroyed)

    def __contains__(self, key: object) -> bool:
        return key in self._copy()

    def __len__(self) -> int:
        return len(self._copy())

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._copy()))

    # -- how ---------------------------------------------------------------------------------------------------------

    def _copy(self) -> dict[str, Entry]:
        """Return the copy, as soon as it may be served."""
        mirror = self._mirror
        if mirror.listed_on is not self._link.connection:
            self._await_copy()
        return mirror.entries

    def _any_key(self) -> str | None:
        """Return a random key of the copy, so that clients seldom choose the same; None if there is none."""
        keys = list(self._copy())
        return choices.choice(keys) if keys else None

    def _await_copy(self) -> None:
        if not self._path_state.current:
            self._catch_up(True)

    def _catch_up(self, serves_old: bool) -> None:
        """Wait until the copy is listed. With `serves_old`, an earlier listing suffices while no server is in reach."""
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

        self._check_may_block()
        return self._await(call, steps())

    def _write(self, make: Callable[[MapWrite], Recipe[T]], then: Callable[[T], R]) -> R:
        """Run a write; return `then(result)`."""
        session = self._session
        map_write = MapWrite(self._mirror, node_data(self._identity()))
        ending = EndWrite(session, map_write)
        call = Call(session, self._path, ending)

        def steps() -> Steps[R]:
            map_write.view.note_begun(map_write)
            try:
                result: Any = yield from call.run(make(map_write))
            except OutcomeLost:
                raise OutcomeUnknownError(
                    self._path,
                    "the session ended, or the servers were restored from a backup, so it is unknown whether the "
                    "write was applied; read the entry, and decide whether to repeat the write",
                ) from None
            finally:
                ending.forget_tickets([])
            return then(result)

        return self._await(call, steps())

    def _remove(self, key: object, make: Callable[[MapWrite, str], Recipe[T]], missing: T, then: Callable[[T], R]) -> R:
        """Run a write that may remove the entry of a key. `then` gets `missing` for a key that no entry can have.

        Raises:
            TypeError: the key is not hashable.
        """
        hash(key)
        if not isinstance(key, str) or not key:
            return self._write(lambda _: write.nothing(missing), then)
        found = plain(key)
        return self._write(lambda map_write: make(map_write, found), then)

    def _check_key(self, key: object) -> str:
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
        return f"<{kind_of(self)} at {id(self):#x} path={self._path!r}: {known}>"
