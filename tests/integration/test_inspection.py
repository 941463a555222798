"""What `inspect()` tells of this process: its holds and waits, in all clients, whatever state they are in."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.processes import in_forked_child, line_from, python
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    ClientReport,
    Condition,
    DetachedLock,
    DoubleBarrier,
    Election,
    Event,
    Group,
    HoldReport,
    Lock,
    LockLostError,
    LossCause,
    Queue,
    ReadWriteLock,
    RLock,
    Semaphore,
    WaitReport,
    aio,
    dump_on_signal,
    inspect,
)
from zkconcurrent.testing import Server


def holds(path: str) -> list[HoldReport]:
    """Return what is held at a path, or below."""
    return [hold for hold in inspect().holds if hold.path.startswith(path)]


def waits(path: str) -> list[WaitReport]:
    """Return what waits at a path, or below, for a node that it knows."""
    return [wait for wait in inspect().waits if wait.path.startswith(path) and wait.awaits]


def client_of(client: KazooClient) -> ClientReport:
    """Return what is told of a client, which is connected."""
    return next(each for each in inspect().clients if each.session == client.client_id[0])


def test_holds(zk: KazooClient, zk_path: str) -> None:
    """Each hold has its path, class, mode, token, levels and owner; the text has all of it."""
    lock, both, permits = RLock(zk, f"{zk_path}/1"), ReadWriteLock(zk, f"{zk_path}/2"), Semaphore(zk, f"{zk_path}/3", 3)
    with lock, lock, both.write_lock, both.read_lock, permits, permits, Election(zk, f"{zk_path}/4").lead():
        found = holds(zk_path)
        told = [(hold.path[len(zk_path) :], hold.kind, hold.mode, hold.depth, hold.cause) for hold in found]
        assert told == [
            ("/1", "RLock", "", 2, None),
            ("/2", "ReadWriteLock", "write", 1, None),
            ("/2", "ReadWriteLock", "read", 1, None),
            ("/3", "Semaphore", "permit", 1, None),
            ("/3", "Semaphore", "permit", 1, None),
            ("/4", "Election", "", 1, None),
        ]
        assert found[0].token == lock.fencing_token
        owner = lock.owner()
        assert owner is not None
        assert {hold.owner and hold.owner.by for hold in found} == {owner.by}
        assert abs((found[0].since - owner.queued).total_seconds()) < 60
        thread = threading.current_thread().name
        pattern = (
            rf"  holds {zk_path}/1 \(RLock\), token {owner.token}, since \d+-\d+-\d+ \d+:\d+:\d+ UTC \(\d+\.\d s\), "
            rf"2 levels: thread '{thread}', at test_holds \(test_inspection.py:"
        )
        text = str(inspect())
        assert re.search(pattern, text), text
        assert f"process {os.getpid()}" in text
    assert not holds(zk_path)


@pytest.mark.parametrize("kind", ["claim", "party", "member", "detached"])
def test_what_else_is_kept(kind: str, zk: KazooClient, zk_path: str) -> None:
    """The claim of an item, a party inside a double barrier, a membership, and a hold that outlives the process."""
    began = inspect().at
    if kind == "claim":
        queue = Queue(zk, zk_path)
        queue.put(b"item")
        block: Any = queue.claim()
    elif kind == "party":
        block = DoubleBarrier(zk, zk_path, 1)
    else:
        block = Group(zk, zk_path).join(b"") if kind == "member" else DetachedLock(zk, zk_path, "job")
    with block:
        (hold,) = holds(zk_path)
        assert (hold.path, hold.mode) == (zk_path, "" if kind == "detached" else kind)
        assert hold.kind == type(block).__name__.replace("Claim", "Queue").replace("Membership", "Group")
        assert hold.token > 0
        assert began <= hold.since <= inspect().at
        assert (hold.owner is None) == (kind == "member")
        assert hold.owner is None or hold.owner.name == f"thread {threading.current_thread().name!r}"
        assert not [wait for wait in inspect().waits if wait.path.startswith(zk_path)]
    assert not holds(zk_path)


def test_the_client(zk: KazooClient, zk_path: str) -> None:
    """A client has its servers and chroot, state, session and lease."""
    with Lock(zk, zk_path):
        report = client_of(zk)
        assert (report.state, report.timeout) == ("connected", zk._session_timeout / 1000)
        assert report.hosts == f"{','.join(f'{host}:{port}' for host, port in zk.hosts)}{zk.chroot}"
        assert report.lease is not None
        assert 0 < report.lease < report.timeout
        session = f"session {zk.client_id[0] & (1 << 64) - 1:#x} of {report.timeout:g} s"
        assert f"connected, {session}, lease ends in " in str(inspect())
    assert "lease" not in str(client_of(zk)), "nothing renews the lease of a client that holds nothing"


def test_waits(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A wait tells for how long it lasts and may last, which node it awaits, and that node's owner in this process."""
    lock, other = RLock(zk, zk_path), connect()
    with lock:
        waits_for = RLock(other, zk_path)
        waiting = in_thread(lambda: waits_for.acquire(timeout=20) and waits_for.release())
        eventually(lambda: waits(zk_path))
        (wait,) = waits(zk_path)
        assert (wait.path, wait.kind, wait.mode) == (zk_path, "RLock", "")
        assert wait.timeout == pytest.approx(20, abs=10)
        assert 0 <= wait.waited < 20
        assert wait.awaits == (lock._lock_core.newest().ticket.node,)  # type: ignore[union-attr]
        assert wait.owner.by == lock.waiters()[0].by
        (hold,) = holds(zk_path)
        assert wait.holder is not None
        assert hold.owner is not None
        assert wait.holder.by == hold.owner.by
        assert f"; awaits {wait.awaits[0]}, held in this process by thread" in str(inspect())
        assert [each.awaits for each in client_of(other).waits] == [wait.awaits]
    waiting.result(20)


def test_all_that_waits(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Not only for locks: for an event, an item, a notification; each with its time, and forever without."""
    event, queue, condition = Event(zk, f"{zk_path}/1"), Queue(zk, f"{zk_path}/2"), Condition(zk, f"{zk_path}/3")

    def wait() -> None:
        with condition:
            condition.wait()

    waiting = [in_thread(event.wait), in_thread(queue.get, timeout=20), in_thread(wait)]
    eventually(lambda: len({found.path for found in waits(zk_path)}) == 3)
    told = {found.path[-1]: (found.kind, found.timeout) for found in waits(zk_path)}
    assert told["1"] == ("Event", None)
    assert told["2"] == ("Queue", pytest.approx(20, abs=10))
    assert told["3"] == ("Condition", None)
    event.set()
    queue.put(b"item")
    with condition:
        condition.notify()
    for each in waiting:
        each.result(20)
    assert not waits(zk_path)


def test_its_turn_in_this_process(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """A thread that waits for its turn at an unfair lock has no node."""
    lock = Lock(zk, zk_path, fair=False)
    with lock:
        waiting = in_thread(lambda: lock.acquire(timeout=20) and lock.release())
        eventually(lambda: [wait for wait in inspect().waits if wait.path == zk_path])
        (wait,) = (wait for wait in inspect().waits if wait.path == zk_path)
        assert (wait.kind, wait.timeout, wait.awaits) == ("Lock(fair=False)", pytest.approx(20, abs=10), ())
    waiting.result(20)


@pytest.mark.fault(269)
@pytest.mark.parametrize("kind", [Lock, RLock])
def test_its_thread_has_ended(kind: Any, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """A hold whose thread has ended says so; that nobody will release it, if no other thread can."""
    lock = kind(zk, zk_path)
    assert in_thread(lock.acquire).result(20)
    gc.collect()
    (hold,) = holds(zk_path)
    owner = lock.owner()
    assert hold.owner is not None
    assert (hold.owner.name, hold.owner.by, hold.owner.gone) == ("", owner.by, "its thread has ended")
    text = next(line for line in str(inspect()).splitlines() if zk_path in line)
    others = "" if kind is RLock else ", unless another thread does"
    assert text.endswith(f": {owner.by}, its thread has ended: nobody will release it before this process ends{others}")
    lock._at_fork_reinit()


def test_where_a_holder_is(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """A hold tells where its thread is, so that one that hangs is told from one that works."""
    done = threading.Event()

    def settle() -> None:
        with RLock(zk, zk_path):
            done.wait()

    settling = in_thread(settle)
    where = re.compile(r"wait \(threading.py:\d+\) < wait \(threading.py:\d+\) < settle \(test_inspection.py:\d+\)")
    eventually(lambda: [hold for hold in holds(zk_path) if hold.owner and where.fullmatch(hold.owner.at)])
    assert where.search(next(line for line in str(inspect()).splitlines() if zk_path in line))
    done.set()
    settling.result(20)


def test_tasks(zk: KazooClient, zk_path: str) -> None:
    """Holds and waits of tasks have the task's name."""

    async def main() -> None:
        async with aio.Lock(zk, zk_path):
            waiting = asyncio.create_task(aio.Lock(zk, zk_path).acquire(), name="waiter")
            event = asyncio.create_task(aio.Event(zk, f"{zk_path}-event").wait(), name="listener")
            while len(waits(zk_path)) < 2:
                await asyncio.sleep(0.01)
            (hold,) = holds(zk_path)
            assert hold.owner is not None
            assert hold.owner.name == f"task {asyncio.current_task().get_name()!r}"  # type: ignore[union-attr]
            assert {wait.owner.name for wait in waits(zk_path)} == {"task 'waiter'", "task 'listener'"}
            assert re.match(r"main \(test_inspection.py:\d+\)", hold.owner.at)
            holder = next(wait for wait in waits(zk_path) if wait.path == zk_path).holder
            assert holder is not None
            assert holder.by == hold.owner.by
            for each in (waiting, event):
                each.cancel()
            await asyncio.gather(waiting, event, return_exceptions=True)

    asyncio.run(main())


@pytest.mark.fault(269)
def test_a_lost_hold(zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """A lost hold is told of, with the cause, until its thread has settled it.

    Its time stands still, its thread's place is told, and it counts as no hold.
    """
    lock = RLock(connect(timeout=6), zk_path)
    lock.acquire()
    lost = lock.lost
    zookeeper.expire(lock.client)
    assert lost.wait(20)
    (hold,) = holds(zk_path)
    assert hold.cause is LossCause.SESSION_EXPIRED
    assert holds(zk_path)[0].held_for == hold.held_for < 20
    client = next(each for each in inspect().clients if any(held.path == zk_path for held in each.holds))
    heading, line = str(client).splitlines()
    assert "lease" not in heading
    assert f"lost (session_expired): {zk_path} (RLock), token {hold.token}" in line
    assert "at test_a_lost_hold (test_inspection.py:" in line
    with pytest.raises(LockLostError):
        lock.release()
    assert not holds(zk_path)


@pytest.mark.fault(268)
def test_out_of_reach_and_stopped(connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """A client that is cut off has a lease that runs out, and calls that wait; then it is stopped."""
    client = connect(hosts=proxy.hosts, timeout=20, **FAST)
    event, session = Event(client, zk_path), client.client_id[0]

    def report() -> ClientReport:
        return next(each for each in inspect().clients if each.session == session)

    with Lock(client, f"{zk_path}-lock"):
        proxy.refuse()
        proxy.cut()
        eventually(lambda: report().state == "out of reach")
        first = report().lease
        assert first is not None
        setting = in_thread(event.set)
        eventually(lambda: (report().lease or 0) < first)
        eventually(lambda: [wait for wait in report().waits if wait.path == zk_path and not wait.awaits])
        proxy.resume()
        setting.result(20)
    client.stop()
    mine = [each for each in inspect().clients if each.hosts.startswith(proxy.hosts)]
    assert {each.state for each in mine} == {"stopped"}
    assert {(each.session, each.lease, each.holds) for each in mine} == {(None, None, ())}


@pytest.mark.fault(268)
def test_a_forked_child(zk: KazooClient, zk_path: str) -> None:
    """A forked child holds nothing; its parent's clients are not its own."""

    def look() -> None:
        found = inspect()
        assert (found.pid, found.holds) == (os.getpid(), ())
        assert {each.state for each in found.clients} == {"forked"}

    with Lock(zk, zk_path):
        in_forked_child(look)
        assert holds(zk_path)


@pytest.mark.fault(268)
def test_it_takes_no_lock_and_sends_nothing(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Another thread may stand in the middle of a step, with the session's lock."""
    lock = Lock(zk, zk_path)
    with lock:
        session = lock._session
        entered, leave = threading.Event(), threading.Event()

        def stand() -> None:
            with session.lock:
                entered.set()
                leave.wait(20)

        standing = in_thread(stand)
        assert entered.wait(20)
        sent: list[object] = []
        send = session.link.send
        session.link.send = lambda *args: sent.append(args) or send(*args)  # type: ignore[func-returns-value]
        try:
            assert holds(zk_path)
        finally:
            session.link.send = send
            leave.set()
        standing.result(20)
    assert sent == []


@pytest.mark.fault(268)
def test_at_every_line(zk: KazooClient, zk_path: str) -> None:
    """A handler that strikes at any line of an acquire and a release finds the hold once, or not at all."""
    lock = RLock(zk, zk_path)
    counts: list[int] = []
    package = str(Path(sys.modules["zkconcurrent"].__file__ or "").parent)
    running = False

    def trace(frame: Any, _event: str, _arg: object) -> Any:
        nonlocal running
        if not running and frame.f_code.co_filename.startswith(package):
            running = True
            try:
                counts.append(len(holds(zk_path)))
                str(inspect())
            finally:
                running = False
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        lock.acquire()
        lock.release()
    finally:
        sys.settrace(before)
    assert len(counts) > 100
    assert counts[0] == counts[-1] == 0
    assert set(counts) == {0, 1}


WAITS = """
import os, signal, sys, threading, zkconcurrent
zk = zkconcurrent.connect(f"zk://{sys.argv[1]}")
signal.signal(signal.SIGUSR2, lambda *_: os.write(1, b"before\\n"))
zkconcurrent.dump_on_signal(signal.SIGUSR2)
zkconcurrent.dump_on_signal(signal.SIGUSR2)
with zkconcurrent.RLock(zk, sys.argv[2] + "/held"):
    print("waits", flush=True)
    print((wanted := zkconcurrent.Lock(zk, sys.argv[2] + "/wanted")).acquire(timeout=60), flush=True)
"""


@pytest.mark.fault(268)
def test_a_signal_while_the_main_thread_waits(zk: KazooClient, zookeeper: Server, zk_path: str, tmp_path: Path) -> None:
    """The text is on stderr, once, the handler that was there before is called, and the wait goes on."""
    wanted = Lock(zk, f"{zk_path}/wanted")
    with python("-c", WAITS, zookeeper.hosts, zk_path, folder=tmp_path) as process:
        with wanted:
            assert line_from(process) == "waits"
            eventually(wanted.waiters)
            lines = [""] * 4
            # Its node is there before it has listed the queue.
            while "; awaits " not in lines[3]:
                os.kill(process.pid, signal.SIGUSR2)
                assert line_from(process) == "before"
                assert process.stderr is not None
                lines = [process.stderr.readline().rstrip() for _ in lines]
        assert line_from(process) == "True"
        _, rest = process.communicate(timeout=20)
    assert process.returncode == 0
    assert not rest
    assert lines[0].startswith(f"zkconcurrent, process {process.pid}, ")
    assert lines[0].endswith(": 1 client, 1 hold, 1 wait")
    assert f"holds {zk_path}/held (RLock), token " in lines[2]
    assert f"waits at {zk_path}/wanted (Lock), since " in lines[3]
    assert "of 60.0 s): thread 'MainThread'; awaits " in lines[3]


@pytest.mark.fault(268)
@pytest.mark.parametrize("how", ["nobody reads", "an error"])
def test_a_dump_that_can_not_be_written(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program goes on, wherever it is; an error of the library's own is told in place of the text."""
    before = signal.getsignal(signal.SIGUSR2)
    read, write = os.pipe()
    if how == "nobody reads":
        os.close(read)
    lock = Lock(KazooClient(), "/path")
    monkeypatch.setattr(lock.client, "hosts", None)
    dump_on_signal(signal.SIGUSR2, write)
    try:
        signal.raise_signal(signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
    os.close(write)
    if how == "an error":
        with open(read) as said:
            assert re.fullmatch(r"zkconcurrent: inspect\(\) failed: TypeError\(.*\)\n", said.read())
