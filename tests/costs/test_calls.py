"""How many functions of the library a free lock runs on the thread of its caller: what a reader has to follow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import zkconcurrent

# If a count has risen: on this path, ask nothing that was just asked, and make nothing for listeners that nobody has
# added. `names` of a run that is too long show what has come. If it has fallen, lower it here.
ACQUIRE, RELEASE = 107, 59
_ROOT = zkconcurrent.__path__[0]


def functions(call: Callable[[], object]) -> list[str]:
    """Return the names of the library's functions that a call begins or resumes on this thread, in order."""
    names: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        # `_go_deeper` only recurses, where there are greenlets.
        ours = frame.f_code.co_filename.startswith(_ROOT) and frame.f_code.co_name != "_go_deeper"
        if event == "call" and ours:
            names.append(f"{frame.f_globals['__name__']}:{frame.f_lineno} {frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


def slept(names: list[str]) -> bool:
    """Return whether the caller slept until a reply came; otherwise the reply was there already, which takes less."""
    return any("_sleep" in each for each in names)


def test_a_free_lock() -> None:
    """An acquire with a timeout, and the release: the shortest run of many, as kazoo's thread may leave it work."""
    with zkconcurrent.connect("memory:calls") as zk:
        lock = zkconcurrent.Lock(zk, "/lock")
        acquires: list[list[str]] = []
        releases: list[list[str]] = []
        while min(len(acquires), len(releases)) < 10:
            for runs, call in ((acquires, lambda: lock.acquire(timeout=5)), (releases, lock.release)):
                if slept(names := functions(call)):
                    runs.append(names)
    for runs, most in ((acquires, ACQUIRE), (releases, RELEASE)):
        names = min(runs, key=len)
        assert len(names) <= most, "\n".join(names)
