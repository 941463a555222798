"""A type checker's view of the library, as its user: all public names, complete, and wrong uses as wrong.

`make lint` has both checkers read the programs in `tests/typing` under the oldest Python.
"""

from __future__ import annotations

import ast
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

import zkconcurrent
from tests.helpers.processes import run_python
from zkconcurrent import aio

pytestmark = pytest.mark.xdist_group("test_typing")

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "typing"
NEWEST = "3.14"


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_users_programs(checker: str) -> None:
    """Under the newest Python, both checkers find no error but those that `wrong_uses.py` ignores."""
    command = {
        "mypy": ["mypy", "--python-version", NEWEST, "tests/typing"],
        "pyright": ["pyright", "--warnings", "--pythonversion", NEWEST, "--pythonpath", sys.executable],
    }
    run_python("-m", *command[checker], timeout=500)


@pytest.mark.parametrize(
    ("program", "package", "called"),
    [("uses_every_name.py", zkconcurrent, "zkconcurrent"), ("uses_every_name_of_aio.py", aio, "aio")],
    ids=["zkconcurrent", "aio"],
)
def test_every_name_is_used(program: str, package: ModuleType, called: str) -> None:
    """Each program uses all that `__all__` lists."""
    tree = ast.parse((PROGRAMS / program).read_text())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == called
    }
    used |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(package.__all__) <= used


def test_the_types_are_shipped() -> None:
    """The package says that it has types."""
    assert (Path(zkconcurrent.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Semaphore", "Condition"])
def test_locks_of_threading_are_like_ours(kind: str) -> None:
    """`isinstance` knows the standard library's locks as such, and an event, which can't be held, not."""
    assert isinstance(getattr(threading, kind)(), zkconcurrent.LockLike)
    assert not isinstance(threading.Event(), zkconcurrent.LockLike)


def test_ours_are_like_them() -> None:
    """Every class that can be held has the methods of `LockLike`; the others have not."""
    held = {"Lock", "RLock", "ReadLock", "WriteLock", "MultiLock", "DetachedLock"}
    held |= {"Semaphore", "BoundedSemaphore", "Condition", "LockLike"}
    classes = {name: kind for name in zkconcurrent.__all__ if isinstance(kind := getattr(zkconcurrent, name), type)}
    assert {name for name, kind in classes.items() if issubclass(kind, zkconcurrent.LockLike)} == held
