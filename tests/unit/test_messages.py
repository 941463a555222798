"""The names in error messages: those of the classes that the user sees, in the package that she uses."""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import re
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.helpers.kinds import ARGUMENTS, make
from zkconcurrent import LossCause, aio, testing
from zkconcurrent._arguments.codec import encoded
from zkconcurrent._engine.loss_cause import why_lost
from zkconcurrent._protocol.session_lease import Lease
from zkconcurrent._protocol.ticket import LossRecord, Ticket


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


@pytest.mark.fault(259)
@pytest.mark.parametrize("kind", [zkconcurrent.Lock, aio.Lock, aio.namespace])
def test_a_client_for_tasks_that_was_not_entered(kind: Any) -> None:
    """The result of `aio.connect` is no client before `async with`, and the error says to write that."""
    with pytest.raises(TypeError, match=r"KazooClient, not \w+: write `async with aio\.connect\(\.\.\.\) as zk:`$"):
        kind(aio.connect("memory:"), "/path")


@pytest.mark.fault(259)
@pytest.mark.parametrize("module", [zkconcurrent, aio], ids=lambda module: module.__name__)
def test_one_lock_in_place_of_several(module: ModuleType) -> None:
    """The error says that a list is wanted."""
    for wrong in (KazooClient(), module.Lock(KazooClient(), "/lock")):
        with pytest.raises(TypeError, match=r"^a MultiLock takes a list of locks, .*, not [a-z]"):
            module.MultiLock(wrong)


class Given(NamedTuple):
    """A function that a program hands over: the parameter of a class's constructor, of its method, or of a function."""

    module: ModuleType
    name: str
    method: str
    parameter: str


def given() -> list[Given]:
    """Return all, by the annotations of the public names; those of tasks that may be async, and jobs, are left out."""
    awaited = {"on_lost", "on_suspect", "on_revoke"}
    awaiting = {("Election", "run"), ("Election", "leader_only")}
    found = []
    for module in (zkconcurrent, aio, testing):
        for name in {*module.__all__} - {"Completion", "Ensemble", "Lost", "Namespace", "once_per"}:
            made = getattr(module, name)
            for method in {"__init__", *vars(made)} if isinstance(made, type) else {""}:
                called = getattr(made, method) if method else made
                if method[:1] == "_" != method[:2][1:] or not inspect.isfunction(called):
                    continue
                for each in inspect.signature(called).parameters.values():
                    kind = str(each.annotation)
                    if kind.startswith(("Callable", "Listener", "OnLost", "OnSuspect", "Sequence[Callable")) and not (
                        module is aio and (each.name in awaited or (name, method) in awaiting)
                    ):
                        found.append(Given(module, name, method, each.name))
    return sorted(found, key=str)


async def later(*_: object) -> bool:
    """Nothing awaits this."""
    return False


async def stream(*_: object) -> AsyncIterator[None]:
    """Nothing iterates over this."""
    yield


@pytest.mark.fault(342)
@pytest.mark.parametrize("each", given(), ids=lambda each: ".".join(filter(None, each[1:])) + f"-{each[0].__name__}")
def test_a_coroutine_function_in_place_of_a_function(each: Given) -> None:
    """It is refused wherever a function is wanted that nothing would await: its coroutine counts as true."""
    made = getattr(each.module, each.name)
    client = KazooClient()

    async def call(func: Any) -> None:
        options: dict[str, Any] = {each.parameter: func}
        if each.name == "interleave":
            options = {"choose": min, "calls": [], each.parameter: [func] if each.parameter == "calls" else func}
        if each.method == "":
            made(**options)
        elif each.method == "__init__":
            first = {"QueueListener": (), "MultiLock": ([each.module.Lock(client, "/lock")],)}.get(each.name)
            made(*((client, "/path", *ARGUMENTS.get(each.name, ())) if first is None else first), **options)
        else:
            result = getattr(make(each.module, each.name, client, "/path"), each.method)(**options)
            if inspect.isawaitable(result):
                await result

    for func in (later, functools.partial(later), stream):
        with pytest.raises(TypeError, match="must not be a coroutine function"):
            asyncio.run(call(func))


@pytest.mark.fault(342)
@pytest.mark.parametrize("module", [zkconcurrent, aio], ids=lambda module: module.__name__)
def test_a_coroutine_function_for_a_client(module: Any) -> None:
    """So is what gives a decorator its client."""
    with pytest.raises(TypeError, match="must not be a coroutine function"):
        module.synchronized(later, "/path")


@pytest.mark.fault(259)
def test_an_item_without_a_codec() -> None:
    """The error names the path, the codec, and the argument that takes another."""
    with pytest.raises(TypeError, match=r"'/queue' can't be encoded by zkconcurrent.BYTES: .* codec=zkconcurrent.JSON"):
        encoded(zkconcurrent.BYTES, object(), "/queue")
    with pytest.raises(TypeError, match=r"'/queue' can't be encoded by zkconcurrent.JSON: .*not JSON serializable"):
        encoded(zkconcurrent.JSON, object(), "/queue")


def test_every_cause_of_a_loss_has_words() -> None:
    """The error of a loss says why, in words of its own for each cause."""
    ticket, said = Ticket("/lock", "prefix", Lease(1)), set()
    for cause in LossCause:
        ticket.loss = LossRecord(cause)
        said.add(why_lost(ticket))
    assert len(said) == len(LossCause)


LOGGERS = {"log", "losses", "deadlocks", "long_waits"}
LEVELS = {"debug", "info", "warning", "error", "exception"}
FIELDS = {"zk_path", "zk_token", "zk_waited", "zk_cause", "zk_by"}


def log_calls() -> Iterator[tuple[str, ast.Call]]:
    """Return each call that logs, with its place."""
    for file in Path(zkconcurrent.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of, name = node.func.value, node.func.attr
                if name == "warn_later" or (isinstance(of, ast.Name) and of.id in LOGGERS and name in LEVELS):
                    yield f"{file.name}:{node.lineno}", node


def test_log_records_have_known_fields() -> None:
    """The fields of a record are those that the docs name, and no others."""
    found = set()
    for where, call in log_calls():
        names: set[object] = {each.arg for each in call.keywords} - {"extra", "logger"}
        for each in call.keywords:
            if each.arg == "extra" and isinstance(each.value, ast.Dict):
                names |= {key.value for key in each.value.keys if isinstance(key, ast.Constant)}
        assert names <= FIELDS, where
        found |= names
    assert found
    page = (Path(zkconcurrent.__file__).parents[1] / "docs" / "how-to" / "operate.md").read_text()
    assert {field for field in FIELDS if f"`{field}`" in page} == FIELDS
