"""The names in error messages: those of the classes that the user sees, in the package that she uses."""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import re
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from zkconcurrent import LossCause, aio
from zkconcurrent._arguments.codec import encoded
from zkconcurrent._engine.loss_cause import why_lost
from zkconcurrent._kazoo.link import FORKED, Link
from zkconcurrent._protocol.lease import Lease
from zkconcurrent._protocol.ticket import LossRecord, Ticket
from zkconcurrent._recipes.nodes import foreign_data


@pytest.mark.parametrize("module", [zkconcurrent, aio], ids=lambda module: module.__name__)
def test_an_object_of_the_other_package(module: ModuleType) -> None:
    """A lock of the other package, or of the standard library, is named with its package."""
    client = KazooClient()
    other = aio if module is zkconcurrent else zkconcurrent
    for wrong, called in (
        (other.Lock(client, "/lock"), f"{other.__name__}.Lock"),
        (other.RLock(client, "/rlock"), f"{other.__name__}.RLock"),
        (threading.Lock(), "_thread.lock"),
        (7, "int"),
    ):
        for use in (
            lambda wrong=wrong: module.Condition(client, "/condition", wrong),
            lambda wrong=wrong: module.MultiLock([wrong]),
        ):
            with pytest.raises(TypeError, match=f"not {re.escape(called)}$"):
                use()


def test_no_message_points_to_a_page_that_no_wheel_has() -> None:
    """The package names no file of `docs`: it is not installed."""
    package = Path(zkconcurrent.__file__).parent
    found = [path for path in package.rglob("*.py") if "docs/" in path.read_text()]
    assert not found


@pytest.mark.parametrize("kind", [zkconcurrent.Event, zkconcurrent.Lock, aio.Event, aio.Lock])
def test_the_client_is_missing(kind: Any) -> None:
    """Fault 259: an address in place of the client, or the two in the wrong order: the error names the argument."""
    with pytest.raises(TypeError, match=r"^client must be a kazoo.client.KazooClient, not str$"):
        kind("127.0.0.1:2181", "/path")
    with pytest.raises(TypeError, match=r"^path must be a str, not KazooClient"):
        kind("/path", KazooClient())


@pytest.mark.parametrize("kind", [zkconcurrent.Lock, aio.Lock, aio.namespace])
def test_a_client_for_tasks_that_was_not_entered(kind: Any) -> None:
    """Fault 259: the result of `aio.connect` is no client before `async with`, and the error says to write that."""
    with pytest.raises(TypeError, match=r"KazooClient, not \w+: write `async with aio\.connect\(\.\.\.\) as zk:`$"):
        kind(aio.connect("memory:"), "/path")


@pytest.mark.parametrize("module", [zkconcurrent, aio], ids=lambda module: module.__name__)
def test_one_lock_in_place_of_several(module: ModuleType) -> None:
    """Fault 259: the error says that a list is wanted."""
    for wrong in (KazooClient(), module.Lock(KazooClient(), "/lock")):
        with pytest.raises(TypeError, match=r"^a MultiLock takes a list of locks, .*, not [a-z]"):
            module.MultiLock(wrong)


def test_a_coroutine_function_in_place_of_a_function() -> None:
    """Fault 342: it is refused where no loop would run it; objects of tasks take it."""

    async def later(*_: object) -> None: ...

    class Later:
        async def __call__(self, *_: object) -> None: ...

    client = KazooClient()
    for each in (later, functools.partial(later), Later()):
        for make in (
            functools.partial(zkconcurrent.Lock, client, "/lock", on_lost=each),
            functools.partial(zkconcurrent.RLock, client, "/rlock", on_suspect=each),
            functools.partial(zkconcurrent.ReadWriteLock, client, "/pair", on_revoke=each),
            functools.partial(zkconcurrent.Semaphore, client, "/semaphore", on_lost=each),
            functools.partial(zkconcurrent.MultiLock, [zkconcurrent.RLock(client, "/rlock")], on_lost=each),
            functools.partial(zkconcurrent.Barrier, client, "/barrier", 2, each),
            functools.partial(zkconcurrent.Election(client, "/election").run, each),
        ):
            with pytest.raises(TypeError, match="must not be a coroutine function"):
                make()
        assert aio.Lock(client, "/aio", on_lost=each, on_suspect=each, on_revoke=each)


@pytest.mark.parametrize("module", [zkconcurrent, aio], ids=lambda module: module.__name__)
def test_a_coroutine_function_that_judges_or_changes_a_value(module: ModuleType) -> None:
    """Fault 387: it is refused, also by tasks: its coroutine would count as true, and end the wait at once."""

    async def later(_: object) -> bool:
        return False

    async def call(method: Any) -> None:
        made = method(later)
        if inspect.isawaitable(made):
            await made

    client = KazooClient()
    shared = module.SharedValue(client, "/shared", b"")
    for method in (shared.wait_for, shared.update, module.AtomicLong(client, "/number").update):
        with pytest.raises(TypeError, match=r"^(func|predicate) must not be a coroutine function"):
            asyncio.run(call(method))


def test_a_timeout_that_is_no_number() -> None:
    """Fault 259: the error names the argument."""
    client = KazooClient()
    for call in (
        zkconcurrent.Lock(client, "/lock").acquire,
        zkconcurrent.Event(client, "/event").wait,
        zkconcurrent.BoundedSemaphore(client, "/semaphore").acquire,
    ):
        with pytest.raises(TypeError, match=r"^timeout must be a number of seconds, not str$"):
            call(timeout="5")


@pytest.mark.parametrize("timeout", [Decimal("0.5"), Fraction(1, 2), "5"])
@pytest.mark.parametrize("module", [zkconcurrent, aio], ids=lambda module: module.__name__)
def test_a_timeout_that_threading_does_not_take(module: ModuleType, timeout: Any) -> None:
    """Fault 472: wherever one is given, it is refused as `threading` does, with an error that names the argument."""
    with pytest.raises(TypeError):
        threading.Lock().acquire(timeout=timeout)

    client = KazooClient()
    calls: list[Callable[[], Any]] = [
        lambda: module.Condition(client, "/condition").wait_for(lambda: False, timeout),
        lambda: module.CountDownLatch(client, "/latch", 1).wait(timeout),
        lambda: module.Election(client, "/election").lead(timeout),
        lambda: module.Group(client, "/group").observe(timeout),
        lambda: module.Lock(client, "/lock").acquire(timeout=timeout),
        lambda: module.Queue(client, "/queue").get(timeout=timeout),
        lambda: module.RLock(client, "/rlock").acquire(timeout=timeout),
        lambda: module.Semaphore(client, "/semaphore").acquire(timeout=timeout),
    ]

    async def made(call: Callable[[], Any]) -> None:
        if inspect.isawaitable(result := call()):
            await result

    for call in calls:
        with pytest.raises(TypeError, match=rf"^timeout must be a number of seconds, not {type(timeout).__name__}$"):
            asyncio.run(made(call))


def test_an_item_without_a_codec() -> None:
    """Fault 259: the error names the path, the codec, and the argument that takes another."""
    with pytest.raises(TypeError, match=r"'/queue' can't be encoded by zkconcurrent.BYTES: .* codec=zkconcurrent.JSON"):
        encoded(zkconcurrent.BYTES, object(), "/queue")
    with pytest.raises(TypeError, match=r"'/queue' can't be encoded by zkconcurrent.JSON: .*not JSON serializable"):
        encoded(zkconcurrent.JSON, object(), "/queue")


def test_a_restart_is_no_end_of_tries() -> None:
    """Fault 259: a call that is between `stop` and `start` of a restart says so."""
    client = KazooClient()
    client._stopped.clear()  # `start` does so before it starts the thread
    assert "has stopped the client during this call" in Link(client).why_stopped()


def test_a_hold_of_a_stopped_client() -> None:
    """Fault 259: the cause that applies is named, and no other."""
    ticket = Ticket("/lock", "prefix", Lease(1))
    ticket.loss = LossRecord(LossCause.CLIENT_STOPPED)
    assert why_lost(ticket) == "its client was stopped"


def test_every_cause_of_a_loss_has_words() -> None:
    """The error of a loss says why, in words of its own for each cause."""
    ticket, said = Ticket("/lock", "prefix", Lease(1)), set()
    for cause in LossCause:
        ticket.loss = LossRecord(cause)
        said.add(why_lost(ticket))
    assert len(said) == len(LossCause)
    over = datetime(2026, 1, 2, 3, 4, 5, 678, timezone.utc)
    ticket.loss = LossRecord(LossCause.LEASE_ENDED, "ZooKeeper was out of reach", 12.34, 9.8, over)
    assert why_lost(ticket) == (
        "its lease ran out, as ZooKeeper was out of reach; held for 12.3 s; the last proof of its lease was sent 9.8 s "
        "before, so others may have held it since 2026-01-02 03:04:05 UTC"
    )


def test_a_lock_is_at_the_path_of_an_event() -> None:
    """Fault 259: a node without data is named as what it may be."""
    assert "that of a lock or semaphore" in str(foreign_data("/path", b"", "an Event has some"))


def test_a_fork_names_multiprocessing() -> None:
    """Fault 259: the remedy for pools is there."""
    assert "initializer=" in FORKED


LOGGERS = {"log", "losses", "deadlocks", "long_waits"}
FIELDS = {"zk_path", "zk_token", "zk_waited", "zk_cause", "zk_by"}


def log_calls() -> list[tuple[str, ast.Call]]:
    """Return each call that logs, with its place."""
    found = []
    for file in Path(zkconcurrent.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
                levels = ("debug", "info", "warning", "error", "exception")
                if node.func.attr == "warn_later" or (of in LOGGERS and node.func.attr in levels):
                    found.append((f"{file.name}:{node.lineno}", node))
    return found


def is_constant(part: ast.expr) -> bool:
    """Return whether a part of a text is the same in each call: a literal, or a constant of the module."""
    said = part.value if isinstance(part, ast.FormattedValue) else part
    return isinstance(said, ast.Constant) or (isinstance(said, ast.Name) and said.id.isupper())


def test_log_records_have_constant_texts_and_known_fields() -> None:
    """A message is a constant text with arguments; the fields of a record are those that the docs name, no others."""
    calls = log_calls()
    assert len(calls) > 20
    for where, call in calls:
        text = call.args[0]
        parts = text.values if isinstance(text, ast.JoinedStr) else [text]
        # `text` is the local name of one that is too long for its line.
        assert (isinstance(text, ast.Name) and text.id == "text") or all(map(is_constant, parts)), where
        names: set[object] = {each.arg for each in call.keywords} - {"extra", "logger"}
        for each in call.keywords:
            if each.arg == "extra" and isinstance(each.value, ast.Dict):
                names |= {key.value for key in each.value.keys if isinstance(key, ast.Constant)}
        assert names <= FIELDS, where
    page = (Path(zkconcurrent.__file__).parents[1] / "docs" / "how-to" / "operate.md").read_text()
    assert {field for field in FIELDS if f"`{field}`" in page} == FIELDS
