"""The layers: imports go only downward, and the modules that decide know nothing of kazoo, threads or time."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import zkconcurrent

PACKAGE = Path(zkconcurrent.__file__).parent

# Each layer may import itself and those above it in this list.
LAYERS = [
    {"_errors", "_version", "_limits", "_paths", "_engine", "_kazoo", "_recipes", "_memory"},
    # Pure: the modules that decide.
    {"_engine.lease", "_recipes.rules", "_memory.tree"},
    {"_recipes.ticket", "_memory.service"},
    {"_recipes.operations", "_memory.wire"},
    {"_recipes.nodes", "_recipes.orders", "_memory.words"},
    {"_engine.registry"}
    | {f"_recipes.{name}" for name in ("queue", "destroy", "semaphore", "condition")}
    | {f"_recipes.{name}" for name in ("event", "latch", "barrier", "mirror", "double_barrier", "group")},
    {"_recipes.receipts", "_recipes.detached"},
    {"_recipes.desk", "_recipes.value", "_recipes.entries"},
    {"_recipes.putting", "_recipes.taking"},
    {"_recipes.claims", "_recipes.election"},
    {"_recipes.items"},
    # The modules that wait, send and keep.
    {"_engine.identity", "_engine.event_loop", "_engine.interpreter", "_engine.waiting", "_engine.process_exit"}
    | {"_engine.live_set", "_engine.interrupted"},
    {"_kazoo.private_parts", "_kazoo.addresses", "_kazoo.watches"},
    {"_kazoo.sockets"},
    {"_kazoo.transport", "_engine.path_directory"},
    {"_kazoo.replies", "_kazoo.session_timeout"},
    {"_kazoo.link"},
    {"_engine.client_state"},
    {"_engine.heartbeat", "_engine.deletes", "_engine.keeper", "_engine.spares", "_engine.watches"},
    {"_engine.session"},
    {"_engine.driver"},
    {"_engine.calls", "_engine.loss"},
    {"_engine.holds"},
    {"_engine.local_handoff"},
    {"_memory.tcp"},
    # The modules that users import.
    {"_primitive", "_cancel", "_together", "_url"},
    {"_settling"},
    {"_lock_base"},
    {"_lock", "_rlock", "_detached", "_candidacy", "_condition_wait"},
    {"_rwlock", "_several"},
    {"_codec", "_value", "_local_group", "_queue_base", "_map_base"},
    {"_semaphore", "_condition", "_event", "_barrier", "_latch", "_multilock", "_queue", "_dict", "_set"}
    | {"_election", "_atomic", "_shared_value", "_double_barrier", "_group", "_quorum"},
    {"_local_lock", "_local_queue", "_local_election", "_local_value", "_local_dict"},
    {"_connect", "_locklike", "_local"},
    {"_namespace"},
    {"_synchronized"},
    # The same for tasks.
    {"aio._tasks"},
    {"aio._losses", "aio._locks"},
    {
        "aio._sync",
        "aio._detached",
        "aio._barrier",
        "aio._queue",
        "aio._election",
        "aio._value",
        "aio._dict",
        "aio._group",
    }
    | {"aio._connect", "aio._local"},
    {"aio._namespace"},
    {"aio._synchronized"},
    {"aio"},
    {"__init__"},
]
PURE = sorted(set[str]().union(*LAYERS[1:11]))
IMPURE = {"kazoo", "threading", "time", "socket", "os", "logging", "gevent", "eventlet"}
MAY_IMPORT_KAZOO = {
    f"_kazoo.{name}" for name in ("private_parts", "addresses", "sockets", "watches", "transport", "replies", "link")
}


@functools.cache
def imports(module: str) -> set[str]:
    """Return what a module imports, for its types too: `.name` of the package, else the first part of the name."""
    parts = module.split(".")
    if PACKAGE.joinpath(*parts).is_dir():
        parts.append("__init__")
    tree = ast.parse(PACKAGE.joinpath(*parts).with_suffix(".py").read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = parts[: len(parts) - node.level]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found |= {"." + ".".join([*above, name]) if node.level else name.partition(".")[0] for name in names}
    return found


def modules() -> list[str]:
    """Return the names of the package's own modules, without `zkconcurrent.testing`."""
    paths = [file for file in PACKAGE.rglob("*.py") if file.relative_to(PACKAGE).parts[0] != "testing"]
    parts = (path.relative_to(PACKAGE).with_suffix("").parts for path in paths)
    return sorted({".".join(each).removesuffix(".__init__") for each in parts})


def test_every_module_has_its_layer() -> None:
    """Each module is in exactly one layer."""
    assert sorted(name for layer in LAYERS for name in layer) == modules()


def test_imports_go_only_downward() -> None:
    """A module imports nothing of a layer above its own."""
    allowed: set[str] = set()
    upward: dict[str, set[str]] = {}
    for layer in LAYERS:
        allowed |= {f".{name}" for name in layer}
        upward |= {module: {name for name in imports(module) if name.startswith(".")} - allowed for module in layer}
    assert {module: names for module, names in upward.items() if names} == {}


def test_what_decides_is_pure() -> None:
    """Rules, operations, recipes and the registry import neither kazoo nor threads, clocks or I/O."""
    assert {module: found for module in PURE if (found := imports(module) & IMPURE)} == {}


def test_where_kazoo_is_met() -> None:
    """Only the folder of that name imports kazoo."""
    assert {module for module in modules() if "kazoo" in imports(module)} <= MAY_IMPORT_KAZOO


def test_the_check_can_fail() -> None:
    """The imports are really seen: the link does import kazoo, and the driver the recipes' operations."""
    assert "kazoo" in imports("_kazoo.link")
    assert "._recipes.operations" in imports("_engine.driver")


def test_the_map_names_every_module() -> None:
    """The map in the docs has each module of the library."""
    page = PACKAGE.parent / "docs" / "explanation" / "design.md"
    drawn = set(re.findall(r"\w+", page.read_text().split("```")[1]))
    modules = [path for folder in ("", "_engine", "_kazoo", "_recipes") for path in (PACKAGE / folder).glob("[!_]*.py")]
    modules += [path for path in PACKAGE.glob("_[!_]*.py") if path.stem != "_version"]
    assert [path.stem for path in modules if path.stem not in drawn] == []
