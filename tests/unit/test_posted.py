"""The work that kazoo's threads post is all done, in order, wherever an interrupt strikes; so is the keeper woken."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from kazoo.client import KazooClient

from tests.conftest import InThread
from tests.helpers.interrupts import InterruptAt
from zkconcurrent._engine.client_state import ClientState
from zkconcurrent._kazoo.link import Link


def client_state() -> ClientState:
    """Return the state of a client that is never connected."""
    return ClientState(Link(KazooClient()))


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

    def wake() -> None:
        sys.settrace(handler)
        try:
            state.wake_keeper()
        finally:
            sys.settrace(None)

    in_thread(wake).result(5)
    assert len(lines) > 2
    assert state._wake.wait(0)
