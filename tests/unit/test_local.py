"""A local namespace: `threading`'s own objects, one for a name; its other objects keep the rules of the shared."""

from __future__ import annotations

import gc
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import zkconcurrent
from tests.conftest import Eventually, InThread
from zkconcurrent import LocalNamespace

STRANGE = zkconcurrent.namespace("local").ReadWriteLock("x")


@pytest.fixture
def threads() -> LocalNamespace:
    """A namespace."""
    return zkconcurrent.namespace("local", "/app")


def test_a_block_does_not_run_with_nothing_held() -> None:
    """Where `acquire` returns False, `with` raises, as with the shared ones."""
    threads = zkconcurrent.namespace("local")
    for kind in (type(threads.MultiLock(["a"])), type(threads.ReadWriteLock("b").write_lock)):
        never = object.__new__(type("Never", (kind,), {"acquire": lambda *_: False, "__repr__": lambda _: "never"}))
        with pytest.raises(RuntimeError, match=r"nothing is held.*never"), never:
            pytest.fail("the block runs")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Condition", ()),
        ("Semaphore", (3,)),
        ("BoundedSemaphore", (3,)),
        ("Event", ()),
        ("Barrier", (2,)),
    ],
)
def test_they_are_threadings(threads: LocalNamespace, name: str, arguments: tuple[Any, ...]) -> None:
    """A class of `threading` gives an object of `threading`, the same for the same name, another for another."""
    make = getattr(threads, name)
    one = make("one", *arguments)
    assert type(one) is type(getattr(threading, name)(*arguments))
    assert make("one", *arguments) is one
    assert make("other", *arguments) is not one
    assert getattr(zkconcurrent.namespace("local"), name)("one", *arguments) is not one


@pytest.mark.parametrize("name", ["Lock", "RLock"])
def test_locks_are_threadings(threads: LocalNamespace, name: str, in_thread: InThread) -> None:
    """A lock has what `threading`'s has, and behaves and prints as that does; one name is one lock."""
    one, real = getattr(threads, name)("one"), getattr(threading, name)()
    assert getattr(threads, name)("one") is one
    assert getattr(threads, name)("other") is not one
    assert [attribute for attribute in dir(real) if not hasattr(one, attribute)] == []
    assert isinstance(one, zkconcurrent.LockLike)
    assert type(one._lock) is type(real)
    if name == "RLock":
        assert not one._is_owned()
        assert not threads.RLock("another")._is_owned()  # the method outlives the lock
    with one as got:
        assert got is True
        assert repr(one).startswith("<locked")
        assert one.acquire(False) is (name == "RLock")
        assert not in_thread(one.acquire, True, 0.01).result(20)
        one.release() if name == "RLock" else None
    with pytest.raises(RuntimeError):
        one.release()
    with pytest.raises(AttributeError):
        one.nothing  # noqa: B018


HELD: list[Callable[[LocalNamespace], Any]] = [
    lambda threads: threads.Lock("lock"),
    lambda threads: threads.RLock("lock"),
    lambda threads: threads.ReadWriteLock("lock").read_lock,
    lambda threads: threads.ReadWriteLock("lock").write_lock,
    lambda threads: threads.MultiLock(["lock"]),
    lambda threads: threads.Condition("lock"),
]


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("make", HELD)
def test_what_is_dropped_while_held(
    make: Callable[[LocalNamespace], Any], elsewhere: bool, threads: LocalNamespace, in_thread: InThread
) -> None:
    """A lock that is dropped while it is held, by any thread, is a ResourceWarning; a free one is not."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        (in_thread(lambda: make(threads).acquire()).result(20) if elsewhere else make(threads).acquire())
        gc.collect()
        assert make(threads).acquire(False)
        gc.collect()
    assert [(each.category, "'/app/lock' was garbage collected while held" in str(each.message)) for each in told] == [
        (ResourceWarning, True)
    ] * 2
    kept = make(threads)
    with kept:
        pass
    with make(threads):
        pass
    del kept
    gc.collect()


@pytest.mark.parametrize(
    ("use", "error", "told"),
    [
        (lambda threads: threads.Condition("c", threading.Lock()), TypeError, "of this namespace, not lock"),
        (lambda threads: threads.Condition("c", 7), TypeError, "not int"),
        (
            lambda threads: threads.Condition("c", zkconcurrent.namespace("local").RLock("x")),
            ValueError,
            "another name",
        ),
        (lambda threads: threads.Condition("c", STRANGE.write_lock), ValueError, "another namespace"),
        (lambda threads: threads.Semaphore("s", 1.5), TypeError, "value must be an int, not float"),
        (lambda threads: threads.BoundedSemaphore("s", "1"), TypeError, "value must be an int, not str"),
        (lambda threads: threads.Barrier("b", 1.5), TypeError, "parties must be an int, not float"),
        (lambda threads: threads.Lock("l", on_lost=7), TypeError, "on_lost must be callable"),
        (lambda threads: threads.RLock("l", on_lost="x"), TypeError, "on_lost must be callable"),
        (lambda threads: threads.Semaphore("l", on_lost=7), TypeError, "on_lost must be callable"),
        (lambda threads: threads.MultiLock(["l"], on_lost=7), TypeError, "on_lost must be callable"),
        (lambda threads: threads.ReadWriteLock("l", on_lost=7), TypeError, "on_lost must be callable"),
        (lambda threads: threads.Lock(7), TypeError, "name must be a str"),
        (lambda threads: threads.Lock(None), TypeError, "name must be a str"),
        (lambda threads: threads.MultiLock([1, 2]), TypeError, "name must be a str"),
        (lambda threads: threads.MultiLock(7), TypeError, "iterable"),
        (lambda threads: threads.MultiLock(b"ab"), TypeError, "name must be a str"),
        (lambda _: zkconcurrent.namespace("local", 7), TypeError, "path must be a str"),  # type: ignore[call-overload]
        (lambda _: zkconcurrent.namespace("local", "app"), ValueError, "start with"),
        (lambda _: zkconcurrent.namespace("LOCAL"), ValueError, "KazooClient"),  # type: ignore[call-overload]
        (lambda threads: zkconcurrent.namespace(threads), TypeError, "must be a kazoo"),
        (lambda _: zkconcurrent.namespace(None), TypeError, "must be a kazoo"),  # type: ignore[call-overload]
    ],
)
def test_what_is_wrong(
    use: Callable[[LocalNamespace], Any], error: type[Exception], told: str, threads: LocalNamespace
) -> None:
    """The local namespace refuses the arguments that the shared one would refuse, at once and with a reason."""
    with pytest.raises(error, match=told):
        use(threads)
    assert not threads._objects


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("make", HELD)
def test_what_is_dropped_is_free(
    make: Callable[[LocalNamespace], Any], threads: LocalNamespace, in_thread: InThread
) -> None:
    """Where the warning is an error, whose report keeps the lock alive, the next of its name is free all the same."""
    reports = []
    hook, sys.unraisablehook = sys.unraisablehook, reports.append
    try:
        in_thread(lambda: make(threads).acquire()).result(20)
        gc.collect()
        with make(threads) as got:
            assert got
        gc.collect()
    finally:
        sys.unraisablehook = hook
    assert [each.exc_type for each in reports] == [ResourceWarning]


def test_terms(threads: LocalNamespace) -> None:
    """Terms that all must agree on must be said alike: a value, the parties, a count, a condition's lock."""
    assert threads.Semaphore("s", 2).acquire(blocking=False)
    threads.Barrier("b", 2)
    threads.CountDownLatch("l", 2)
    condition = threads.Condition("c", threads.Lock("lock"))
    with pytest.raises(ValueError, match="'/app/s' was made with value=2, not 3"):
        threads.Semaphore("s", 3)
    with pytest.raises(ValueError, match="parties=2, not 3"):
        threads.Barrier("b", 3)
    with pytest.raises(ValueError, match="count=2, not 3"):
        threads.CountDownLatch("l", 3)
    with pytest.raises(ValueError, match="lock="):
        threads.Condition("c")
    assert threads.Condition("c", threads.Lock("lock")) is condition


def test_what_is_kept(threads: LocalNamespace) -> None:
    """A lock goes with its last object; an object with a state that others may find stays."""
    with pytest.warns(ResourceWarning, match="while held"):
        threads.Lock("lock").acquire()
    threads.Event("event").set()
    threads.Semaphore("semaphore", 0).release()
    threads.CountDownLatch("latch", 2).count_down()
    gc.collect()
    assert not threads.Lock("lock").locked()
    assert threads.Event("event").is_set()
    assert threads.Semaphore("semaphore", 0).acquire(blocking=False)
    assert threads.CountDownLatch("latch", 2).count == 1
    assert len(threads._made_as) == 3


def test_repr(threads: LocalNamespace) -> None:
    """It says what it is and where."""
    assert repr(threads) == "<zkconcurrent.LocalNamespace path='/app'>"
    assert threads.path == "/app"


def test_a_read_lock_has_no_condition(threads: LocalNamespace) -> None:
    """A read lock is refused for a condition, as the shared one is."""
    pair = threads.ReadWriteLock("pair")
    with pytest.raises(TypeError, match="read lock"):
        threads.Condition("c", pair.read_lock)
    assert threads.Condition("c", pair.write_lock)


def test_a_condition_of_a_write_lock(threads: LocalNamespace, in_thread: InThread, eventually: Eventually) -> None:
    """A wait gives up all levels of the write lock and has them again; a reader is refused too, as by the shared."""
    pair = threads.ReadWriteLock("pair")
    condition = threads.Condition("c", pair.write_lock)
    waits = threading.Event()

    def wait() -> bool:
        with pair.write_lock, condition:
            waits.set()
            woken = condition.wait(20)
            pair.write_lock.release()
            pair.write_lock.acquire()
            return woken

    waiting = in_thread(wait)
    assert waits.wait(20)
    with condition:
        condition.notify()
        with pair.read_lock, pytest.raises(RuntimeError, match="read lock"):
            condition.wait(0.1)
    assert waiting.result(20)
    assert not pair.write_lock.locked()
    eventually(lambda: pair.read_lock.acquire(False))
    pair.read_lock.release()


def test_readers_together_writers_alone(threads: LocalNamespace, in_thread: InThread) -> None:
    """Readers hold together, a writer alone; to try either against the other fails, in time."""
    pair = threads.ReadWriteLock("pair")
    holds, go = threading.Event(), threading.Event()

    def hold(lock: Any) -> None:
        with lock:
            holds.set()
            assert go.wait(20)

    reading = in_thread(hold, pair.read_lock)
    assert holds.wait(20)
    with pair.read_lock:
        assert pair.read_lock.locked()
    began = time.monotonic()
    assert not pair.write_lock.acquire(timeout=0.2)
    assert not pair.write_lock.acquire(False)
    assert 0.2 <= time.monotonic() - began < 15
    go.set()
    reading.result(20)
    go.clear()
    holds.clear()
    writing = in_thread(hold, pair.write_lock)
    assert holds.wait(20)
    assert not pair.read_lock.acquire(timeout=0.2)
    assert not pair.write_lock.acquire(False)
    go.set()
    writing.result(20)
    assert pair.write_lock.acquire(False)
    pair.write_lock.release()


def test_order_of_arrival(threads: LocalNamespace, in_thread: InThread, eventually: Eventually) -> None:
    """A reader that comes behind a waiting writer waits for it."""
    pair = threads.ReadWriteLock("pair")
    order = []

    def visit(lock: Any, what: str) -> None:
        with lock:
            order.append(what)

    with pair.read_lock:
        coming = []
        for n, (lock, what) in enumerate([(pair.write_lock, "w1"), (pair.read_lock, "r"), (pair.write_lock, "w2")]):
            coming.append(in_thread(visit, lock, what))
            eventually(lambda came=n + 1: len(pair._line) == came)
        assert not pair.read_lock.locked() or order == []
    for each in coming:
        each.result(20)
    assert order == ["w1", "r", "w2"]
    assert pair._line == []


def test_a_writer_that_gave_up_lets_readers_in(
    threads: LocalNamespace, in_thread: InThread, eventually: Eventually
) -> None:
    """A reader that waits only for a writer in the line goes in when that one's time is up."""
    pair = threads.ReadWriteLock("pair")
    with pair.read_lock:
        writer = in_thread(pair.write_lock.acquire, True, 3)
        eventually(lambda: len(pair._line) == 1)
        assert in_thread(lambda: pair.read_lock.acquire(True, 60) and (pair.read_lock.release() or True)).result(20)
        assert not writer.result(20)


def test_reentrancy_and_downgrade(threads: LocalNamespace, in_thread: InThread) -> None:
    """Both are re-entrant; a writer may read, and then give up writing only; a reader can't begin to write."""
    pair = threads.ReadWriteLock("pair")
    with pair.write_lock, pair.write_lock:
        assert pair.read_lock.acquire()
        assert pair.read_lock.acquire()
    assert not in_thread(pair.write_lock.acquire, False).result(20)
    with pytest.raises(RuntimeError, match="read lock"):
        pair.write_lock.acquire()
    pair.read_lock.release()
    pair.read_lock.release()
    with pytest.raises(RuntimeError, match="un-acquired"):
        pair.read_lock.release()
    with pair.write_lock, pytest.raises(RuntimeError, match="un-acquired"):
        in_thread(pair.write_lock.release).result(20)


def test_several_locks(threads: LocalNamespace, in_thread: InThread) -> None:
    """All are held or none is, in one order; a deadline is for all; it may be acquired again."""
    both, one, one_more = threads.MultiLock(["b", "a"]), threads.RLock("b"), threads.RLock("a")
    assert both.locks == (threads.RLock("a"), one)
    with both, both:
        assert not in_thread(one.acquire, False).result(20)
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with one:
            held.set()
            assert go.wait(20)

    holding = in_thread(hold)
    assert held.wait(20)
    began = time.monotonic()
    assert not both.acquire(timeout=0.2)
    assert not both.acquire(False)
    assert 0.2 <= time.monotonic() - began < 15
    assert in_thread(lambda: one_more.acquire(False) and (one_more.release() or True)).result(20)
    go.set()
    holding.result(20)
    with pytest.raises(RuntimeError, match="un-acquired"):
        both.release()


def test_a_latch(threads: LocalNamespace, in_thread: InThread) -> None:
    """It counts down to zero and no further; the waiters go on then; a count that is none is refused."""
    latch = threads.CountDownLatch("latch", 3)
    assert not latch.wait(0)
    assert not latch.wait(0.01)
    waiting = in_thread(latch.wait)
    latch.count_down()
    assert latch.count == 2
    latch.count_down(7)
    assert waiting.result(20)
    assert latch.count == 0
    assert latch.wait()
    for make in (lambda: threads.CountDownLatch("n", -1), lambda: latch.count_down(0)):
        with pytest.raises(ValueError, match="must"):
            make()
    with pytest.raises(TypeError, match="must be an int"):
        latch.count_down(1.5)  # type: ignore[arg-type]


LOCKS: list[Callable[[LocalNamespace], Any]] = [
    lambda threads: threads.RLock("lock"),
    lambda threads: threads.MultiLock(["lock"]),
    lambda threads: threads.ReadWriteLock("lock").read_lock,
    lambda threads: threads.ReadWriteLock("lock").write_lock,
]


@pytest.mark.parametrize("make", LOCKS)
@pytest.mark.parametrize(
    ("arguments", "error"), [((False, 1), ValueError), ((True, -2), ValueError), ((True, 1e20), OverflowError)]
)
def test_arguments(threads: LocalNamespace, make: Any, arguments: Any, error: type[Exception]) -> None:
    """All of them refuse the timeouts that `threading` refuses."""
    with pytest.raises(error):
        make(threads).acquire(*arguments)


def test_a_dict_and_a_set() -> None:
    """They have what those on ZooKeeper have; the namespace keeps them, and each read has a value of its own."""
    threads = zkconcurrent.namespace("local")
    threads.Dict("d", codec=zkconcurrent.JSON)["a"] = [1]
    d = threads.Dict("d", codec=zkconcurrent.JSON)
    d["a"].append(2)
    d.update({"b": (2,)}, c=3)
    assert d == {"a": [1], "b": [2], "c": 3} == d.copy() == dict(d.items())
    assert list(d.values()) == [[1], [2], 3]
    assert not d.stale
    d.ready()
    assert (d.setdefault("c", 4), d.setdefault("d", 4)) == (3, 4)
    assert (d.replace("c", 3, 4), d.replace("c", 3, 4), d.replace("x", 1), d.replace("c", 5)) == (
        True,
        False,
        False,
        True,
    )
    assert (d.remove("c", 4), d.remove("c", 5), d.remove("c", 5)) == (False, True, False)
    d["nan"] = float("nan")
    assert d.remove("nan", d["nan"])
    assert (d.pop("a"), d.pop("a", None), d.popitem()) == ([1], None, ("d", 4))
    for missing in (lambda: d["x"], lambda: d.pop("x"), lambda: d.__delitem__("x")):
        with pytest.raises(KeyError):
            missing()
    for key, error in ((5, TypeError), ("", ValueError)):
        with pytest.raises(error, match="key"):
            d[key] = 1  # type: ignore[index]
    d.clear()
    assert not d
    with pytest.raises(KeyError):
        d.popitem()
    with pytest.raises(ValueError, match="ephemeral"):
        threads.Dict("d", ephemeral=True)
    s = threads.Set("s")
    s |= {"a", "b", "c"}
    s.discard("x")
    s.remove("c")
    assert s == {"a", "b"} == threads.Set("s")
    assert s - {"a"} == {"b"}
    assert {s.pop(), s.pop()} == {"a", "b"}
    s.add("x")
    s.ready()
    s.clear()
    assert len(s) == 0
