"""`namespace("local")`: the service of one process, from its first use through forks to the exit."""

from __future__ import annotations

import asyncio
import gc
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import zkconcurrent
from tests.helpers.eventually import eventually
from tests.helpers.processes import in_forked_child
from zkconcurrent import ClientError, LockLostError, Namespace, aio, inspect
from zkconcurrent._memory import process


@pytest.fixture
def threads() -> Namespace:
    """A namespace."""
    return zkconcurrent.namespace("local", "/app")


def run(program: str) -> tuple[int, str, str]:
    """Run a program in a process of its own; return its exit code and what it printed."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_each_stands_alone(threads: Namespace) -> None:
    """Two namespaces share nothing, whether for threads or for tasks; all are of one client."""
    other, tasks = zkconcurrent.namespace("local", "/app"), aio.namespace("local", "/app")
    assert threads.client is other.client
    assert other.client is tasks.client
    assert len({threads.path, other.path, tasks.path}) == 3

    async def take() -> None:
        async with tasks.Lock("lock"):
            pass

    with threads.Lock("lock"), other.Lock("lock"):
        asyncio.run(asyncio.wait_for(take(), 10))


@pytest.mark.parametrize("package", [zkconcurrent, aio])
def test_it_is_not_pickled(package: Any) -> None:
    """Another process would find another service, and nothing would be excluded."""
    space = package.namespace("local")
    for what in (space, space.client, *([space.Lock("lock")] if package is zkconcurrent else [])):
        with pytest.raises(TypeError, match=r'it is of a namespace\("local"\), which is of this process alone'):
            pickle.dumps(what)


def test_what_stays_of_a_namespace() -> None:
    """A claim, a member, a term and an event keep the nodes that they need, though nothing else of theirs is left."""
    spaces = [zkconcurrent.namespace("local") for _ in range(4)]
    roots = [space.path for space in spaces]
    jobs, event = spaces[0].Queue("jobs"), spaces[3].Event("event")
    jobs.put(b"job")
    event.set()
    blocks: list[Any] = [jobs.claim(), spaces[1].Group("workers").join(b""), spaces[2].Election("leader").lead()]
    spaces.clear()
    del jobs
    with blocks[0], blocks[1], blocks[2]:
        gc.collect()
        # Two turns of the service.
        time.sleep(0.5)
        assert [nodes(root) > 1 for root in roots] == [True] * 4
        assert event.is_set()
    blocks.clear()
    del event
    eventually(lambda: gc.collect() >= 0 and not any(map(nodes, roots)))


def test_many_begin_together() -> None:
    """Threads that make a process's first namespaces at the same time have one client and one service."""
    program = (
        "import threading, zkconcurrent\n"
        "begin, found = threading.Barrier(20), []\n"
        "def use():\n"
        "    begin.wait()\n"
        "    space = zkconcurrent.namespace('local')\n"
        "    with space.Lock('lock'): found.append(space)\n"
        "using = [threading.Thread(target=use) for _ in range(20)]\n"
        "for each in using: each.start()\n"
        "for each in using: each.join(30)\n"
        "services = [each.name for each in threading.enumerate()].count('zkconcurrent memory:(local)')\n"
        "print(len({space.path for space in found}), len({space.client for space in found}), services)\n"
    )
    assert run(program) == (0, "20 1 1\n", "")


def nodes(path: str) -> int:
    """Return how many nodes of this process's service lie at or below a path."""
    return sum(each == path or each.startswith(f"{path}/") for each in list(process.local()._service.tree.nodes))


def test_many_that_are_dropped() -> None:
    """Namespaces that come and go leave no node, watch or thread."""

    def use() -> None:
        space = zkconcurrent.namespace("local")
        with space.RLock("lock"):
            space.Event("event").set()
        space.Queue("jobs").put(b"1")
        space.Dict("config")["key"] = b"value"

    use()
    watches = process.local()._service.watches
    counts: list[Callable[[], int]] = [
        lambda: nodes(""),
        lambda: watches.data.size + watches.children.size,
        threading.active_count,
    ]
    gc.collect()
    time.sleep(0.5)
    before = [count() for count in counts]
    for _ in range(20):
        use()

    def as_before() -> bool:
        gc.collect()
        return all(count() <= allowed for count, allowed in zip(counts, before, strict=True))

    eventually(as_before)


@pytest.mark.fault(263)
def test_a_session_that_lasts_for_long() -> None:
    """A holder hears of its loss in seconds."""
    with zkconcurrent.connect("memory:long?timeout=100000") as zk:
        lock = zkconcurrent.RLock(zk, "/lock")
        assert lock.acquire()
        zk.delete(f"/lock/{zk.get_children('/lock')[0]}")
        eventually(lock.lost.is_set)
        with pytest.raises(LockLostError):
            lock.release()


def test_a_forked_child(threads: Namespace) -> None:
    """It has a service of its own: an inherited namespace begins anew; the parent's objects raise ClientError."""
    lock, held = threads.RLock("lock"), threads.RLock("held")

    def use() -> None:
        with pytest.raises(ClientError):
            lock.acquire(timeout=1)
        assert threads.RLock("held").acquire(timeout=10)
        assert zkconcurrent.namespace("local").RLock("lock").acquire(timeout=10)

    with lock, held:
        in_forked_child(use)
        in_forked_child(lambda: in_forked_child(use))
        assert lock.owner() is not None
    assert lock.acquire(blocking=False)
    lock.release()


BEGIN = "import os, sys, threading, zkconcurrent\nspace = zkconcurrent.namespace('local')\nlock = space.Lock('lock')\n"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("lock.acquire(); os._exit(4)", 4),
        ("lock.acquire(); threading.Thread(target=lock.acquire, daemon=True).start(); sys.exit(5)", 5),
        ("space.Queue('jobs').put(b'1'); del space, lock", 0),
    ],
)
def test_the_exit(end: str, code: int) -> None:
    """It is clean, with locks held and threads that wait; the exit code is the program's."""
    assert run(BEGIN + end) == (code, "", "")


def test_a_process_that_is_stopped(threads: Namespace) -> None:
    """A hold outlasts a stop of the process, however long: its session would end after days."""
    with threads.RLock("lock"):
        (mine,) = (each for each in inspect().clients if each.session == threads.client.client_id[0])
        assert mine.timeout > 86_400
