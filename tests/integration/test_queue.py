"""Queues on a real ZooKeeper: each item is taken once, in order, and nobody takes an item that another has claimed."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.processes import in_forked_child
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    BYTES,
    JSON,
    MSGPACK,
    TEXT,
    ClientError,
    DelayQueue,
    Empty,
    ForeignNodeError,
    Full,
    LifoQueue,
    LockLostError,
    PriorityQueue,
    Queue,
    RefusedError,
    ShutDown,
    SimpleQueue,
)
from zkconcurrent._recipes import receipts
from zkconcurrent._recipes.queue import take as taking
from zkconcurrent._recipes.queue.order import frame, number
from zkconcurrent._recipes.queue.state import ClaimedItem
from zkconcurrent.testing import Server


class Alarm(Exception):
    """The error of a signal handler."""


@contextmanager
def alarm() -> Iterator[None]:
    """Have a signal handler raise an error in each `get` that has taken an item, before it returns the item."""
    with patch("zkconcurrent._threads.base.queue_base._item", side_effect=Alarm):
        yield


def names(zk: KazooClient, path: str, folder: str) -> list[str]:
    """Return the names in a folder of a queue."""
    return sorted(zk.get_children(f"{path}/{folder}")) if zk.exists(f"{path}/{folder}") else []


def test_items_come_in_order(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The first in is the first out, of any process, also past the size of a listing; nothing is sent before."""
    mine, theirs = Queue[bytes](zk, zk_path), Queue[bytes](connect(), zk_path)
    assert zk.exists(zk_path) is None
    for n in range(150):
        (mine, theirs)[n % 2].put(b"%d" % n)
    assert (mine.qsize(), mine.empty(), mine.full()) == (150, False, False)
    taken = [(mine, theirs)[n % 7 == 0].get() for n in range(100)]
    mine.put(b"150")
    taken += [(mine, theirs)[n % 3 % 2].get() for n in range(51)]
    assert taken == [b"%d" % n for n in range(151)]
    assert (theirs.qsize(), theirs.empty()) == (0, True)
    for queue in (mine, theirs):
        with pytest.raises(Empty):
            queue.get_nowait()
        with pytest.raises(Empty):
            queue.get(timeout=0.05)
    assert names(zk, zk_path, "claims") == names(zk, zk_path, "items") == []


def test_the_other_orders(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The last in is the first out; or the one with the lowest priority, and of these the first in."""
    last, other = (LifoQueue[str](each, f"{zk_path}-l", codec=TEXT) for each in (zk, connect()))
    for text in "abc":
        last.put(text)
    assert last.get() == "c"
    other.put("d")
    assert [last.get() for _ in range(3)] == ["d", "b", "a"]
    best = PriorityQueue[Any](zk, f"{zk_path}-p", codec=JSON)
    for item in (3, [2, "x"], -7, (2, "a"), 2**31 - 1, -(2**31)):
        best.put(item)
    assert [best.get() for _ in range(6)] == [-(2**31), -7, [2, "x"], [2, "a"], 3, 2**31 - 1]
    for wrong, error in (("x", TypeError), (1.5, TypeError), (2**31, OverflowError), ({"a": 1}, TypeError)):
        with pytest.raises(error):
            best.put(wrong)
    lengths = PriorityQueue[str](zk, f"{zk_path}-n", codec=TEXT, priority=len)
    for text in ("aaa", "b"):
        lengths.put(text)
    assert lengths.get() == "b"


def test_priorities_that_are_floats(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """With `floats=True` they sort as floats do, for all processes; those of ints are another queue's."""
    mine, theirs = (PriorityQueue[Any](each, zk_path, codec=JSON, floats=True) for each in (zk, connect()))
    for item in (2.5, [-0.5, "x"], 1e300, -1e-300, 0, [-0.5, "y"]):
        mine.put(item)
    assert [theirs.get() for _ in range(6)] == [[-0.5, "x"], [-0.5, "y"], -1e-300, 0, 2.5, 1e300]
    for wrong, error in (("x", TypeError), (float("nan"), ValueError), (2**53 + 1, ValueError)):
        with pytest.raises(error):
            mine.put(wrong)
    with pytest.raises(ValueError, match="as float with maxsize=0, not as priority"):
        PriorityQueue[Any](zk, zk_path, codec=JSON)
    with pytest.raises(ValueError, match="made as float"):
        PriorityQueue[Any](connect(), zk_path, codec=JSON).put(1)


@pytest.mark.fault(462)
@pytest.mark.parametrize(
    ("codec", "item"),
    [(BYTES, b""), (TEXT, "ä"), (JSON, {"a": [1, None]}), (JSON, ["ä", os.fsdecode(b"caf\xe9.txt")])],
)
def test_codecs(codec: Any, item: Any, zk: KazooClient, zk_path: str) -> None:
    """An item comes out as it went in, also a file name that is not UTF-8."""
    queue = SimpleQueue[Any](zk, zk_path, codec=codec)
    queue.put(item)
    assert queue.get() == item


def test_message_pack(zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """MSGPACK is the package of that name, which is imported when it is needed; if it is missing, the error says so."""
    queue = SimpleQueue[Any](zk, zk_path, codec=MSGPACK)
    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(ImportError, match="pip install"):
        queue.put(1)
    monkeypatch.setitem(sys.modules, "msgpack", SimpleNamespace(packb=lambda item: repr(item).encode(), unpackb=int))
    queue.put(7)
    assert queue.get() == 7


def test_bad_arguments(zk: KazooClient, zk_path: str) -> None:
    """Arguments that `queue` refuses are refused here; so is an item that the codec does not take."""
    queue = Queue[Any](zk, zk_path)
    for call in (queue.get, lambda **options: queue.put(b"x", **options), queue.claim):
        with pytest.raises(ValueError, match="non-negative"):
            call(timeout=-1)
    with pytest.raises(TypeError, match="must be bytes"):
        queue.put("x")
    with pytest.raises(TypeError, match="must be a str"):
        Queue[Any](zk, f"{zk_path}-t", codec=TEXT).put(b"x")
    with pytest.raises(ValueError, match="as fifo with maxsize=0, not as fifo with maxsize=3"):
        Queue(zk, zk_path, 3)
    with pytest.raises(ValueError, match="for Queue already"):
        LifoQueue(zk, zk_path)
    queue.put(b"x")
    assert queue.get() == b"x"


def test_what_is_no_queues(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Another size, order or primitive is an error that names both; items of another kind are never taken."""
    Queue[bytes](zk, zk_path, 3).put(b"x")
    client = connect()
    for other in (Queue[bytes](client, zk_path, 4), LifoQueue[bytes](connect(), zk_path, 3)):
        for call in (lambda q=other: q.put(b"y"), other.get, other.get_nowait, other.qsize):
            with pytest.raises(ValueError, match=r"made as fifo with maxsize=3, not as"):
                call()
    zk.create(f"{zk_path}-x/items/queue-0000000001", b"data", makepath=True)
    with pytest.raises(ForeignNodeError, match="b'data'"):
        Queue[bytes](zk, f"{zk_path}-x").get()
    zk.create(f"{zk_path}-e", b"3 set")
    with pytest.raises(ForeignNodeError, match="b'3 set'"):
        Queue[bytes](zk, f"{zk_path}-e").put(b"x")


@pytest.mark.fault(81, 250)
def test_a_consumer_whose_session_ends(
    zk: KazooClient, zookeeper: Server, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """Its item is free again; a waiting consumer is woken; each claim counts, without a limit, too."""
    queue, theirs = Queue[bytes](zk, zk_path), Queue[bytes](connect(), zk_path)
    queue.put(b"one")

    def work() -> tuple[bytes, int]:
        with queue.claim() as claim:
            return claim.item, claim.attempts

    with pytest.raises(LockLostError), theirs.claim() as claim:
        assert claim.attempts == 1
        working = in_thread(work)
        eventually(lambda: names(zk, zk_path, "consumers"))
        assert not working.done()
        zookeeper.expire(theirs.client)
        assert working.result(20) == (b"one", 2)
    assert names(zk, zk_path, "items") == []


@pytest.mark.fault(23)
def test_a_fork_with_items(zk: KazooClient, zk_path: str) -> None:
    """The child leaves a claim silently, and can't say that an item is done: both are the parent's, which goes on."""
    queue = Queue[bytes](zk, zk_path)
    for item in (b"one", b"two"):
        queue.put(item)
    queue.get()
    claim = queue.claim()

    def child() -> None:
        claim.__exit__(None, None, None)
        with pytest.raises(ClientError):
            queue.task_done()

    with claim:
        in_forked_child(child)
        assert len(names(zk, zk_path, "claims")) == 1
    assert names(zk, zk_path, "items") == []
    queue.task_done()
    queue.join()


@pytest.mark.fault(168)
def test_a_claim_whose_session_ends_before_its_answer(
    zk: KazooClient,
    zookeeper: Server,
    connect: Connect,
    zk_path: str,
    proxy: Proxy,
    in_thread: InThread,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread of its client has the item in the next session; that claim is not taken for its own."""
    client = connect(proxy.hosts, **FAST)
    queue = Queue[bytes](client, zk_path)
    queue.put(b"one")
    begun, claimed, ready, identified = threading.Event(), threading.Event(), receipts.ready, taking.identified

    def slow(item_call: Any) -> Any:
        if item_call.sent is not None:  # the thread that got no answer runs only when the next session has begun
            begun.wait(30)
        return (yield from ready(item_call))

    def slower(item_call: Any, taken: ClaimedItem, results: Any = None) -> Any:
        if results is None:
            claimed.wait(30)
        return (yield from identified(item_call, taken, results))

    monkeypatch.setattr(receipts, "ready", slow)
    monkeypatch.setattr(taking, "identified", slower)
    before = client.client_id[0]
    with proxy.hold("multi", where=lambda message: not message.heartbeat) as fault:
        first = in_thread(queue.claim(timeout=4).__enter__)
        fault.wait()
        zookeeper.expire(client)
        proxy.cut()
    eventually(lambda: client.connected and client.client_id[0] != before)
    begun.set()
    with queue.claim(timeout=20) as second:
        claimed.set()
        with pytest.raises(Empty):
            first.result(30)
        assert zk.get(f"{zk_path}/claims/{names(zk, zk_path, 'claims')[0]}")[1].czxid == second.fencing_token
    assert names(zk, zk_path, "items") == []


def test_shutdown(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A shutdown is for all processes: nothing is put any more, remaining items are taken, and waiters are told."""
    mine, theirs = Queue[bytes](zk, zk_path, 1), Queue[bytes](connect(), zk_path, 1)
    mine.put(b"one")
    putting = [in_thread(each.put, b"x") for each in (mine, theirs)]
    eventually(lambda: len(names(zk, zk_path, "producers")) == 2)
    theirs.shutdown()
    for each in putting:
        with pytest.raises(ShutDown):
            each.result(10)
    for queue in (mine, theirs):
        with pytest.raises(ShutDown):
            queue.put(b"y")
        with pytest.raises(ShutDown):
            queue.put_nowait(b"y")
    assert mine.get() == b"one"
    for call in (mine.get, theirs.get_nowait):
        with pytest.raises(ShutDown):
            call()


def test_shutdown_ends_waits(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Consumers that wait are told; one that finds the last item claimed waits for its end."""
    mine, theirs = Queue[bytes](zk, zk_path), Queue[bytes](connect(), zk_path)
    mine.put(b"one")
    with mine.claim():
        getting = [in_thread(each.get) for each in (mine, theirs)]
        eventually(lambda: len(names(zk, zk_path, "consumers")) == 2)
        mine.shutdown()
        time.sleep(0.1)
        assert not any(each.done() for each in getting)
    for each in getting:
        with pytest.raises(ShutDown):
            each.result(10)


def test_immediate_shutdown(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Items that no consumer has claimed are removed; a claimed one stays its consumer's."""
    mine, theirs = Queue[bytes](zk, zk_path), Queue[bytes](connect(), zk_path)
    for n in range(10):
        mine.put(b"%d" % n)
    with theirs.claim() as claim:
        mine.shutdown(immediate=True)
        assert len(names(zk, zk_path, "items")) == 1
        assert claim.item == b"0"
    with pytest.raises(ShutDown):
        mine.get()
    assert names(zk, zk_path, "items") == []


@pytest.mark.fault(169)
def test_each_of_several_items_in_one_node_has_its_attempts(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Only the item that fails too often is moved aside; those behind it are claimed as often as any."""
    mine, theirs = (Queue[bytes](each, zk_path, max_attempts=2) for each in (zk, connect()))
    mine.put(b"warm")
    mine.get()
    zk.create(f"{zk_path}/items/queue-", frame([b"a", b"bad", b"b", b"worse", b"c"]), sequence=True)
    mine.put(b"last")
    seen = []
    for n in range(8):
        with suppress(KeyError), (mine, theirs)[n % 2].claim(block=False) as claim:
            seen.append((claim.item, claim.attempts))
            if claim.item in (b"bad", b"worse"):
                raise KeyError
    assert seen == [
        *[(b"a", 1), (b"bad", 1), (b"bad", 2), (b"b", 1)],
        *[(b"worse", 1), (b"worse", 2), (b"c", 1), (b"last", 1)],
    ]
    assert mine.dead() == [b"bad", b"worse"]
    assert mine.empty()


@pytest.mark.fault(83)
def test_many_at_once(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Threads of several clients put and take: each item is taken once, and there are never more than maxsize."""
    queues = [Queue[bytes](each, zk_path, 3) for each in (zk, connect())]
    most, over, looking = 0, threading.Event(), connect()

    def look() -> None:
        nonlocal most
        while not over.is_set():
            most = max(most, len(names(looking, zk_path, "items")))

    def produce(n: int) -> None:
        for k in range(20):
            queues[n % 2].put(b"%d %d" % (n, k))

    def consume(n: int) -> list[bytes]:
        taken = []
        while (item := queues[n % 2].get()) != b"end":
            taken.append(item)
            queues[n % 2].task_done()
        queues[n % 2].task_done()
        return taken

    in_thread(look)
    producing = [in_thread(produce, n) for n in range(4)]
    consuming = [in_thread(consume, n) for n in range(4)]
    for each in producing:
        each.result(60)
    queues[0].join()
    for _ in range(4):
        queues[0].put(b"end")
    taken = [each.result(60) for each in consuming]
    over.set()
    assert most <= 3
    assert sorted(chain(*taken)) == sorted(b"%d %d" % (n, k) for n in range(4) for k in range(20))


def test_an_item_that_is_put_back_comes_first_again(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Also for the client that had taken it, which goes on with it, and not with the next one that it has listed."""
    queue, raw = Queue[bytes](connect(), zk_path), Queue[bytes](zk, zk_path)
    for item in (b"0", b"1", b"2", b"3"):
        raw.put(item)
    assert queue.get() == b"0"
    for _ in range(2):
        with alarm(), pytest.raises(Alarm):
            queue.get()
    assert raw.get() == b"1"
    assert [queue.get(), queue.get()] == [b"2", b"3"]


@pytest.mark.fault(166)
def test_no_thread_can_be_started(
    zk: KazooClient, connect: Connect, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The item of a `get` that failed is put back as soon as a thread can be started again."""
    queue, other = Queue[bytes](zk, zk_path), Queue[bytes](connect(), zk_path)
    other.put(b"one")

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with alarm(), pytest.raises(RuntimeError, match="new thread"):
            queue.get(timeout=5)
        assert other.empty()
    assert other.get(timeout=20) == b"one"


@pytest.mark.fault(154)
def test_a_put_while_no_server_is_in_reach(zk: KazooClient, connect: Connect, zk_path: str, proxy: Proxy) -> None:
    """A put that was never sent is known not to have been applied, although the session may live on."""
    client = connect(proxy.hosts, timeout=30, **FAST)
    queue = Queue[bytes](client, zk_path)
    queue.put(b"first")
    proxy.refuse()
    proxy.cut()
    eventually(lambda: not client.connected)
    for _ in range(2):
        with pytest.raises(Full):
            queue.put(b"never", timeout=0.2)
    with pytest.raises(Full):
        queue.put_nowait(b"never")
    proxy.resume()
    queue.put(b"second")
    theirs = Queue[bytes](zk, zk_path)
    assert [theirs.get_nowait(), theirs.get_nowait()] == [b"first", b"second"]
    assert theirs.empty()


def test_an_item_as_large_as_can_be(zk: KazooClient, zk_path: str) -> None:
    """An item that `put` takes can be claimed, given back and buried; `put` refuses a larger one."""
    jobs = Queue(zk, zk_path, max_attempts=1)
    with pytest.raises(RefusedError, match="more than"):
        jobs.put(bytes(999_700))
    largest = 1_000_000 - 2_048 - 6 * len(zk_path) - len(frame([b""]))
    with pytest.raises(RefusedError, match="could not be claimed"):
        jobs.put(bytes(largest + 1))
    assert jobs.empty()
    jobs.put(bytes(largest))

    def fail() -> None:
        with pytest.raises(KeyError), jobs.claim(timeout=5):
            raise KeyError

    failing = threading.Thread(target=fail, name="\N{BANANA}" * 60)  # the claim's node names it
    failing.start()
    failing.join()
    with pytest.raises(Empty):
        jobs.get(block=False)
    assert [len(item) for item in jobs.dead()] == [largest]


def reads(queue: Any, how: str) -> Any:
    """Take the next item."""
    if how == "claim":
        with queue.claim(timeout=5) as claim:
            return claim.item
    return queue.get_nowait() if how == "get_nowait" else queue.get(timeout=5)


@pytest.mark.fault(249)
@pytest.mark.parametrize(
    ("kind", "how"),
    [(Queue, "get"), (Queue, "claim"), (LifoQueue, "get_nowait"), (DelayQueue, "claim")],
)
def test_an_item_that_does_not_decode(kind: Any, how: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The error names the item, which is set aside among the dead, and the next call takes the next."""
    # A get_nowait() gives up on a busy server after a third of the session timeout, as if the queue were empty.
    raw, jobs = kind(zk, zk_path, codec=BYTES), kind(connect(timeout=30), zk_path, codec=JSON)
    lifo = kind.__name__ == "LifoQueue"
    first, last = (b"123", b"{") if lifo else (b"{", b"123")
    raw.put(first)
    time.sleep(0.002)  # a `DelayQueue` orders by milliseconds
    raw.put(last)
    bad = sorted(names(zk, zk_path, "items"), key=number)[lifo]
    with pytest.raises(ForeignNodeError, match="JSONDecodeError") as told:
        reads(jobs, how)
    assert told.value.path == f"{zk_path}/items/{bad}"
    assert reads(jobs, how) == 123
    assert raw.dead() == jobs.dead() == [b"{"]
    assert raw.empty()
    assert names(zk, zk_path, "claims") == []


@pytest.mark.fault(249)
def test_attempts_to_decode(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """With `max_attempts`, each call counts, and a consumer with another codec may take the item."""
    jobs = Queue[Any](connect(), zk_path, codec=JSON, max_attempts=3)
    raw = Queue[bytes](zk, zk_path, max_attempts=3)
    for item in (b"{", b"{}", b"[", b"[]"):
        raw.put(item)
    for attempt in (1, 2):
        with pytest.raises(ForeignNodeError, match=f"attempt {attempt} of 3"):
            jobs.get(timeout=5)
    with raw.claim(timeout=5) as claim:
        assert (claim.item, claim.attempts) == (b"{", 3)
    assert jobs.get() == {}
    for how in ("get", "claim", "get_nowait"):
        with pytest.raises(ForeignNodeError):
            reads(jobs, how)
    assert jobs.get_nowait() == []
    assert jobs.dead() == [b"["]


@pytest.mark.fault(350)
@pytest.mark.parametrize("error", [Alarm(), KeyError("a field")])
def test_errors_that_are_not_the_items(error: Exception, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Any error but a ValueError is raised; the item stays where it is, and no attempt is spent."""
    errors = [error]

    def decode(data: bytes) -> bytes:
        for each in errors:
            raise each
        return data

    queue = Queue[bytes](connect(), zk_path, codec=SimpleNamespace(encode=bytes, decode=decode), max_attempts=1)
    queue.put(b"one")
    zk.create(f"{zk_path}/dead/queue-0000000000", frame([b"dead"]), makepath=True)
    for call in (queue.get, queue.claim(timeout=5).__enter__, queue.dead):
        with pytest.raises(type(error)):
            call()
    errors.clear()
    assert queue.dead() == [b"dead"]
    with queue.claim(timeout=5) as claim:
        assert (claim.item, claim.attempts) == (b"one", 1)


@pytest.mark.fault(315)
def test_two_blocks_of_one_claim(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """The second that gets an item fails, and its item is free again: it would stay claimed, as the claim names one."""
    jobs = Queue(zk, zk_path)
    claim = jobs.claim(timeout=20)
    both_wait, both_done = threading.Barrier(2), threading.Barrier(2)

    def work() -> object:
        both_wait.wait(20)
        try:
            with claim:
                both_done.wait(20)
                return claim.item
        except RuntimeError as error:
            both_done.wait(20)
            return error

    workers = [in_thread(work) for _ in range(2)]
    jobs.put(b"one")
    jobs.put(b"two")
    ends = [worker.result(20) for worker in workers]
    assert sorted(type(end).__name__ for end in ends) == ["RuntimeError", "bytes"]
    assert "in use" in str(ends)
    assert jobs.qsize() == 1


@pytest.mark.fault(82)
def test_an_item_that_is_put_back_keeps_its_attempts(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A `get` that is interrupted has put the item back when it raises; it counts no attempt, and forgets none."""
    raw, jobs = Queue(zk, zk_path), Queue(connect(), zk_path, max_attempts=3)
    raw.put(b"{")
    for attempt in (1, 2):
        with pytest.raises(KeyError), jobs.claim(timeout=5):
            raise KeyError
        (item,) = names(zk, zk_path, "items")
        with alarm(), pytest.raises(Alarm):
            jobs.get(timeout=5)
        data, stat = zk.get(f"{zk_path}/items/{item}")
        assert (data, stat.version) == (frame([b"{"], -attempt), 0)
    assert raw.get(timeout=5) == b"{"


@pytest.mark.fault(140)
def test_an_item_that_outlives_its_session(
    zk: KazooClient, zookeeper: Server, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """It may be done after that, once; and is not taken for the item of the next session."""
    client = connect(**FAST)
    queue, other = Queue[bytes](client, zk_path), Queue[bytes](zk, zk_path)
    for n in range(2):
        other.put(b"%d" % n)
    assert queue.get() == b"0"
    before = client.client_id[0]
    zookeeper.expire(client)
    eventually(lambda: client.connected and client.client_id[0] != before)
    assert queue.get() == b"1"
    joined = in_thread(other.join)
    queue.task_done()
    time.sleep(0.2)
    assert not joined.done()
    queue.task_done()
    joined.result(10)
    with pytest.raises(ValueError, match="too many"):
        queue.task_done()
