"""`once_per` on a real ZooKeeper: at most one start in each period, whatever dies."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from tests.conftest import Connect, InThread
from tests.helpers.contenders import children, queued
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import at_every_line
from tests.helpers.processes import Spawn, line_from, spawning, state_of, tell
from tests.helpers.proxy import Proxy
from zkconcurrent import ForeignNodeError, LockLostError, RefusedError, RLock, Turn, once_per
from zkconcurrent._engine.session import Session

SESSION = 1.5
HOUR = 3300.0
spawn = spawning("tests.integration.once_party", SESSION)


def call(client: KazooClient, path: str, seconds: float = HOUR, *, until_success: bool = False) -> Turn:
    """Call the job at a path, which does nothing; return the turn."""
    with once_per(client, path, seconds, until_success=until_success) as turn:
        return turn


def past(moment: float) -> Callable[[], bool]:
    """Return a condition: the monotonic clock is past a moment."""
    return lambda: time.monotonic() > moment


def test_what_a_turn_tells(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A skip says when and by whom the job last ran; so does the next run. The first one has none before it."""
    first = call(zk, zk_path)
    assert (bool(first), first.last, str(first)) == (True, None, f"runs {zk_path} for the first time")
    skip = call(connect(), zk_path)
    assert not skip
    assert skip.last is not None
    assert abs(skip.last.at - datetime.now(timezone.utc)) < timedelta(minutes=10)
    assert f"thread 'MainThread' of process {os.getpid()} on host" in skip.last.by
    assert str(skip).startswith(
        f"skips {zk_path}: it last ran at {skip.last.at:%Y-%m-%d %H:%M:%S} UTC, by {skip.last.by}"
    )
    assert eventually(lambda: call(zk, zk_path, 0)) == skip._replace(runs=True)
    assert children(zk, zk_path) == []


def test_functions(zk: KazooClient, zk_path: str) -> None:
    """A function that skips returns None; each path that its arguments make has periods of its own."""
    ran: list[tuple[str, int]] = []

    @once_per(zk, f"{zk_path}/{{city}}", HOUR)
    def report(city: str, n: int) -> int:
        ran.append((city, n))
        return n

    assert [report(city, n) for n, city in enumerate(("Bonn", "Bonn", "Graz", "Graz"))] == [0, None, 2, None]
    assert ran == [("Bonn", 0), ("Graz", 2)]


@pytest.mark.parametrize("until_success", [False, True], ids=["at most once", "until success"])
def test_a_job_that_fails(zk: KazooClient, connect: Connect, zk_path: str, until_success: bool) -> None:
    """Its exception comes through as it is. With `until_success` the next call runs it, else that skips."""
    wrong, goes_wrong = KeyError("wrong"), iter([True, False, False])

    def work() -> str:
        if next(goes_wrong):
            raise wrong
        return "done"

    here, there = (once_per(each, zk_path, HOUR, until_success=until_success)(work) for each in (zk, connect()))
    with pytest.raises(KeyError) as caught:
        here()
    assert caught.value is wrong
    assert (there(), here()) == ("done" if until_success else None, None)


def test_threads_of_one_process(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Threads that share a decorated function, or a block, are calls like any other; so is a call within the job."""
    block, all_there = once_per(zk, f"{zk_path}/block", HOUR), threading.Barrier(4)
    within: list[object] = []

    @once_per(zk, f"{zk_path}/decorated", HOUR)
    def job() -> bool:
        within.append(job())
        return True

    def both() -> tuple[bool, bool]:
        all_there.wait()
        with block as turn:
            return bool(turn), bool(job())

    calls = [in_thread(both) for _ in range(4)]
    assert [sum(turns) for turns in zip(*(each.result() for each in calls), strict=True)] == [1, 1]
    assert within == [None]


def test_work_that_the_call_leaves_for_later(zk: KazooClient, zk_path: str) -> None:
    """A function that turns out to be async, behind a decorator: an error, and no success."""

    async def later() -> None:
        pytest.fail("it ran")

    with pytest.raises(TypeError, match=r"later has returned a coroutine, .* once_per"):
        once_per(zk, zk_path, HOUR, until_success=True)(functools.wraps(later)(lambda: later()))()
    assert zk.exists(f"{zk_path}.once") is None


@pytest.mark.fault(330)
def test_a_late_start(connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A call that waited behind a dead machine does not cost the next period its own; older ones skip."""
    dies, late, older, following = (connect() for _ in range(4))
    with RLock(dies, zk_path):
        first = in_thread(call, late, zk_path, 0.5)
        eventually(queued(dies, zk_path, 2))
        eventually(past(time.monotonic() + 0.6))
        second = in_thread(call, older, zk_path, 0.5)
        eventually(queued(dies, zk_path, 3))
    assert first.result()
    assert not second.result()
    eventually(lambda: call(following, zk_path, 0.5))


@pytest.mark.fault(330)
def test_a_long_job(connect: Connect, zk_path: str) -> None:
    """A job that takes most of the period, and then succeeds, runs again in the next period."""
    with once_per(connect(), zk_path, 0.5, until_success=True) as turn:
        assert turn
        eventually(past(time.monotonic() + 0.6))
    zk = connect()
    eventually(lambda: call(zk, zk_path, 0.5, until_success=True))


@pytest.mark.fault(430)
def test_a_call_made_during_an_outage(connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """A call made while ZooKeeper was out of reach counts from then: it skips what others ran meanwhile."""
    zk, far = connect(), connect(hosts=proxy.hosts)
    proxy.refuse()
    proxy.cut()
    eventually(lambda: not far.connected)
    waiting = in_thread(call, far, zk_path, 0.3)
    eventually(lambda: Session.of(far).calls)
    assert call(zk, zk_path, 0.3)
    eventually(past(time.monotonic() + 0.4))
    proxy.resume()
    assert not waiting.result()


@pytest.mark.parametrize("until_success", [False, True], ids=["at most once", "until success"])
def test_a_lost_lock(
    zk: KazooClient, zk_path: str, proxy: Proxy, connect: Connect, in_thread: InThread, until_success: bool
) -> None:
    """A call whose lock is lost before the mark is written fails, and writes none; a job that was to start does not."""
    far, ran = connect(hosts=proxy.hosts), list[int]()
    mark = proxy.hold("getData", nth=2, where=lambda message: message.path == f"{zk_path}.once")
    calling = in_thread(once_per(far, zk_path, HOUR, until_success=until_success)(lambda: ran.append(1)))
    mark.wait()
    zk.delete(f"{zk_path}/{children(zk, zk_path)[0]}")
    mark.release()
    with pytest.raises(LockLostError):
        calling.result()
    assert ran == [1] * until_success
    assert zk.exists(f"{zk_path}.once") is None


def test_what_is_no_mark(zk: KazooClient, zk_path: str) -> None:
    """Another program's node in the mark's place, and one that this client may not write: the error names the mark."""
    mark = f"{zk_path}.once"
    zk.create(mark, b"7 set", makepath=True)
    with pytest.raises(ForeignNodeError, match="7 set") as foreign:
        call(zk, zk_path)
    zk.delete(mark)
    zk.create(mark, b'{"waited": 7200}')  # of a run that was called two hours ago
    zk.set_acls(mark, [make_acl("world", "anyone", read=True)])
    with pytest.raises(RefusedError, match="NoAuth") as refused:
        call(zk, zk_path)
    assert foreign.value.path == refused.value.path == mark
    assert children(zk, zk_path) == []


def test_an_interrupt_anywhere(zk: KazooClient, zk_path: str) -> None:
    """An interrupt at any line leaves no hold."""
    job = once_per(zk, zk_path, 0)(lambda: None)
    for hook in at_every_line("_threads/once_per.py", "_threads/synchronized.py", "_recipes/once.py"):
        with suppress(KeyboardInterrupt), hook:
            job()
        assert RLock(zk, zk_path).hold_count() == 0, hook.where
    assert hook.line > 30
    eventually(queued(zk, zk_path, 0))


def hit(process: subprocess.Popen[str], stops: bool, until: Callable[[], bool]) -> None:
    """Kill a process, or stop it; wait until a condition is true."""
    process.send_signal(signal.SIGSTOP if stops else signal.SIGKILL)
    eventually(lambda: state_of(process.pid) in "TZX")
    eventually(until)


def finish(process: subprocess.Popen[str]) -> list[str]:
    """Close a party's input, and return all that it says up to its end."""
    return process.communicate()[0].split()


@pytest.mark.long
@pytest.mark.fault(430)
@pytest.mark.parametrize(
    ("stage", "stops"),
    [("waiting", True), ("marking", True), ("marked", False), ("working", True)],
)
def test_no_period_has_two_starts(zk: KazooClient, zk_path: str, spawn: Spawn, stage: str, stops: bool) -> None:
    """Of three processes one is killed at a stage of its call, or stopped until its session is over: one start.

    There is none if that process had written its mark. The stop is longer than the period: a call counts from when it
    was made, not from when it queued anew.
    """
    period = 0.5 if stops else HOUR
    victim, *others = spawn(period, stage), spawn(period, "-"), spawn(period, "-")
    assert [line_from(each) for each in (victim, *others)] == ["ready"] * 3
    with RLock(zk, zk_path):
        tell(victim)
        eventually(queued(zk, zk_path, 2))
        for each in others:
            tell(each)
        eventually(queued(zk, zk_path, 4))
        called = time.monotonic()
        if stage == "waiting":
            hit(victim, stops, until=queued(zk, zk_path, 3))
    said = []
    if stage != "waiting":
        said += [line_from(victim)] if stage == "working" else []
        assert line_from(victim) == stage
        hit(victim, stops, until=lambda: True)
    said += [line for each in others for line in finish(each)]
    if stops:
        eventually(lambda: not children(zk, zk_path))
        eventually(past(called + period))
        victim.send_signal(signal.SIGCONT)
        if stage != "waiting":
            tell(victim)
        said += finish(victim)
    assert said.count("started") == (stage != "marked"), said
