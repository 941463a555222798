"""What cloudpickle pickles by value, as for joblib, dask, Ray and Spark, keeps its lock, or is refused."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import pickle
import sys
import threading
import types
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import cloudpickle
import pytest
import wrapt
from kazoo.client import KazooClient

import zkconcurrent
from zkconcurrent import aio, once_per, synchronized
from zkconcurrent._client.connect import Client, prepare

local = zkconcurrent.namespace("local")
tasks = aio.namespace("local")


def here() -> zkconcurrent.Namespace:
    """Return where the locks are; it is importable, and so pickled by name."""
    return local


def here_too() -> aio.Namespace:
    """Return where the locks of tasks are."""
    return tasks


def held(name: str) -> bool:
    """Return whether the caller holds the lock of that name."""
    return local.RLock(name)._is_owned()


def held_too(name: str) -> bool:
    """Return whether the calling task holds the lock of that name."""
    return tasks.RLock(name).hold_count() > 0


@wrapt.decorator
def doubled(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of a call, and whether the call knows its object, as a decorator of somebody else's."""
    return wrapped(*args, **kwargs), instance is not None


def functions() -> dict[str, Callable[..., Any]]:
    """Return decorated functions that no name leads to."""

    @synchronized(here, "x/{n}")
    def function(n: int, *, other: int = 1) -> bool:
        """Say it."""
        return held(f"x/{n}") and other == 1

    @synchronized(here, "x/{n}")
    def generator(n: int) -> Iterator[bool]:
        """Say it."""
        yield held(f"x/{n}")

    @aio.synchronized(here_too, "x/{n}")
    async def coroutine(n: int) -> bool:
        """Say it."""
        return held_too(f"x/{n}")

    @aio.synchronized(here_too, "x/{n}")
    async def async_generator(n: int) -> AsyncIterator[bool]:
        """Say it."""
        yield held_too(f"x/{n}")

    def recursive(n: int, depth: int = 2) -> bool:
        """Say it."""
        return again(n, depth - 1) if depth else held(f"x/{n}")

    again = synchronized(here, "x/{n}")(recursive)
    return {each.__name__: each for each in (function, generator, coroutine, async_generator, again)}


def outcome(told: Any) -> Any:
    """Run a call of any kind to its end, and return what it returns or yields."""
    if inspect.iscoroutine(told):
        return asyncio.run(told)
    if not inspect.isasyncgen(told):
        return next(iter(list(told))) if inspect.isgenerator(told) else told

    async def first() -> Any:
        [only] = [each async for each in told]
        return only

    return asyncio.run(first())


def copied(what: Any) -> Any:
    """Return what another process has of it."""
    return cloudpickle.loads(cloudpickle.dumps(what))


@pytest.mark.fault(237)
@pytest.mark.parametrize("name", ["function", "generator", "coroutine", "async_generator", "recursive"])
def test_a_function(name: str) -> None:
    """A function of each kind holds its lock, looks as before, and is pickled again in the same way."""
    function = functions()[name]
    for other in (copied(function), copied(copied(function)), copied(functools.partial(function)).func):
        assert outcome(other(7)) is True
        assert other is not function
        assert (other.__name__, other.__qualname__, other.__doc__) == (name, function.__qualname__, "Say it.")
        assert inspect.signature(other) == inspect.signature(function)
        for kind in (inspect.isfunction, inspect.isgeneratorfunction, inspect.iscoroutinefunction):
            assert kind(other) == kind(function)
        assert inspect.isasyncgenfunction(other) == inspect.isasyncgenfunction(function)
        with pytest.raises(TypeError, match="has no text"):
            outcome(other(None))
        if name != "recursive":
            assert outcome(other.__wrapped__(7)) is False


def test_attributes() -> None:
    """Attributes of a function go along, those of a generator function too, and the function behind comes by itself."""
    for function in functions().values():
        function.color = "red"  # type: ignore[attr-defined]
        assert vars(function)["color"] == copied(function).color == "red"
        bare = function.__wrapped__  # type: ignore[attr-defined]
        assert inspect.signature(copied(bare)) == inspect.signature(bare)
    together = copied(functions()["recursive"].__wrapped__)  # its cell has the decorated function
    assert together(7) is True
    assert inspect.signature(together).parameters["depth"].default == 2


def accounts() -> type[Any]:
    """Return a class that no name leads to."""

    class Account:
        number = 7

        @synchronized(here, "x/{self.number}")
        def method(self) -> bool:
            return held(f"x/{self.number}")

        @synchronized(here, "x/{self.number}")
        def generator(self) -> Iterator[bool]:
            yield held(f"x/{self.number}")

        @synchronized(here, "x/{cls.number}")
        @classmethod
        def above(cls) -> bool:
            return held(f"x/{cls.number}")

        @classmethod
        @synchronized(here, "x/{cls.number}")
        def below(cls) -> bool:
            return held(f"x/{cls.number}")

        @synchronized(here, "x/{n}")
        @staticmethod
        def static(n: int = 7) -> bool:
            return held(f"x/{n}")

        @staticmethod
        @synchronized(here, "x/{n}")
        def static_below(n: int = 7) -> bool:
            return held(f"x/{n}")

        @aio.synchronized(here_too, "x/{self.number}")
        async def coroutine(self) -> bool:
            return held_too(f"x/{self.number}")

        @aio.synchronized(here_too, "x/{cls.number}")
        @classmethod
        async def async_above(cls) -> bool:
            return held_too(f"x/{cls.number}")

        @property
        @synchronized(here, "x/{self.number}")
        def balance(self) -> bool:
            return held(f"x/{self.number}")

    return Account


@pytest.mark.fault(237)
@pytest.mark.parametrize(
    "name", ["method", "generator", "above", "below", "static", "static_below", "coroutine", "async_above"]
)
def test_a_method(name: str) -> None:
    """A method of a class that is pickled by value holds its lock, however it is reached."""
    kind = accounts()
    account = kind()
    assert outcome(getattr(copied(kind)(), name)()) is True
    assert outcome(getattr(copied(account), name)()) is True
    assert outcome(copied(getattr(account, name))()) is True
    assert outcome(copied(functools.partial(getattr(account, name)))()) is True
    assert copied(account).balance is True
    unbound = copied(getattr(kind, name))
    assert outcome(unbound(account) if name in ("method", "generator", "coroutine") else unbound()) is True


@pytest.mark.fault(237)
@pytest.mark.parametrize("name", ["method", "generator", "coroutine"])
def test_the_function_of_a_bound_method(name: str) -> None:
    """`__func__` of a bound method has the lock, and a copy of the bound method is that method."""
    account = accounts()()
    method = getattr(account, name)
    assert outcome(method.__func__(account)) is True
    assert outcome(types.MethodType(method.__func__, account)()) is True
    assert outcome(copy.copy(method)()) is True
    assert outcome(copy.deepcopy(method)()) is True


def test_a_body_that_would_run_later() -> None:
    """A generator or context manager that a call returns is refused: the lock would be free when its body runs."""

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        yield

    for function in (block, lambda: (n for n in range(3))):
        with pytest.raises(TypeError, match="would run without the lock"):
            synchronized(here, "bare")(function)()


@pytest.mark.fault(237)
def test_what_is_no_function() -> None:
    """A partial, an object that can be called, and a bound method hold their lock."""

    class Called:
        number = 7

        def __call__(self, n: int = 7) -> bool:
            return held(f"x/{n}")

    for what in (Called(), functools.partial(Called(), 7), Called().__call__, types.MethodType(Called(), 7)):
        function = synchronized(here, "bare")(what)
        assert inspect.signature(function) == inspect.signature(what)
        function = synchronized(here, "x/7")(what)
        assert function() is True
        assert copied(function)() is True
    assert synchronized(here, "bare")(Called()).number == 7  # type: ignore[attr-defined]


@pytest.mark.fault(237)
def test_the_decorator_of_somebody_else() -> None:
    """Cloudpickle may lose another proxy, above or below, but not the lock; here, both see the object."""

    class Account:
        number = 7

        @synchronized(here, "x/{self.number}")
        @doubled
        def above(self) -> bool:
            return held(f"x/{self.number}")

        @doubled
        @synchronized(here, "x/{self.number}")
        def below(self) -> bool:
            return held(f"x/{self.number}")

        @synchronized(here, "x/{cls.number}")
        @doubled
        @classmethod
        def of_class(cls) -> bool:
            return held(f"x/{cls.number}")

        @synchronized(here, "x/{n}")
        @doubled
        @staticmethod
        def static(n: int = 7) -> bool:
            return held(f"x/{n}")

    account = Account()
    assert account.above() == account.below() == account.of_class() == Account.of_class() == (True, True)
    assert Account.static() == account.static() == (True, False)
    for name in ("above", "below"):
        got = copied(getattr(Account, name))(account)
        assert got in (True, (True, True), (True, False))
    for name in ("of_class", "static"):  # cloudpickle itself can't pickle these
        with pytest.raises((pickle.PicklingError, AttributeError)):
            copied(Account.__dict__[name])


@pytest.mark.fault(237)
def test_a_module_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is registered to be pickled by value is as `__main__` is."""
    module = types.ModuleType("of_the_user")
    monkeypatch.setitem(sys.modules, "of_the_user", module)
    vars(module).update(synchronized=synchronized, here=here, held=held)
    text = (
        "@synchronized(here, 'bare')\ndef function():\n    return held('bare')\n\n\nclass A:\n    method = function\n"
    )
    exec(text, vars(module))
    assert copied(module.function) is module.function
    cloudpickle.register_pickle_by_value(module)
    try:
        assert copied(module.function) is not module.function
        assert copied(module.function)() is True
        assert copied(synchronized(here, "y")(module.function))() is True
    finally:
        cloudpickle.unregister_pickle_by_value(module)


class Mine:
    """A lock that says how it is pickled, and that another process shares."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: ARG002
        """Acquire it."""
        return True

    def release(self) -> None:
        """Release it."""

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass

    def __reduce__(self) -> Any:
        return Mine, ()


opened, _ = prepare("zk://127.0.0.1:1/app")
secret, _ = prepare("zk://me:hidden@127.0.0.1:1")
plain = KazooClient()


async def coroutine(n: int = 1) -> int:
    """Do nothing."""
    return n


@pytest.mark.fault(237)
@pytest.mark.parametrize(
    ("decorator", "told"),
    [
        (
            synchronized(plain, "/users/{n}"),
            r"'/users/\{n\}': its client was not opened by connect\(\).*function that",
        ),
        (synchronized(secret, "/users/{n}"), r"'/users/\{n\}': its client has credentials"),
        (synchronized(zkconcurrent.namespace(plain, "/app"), "{n}"), r"'\{n\}': its client was not opened by connect"),
        (synchronized(local, "users"), r"'users': it is of a namespace\(\"local\"\)"),
        (synchronized(threading.Lock()), "a lock: a lock excludes only within its process"),
        (synchronized(threading.RLock()), "a lock: a RLock excludes only within its process"),
        (synchronized(threading.Condition()), "a Condition excludes only within its process"),
        (synchronized(local.Lock("one")), r"cannot pickle Lock .*one': it is of a namespace\(\"local\"\)"),
        (synchronized(zkconcurrent.Lock(plain, "/lock")), "cannot pickle Lock '/lock'"),
        (aio.synchronized(plain, "/users"), "'/users': its client was not opened by connect"),
        (aio.synchronized(tasks, "users"), r"'users': it is of a namespace\(\"local\"\)"),
        (aio.synchronized(tasks.Lock("one")), "cannot pickle Lock .*one'"),
        (aio.synchronized(asyncio.Lock()), "a Lock excludes only within its process"),
        (aio.synchronized(aio.Lock(plain, "/lock")), "cannot pickle Lock '/lock'"),
    ],
)
def test_what_is_refused(decorator: Any, told: str) -> None:
    """A function whose lock another process could not have is a TypeError that says what to do."""
    function = decorator(coroutine if isinstance(decorator, aio.synchronized) else lambda n=1: n)

    class Kind:
        method = function

    for what in (decorator, function, Kind, Kind().method, lambda: function(1)):
        with pytest.raises(TypeError, match=told) as raised:
            cloudpickle.dumps(what)
        assert "hidden" not in str(raised.value)


def test_what_goes_along() -> None:
    """A client of `connect`, a namespace, a lock and its methods, as a function uses them, are those of the process."""
    lock = zkconcurrent.RLock(opened, "/lock")
    names, names_too = zkconcurrent.namespace(opened, "/app"), aio.namespace(opened, "/app")
    acquire, hold = functools.partial(lock.acquire, timeout=3), lock.hold
    found = copied(lambda: (opened, names, names_too, lock, acquire, hold, lock.hold(3)))()
    client, *others = found
    assert type(client) is Client
    assert client is not opened
    assert client is copied(opened)
    assert client.hosts == opened.hosts
    assert (others[0].path, others[0].client) == (others[1].path, others[1].client) == ("/app", client)
    assert (type(others[0]), type(others[1])) == (type(names), type(names_too))
    assert others[2].client is client
    assert others[3].func.__self__.client is client
    assert others[4].__self__.client is client
    assert others[5]._lock.client is client
    for decorator in (
        synchronized(Mine()),
        synchronized(lock),
        synchronized(opened, "/x/{n}"),
        synchronized(names, "x"),
        once_per(opened, "/jobs/{n}", 60, until_success=True),
    ):
        assert copied(decorator(lambda n=1: n)).__name__ == "<lambda>"


def test_what_does_not() -> None:
    """A client with credentials, and a namespace of a plain client, can't be pickled; a client can't be copied."""
    with pytest.raises(TypeError, match=r"cannot pickle <zkconcurrent.Client .*credentials.*open a client"):
        pickle.dumps(secret)
    for names in (zkconcurrent.namespace(plain, "/app"), aio.namespace(plain, "/app")):
        with pytest.raises(TypeError, match=r"cannot pickle Namespace '/app'.*not opened by connect\(\)"):
            pickle.dumps(names)
    with pytest.raises(TypeError):
        pickle.dumps(plain)
    for what in (opened, zkconcurrent.namespace(opened, "/app")):
        for make in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot copy"):
                make(what)


@pytest.mark.parametrize("name", [name for name in aio.__all__ if isinstance(getattr(aio, name), type)])
def test_those_of_tasks(name: str) -> None:
    """A function that uses a primitive for tasks is refused with the path, as the primitive is; a namespace is not."""
    made = None
    for arguments in ((opened, f"/{name}"), (opened, f"/{name}", 3)):
        # Others make claims and terms.
        with suppress(AttributeError, TypeError, ValueError):
            made = getattr(aio, name)(*arguments) if made is None else made
    if not isinstance(getattr(made, "path", None), str) or name == "Namespace":
        return
    for what in (made, lambda: made, getattr(made, "hold", made)):
        with pytest.raises(TypeError, match=rf"cannot pickle {name} '/{name}'"):
            cloudpickle.dumps(what)
