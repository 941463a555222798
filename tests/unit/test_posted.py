"""The work that kazoo's threads post is all done, in order, wherever an interrupt strikes; so is the keeper woken."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import InThread
from tests.helpers.interrupts import InterruptAt
from tests.helpers.recursion import with_frames_left
from zkconcurrent._engine.client_state import ClientState
from zkconcurrent._engine.session import LeftTickets, Session
from zkconcurrent._kazoo.link import Link
from zkconcurrent._kazoo.replies import HandledReply
from zkconcurrent._protocol.lease import Lease
from zkconcurrent._runtime.interrupts import check_depth

pytestmark = pytest.mark.fault(85)


def client_state() -> ClientState:
    """Return the state of a client that is never connected."""
    return ClientState(Link(KazooClient()))


def traced(trace: Callable[..., Any], do: Callable[[], object]) -> None:
    """Do something while a function traces it."""
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)


def test_interrupted_at_every_line(in_thread: InThread) -> None:
    """The interrupted thread leaves the rest to others, and kazoo's thread does not look for it forever."""
    for line in itertools.count(1):
        state, done = client_state(), list[str]()

        def act(name: str, done: list[str] = done) -> Callable[[], None]:
            return lambda: done.append(name)

        with state.lock:
            for name in "ab":
                in_thread(state.post, act(name)).result(5)
        assert done == []
        hook = InterruptAt(line)
        try:
            with hook:
                state.run_posted()
        except KeyboardInterrupt:
            pass
        in_thread(state.post, act("c")).result(5)
        assert not state.posted, hook.where
        assert list(dict.fromkeys(done)) == ["a", "b", "c"], hook.where  # the interrupted step is done again
        if not hook.where:
            break
    assert line > 10


@pytest.mark.parametrize("where", ["posted", "at once"])
def test_an_alarm_strikes_at_every_line(where: str, in_thread: InThread) -> None:
    """The error of a signal handler is none of the work's: it is raised, and the work is done again."""
    for line in itertools.count(1):
        state, done = client_state(), list[str]()

        def handled(name: str, _: object, done: list[str] = done) -> None:
            done.append(name)

        replies = [HandledReply(functools.partial(handled, name), state.wake_keeper, state.post) for name in "ab"]
        hook = InterruptAt(line, error=TimeoutError)
        if where == "posted":
            with state.lock:
                for reply in replies:
                    in_thread(reply.set).result(5)
        with contextlib.suppress(TimeoutError), hook:
            if where == "posted":
                state.run_posted()
            else:
                replies[0].set_exception(RuntimeError())
        assert all(name in done for name, reply in zip("ab", replies, strict=True) if reply.done), hook.where
        if where == "at once":
            if not done and not state.posted:
                replies[0].set_exception(RuntimeError())  # it was interrupted before it was posted
            replies[1].set()
        in_thread(state.run_posted).result(5)
        assert not state.posted, hook.where
        assert list(dict.fromkeys(done)) == ["a", "b"], hook.where
        assert all(reply.done for reply in replies), hook.where
        if not hook.where:
            break
    assert line > 10


@pytest.mark.fault(163)
def test_near_the_recursion_limit(in_thread: InThread) -> None:
    """A thread that can't call so deep leaves the work to another one."""
    for margin in itertools.count(3):
        state, done = client_state(), list[int]()
        reply = HandledReply(lambda _: (check_depth(20), done.append(1)), post=state.post)  # noqa: B023
        with state.lock:
            in_thread(reply.set).result(5)
        try:
            with_frames_left(margin, state.run_posted)
        except RecursionError:
            assert not done
            in_thread(state.run_posted).result(5)
        else:
            break
        assert done == [1], margin
        assert reply.done
    assert margin > 20


def test_work_that_fails_by_itself() -> None:
    """Work that fails each time keeps nobody from the rest: the second failure is logged."""
    state, done = client_state(), list[int]()
    state.posted.extend([lambda: done.append(1 // 0), lambda: done.append(1)])
    with pytest.raises(ZeroDivisionError):
        state.run_posted()
    state.run_posted()
    assert done == [1]
    assert not state.posted
    assert "ZeroDivisionError" in repr(state.unlogged)


@pytest.mark.fault(158)
@pytest.mark.parametrize("work", ["posted", "dropped"])
def test_done_by_a_handler_at_every_line(work: str, in_thread: InThread) -> None:
    """A handler that interrupts the thread just before it takes the work does it; nothing is done twice."""
    for line in itertools.count(1):
        session, done = Session.of(KazooClient()), list[int]()
        do = {"posted": session.run_posted, "dropped": session.sweep}[work]
        left = [line]

        def strike(_frame: FrameType, event: str, _arg: Any, left: list[int] = left, do: Any = do) -> Any:
            left[0] -= event == "line"
            if left[0] == 0:
                do()
            return strike

        with session.lock:  # kept, so that the keeper does nothing of it
            for n in range(2):
                in_thread(session.post, functools.partial(done.append, n)).result(5)
                session.dropped.append(LeftTickets([f"/{n}"], []))
            traced(strike, do)
            assert work != "posted" or (sorted(done) == [0, 1] and not session.posted)
            assert work != "dropped" or not session.dropped
        if left[0] > 0:
            break
    assert line > 10


def test_posted_on_top(in_thread: InThread) -> None:
    """Work may post more, as a request that fails at once does: it is done on top of the other, which runs once."""
    state, done = client_state(), list[str]()

    def below() -> None:
        done.append("began")
        state.post(lambda: done.append("on top"))
        done.append("ended")

    with state.lock:
        in_thread(state.post, below).result(5)
    in_thread(state.run_posted).result(5)
    assert done == ["began", "on top", "ended"]
    assert not state.posted


@pytest.mark.fault(47)
def test_the_keeper_is_woken_on_top_of_a_call_that_wakes_it(in_thread: InThread) -> None:
    """At any line, the standard library's included, a handler or finalizer may wake the keeper, too."""
    state, lines = client_state(), list[int]()

    def handler(frame: FrameType, _event: str, _arg: Any) -> Any:
        lines.append(frame.f_lineno)
        state.wake_keeper()
        return handler

    in_thread(traced, handler, state.wake_keeper).result(5)
    assert len(lines) > 2
    assert state.keepers_sleep.wait(0)


@pytest.mark.fault(158)
def test_a_session_that_ended_before_the_next_began() -> None:
    """The end of a session is noted late, after the next one's beginning: that one goes on."""
    session = Session.of(KazooClient())
    first, next_one = Lease(1), Lease(2)
    with session.lock:
        session._begin(first)
        first.ended()
        session._begin(next_one)
        session._ended(first)
        assert session.registry.session == 2
        next_one.ended()
        session._ended(next_one)
        assert session.registry.session is None
