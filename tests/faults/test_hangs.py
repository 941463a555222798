"""Nothing hangs, with any action of the program at any moment, on any thread, and with any behaviour of ZooKeeper.

Faults 47, 48, 49, 54, 157, 178 and 278. A test that could hang its whole process runs in a process of its own, which a
watchdog ends with all stacks; see `tests.faults.storm`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import FAST, Connect, InThread
from tests.every_primitive.test_waits import Scene
from tests.helpers.contenders import queued
from tests.helpers.eventually import PATIENCE, eventually
from tests.helpers.kinds import KINDS
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    Dict,
    Election,
    Group,
    Lock,
    MultiLock,
    RLock,
    aio,
)
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

pytestmark = pytest.mark.long

BOUND = 500.0  # a job that stands still is ended long before, by its own watchdog
SESSION = 10.0
sources = pytest.mark.parametrize("source", ["timer", "sibling"])


def command(hosts: str, path: str, job: str, *arguments: str) -> list[str]:
    """Return how a job is started."""
    options = ["-u", "-X", "faulthandler", "-W", "ignore::DeprecationWarning", "-W", "ignore::ResourceWarning"]
    return [sys.executable, *options, "-m", "tests.faults.storm", hosts, path, job, *arguments]


def outcome(server: Server, path: str, job: str, *arguments: str) -> dict[str, Any]:
    """Run a job to its end; return what it counted, if nothing was wrong."""
    process = subprocess.Popen(
        command(server.hosts, path, job, *arguments),
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = shortened(process.communicate(timeout=BOUND)[0])
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # its stacks
        said = shortened(process.communicate()[0])
        pytest.fail(f"{job} does not end:\n{said[-8000:]}")
    assert process.returncode == 0, f"{job} ended with {process.returncode}:\n{said[-8000:]}"
    result: dict[str, Any] = json.loads(next(line for line in reversed(said.splitlines()) if line.startswith("{")))
    assert not result["wrong"], "\n".join([*result["wrong"], said[-3000:]])
    return result


def shortened(said: str) -> str:
    """Leave out all but the last word of progress."""
    return re.sub(r"(?:^(?:signal|progress) .*\n)+(?=^(?:signal|progress))", "", said, flags=re.MULTILINE)


# -- signal handlers -------------------------------------------------------------------------------------------------


@pytest.mark.fault(47)
@sources
def test_a_handler_stops_the_client(source: str, zookeeper: Server, zk_path: str) -> None:
    """The main thread is told, stop() returns, and the locks are free for another client."""
    assert outcome(zookeeper, zk_path, "stop", source)["signals"] > 20


@pytest.mark.fault(47)
@pytest.mark.parametrize(
    ("what", "source"),
    [("release", "timer"), ("acquire", "sibling"), ("make", "timer"), ("same", "timer"), ("same", "sibling")],
)
def test_a_handler_uses_locks(what: str, source: str, zookeeper: Server, zk_path: str) -> None:
    """A handler releases what the program holds elsewhere, acquires another path, makes objects, or acquires the same.

    It acquires what it has interrupted, or is told at once that it would wait for its own frame.
    """
    result = outcome(zookeeper, zk_path, "storm", what, source)
    assert result["signals"] >= 150
    assert what != "same" or {"got", "refused"} <= result["outcomes"].keys()


@pytest.mark.fault(47)
@pytest.mark.parametrize("what", ["release", "acquire", "try", "make", "same", "queues"])
def test_at_every_line(what: str, zookeeper: Server, zk_path: str) -> None:
    """A handler, or a finalizer, that runs at any line of any operation uses or makes locks and queues."""
    result = outcome(zookeeper, zk_path, "sweep", what)
    assert result["injected"] > 150
    if what == "same":
        assert result["outcomes"]["got"]
        assert result["outcomes"]["refused"]


@pytest.mark.fault(47)
def test_stopped_at_any_line(zookeeper: Server, zk_path: str) -> None:
    """A handler stops the client at any line of any operation, while a lock is held."""
    assert outcome(zookeeper, zk_path, "sweep_stop")["injected"] > 10


@pytest.mark.fault(47)
@pytest.mark.parametrize(("size", "source"), [("0", "sibling"), ("3", "timer")])
def test_a_handler_uses_the_queue_that_it_interrupted(source: str, size: str, zookeeper: Server, zk_path: str) -> None:
    """It puts, gets and claims, or is told at once that it would wait for its own frame."""
    result = outcome(zookeeper, zk_path, "same_queue", source, size)
    assert result["signals"] >= 150
    assert {"_put", "_get", "_claim"} <= result["outcomes"].keys()  # whether a signal meets a wait is chance


@pytest.mark.fault(47)
@pytest.mark.parametrize("size", ["0", "3"])
def test_at_any_line_of_a_queue(size: str, zookeeper: Server, zk_path: str) -> None:
    """A handler that runs at any line of any call of a queue puts, gets and claims there."""
    result = outcome(zookeeper, zk_path, "sweep_queue", size)
    assert result["injected"] > 150
    assert {"_put", "_get", "_claim"} <= result["outcomes"].keys()
    if size != "0":  # a full queue; an item to take, the other client may always have put in time
        assert result["outcomes"]["refused"]


# -- the garbage collector -------------------------------------------------------------------------------------------


@pytest.mark.fault(47)
@pytest.mark.parametrize("what", ["release", "try", "make"])
def test_finalizers_use_locks(what: str, zookeeper: Server, zk_path: str) -> None:
    """A finalizer or a weak reference's callback releases, tries or makes locks, on any thread."""
    result = outcome(zookeeper, zk_path, "collect", what)
    assert result["cycles"] == 200
    assert result["outcomes"].get({"release": "released", "try": "got", "make": "made"}[what])


# -- watch callbacks -------------------------------------------------------------------------------------------------


@contextmanager
def deaf(proxy: Proxy, client: KazooClient, path: str) -> Iterator[None]:
    """Cut the client off within the block, at whose end it is back; a watch callback of the user's has blocked since.

    Others ask what is asked of the server meanwhile.
    """
    entered, suspended = threading.Event(), threading.Event()
    client.add_listener(lambda state: suspended.set() if state == "SUSPENDED" else None)

    def block(_event: object) -> None:
        entered.set()
        unblock.wait(120)

    client.ensure_path(path)
    client.get(path, watch=block)
    client.set(path, b"it changes")
    assert entered.wait(20)
    proxy.refuse()
    proxy.cut()
    assert suspended.wait(20)
    yield
    proxy.resume()


unblock = threading.Event()


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    """Let what a test blocked go on, before its clients are stopped."""
    unblock.clear()
    yield
    unblock.set()


@pytest.mark.fault(7, 8, 48)
@pytest.mark.parametrize("kind", [kind for kind, row in KINDS.items() if row.ends])
def test_a_watch_callback_that_blocks(
    kind: str, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """What ends the wait of a client that was cut off reaches it, even if kazoo's callbacks are blocked."""
    mine = connect(proxy.hosts, timeout=60)
    scene = Scene(zkconcurrent, kind, mine, connect(timeout=60), zk_path, in_thread)
    try:
        with deaf(proxy, mine, f"{zk_path}-watched"):
            # This thread has acquired what is released. A barrier trips only once all are back.
            in_thread(scene.end) if kind == "Barrier" else scene.end()
        assert scene.result.result(PATIENCE) is True
    finally:
        unblock.set()
        if not scene.result.done():
            proxy.cut()  # it looks again, so that its thread ends


# -- log handlers ----------------------------------------------------------------------------------------------------


@pytest.mark.fault(48)
def test_a_log_handler_formats_objects(zookeeper: Server, zk_path: str) -> None:
    """Of every kind, with each record of ours and kazoo's, while connections are cut and sessions expire."""
    result = outcome(zookeeper, zk_path, "formatted")
    assert result["cycles"] > 10
    assert result["records"] > 1000


@pytest.mark.fault(48)
def test_a_log_handler_that_blocks(zookeeper: Server, zk_path: str) -> None:
    """Only the thread that logs stands still."""
    assert outcome(zookeeper, zk_path, "blocked")["rounds"] >= 3


# -- credentials -----------------------------------------------------------------------------------------------------


@pytest.mark.fault(49)
@pytest.mark.parametrize("how", ["one by one", "many at once"])
def test_credentials_added_under_traffic(how: str, zookeeper: Server, zk_path: str) -> None:
    """Every answer is its own request's, and the connection is kept."""
    result = outcome(zookeeper, zk_path, "add_auth", how)
    assert result["added"] > 100
    assert result["cycles"] > 40


@pytest.mark.fault(49)
def test_credentials_refused_under_traffic(zookeeper: Server, zk_path: str) -> None:
    """Kazoo gives the client up, and every call says so, the one that was answered next included."""
    assert sum(outcome(zookeeper, zk_path, "refused_auth")["told"].values()) == 48


# -- interrupts ------------------------------------------------------------------------------------------------------


@pytest.mark.fault(16, 56)
@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_a_wait_interrupted_while_no_server_answers(how: str, zk_path: str) -> None:
    """Ctrl-C ends the wait; its hold is lost, and nothing of the waiter is left once the server is back."""
    with Server() as server:
        process = subprocess.Popen(
            command(server.hosts, zk_path, "interrupted"),
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "waiting\n"
            with server.client() as other:
                eventually(queued(other, f"{zk_path}/waiters", 1))
                eventually(queued(other, f"{zk_path}/lock", 0))
            server.freeze() if how == "frozen" else server.kill()
            process.send_signal(signal.SIGINT)
            words = [process.stdout.readline(), process.stdout.readline()]  # or its watchdog ends it
            assert words == ["interrupted\n", "lost\n"]
            server.thaw() if how == "frozen" else server.start()
            with server.client() as other:
                eventually(queued(other, f"{zk_path}/waiters", 0), patience=30)
                eventually(queued(other, f"{zk_path}/lock", 0), patience=30)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "held again\n"
            assert process.stdout.readline() == "stopped\n"
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


# -- no more threads -------------------------------------------------------------------------------------------------


@pytest.mark.fault(54)
@pytest.mark.parametrize("how", ["kazoo's", "ours", "on kazoo's thread"])
def test_no_thread_can_be_started(how: str, zookeeper: Server, zk_path: str) -> None:
    """Many requests on a connection that is down are all answered, and kazoo's thread goes on."""
    assert outcome(zookeeper, zk_path, "no_threads", how)["answers"] == 1000


@pytest.mark.fault(48)
def test_a_release_on_top_of_a_suspended_caller(
    connect: Connect, zookeeper: Server, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper can't repeat a lost delete while an interrupted frame has its lock: the waiter does so."""
    with Proxy(zookeeper.hosts) as proxy:
        lock = Lock(connect(hosts=proxy.hosts, timeout=30), zk_path)
        lock.acquire()
        session = lock._session
        # The connection is back before the waiter looks.
        monkeypatch.setattr(type(session.link), "connected", property(lambda link: link.client.connected or True))
        # As the frame has the lock that a signal handler has interrupted.
        with proxy.counting() as count, proxy.lose_answer("delete"), session.lock:
            lock.release()
            assert count.requests["delete"] > 1
        assert not lock.locked()


@pytest.mark.fault(178)
@pytest.mark.parametrize("several", [False, True])
def test_a_handler_waits_for_another_thread(several: bool, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """That thread gets the session's lock, which the frame has that the handler has interrupted."""
    paths = [f"{zk_path}/{n}" for n in range(2 if several else 1)]
    clients = [connect() for _ in paths]
    lock = MultiLock([Lock(client, path) for client, path in zip(clients, paths, strict=True)])
    acquired, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            acquired.set()
            over.wait(20)

    def handle() -> None:
        with Session.of(clients[0]).lock:
            over.set()
            with (lock if several else lock.locks[0]).hold(timeout=20):
                assert Session.of(clients[0]).has_lock()

    holding = in_thread(hold)
    assert acquired.wait(20)
    in_thread(handle).result(30)
    holding.result(20)
    assert not Session.of(clients[0]).has_lock()


@pytest.mark.fault(178)
def test_a_handler_waits_for_a_thread_of_the_library(connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The threads of a membership, a candidacy and the copy of a map go on beside the interrupted frame."""
    client = connect()
    election = Election(client, f"{zk_path}/election")

    def handle() -> None:
        with Session.of(client).lock:
            with Group(client, f"{zk_path}/group").join(b""):
                assert not Dict[bytes](client, f"{zk_path}/map")
            election.stand()
            assert election.wait() is not None
            election.withdraw()
            assert election.leader() is None

    in_thread(handle).result(30)


@pytest.mark.fault(157)
def test_a_reconnect_while_a_delete_is_noted(
    connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str, monkeypatch: Any
) -> None:
    """A delete that was sent on the connection before is sent again at once, not a session timeout later."""
    client = connect(hosts=proxy.hosts, timeout=2 * PATIENCE, **FAST)
    lock = Lock(client, zk_path)
    lock.acquire()
    session = Session.of(client)
    delete, began, begun = session.link.delete, session.listener._began, list[Any]()
    monkeypatch.setattr(session.listener, "_began", lambda lease: begun.append(began(lease)))

    def lost(_path: str, _reply: Any) -> None:
        """Lose the request; then a signal handler of this thread, as it waits for another lock, sees the reconnect."""
        monkeypatch.setattr(session.link, "delete", delete)
        proxy.cut()
        eventually(lambda: session.run_posted() or begun)

    monkeypatch.setattr(session.link, "delete", lost)
    lock.release()
    eventually(queued(zk, zk_path, 0))


# -- a crowd ---------------------------------------------------------------------------------------------------------


def test_a_crowd_lets_the_keeper_work(
    connect: Connect, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper that misses the lock on a busy machine wakes none of the threads that wait, nor does a post.

    None of them could do its work: each would only keep others from the lock.
    """
    crowd, counts = 50, dict.fromkeys(("stood in", "awake", "posted"), 0)
    holder, client = connect(), connect()
    session = Session.of(client)
    held = [Lock(holder, f"{zk_path}/{n}") for n in range(crowd)]
    for lock in held:
        lock.acquire()

    def take(n: int) -> None:
        with RLock(client, f"{zk_path}/{n}"):
            pass

    waiting = [in_thread(take, n) for n in range(crowd)]
    eventually(lambda: [t.watched is not False for t in [*session.registry.tickets.values()]] == [True] * crowd)
    # A reply wakes the thread that asked. One to a later request comes when all have done so.
    client.exists(zk_path)

    def count_one(what: str) -> None:
        counts[what] += 1

    def count(owner: Any, name: str, what: str) -> None:
        method = getattr(owner, name)

        def counted() -> None:
            count_one(what)
            method()

        monkeypatch.setattr(owner, name, counted)

    count(session.keeper, "stand_in", "stood in")
    for call in session.calls:
        count(call, "wake", "awake")
    for _ in range(3):
        with session.lock:
            session.wake_keeper()
            eventually(lambda: session.keeper.stuck)
            # An event that kazoo's thread can only post.
            in_thread(session.post, partial(count_one, "posted")).result(10)
        eventually(lambda: not session.keeper.stuck)
    eventually(lambda: counts["posted"] == 3)
    assert (counts["stood in"], counts["awake"]) == (0, 0)
    for lock in held:
        lock.release()
    for each in waiting:
        each.result(60)


def test_a_loop_on_top_of_a_suspended_frame_stands_in(
    connect: Connect, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler's event loop keeps the lock of the frame below, so its call does the keeper's work."""
    client, holder, stood_in = connect(timeout=4), Lock(connect(), zk_path), list[int]()
    session = Session.of(client)
    stand_in = session.keeper.stand_in
    monkeypatch.setattr(session.keeper, "stand_in", lambda: (stood_in.append(session.identity()), stand_in()))
    mine = RLock(client, f"{zk_path}-mine")
    holder.acquire()

    async def take() -> None:
        async with aio.Lock(client, zk_path):
            pass

    def handle() -> int:
        with session.lock:
            asyncio.run(take())
        return session.identity()

    mine.acquire()
    lost = mine.lost
    handling = in_thread(handle)
    eventually(lambda: len(stood_in) > 60)  # for longer than the session timeout
    assert not lost.is_set()
    holder.release()
    assert set(stood_in) == {handling.result(30)}
    mine.release()


@pytest.mark.fault(265)
@pytest.mark.parametrize("does", ["blocks", "raises"])
def test_a_log_handler_keeps_the_keeper_from_nothing(
    connect: Connect, zk_path: str, in_thread: InThread, does: str
) -> None:
    """The holds of its client are renewed all the same, and what is posted is done."""
    session, log = Session.of(client := connect(timeout=4)), logging.getLogger("zkconcurrent")
    told, posted, go_on = threading.Event(), threading.Event(), threading.Event()

    def harm(record: logging.LogRecord) -> bool:
        if "hold_limit" in record.getMessage():
            told.set()
            if does == "raises":
                raise OSError
            go_on.wait(30)
        return True

    log.addFilter(harm)
    try:
        with Lock(client, f"{zk_path}-limited", hold_limit=0.01), Lock(client, zk_path) as lock:
            assert told.wait(10)
            until = session.registry.lease.end
            with session.lock:
                in_thread(session.post, posted.set).result(10)
            assert posted.wait(10)
            # A lease lasts less.
            eventually(lambda: session.registry.lease.end > until + 2)
            assert lock
    finally:
        go_on.set()
        log.removeFilter(harm)
    eventually(lambda: not session.unlogged)
