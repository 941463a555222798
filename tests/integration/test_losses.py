"""A lost hold: its holder is told, its thread must settle it, and nobody's newer hold is touched."""

from __future__ import annotations

import _thread
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, TypeAlias, TypeVar

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import AnyLock, Kind, against, every, read_lock
from tests.helpers.losses import expire, lost_kinds, operate, run_out
from tests.helpers.proxy import Proxy
from zkconcurrent import Lock, LockLostError, MultiLock, RLock, Semaphore
from zkconcurrent._engine.holds import all_holds
from zkconcurrent._engine.session import Session
from zkconcurrent._runtime.identity import ident, of_thread
from zkconcurrent.testing import Server

T = TypeVar("T")
Lose: TypeAlias = Callable[[AnyLock], None]


@pytest.mark.fault(6, 20, 28, 40)
@lost_kinds
@pytest.mark.threads_only("on_lost of objects that never acquired is called, too; of tasks it is not")
def test_a_loss_is_told_and_settled(
    kind: Kind,
    lose: Callable[..., None],
    zookeeper: Server,
    zk: KazooClient,
    connect: Connect,
    zk_path: str,
    in_thread: InThread,
) -> None:
    """`lost` is set, on_lost runs once for each object, others get in; release raises once, then all is new."""
    told: list[object] = []
    client, theirs = connect(timeout=4), against(kind)(zk, zk_path)
    lock, quiet = kind(client, zk_path, on_lost=told.append), kind(client, zk_path)
    loud = kind(client, zk_path, on_lost=lambda it: told.append((it, threading.current_thread())))
    lock.acquire()
    token, before = lock.fencing_token, lock.lost
    waiting = in_thread(lambda: (theirs.acquire(), theirs.fencing_token, theirs.release()))
    eventually(queued(zk, zk_path, 2))
    lose(zookeeper, lock)
    assert waiting.result(20)[1] > token
    assert quiet.lost.is_set()
    eventually(lambda: len(told) == 2)
    assert lock in told
    assert loud in [each[0] for each in told if isinstance(each, tuple)]
    assert "<unlocked" in repr(lock)
    for call in (lock.acquire, lambda: lock.acquire(blocking=False), lambda: lock.acquire(timeout=1)):
        with pytest.raises(LockLostError, match=r"release\(\)"):
            call()
    with pytest.raises(LockLostError):
        _ = lock.fencing_token
    with pytest.raises(LockLostError):
        lock.guard(client.transaction())
    with pytest.raises(LockLostError) as caught:
        lock.release()
    assert caught.value.path == zk_path
    assert lock.acquire(timeout=10)
    assert lock.fencing_token > token
    assert lock.lost is not before
    assert not lock.lost.is_set()
    lock.release()
    with pytest.raises(RuntimeError) as unheld:
        lock.release()
    assert not isinstance(unheld.value, LockLostError)
    assert len(told) == 2
    eventually(queued(client, zk_path, 0))


@pytest.mark.fault(385)
@pytest.mark.threads_only("derives from the threads' class")
def test_locks_of_a_programs_class_that_are_equal(connect: Connect, zookeeper: Server, zk_path: str) -> None:
    """`on_lost` runs once for each object, also if a program's class calls them equal."""

    class Equal(RLock):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal) and other.path == self.path

        __hash__ = None  # type: ignore[assignment]

    told: list[int] = []
    locks = [Equal(client, zk_path, on_lost=lambda it: told.append(id(it))) for client in [connect()] * 2]
    locks[0].acquire()
    operate(zookeeper, locks[0])
    eventually(lambda: sorted(told) == sorted(map(id, locks)))
    with pytest.raises(LockLostError):
        locks[0].release()


@pytest.mark.fault(166)
def test_no_thread_for_on_lost(
    zookeeper: Server, connect: Connect, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started again if that fails, and `on_lost` is called once."""
    client, told, failures = connect(timeout=4), threading.Semaphore(0), iter(range(2))
    lock, session = Lock(client, zk_path, on_lost=lambda _: told.release()), Session.of(client)
    spawn = session.link.spawn

    def start(run: Any, name: str, **options: bool) -> None:
        if name.startswith("on_lost ") and next(failures, None) is not None:
            raise RuntimeError("can't start new thread")
        spawn(run, name, **options)

    lock.acquire()
    lost = lock.lost
    monkeypatch.setattr(session.link, "spawn", start)
    zookeeper.expire(client)
    assert lost.wait(20)
    assert told.acquire(timeout=20)
    with pytest.raises(LockLostError):
        lock.release()
    assert not told.acquire(blocking=False)


@pytest.mark.fault(439)
@pytest.mark.parametrize(
    ("kind", "how"),
    [("lock", "release"), ("multi", "generator"), ("semaphore", "generator"), ("lock", "same thread")],
)
@pytest.mark.threads_only("has blocks in generators")
def test_a_newer_hold_is_untouched_by_other_threads(
    kind: str, how: str, zookeeper: Server, connect: Connect, zk_path: str
) -> None:
    """Where threads end each other's holds, the end of a lost one leaves alone the hold that followed."""
    zk = connect(timeout=4)
    first: Any = Semaphore(zk, zk_path) if kind == "semaphore" else Lock(zk, zk_path)
    lock = MultiLock([first]) if kind == "multi" else first

    def begin() -> Iterator[None]:
        if how == "release":
            lock.acquire()
            yield
            lock.release()
        else:
            with lock:
                yield

    with ExitStack() as stack:
        one, two, three = (stack.enter_context(ThreadPoolExecutor(1)) for _ in range(3))
        older, newer = begin(), begin()
        one.submit(next, older).result(10)
        operate(zookeeper, first)
        two.submit(next, newer).result(10)
        ending = two if how == "same thread" else three
        with pytest.raises(LockLostError):
            ending.submit(next, older, None).result(10)
        assert first.locked()
        three.submit(next, newer, None).result(10)
        assert not first.locked()
        one.submit(lambda: lock.acquire() and lock.release()).result(10)


@pytest.mark.parametrize("kind", ["Lock", "Semaphore", "MultiLock"])
def test_leaving_a_with_block(kind: str, zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """The loss is raised over an Exception, which is its context; an error that must not be hidden passes unchanged."""
    client = connect(timeout=4)
    part: Any = (Semaphore if kind == "Semaphore" else Lock)(client, zk_path)
    lock = MultiLock([part, Lock(client, f"{zk_path}-other")]) if kind == "MultiLock" else part
    with pytest.raises(LockLostError), lock:
        operate(zookeeper, part)
    with pytest.raises(LockLostError) as caught, lock:
        operate(zookeeper, part)
        raise KeyError("first")
    assert isinstance(caught.value.__context__, KeyError)
    for error in (KeyboardInterrupt(), SystemExit(3), LockLostError("/other", "lost")):
        with pytest.raises(type(error)) as passed, lock:
            operate(zookeeper, part)
            raise error
        assert passed.value is error
    with lock:
        pass


@pytest.fixture
def in_next_thread(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run one function in a thread that ends, then another in a thread that `get_ident` gives the same number.

    The system reuses such numbers, but not at once for certain: here it is one that no thread has.
    """
    number, has_it = 7, set[int]()

    def get_ident() -> int:
        real = _thread.get_ident()
        return number if real in has_it else real

    monkeypatch.setattr(threading, "get_ident", get_ident)

    def run(first: Callable[[], object], then: Callable[[], T]) -> T:
        def with_the_number(function: Callable[[], object], future: Future[Any]) -> None:
            has_it.add(_thread.get_ident())
            try:
                assert ident(of_thread()) == number  # the library is given it, too
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            finally:
                has_it.clear()

        for function in (first, then):
            future: Future[Any] = Future()
            thread = threading.Thread(target=with_the_number, args=(function, future))
            thread.start()
            thread.join(30)
            result = future.result(0)
        return result  # type: ignore[no-any-return]

    return run


@pytest.mark.fault(69)
@pytest.mark.parametrize("kind", [Lock, RLock, Semaphore])
@pytest.mark.threads_only("is of threads with the same number; a task is known by itself")
def test_a_loss_ends_with_its_thread(
    kind: Callable[..., Any], in_next_thread: Callable[..., Any], zookeeper: Server, connect: Connect, zk_path: str
) -> None:
    """A thread that is given the number of one that ended with an unsettled loss has nothing to settle."""
    lock = kind(connect(timeout=4), zk_path)

    def hold_and_lose() -> None:
        lock.acquire()
        expire(zookeeper, lock)

    def use() -> bool:
        assert lock.acquire(timeout=10)
        lock.release()
        with lock:
            return not lock.lost.is_set()

    assert in_next_thread(hold_and_lose, use)
    assert not all_holds(lock._path_state.holds)
    assert not lock.lost.is_set()


@pytest.mark.fault(69)
@every
@pytest.mark.threads_only("is of threads with the same number; a task is known by itself")
def test_a_hold_is_not_inherited(kind: Kind, in_next_thread: Callable[..., Any], zk: KazooClient, zk_path: str) -> None:
    """A thread that is given the number of one that ended while it held does not hold: it can't enter a second time."""
    lock = kind(zk, zk_path)

    def use() -> bool:
        if isinstance(lock, RLock):
            assert not lock._is_owned()
            with pytest.raises(RuntimeError, match="un-acquired"):
                lock.release()
            if kind is read_lock:
                return against(kind)(zk, zk_path).acquire(blocking=False)
        return lock.acquire(blocking=False)

    assert in_next_thread(lock.acquire, use) is False
    assert lock.locked()
    lock._at_fork_reinit()  # nobody else could release it


@pytest.mark.threads_only("on_lost of objects that never acquired is called, too; of tasks it is not")
def test_a_callback_that_fails_or_blocks_harms_nobody(
    zookeeper: Server, connect: Connect, zk_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An on_lost that raises is logged, one that blocks is left alone: the other is called, and all goes on."""
    client = connect(timeout=4)
    go_on, told = threading.Event(), threading.Event()
    locks = [
        Lock(client, zk_path, on_lost=lambda _: 1 / 0),
        Lock(client, zk_path, on_lost=lambda _: go_on.wait(20)),
        Lock(client, zk_path, on_lost=lambda _: told.set()),
    ]
    locks[0].acquire()
    with caplog.at_level(logging.WARNING, "zkconcurrent"):
        run_out(zookeeper, locks[0])
        assert told.wait(10)
        eventually(lambda: "ZeroDivisionError" in caplog.text)
    eventually(lambda: f"lost: {zk_path}" in caplog.text)
    with pytest.raises(LockLostError):
        locks[0].release()
    with locks[1]:
        pass
    go_on.set()


@pytest.mark.fault(25)
def test_callbacks_may_use_the_lock(zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """An on_lost runs on a thread of the library's own, where the library may be called."""
    got: list[bool] = []

    def again(lock: Lock) -> None:
        acquired = lock.acquire(timeout=10)
        lock.release()
        got.append(acquired)  # last: then the test ends, and with it the client

    lock = Lock(connect(timeout=4), zk_path, on_lost=again)
    lock.acquire()
    expire(zookeeper, lock)
    eventually(lambda: got == [True])
    with pytest.raises(LockLostError):
        lock.release()


@pytest.mark.fault(24)
def test_a_client_that_is_stopped_while_it_holds(zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """The server gives the lock away before the client has its answer: the loss is told before that."""
    with Proxy(zookeeper.hosts) as proxy:
        holder, other = Lock(connect(proxy.hosts), zk_path), Lock(connect(), zk_path)
        holder.acquire()
        lost = holder.lost
        proxy.stall(to_server=False, to_client=True)
        stopping = threading.Thread(target=holder.client.stop)
        stopping.start()
        assert other.acquire(timeout=20)
        assert lost.is_set()
        with pytest.raises(LockLostError):
            _ = holder.fencing_token
        with pytest.raises(LockLostError):
            holder.release()
        other.release()
        proxy.resume()
        stopping.join(30)
        assert not stopping.is_alive()
