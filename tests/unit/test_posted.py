"""The work that kazoo's threads post is all done, in order, wherever an interrupt strikes; so is the keeper woken."""

from __future__ import annotations

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
from zkconcurrent._engine.client_state import ClientState
from zkconcurrent._engine.lease import Lease
from zkconcurrent._engine.session import Dropped, Session
from zkconcurrent._kazoo.link import Link


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
    """Fault 85: the interrupted thread leaves the rest to others, and kazoo's thread does not look for it forever."""
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
        assert list(dict.fromkeys(done)) == ["a", "b", "c"], hook.where  # what was interrupted is done again
        if not hook.where:
            break
    assert line > 10


@pytest.mark.parametrize("work", ["posted", "dropped"])
def test_done_by_a_handler_at_every_line(work: str, in_thread: InThread) -> None:
    """Fault 158: a handler that interrupts the thread just before it takes the work does it; nothing is done twice."""
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
                session.dropped.append(Dropped([f"/{n}"], []))
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


def test_the_keeper_is_woken_on_top_of_a_call_that_wakes_it(in_thread: InThread) -> None:
    """Fault 47: at any line, the standard library's included, a handler or finalizer may wake the keeper, too."""
    state, lines = client_state(), list[int]()

    def handler(frame: FrameType, _event: str, _arg: Any) -> Any:
        lines.append(frame.f_lineno)
        state.wake_keeper()
        return handler

    in_thread(traced, handler, state.wake_keeper).result(5)
    assert len(lines) > 2
    assert state._wake.wait(0)


def test_a_session_that_ended_before_the_next_began() -> None:
    """Fault 158: the end of a session is noted late, after the next one's beginning: that one goes on."""
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
