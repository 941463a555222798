"""A type checker's view of the library, as its user: all public names, complete, and wrong uses as wrong."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

import zkconcurrent
from zkconcurrent import aio

pytestmark = pytest.mark.xdist_group("test_typing")

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "typing"


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def errors(request: pytest.FixtureRequest) -> dict[str, list[int]]:
    """The lines that a type checker finds wrong in each user's program; mypy is strict."""
    files = [str(path) for path in sorted(PROGRAMS.glob("[a-z]*.py"))]
    # With the settings of `make lint`, which has read the library just before.
    options = {"mypy": ["--no-error-summary", "--no-color-output"], "pyright": ["--pythonpath", sys.executable]}
    command = [sys.executable, "-m", request.param, *options[request.param], *files]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    assert request.param == "pyright" or not done.stderr  # it may fetch itself
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, list[int]] = {Path(file).name: [] for file in files}
    for file, line in re.findall(r"^ *(.*?):(\d+):(?:\d+ -)? error:", done.stdout, re.MULTILINE):
        found[Path(file).name].append(int(line))
    return found


@pytest.mark.parametrize("program", ["uses_every_name.py", "uses_every_name_of_aio.py"])
def test_a_users_program(program: str, errors: dict[str, list[int]]) -> None:
    """A program that uses every public name passes `mypy --strict`, and pyright."""
    assert errors[program] == []


def test_wrong_uses(errors: dict[str, list[int]]) -> None:
    """Each wrong use is an error, and nothing beside it is."""
    lines = (PROGRAMS / "wrong_uses.py").read_text().splitlines()
    assert sorted(set(errors["wrong_uses.py"])) == [n for n, line in enumerate(lines, 1) if line.endswith("# wrong")]


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


@pytest.mark.parametrize(
    "lock",
    [threading.Lock(), threading.RLock(), threading.Semaphore(), threading.Condition()],
    ids=lambda lock: type(lock).__name__,
)
def test_locks_of_threading_are_like_ours(lock: object) -> None:
    """`isinstance` knows the standard library's locks as such, and an event, which can't be held, not."""
    assert isinstance(lock, zkconcurrent.LockLike)
    assert not isinstance(threading.Event(), zkconcurrent.LockLike)


@pytest.mark.parametrize(
    "name",
    [
        "Lock",
        "RLock",
        "ReadLock",
        "WriteLock",
        "MultiLock",
        "QuorumLock",
        "DetachedLock",
        "Semaphore",
        "BoundedSemaphore",
        "Condition",
    ],
)
def test_ours_are_like_them(name: str) -> None:
    """Every class that can be held has the methods of `LockLike`; the others have not."""
    assert issubclass(getattr(zkconcurrent, name), zkconcurrent.LockLike)
    assert not issubclass(zkconcurrent.Barrier, zkconcurrent.LockLike)
