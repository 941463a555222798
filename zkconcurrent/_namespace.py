"""`namespace`: the names of `threading`, for one base path in ZooKeeper or for this process alone.

A program uses these names, and chooses at its start which of the two it gets. Both make the same checks: a name is a
path below the base, it belongs to one kind of object, and two names do not nest.
"""

from __future__ import annotations

# The classes get an underscore: inside the class below, their names are its methods.
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from ._arguments.codec import BYTES as _BYTES
from ._arguments.codec import JSON as _JSON
from ._arguments.codec import Codec as _Codec
from ._arguments.paths import check_name, check_path
from ._engine.session import Session
from ._kazoo.link import KazooClient
from ._local.namespace import LocalNamespace, check_names
from ._runtime.public import public
from ._threads.atomic import AtomicInteger as _AtomicInteger
from ._threads.atomic import AtomicLong as _AtomicLong
from ._threads.barrier import Barrier as _Barrier
from ._threads.base.primitive import PickledByPath
from ._threads.condition import Condition as _Condition
from ._threads.dict import Dict as _Dict
from ._threads.double_barrier import DoubleBarrier as _DoubleBarrier
from ._threads.election import Election as _Election
from ._threads.event import Event as _Event
from ._threads.group import Group as _Group
from ._threads.latch import CountDownLatch as _CountDownLatch
from ._threads.lock import Lock as _Lock
from ._threads.multilock import MultiLock as _MultiLock
from ._threads.queue import DelayQueue as _DelayQueue
from ._threads.queue import LifoQueue as _LifoQueue
from ._threads.queue import PriorityQueue as _PriorityQueue
from ._threads.queue import Queue as _Queue
from ._threads.queue import SimpleQueue as _SimpleQueue
from ._threads.rlock import RLock as _RLock
from ._threads.rwlock import ReadWriteLock as _ReadWriteLock
from ._threads.semaphore import BoundedSemaphore as _BoundedSemaphore
from ._threads.semaphore import Semaphore as _Semaphore
from ._threads.set import Set as _Set
from ._threads.shared_value import SharedValue as _SharedValue

if TYPE_CHECKING:
    from ._connect import Client

OnLost: TypeAlias = Callable[[Any], object]


class BasePath(PickledByPath):
    """A path of one client, below which all names lie."""

    _package = "zkconcurrent"

    def __init__(self, client: KazooClient, path: str) -> None:
        Session.of(client)  # raises TypeError if it is not a client
        self._client = client
        self._path = "/" if path == "/" else check_path(path)

    @property
    def client(self) -> KazooClient:
        """The kazoo client."""
        return self._client

    @property
    def path(self) -> str:
        """The base path of all names."""
        return self._path

    def _at(self, name: str) -> str:
        return check_name(self._path, name)

    def __repr__(self) -> str:
        return f"<{self._package}.{type(self).__name__} path={self._path!r}>"


@public
class SharedNamespace(BasePath):
    """The names of `threading` for all processes that open the same base path: see `namespace`."""

    def Lock(  # noqa: N802 - as threading has it
        self, name: str, *, fair: bool = True, on_lost: OnLost | None = None
    ) -> _Lock:
        """Return the `Lock` with that name."""
        return _Lock(self._client, self._at(name), fair=fair, on_lost=on_lost)

    def RLock(self, name: str, *, fair: bool = True, on_lost: OnLost | None = None) -> _RLock:  # noqa: N802
        """Return the `RLock` with that name."""
        return _RLock(self._client, self._at(name), fair=fair, on_lost=on_lost)

    def Condition(self, name: str, lock: _Lock | _RLock | None = None) -> _Condition:  # noqa: N802
        """Return the `Condition` with that name."""
        return _Condition(self._client, self._at(name), lock)

    def Semaphore(self, name: str, value: int | None = 1, *, on_lost: OnLost | None = None) -> _Semaphore:  # noqa: N802
        """Return the `Semaphore` with that name."""
        return _Semaphore(self._client, self._at(name), value, on_lost=on_lost)

    def BoundedSemaphore(  # noqa: N802
        self, name: str, value: int | None = 1, *, on_lost: OnLost | None = None
    ) -> _BoundedSemaphore:
        """Return the `BoundedSemaphore` with that name."""
        return _BoundedSemaphore(self._client, self._at(name), value, on_lost=on_lost)

    def Event(self, name: str) -> _Event:  # noqa: N802
        """Return the `Event` with that name."""
        return _Event(self._client, self._at(name))

    def Barrier(  # noqa: N802
        self, name: str, parties: int, action: Callable[[], object] | None = None, timeout: float | None = None
    ) -> _Barrier:
        """Return the `Barrier` with that name."""
        return _Barrier(self._client, self._at(name), parties, action, timeout)

    def ReadWriteLock(self, name: str, *, on_lost: OnLost | None = None) -> _ReadWriteLock:  # noqa: N802
        """Return the `ReadWriteLock` with that name."""
        return _ReadWriteLock(self._client, self._at(name), on_lost=on_lost)

    def CountDownLatch(self, name: str, count: int) -> _CountDownLatch:  # noqa: N802
        """Return the `CountDownLatch` with that name."""
        return _CountDownLatch(self._client, self._at(name), count)

    def Election(  # noqa: N802
        self,
        name: str,
        *,
        id: str | None = None,  # noqa: A002
        layout: str = "selector",
    ) -> _Election:
        """Return the `Election` with that name."""
        return _Election(self._client, self._at(name), id=id, layout=layout)

    def AtomicLong(self, name: str) -> _AtomicLong:  # noqa: N802
        """Return the `AtomicLong` with that name."""
        return _AtomicLong(self._client, self._at(name))

    def AtomicInteger(self, name: str) -> _AtomicInteger:  # noqa: N802
        """Return the `AtomicInteger` with that name."""
        return _AtomicInteger(self._client, self._at(name))

    def SharedValue(  # noqa: N802
        self, name: str, value: Any, *, codec: _Codec = _BYTES
    ) -> _SharedValue[Any]:
        """Return the `SharedValue` with that name."""
        return _SharedValue(self._client, self._at(name), value, codec=codec)

    AtomicReference = SharedValue

    def DoubleBarrier(self, name: str, parties: int) -> _DoubleBarrier:  # noqa: N802
        """Return the `DoubleBarrier` with that name."""
        return _DoubleBarrier(self._client, self._at(name), parties)

    def Group(self, name: str) -> _Group:  # noqa: N802
        """Return the `Group` with that name."""
        return _Group(self._client, self._at(name))

    def Queue(  # noqa: N802
        self, name: str, maxsize: int = 0, *, codec: _Codec = _BYTES, max_attempts: int | None = None
    ) -> _Queue[Any]:
        """Return the `Queue` with that name."""
        return _Queue(self._client, self._at(name), maxsize, codec=codec, max_attempts=max_attempts)

    def LifoQueue(  # noqa: N802
        self, name: str, maxsize: int = 0, *, codec: _Codec = _BYTES, max_attempts: int | None = None
    ) -> _LifoQueue[Any]:
        """Return the `LifoQueue` with that name."""
        return _LifoQueue(self._client, self._at(name), maxsize, codec=codec, max_attempts=max_attempts)

    def PriorityQueue(  # noqa: N802
        self,
        name: str,
        maxsize: int = 0,
        *,
        codec: _Codec = _JSON,
        max_attempts: int | None = None,
        priority: Callable[[Any], float] | None = None,
        floats: bool = False,
    ) -> _PriorityQueue[Any]:
        """Return the `PriorityQueue` with that name."""
        more: dict[str, Any] = {"codec": codec, "max_attempts": max_attempts, "priority": priority, "floats": floats}
        return _PriorityQueue(self._client, self._at(name), maxsize, **more)

    def DelayQueue(  # noqa: N802
        self, name: str, maxsize: int = 0, *, codec: _Codec = _BYTES, max_attempts: int | None = None
    ) -> _DelayQueue[Any]:
        """Return the `DelayQueue` with that name."""
        return _DelayQueue(self._client, self._at(name), maxsize, codec=codec, max_attempts=max_attempts)

    def SimpleQueue(  # noqa: N802
        self, name: str, *, codec: _Codec = _BYTES, max_attempts: int | None = None
    ) -> _SimpleQueue[Any]:
        """Return the `SimpleQueue` with that name."""
        return _SimpleQueue(self._client, self._at(name), codec=codec, max_attempts=max_attempts)

    def Dict(  # noqa: N802
        self, name: str, *, codec: _Codec = _BYTES, ephemeral: bool = False
    ) -> _Dict[Any]:
        """Return the `Dict` with that name."""
        return _Dict(self._client, self._at(name), codec=codec, ephemeral=ephemeral)

    def Set(self, name: str, *, ephemeral: bool = False) -> _Set:  # noqa: N802
        """Return the `Set` with that name."""
        return _Set(self._client, self._at(name), ephemeral=ephemeral)

    def MultiLock(self, names: Iterable[str], *, on_lost: OnLost | None = None) -> _MultiLock:  # noqa: N802
        """Return a `MultiLock` of the RLocks with those names."""
        return _MultiLock([self.RLock(name) for name in check_names(names)], on_lost=on_lost)


Namespace: TypeAlias = SharedNamespace | LocalNamespace


@overload  # first: without kazoo's types a Client derives from Any, and matches every overload
@public
def namespace(client: Client, path: str = "/") -> SharedNamespace: ...
@overload
@public
def namespace(client: Literal["local"], path: str = "/") -> LocalNamespace: ...
@overload
@public
def namespace(client: KazooClient, path: str = "/") -> SharedNamespace: ...
@public
def namespace(client: KazooClient | Literal["local"], path: str = "/") -> Namespace:
    """Return an object with the names of `threading`, for ZooKeeper or for this process alone.

    After `threads = namespace(zk, "/app")`, `threads.RLock("cart")` is the RLock at `/app/cart`. `Lock`, `Condition`,
    `Semaphore`, `BoundedSemaphore`, `Event`, `Barrier`, `ReadWriteLock` and `CountDownLatch` work alike: the first
    argument is a name, and the other positional arguments are those of the class. So do `Queue`, `LifoQueue`,
    `PriorityQueue` and `SimpleQueue`, with the arguments of `queue`, and `DelayQueue`, `DoubleBarrier`, `Group`,
    `Election`, `AtomicLong`, `AtomicInteger`, `SharedValue`, `Dict` and `Set`. `threads.MultiLock(["cart", "stock"])`
    is made of RLocks.

    `threads = namespace("local")` has the same names on the standard library alone: the same name gives the same
    object. Each local namespace is independent of all others, so each test makes its own. A program then differs from
    one for `threading` only by the names it passes. `Namespace` is the type of both.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later; or "local".
        path: the base path of all names. No name can leave it.

    Raises:
        TypeError: the client is neither.
        ValueError: the path is invalid. The namespace's methods raise it if a name is invalid, or belongs to another
            kind of object.

    Source:
        The module `threading`.
    """
    return LocalNamespace(path) if is_local(client) else SharedNamespace(client, path)


def is_local(client: object) -> bool:
    """Return whether a namespace is for this process alone.

    Raises:
        ValueError: the client is text other than "local". The error does not show it: it may be a URL with a password.
    """
    if isinstance(client, str) and client != "local":
        raise ValueError("a namespace needs a KazooClient, such as connect(url) returns, or 'local'")
    return isinstance(client, str)
