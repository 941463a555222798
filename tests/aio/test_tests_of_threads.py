"""The tests of threads in `tests/integration`, from the same text, with a task of `aio` for each of their threads.

Left out are tests that are marked `threads_only`, with the reason; of a test that runs over several kinds of lock, also
the kinds whose calls a task makes as it makes those of another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import zkconcurrent
from tests.helpers import lock_types, on_tasks
from tests.helpers.homes import HOMES
from zkconcurrent import aio

KINDS = {
    lock_types.Lock: on_tasks.Lock,
    lock_types.RLock: on_tasks.RLock,
    lock_types.read_lock: on_tasks.ReadLock,
    lock_types.write_lock: on_tasks.WriteLock,
    lock_types.unfair_lock: on_tasks.unfair_lock,
    lock_types.unfair_rlock: on_tasks.unfair_rlock,
    zkconcurrent.Semaphore: on_tasks.Semaphore,
    zkconcurrent.BoundedSemaphore: on_tasks.BoundedSemaphore,
    zkconcurrent.MultiLock: on_tasks.MultiLock,
}
ALIKE = {
    lock_types.read_lock: lock_types.RLock,
    lock_types.write_lock: lock_types.RLock,
    lock_types.unfair_lock: lock_types.Lock,
    lock_types.unfair_rlock: lock_types.RLock,
    zkconcurrent.BoundedSemaphore: zkconcurrent.Semaphore,
}
"""Kinds of lock whose calls a task makes as it makes those of another kind: they differ in what the recipe sends."""


def against(kind: Any) -> Any:
    """Return the kind of lock that keeps `kind` out while it is held, and the other way round."""
    return on_tasks.WriteLock if kind is on_tasks.ReadLock else kind


def generic(module: ModuleType) -> type:
    """Return a class of the module's tests, in which its names stand for those of `aio`."""
    names = {name: kind for name, kind in vars(on_tasks).items() if isinstance(kind, type) and name in aio.__all__}
    names |= {"read_lock": on_tasks.ReadLock, "write_lock": on_tasks.WriteLock, "against": against}
    names |= {"unfair_lock": on_tasks.unfair_lock}
    assert names.keys() & vars(module).keys(), f"on_tasks.py has no twin for {module.__name__}, which would use threads"

    def _ours(self: object, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
        for name in names.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, names[name])

    members: dict[str, Any] = {"_ours": pytest.fixture(autouse=True)(_ours)}
    for name, test in vars(module).items():
        marks = getattr(test, "pytestmark", ())
        if name.startswith("test_") and not any(mark.name == "threads_only" for mark in marks):
            members[name] = staticmethod(on_ours(test, marks))
    return type("Test" + module.__name__.rpartition(".test_")[2].title().replace("_", ""), (), members)


def on_ours(test: Callable[..., None], marks: Iterable[pytest.Mark]) -> Callable[..., None]:
    """Return the test, which is given our kinds of lock."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        if "kind" in fixtures:
            fixtures["kind"] = KINDS.get(fixtures["kind"], fixtures["kind"])
        test(**fixtures)

    run.pytestmark = [*map(of_unlike_kinds, marks)]  # type: ignore[attr-defined]
    return run


def of_unlike_kinds(mark: pytest.Mark) -> pytest.Mark:
    """Return the mark, which runs the test with one of the kinds that are alike, if it is there."""
    if mark.name != "parametrize" or mark.args[0] != "kind":
        return mark
    kinds = mark.args[1]
    unlike = [kind for kind in kinds if ALIKE.get(kind) not in kinds]
    return pytest.mark.parametrize("kind", unlike, **mark.kwargs).mark


INTEGRATION = Path(__file__).parents[1] / "integration"
# A primitive's tests are in the file of the same name as its module; the others are of several primitives.
FILES = {
    *(
        f"test_{HOMES[name].rpartition('.')[2]}"
        for name in zkconcurrent.__all__
        if isinstance(getattr(on_tasks, name, None), type)
    ),
    *(
        "test_cancel_waits",
        "test_held",
        "test_hold",
        "test_locks",
        "test_losses",
        "test_resize",
        "test_revocation",
    ),
}
MODULES = [
    import_module(f"tests.integration.{name}") for name in sorted(FILES) if (INTEGRATION / f"{name}.py").exists()
]
globals().update((kind.__name__, kind) for kind in map(generic, MODULES))
