"""The work that kazoo's threads post is all done, in order, wherever an interrupt strikes; so is the keeper woken."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

from tests.conftest import InThread
from tests.helpers.interrupts import InterruptAt
from zkconcurrent._engine.client_state import ClientState
from zkconcurrent._kazoo.link import Link
from zkconcurrent._kazoo.reply import HandledReply

pytestmark = pytest.mark.fault(85)


def client_state() -> ClientState:
    """Return the state of a client that is never connected."""
    return ClientState(Link(KazooClient()))


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
        with contextlib.suppress(KeyboardInterrupt), hook:
            state.run_posted()
        in_thread(state.post, act("c")).result(5)
        assert not state.posted, hook.where
        assert list(dict.fromkeys(done)) == ["a", "b", "c"], hook.where  # the interrupted step is done again
        if not hook.where:
            break
    assert line > 5


def test_an_alarm_strikes_at_every_line(in_thread: InThread) -> None:
    """The error of a signal handler is none of the work's: it is raised, and the work is done again."""
    for line in itertools.count(1):
        state, done = client_state(), list[str]()

        def handled(name: str, _: object, done: list[str] = done) -> None:
            done.append(name)

        replies = [HandledReply(functools.partial(handled, name), state.post, state.wake_keeper) for name in "ab"]
        hook = InterruptAt(line, error=TimeoutError)
        with state.lock:
            for reply in replies:
                in_thread(reply.set).result(5)
        with contextlib.suppress(TimeoutError), hook:
            state.run_posted()
        assert all(name in done for name, reply in zip("ab", replies, strict=True) if reply.done), hook.where
        in_thread(state.run_posted).result(5)
        assert not state.posted, hook.where
        assert list(dict.fromkeys(done)) == ["a", "b"], hook.where
        assert all(reply.done for reply in replies), hook.where
        if not hook.where:
            break
    assert line > 10


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
