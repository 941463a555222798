"""Of the many that wait at one path, none keeps a listing of it."""

from __future__ import annotations

import ast
import asyncio
import gc
import importlib
import pkgutil
import re
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.all_objects import held_by, of_all_objects
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from zkconcurrent import _recipes, aio
from zkconcurrent._engine.session import Session

pytestmark = pytest.mark.fault(241)

CROWD = 40
NAME = re.compile(r"(\A|/)(_c_|item-)")  # of a node in a listing, or its path

Scene = Callable[[Any, KazooClient, str], tuple[str, int, Callable[[], object]]]
"""Has all that a crowd waits for; returns where its nodes are, how many others are there, and what each calls."""


def _lock(kinds: Any, zk: KazooClient, path: str) -> tuple[str, int, Callable[[], object]]:
    holder = zkconcurrent.Lock(zk, path)
    holder.acquire()
    lock = kinds.Lock(zk, path)
    return path, 1, lambda _=holder: lock.acquire()


def _semaphore(kinds: Any, zk: KazooClient, path: str) -> tuple[str, int, Callable[[], object]]:
    holder = zkconcurrent.Semaphore(zk, path, 1)
    holder.acquire()
    permits = kinds.Semaphore(zk, path, 1)
    return f"{path}/locks", 0, lambda _=holder: permits.acquire()


def _get(kinds: Any, zk: KazooClient, path: str) -> tuple[str, int, Callable[[], object]]:
    return f"{path}/consumers", 0, kinds.Queue(zk, path).get


def _put(kinds: Any, zk: KazooClient, path: str) -> tuple[str, int, Callable[[], object]]:
    zkconcurrent.Queue(zk, path, 1).put(b"")
    queue = kinds.Queue(zk, path, 1)
    return f"{path}/producers", 0, lambda: queue.put(b"")


def _barrier(kinds: Any, zk: KazooClient, path: str) -> tuple[str, int, Callable[[], object]]:
    return f"{path}/0000000000", 0, kinds.Barrier(zk, path, 2 * CROWD).wait


def _double_barrier(kinds: Any, zk: KazooClient, path: str) -> tuple[str, int, Callable[[], object]]:
    # Each party has an object of its own.
    return path, 0, lambda: kinds.DoubleBarrier(zk, path, 2 * CROWD).enter()


def _detached(kinds: Any, zk: KazooClient, path: str) -> tuple[str, int, Callable[[], object]]:
    zkconcurrent.DetachedLock(zk, path, "holder").acquire()
    owners = iter(range(CROWD))
    return path, 1, lambda: kinds.DetachedLock(zk, path, f"owner {next(owners)}").acquire()


def _latch(kinds: Any, zk: KazooClient, path: str) -> tuple[str, int, Callable[[], object]]:
    latch = zkconcurrent.CountDownLatch(zk, path, CROWD + 1)
    for _ in range(CROWD):
        latch.count_down()
    return path, 0, kinds.CountDownLatch(zk, path, CROWD + 1).wait


def _join(kinds: Any, zk: KazooClient, path: str) -> tuple[str, int, Callable[[], object]]:
    queue = zkconcurrent.Queue(zk, path)
    for _ in range(CROWD):
        queue.put(b"")
    return path, 0, kinds.Queue(zk, path).join


SCENES: dict[str, Scene] = {
    "lock.acquire": _lock,
    "semaphore.acquire": _semaphore,
    "lock.come_first": _get,
    "queue.put.put_when_first": _put,
    "barrier._wait": _barrier,
    "double_barrier.enter": _double_barrier,
    "detached.acquire": _detached,
    "nodes.watch_until": _latch,
    "queue.manage.wait_until_done": _join,
}
"""The crowd of each recipe that waits, by what the recipe is."""

NO_CROWD = {
    "barrier._look_on": "it waits for a moment: the last party has arrived",
    "condition.outwait": "it lists nothing",
    "double_barrier._outwait": "each keeps the names of the parties that were inside with it: it waits for all of them",
    "election.follow": "it waits with the leader's node alone, or while there is no candidate",
    "group._join": "it lists nothing",
    "group._outlast": "it lists nothing",
    "group.next_members": "an observer has been given the members, and waits for others than these",
    "lock.wait_behind": "each recipe that waits in it has a scene",
    "map.mirror.follow": "one thread of a client waits, and its copy is the map",
    "queue.take.take": "only the first of the consumers that queue waits here",
}
"""The recipes that wait and have no scene, each with the reason."""


def waiting_recipes() -> set[str]:
    """Return the functions of the recipes that wait, by themselves or in `wait_behind`, from their text."""
    found = set()
    for module in pkgutil.walk_packages(_recipes.__path__, prefix := f"{_recipes.__name__}."):
        file = importlib.import_module(module.name).__file__
        assert file is not None
        with open(file, encoding="utf-8") as text:
            tree = ast.parse(text.read())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and any(
                isinstance(node, ast.Yield | ast.YieldFrom)
                and isinstance(node.value, ast.Call)
                and ast.unparse(node.value.func) in ("op.Wait", "op.WaitGone", "op.WaitRecursive", "wait_behind")
                for node in ast.walk(function)
            ):
                found.add(f"{module.name.removeprefix(prefix)}.{function.name}")
    return found


def test_every_recipe_that_waits_is_here() -> None:
    """A recipe that waits has its scene, or the reason why it needs none."""
    assert waiting_recipes() == {*SCENES, *NO_CROWD}


def _kept(there: list[object]) -> int:
    """Return how many names of contenders are in lists, tuples, dictionaries and sets, wherever these are kept."""
    kinds = (list, tuple, dict, set, frozenset, deque)
    found = {id(each): each for each in there if isinstance(each, kinds)}
    for each in there:  # a tuple of strings is known to nobody but its owner
        for inner in gc.get_referents(each):
            if isinstance(inner, kinds):
                found[id(inner)] = inner
    return sum(
        sum(type(name) is str and NAME.search(name) is not None for name in held_by(each))
        for each in found.values()
        if len(each) >= CROWD // 2
    )


@pytest.mark.parametrize("kinds", [zkconcurrent, aio], ids=["threads", "tasks"])
@pytest.mark.parametrize("recipe", SCENES)
def test_a_crowd_keeps_no_listing(
    kinds: Any, recipe: str, connect: Connect, zk: KazooClient, zk_path: str, in_thread: InThread
) -> None:
    """What n waiters keep of the names at their path does not grow by the square of n."""
    client = connect()
    folder, others, wait = SCENES[recipe](kinds, client, zk_path)
    before = of_all_objects(_kept)
    begun = [in_thread(_together, wait)] if kinds is aio else [in_thread(wait) for _ in range(CROWD)]
    try:
        if recipe not in ("nodes.watch_until", "queue.manage.wait_until_done"):
            eventually(queued(zk, folder, CROWD + others))
        eventually(lambda: _all_wait(client))
        eventually(lambda: of_all_objects(_kept) - before < 6 * CROWD, f"{of_all_objects(_kept)} names are kept")
    finally:
        client.stop()
        for each in begun:
            each.exception(30)


def _together(wait: Callable[[], Any]) -> None:
    """Have a crowd of tasks wait, in a loop of their own."""

    async def one() -> None:
        # A task that is this call alone could not enter a double barrier.
        await wait()

    async def crowd() -> None:
        await asyncio.gather(*(one() for _ in range(CROWD)), return_exceptions=True)

    asyncio.run(crowd())


def _all_wait(client: KazooClient) -> bool:
    registry = Session.of(client).registry
    waiters = {waiter for waiters in list(registry._awaiting.values()) for waiter in list(waiters)}
    return len(waiters) >= CROWD
