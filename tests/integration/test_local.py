"""`namespace("local")`: the service of one process, from its first use through forks to the exit."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import zkconcurrent
from tests.conftest import InThread
from tests.helpers.eventually import eventually
from zkconcurrent import ClientError, LockLostError, Namespace, aio, inspect
from zkconcurrent._memory import process

ROUNDS = 50


@pytest.fixture
def threads() -> Namespace:
    """A namespace."""
    return zkconcurrent.namespace("local", "/app")


def run(program: str) -> tuple[int, str, str]:
    """Run a program in a process of its own; return its exit code and what it printed."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


# -- what a namespace has ----------------------------------------------------------------------------------------------


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


@pytest.mark.fault(148)
def test_rounds_of_threads(threads: Namespace, in_thread: InThread) -> None:
    """Parties enter and leave together, also if one comes back before another is awake."""
    barrier, count = threads.DoubleBarrier("round", 2), [0, 0]

    def take_part(me: int) -> None:
        for n in range(ROUNDS):
            with barrier as inside:
                assert inside
                count[me] += 1
                assert n <= count[1 - me] <= n + 1

    for each in [in_thread(take_part, me) for me in (0, 1)]:
        each.result(60)
    assert count == [ROUNDS, ROUNDS]


# -- its users ---------------------------------------------------------------------------------------------------------


def test_a_condition_of_two_namespaces(threads: Namespace) -> None:
    """Its lock may be of another local namespace, as all are of one client."""
    lock = zkconcurrent.namespace("local").RLock("lock")
    condition = threads.Condition("condition", lock)
    with condition:
        assert lock._is_owned()
        assert not condition.wait(0.01)


def test_what_stays_of_a_namespace() -> None:
    """A claim, a member, a term and an event keep the nodes that they need, though nothing else of theirs is left."""
    kept = [use(zkconcurrent.namespace("local")) for use in (claim, join, lead, set_event)]
    with kept[0][1], kept[1][1], kept[2][1]:
        gc.collect()
        # Two turns of the service.
        time.sleep(0.5)
        assert [nodes(root) > 1 for root, _ in kept] == [True] * 4
        assert kept[3][1].is_set()
    roots = [root for root, _ in kept]
    kept.clear()
    eventually(lambda: gc.collect() >= 0 and not any(map(nodes, roots)))


def claim(space: Namespace) -> tuple[str, Any]:
    """Return a namespace's root, and a block that has an item of a queue of it."""
    jobs = space.Queue("jobs")
    jobs.put(b"job")
    return space.path, jobs.claim()


def join(space: Namespace) -> tuple[str, Any]:
    """Return a namespace's root, and a block that is a member of a group of it."""
    return space.path, space.Group("workers").join(b"")


def lead(space: Namespace) -> tuple[str, Any]:
    """Return a namespace's root, and a block that leads."""
    return space.path, space.Election("leader").lead()


def set_event(space: Namespace) -> tuple[str, Any]:
    """Return a namespace's root, and an event of it that is set; its queue has an item."""
    space.Queue("jobs").put(b"1")
    event = space.Event("event")
    event.set()
    return space.path, event


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


def test_loops_one_after_the_other() -> None:
    """One object of a namespace is used by two loops, and by a loop within a thread of another."""
    tasks = aio.namespace("local")
    lock, event = tasks.RLock("lock"), tasks.Event("event")

    async def nested() -> None:
        async with lock:
            inner = asyncio.create_task(asyncio.to_thread(asyncio.run, other()))
            await asyncio.sleep(0.05)
        assert await inner

    async def other() -> bool:
        async with lock:
            return await event.fetch()

    async def first() -> None:
        async with lock:
            await event.set()

    asyncio.run(first())
    asyncio.run(nested())


def test_greenlets() -> None:
    """Where all is patched, greenlets take the place of threads, and exclude each other."""
    program = (
        "from gevent import monkey; monkey.patch_all()\n"
        "import time, gevent, zkconcurrent\n"
        "space = zkconcurrent.namespace('local')\n"
        "inside, most = [], []\n"
        "def use():\n"
        "    for _ in range(5):\n"
        "        with space.RLock('lock'):\n"
        "            inside.append(1); most.append(len(inside)); time.sleep(0.001); inside.pop()\n"
        "gevent.joinall([gevent.spawn(use) for _ in range(5)], timeout=30, raise_error=True)\n"
        "print(len(most), max(most))\n"
    )
    assert run(program) == (0, "25 1\n", "")


# -- what is dropped ---------------------------------------------------------------------------------------------------


def nodes(path: str) -> int:
    """Return how many nodes of this process's service lie at or below a path."""
    return sum(each == path or each.startswith(f"{path}/") for each in list(process.local()._service.tree.nodes))


HELD: list[Callable[[Namespace], Any]] = [
    lambda threads: threads.Lock("lock"),
    lambda threads: threads.RLock("lock"),
    lambda threads: threads.ReadWriteLock("lock").read_lock,
    lambda threads: threads.ReadWriteLock("lock").write_lock,
    lambda threads: threads.MultiLock(["lock"]),
    lambda threads: threads.Condition("lock"),
]


@pytest.mark.fault(75)
@pytest.mark.parametrize("make", HELD)
def test_what_is_dropped_while_held(make: Callable[[Namespace], Any], threads: Namespace) -> None:
    """A lock that is dropped while it is held is a ResourceWarning, and the next of its name is free."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert make(threads).acquire()
        gc.collect()
        again = make(threads)
        assert again.acquire(timeout=10)
    again.release()
    assert [each.category for each in told] == [ResourceWarning]


def test_many_that_are_dropped() -> None:
    """Namespaces that come and go leave no node, watch, thread or place in the client's directory."""

    def use() -> None:
        space = zkconcurrent.namespace("local")
        with space.RLock("lock"), space.Semaphore("api", 2):
            space.Event("event").set()
        space.Event("never").wait(0)
        space.Queue("jobs").put(b"1")
        space.AtomicLong("number").add()
        space.Dict("config")["key"] = b"value"

    use()
    session = zkconcurrent.namespace("local").client._zkconcurrent_session
    watches = process.local()._service.watches
    counts: list[Callable[[], int]] = [
        lambda: nodes(""),
        lambda: watches.data.size + watches.children.size,
        threading.active_count,
        lambda: len(session.directory),
        lambda: len(session.directory._interior),
        lambda: len(session.directory._kept),
    ]
    gc.collect()
    time.sleep(0.5)
    before = [count() for count in counts]
    for _ in range(50):
        use()

    def as_before() -> bool:
        gc.collect()
        return all(count() <= allowed for count, allowed in zip(counts, before, strict=True))

    eventually(as_before)


@pytest.mark.fault(263)
def test_a_session_that_lasts_for_long() -> None:
    """The client removes its unused watches, and a holder hears of its loss, in seconds."""
    with zkconcurrent.connect("memory:long?timeout=100000") as zk:
        zkconcurrent.Event(zk, "/event").wait(0.01)
        server, _ = process._servers["long"]
        eventually(lambda: server._service.watches.data.size == 0)
        lock = zkconcurrent.RLock(zk, "/lock")
        assert lock.acquire()
        zk.delete(f"/lock/{zk.get_children('/lock')[0]}")
        eventually(lock.lost.is_set)
        with pytest.raises(LockLostError):
            lock.release()


# -- the garbage collector ---------------------------------------------------------------------------------------------

# A finalizer that runs on the service's thread, and on the keeper's, does each of these.
COLLECTED = """
import asyncio, faulthandler, gc, threading
import zkconcurrent as z
from zkconcurrent import aio
from zkconcurrent._engine.session import Session
from zkconcurrent._memory import process

faulthandler.dump_traceback_later(30, exit=True)
gc.disable()
names, tasks = {names}
lock, event, queue = names.RLock("lock"), names.Event("event"), names.Queue("queue")
held = names.Lock("held")
held.acquire()
todo = [
    lambda: lock.acquire(blocking=False), lock.acquire, event.set, lambda: queue.put(b""), held.locked,
    lambda: asyncio.run(use(tasks.RLock("lock"))), {connect}
]
told, done = [], []


async def use(lock):
    async with lock:
        pass


class Garbage:
    def __init__(self):
        self.itself = self

    def __del__(self):
        for do in todo:
            try:
                do()
            except z.ClientError as error:
                told.append(str(error))
        held.release()
        done.append(threading.current_thread().name)


def collect(owner, name):
    work = getattr(owner, name)

    def work_and_collect():
        setattr(owner, name, work)
        if not done:
            Garbage()
            gc.collect()
        return work()

    setattr(owner, name, work_and_collect)


if {service}:
    for server, _ in process._servers.values():
        collect(server._service, "run_chores")
else:
    collect(Session.of(names.client).long_waits, "look")
while not done:
    with names.RLock("other"):
        pass
with lock, held:
    print(len(told), all("finalizer" in each for each in told), done)
"""
PLACES = {
    "local": 'z.namespace("local"), aio.namespace("local")',
    "memory:": '[m.namespace(client) for client in [z.connect("memory:")] for m in (z, aio)]',
}


@pytest.mark.fault(270)
@pytest.mark.parametrize(("where", "service"), [("local", True), ("memory:", False)])
def test_finalizers_on_the_librarys_threads(where: str, service: bool) -> None:
    """A finalizer that runs on the service's thread, or on the keeper's, is refused what would wait."""
    connect = 'lambda: z.connect("memory:")' if service else ""
    program = COLLECTED.format(names=PLACES[where], service=service, connect=connect)
    code, out, errors = run(program)
    assert (code, out.split(" ")[:2], errors) == (0, ["7" if service else "6", "True"], "")


# -- forks and the exit ------------------------------------------------------------------------------------------------


def use_in_child(threads: Namespace, lock: zkconcurrent.RLock) -> int:
    """Return 0 if a forked child finds all as it should be."""
    try:
        lock.acquire(timeout=1)
    except ClientError:
        pass
    else:
        return 1
    if not threads.RLock("held").acquire(timeout=10):
        return 2
    return 0 if zkconcurrent.namespace("local").RLock("lock").acquire(timeout=10) else 3


def forked(act: Callable[[], int]) -> int:
    """Return what a function returns in a forked child."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = act()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child(threads: Namespace) -> None:
    """It has a service of its own: an inherited namespace begins anew; the parent's objects raise ClientError."""
    lock, held = threads.RLock("lock"), threads.RLock("held")
    with lock, held:
        assert forked(lambda: use_in_child(threads, lock)) == 0
        assert forked(lambda: forked(lambda: use_in_child(threads, lock))) == 0
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


def test_an_interrupt_as_the_first_begins() -> None:
    """Wherever a signal strikes the first call of a process, the next one has a service that works.

    kazoo may log that the connection of the struck client, which is stopped in the middle of a send, has dropped.
    """
    program = (
        "import logging\n"
        "from contextlib import suppress\n"
        "logging.getLogger('kazoo').setLevel(logging.ERROR)\n"
        "import zkconcurrent\n"
        "from tests.helpers.interrupts import at_every_line\n"
        "from zkconcurrent._client import connect as _connect\n"
        "from zkconcurrent._memory import process\n"
        "lines = 0\n"
        "for hook in at_every_line('/_client/connect.py', '/_memory/process.py', '/_memory/tcp.py', '/namespace.py'):\n"
        "    for each in _connect._by_name.values(): each.stop(); each.close()\n"
        "    for each, _ in process._servers.values(): each.stop()\n"
        "    _connect._by_name.clear(); process._servers.clear()\n"
        "    with suppress(KeyboardInterrupt), hook: zkconcurrent.namespace('local')\n"
        "    with zkconcurrent.namespace('local').RLock('lock').hold(20): lines += 1\n"
        "print(lines > 50)\n"
    )
    assert run(program) == (0, "True\n", "")


def test_a_process_that_is_stopped(threads: Namespace) -> None:
    """A hold outlasts a stop of the process, however long: its session would end after days."""
    with threads.RLock("lock"):
        (mine,) = (each for each in inspect().clients if each.session == threads.client.client_id[0])
        assert mine.timeout > 86_400


def test_no_service_is_begun_in_vain() -> None:
    """A program that makes no local namespace begins no service, nor does a bad path or client."""
    program = (
        "import threading, zkconcurrent\n"
        "from kazoo.client import KazooClient\n"
        "for client, path in (('local', 'app'), ('local', '/a/../b'), ('LOCAL', '/'), ('local', 7)):\n"
        "    try: zkconcurrent.namespace(client, path)\n"
        "    except (ValueError, TypeError) as error: print(type(error).__name__)\n"
        "print(threading.active_count())\n"
        "zkconcurrent.namespace(KazooClient()).Lock('lock')\n"
        "print([each.name for each in threading.enumerate() if 'memory' in each.name])\n"
    )
    assert run(program) == (0, "ValueError\nValueError\nValueError\nTypeError\n1\n[]\n", "")
