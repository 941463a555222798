"""The package itself: its names, and the cost of its import."""

from __future__ import annotations

import ast
import inspect
import os
import shutil
import typing
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from pathlib import Path
from types import ModuleType

import pytest

import zkconcurrent
from tests.helpers import first_uses
from tests.helpers.homes import HOMES
from tests.helpers.processes import ROOT, run_python
from zkconcurrent import aio, metrics, otel, prometheus, testing, tree

packages = pytest.mark.parametrize("package", [zkconcurrent, aio, tree], ids=lambda package: package.__name__)


@packages
def test_every_public_name_is_there(package: ModuleType) -> None:
    """Every name in `__all__` can be had, and is shown by `dir()`."""
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)
    assert package.__all__ == sorted(package.__all__)


@packages
def test_type_checkers_see_the_same_names(package: ModuleType) -> None:
    """They read no `__all__` that the module derives: what they see are the imports with `as`."""
    imports = [node for node in ast.walk(ast.parse(inspect.getsource(package))) if isinstance(node, ast.ImportFrom)]
    seen = [alias.asname for node in imports for alias in node.names if alias.asname]
    assert sorted(seen) == package.__all__


@packages
def test_public_names_are_of_the_package(package: ModuleType) -> None:
    """A class or function names the package that users import it from, unless it is the standard library's own."""
    others = {"Namespace": type(int | str).__module__, "Empty": "_queue", "Full": "queue", "ShutDown": "queue"}
    others |= dict.fromkeys(("QueueEmpty", "QueueFull", "QueueShutDown"), "asyncio.queues")
    for name in package.__all__:
        module = getattr(getattr(package, name), "__module__", package.__name__)
        assert module in (package.__name__, others.get(name)), name


@packages
def test_the_types_of_a_class_can_be_resolved(package: ModuleType) -> None:
    """Pydantic, FastAPI and others can read the annotations of every public class."""
    kinds = {name: kind for name in package.__all__ if isinstance(kind := getattr(package, name), type)}
    hints = {name: typing.get_type_hints(kind) for name, kind in kinds.items()}
    if package is zkconcurrent:
        assert hints["Contender"]["queued"] is datetime
        assert hints["Inspection"]["clients"] == tuple[zkconcurrent.ClientReport, ...]
        assert hints["Lost"]["cause"] == zkconcurrent.LossCause | None


def _functions(public: object) -> Iterator[tuple[str, object]]:
    """Yield what users can call of a public class or function, and that the library has written."""
    if not isinstance(public, type):
        yield getattr(public, "__qualname__", repr(public)), public
        return
    for kind in (each for each in public.__mro__ if each.__module__.startswith("zkconcurrent")):
        for name, member in vars(kind).items():
            if name.startswith("_") and not name.startswith("__"):
                continue
            found = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            # A named tuple makes some of its methods by itself.
            if inspect.isfunction(found) and inspect.unwrap(found).__module__.startswith("zkconcurrent"):
                yield f"{kind.__qualname__}.{name}", found


@pytest.mark.parametrize(
    "module", [zkconcurrent, aio, testing, tree, metrics, otel, prometheus], ids=lambda module: module.__name__
)
def test_the_types_of_a_function_can_be_resolved(module: ModuleType) -> None:
    """What injects arguments, or checks them, can read the annotations of each function and method."""
    public = [found for name in module.__all__ if callable(found := getattr(module, name))]
    every = [each for found in public if not typing.get_origin(found) for each in _functions(found)]
    assert every
    unresolved = {}
    for name, function in every:
        try:
            typing.get_type_hints(function)
        except Exception as error:
            unresolved[name] = error
    assert not unresolved
    if module is zkconcurrent:
        hints = typing.get_type_hints(zkconcurrent.add_listener)
        assert typing.get_args(hints["listener"])[0] == [zkconcurrent.LockEvent]


@pytest.mark.parametrize("module", [zkconcurrent, aio, testing], ids=lambda module: module.__name__)
def test_the_signature_of_a_class_is_its_constructors(module: ModuleType) -> None:
    """Sphinx, which asks `__new__` first, and `inspect` show what a class takes: nothing hides its constructor."""
    kinds = [kind for name in module.__all__ if isinstance(kind := getattr(module, name), type)]
    kinds = [kind for kind in kinds if not getattr(kind, "_is_protocol", False)]
    kinds = [kind for kind in kinds if not issubclass(kind, BaseException | Enum | tuple)]
    ours = {base for kind in kinds for base in kind.__mro__ if base.__module__.startswith("zkconcurrent")}
    assert ours
    assert [kind for kind in ours if "__new__" in vars(kind)] == []
    named = {kind: [*inspect.signature(kind).parameters] for kind in kinds}
    assert [kind for kind, names in named.items() if names[:1] == ["args"]] == []


def test_tasks_have_the_names_of_threads() -> None:
    """`aio` has every class and function that the package has for threads; errors and types are shared."""
    of_threads = {name for name, home in HOMES.items() if home.startswith("_threads.")} & {*zkconcurrent.__all__}
    # `asyncio` has no such class, or other names; the rest are results, which both have.
    alone = {"SimpleQueue", "Empty", "Full", "ShutDown", "add_listener"}
    alone |= {"Candidate", "Contender", "LastRun", "Turn", "VersionedValue"}
    own = {"Completion", "Joining", "QueueEmpty", "QueueFull", "QueueShutDown"}
    assert (of_threads | {"connect", "Lost"}) - alone == {*aio.__all__} - own


@pytest.mark.fault(506)
def test_the_import_loads_all_that_is_for_threads(tmp_path: Path) -> None:
    """The first use of a name loads no module, so it needs no file: an upgrade may have removed them."""
    code = """
import os, sys, zkconcurrent
loaded = {*sys.modules}
os.rename("zkconcurrent", "removed")
from tests.helpers import first_uses
first_uses.use_all()
print("then loaded:", [name for name in sys.modules if name not in loaded and not name.startswith("tests")])
"""
    shutil.copytree(Path(zkconcurrent.__file__).parent, tmp_path / "zkconcurrent")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = run_python("-c", code, cwd=tmp_path, env=environment)
    assert "then loaded: []" in done.stdout, done.stdout


def test_each_name_is_used_there() -> None:
    """Names without a use of their own are results, errors or reports of calls, and one codec."""
    results = (BaseException, zkconcurrent.LockEvent, tuple, Enum)
    others = {"Claim", "Codec", "Held", "LockLike", "Membership", "MSGPACK", "Term", "__version__"}
    left = {*zkconcurrent.__all__} - {name.partition(",")[0] for name in first_uses.uses()} - others
    assert [name for name in left if not issubclass(getattr(zkconcurrent, name), results)] == []


def test_what_is_for_some_programs_has_an_import_of_its_own() -> None:
    """`aio`, the tests' servers, the exporters, what is for tooz and Celery, and the command are not loaded with it."""
    loaded = run_python("-c", "import sys, zkconcurrent; print(*sys.modules)").stdout.split()
    others = ("aio", "testing", "tree", "metrics", "otel", "prometheus", "tooz", "celery", "_command")
    assert [name for name in loaded if name.removeprefix("zkconcurrent.").partition(".")[0] in others] == []
    run_python("-c", "import zkconcurrent; assert not hasattr(zkconcurrent, 'aio')")


@pytest.mark.fault(506)
def test_use_within_a_patch_of_the_modules() -> None:
    """What a test drops of `sys.modules` at its end is not the library: there is one copy of it."""
    code = """
import sys, zkconcurrent
from unittest import mock
with mock.patch.dict(sys.modules, {"some_sdk": mock.Mock()}):
    one = zkconcurrent.connect("memory:")
    first = zkconcurrent.Lock(one, "/a")
    first.acquire()
other = zkconcurrent.connect("memory:")
assert not zkconcurrent.Lock(other, "/a").acquire(timeout=0.1)
with zkconcurrent.RLock(one, "/r"):
    first.release()
one.stop(), other.stop()
"""
    run_python("-c", code)
