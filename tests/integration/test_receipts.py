"""Receipts of numbers, values and queues: the receipt of one object serves the client's next object at its path."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.conftest import Connect
from tests.helpers.eventually import eventually
from tests.helpers.processes import in_forked_child, run_python
from zkconcurrent import (
    AtomicLong,
    Queue,
    SharedValue,
)
from zkconcurrent._engine import spares
from zkconcurrent._recipes import receipts
from zkconcurrent.testing import Server

pytestmark = pytest.mark.fault(133)

CYCLES = 12


def use(kind: Any, zk: KazooClient, path: str) -> weakref.ref[Any]:
    """Make an object, and use it; return what tells whether its state is garbage."""
    made = kind(zk, path, b"") if kind is SharedValue else kind(zk, path)
    if kind is SharedValue:
        made.update(lambda value: value + b"x")
    elif kind is AtomicLong:
        made.add()
    else:
        made.put(b"x")
        assert made.get() == b"x"
    return weakref.ref(made._path_state)


def use_and_drop(kind: Any, zk: KazooClient, path: str) -> None:
    """Use an object, which is garbage then."""
    state = use(kind, zk, path)
    if state() is not None:  # a thread, or a task, drops its last reference a moment later; or it is part of a cycle
        eventually(lambda: state() is None or gc.collect() < 0)


def nodes(zk: KazooClient, path: str) -> list[str]:
    """Return all nodes below a path."""
    below: list[str] = []
    with suppress(NoNodeError):  # a member of an object that is garbage was just deleted
        below = [f"{path}/{name}" for name in zk.get_children(path)]
    return sorted([*below, *(each for one in below for each in nodes(zk, one))])


def receipts_of(zk: KazooClient, path: str) -> list[str]:
    """Return the paths of the receipts."""
    return [each for each in nodes(zk, path) if "/receipts/" in each]


@pytest.mark.parametrize("kind", [AtomicLong, SharedValue, Queue])
def test_a_new_object_for_each_use(kind: Any, connect: Connect, zk: KazooClient, zk_path: str) -> None:
    """A program that makes an object for each use leaves as many nodes as one that makes one."""
    client = connect()
    use_and_drop(kind, client, zk_path)
    left = receipts_of(zk, zk_path)
    assert len(left) == 1
    for _ in range(CYCLES):
        use_and_drop(kind, client, zk_path)
    assert receipts_of(zk, zk_path) == left
    # Only folders, and of a number its queue.
    eventually(lambda: {each.count("/") - zk_path.count("/") for each in nodes(zk, zk_path) if each not in left} == {1})


def test_a_forked_child(connect: Connect, zk: KazooClient, zk_path: str) -> None:
    """A child that drops the parent's object leaves its receipt alone, and the parent's next one uses it."""
    client = connect()
    made = [AtomicLong(client, zk_path)]
    use(AtomicLong, client, zk_path)
    left = receipts_of(zk, zk_path)
    in_forked_child(made.clear)
    made.clear()
    use_and_drop(AtomicLong, client, zk_path)
    assert receipts_of(zk, zk_path) == left


def test_removed_while_idle(connect: Connect, zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another client has removed the receipt, untouched for a day: the next object makes another."""
    client, other = connect(), connect()
    use_and_drop(AtomicLong, client, zk_path)
    left = receipts_of(zk, zk_path)
    monkeypatch.setattr(receipts, "UNTOUCHED", -60.0)
    use_and_drop(AtomicLong, other, zk_path)
    monkeypatch.undo()
    assert not set(left) & set(receipts_of(zk, zk_path))
    use_and_drop(AtomicLong, client, zk_path)
    assert len(receipts_of(zk, zk_path)) == 2
    assert AtomicLong(zk, zk_path).get() == 3


@pytest.mark.fault(242)
@pytest.mark.parametrize("spare_for", [0.2, 1e9], ids=["unused for a while", "too many"])
def test_each_path_is_used_once(
    spare_for: float, connect: Connect, zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No receipt stays of any number of paths, but for the last ones, which later objects may still use."""
    monkeypatch.setattr(spares, "SPARES", 10)
    monkeypatch.setattr(spares, "SPARE_FOR", spare_for)
    monkeypatch.setattr(spares, "TOGETHER", 7)
    client = connect()
    for n in range(25):
        use_and_drop(AtomicLong if n % 2 else Queue, client, f"{zk_path}/{n}")
    left = 0 if spare_for < 1 else 10
    eventually(lambda: len(receipts_of(zk, zk_path)) <= left)
    assert len(receipts_of(zk, zk_path)) == left


@pytest.mark.fault(246)
@pytest.mark.parametrize("ends", ["with its block", "at its exit"])
def test_short_lived_processes(ends: str, zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """A process that ends leaves no receipt, whether it stops its client or not."""
    code = """if True:
        import sys, zkconcurrent
        hosts, path, ends = sys.argv[1:]
        zk = zkconcurrent.connect(f"zk://{hosts}")
        number, queue = zkconcurrent.AtomicLong(zk, f"{path}/number"), zkconcurrent.Queue(zk, f"{path}/queue")
        number.add()
        zkconcurrent.AtomicLong(zk, f"{path}/other").add()
        queue.put(b"x")
        if ends == "with its block":
            with zk:
                pass
    """
    run_python("-c", code, zookeeper.hosts, zk_path, ends)
    assert len(receipts_of(zk, zk_path)) == 0
    assert AtomicLong(zk, f"{zk_path}/number").get() == 1
