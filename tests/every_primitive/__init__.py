"""Tests that ask each kind of primitive the same: one module for each question, and one row for each kind.

The rows are `KINDS` of `tests/helpers/kinds.py`. Each question is asked of the kinds for threads, and of those for
tasks, whose calls `tasks.py` gives the interface of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.every_primitive.tasks import TASKS
from tests.helpers.kinds import KINDS, Kind, make
from zkconcurrent._engine.session import Session

PACKAGES = {"threads": zkconcurrent, "tasks": TASKS}


def each(which: Callable[[str, Kind], object] = lambda *_: True, marks: dict[str, Any] | None = None) -> Any:
    """Ask of each kind, or of some, on threads and on tasks: a test is given the package `of` and the `kind`'s name.

    Args:
        which: tells by the name and the row whether a kind is asked.
        marks: the marks of those on threads, or on tasks.
    """
    return pytest.mark.parametrize(
        ("of", "kind"),
        [
            pytest.param(of, kind, id=f"{kind} on {name}", marks=(marks or {}).get(name, ()))
            for kind, row in KINDS.items()
            for name, of in PACKAGES.items()
            if hasattr(of, kind.partition(",")[0]) and which(kind, row)
        ],
    )


SAME_RECIPE = (
    *("RLock", "Election, latch", "BoundedSemaphore", "AtomicInteger", "AtomicReference", "Set"),
    *("SimpleQueue", "PriorityQueue"),
)
"""Kinds that send what another one sends, which stands for them where requests are lost or a wait is in trouble."""

waiting = each(lambda kind, row: row.ends and kind not in SAME_RECIPE)


def class_of(kind: str) -> str:
    """Return the name of the class of a kind."""
    return kind.partition(",")[0]


def can_end(kind: str) -> bool:
    """Return whether a kind has a `destroy()`."""
    return hasattr(getattr(zkconcurrent, class_of(kind)), "destroy")


def looks(of: Any, kind: str, client: KazooClient, path: str) -> dict[str, Callable[[], object]]:
    """Return what asks the server, by the name of the attribute or method."""

    def look(name: str) -> object:
        value = getattr(make(of, class_of(kind), client, path), name)
        return value() if callable(value) else value

    return {name: partial(look, name) for name in KINDS[kind].looks}


def calls(of: Any, kind: str, client: KazooClient, path: str) -> dict[str, Callable[[], object]]:
    """Return what a program does with a primitive, by its name: to use it, to wait, to destroy it, and all looks."""
    row = KINDS[kind]
    ends = {"destroy": lambda: make(of, class_of(kind), client, f"{path}/end").destroy()} if can_end(kind) else {}
    return {
        "use": partial(row.use, of, client, f"{path}/use"),
        "wait": partial(row.wait, of, client, f"{path}/wait", 20.0),
        **looks(of, kind, client, f"{path}/look"),
        **ends,
    }


def sleeps(client: KazooClient) -> bool:
    """Return whether a call of a client waits for a change, with a watch."""
    session = Session.of(client)
    with session.lock:
        awaited = any(ticket.awaits and not ticket.changed for ticket in session.registry.tickets.values())
    return awaited and any([*client._data_watchers.values(), *client._child_watchers.values()])
