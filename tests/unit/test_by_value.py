"""What cloudpickle pickles by value, as for joblib, dask, Ray and Spark, keeps its lock, or is refused."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import cloudpickle
import pytest
from kazoo.client import KazooClient

import zkconcurrent
from zkconcurrent import aio, synchronized
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


def accounts() -> type[Any]:
    """Return a class that no name leads to."""

    class Account:
        number = 7

        @synchronized(here, "x/{self.number}")
        def method(self) -> bool:
            return held(f"x/{self.number}")

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

        @aio.synchronized(here_too, "x/{self.number}")
        async def coroutine(self) -> bool:
            return held_too(f"x/{self.number}")

        @property
        @synchronized(here, "x/{self.number}")
        def balance(self) -> bool:
            return held(f"x/{self.number}")

    return Account


@pytest.mark.fault(237)
@pytest.mark.parametrize("name", ["method", "above", "below", "static", "coroutine"])
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
    assert outcome(unbound(account) if name in ("method", "coroutine") else unbound()) is True


def test_a_body_that_would_run_later() -> None:
    """A generator or context manager that a call returns is refused: the lock would be free when its body runs."""

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        yield

    for function in (block, lambda: (n for n in range(3))):
        with pytest.raises(TypeError, match="would run without the lock"):
            synchronized(here, "bare")(function)()


opened, _ = prepare("zk://127.0.0.1:1/app")
secret, _ = prepare("zk://me:hidden@127.0.0.1:1")
plain = KazooClient()
BOTH = (zkconcurrent, aio)


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
        (synchronized(local, "users"), r"'users': it is of a namespace\(\"local\"\)"),
        (synchronized(threading.Lock()), "a lock: a lock excludes only within its process"),
        (synchronized(zkconcurrent.Lock(plain, "/lock")), "cannot pickle Lock '/lock'"),
        (aio.synchronized(tasks, "users"), r"'users': it is of a namespace\(\"local\"\)"),
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
    lock, names, names_too = zkconcurrent.RLock(opened, "/lock"), *(of.namespace(opened, "/app") for of in BOTH)
    acquire = functools.partial(lock.acquire, timeout=3)
    client, *others = copied(lambda: (opened, names, names_too, lock, acquire, lock.hold))()
    assert (type(client), client.hosts) == (Client, opened.hosts)
    assert client is not opened
    assert client is copied(opened)
    for got, kind in zip(others[:2], BOTH, strict=True):
        assert (type(got), got.path, got.client) == (kind.Namespace, "/app", client)
    assert others[2].client is others[3].func.__self__.client is others[4].__self__.client is client
    for what in (secret, zkconcurrent.namespace(plain, "/app")):
        with pytest.raises(TypeError, match=r"cannot pickle .*(credentials|not opened by connect)"):
            pickle.dumps(what)
    with pytest.raises(TypeError, match="cannot copy"):
        copy.copy(opened)
