"""`namespace`: the names of `threading`, for one base path in ZooKeeper or for this process alone.

A program uses these names, and chooses at its start whether they lie in ZooKeeper or in this process. The classes are
the same in both cases: names in this process belong to a service in its memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeAlias, TypeVar, get_origin

from .._arguments.limits import check_label
from .._arguments.paths import check_name, check_path
from .._client.connect import LocalRoot
from .._engine.call import Call
from .._engine.session import Session
from .._kazoo.link import KazooClient
from .._observe import event_listeners
from .._observe.deadlock_search import OnDeadlock, check_on_deadlock
from .._recipes.ensembles import RECORD, first_part, has_record, place, record, write_record
from .._runtime.public import public
from . import (
    atomic,
    barrier,
    condition,
    double_barrier,
    election,
    event,
    group,
    latch,
    lock,
    multilock,
    queue,
    rlock,
    rwlock,
    semaphore,
    shared_value,
)
from . import dict as _dict
from . import set as _set
from .base.primitive import OnLost, OnSuspect, PickledByPath

Listener: TypeAlias = event_listeners.Listener
P = ParamSpec("P")
R = TypeVar("R")
NamespaceT = TypeVar("NamespaceT", bound="BasePath")


class BasePath(PickledByPath):
    """A path of one client, below which all names lie."""

    _package = "zkconcurrent"

    def __init__(
        self, client: KazooClient, path: str, on_deadlock: OnDeadlock = "warn", label: str | None = None
    ) -> None:
        check_on_deadlock(on_deadlock)
        check_label(label)
        # This raises TypeError if `client` is not a kazoo client.
        Session.of(client)
        self._client = client
        self._path = base(path)
        self._on_deadlock: OnDeadlock = on_deadlock
        self._label = label
        self._local: LocalRoot | None = None
        # The client of each ensemble, by the ensemble's name; empty if there is a single client.
        self._ensembles: dict[str, KazooClient] = {}

    @property
    def client(self) -> KazooClient:
        """The kazoo client; a ValueError if there are several."""
        if self._ensembles:
            raise ValueError(f"{self!r} has several clients: see its `clients`")
        return self._client if self._local is None else self._local.open()

    @property
    def clients(self) -> tuple[KazooClient, ...]:
        """The kazoo clients, one for each ensemble, in the order of the ensembles' names."""
        return tuple(self._ensembles.values()) or (self.client,)

    @property
    def path(self) -> str:
        """The base path of all names."""
        return self._path

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Add a listener for all events of this namespace's clients below its path: see `zkconcurrent.add_listener`."""
        removes = [event_listeners.add(listener, Session.of(client), self._path) for client in self.clients]

        def remove() -> None:
            for each in removes:
                each()

        return remove

    def _at(self, name: str) -> str:
        return check_name(self._path, name)

    def _client_of(self, path: str) -> KazooClient:
        if not self._ensembles:
            return self.client
        if (part := first_part(self._path, path)) == RECORD:
            raise ValueError(f"bad name: {RECORD!r} is the record of the ensembles")
        return self._ensembles[place(self._ensembles, part)]

    def __repr__(self) -> str:
        return f"<{self._package}.{type(self).__name__} path={self._path!r}>"


def named(make: Callable[Concatenate[KazooClient, str, P], R]) -> Callable[Concatenate[Any, str, P], R]:
    """Declare a namespace's method that makes objects of a class: it takes a name instead of a client and a path."""
    kind: Any = get_origin(make) or make

    def call(self: BasePath, name: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        for option in options:
            kwargs.setdefault(option, getattr(self, f"_{option}"))
        path = self._at(name)
        return make(self._client_of(path), path, *args, **kwargs)

    call.__module__, call.__name__ = kind.__module__, kind.__name__
    call.__qualname__ = f"Namespace.{kind.__name__}"
    call.__doc__ = f"Return the `{kind.__name__}` with that name."
    given = list(signature(kind).parameters.values())[2:]
    options = [each.name for each in given if each.name in ("on_deadlock", "label")]
    first = [Parameter(each, Parameter.POSITIONAL_ONLY) for each in ("self", "name")]
    call.__annotations__ = {"name": str, "return": kind}
    call.__signature__ = Signature([*first, *given], return_annotation=kind)  # type: ignore[attr-defined]
    return call


@public
class Namespace(BasePath):
    """The names of `threading`, for all processes that open the same base path, or for one process: see `namespace`."""

    Lock: Final = named(lock.Lock)
    RLock: Final = named(rlock.RLock)
    Condition: Final = named(condition.Condition)
    Semaphore: Final = named(semaphore.Semaphore)
    BoundedSemaphore: Final = named(semaphore.BoundedSemaphore)
    Event: Final = named(event.Event)
    Barrier: Final = named(barrier.Barrier)
    ReadWriteLock: Final = named(rwlock.ReadWriteLock)
    CountDownLatch: Final = named(latch.CountDownLatch)
    Election: Final = named(election.Election)
    AtomicLong: Final = named(atomic.AtomicLong)
    AtomicInteger: Final = named(atomic.AtomicInteger)
    SharedValue: Final = named(shared_value.SharedValue)
    AtomicReference: Final = SharedValue
    DoubleBarrier: Final = named(double_barrier.DoubleBarrier)
    Group: Final = named(group.Group)
    Queue: Final = named(queue.Queue)
    LifoQueue: Final = named(queue.LifoQueue)
    PriorityQueue: Final = named(queue.PriorityQueue)
    DelayQueue: Final = named(queue.DelayQueue)
    SimpleQueue: Final = named(queue.SimpleQueue)
    Dict: Final = named(_dict.Dict)
    Set: Final = named(_set.Set)

    def MultiLock(  # noqa: N802
        self, names: Iterable[str], *, on_lost: OnLost | None = None, on_suspect: OnSuspect | None = None
    ) -> multilock.MultiLock:
        """Return a `MultiLock` of the RLocks with those names."""
        locks = [self.RLock(name) for name in check_names(names)]
        return multilock.MultiLock(locks, on_lost=on_lost, on_suspect=on_suspect)


@public
def namespace(
    client: KazooClient | Mapping[str, KazooClient] | Literal["local"],
    path: str = "/",
    *,
    on_deadlock: OnDeadlock = "warn",
    label: str | None = None,
) -> Namespace:
    """Return an object with the names of `threading`, for ZooKeeper or for this process alone.

    After `threads = namespace(zk, "/app")`, `threads.RLock("cart")` is the RLock at `/app/cart`. `Lock`, `Condition`,
    `Semaphore`, `BoundedSemaphore`, `Event`, `Barrier`, `ReadWriteLock` and `CountDownLatch` work alike: the first
    argument is a name, and the other positional arguments are those of the class. So do `Queue`, `LifoQueue`,
    `PriorityQueue` and `SimpleQueue`, with the arguments of `queue`, and `DelayQueue`, `DoubleBarrier`, `Group`,
    `Election`, `AtomicLong`, `AtomicInteger`, `SharedValue`, `Dict` and `Set`. `threads.MultiLock(["cart", "stock"])`
    is made of RLocks.

    `threads = namespace("local")` has the same objects without a server: they belong to a service in the memory of
    this process, which begins at the first such call. Each local namespace has a path of its own there and shares
    nothing with others, so give each test its own. Its state lasts as long as the program keeps the namespace, or an
    object of it. A forked child has a service of its own: there the namespace begins anew, and objects made before the
    fork raise `ClientError`.

    `threads = namespace({"one": zk1, "two": zk2}, "/app")` has its paths on several ensembles, which all processes must
    give the same names. The names of the ensembles and the first part of an object's name decide on which ensemble it
    lies: `7/cart` and `7/stock` are on the same one. The hosts do not matter, so servers may come and go. The call
    reads a record on each ensemble, and writes it if there is none, so it waits for all of them. A process with other
    ensembles, or with other names for them, gets an error. See *Scaling* in the documentation.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later; or "local". Or a mapping
            from the names of ensembles, which the program chooses, to started clients.
        path: the base path of all names. No name can leave it.
        on_deadlock: the default for its locks: see `Lock`.
        label: the default label of its objects.

    Raises:
        TypeError: the client is none of these, or an ensemble's name is not a string.
        ValueError: the path or an option is invalid; there is no ensemble, one client is given for two, or a name is
            empty or not printable. The namespace's methods raise it if a name is invalid, or belongs to another kind
            of object.
        ClientError: other processes use other ensembles, or other names of them; the error shows both.
        RuntimeError: this is an isolated subinterpreter, or the program uses greenlets in a way that is not supported.

    Source:
        The module `threading`.
    """
    return opened(Namespace, client, path, on_deadlock, label)


@public
def add_listener(listener: Listener, client: KazooClient | None = None) -> Callable[[], None]:
    """Add a listener for acquires and holds of this process's clients, or of one; return a function that removes it.

    The listener is called with each event. For one acquire these are `Waiting`, if it waits behind others;
    `DeadlockFound`, if it finds a deadlock; then exactly one of `Acquired`, `TimedOut`, `WouldBlock`, `Cancelled`,
    `DeadlockVictim` and `Failed`. For one hold: `Acquired`, then `Suspect` and `Recovered` in turn, `HoldLimit` once,
    then exactly one of `Released` and `Lost`. A fork or the end of the process ends a hold without an event. Only the
    outermost level of a re-entrant lock has events. The events of a `MultiLock` are those of its locks.

    One owner's events at one lock come in order. The thread or task that acquires or releases calls the listener; an
    interrupt in the listener gives the lock back. `Lost`, `Suspect`, `Recovered`, `HoldLimit` and `DeadlockFound`, and
    the end of a hold that no `release()` ends, come on a thread of the library, or on the owner's thread if the
    owner continues first. The event of a release comes once ZooKeeper has replied: it is `Lost` if the node was gone.

    A listener must not wait: a call of the library that would wait raises `ClientError` in it. The listener's own calls
    have no events. If the listener may take long, wrap it in a `QueueListener`. The first `Exception` that it raises is
    logged; all are ignored.

    Args:
        listener: called with one `LockEvent` at a time, for the acquires that begin from now on, and for their holds.
        client: the client to listen to; by default, all clients of this process.

    Returns:
        A function that removes the listener. A second call changes nothing.

    Raises:
        TypeError: the listener can't be called, or is a coroutine function; or the client is not a kazoo client.
    """
    return event_listeners.add(listener, None if client is None else Session.of(client))


def opened(
    kind: Callable[[KazooClient, str, OnDeadlock, str | None], NamespaceT],
    client: KazooClient | Mapping[str, KazooClient] | Literal["local"],
    path: str,
    on_deadlock: OnDeadlock,
    label: str | None,
) -> NamespaceT:
    """Return a namespace for a client, for several ensembles, or for this process alone.

    Raises:
        ValueError: the client is text other than "local". The error does not show it: it may be a URL with a password.
    """
    if isinstance(client, list | tuple):
        raise TypeError('give several clients by the names of their ensembles, such as {"one": client}')
    if isinstance(client, Mapping):
        ensembles = _checked(client)
        made = kind(next(iter(ensembles.values())), path, on_deadlock, label)
        _agree(ensembles, made.path)
        made._ensembles = ensembles
        return made
    if not isinstance(client, str):
        return kind(client, path, on_deadlock, label)
    if client != "local":
        raise ValueError("a namespace needs a KazooClient, such as connect(url) returns, or 'local'")
    path = base(path)
    root = LocalRoot()
    made = kind(root.open(), root.path if path == "/" else root.path + path, on_deadlock, label)
    made._local = root
    return made


def _checked(clients: Mapping[str, KazooClient]) -> dict[str, KazooClient]:
    """Return the clients in the order of their ensembles' names; errors as those of `namespace`."""
    for name in clients:
        if not isinstance(name, str):
            raise TypeError(f"the name of an ensemble must be a string, not {type(name).__name__}")
        if not name or not name.isprintable():
            raise ValueError(f"bad name of an ensemble: {name!r} is empty or not printable")
    if not clients:
        raise ValueError("a namespace needs at least one client")
    if len({Session.of(client) for client in clients.values()}) < len(clients):
        raise ValueError(f"a client is given for two ensembles: {sorted(clients)}")
    return dict(sorted(clients.items()))


def _agree(ensembles: dict[str, KazooClient], base: str) -> None:
    """Make sure that all users of the ensembles use the same ones; see `_recipes/ensembles`.

    All records are read before one is written, so a process that gets an error usually leaves nothing behind.
    """
    path = f"{base.rstrip('/')}/{RECORD}"
    for step in (has_record, write_record):
        for name, client in ensembles.items():
            call = Call(Session.of(client), path)
            call.wait(call.run(step(path, record(name, ensembles))))


def sessions_of(scope: KazooClient | BasePath | None) -> tuple[list[Session | None], str | None]:
    """Return the sessions and the base path that metrics cover; None for all sessions, or all paths.

    Raises:
        TypeError: the scope is neither a client nor a namespace.
    """
    if scope is None:
        return [None], None
    if isinstance(scope, BasePath):
        return [Session.of(client) for client in scope.clients], scope.path.rstrip("/")
    return [Session.of(scope)], None


def base(path: str) -> str:
    """Return the base path of a namespace.

    Raises:
        TypeError: it is not a string.
        ValueError: it is not a path.
    """
    return "/" if path == "/" else check_path(path)


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
