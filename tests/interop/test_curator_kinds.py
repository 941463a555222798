"""Curator's recipes and other kinds of ours on one path: ours, which come second, are refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.helpers.curator import CuratorClient
from tests.helpers.curator_threads import LONG
from tests.helpers.eventually import eventually
from tests.helpers.kinds import KINDS, SAME, nodes
from zkconcurrent import ForeignNodeError

pytestmark = pytest.mark.fault(236)


class Recipe(NamedTuple):
    """One of Curator's recipes.

    Attributes:
        families: those of our kinds that are this recipe; see `kinds.Kind`.
        command: what the Java process is told.
        arguments: what follows the path.
    """

    families: set[str]
    command: str
    arguments: tuple[Any, ...] = ()


RECIPES = [
    Recipe({"lock"}, "mutex.acquire"),
    Recipe({"lock"}, "leaderSelector.stand", ("java",)),
    Recipe({"latch"}, "leaderLatch.stand", ("java",)),
    Recipe({"read-write lock"}, "read.acquire"),
    Recipe({"read-write lock"}, "write.acquire"),
    Recipe({"semaphore"}, "semaphore.acquire", (1,)),
    Recipe({"semaphore"}, "semaphoreMutex.acquire"),
    Recipe({"double barrier"}, "doubleBarrier.enter", (1,)),
    Recipe({"group"}, "group.join", ("java's",)),
    Recipe({"long"}, "long.add", (1, 1)),
    Recipe({"integer", "value"}, "integer.add", (1, 1)),
    Recipe({"integer", "value"}, "count.set", (7,)),
    Recipe({"value"}, "value.set", ("text",)),
]
every = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.command)


@every
def test_java_is_first(recipe: Recipe, java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """Each other kind of ours gets an error before it does anything, and leaves no node."""
    for name, kind in KINDS.items():
        path = f"{zk_path}/{name}"
        if recipe.families & {kind.family} or any(recipe.families & same and kind.family in same for same in SAME):
            continue
        java.call(recipe.command, path, *recipe.arguments).result(LONG)
        eventually(lambda path=path: len(found := nodes(client, path)) > 1 or any(found.values()), "Java's node")
        before = nodes(client, path)
        with pytest.raises(ForeignNodeError) as caught:
            kind.use(zkconcurrent, client, path)
        assert caught.value.path.startswith(path), name
        eventually(lambda path=path, before=before: nodes(client, path) == before, name)
