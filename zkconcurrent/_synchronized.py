"""`synchronized`: each call of a function holds a lock, at a path made from the call's arguments.

The path's template is checked when the function is decorated. Each value is escaped: it stays within its part of the
path, so no argument can lead outside the template, and different texts give different paths.

cloudpickle (of joblib, dask, Ray and Spark) pickles the functions of `__main__` by value: it reads an object's code,
defaults and closure, and makes a function of them. Of a proxy it would read those of the function behind, and lose the
lock without an error. So all that it can read belongs to a function whose closure has the lock: see `DecoratedCalls`.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import enum
import functools
import inspect
import re
import string
import types
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from types import FunctionType, MethodType, TracebackType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import wrapt

from ._arguments.locklike import LockLike
from ._arguments.paths import check_name, check_path, escape
from ._kazoo.link import KazooClient
from ._namespace import Namespace
from ._runtime.public import public
from ._threads.base.primitive import kind_of, opens_by_name
from ._threads.rlock import RLock

F = TypeVar("F", bound="Callable[..., Any] | classmethod[Any, Any, Any] | staticmethod[Any, Any]")
Function: TypeAlias = Callable[..., Any]
Args: TypeAlias = tuple[object, ...]
KwArgs: TypeAlias = dict[str, object]
Hold: TypeAlias = Callable[[Any, Function, Args, KwArgs], Any]
Make: TypeAlias = "Callable[[DecoratedCalls], Function]"
Where: TypeAlias = "KazooClient | Namespace | Callable[[], KazooClient | Namespace]"

# In bytes of UTF-8, when escaped. The longest name of a file has as many.
LONGEST_FIELD = 255
# Formats whose text depends on the locale or the time zone of the process.
_LOCAL_NUMBER = re.compile("n$")
_LOCAL_DATE = re.compile("%[-_0^#EO]*[aAbBchpPrsxX+]")


class Field(NamedTuple):
    """One `{...}` of a template.

    Attributes:
        before: the text between the previous field, or the beginning, and this one.
        name: the field as written, such as `user.id`; empty for the text at the end.
        argument: the name of the argument that the field begins with.
        form: the conversion and the format that turn its value into text.
        spec: the format alone.
    """

    before: str
    name: str
    argument: str
    form: str
    spec: str


class Template:
    """The path of a lock, with fields for the arguments of a call: `/users/{user.id}`.

    Raises:
        TypeError: it is not a string.
        ValueError: its syntax is wrong; or one part of the path has two fields, so that different values could make the
            same path.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a template must be a str, not {type(text).__name__}")
        self._text = text
        try:
            parsed = [
                (before, name, spec, conversion) for before, name, spec, conversion in string.Formatter().parse(text)
            ]
        except ValueError as error:
            raise ValueError(f"the template {text!r} is wrong: {error}") from None
        self._fields = [self._field(*each) for each in parsed]
        if any("/" not in after.before for after in self._fields[1:] if after.name):
            raise ValueError(
                f"the template {text!r} has two fields in one part of the path, so different values could make the "
                "same path: put a '/' between them"
            )

    def _field(self, before: str, name: str | None, spec: str | None, conversion: str | None) -> Field:
        if name is None:
            return Field(before, "", "", "", "")
        argument = re.split(r"[.\[]", name)[0]
        if not argument.isidentifier():
            raise ValueError(f"the template {self._text!r} has a field {{{name}}}: name an argument of the function")
        if "{" in (spec or ""):
            raise ValueError(f"the template {self._text!r} has a field in the format of {{{name}}}")
        form = (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
        # This finds the syntax errors that would show only in use.
        try:
            string.Formatter().get_field(name, (), {argument: _Anything()})
            if conversion:
                string.Formatter().convert_field("", conversion)
        except ValueError as error:
            raise ValueError(f"the template {self._text!r} is wrong in {{{name}}}: {error}") from None
        return Field(before, name, argument, form, spec or "")

    @property
    def arguments(self) -> list[str]:
        """The names of the arguments in its fields."""
        return [field.argument for field in self._fields if field.name]

    def fill(self, value: Callable[[Field], str]) -> str:
        """Return the path, with the text that `value` returns for each field."""
        return "".join(field.before + (value(field) if field.name else "") for field in self._fields)

    def path(self, arguments: KwArgs) -> str:
        """Return the path for the arguments of a call.

        Raises:
            TypeError: a field's value is not a scalar and has no `__lock_name__`; or its format is for other types.
            ValueError: a value's text is empty or too long, or depends on the process.
        """
        return self.fill(lambda field: self._value(field, arguments))

    def _value(self, field: Field, arguments: KwArgs) -> str:
        value, _ = string.Formatter().get_field(field.name, (), arguments)
        which = f"{{{field.name}}} of {self._text!r}"
        if (hook := getattr(type(value), "__lock_name__", None)) is not None:
            value = hook(value)
        try:
            text = f"{{0{field.form}}}".format(scalar(value, field.spec))
        except TypeError as error:
            raise TypeError(f"{which}: {error}") from None
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{which}: {error}") from None
        if not text:
            raise ValueError(f"{which} is empty in this call: a path can't have an empty part")
        # Check the unescaped text first: escaping takes time, and only makes it longer.
        if len(text) <= LONGEST_FIELD:
            escaped = escape(text)
            if len(escaped.encode()) <= LONGEST_FIELD:
                return escaped
        raise ValueError(f"{which} is too long in this call: {LONGEST_FIELD} bytes at most, escaped and in UTF-8")


def scalar(value: object, spec: str = "") -> Any:
    """Return the plain form of a value to format in a path: equal values give equal texts, in every process.

    An object of a subclass counts as its base type; its own `__str__` and `__format__` are ignored.

    Args:
        value: the value of a field, or the result of its `__lock_name__`.
        spec: the format that turns it into text.

    Raises:
        TypeError: the value is not a scalar: its text may differ between processes, or between equal values.
        ValueError: the text of this value, or its text in this format, may differ between processes.
    """
    # The type of the value itself, as the `__class__` of a proxy is that of another object.
    kind = type(value)
    for base, plain in _PLAIN.items():
        if issubclass(kind, base):
            value = plain(value)
            break
    else:
        raise TypeError(
            f"a {kind.__name__} has no text that identifies it in all processes: name an attribute of it, pass a str "
            "or an int, or give its class a method __lock_name__ that returns one"
        )
    local = _LOCAL_DATE if isinstance(value, datetime.date) else _LOCAL_NUMBER
    if not isinstance(value, str) and local.search(spec):
        raise ValueError(f"the text of the format {spec!r} depends on the locale of the process")
    return value


def _of_enum(value: enum.Enum) -> str:
    # A value of several flags has no name of its own.
    name = value._name_ if value._name_ in type(value).__members__ else value._value_
    return f"{type(value).__name__}.{name}"


def _of_decimal(value: decimal.Decimal) -> decimal.Decimal:
    """Return the number normalized, so that `1`, `1.0` and `1E+0` have the same text."""
    sign, digits, exponent = decimal.Decimal.as_tuple(value)
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is no number")
    number = "".join(map(str, digits)).lstrip("0")
    kept = number.rstrip("0")
    if not kept:
        return decimal.Decimal(0)
    exponent += len(number) - len(kept)
    if 0 < exponent <= LONGEST_FIELD:
        kept, exponent = kept + "0" * exponent, 0
    return decimal.Decimal((sign, tuple(map(int, kept)), exponent))


def _of_datetime(value: datetime.datetime) -> datetime.datetime:
    """Return an aware datetime in UTC: the same moment in two time zones is one lock."""
    plain = datetime.datetime.combine(_of_date(value), value.timetz())
    return plain if plain.utcoffset() is None else plain.astimezone(datetime.timezone.utc)


def _of_date(value: datetime.date) -> datetime.date:
    return datetime.date(value.year, value.month, value.day)


# The scalar types, and the function that makes each plain; the first match counts. An IntEnum counts as an int, and a
# StrEnum as a str, since they are equal to those.
_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    bool: bool,
    int: int.__index__,
    enum.Enum: _of_enum,
    bytes: bytes.__repr__,
    uuid.UUID: uuid.UUID.__str__,
    datetime.datetime: _of_datetime,
    datetime.date: _of_date,
    decimal.Decimal: _of_decimal,
}


class _Anything:
    """An object with every attribute and item; it replaces the argument when a template is checked."""

    def __getattr__(self, name: str) -> _Anything:
        return self

    def __getitem__(self, key: object) -> _Anything:
        return self


@public
class DecoratedCalls:
    """The calls of one decorated function, each with its lock held.

    A function that is pickled by value has this in its closure, so that its lock goes along, or an error comes.

    Attributes:
        by: the decorator.
        function: the function that is decorated.
        kind: its kind.
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
        """The signature of the function. While a pickle is read, the function may not have its defaults yet."""
        return inspect.signature(self.function)

    def begin(self, args: Args, kwargs: KwArgs) -> Any:
        """Make the path, and call the function with its lock held; or return a generator or coroutine that will."""
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
    """The base of both `synchronized` decorators: it holds a lock around each call of a function.

    Attributes:
        _namespace: the class of namespaces.
    """

    _namespace: type[Any]

    def __init__(self, where: Any, path: str | None = None) -> None:
        self._lock_given = where if path is None else None
        self._where: Any = where
        self._path = path
        if path is None:
            if not self._is_lock(where):
                raise TypeError(f"without a path, give a lock, not {kind_of(where)}")
            self._template = Template("")
            return
        if not (isinstance(where, (KazooClient, self._namespace)) or callable(where)):
            raise TypeError(f"give a client, a namespace or a function that returns one, not {type(where).__name__}")
        self._template = Template(path)
        example = self._template.fill(lambda _: "x")
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
        of = "a lock" if self._path is None else repr(self._path)
        return TypeError(
            f"cannot pickle a function synchronized by {of}: {why}; decorate it with a client of connect(), or with a "
            "function that opens a client in the other process: @synchronized(function, path)"
        )

    def _lock(self, arguments: KwArgs) -> Any:
        """Return the lock for the arguments of a call."""
        if self._lock_given is not None:
            return self._lock_given
        where = self._where
        if not isinstance(where, (KazooClient, self._namespace)):
            where = where()
        path = self._template.path(arguments)
        return where.RLock(path) if isinstance(where, self._namespace) else self._rlock(where, path)

    def _block(self) -> Any:
        """Return the lock of a block."""
        if self._template.arguments:
            raise TypeError(f"a block has no arguments for {', '.join(self._template.arguments)}: decorate a function")
        # The block keeps a reference, as a lock is dropped with its last object.
        self._entered = self._lock({})
        return self._entered

    def __call__(self, function: F) -> F:
        """Return the function with the lock around its calls; its name, signature and docstring are kept."""
        return self._synchronized(function)  # type: ignore[no-any-return]

    def _synchronized(self, function: Any) -> Any:
        # A proxy of one of these, or a subclass, is not taken apart, but wrapped below as it is.
        if type(function) in (classmethod, staticmethod):
            return type(function)(self._synchronized(function.__func__))
        if type(function) is MethodType:
            return MethodType(self._synchronized(function.__func__), function.__self__)
        # A proxy of a method has the function in `__func__`.
        inner: Any = getattr(function, "__func__", function)
        if isinstance(function, type) or not callable(inner):
            raise TypeError(f"synchronized is for functions and methods, not for {function!r}")
        calls = DecoratedCalls(self, inner)
        for argument in self._template.arguments:
            if argument not in calls.signature.parameters:
                raise ValueError(
                    f"{_name(inner)} has no argument {argument!r}, which the path names; it has "
                    f"{', '.join(calls.signature.parameters) or 'none'}"
                )
        if not isinstance(function, FunctionType):
            # A partial, say, or an object with `__call__`.
            return SynchronizedFunction(function, calls)
        plain: Any = functools.wraps(function)(calls.kind.make(calls))
        if type(function) is FunctionType and not plain.__code__.co_flags & _LATER:
            return plain
        # A proxy makes the path at the call, not at the first step; and it binds the proxies of others as they expect.
        return SynchronizedFunction(function, calls, plain)

    @abstractmethod
    def _is_lock(self, lock: object) -> bool:
        """Return whether `lock` can be held."""

    @abstractmethod
    def _rlock(self, client: KazooClient, path: str) -> Any:
        """Return the RLock at the path."""

    @abstractmethod
    def _kind(self, function: Function) -> Kind:
        """Return the kind of a function.

        Raises:
            TypeError: this decorator is not for such a function.
        """


@public
class synchronized(LockedBy):  # noqa: N801 - as wrapt has it
    """Decorate a function so that each call holds a lock: `@synchronized(zk, "/users/{user.id}")`.

    The lock is the `RLock` at the path, so functions with the same path may call each other. Fields are those of
    `str.format`: arguments by name, with `.attribute`, `[item]`, `!r` and `:format`; at most one between two slashes.
    `self`, `cls` and arguments with defaults count too. Each value is escaped, one to one: no value leads outside the
    template, and two values have the same path only if they have the same text. `@synchronized(lock)` holds an existing
    lock of any kind, and `with synchronized(zk, "/app/report"):` is a block.

    A value must be a scalar, as its text is the same in all processes: a str, int, bool, bytes, Enum, UUID, date,
    datetime or Decimal. Equal values of one type give the same path: a Decimal counts without trailing zeros, an aware
    datetime in UTC. `True` and `1` are two paths; `7` and `"7"` are one. An Enum is `Color.RED`, but an IntEnum or
    StrEnum is the number or the text that it equals. An object of a subclass counts as its base type, however it is
    printed. Other objects need a method `__lock_name__`, which returns a scalar::

        class Account:
            def __lock_name__(self):
                return self.number

    All other values are refused, including None, floats and containers: name an attribute or an item (`{order.id}`).

    It decorates functions, methods, and class and static methods, above or below their decorators. The result is
    pickled by name, as a plain function is, so `Pool.map` takes it. Pickled by value, as by joblib and dask, it
    takes its lock along, if `connect` opened the client; otherwise that is a TypeError. A `weakref.WeakMethod` of a
    decorated generator method can't be called. A generator function holds
    the lock while its generator runs: from the first `next()` until it ends, is closed or raises, also while
    suspended at a `yield`. It must end in the thread that began it: exhaust it, or use `contextlib.closing`. Below
    `contextlib.contextmanager` it gives a `with` block. An `async def` is refused, as the lock would block its
    event loop: use `aio.synchronized`.

    Args:
        where: a client, from `connect`; or a namespace, to whose path `path` is relative; or a function without
            arguments that returns one of these, called for each call. Or a lock.
        path: the path, absolute for a client and relative for a namespace.

    Raises:
        TypeError: `where` is none of these. On decoration: the target is `async def`, a class, or not a function. On a
            call: an argument's value is not a scalar and has no `__lock_name__`.
        ValueError: the path or its syntax is invalid. On decoration: it names an argument that the function lacks. On a
            call: an argument's text is empty, has more than 255 bytes when escaped (in UTF-8), or depends on the locale
            of the process (`:n`, `:%B`).
        LockLostError: on a call whose hold was lost; as at the end of a `with` block.

    Source:
        `wrapt.synchronized`, which takes this library's locks too, but holds the lock of a generator function only
        during the call that makes the generator.
    """

    _namespace = Namespace

    def __init__(self, where: Where | LockLike, path: str | None = None) -> None:
        super().__init__(where, path)

    def _is_lock(self, lock: object) -> bool:
        return isinstance(lock, LockLike)

    def _rlock(self, client: KazooClient, path: str) -> RLock:
        return RLock(client, path)

    def _kind(self, function: Function) -> Kind:
        if calls_are(inspect.iscoroutinefunction, function) or calls_are(inspect.isasyncgenfunction, function):
            raise TypeError(_ASYNC.format(_name(function)))
        return _GENERATOR if calls_are(inspect.isgeneratorfunction, function) else _FUNCTION

    def __enter__(self) -> bool:
        return self._block().__enter__()  # type: ignore[no-any-return]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered.__exit__(kind, error, traceback)


def _of_plain(name: str) -> Any:
    """Return a property of `SynchronizedFunction` that is that attribute of its plain function."""

    def found(self: Any) -> Any:
        return getattr(self._self_plain or self.__wrapped__, name)

    return property(found)


class SynchronizedMethod(wrapt.BoundFunctionWrapper):  # type: ignore[misc, type-arg, unused-ignore]
    """A decorated method of an object, or of a class; pickled as a plain one."""

    def __reduce_ex__(self, protocol: object) -> Any:
        return getattr, (self.__self__, self.__name__)

    @property
    def __func__(self) -> Any:
        """The function in the class: decorated, as a bare method's is the one that its class shows."""
        return self._self_parent

    def __copy__(self) -> SynchronizedMethod:
        return self

    def __deepcopy__(self, memo: object) -> SynchronizedMethod:
        return self


class SynchronizedFunction(wrapt.FunctionWrapper):  # type: ignore[misc, type-arg, unused-ignore]
    """A decorated function that is a proxy; pickled by its name, which another process resolves to its own.

    If it is pickled by value, `plain` is.
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
        # An unbound function is the decorated one itself, as a plain function is in its class.
        return self if isinstance(bound, FunctionType) else bound

    def __reduce_ex__(self, protocol: object) -> Any:
        return getattr(self, "__qualname__", None) or (self._self_by, (self.__wrapped__,))

    def __copy__(self) -> SynchronizedFunction:
        return self

    def __deepcopy__(self, memo: object) -> SynchronizedFunction:
        return self


def _name(function: Function) -> str:
    return getattr(function, "__qualname__", repr(function))


def _call(lock: LockLike, function: Function, args: Args, kwargs: KwArgs) -> Any:
    """Call a function with the lock held."""
    with lock:
        result = function(*args, **kwargs)
    if inspect.iscoroutine(result):
        result.close()
    if inspect.iscoroutine(result) or inspect.isasyncgen(result):
        raise TypeError(_ASYNC.format(_name(function)))
    if isinstance(result, _RUNS_LATER):
        raise TypeError(_RETURNS_LATER.format(_name(function), type(result).__name__))
    return result


def _function(calls: DecoratedCalls) -> Function:
    def call(*args: object, **kwargs: object) -> object:
        return calls.begin(args, kwargs)

    return call


def _iterate(lock: LockLike, function: Function, args: Args, kwargs: KwArgs) -> Any:
    """Begin a generator, which holds the lock while it runs, from its beginning to its end."""
    return _held(lock, function(*args, **kwargs))


def _held(lock: LockLike, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    with lock:
        return (yield from generator)


def _generator(calls: DecoratedCalls) -> Function:
    def call(*args: object, **kwargs: object) -> Generator[Any, Any, object]:
        return (yield from calls.begin(args, kwargs))

    return call


_RUNS_LATER = types.GeneratorType, contextlib._GeneratorContextManager
_RETURNS_LATER = (
    "{0} has returned a {1}, whose body would run without the lock: put synchronized on the generator function itself, "
    "below contextmanager and other decorators"
)
_ASYNC = (
    "synchronized can't decorate the async function {0}: waiting for the lock would block its event loop, and the "
    "lock would not exclude other tasks of the thread. Use zkconcurrent.aio.synchronized"
)

_FUNCTION = Kind(_call, _function)
_GENERATOR = Kind(_iterate, _generator)
# A call of a function with one of these flags runs nothing of its body.
_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
