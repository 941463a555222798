"""Atomic numbers on a real ZooKeeper: every change is applied once, of any thread, process or client."""

from __future__ import annotations

import inspect
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import finalizing
from tests.helpers.processes import Spawn, line_from, spawning
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    JSON,
    AtomicInteger,
    AtomicLong,
    ForeignNodeError,
    Lock,
    OutcomeUnknownError,
    Queue,
    SharedValue,
)
from zkconcurrent._threads.base import value_base

BOTH = pytest.mark.parametrize(("kind", "size"), [(AtomicLong, 8), (AtomicInteger, 4)])


spawn = spawning("tests.integration.atomic_party", 4.0)


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
        lambda: number.add(-2 * largest - 2),
        lambda: number.set(largest + 1),
        lambda: number.compare_and_set(largest, largest + 1),
        lambda: number.update(lambda each: each + 1),
        lambda: number.add(10**30),
        lambda: number.set(10**5000),  # more digits than CPython prints
        lambda: number.add(-(10**5000)),
    )
    for call in refused:
        with pytest.raises(OverflowError, match=f"{zk_path}' has {8 * size} bits"):
            call()
    assert kind(connect(), zk_path).get() == largest
    assert number.add(-2 * largest - 1) == -largest - 1
    with pytest.raises(OverflowError):
        number.add(-1)


def test_bad_arguments(zk: KazooClient, zk_path: str) -> None:
    """Numbers are ints, and the function of an update is called by nobody else and returns one."""
    number = AtomicLong(zk, zk_path)
    for wrong in (1.0, "1", None):
        for call in (number.set, number.add, number.get_and_add, lambda n: number.compare_and_set(0, n)):
            with pytest.raises(TypeError, match="integer"):
                call(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="integer"):
            number.update(lambda _, wrong=wrong: wrong)  # type: ignore[misc]
    with pytest.raises(TypeError, match="func must be callable"):
        number.update(1)  # type: ignore[arg-type]
    assert number.add(True) == 1


@pytest.mark.fault(179)
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_a_function_that_fails(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Its error is raised, nothing is changed, and the number can be used; one that changes the number is refused."""
    number = AtomicLong(zk, zk_path)
    number.set(0)
    with pytest.raises(ZeroDivisionError):
        number.update(lambda each: 1 // each)
    with pytest.raises(KeyboardInterrupt):
        number.update(lambda _: signal.raise_signal(signal.SIGINT) or 0)
    number.set(1)
    seen: list[int] = []
    with pytest.raises(ZeroDivisionError):  # fault 179: a signal handler may have raised it, so it counts at once
        number.update(lambda old: seen.append(old) or 1 // 0)  # type: ignore[func-returns-value]
    assert seen == [1]
    AtomicLong(connect(), zk_path).set(2)
    with pytest.raises(ZeroDivisionError):
        number.update(lambda old: seen.append(old) or (1 // 0 if old < 3 else 3))  # type: ignore[func-returns-value]
    assert seen == [1, 1, 2]  # its remembered value is not the present one
    number.set(0)
    with pytest.raises(RuntimeError, match="only return the new value"):
        number.update(lambda _: number.add())
    assert number.add() == 1


@pytest.mark.fault(366)
@pytest.mark.threads_only("Python makes another error of StopIteration in a coroutine")
def test_a_function_that_raises_stop_iteration(zk: KazooClient, zk_path: str) -> None:
    """The caller gets that error, as from any call; no generator of the library makes another of it."""
    number, shared = AtomicLong(zk, f"{zk_path}/n"), SharedValue(zk, f"{zk_path}/v", b"x")
    none: Iterator[Any] = iter(())
    for fails in (
        lambda: number.update(lambda _: next(none)),
        lambda: shared.update(lambda _: next(none)),
        lambda: shared.wait_for(lambda _: next(none)),
    ):
        with pytest.raises(StopIteration):
            fails()
    assert (number.add(), shared.get().value) == (1, b"x")


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


@pytest.mark.threads_only("leaves an object of the path to the loop's last error")
def test_what_is_no_numbers(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Other data, other children, a node that does not last: an error that names the path, and nothing is changed."""
    number = AtomicLong(connect(), zk_path)
    for data in (b"12", b"1234567", b"123456789"):
        zk.ensure_path(zk_path)
        zk.set(zk_path, data)
        for call in (number.get, number.add, lambda: number.set(1), number.destroy):
            with pytest.raises(ForeignNodeError, match=zk_path):
                call()
        assert zk.get(zk_path)[0] == data
    zk.delete(zk_path)
    with Lock(zk, zk_path), pytest.raises(ForeignNodeError, match=r"persistent|child"):
        number.add()
    zk.delete(zk_path, recursive=True)
    Queue(zk, zk_path).put(b"x")
    with pytest.raises(ForeignNodeError, match=zk_path):
        number.add()
    zk.delete(zk_path, recursive=True)
    zk.create(zk_path, b"")  # as Curator, no data is 0
    assert number.add() == 1
    with pytest.raises(ValueError, match="for AtomicLong already; use another path for"):
        AtomicInteger(number.client, zk_path)
    with pytest.raises(ForeignNodeError, match="has 4 bytes"):
        AtomicInteger(zk, zk_path).add()


def test_threads_of_a_process_share_writes(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Changes that gather while one is under way go in one write, in their order."""
    number = AtomicLong(connect(hosts=proxy.hosts, **FAST), zk_path)
    number.add()
    state, version = number._path_state, zk.get(zk_path)[1].version
    proxy.stall()
    results = []
    for n in range(16):
        results.append(in_thread(number.add))
        eventually(lambda: sum(len(turn.pending) for turn in (state.turn, *state.loops.values())) == n + 1)  # noqa: B023
    proxy.resume()
    assert [result.result(60) for result in results] == list(range(2, 18))
    assert zk.get(zk_path)[1].version - version == 2
    assert len(receipts_of(zk, zk_path)) == 1


@pytest.mark.fault(94)
@pytest.mark.threads_only("is of other processes, which have threads")
def test_a_process_that_is_killed(zk: KazooClient, spawn: Spawn, zk_path: str) -> None:
    """Every answered add is counted; the add that was under way is counted once at most; others go on."""
    process = spawn()
    number = AtomicLong(zk, zk_path)
    assert [line_from(process) for _ in range(40)] == ["added"] * 40
    process.kill()
    assert process.stdout is not None
    rest = process.stdout.read().splitlines()  # not `communicate`, which leaves out what was read ahead
    answered = 40 + len([line for line in rest if line == "added"])
    assert number.get() - answered in (0, 1)
    assert number.add() - answered in (1, 2)


@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_a_signal_handler_does_not_queue(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A handler that interrupts a change in the queue makes its own at once: the queue may wait for the one below."""
    number, place = AtomicLong(connect(), zk_path), f"{zk_path}/lock/_c_{'0' * 36}-lock-"
    number.add()
    first = zk.create(place, ephemeral=True, sequence=True, makepath=True)
    told: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: told.append(number.add(100)))
    main = threading.main_thread().ident
    assert main is not None

    def strike() -> None:
        try:
            eventually(lambda: len(zk.get_children(f"{zk_path}/lock")) == 2)
            signal.pthread_kill(main, signal.SIGUSR1)
            eventually(lambda: bool(told))
        finally:
            zk.delete(first)

    try:
        striking = in_thread(strike)
        results = [number.add() for _ in range(10)]
        striking.result(30)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (results[-1], len(told), number.get()) == (111, 1, 111)


@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_a_finalizer_on_the_settling_thread(connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """One that changes the number does not wait for the change that this thread settles."""
    number, told = AtomicLong(connect(hosts=proxy.hosts, **FAST), zk_path), list[int]()
    number.add()
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        held.wait()
        signal.pthread_kill(main, signal.SIGINT)

    with finalizing("_recipes/receipts.py", lambda: told.append(number.add(100))):
        with proxy.hold("multi") as held:
            interrupting = in_thread(interrupt)
            with pytest.raises(KeyboardInterrupt):
                number.add()
            interrupting.result(20)
        eventually(lambda: not number._path_state._left)
    assert told in ([101], [102])
    assert number.add() == number.get() >= 102


def test_changes_that_come_at_any_time(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Threads that come while others take their turns disturb nobody."""
    number, interval = AtomicLong(zk, zk_path), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        adding = [in_thread(lambda: [number.add() for _ in range(200)]) for _ in range(48)]
        told = [each for result in adding for each in result.result(120)]
    finally:
        sys.setswitchinterval(interval)
    assert sorted(told) == list(range(1, 48 * 200 + 1))


@pytest.mark.fault(128)
@pytest.mark.threads_only("holds up the thread that calls, and so the loop")
def test_a_change_made_by_another_thread_meanwhile(
    zk: KazooClient, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may apply a call's change at any line of the call: the change is made once, and told."""
    number = AtomicLong(zk, zk_path)
    state = number._path_state
    monkeypatch.setattr(value_base, "FUNCTION_PATIENCE", 60.0)
    lines, first = inspect.getsourcelines(value_base.ValueState.changing)
    sleeps = first + next(at for at, line in enumerate(lines) if "yield FUNCTION_PATIENCE" in line)
    expected = 0
    for stop in count(1):
        began, gate, there, go, left = (*(threading.Event() for _ in range(4)), stop)

        def update(seen: int, began: threading.Event = began, gate: threading.Event = gate) -> int:
            began.set()
            assert gate.wait(20)
            return seen + 1

        def trace(frame: Any, event: str, _: Any, there: threading.Event = there, go: threading.Event = go) -> Any:
            nonlocal left
            code = frame.f_code
            calls = event == "call" and code.co_name in ("_lead", "_lead_alone")
            if calls or (event == "line" and code.co_name == "changing"):
                left -= 1
                if not left or frame.f_lineno == sleeps:
                    there.set()
                if not left:
                    assert go.wait(20)
            return trace if code.co_name == "changing" or "zkconcurrent" not in code.co_filename else None

        def add(trace: Any = trace, there: threading.Event = there) -> int:
            sys.settrace(trace)
            try:
                return number.add()
            finally:
                sys.settrace(None)
                there.set()

        updating = in_thread(number.update, update)
        assert began.wait(20)
        adding = in_thread(number.add)
        eventually(lambda: len(state.turn.pending) == 2)
        stopped = in_thread(add)
        assert there.wait(20)
        gate.set()
        told = [updating.result(20), adding.result(20)]
        go.set()
        assert sorted([*told, stopped.result(20)]) == [expected + 1, expected + 2, expected + 3], stop
        expected += 3
        if left > 0:
            break
    assert stop > 5
    assert number.get() == expected


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
        assert not number._path_state.turn.pending, line
    assert line > (10 if fails else 100)


def test_destroy(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """All nodes go; the next use begins at 0, and a client that knew the number before notices."""
    mine, theirs = AtomicLong(zk, zk_path), AtomicLong(connect(), zk_path)
    for number in (mine, theirs):
        number.add(5)
    mine.destroy()
    mine.destroy()
    assert zk.exists(zk_path) is None
    zk.create(zk_path, struct.pack(">q", 70))  # the number that they knew was written in the same version
    zk.set(zk_path, struct.pack(">q", 80))
    zk.set(zk_path, struct.pack(">q", 90))
    assert theirs.add() == 91
    assert mine.add() == 92
    zk.create(f"{zk_path}/lock/_c_{'0' * 36}-lock-", sequence=True, makepath=True)
    with pytest.raises(RuntimeError, match="in use"):
        mine.destroy()


@pytest.mark.fault(145)
def test_a_node_below_a_receipt(zk: KazooClient, zk_path: str) -> None:
    """`destroy` names it, and does not try for ever."""
    number = AtomicLong(zk, zk_path)
    number.add()
    (receipt,) = zk.get_children(f"{zk_path}/receipts")
    zk.create(f"{zk_path}/receipts/{receipt}/below")
    with pytest.raises(ForeignNodeError, match=f"{receipt}.*below|below.*{receipt}"):
        number.destroy()
    zk.delete(f"{zk_path}/receipts/{receipt}/below")
    number.destroy()
    assert zk.exists(zk_path) is None


def test_a_receipt_that_an_operator_removes(connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str) -> None:
    """Without doubt the change is decided again; in doubt, its outcome is unknown, and the error says so."""
    number = AtomicLong(connect(hosts=proxy.hosts, **FAST), zk_path)
    number.add()
    zk.delete(f"{zk_path}/receipts/{receipts_of(zk, zk_path)[0]}")
    assert number.add() == 2
    proxy.refuse()
    try:
        with proxy.lose_answer("multi") as fault:
            adding: Any = []
            thread = threading.Thread(target=lambda: adding.append(_outcome(number.add)))
            thread.start()
            fault.wait()
            zk.delete(f"{zk_path}/receipts/{receipts_of(zk, zk_path)[0]}")
    finally:
        proxy.resume()
    thread.join(30)
    assert isinstance(adding[0], OutcomeUnknownError)
    assert number.add() == 4


def _outcome(call: Any) -> Any:
    try:
        return call()
    except Exception as error:
        return error
