"""The layers: imports go only downward, and the modules that decide know nothing of kazoo, threads or time."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import zkconcurrent
from tests.helpers.homes import HOMES

PACKAGE = Path(zkconcurrent.__file__).parent

# A folder is a layer; each may import itself and those before it in this list, of one line none the other.
LAYERS = [
    {"_version", "_errors"},
    {"_protocol", "_runtime"},
    {"_memory"},
    {"_arguments"},
    {"_kazoo"},
    {"_engine", "_recipes"},
    {"_observe"},
    {"_client", "_threads.base"},
    {"_threads"},
    {"aio", "metrics", "tree"},
    {"__init__"},
    {"celery", "otel", "prometheus", "tooz", "_command"},
    {"__main__"},
]
PURE = {"_protocol", "_recipes", "_engine.patience", "_engine.ticket_registry"}
IMPURE = {"kazoo", "threading", "time", "socket", "os", "logging", "gevent"}


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
            if node.level and not node.module and not above:
                # Of the package itself: its own public names, or one of its modules.
                names = [name if is_module(name) else "__init__" for name in names]
            found |= {"." + ".".join([*above, name]) if node.level else name.partition(".")[0] for name in names}
    return found


def is_module(name: str) -> bool:
    """Return whether the package has a module of a name."""
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def modules() -> list[str]:
    """Return the names of the package's own modules, without `zkconcurrent.testing`."""
    paths = [file for file in PACKAGE.rglob("*.py") if file.relative_to(PACKAGE).parts[0] != "testing"]
    parts = (path.relative_to(PACKAGE).with_suffix("").parts for path in paths)
    return sorted({".".join(each).removesuffix(".__init__") for each in parts})


def layer(module: str) -> str:
    """Return the name of a module's layer."""
    names = set[str]().union(*LAYERS)
    return next((name for name in (module, module.rpartition(".")[0], module.partition(".")[0]) if name in names), "")


def test_every_module_has_its_layer() -> None:
    """Each folder, and each module beside the folders, is a layer; each layer is there."""
    assert [module for module in modules() if not layer(module)] == []
    assert {layer(module) for module in modules()} == set[str]().union(*LAYERS)


def test_imports_go_only_downward() -> None:
    """A module imports nothing of a layer beside or above its own."""
    below: set[str] = set()
    upward: dict[str, set[str]] = {}
    for names in LAYERS:
        for module in modules():
            if layer(module) in names:
                found = {name for name in imports(module) if name.startswith(".")}
                upward[module] = {name for name in found if layer(name[1:]) not in below | {layer(module)}}
        below |= names
    assert {module: found for module, found in upward.items() if found} == {}


def test_imports_form_no_cycle() -> None:
    """Nor do modules of one folder import each other in a circle."""
    known = set(modules())
    left = {module: {name[1:] for name in imports(module)} & known - {module} for module in known}
    while ready := [module for module, needs in left.items() if not needs & left.keys()]:
        for module in ready:
            del left[module]
    assert left == {}


# What uses the library as a program does; and the private modules that it may import all the same, with the reason.
USERS = {"celery", "otel", "prometheus", "tooz", "_command"}
PRIVATE = {
    "_client.connect": "a command connects a client that makes no chroot, gives up at a signal, and says what failed",
    "_client.url": "a command, and Celery's settings, check a URL before they connect",
    "_threads.once_per": "the call of a job is made as `run` or the task begins, and its lock has a timeout",
    "_threads.base.node_data": "the nodes of a `run` name the holds of the runs around it, for searches for deadlocks",
    "_threads.object_lock": "tooz's locks belong to objects, and users' to threads",
    "_arguments.template": "the path of a task is made from its arguments as that of `synchronized`",
}


def test_the_command_and_the_drivers_use_public_names() -> None:
    """Command and drivers import public names only: what they lack, users lack. Each exception has its reason."""
    found = {name[1:] for module in modules() if layer(module) in USERS for name in imports(module) if name[0] == "."}
    private = {name for name in found if name.startswith("_") and layer(name) not in {*USERS, "__init__"}}
    assert private == {*PRIVATE}


def test_what_decides_is_pure() -> None:
    """Rules, operations, recipes, and what an engine knows, import neither kazoo nor threads, clocks or I/O."""
    pure = [module for module in modules() if PURE & {module, layer(module)}]
    assert {module: found for module in pure if (found := imports(module) & IMPURE)} == {}


def test_where_clocks_are_read() -> None:
    """No module but `_runtime.clock` reads one of `time`, except in the command, a process of its own."""
    clocks = re.compile(r"\btime\.(monotonic|time|perf_counter|process_time|clock_gettime)(_ns)?\b(?!`|\(\)`)")
    read = {
        file.name for file in PACKAGE.rglob("*.py") if clocks.search(file.read_text()) and "_command" not in file.parts
    }
    assert read == {"clock.py"}


def test_where_kazoo_is_met() -> None:
    """In the library, only the folder of that name imports kazoo; its users, such as the command, may."""
    users = set().union(*LAYERS[LAYERS.index({"__init__"}) :])
    assert {layer(module) for module in modules() if "kazoo" in imports(module)} - users == {"_kazoo"}


def test_the_check_can_fail() -> None:
    """The imports are really seen: the link does import kazoo, and the driver the operations."""
    assert "kazoo" in imports("_kazoo.link")
    assert "._protocol.operations" in imports("_engine.call")


def test_the_map_names_every_module() -> None:
    """The map has each module of the library, but for those of one primitive, which every layer has."""
    page = PACKAGE.parent / "ARCHITECTURE.md"
    drawn = set(re.findall(r"\w+", page.read_text().split("```")[1]))
    drawn |= {"_version", "value", *(name.removeprefix("_threads.") for name in HOMES.values())}
    last = {name: name.rpartition(".")[2] for name in modules()}
    assert [name for name in last if last[name] not in drawn and last[name].removeprefix("_") not in drawn] == []


def test_a_class_name_has_one_meaning() -> None:
    """No two classes share a name, but for those of tasks, which are named as those of threads."""
    homes: dict[str, set[str]] = {}
    for module in modules():
        path = PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
        if path.is_file():
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    side = layer(module)
                    side = side if side in ("aio", "_memory") else ""
                    homes.setdefault(f"{side} {node.name}", set()).add(module)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
