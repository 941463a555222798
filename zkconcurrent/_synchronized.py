"""`synchronized`: a function whose calls hold a lock, at a path that is made of what it is called with.

The template of the path is checked when the function is decorated, and whatever the arguments are, the path is one that
the template describes: each value is escaped, so that it stays one part of the path, and can be told from every other.
"""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import wrapt

from ._kazoo import KazooClient
from ._local import LocalNamespace
from ._locklike import LockLike
from ._namespace import Namespace, SharedNamespace
from ._paths import check_name, check_path
from ._rlock import RLock

F = TypeVar("F", bound="Callable[..., Any] | classmethod[Any, Any, Any] | staticmethod[Any, Any]")
Where: TypeAlias = "KazooClient | Namespace | Callable[[], KazooClient | Namespace]"

# What ends a part of the path, what ZooKeeper does not accept (it counts in UTF-16), and what marks an escape.
_ESCAPED = re.compile("[/%\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


class Field(NamedTuple):
    """One `{...}` of a template.

    Attributes:
        before: the text between the last one, or the beginning, and it.
        name: as it is written, such as `user.id`; empty for the text at the end.
        argument: the name of the argument that it begins with.
        form: how its value is made text: the conversion, and the format.
    """

    before: str
    name: str
    argument: str
    form: str


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
            return Field(before, "", "", "")
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
        return Field(before, name, argument, form)

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
            TypeError: the value of a field has no text of its own that is the same in all processes.
            ValueError: that text is empty.
        """
        return self.fill(lambda field: self._value(field, arguments))

    def _value(self, field: Field, arguments: dict[str, Any]) -> str:
        value, _ = string.Formatter().get_field(field.name, (), arguments)
        kind = type(value)
        own = any(name in vars(each) for each in kind.__mro__[:-1] for name in ("__str__", "__repr__", "__format__"))
        text = f"{{0{field.form}}}".format(value)
        if value is None or isinstance(value, set | frozenset) or not own or f"{id(value):x}" in text.lower():
            raise TypeError(
                f"{{{field.name}}} of {self._text!r} is of the type {kind.__name__}, which has no text that says in "
                "all processes which one it is: name an attribute of it, or pass a value"
            )
        if not text:
            raise ValueError(f"{{{field.name}}} of {self._text!r} is empty in this call, and a path can't have that")
        return escape(text)


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


class synchronized:  # noqa: N801 - as wrapt has it
    """Decorate a function so that each call holds a lock: `@synchronized(zk, "/users/{user.id}")`.

    The lock is the `RLock` at the path, so functions with the same path may call each other. The fields of the path are
    those of `str.format`: arguments by name, also `self` and `cls`, defaults too, with `.attribute`, `[item]`, `!r` and
    `:format`; at most one between two slashes. A value can't make the path leave what the template says: it is
    escaped, one to one, so that two values have one path only if they have one text. `@synchronized(lock)` holds a
    lock that is there, of whatever kind; and `with synchronized(zk, "/app/report"):` is a block.

    It is for functions, methods, and class and static methods, above or below their decorators. A generator function
    holds the lock while it runs: from the first `next()` until it ends, is closed or raises, also while it stands at a
    `yield`. It must end in the thread that began it: exhaust it, or use `contextlib.closing`. Below
    `contextlib.contextmanager` that gives a `with` block. An `async def` is refused: the lock would block its event
    loop.

    Args:
        where: a `kazoo.client.KazooClient`; or a namespace, below whose path the lock is; or a function without
            arguments that returns one of these, called anew for each call. Or a lock.
        path: the path, absolute for a client and relative for a namespace.

    Raises:
        TypeError: `where` is none of these. When decorating: what is decorated is `async def`, a class, or no
            function. When called: an argument's value has no text of its own (None, a set, a plain object).
        ValueError: the path is bad, or its syntax. When decorating: it names an argument that the function does not
            have. When called: an argument's value is empty.
        LockLostError: when called, and the lock was lost; as at the end of a `with` block.

    Source:
        `wrapt.synchronized`, which takes a lock of ours too, and holds it while a generator function is only called.
    """

    def __init__(self, where: Where | LockLike, path: str | None = None) -> None:
        self._lock_given = where if path is None else None
        self._where: Any = where
        if path is None:
            if not isinstance(where, LockLike):
                raise TypeError(f"without a path, give a lock, not {type(where).__name__}")
            self._template = Template("")
            return
        if not (isinstance(where, KazooClient | SharedNamespace | LocalNamespace) or callable(where)):
            raise TypeError(f"give a client, a namespace or a function that returns one, not {type(where).__name__}")
        self._template = Template(path)
        example = self._template.fill(lambda _: "x")
        if isinstance(where, KazooClient) or (path.startswith("/") and not isinstance(where, Namespace)):
            check_path(example)
        else:
            check_name(where.path if isinstance(where, Namespace) else "/", example)

    def _lock(self, arguments: dict[str, Any]) -> LockLike:
        """Return the lock for the arguments of a call."""
        if self._lock_given is not None:
            return self._lock_given  # type: ignore[return-value]
        where = self._where
        if not isinstance(where, KazooClient | SharedNamespace | LocalNamespace):
            where = where()
        path = self._template.path(arguments)
        if isinstance(where, SharedNamespace | LocalNamespace):
            return where.RLock(path)
        return RLock(where, path)

    def __call__(self, function: F) -> F:
        """Return the function with the lock around its calls; its name, signature and docstring stay."""
        inner: Any = getattr(function, "__func__", function)  # of a classmethod, a staticmethod, a bound method
        name = getattr(inner, "__qualname__", repr(inner))
        if isinstance(function, type) or not callable(inner):
            raise TypeError(f"synchronized is for functions and methods, not for {function!r}")
        if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
            raise TypeError(_ASYNC.format(name))
        signature = inspect.signature(inner)
        for argument in self._template.arguments:
            if argument not in signature.parameters:
                raise ValueError(
                    f"{name} has no argument {argument!r}, which the path names; it has "
                    f"{', '.join(signature.parameters) or 'none'}"
                )

        def lock_for(instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LockLike:
            if not self._template.arguments:
                return self._lock({})
            bound = signature.bind(*(() if instance is None else (instance,)), *args, **kwargs)
            bound.apply_defaults()
            return self._lock(bound.arguments)

        def call(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            with lock_for(instance, args, kwargs):
                result = wrapped(*args, **kwargs)
            if inspect.iscoroutine(result):
                result.close()
            if inspect.iscoroutine(result) or inspect.isasyncgen(result):
                raise TypeError(_ASYNC.format(name))
            return result

        def generate(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return _hold(lock_for(instance, args, kwargs), wrapped(*args, **kwargs))

        return wrapt.FunctionWrapper(function, generate if inspect.isgeneratorfunction(inner) else call)  # type: ignore

    # -- as a block ------------------------------------------------------------------------------------------------

    def __enter__(self) -> bool:
        if self._template.arguments:
            raise TypeError(f"a block has no arguments for {', '.join(self._template.arguments)}: decorate a function")
        self._entered = self._lock({})  # kept, as a lock without an object is nobody's
        return self._entered.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered.__exit__(kind, error, traceback)


def _hold(lock: LockLike, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run a generator with the lock held, from its beginning to its end."""
    with lock:
        return (yield from generator)


_ASYNC = (
    "synchronized can't be for the async function {0}: to wait for the lock would block its event loop, and other "
    "tasks of the thread would pass. Decorate a plain function, and call that by asyncio.to_thread()"
)
