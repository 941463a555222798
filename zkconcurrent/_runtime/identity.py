"""The owner of a hold: a number for each thread, greenlet or task, which the process never reuses.

`threading.get_ident` numbers only the threads that run now. It gives a new thread the number of a thread that has
ended. If that number identified the owner of a hold, the new thread would get the holds and losses of the ended thread.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from os import urandom
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import asyncio

HOST = socket.gethostname()

Task: TypeAlias = "asyncio.Task[object]"
"""An owner that is a task. Only `aio` imports asyncio, which programs of threads do not need."""

# The first number is above all results of `get_ident`, yet small enough to be hashed fast: each acquire looks up an
# owner.
_FIRST = 1 << 50


class _Life:
    """The life of a thread: this object is garbage collected when the thread ends.

    Attributes:
        number: the number of the owner.
        ident: its `get_ident()`; for a task, its own number.
        holds: what it holds in this process; see `holds_of`.
    """

    __slots__ = ("__weakref__", "holds", "ident", "number")

    def __init__(self, number: int, ident: int) -> None:
        self.number = number
        self.ident = ident
        self.holds: dict[str, Any] = {}


class _Number:
    """The class attribute that gives a thread its number, at the thread's first use."""

    def __get__(self, owner: object, kind: type) -> object:
        if owner is None:
            return self
        mine = owner.__dict__
        # R3, R4: each step takes effect once, even if a signal handler or a finalizer gets the number in between.
        life = mine.setdefault("life", _Life(next(_numbers), threading.get_ident()))
        _living[life.number] = life
        return mine.setdefault("number", life.number)


class _Owner(threading.local):
    """The calling thread. Where gevent has patched the program, this is the calling greenlet."""

    number = _Number()


of_thread: Callable[[], int] = partial(getattr, _Owner(), "number")
"""Return the number of the calling thread or greenlet; only the first use in each of them runs a Python frame."""


class ReleasesAtEnd(Protocol):
    """An object that has holds at a path, and releases the holds of a task that has ended."""

    path: str

    def leave_owner_to_keeper(self, owner: int, *, thrown_away: bool) -> bool:
        """Release the holds of a task; return whether it had any. The garbage collector may call this at any line."""


class _TaskLife(_Life):
    """The life of a task, which is over once the task is done. This object is garbage collected with the task."""

    __slots__ = ("gone", "held", "task")
    gone: weakref.ref[Task]

    def __init__(self, task: Task) -> None:
        super().__init__(next(_numbers), 0)
        self.ident = self.number
        self.task = weakref.ref(task)
        self.held: weakref.WeakSet[ReleasesAtEnd] | None = None


def release_at_end(owner: int, held: ReleasesAtEnd) -> None:
    """Have all holds of a task at a path, present and future, released when the task ends."""
    life = _living[owner]
    assert isinstance(life, _TaskLife)
    if life.held is None:
        life.held = weakref.WeakSet()
        task = life.task()
        assert task is not None
        end = partial(_release_holds, life.held, owner, task.get_name())
        task.add_done_callback(end)
        life.gone = weakref.ref(task, end)
    life.held.add(held)


def _release_holds(held: weakref.WeakSet[ReleasesAtEnd], owner: int, name: str, gone: object) -> None:
    """Release the holds of a task that is done, or was thrown away with its loop; asyncio warns of the latter."""
    thrown_away = isinstance(gone, weakref.ref)
    paths = [each.path for each in list(held) if each.leave_owner_to_keeper(owner, thrown_away=thrown_away)]
    # This function is called again when the task is garbage collected, and must then find nothing: a task that is done
    # has ended its blocks.
    held.clear()
    if paths and not thrown_away:
        text = f"{name} has ended without releasing {', '.join(map(repr, paths))}, which the library releases"
        warnings.warn(text, ResourceWarning, stacklevel=2)


def of_task() -> int:
    """Return the number of the running task.

    Raises:
        RuntimeError: the caller does not run in a task.
    """
    asyncio = sys.modules["asyncio"]
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("no task is running: a lock's owner is the task that acquires it")
    life = _tasks.get(task)
    if life is None:
        life = _tasks[task] = _TaskLife(task)
        _living[life.number] = life
    return life.number


def of_caller() -> int:
    """Return the number of the running task; if none runs, as in a callback of the loop, a number that owns nothing."""
    try:
        return of_task()
    except RuntimeError:
        return -threading.get_ident()


def owns_nothing(identity: Callable[[], int]) -> bool:
    """Return whether the caller can't have a hold: the owners are tasks, and the caller does not run in one."""
    return identity is of_task and of_caller() < 0


def task_of(owner: int) -> Task | None:
    """Return the task with that number; None if there is none."""
    life = _living.get(owner)
    return life.task() if isinstance(life, _TaskLife) else None


def name(owner: int) -> str:
    """Return the owner's name, for the data of its nodes."""
    life = _living.get(owner)
    if isinstance(life, _TaskLife) and (task := life.task()) is not None:
        return str(task.get_name())
    # Do not use `threading.current_thread()`, which leaves a dummy for a thread that threading did not start. Do not
    # use `enumerate()` either: it takes a lock that every thread takes as it ends, so a signal handler that stops the
    # client at that point would hang.
    number = ident(owner) if life is None else life.ident
    thread = threading._active.get(number)  # type: ignore[attr-defined]
    return str(number) if thread is None else str(thread.name)


def ident(owner: int) -> int:
    """Return the owner's `get_ident()`, as logs and the repr of `threading` show it; 0 if the owner has ended."""
    life = _living.get(owner)
    return owner if owner < _FIRST else 0 if life is None else life.ident


def holds_of(owner: int) -> dict[str, Any]:
    """Return the holds that an owner's nodes list while the owner waits, by the prefix of each hold's own node."""
    life = _living.get(owner)
    return {} if life is None else life.holds


def label(owner: int) -> str:
    """Return the owner's unique name, for the data of its nodes: no other owner in any process has this name."""
    return f"{_process}-{owner - _FIRST if owner >= _FIRST else owner}"


def ended(owner: int) -> bool:
    """Return whether the owner has ended, and so can no longer settle anything."""
    if owner < _FIRST:
        return False
    life = _living.get(owner)
    if isinstance(life, _TaskLife):
        task = life.task()
        return task is None or task.done()
    return life is None


_numbers = itertools.count(_FIRST)
_living: weakref.WeakValueDictionary[int, _Life] = weakref.WeakValueDictionary()
_tasks: weakref.WeakKeyDictionary[Task, _TaskLife] = weakref.WeakKeyDictionary()
# Random digits that name this process; a forked child has others.
_process = urandom(4).hex()


def _after_fork_in_child() -> None:
    """Forget what the parent's owners hold, and name this process anew."""
    global _process
    _process = urandom(4).hex()
    for life in list(_living.values()):
        life.holds = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
