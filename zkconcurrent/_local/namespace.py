"""A namespace on the standard library alone: for tests without a server, and for programs of one process.

Where `threading` has the class, the objects are `threading`'s own; a wrapper around its locks warns, as the shared
locks do, if a lock is dropped while it is held. The others are minimal implementations with the rules of the shared
ones: first come, first served, and re-entrant if the shared one is.
"""

from __future__ import annotations

import itertools
import queue
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from .._arguments.codec import BYTES, Codec, check_codec
from .._arguments.limits import check_int, check_max_attempts
from .._arguments.paths import ancestors, check_name, check_path
from .._runtime.public import public
from .._threads.base.candidacy import check_layout
from .._threads.base.primitive import check_on_lost
from .._threads.election import candidate_id
from . import (
    dict as _local_dict,
)
from . import (
    election as _local_election,
)
from . import (
    group as _local_group,
)
from . import (
    queue as _local_queue,
)
from . import (
    value as _local_value,
)
from .lock import CountDownLatch, Lock, MultiLock, ReadWriteLock, RLock, Side

T = TypeVar("T")


class NamedObjects:
    """The objects of this process by their names: one for each name, while the program keeps a reference to it."""

    _package = "zkconcurrent"

    def __init__(self, path: str = "/") -> None:
        self._path = "/" if path == "/" else check_path(path)
        self._lock = threading.Lock()
        self._objects: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._made_as: weakref.WeakKeyDictionary[Any, tuple[str, dict[str, object]]] = weakref.WeakKeyDictionary()
        self._kept: list[object] = []

    @property
    def path(self) -> str:
        """The base path of all names, as it would be in ZooKeeper."""
        return self._path

    def _at(self, name: str) -> str:
        return check_name(self._path, name)

    def _one(self, kind: str, name: str, make: Callable[[], T], *, keep: bool = False, **terms: object) -> T:
        """Return the object with that name; make it if there is none.

        Raises:
            ValueError: the name is bad, nests with another, or belongs to an object of another kind or with other
                arguments.
        """
        path = self._at(name)
        with self._lock:
            found = self._objects.get(path)
            if found is None:
                live = list(self._objects)
                if below := [each for each in live if each.startswith(f"{path}/") or each in ancestors(path)]:
                    raise ValueError(f"{path!r} and {below[0]!r} nest; paths of different objects must not")
                found = self._objects[path] = make()
                self._made_as[found] = kind, terms
                if keep:
                    self._kept.append(found)
            made_as, made_on = self._made_as[found]
        if made_as != kind:
            raise ValueError(f"this namespace uses {path!r} for {made_as} already; use another path for {kind}")
        for term, value in terms.items():
            if made_on[term] is not value and made_on[term] != value:
                raise ValueError(f"{path!r} was made with {term}={made_on[term]!r}, not {value!r}")
        return found

    def _queue(
        self, kind: str, name: str, maxsize: int, codec: Codec[Any], max_attempts: int | None, make: Callable[[int], T]
    ) -> T:
        size = max(0, check_int("maxsize", maxsize))
        check_codec(codec)
        check_max_attempts(max_attempts)
        return self._one(kind, name, lambda: make(size), keep=True, maxsize=size)

    def __repr__(self) -> str:
        return f"<{self._package}.{type(self).__name__} path={self._path!r}>"


@public
class LocalNamespace(NamedObjects):
    """The names of `threading` for the threads of this process: see `namespace`.

    The same name gives the same object while the program keeps a reference to it. All objects but locks and conditions
    live as long as the namespace. No hold is ever lost here, so `on_lost` is never called. The objects have no
    attributes that `threading`'s and `queue`'s lack, so queues have no `claim()`; their items are not encoded. A lock
    that is dropped while it is held gives a ResourceWarning; the next lock with its name is a new one, and free.
    """

    def Lock(  # noqa: N802
        self,
        name: str,
        *,
        fair: bool = True,
        on_lost: Callable[[Any], object] | None = None,
    ) -> Lock:
        """Return the `threading.Lock` with that name, which is never fair."""
        check_on_lost(on_lost)
        return self._one("Lock" if fair else "Lock(fair=False)", name, lambda: Lock(self._at(name)))

    def RLock(  # noqa: N802
        self,
        name: str,
        *,
        fair: bool = True,
        on_lost: Callable[[Any], object] | None = None,
    ) -> RLock:
        """Return the `threading.RLock` with that name, which is never fair."""
        check_on_lost(on_lost)
        return self._one("RLock" if fair else "RLock(fair=False)", name, lambda: RLock(self._at(name)))

    def Condition(self, name: str, lock: Any = None) -> threading.Condition:  # noqa: N802
        """Return the `threading.Condition` with that name; `lock` must be of this namespace."""
        if isinstance(lock, Side) and not lock._writes:
            raise TypeError("a condition can't use a read lock: its holders share it, so none may change anything")
        if lock is not None and not isinstance(lock, Lock | RLock | Side):
            raise TypeError(f"lock must be a Lock, RLock or write lock of this namespace, not {type(lock).__name__}")
        if lock is not None and (lock._pair if isinstance(lock, Side) else lock) not in self._made_as:
            raise ValueError(f"the lock belongs to another namespace than the condition {name!r}: use one for both")
        own: Any = lock or RLock(self._at(name))
        return self._one("Condition", name, lambda: threading.Condition(own), lock=lock)

    def Semaphore(  # noqa: N802
        self,
        name: str,
        value: int = 1,
        *,
        on_lost: Callable[[Any], object] | None = None,
    ) -> threading.Semaphore:
        """Return the `threading.Semaphore` with that name."""
        check_on_lost(on_lost)
        check_int("value", value)
        return self._one("Semaphore", name, lambda: threading.Semaphore(value), keep=True, value=value)

    def BoundedSemaphore(  # noqa: N802
        self,
        name: str,
        value: int = 1,
        *,
        on_lost: Callable[[Any], object] | None = None,
    ) -> threading.BoundedSemaphore:
        """Return the `threading.BoundedSemaphore` with that name."""
        check_on_lost(on_lost)
        check_int("value", value)
        return self._one("BoundedSemaphore", name, lambda: threading.BoundedSemaphore(value), keep=True, value=value)

    def Event(self, name: str) -> threading.Event:  # noqa: N802
        """Return the `threading.Event` with that name."""
        return self._one("Event", name, threading.Event, keep=True)

    def Barrier(  # noqa: N802
        self, name: str, parties: int, action: Callable[[], object] | None = None, timeout: float | None = None
    ) -> threading.Barrier:
        """Return the `threading.Barrier` with that name; its action and timeout are those of the first call."""
        if check_int("parties", parties) < 1:
            raise ValueError("parties must be >= 1")
        call: Any = action  # its result is ignored
        return self._one("Barrier", name, lambda: threading.Barrier(parties, call, timeout), keep=True, parties=parties)

    def ReadWriteLock(self, name: str, *, on_lost: Callable[[Any], object] | None = None) -> ReadWriteLock:  # noqa: N802
        """Return the `ReadWriteLock` with that name."""
        check_on_lost(on_lost)
        return self._one("ReadWriteLock", name, lambda: ReadWriteLock(self._at(name)))

    def CountDownLatch(self, name: str, count: int) -> CountDownLatch:  # noqa: N802
        """Return the `CountDownLatch` with that name."""
        return self._one("CountDownLatch", name, lambda: CountDownLatch(count), keep=True, count=count)

    def Election(  # noqa: N802
        self,
        name: str,
        *,
        id: str | None = None,  # noqa: A002
        layout: str = "selector",
    ) -> _local_election.Election:
        """Return the `Election` with that name, whose candidates are threads of this process."""
        check_layout(layout)
        named = candidate_id(id)
        return self._one(
            "Election",
            name,
            lambda: _local_election.Election(self._at(name), named),
            keep=True,
            id=named,
            layout=layout,
        )

    def DoubleBarrier(self, name: str, parties: int) -> _local_group.DoubleBarrier:  # noqa: N802
        """Return the `DoubleBarrier` with that name."""
        make = partial(_local_group.DoubleBarrier, parties)
        return self._one("DoubleBarrier", name, make, keep=True, parties=parties)

    def Group(self, name: str) -> _local_group.Group:  # noqa: N802
        """Return the `Group` with that name."""
        return self._one("Group", name, lambda: _local_group.Group(self._at(name)), keep=True)

    def AtomicLong(self, name: str) -> _local_value.AtomicLong:  # noqa: N802
        """Return the number of 64 bits with that name."""
        return self._one("AtomicLong", name, _local_value.AtomicLong, keep=True)

    def AtomicInteger(self, name: str) -> _local_value.AtomicInteger:  # noqa: N802
        """Return the number of 32 bits with that name."""
        return self._one("AtomicInteger", name, _local_value.AtomicInteger, keep=True)

    def SharedValue(  # noqa: N802
        self, name: str, value: Any, *, codec: Codec[Any] = BYTES
    ) -> _local_value.SharedValue:
        """Return the value with that name; it is not encoded."""
        data = check_codec(codec).encode(value)
        return self._one("SharedValue", name, lambda: _local_value.SharedValue(value), keep=True, value=data)

    AtomicReference = SharedValue

    # The standard library's queues pass items on as they are: they have no codec, and no claims.

    def Queue(  # noqa: N802
        self, name: str, maxsize: int = 0, *, codec: Codec[Any] = BYTES, max_attempts: int | None = None
    ) -> queue.Queue[Any]:
        """Return the `queue.Queue` with that name."""
        return self._queue("Queue", name, maxsize, codec, max_attempts, queue.Queue)

    def LifoQueue(  # noqa: N802
        self, name: str, maxsize: int = 0, *, codec: Codec[Any] = BYTES, max_attempts: int | None = None
    ) -> queue.LifoQueue[Any]:
        """Return the `queue.LifoQueue` with that name."""
        return self._queue("LifoQueue", name, maxsize, codec, max_attempts, queue.LifoQueue)

    def PriorityQueue(  # noqa: N802
        self,
        name: str,
        maxsize: int = 0,
        *,
        codec: Codec[Any] = BYTES,
        max_attempts: int | None = None,
        priority: Callable[[Any], float] | None = None,
        floats: bool = False,
    ) -> _local_queue.PriorityQueue:
        """Return the `queue.PriorityQueue` with that name; its priority is that of the first call."""

        def make(size: int) -> _local_queue.PriorityQueue:
            return _local_queue.PriorityQueue(size, priority, floats)

        return self._queue("PriorityQueue", name, maxsize, codec, max_attempts, make)

    def DelayQueue(  # noqa: N802
        self, name: str, maxsize: int = 0, *, codec: Codec[Any] = BYTES, max_attempts: int | None = None
    ) -> _local_queue.DelayQueue:
        """Return the queue of delayed items with that name."""
        return self._queue("DelayQueue", name, maxsize, codec, max_attempts, _local_queue.DelayQueue)

    def SimpleQueue(  # noqa: N802
        self, name: str, *, codec: Codec[Any] = BYTES, max_attempts: int | None = None
    ) -> queue.SimpleQueue[Any]:
        """Return the `queue.SimpleQueue` with that name."""
        return self._queue("SimpleQueue", name, 0, codec, max_attempts, lambda _: queue.SimpleQueue())

    def Dict(  # noqa: N802
        self, name: str, *, codec: Codec[Any] = BYTES, ephemeral: bool = False
    ) -> _local_dict.Dict:
        """Return the dictionary with that name; its codec is that of the first call."""
        check_codec(codec)
        return self._one("Dict", name, lambda: _local_dict.Dict(codec), keep=True, ephemeral=bool(ephemeral))

    def Set(self, name: str, *, ephemeral: bool = False) -> _local_dict.Set:  # noqa: N802
        """Return the set with that name."""
        return self._one("Set", name, _local_dict.Set, keep=True, ephemeral=bool(ephemeral))

    def MultiLock(  # noqa: N802
        self,
        names: Iterable[str],
        *,
        on_lost: Callable[[Any], object] | None = None,
    ) -> MultiLock:
        """Return a `MultiLock` of the RLocks with those names."""
        check_on_lost(on_lost)
        return MultiLock({name: self.RLock(name) for name in check_names(names)})


def check_names(names: Iterable[str]) -> list[str]:
    """Return the names of a MultiLock's locks, sorted.

    Raises:
        TypeError: `names` is a single string.
        ValueError: there is no name, or one occurs twice.
    """
    if isinstance(names, str):
        raise TypeError("a MultiLock takes several names: give a list of them")
    found = sorted(names)
    if not found:
        raise ValueError("a MultiLock needs at least one lock")
    for one, other in itertools.pairwise(found):
        if one == other:
            raise ValueError(f"{one!r} is in the MultiLock twice: it would wait for itself")
    return found
