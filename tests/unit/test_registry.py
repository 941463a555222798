"""What each primitive needs outside its own modules: derived from the public names, so that a new one is not forgotten.

A failure lists all that is missing for a name, by file. CONTRIBUTING.md tells how to write each.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import zkconcurrent
from tests.helpers.homes import HOMES
from tests.helpers.kinds import ARGUMENTS, KINDS, primitives
from zkconcurrent import aio

ROOT = Path(__file__).parents[2]
# Names whose tests are in the file of another one, as they share a recipe or a base.
TESTED_WITH = {"lock": "locks", "rlock": "locks", "set": "dict"}
SIMULATED_WITH = {
    **dict.fromkeys(("lock", "rlock", "rwlock"), "tasks"),
    **dict.fromkeys(("dict", "set"), "dicts"),
    **dict.fromkeys(("atomic", "value", "shared_value"), "values"),
    "queue": "queues",
}
WITHOUT_NAMES = {"DetachedLock", "ReadLock", "WriteLock"}  # an owner's own path; by the pair
SAME_AS = {
    **dict.fromkeys(("LifoQueue", "PriorityQueue", "DelayQueue", "SimpleQueue"), "Queue"),
    **dict.fromkeys(("AtomicInteger", "AtomicReference", "SharedValue"), "AtomicLong"),
    **dict.fromkeys(("ReadLock", "WriteLock"), "ReadWriteLock"),
    "BoundedSemaphore": "Semaphore",
    "RLock": "Lock",
    "Set": "Dict",
}
"""Classes that run the recipe of another one: where calls are counted or struck, that one stands for them."""


def missing(name: str, home: str, required: set[str]) -> dict[str, str]:
    """Return what there is to add for a primitive, by file: its name, its module's, and what its constructor needs."""
    recipe = SAME_AS.get(name, name)

    def says(file: str, text: str) -> bool:
        return (ROOT / file).exists() and text in (ROOT / file).read_text()

    there = {
        "tests/helpers/kinds.py": (
            name in {kind.partition(",")[0] for kind in KINDS} and bool(required) == (name in ARGUMENTS),
            "its use and its wait in KINDS; in ARGUMENTS what it can't be made without",
        ),
        f"zkconcurrent/aio/_{home}.py": (name == "SimpleQueue" or hasattr(aio, name), "its twin for tasks"),
        "zkconcurrent/_threads/namespace.py": (
            name in WITHOUT_NAMES or hasattr(zkconcurrent.Namespace, name),
            "its line in Namespace",
        ),
        "zkconcurrent/aio/_namespace.py": (
            name in WITHOUT_NAMES or name == "SimpleQueue" or hasattr(aio.Namespace, name),
            "its line in Namespace",
        ),
        f"tests/integration/test_{home}.py": (
            (ROOT / f"tests/integration/test_{TESTED_WITH.get(home, home)}.py").exists(),
            "its behaviour on a server, of threads and, from the same text, of tasks",
        ),
        f"tests/simulation/subjects/{home}.py": (
            (ROOT / f"tests/simulation/subjects/{SIMULATED_WITH.get(home, home)}.py").exists(),
            "its subject, random runs and table",
        ),
        "tests/faults/scenes.py": (
            says("tests/faults/scenes.py", recipe)
            or says("tests/faults/test_interrupts.py", recipe)
            or says(f"tests/integration/test_{TESTED_WITH.get(home, home)}.py", "at_every_line"),
            "an interrupt at every line of its calls, there or beside its other tests",
        ),
        "tests/aio/calls.py": (
            says("tests/aio/calls.py", recipe),
            "a scene for each call that waits",
        ),
        **{
            f"docs/{page}": (says(f"docs/{page}", recipe), what)
            for page, what in {
                "reference/api.md": "its line, and a page below `api/` with its `autoclass`, for threads and for tasks",
                "reference/znodes.md": "its nodes",
                "reference/costs.md": "its requests",
                "explanation/guarantees.md": "its promise and limits",
            }.items()
        },
    }
    return {file: what for file, (done, what) in there.items() if not done}


@pytest.mark.parametrize("name", primitives())
def test_a_primitive_is_everywhere(name: str) -> None:
    """Each has its uses, twin, names, tests and pages."""
    parameters = inspect.signature(getattr(zkconcurrent, name)).parameters.values()
    required = {each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD}
    left = missing(name, HOMES[name].rpartition(".")[2], required - {"client", "path"})
    lines = "".join(f"\n  {file}: {what}" for file, what in left.items())
    assert not left, f"{name} lacks what every primitive has; add{lines}"


def test_what_a_new_one_needs() -> None:
    """A name that is nowhere lacks all of it, and each file that is told of exists or is the primitive's own."""
    left = missing("Exchanger", "exchanger", set())
    assert len(left) == 12
    assert all((ROOT / file).exists() for file in left if "exchanger" not in file)
