"""Arguments that are wrong, whatever they are given to: an error that names the argument, before anything is sent.

The calls are found by the signatures. Arguments of one kind alone are in the tests of its module; numbers are in
`tests/unit/test_limits.py`, and functions in `tests/unit/test_messages.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from types import ModuleType
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.helpers.kinds import ARGUMENTS, make, primitives
from zkconcurrent import aio

MADE = [(module, name) for module in (zkconcurrent, aio) for name in primitives(module)]
LATE = {("Condition", "wait"), ("Condition", "wait_for"), ("Election", "wait")}
"""These ask first whether the caller holds the lock, or stands."""
TIMED = [
    (module, name, method)
    for module, name in MADE
    for method, function in inspect.getmembers(getattr(module, name), callable)
    if not method.startswith("_") and (name, method) not in LATE and "timeout" in inspect.signature(function).parameters
]
NEEDED = {"predicate": bool, "item": (1, b"")}
"""What a call with a timeout can't be made without; the item is one of each kind of queue."""


def named(value: Any) -> str:
    """Return the name of a parameter for pytest."""
    return value.__name__ if isinstance(value, ModuleType) else str(value)


@pytest.mark.fault(259)
@pytest.mark.parametrize(
    ("module", "name"), [each for each in MADE if each[1] not in ("ReadLock", "WriteLock")], ids=named
)
def test_a_client_and_a_path(module: ModuleType, name: str) -> None:
    """An address in place of the client, or the two in the wrong order; a path that is relative, or no text."""
    arguments = ("me",) if name == "DetachedLock" else ARGUMENTS.get(name, ())
    for client, path, error, text in (
        ("127.0.0.1:2181", "/path", TypeError, r"^client must be a kazoo.client.KazooClient, not str$"),
        ("/path", KazooClient(), TypeError, r"^(path|client) must be a "),
        (KazooClient(), b"/path", TypeError, r"^path must be a str, not bytes"),
        (KazooClient(), "path", ValueError, "path"),
        (KazooClient(), "/a//b", ValueError, "path"),
    ):
        with pytest.raises(error, match=text):
            getattr(module, name)(client, path, *arguments)


@pytest.mark.fault(259)
@pytest.mark.parametrize(
    ("timeout", "error", "text"),
    [
        *(
            (wrong, TypeError, f"^timeout must be a number of seconds, not {type(wrong).__name__}$")
            for wrong in (Decimal("0.5"), Fraction(1, 2), "5")
        ),
        (float("nan"), ValueError, "NaN"),
        (threading.TIMEOUT_MAX * 2, OverflowError, "."),
    ],
    ids=str,
)
@pytest.mark.parametrize(("module", "name", "method"), TIMED, ids=named)
def test_a_timeout(module: ModuleType, name: str, method: str, timeout: Any, error: type[Exception], text: str) -> None:
    """A timeout that `threading` refuses is refused as there, wherever one is given."""
    with pytest.raises(error):
        threading.Lock().acquire(timeout=timeout)
    call: Callable[..., Any] = getattr(make(module, name, KazooClient(), "/path"), method)
    needed = {each: NEEDED[each] for each in inspect.signature(call).parameters if each in NEEDED}

    async def begun() -> None:
        result = call(timeout=timeout, **needed)
        for begin in ("__enter__", "__next__", "__aenter__", "__anext__"):
            if hasattr(result, begin):
                result = getattr(result, begin)()
        if inspect.isawaitable(result):
            await result

    with pytest.raises(error, match=text):
        asyncio.run(begun())


def test_which_calls_have_a_timeout() -> None:
    """The table has what it should: the tests above are not of a few."""
    found = {(name, method) for module, name, method in TIMED if module is zkconcurrent}
    assert found >= {("Lock", "acquire"), ("Lock", "hold"), ("Event", "wait"), ("Queue", "put"), ("Group", "observe")}
    assert {(name, method) for module, name, method in TIMED if module is aio} >= {
        ("Barrier", "wait"),
        ("Queue", "get"),
    }
