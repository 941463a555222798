"""`synchronized`: each call of a function holds a lock, at a path made from the call's arguments.

The path's template is checked when the function is decorated. Each value is escaped: it stays within its part of the
path, so no argument can lead outside the template, and different texts give different paths.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import functools
import importlib
import inspect
import pickle
import re
import string
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import wrapt

from ._kazoo.link import KazooClient
from ._local import LocalNamespace
from ._locklike import LockLike
from ._namespace import Namespace, SharedNamespace
from ._paths import check_name, check_path, escape
from ._primitive import kind_of
from ._rlock import RLock

F = TypeVar("F", bound="Callable[..., Any] | classmethod[Any, Any, Any] | staticmethod[Any, Any]")
Hold: TypeAlias = Callable[[Any, Any, "tuple[Any, ...]", "dict[str, Any]"], Any]
Where: TypeAlias = "KazooClient | Namespace | Callable[[], KazooClient | Namespace]"

LONGEST_FIELD = 255  # bytes of UTF-8, escaped: the longest file name
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
        try:  # finds the syntax errors that only show in use
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

    def path(self, arguments: dict[str, Any]) -> str:
        """Return the path for the arguments of a call.

        Raises:
            TypeError: a field's value is not a scalar and has no `__lock_name__`; or its format is for other types.
            ValueError: a value's text is empty or too long, or depends on the process.
        """
        return self.fill(lambda field: self._value(field, arguments))

    def _value(self, field: Field, arguments: dict[str, Any]) -> str:
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
    kind = type(value)  # of the value itself: a proxy's `__class__` is not its own
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


def _of_enum(value: Any) -> str:
    name = value._name_ if value._name_ in type(value).__members__ else value._value_  # several flags have no name
    return f"{type(value).__name__}.{name}"


def _of_decimal(value: Any) -> decimal.Decimal:
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


def _of_datetime(value: Any) -> datetime.datetime:
    """Return an aware datetime in UTC: the same moment in two time zones is one lock."""
    plain = datetime.datetime.combine(_of_date(value), value.timetz())
    return plain if plain.utcoffset() is None else plain.astimezone(datetime.timezone.utc)


def _of_date(value: Any) -> datetime.date:
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


class LockedBy(ABC):
    """The base of both `synchronized` decorators: it holds a lock around each call of a function.

    Attributes:
        _namespaces: the classes of namespaces.
    """

    _namespaces: tuple[type[Any], ...]

    def __init__(self, where: Any, path: str | None = None) -> None:
        self._lock_given = where if path is None else None
        self._where: Any = where
        if path is None:
            if not self._is_lock(where):
                raise TypeError(f"without a path, give a lock, not a {kind_of(where)}")
            self._template = Template("")
            return
        if not (isinstance(where, (KazooClient, *self._namespaces)) or callable(where)):
            raise TypeError(f"give a client, a namespace or a function that returns one, not {type(where).__name__}")
        self._template = Template(path)
        example = self._template.fill(lambda _: "x")
        is_namespace = isinstance(where, self._namespaces)
        if isinstance(where, KazooClient) or (path.startswith("/") and not is_namespace):
            check_path(example)
        else:
            check_name(where.path if is_namespace else "/", example)

    def _lock(self, arguments: dict[str, Any]) -> Any:
        """Return the lock for the arguments of a call."""
        if self._lock_given is not None:
            return self._lock_given
        where = self._where
        if not isinstance(where, (KazooClient, *self._namespaces)):
            where = where()
        path = self._template.path(arguments)
        return where.RLock(path) if isinstance(where, self._namespaces) else self._rlock(where, path)

    def _block(self) -> Any:
        """Return the lock of a block."""
        if self._template.arguments:
            raise TypeError(f"a block has no arguments for {', '.join(self._template.arguments)}: decorate a function")
        self._entered = self._lock({})  # a reference, as a lock is dropped with its last object
        return self._entered

    def __call__(self, function: F) -> F:
        """Return the function with the lock around its calls; its name, signature and docstring are kept."""
        inner: Any = getattr(function, "__func__", function)  # behind a classmethod, staticmethod or bound method
        name = getattr(inner, "__qualname__", repr(inner))
        if isinstance(function, type) or not callable(inner):
            raise TypeError(f"synchronized is for functions and methods, not for {function!r}")
        hold = self._holding(inner, name)
        signature = inspect.signature(inner)
        for argument in self._template.arguments:
            if argument not in signature.parameters:
                raise ValueError(
                    f"{name} has no argument {argument!r}, which the path names; it has "
                    f"{', '.join(signature.parameters) or 'none'}"
                )

        def lock_for(instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if not self._template.arguments:
                return self._lock({})
            bound = signature.bind(*(() if instance is None else (instance,)), *args, **kwargs)
            bound.apply_defaults()
            return self._lock(bound.arguments)

        def call(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return hold(lock_for(instance, args, kwargs), wrapped, args, kwargs)

        return SynchronizedFunction(function, call)  # type: ignore

    @abstractmethod
    def _is_lock(self, lock: object) -> bool:
        """Return whether `lock` can be held."""

    @abstractmethod
    def _rlock(self, client: KazooClient, path: str) -> Any:
        """Return the RLock at the path."""

    @abstractmethod
    def _holding(self, function: Any, name: str) -> Hold:
        """Return a function that calls `function` with a lock held.

        Raises:
            TypeError: this decorator is not for such a function.
        """


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
    pickled by name, as a plain function is, so `Pool.map` takes it. A generator function holds the lock while its
    generator runs: from the first `next()` until it ends, is closed or raises, also while suspended at a `yield`. It
    must end in the thread that began it: exhaust it, or use `contextlib.closing`. Below `contextlib.contextmanager` it
    gives a `with` block. An `async def` is refused, as the lock would block its event loop: use `aio.synchronized`.

    Args:
        where: a `kazoo.client.KazooClient`; or a namespace, to whose path `path` is relative; or a function without
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

    _namespaces = SharedNamespace, LocalNamespace

    def __init__(self, where: Where | LockLike, path: str | None = None) -> None:
        super().__init__(where, path)

    def _is_lock(self, lock: object) -> bool:
        return isinstance(lock, LockLike)

    def _rlock(self, client: KazooClient, path: str) -> RLock:
        return RLock(client, path)

    def _holding(self, function: Any, name: str) -> Hold:
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(_ASYNC.format(name))
        if inspect.isgeneratorfunction(function):
            return lambda lock, wrapped, args, kwargs: _hold(lock, wrapped(*args, **kwargs))

        def call(lock: LockLike, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            with lock:
                result = wrapped(*args, **kwargs)
            if inspect.iscoroutine(result):
                result.close()
            if inspect.iscoroutine(result) or inspect.isasyncgen(result):
                raise TypeError(_ASYNC.format(name))
            return result

        return call

    def __enter__(self) -> bool:
        return self._block().__enter__()  # type: ignore[no-any-return]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered.__exit__(kind, error, traceback)


class SynchronizedMethod(wrapt.BoundFunctionWrapper):  # type: ignore[misc, type-arg, unused-ignore]
    """A decorated method, looked up in its class or in an object; pickled as a plain one."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        owner = getattr(self.__wrapped__, "__self__", None)  # the object, or the class of a class method
        if owner is not None:
            return getattr, (owner, self.__name__)
        if _find(self.__module__, self.__qualname__).__wrapped__ is not self.__wrapped__:
            raise pickle.PicklingError(f"{self.__module__}.{self.__qualname__} is now another function")
        return _find, (self.__module__, self.__qualname__)


class SynchronizedFunction(wrapt.FunctionWrapper):  # type: ignore[misc, type-arg, unused-ignore]
    """A decorated function; pickled as a plain one: by its name, which another process resolves to its own."""

    __bound_function_wrapper__ = SynchronizedMethod

    def __reduce_ex__(self, protocol: Any) -> str:
        return self.__qualname__  # type: ignore[no-any-return, unused-ignore]

    def __copy__(self) -> SynchronizedFunction:
        return self

    def __deepcopy__(self, memo: object) -> SynchronizedFunction:
        return self


def _find(module: str, name: str) -> Any:
    """Return the function with that qualified name.

    Raises:
        pickle.PicklingError: there is none.
    """
    try:
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise pickle.PicklingError(f"{module}.{name} can't be found: {error}") from error


def _hold(lock: LockLike, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Hold the lock while a generator runs, from its beginning to its end."""
    with lock:
        return (yield from generator)


_ASYNC = (
    "synchronized can't decorate the async function {0}: waiting for the lock would block its event loop, and the "
    "lock would not exclude other tasks of the thread. Use zkconcurrent.aio.synchronized"
)
