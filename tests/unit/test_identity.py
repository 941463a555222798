"""A thread, and a greenlet, has a number of its own for its life, which no other one is given after it."""

from __future__ import annotations

import re
import sys
import threading
from functools import partial
from types import FrameType
from typing import Any

import pytest

from tests.helpers.processes import run_python
from zkconcurrent._runtime import identity as _identity
from zkconcurrent._runtime.identity import ended, ident
from zkconcurrent._runtime.identity import of_thread as me


def test_threads() -> None:
    """Each call in a thread gives one number, and another thread's differs, although its `get_ident` may not."""
    assert me() == me()
    assert ident(me()) == threading.get_ident()
    seen: list[int] = []
    for _ in range(10):
        thread = threading.Thread(target=lambda: seen.extend([me(), me()]))
        thread.start()
        thread.join()
    assert len(set(seen)) == 10
    assert all(ended(each) for each in seen)
    assert not ended(me())


def test_greenlets() -> None:
    """The same is true of greenlets, where gevent has patched the program."""
    program = """
from gevent import monkey; monkey.patch_all()
import gc, gevent
from zkconcurrent._runtime.identity import ended, of_thread as me
seen = []
for _ in range(10):
    gevent.spawn(lambda: seen.extend([me(), me()])).join()
assert len(set(seen)) == 10
assert me() not in seen
gevent.spawn(int).join()
gc.collect()
assert sum(ended(each) for each in seen) >= 18  # gevent may keep the last one for a while
assert not ended(me())
"""
    run_python("-c", program)


@pytest.mark.parametrize("stop", range(1, 8))
def test_asked_while_it_is_made(stop: int) -> None:
    """A signal handler or a finalizer that asks while the number is being made is told the same number."""
    me = partial(getattr, _identity._Owner(), "number")
    nested: list[int] = []
    lines = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:  # noqa: ARG001
        nonlocal lines
        if frame.f_code.co_name == "__get__" and frame.f_code.co_filename == _identity.__file__:
            lines += 1
            if lines == stop:
                nested.append(me())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        number = me()
    finally:
        sys.settrace(before)
    assert nested == [number]
    assert me() == number
    assert not ended(number)


@pytest.mark.fault(471)
def test_a_host_name_that_is_not_utf_8() -> None:
    """Nodes tell it escaped; so a program can print it, and the default id of a candidate has it."""
    program = """
import os, socket
socket.gethostname = lambda: os.fsdecode(b"h\\xe9te")
import zkconcurrent
with zkconcurrent.connect("memory:") as zk:
    lock, election = zkconcurrent.Lock(zk, "/lock"), zkconcurrent.Election(zk, "/election")
    with lock, election.lead():
        print(lock.owner().host, election.leader().id)
"""
    ended = run_python("-c", program)
    assert re.fullmatch(r"h\\xe9te \d+@h\\xe9te#[0-9a-f]{8}\n", ended.stdout), ended
