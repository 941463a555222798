"""Atomic numbers on a real ZooKeeper: every change is applied once, of any thread, process or client."""

from __future__ import annotations

import signal
import struct
import sys
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import JSON, AtomicInteger, AtomicLong, OutcomeUnknownError, SharedValue
from zkconcurrent._threads.base.value_base import ValueState

BOTH = pytest.mark.parametrize(("kind", "size"), [(AtomicLong, 8), (AtomicInteger, 4)])


def receipts_of(zk: KazooClient, path: str) -> list[str]:
    """Return the names of a value's receipts."""
    return sorted(zk.get_children(f"{path}/receipts"))


@BOTH
def test_every_change(kind: Any, size: int, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """All clients see one number, in Curator's bytes; one that was never set is 0, and has no node."""
    mine, theirs = kind(zk, zk_path), kind(connect(), zk_path)
    assert "value=unknown" in repr(mine)
    assert mine.get() == 0
    assert zk.exists(zk_path) is None
    assert not mine.compare_and_set(1, 2)
    assert mine.add() == 1
    assert theirs.add(41) == 42
    assert mine.get_and_add(-50) == 42
    assert theirs.get() == -8
    assert zk.get(zk_path)[0] == (-8).to_bytes(size, "big", signed=True)
    assert (mine.compare_and_set(-8, 5), theirs.compare_and_set(-8, 6), theirs.get()) == (True, False, 5)
    assert theirs.update(lambda number: number * 3) == 15
    mine.set(7)
    assert (mine.add(0), theirs.get()) == (7, 7)
    assert zk.get(zk_path)[1].ephemeralOwner == 0
    assert len(receipts_of(zk, zk_path)) == 2
    assert f"path={zk_path!r}: value=7>" in repr(mine)


@BOTH
def test_beyond_the_width(kind: Any, size: int, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A number that has too many bits is an OverflowError, and nothing is changed."""
    number, largest = kind(zk, zk_path), 2 ** (8 * size - 1) - 1
    number.set(largest)
    refused = (
        number.add,
        lambda: number.get_and_add(1),
        lambda: number.set(largest + 1),
        lambda: number.compare_and_set(largest, largest + 1),
        lambda: number.update(lambda each: each + 1),
        lambda: number.add(-(10**5000)),  # more digits than CPython prints
    )
    for call in refused:
        with pytest.raises(OverflowError, match=f"{zk_path}' has {8 * size} bits"):
            call()
    assert kind(connect(), zk_path).get() == largest
    assert number.add(-2 * largest - 1) == -largest - 1


@pytest.mark.fault(179)
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_a_function_that_fails(zk: KazooClient, zk_path: str) -> None:
    """Its error is raised, nothing is changed, and the number can be used; one that changes the number is refused."""
    number = AtomicLong(zk, zk_path)
    number.set(0)
    with pytest.raises(ZeroDivisionError):
        number.update(lambda each: 1 // each)
    with pytest.raises(KeyboardInterrupt):
        number.update(lambda _: signal.raise_signal(signal.SIGINT) or 0)
    number.set(1)
    seen: list[int] = []
    with pytest.raises(ZeroDivisionError):  # a signal handler may have raised it, so it counts at once
        number.update(lambda old: seen.append(old) or 1 // 0)  # type: ignore[func-returns-value]
    assert seen == [1]
    with pytest.raises(RuntimeError, match="only return the new value"):
        number.update(lambda _: number.add())
    assert number.add() == 2


@pytest.mark.fault(466)
@pytest.mark.threads_only("takes a lock of threads, which would block the loop")
def test_a_function_that_waits_for_another_change(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """It takes a local lock, whose holder changes the same number: that change goes first, and both end."""
    number, shared = AtomicLong(zk, zk_path), SharedValue(zk, f"{zk_path}-value", 0, codec=JSON)
    changes: list[tuple[Callable[..., object], Callable[[], object]]] = [
        (number.update, number.add),
        (number.update, lambda: number.update(lambda old: old + 1)),
        (shared.update, lambda: shared.set(1)),
    ]
    for update, change in changes:
        local, called, seen = threading.Lock(), threading.Event(), list[int]()

        def function(
            old: int, local: threading.Lock = local, called: threading.Event = called, seen: list[int] = seen
        ) -> int:
            seen.append(old)
            called.set()
            with local:
                return old + 10

        with local:
            updating = in_thread(update, function)
            assert called.wait(20)
            in_thread(change).result(20)
        assert updating.result(20) == seen[0] + 11
        assert seen == [seen[0], seen[0] + 1]
    assert (number.get(), shared.get().value) == (22, 11)


@pytest.mark.fault(128)
def test_changes_that_come_at_any_time(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Threads that come while others take their turns, and make others' changes with their own, count each once."""
    number, interval = AtomicLong(zk, zk_path), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        adding = [in_thread(lambda: [number.add() for _ in range(50)]) for _ in range(48)]
        told = [each for result in adding for each in result.result(120)]
    finally:
        sys.setswitchinterval(interval)
    assert sorted(told) == list(range(1, 48 * 50 + 1))


@pytest.mark.fault(128)
@pytest.mark.threads_only("holds up the thread that calls, and so the loop")
def test_a_change_made_by_another_thread_meanwhile(
    zk: KazooClient, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread makes a call's change just before the call, which need not wait longer, would: it is made once."""
    number, lead_alone, late_ones = AtomicLong(zk, zk_path), ValueState._lead_alone, list[int]()
    began, gate, there, go = (threading.Event() for _ in range(4))

    def update(seen: int) -> int:
        began.set()
        assert gate.wait(20)
        return seen + 1

    def add_late() -> int:
        late_ones.append(threading.get_ident())
        return number.add()

    def late(*arguments: Any) -> Any:
        if threading.get_ident() not in late_ones:
            return None
        there.set()
        assert go.wait(20)
        return lead_alone(*arguments)

    monkeypatch.setattr(ValueState, "_lead_alone", late)
    updating = in_thread(number.update, update)
    assert began.wait(20)
    adding = in_thread(number.add)
    eventually(lambda: len(number._path_state.combiner.pending) == 2)
    stopped = in_thread(add_late)
    assert there.wait(20)
    gate.set()
    assert (updating.result(20), adding.result(20)) == (1, 2)
    go.set()
    assert (stopped.result(20), number.get()) == (3, 3)


@pytest.mark.fault(215)
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_a_signal_handler_at_every_line(zk: KazooClient, zk_path: str, fails: bool) -> None:
    """Wherever a handler strikes, in a change or as one that has failed is given up, both are made as if alone."""
    number = AtomicLong(zk, zk_path)
    number.add()
    told: list[int] = []
    failed: list[int] = []

    def fail(old: int) -> int:
        failed.append(old)
        raise TimeoutError

    for line in count(1):
        before, left, result = number.get(), line, None
        told.clear()
        failed.clear()

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith(
                ("_threads/base/value_base.py", "waiting.py", "interrupts.py", "recipes/value.py", "receipts.py")
            ):
                return trace if event == "call" and "zkconcurrent" in frame.f_code.co_filename else None
            left -= event == "line" and (not fails or bool(failed and not number._path_state.updating))
            if not left:
                sys.settrace(None)
                told.append(number.add(1000))
                return None
            return trace

        outer = sys.gettrace()
        sys.settrace(trace)
        try:
            result = number.update(fail) if fails else number.add()
        except TimeoutError:
            assert fails
        finally:
            sys.settrace(outer)
        if not told:
            break
        if fails:
            assert told == [before + 1000], line
        else:
            assert {result - before, told[0] - before} in ({1, 1001}, {1001, 1000}), line
        assert number.get() == before + 1001 - fails, line
        assert not number._path_state.combiner.pending, line
    assert line > (10 if fails else 100)


def test_destroy(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A client that knew the number before notices."""
    mine, theirs = AtomicLong(zk, zk_path), AtomicLong(connect(), zk_path)
    for number in (mine, theirs):
        number.add(5)
    mine.destroy()
    zk.create(zk_path, struct.pack(">q", 70))  # the number that they knew was written in the same version
    zk.set(zk_path, struct.pack(">q", 80))
    zk.set(zk_path, struct.pack(">q", 90))
    assert theirs.add() == 91
    assert mine.add() == 92


def test_a_receipt_that_an_operator_removes(
    connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str, in_thread: InThread
) -> None:
    """Without doubt the change is decided again; in doubt, its outcome is unknown, and the error says so."""
    number = AtomicLong(connect(hosts=proxy.hosts, **FAST), zk_path)
    number.add()
    zk.delete(f"{zk_path}/receipts/{receipts_of(zk, zk_path)[0]}")
    assert number.add() == 2
    proxy.refuse()
    with proxy.lose_answer("multi", where=lambda message: not message.heartbeat) as fault:
        adding = in_thread(number.add)
        fault.wait()
        zk.delete(f"{zk_path}/receipts/{receipts_of(zk, zk_path)[0]}")
    proxy.resume()
    assert isinstance(adding.exception(30), OutcomeUnknownError)
    assert number.add() == 4
