"""A thread, and a greenlet, has a number of its own for its life, which no other one is given after it."""

from __future__ import annotations

import threading

from tests.helpers.processes import run_python
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
