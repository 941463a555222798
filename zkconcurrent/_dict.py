"""`Dict` and `Set`: a map, and a set of strings, that all processes share; reads come from a local copy."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    MutableMapping,
    MutableSet,
    Sequence,
    ValuesView,
)
from typing import Any, TypeVar, overload

from ._codec import BYTES, Codec, check_codec, encoded, equal
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
V = TypeVar("V")
R = TypeVar("R")
POLL_INTERVAL = 0.5


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


class Mirrored(Primitive):
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
            ForeignNodeError: the path belongs to something else; nothing was deleted.
        """

        def destroyed(others: list[str]) -> None:
            if others:
                raise RuntimeError(
                    f"the {self._kind} at {self._path!r} is in use; destroy it when these have stopped: {others[:5]}"
                )

        return self._run(entries.destroy(self._mirror), destroyed)

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


_MISSING: Any = object()
_TAKEN: Any = object()  # a default, where `_MISSING` means that there is none


class Dict(Mirrored, MutableMapping[str, V]):
    """A dictionary of strings to values that all processes share. Reads come from a local copy, and send nothing.

    A watch keeps the copy current: another client's write shows as soon as its event has arrived. Two promises hold in
    this client: after `d[k] = v`, `d[k]` is `v` or a later value; and no read returns an older value than an earlier
    read. While no server is in reach, reads return the last known values, and `stale` is True. Once a server is in
    reach again, reads wait until the entries have been listed again.

    Iteration is weakly consistent, like that of `ConcurrentHashMap`: it shows the keys that exist when it begins, never
    raises because of a change, and may or may not show later changes.

    Layout:
        `<path>`, PERSISTENT, whose version counts the entries created and deleted; `<path>/entries/<key>`, PERSISTENT,
        or EPHEMERAL with `ephemeral`, with the encoded value; `<path>/writers/_c_<uuid>-writer-<number>`, EPHEMERAL,
        one for each of a client's concurrent writes. The nodes above are containers.

    Invariant:
        Each write is applied once, even if its reply is lost: it is one request that also writes the client's own
        writer, in a known version. `replace` and `remove` with an old value, `setdefault` and `pop` are atomic.

    Cost:
        A read: nothing. `d[k] = v` and `del d[k]`: one write. `setdefault`: one write or two reads; `replace` with an
        old value, `remove` and `pop`: three reads and one write, in two round trips. Each change costs every other
        client that reads the map one event and one read. The first read, and each reconnect: four requests, and a read
        for each entry.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: the map's path; the first write makes the missing nodes.
        codec: turns values into bytes and back: `BYTES`, `TEXT`, `JSON`, `MSGPACK`, or any object with `encode` and
            `decode`. Each read decodes the value again, so changing a returned object changes nothing else.
        ephemeral: whether an entry ends with the session of the client that wrote it. All processes must give the same.

    Raises:
        TypeError: the path is not a string, or the codec lacks a method.
        ValueError: the path is invalid; or this client already uses it for another primitive, or with another
            `ephemeral`. The first use raises it if other clients use the path with another `ephemeral`.

    Source:
        `collections.abc.MutableMapping`; java.util.concurrent's `ConcurrentMap`.
    """

    _kind = "Dict"

    def __init__(self, client: KazooClient, path: str, *, codec: Codec = BYTES, ephemeral: bool = False) -> None:
        self._codec = check_codec(codec)
        super().__init__(client, path, ephemeral=ephemeral)

    # -- reads -------------------------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> V:
        return self._codec.decode(self._copy()[key].data)  # type: ignore[no-any-return]

    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, default: V, /) -> V: ...
    @overload
    def get(self, key: str, default: T, /) -> V | T: ...
    def get(self, key: str, default: Any = None, /) -> Any:
        """Return the value of a key, or the default."""
        found = self._copy().get(key)
        return default if found is None else self._codec.decode(found.data)

    def __contains__(self, key: object) -> bool:
        return key in self._copy()

    def __len__(self) -> int:
        return len(self._copy())

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._copy()))

    def keys(self) -> KeysView[str]:
        """Return a view of the keys."""
        return KeysView(self)

    def items(self) -> ItemsView[str, V]:
        """Return a view of the keys and values."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Return a view of the values."""
        return _Values(self)

    def copy(self) -> dict[str, V]:
        """Return a `dict` with all entries. `dict(d)` reads key by key, and raises `KeyError` if one is removed."""
        return dict(self._decoded())

    def _decoded(self) -> Iterator[tuple[str, V]]:
        decode = self._codec.decode
        return ((key, decode(entry.data)) for key, entry in list(self._copy().items()))

    # -- writes ------------------------------------------------------------------------------------------------------

    def __setitem__(self, key: str, value: V) -> None:
        self._put(key, value)

    def _put(self, key: str, value: V) -> None:
        key, data = self._check_key(key), self._encode(value)
        return self._write(lambda flight: entries.put(flight, key, data), discard_result)

    def __delitem__(self, key: str) -> None:
        self._delete(key)

    def _delete(self, key: str) -> None:
        def deleted(there: bool) -> None:
            if not there:
                raise KeyError(key)

        if not isinstance(key, str) or not key:
            raise KeyError(key)
        checked = self._check_key(key)
        return self._write(lambda flight: entries.delete(flight, checked), deleted)

    def update(self, other: Any = (), /, **kwds: V) -> None:
        """Set the value of each key, one after the other."""
        super().update(other.copy() if isinstance(other, Dict) else other, **kwds)

    def setdefault(self, key: str, default: Any = None, /) -> Any:
        """Return the value of a key; if the key is missing, set it to the default first. Atomic; asks ZooKeeper."""
        key, data = self._check_key(key), self._encode(default)

        def done(there: bytes | None) -> Any:
            return default if there is None else self._codec.decode(there)

        return self._write(lambda flight: entries.put_if_absent(flight, key, data), done)

    @overload
    def replace(self, key: str, value: V, /) -> bool: ...
    @overload
    def replace(self, key: str, old: V, new: V, /) -> bool: ...
    def replace(self, key: str, old: Any, new: Any = _MISSING, /) -> bool:
        """Replace a key's value: `replace(key, value)` if it has any, `replace(key, old, new)` if it has `old`.

        Atomic: of several clients that replace the same value, one succeeds.

        Returns:
            Whether the value was replaced.
        """
        key, data = self._check_key(key), self._encode(old if new is _MISSING else new)
        matches = _anything if new is _MISSING else self._equals(old)
        return self._write(lambda flight: entries.replace(flight, key, data, matches), bool)

    def remove(self, key: str, value: V, /) -> bool:
        """Remove a key if it has that value; return whether it was removed. Atomic."""
        key, matches = self._check_key(key), self._equals(value)
        return self._write(lambda flight: entries.take(flight, key, matches), lambda found: found is not None)

    @overload
    def pop(self, key: str, /) -> V: ...
    @overload
    def pop(self, key: str, default: V, /) -> V: ...
    @overload
    def pop(self, key: str, default: T, /) -> V | T: ...
    def pop(self, key: str, default: Any = _MISSING, /) -> Any:
        """Remove a key and return its value, or the default if it is missing. Only one client gets the value.

        Raises:
            KeyError: the key is missing, and there is no default.
        """
        value: Any = None

        def decoded(data: bytes) -> bool:
            nonlocal value
            value = self._codec.decode(data)  # before it is removed: what the codec can't decode stays
            return True

        def popped(found: bytes | None) -> Any:
            if found is not None:
                return value
            if default is _MISSING:
                raise KeyError(key)
            return default

        checked = self._check_key(key)
        return self._write(lambda flight: entries.take(flight, checked, decoded), popped)

    def popitem(self) -> tuple[str, V]:
        """Remove an arbitrary entry and return its key and value. Only one client gets it.

        Raises:
            KeyError: there are no entries.
        """
        for key in self:
            if (value := self.pop(key, _TAKEN)) is not _TAKEN:
                return key, value
        raise KeyError(f"{self._path!r} has no entries")

    def _encode(self, value: V) -> bytes:
        return encoded(self._codec, value, self._path)

    def _equals(self, value: V) -> Callable[[bytes], bool]:
        return lambda data: equal(self._codec, data, value)


def _anything(_: bytes) -> bool:
    return True


class _Items(ItemsView[str, V]):
    """A view of the items. It reads each entry once, as a key may be gone before a second read."""

    _mapping: Dict[V]

    def __iter__(self) -> Iterator[tuple[str, V]]:
        return self._mapping._decoded()


class _Values(ValuesView[V]):
    """The values."""

    _mapping: Dict[V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping._decoded())

    def __contains__(self, value: object) -> bool:
        return any(each is value or each == value for each in self)


class Set(Mirrored, MutableSet[str]):
    """A set of strings that all processes share. Reads come from a local copy, and send nothing; see `Dict`.

    Operators such as `|` and `-` return a `set`.

    Layout:
        As a `Dict`'s: an element is a key without data.

    Cost:
        As a `Dict`'s; `add`: one write, or two reads if the element is there; `discard` and `remove`: one write.

    Args:
        client: see `Dict`.
        path: see `Dict`.
        ephemeral: whether an element ends with the session of the client that added it last.

    Source:
        `collections.abc.MutableSet`.
    """

    _kind = "Set"

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> set[Any]:
        return set(it)

    def __contains__(self, element: object) -> bool:
        return element in self._copy()

    def __len__(self) -> int:
        return len(self._copy())

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._copy()))

    def add(self, value: str) -> None:
        """Add an element; if it is there already, change nothing."""
        key = self._check_key(value)
        add: Any = entries.put if self._layout.ephemeral else entries.put_if_absent
        return self._write(lambda flight: add(flight, key, b""), discard_result)

    def discard(self, value: str) -> None:
        """Remove an element, if it is there."""
        return self._discard(value, discard_result)

    def remove(self, value: str) -> None:
        """Remove an element.

        Raises:
            KeyError: the element is not there.
        """

        def removed(there: bool) -> None:
            if not there:
                raise KeyError(value)

        return self._discard(value, removed)

    def _discard(self, value: str, then: Callable[[bool], None]) -> None:
        key = self._check_key(value)
        return self._write(lambda flight: entries.delete(flight, key), then)

    def pop(self) -> str:
        """Remove an arbitrary element and return it. Only one client gets it.

        Raises:
            KeyError: there are no elements.
        """
        for key in self:
            if self._write(lambda flight, key=key: entries.delete(flight, key), bool):  # type: ignore[misc]
                return key
        raise KeyError(f"{self._path!r} has no elements")
