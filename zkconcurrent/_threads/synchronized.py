"""`synchronized`: each call of a function holds a lock, at a path made from the call's arguments.

`_arguments/template.py` makes the path. This module puts the lock around the calls of functions of each kind: plain
functions and generator functions, methods, partials, and proxies of other packages.

cloudpickle (used by joblib, dask, Ray and Spark) pickles the functions of `__main__` by value: it reads an object's
code, defaults and closure, and makes a function of them. From a proxy it would read those of the wrapped function, and
lose the lock without an error. So everything that it can read here belongs to a function whose closure has the lock:
see `DecoratedCalls`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from types import FunctionType, MethodType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import wrapt

from .._arguments.functions import check_callable
from .._arguments.locklike import LockLike
from .._arguments.paths import check_name, check_path
from .._arguments.template import Template
from .._kazoo.link import KazooClient
from .._runtime.identity import of_thread
from .._runtime.public import ErrorKind, Traceback, public
from .base.primitive import kind_of, opens_by_name
from .base.reentrant_core import Levels
from .base.revocable import RevocableLock
from .namespace import Namespace
from .rlock import RLock

F = TypeVar("F", bound="Callable[..., Any] | classmethod[Any, Any, Any] | staticmethod[Any, Any]")
Function: TypeAlias = Callable[..., Any]
Args: TypeAlias = tuple[object, ...]
KwArgs: TypeAlias = dict[str, object]
Hold: TypeAlias = Callable[[Any, Function, Args, KwArgs], Any]
Make: TypeAlias = "Callable[[DecoratedCalls], Function]"
Where: TypeAlias = KazooClient | Namespace | Callable[[], KazooClient | Namespace]


@public
class DecoratedCalls:
    """The calls of one decorated function, each with its lock held.

    A function that is pickled by value has this in its closure: either the lock is pickled with it, or pickling raises
    an error.

    Attributes:
        by: the decorator.
        function: the decorated function.
        kind: the function's kind.
    """

    def __init__(self, by: LockedBy, function: Function) -> None:
        self.by = by
        self.function = function
        self.kind = by._kind(function)
        self._hold = self.kind.hold
        self._has_fields = bool(by._template.arguments)

    def __reduce__(self) -> tuple[object, ...]:
        return DecoratedCalls, (self.by, self.function)

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The signature of the function. While a pickle is read, the function might not have its defaults yet."""
        return inspect.signature(self.function)

    def call(self, args: Args, kwargs: KwArgs) -> Any:
        """Make the path, and call the function with its lock held; or return a generator or coroutine that does."""
        return self._hold(self.lock(args, kwargs), self.function, args, kwargs)

    def lock(self, args: Args, kwargs: KwArgs) -> Any:
        """Return the lock of a call."""
        if not self._has_fields:
            return self.by._lock({})
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self.by._lock(bound.arguments)


def calls_are(of_kind: Callable[[Any], bool], function: Function) -> bool:
    """Return whether a function, or the `__call__` of an object's class, is of that kind."""
    return of_kind(function) or of_kind(inspect.getattr_static(type(function), "__call__", None))


class Kind(NamedTuple):
    """A kind of function, such as the generator functions.

    Attributes:
        hold: begins a call with a lock held.
        make: makes a plain function of this kind from the calls.
    """

    hold: Hold
    make: Make


class LockedBy(ABC):
    """The base of `synchronized` and `once_per`, for threads and tasks: it holds a lock around each call of a function.

    Attributes:
        _namespace: the class of namespaces.
        _rlock: the class of the locks at paths.
        _lock_kind: the class of the locks that the decorator accepts.
        _caller: returns the caller: its thread or its task.
        _keeps_blocks: whether the end of a block needs the lock that its own beginning has made. This is so if a
            function may return another client for each block.
    """

    _namespace: type[Any]
    _rlock: type[Any]
    _lock_kind: type[Any] | tuple[()]
    _caller: Callable[[], int]
    _keeps_blocks = False

    def __init__(self, where: Any, path: str | None = None) -> None:
        self._where: Any = where
        self._path = path
        # The locks of blocks that keep their own, by thread or task; the innermost last.
        self._blocks: dict[int, list[Any]] = {}
        if path is None:
            if not isinstance(where, self._lock_kind):
                raise TypeError(
                    f"use @synchronized(client, '/path') or @synchronized(lock), not @synchronized({kind_of(where)})"
                )
            self._template = Template("")
            return
        if not (isinstance(where, (KazooClient, self._namespace)) or callable(where)):
            raise TypeError(f"give a client, a namespace or a function that returns one, not {type(where).__name__}")
        if not isinstance(where, (KazooClient, self._namespace)):
            check_callable("the function that returns a client", where)
            self._keeps_blocks = True
        self._template = Template(path)
        # Any text that is valid in a path would do; errors show this text.
        example = self._template.fill(lambda field: f"{{{field.argument}}}")
        is_namespace = isinstance(where, self._namespace)
        if isinstance(where, KazooClient) or (path.startswith("/") and not is_namespace):
            check_path(example)
        else:
            check_name(where.path if is_namespace else "/", example)

    def __reduce__(self) -> tuple[object, ...]:
        where, path = self._where, self._path
        if path is None:
            kind: Any = type(where)
            if kind.__reduce__ is object.__reduce__ and kind.__reduce_ex__ is object.__reduce_ex__:
                raise self._not_pickled(f"a {kind.__name__} excludes only within its process")
            return type(self), (where,)
        if isinstance(where, (KazooClient, self._namespace)):
            try:
                opens_by_name(where if isinstance(where, KazooClient) else where.client)
            except ValueError as why:
                raise self._not_pickled(str(why)) from None
        return type(self), (where, path)

    def _not_pickled(self, why: str) -> TypeError:
        name, of = type(self).__name__, "a lock" if self._path is None else repr(self._path)
        return TypeError(
            f"cannot pickle a function decorated with {name} by {of}: {why}; decorate it with a client of connect(), "
            f"or with a function that opens a client in the other process: @{name}(function, path)"
        )

    def _lock(self, arguments: KwArgs) -> Any:
        """Return the lock for the arguments of a call."""
        where = self._where
        if self._path is None:
            return where
        if not isinstance(where, (KazooClient, self._namespace)):
            where = where()
        path = self._template.path(arguments)
        return where.RLock(path) if isinstance(where, self._namespace) else self._rlock(where, path)

    def _begin_block(self) -> Any:
        """Return the lock of a block. If the block does not begin, call `_end_block`, too."""
        if self._template.arguments:
            raise TypeError(f"a block has no arguments for {', '.join(self._template.arguments)}: decorate a function")
        lock = self._lock({})
        # Both branches keep a reference: a lock is released when its last object is garbage collected.
        if self._keeps_blocks:
            self._blocks.setdefault(self._caller(), []).append(lock)
        else:
            self._entered = lock
        return lock

    def _end_block(self) -> Any:
        """Return the lock of the caller's innermost block."""
        caller = self._caller()
        blocks = self._blocks.get(caller)
        if blocks is None:
            return self._entered
        lock = blocks.pop()
        if not blocks:
            self._blocks.pop(caller, None)
        return lock

    def __call__(self, function: F) -> F:
        """Return the function with the lock around its calls; its name, signature and docstring are kept."""
        return self._decorate(function)  # type: ignore[no-any-return]

    def _decorate(self, function: Any) -> Any:
        # A proxy or a subclass of one of these is not taken apart: it is wrapped below as it is.
        if type(function) in (classmethod, staticmethod):
            return type(function)(self._decorate(function.__func__))
        if type(function) is MethodType:
            return MethodType(self._decorate(function.__func__), function.__self__)
        # A proxy of a method has the function in `__func__`.
        inner: Any = getattr(function, "__func__", function)
        if isinstance(function, type) or not callable(inner):
            raise TypeError(f"{type(self).__name__} is for functions and methods, not for {function!r}")
        calls = DecoratedCalls(self, inner)
        if self._template.arguments:
            # Read the signature only in this case: a built-in function may have none.
            self._template.check(name_of(inner), calls.signature.parameters)
        if not isinstance(function, FunctionType):
            # For example a partial, or an object with `__call__`.
            return SynchronizedFunction(function, calls)
        plain: Any = functools.wraps(function)(calls.kind.make(calls))
        if type(function) is FunctionType and not plain.__code__.co_flags & _LATER:
            return plain
        # A proxy makes the path at the call, not at the first step, and it binds the proxies of other packages as they
        # expect.
        return SynchronizedFunction(function, calls, plain)

    @abstractmethod
    def _kind(self, function: Function) -> Kind:
        """Return the kind of a function.

        Raises:
            TypeError: this decorator is not for such a function.
        """


class LockedByThread(LockedBy):
    """The blocks of `synchronized` and `once_per` for threads."""

    _namespace = Namespace
    _rlock = RLock
    _caller = staticmethod(of_thread)

    def __enter__(self) -> Any:
        lock = self._begin_block()
        try:
            return lock.__enter__()
        except BaseException:
            self._end_block()
            raise

    def __exit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        self._end_block().__exit__(kind, error, traceback)


@public
class synchronized(LockedByThread):  # noqa: N801 - as wrapt has it
    """Decorate a function so that each call holds a lock: `@synchronized(zk, "/users/{user.id}")`.

    The lock is the `RLock` at the path, so functions with the same path may call each other. Fields are those of
    `str.format`: arguments by name, with `.attribute`, `[item]`, `!r` and `:format`; at most one field between two
    slashes. `self`, `cls` and arguments with defaults can be fields too. Each value is escaped, one to one: no value
    leads outside the template, and two values have the same path only if they have the same text. `@synchronized(lock)`
    holds an existing lock of any kind, and `with synchronized(zk, "/app/report"):` is a block.

    A value must be a scalar, whose text is the same in all processes: a str, int, bool, bytes, Enum, UUID, date,
    datetime or Decimal. Equal values of one type give the same path: a Decimal counts without trailing zeros, an aware
    datetime in UTC. `True` and `1` give two paths; `7` and `"7"` give one. An Enum is `Color.RED`, but an IntEnum or
    StrEnum is the number or the text that it equals. An object of a subclass counts as its base type, however it is
    printed. Other objects need a method `__lock_name__`, which returns a scalar::

        class Account:
            def __lock_name__(self):
                return self.number

    All other values are refused, including None, floats and containers: name an attribute or an item (`{order.id}`).

    It decorates functions, methods, and class and static methods, above or below their decorators. The result is
    pickled by name, as a plain function is, so `Pool.map` takes it. Pickled by value, as by joblib and dask, it takes
    its lock along, if `connect` opened the client; otherwise pickling raises TypeError. A `weakref.WeakMethod` of a
    decorated generator method can't be called. An `async def` is refused, as the lock would block its event loop: use
    `aio.synchronized`.

    A generator function holds the lock while its generator runs: from the first `next()` until it ends, is closed or
    raises, even while suspended at a `yield`. The thread that takes the first step owns the hold, and may acquire the
    lock again. Any thread may take the other steps; in each, the generator's own code may acquire the lock again.
    The code that closes the generator ends the hold. Below `contextlib.contextmanager`, the function gives a `with`
    block.

    Args:
        where: a client, from `connect`; or a namespace, to whose path `path` is relative; or a function without
            arguments that returns one of these, called for each call. Or a lock.
        path: the path, absolute for a client and relative for a namespace.
        wait_release: whether the end of a call or block waits until the lock is free; see `Lock.release`.

    Raises:
        TypeError: `where` is none of these, or the release of this lock always waits. On decoration: the target is
            `async def`, a class, or not a function. On a call: an argument's value is not a scalar and has no
            `__lock_name__`.
        ValueError: the path or its syntax is invalid. On decoration: it names an argument that the function lacks. On a
            call: an argument's text is empty, has more than 255 bytes when escaped (in UTF-8), or depends on the locale
            of the process (`:n`, `:%B`).
        LockLostError: on a call whose hold was lost; as at the end of a `with` block.

    Source:
        `wrapt.synchronized`, which takes this library's locks too, but holds the lock of a generator function only
        during the call that makes the generator.
    """

    _lock_kind = LockLike

    def __init__(self, where: Where | LockLike, path: str | None = None, *, wait_release: bool = True) -> None:
        super().__init__(where, path)
        self._wait_release = wait_release
        if not (wait_release or path is not None or isinstance(where, RevocableLock)):
            raise TypeError(f"the release of a {kind_of(where)} always waits: leave out wait_release")

    def __reduce__(self) -> tuple[object, ...]:
        make, arguments = super().__reduce__()
        return (make if self._wait_release else functools.partial(type(self), wait_release=False)), arguments

    def _lock(self, arguments: KwArgs) -> Any:
        lock = super()._lock(arguments)
        return lock if self._wait_release else lock.hold(wait_release=False)

    def _kind(self, function: Function) -> Kind:
        if calls_are(inspect.iscoroutinefunction, function) or calls_are(inspect.isasyncgenfunction, function):
            raise TypeError(_ASYNC.format(name_of(function)))
        return _GENERATOR if calls_are(inspect.isgeneratorfunction, function) else _FUNCTION

    def __enter__(self) -> bool:
        super().__enter__()
        return True


def _of_plain(name: str) -> Any:
    """Return a property of `SynchronizedFunction` that reads the named attribute of its plain function."""

    def found(self: Any) -> Any:
        return getattr(self._self_plain or self.__wrapped__, name)

    return property(found)


class SynchronizedMethod(wrapt.BoundFunctionWrapper):  # type: ignore[misc, type-arg, unused-ignore]
    """A decorated method of an object, or of a class; pickled as a plain method is."""

    def __reduce_ex__(self, protocol: object) -> Any:
        return getattr, (self.__self__, self.__name__)

    @property
    def __func__(self) -> Any:
        """The decorated function in the class, as `__func__` of a plain method is the function in its class."""
        return self._self_parent

    def __deepcopy__(self, memo: object = None) -> SynchronizedMethod:
        return self

    __copy__ = __deepcopy__


class SynchronizedFunction(wrapt.FunctionWrapper):  # type: ignore[misc, type-arg, unused-ignore]
    """A decorated function that is a proxy; pickled by its name, which another process resolves to its own function.

    Pickled by value, it becomes its `plain` function.
    """

    __bound_function_wrapper__ = SynchronizedMethod
    __code__ = _of_plain("__code__")
    __globals__ = _of_plain("__globals__")
    __closure__ = _of_plain("__closure__")
    __defaults__ = _of_plain("__defaults__")
    __kwdefaults__ = _of_plain("__kwdefaults__")

    def __init__(self, function: Function, calls: DecoratedCalls, plain: Any = None) -> None:
        def call(wrapped: Any, instance: Any, args: Args, kwargs: KwArgs) -> Any:
            lock = calls.lock(args if instance is None else (instance, *args), kwargs)
            return calls.kind.hold(lock, wrapped, args, kwargs)

        super().__init__(function, call)
        self._self_plain = plain
        self._self_by = calls.by

    @property
    def __dict__(self) -> Any:  # type: ignore[override, unused-ignore]
        own = self.__wrapped__.__dict__
        return own if self._self_plain is None else {**own, "__wrapped__": self.__wrapped__}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        bound = super().__get__(instance, owner)
        # Read from its class, a decorated function is this object itself, as a plain function would be.
        return self if isinstance(bound, FunctionType) else bound

    def __reduce_ex__(self, protocol: object) -> Any:
        return getattr(self, "__qualname__", None) or (self._self_by, (self.__wrapped__,))

    def __deepcopy__(self, memo: object = None) -> SynchronizedFunction:
        return self

    __copy__ = __deepcopy__


def name_of(function: Function) -> str:
    """Return a function's name, for messages."""
    return getattr(function, "__qualname__", repr(function))


def _call(lock: LockLike, function: Function, args: Args, kwargs: KwArgs) -> Any:
    """Call a function with the lock held."""
    with lock:
        result = function(*args, **kwargs)
    if inspect.iscoroutine(result):
        result.close()
    if inspect.iscoroutine(result) or inspect.isasyncgen(result):
        raise TypeError(_ASYNC.format(name_of(function)))
    if isinstance(result, RUNS_LATER):
        raise TypeError(_RETURNS_LATER.format(name_of(function), type(result).__name__))
    return result


def plain_function(calls: DecoratedCalls) -> Function:
    """Return a plain function that makes the calls."""

    def call(*args: object, **kwargs: object) -> object:
        return calls.call(args, kwargs)

    return call


def _iterate(lock: LockLike, function: Function, args: Args, kwargs: KwArgs) -> Any:
    """Return a generator that holds the lock from its first step to its end."""
    return _held(lock, function(*args, **kwargs))


def _held(lock: LockLike, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    with lock:
        levels = Levels(lock)
        try:
            step = functools.partial(next, generator)
            # Do not use `yield from`: it would close the inner generator while this frame, and so `levels`, is not on
            # the stack.
            while True:
                try:
                    value = step()
                except StopIteration as end:
                    return end.value
                try:
                    sent = yield value
                except GeneratorExit:
                    raise
                except BaseException as error:
                    step = functools.partial(generator.throw, error)
                else:
                    step = functools.partial(generator.send, sent)
        finally:
            try:
                generator.close()
            finally:
                levels.over = True


def _generator(calls: DecoratedCalls) -> Function:
    def call(*args: object, **kwargs: object) -> Generator[Any, Any, object]:
        return (yield from calls.call(args, kwargs))

    return call


RUNS_LATER = types.GeneratorType, contextlib._GeneratorContextManager
_RETURNS_LATER = (
    "{0} has returned a {1}, whose body would run without the lock: put synchronized on the generator function itself, "
    "below contextmanager and other decorators"
)
_ASYNC = (
    "synchronized can't decorate the async function {0}: waiting for the lock would block its event loop, and the "
    "lock would not exclude other tasks of the thread. Use zkconcurrent.aio.synchronized"
)

_FUNCTION = Kind(_call, plain_function)
_GENERATOR = Kind(_iterate, _generator)
# A call of a function with one of these flags does not run its body.
_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
