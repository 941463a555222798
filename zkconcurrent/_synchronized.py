"""`synchronized`: a function whose calls hold a lock, at a path that is made of what it is called with.

The template of the path is checked when the function is decorated, and whatever the arguments are, the path is one that
the template describes: each value is escaped, so that it stays one part of the path, and can be told from every other.
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
from ._paths import check_name, check_path
from ._rlock import RLock

F = TypeVar("F", bound="Callable[..., Any] | classmethod[Any, Any, Any] | staticmethod[Any, Any]")
Hold: TypeAlias = Callable[[Any, Any, "tuple[Any, ...]", "dict[str, Any]"], Any]
Where: TypeAlias = "KazooClient | Namespace | Callable[[], KazooClient | Namespace]"

# What ends a part of the path, what ZooKeeper does not accept (it counts in UTF-16), and what marks an escape.
_ESCAPED = re.compile("[/%\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
LONGEST_FIELD = 255  # bytes in UTF-8, once escaped: as much as a file's name may have
# Formats whose text depends on the process's locale, or on its time zone.
_LOCAL_NUMBER = re.compile("n$")
_LOCAL_DATE = re.compile("%[-_0^#EO]*[aAbBchpPrsxX+]")


class Field(NamedTuple):
    """One `{...}` of a template.

    Attributes:
        before: the text between the last one, or the beginning, and it.
        name: as it is written, such as `user.id`; empty for the text at the end.
        argument: the name of the argument that it begins with.
        form: how its value is made text: the conversion, and the format.
        spec: the format.
    """

    before: str
    name: str
    argument: str
    form: str
    spec: str


class Template:
    """The path of a lock, with the arguments of a call in it: `/users/{user.id}`.

    Raises:
        TypeError: it is not a string.
        ValueError: its syntax is wrong; or two fields are in one part, so that different values could make one path.
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
                f"the template {text!r} has two fields in one part of the path, where different values could make the "
                "same: put a '/' between them"
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
        try:  # errors of the syntax that only show when it is used
            string.Formatter().get_field(name, (), {argument: _Anything()})
            if conversion:
                string.Formatter().convert_field("", conversion)
        except ValueError as error:
            raise ValueError(f"the template {self._text!r} is wrong in {{{name}}}: {error}") from None
        return Field(before, name, argument, form, spec or "")

    @property
    def arguments(self) -> list[str]:
        """The names of the arguments that it needs."""
        return [field.argument for field in self._fields if field.name]

    def fill(self, value: Callable[[Field], str]) -> str:
        """Return the path, with the text that `value` gives for each field."""
        return "".join(field.before + (value(field) if field.name else "") for field in self._fields)

    def path(self, arguments: dict[str, Any]) -> str:
        """Return the path for the arguments of a call.

        Raises:
            TypeError: the value of a field is no scalar and has no `__lock_name__`; or its format is for other types.
            ValueError: its text is empty or too long, or differs from process to process.
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
            raise ValueError(f"{which} is empty in this call, and a path can't have that")
        # The text itself first: an escape only makes it longer, and takes its time.
        if len(text) <= LONGEST_FIELD:
            escaped = escape(text)
            if len(escaped.encode()) <= LONGEST_FIELD:
                return escaped
        raise ValueError(f"{which} is too long in this call: {LONGEST_FIELD} bytes at most, escaped and in UTF-8")


def scalar(value: object, spec: str = "") -> Any:
    """Return what a value's text in a path is made of: equal values give equal texts, in every process.

    A subclass counts as the type that it extends: whatever it prints of itself is not looked at.

    Args:
        value: what a field of a template stands for, or what that names itself.
        spec: the format that it is made text with.

    Raises:
        TypeError: its text may differ from process to process, or between equal values: it is no scalar.
        ValueError: so does the text of this one, or in this format.
    """
    kind = type(value)  # of the value itself: a proxy's `__class__` is not its own
    for base, plain in _PLAIN.items():
        if issubclass(kind, base):
            value = plain(value)
            break
    else:
        raise TypeError(
            f"a {kind.__name__} has no text that says in all processes which one it is: name an attribute of it, pass "
            "a str or an int, or give its class a method __lock_name__ that returns one"
        )
    local = _LOCAL_DATE if isinstance(value, datetime.date) else _LOCAL_NUMBER
    if not isinstance(value, str) and local.search(spec):
        raise ValueError(f"the format {spec!r} gives each process the text of its own locale")
    return value


def _of_enum(value: Any) -> str:
    name = value._name_ if value._name_ in type(value).__members__ else value._value_  # several flags have no name
    return f"{type(value).__name__}.{name}"


def _of_decimal(value: Any) -> decimal.Decimal:
    """Return the number without what makes `1`, `1.0` and `1E+0` different texts."""
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
    """Return an aware one in UTC: two clocks that show the same moment are one lock."""
    plain = datetime.datetime.combine(_of_date(value), value.timetz())
    return plain if plain.utcoffset() is None else plain.astimezone(datetime.timezone.utc)


def _of_date(value: Any) -> datetime.date:
    return datetime.date(value.year, value.month, value.day)


# The scalars, and how each becomes what is formatted; the first that fits counts. An IntEnum is an int, and a StrEnum a
# str, which they are equal to.
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
    """Has every attribute and item: stands for the argument of a call when a template is checked."""

    def __getattr__(self, name: str) -> _Anything:
        return self

    def __getitem__(self, key: object) -> _Anything:
        return self


def escape(text: str) -> str:
    """Return a text as one part of a path, different texts as different ones: `%` and the bytes of UTF-8."""
    if text in (".", ".."):
        return text.replace(".", "%2E")
    return _ESCAPED.sub(lambda found: "".join(f"%{b:02X}" for b in found[0].encode("utf-8", "surrogatepass")), text)


class LockedBy(ABC):
    """A decorator that holds a lock around what it decorates: what both bindings share.

    Attributes:
        _namespaces: the classes of namespaces.
    """

    _namespaces: tuple[type[Any], ...]

    def __init__(self, where: Any, path: str | None = None) -> None:
        self._lock_given = where if path is None else None
        self._where: Any = where
        if path is None:
            if not self._is_lock(where):
                raise TypeError(f"without a path, give a lock, not {type(where).__name__}")
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
        self._entered = self._lock({})  # kept, as a lock without an object is nobody's
        return self._entered

    def __call__(self, function: F) -> F:
        """Return the function with the lock around its calls; its name, signature and docstring stay."""
        inner: Any = getattr(function, "__func__", function)  # of a classmethod, a staticmethod, a bound method
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
        """Return whether that can be held."""

    @abstractmethod
    def _rlock(self, client: KazooClient, path: str) -> Any:
        """Return the RLock there."""

    @abstractmethod
    def _holding(self, function: Any, name: str) -> Hold:
        """Return what calls such a function, with a lock held.

        Raises:
            TypeError: this is not for such a function.
        """


class synchronized(LockedBy):  # noqa: N801 - as wrapt has it
    """Decorate a function so that each call holds a lock: `@synchronized(zk, "/users/{user.id}")`.

    The lock is the `RLock` at the path, so functions with the same path may call each other. The fields of the path are
    those of `str.format`: arguments by name, also `self` and `cls`, defaults too, with `.attribute`, `[item]`, `!r` and
    `:format`; at most one between two slashes. A value can't make the path leave what the template says: it is
    escaped, one to one, so that two values have one path only if they have one text. `@synchronized(lock)` holds a
    lock that is there, of whatever kind; and `with synchronized(zk, "/app/report"):` is a block.

    A value must be a scalar, whose text is the same in all processes: a str, int, bool, bytes, Enum, UUID, date,
    datetime or Decimal. Equal ones of a type give one path: a Decimal counts without the zeros at its end, an aware
    datetime in UTC. `True` and `1` are two paths, `7` and `"7"` are one. An Enum is `Color.RED`, but an IntEnum or
    StrEnum is the number or the text that it equals; a subclass is what it extends, whatever it prints of itself.
    Other objects say who they are by a method `__lock_name__`, which returns a scalar::

        class Account:
            def __lock_name__(self):
                return self.number

    All else is refused, also None, floats and containers: name an attribute or an item of it (`{order.id}`).

    It is for functions, methods, and class and static methods, above or below their decorators. They are pickled by
    name, as plain ones are, so that `Pool.map` takes them. A generator function holds the lock while it runs: from the
    first `next()` until it ends, is closed or raises, also while it stands at a `yield`. It must end in the thread that
    began it: exhaust it, or use `contextlib.closing`. Below `contextlib.contextmanager` that gives a `with` block. An
    `async def` is refused, as the lock would block its event loop: `aio.synchronized` is for that.

    Args:
        where: a `kazoo.client.KazooClient`; or a namespace, below whose path the lock is; or a function without
            arguments that returns one of these, called anew for each call. Or a lock.
        path: the path, absolute for a client and relative for a namespace.

    Raises:
        TypeError: `where` is none of these. When decorating: what is decorated is `async def`, a class, or no
            function. When called: an argument's value is no scalar, and has no `__lock_name__`.
        ValueError: the path is bad, or its syntax. When decorating: it names an argument that the function does not
            have. When called: an argument's value is empty, has more than 255 bytes once escaped and in UTF-8, or is
            made text as the process's locale has it (`:n`, `:%B`).
        LockLostError: when called, and the lock was lost; as at the end of a `with` block.

    Source:
        `wrapt.synchronized`, which takes a lock of ours too, and holds it while a generator function is only called.
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
    """A decorated function that was looked up in its class, or in an object; it is pickled as a plain one would be."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        owner = getattr(self.__wrapped__, "__self__", None)  # the object; the class, of a class method
        if owner is not None:
            return getattr, (owner, self.__name__)
        if _find(self.__module__, self.__qualname__).__wrapped__ is not self.__wrapped__:
            raise pickle.PicklingError(f"{self.__module__}.{self.__qualname__} is another function by now")
        return _find, (self.__module__, self.__qualname__)


class SynchronizedFunction(wrapt.FunctionWrapper):  # type: ignore[misc, type-arg, unused-ignore]
    """A decorated function; it is pickled as a plain one: by the name that another process finds its own by."""

    __bound_function_wrapper__ = SynchronizedMethod

    def __reduce_ex__(self, protocol: Any) -> str:
        return self.__qualname__  # type: ignore[no-any-return, unused-ignore]

    def __copy__(self) -> SynchronizedFunction:
        return self

    def __deepcopy__(self, memo: object) -> SynchronizedFunction:
        return self


def _find(module: str, name: str) -> Any:
    """Return the function of that qualified name.

    Raises:
        pickle.PicklingError: there is none.
    """
    try:
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise pickle.PicklingError(f"{module}.{name} can't be found: {error}") from error


def _hold(lock: LockLike, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run a generator with the lock held, from its beginning to its end."""
    with lock:
        return (yield from generator)


_ASYNC = (
    "synchronized can't be for the async function {0}: to wait for the lock would block its event loop, and other "
    "tasks of the thread would pass. For an async def there is zkconcurrent.aio.synchronized"
)
