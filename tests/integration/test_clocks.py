"""A clock that a test replaces is not the library's: no hold ends by it, and every timeout does."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from freezegun import freeze_time

import zkconcurrent
from tests.conftest import InThread
from tests.helpers.eventually import eventually
from tests.helpers.processes import run_python
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

MONTH = 31 * 86400.0
BEGIN = datetime.datetime(2020, 1, 1)

Move = Callable[[float], object]


@contextmanager
def mocked() -> Iterator[Move]:
    """Replace the functions of `time`; yield what moves their clocks by some seconds."""
    now = [1e6]
    clocks = {"monotonic": lambda: now[0], "time": lambda: now[0] + 1.5e9}
    with mock.patch.multiple("time", **clocks):
        yield lambda seconds: now.append(now.pop() + seconds)


@contextmanager
def frozen() -> Iterator[Move]:
    """Have freezegun replace them, and each name of a module that is one of them."""
    with freeze_time(BEGIN) as clock:
        yield lambda seconds: clock.tick(datetime.timedelta(seconds=seconds))


ways = pytest.mark.parametrize("replaced", [mocked, frozen])


@pytest.mark.fault(507)
@ways
def test_timeouts_and_delays(replaced: Callable[[], Iterator[Move]], in_thread: InThread) -> None:
    """All end in time: within the block of the test that has replaced the clocks, and in later tests."""
    with replaced():
        names = zkconcurrent.namespace(zkconcurrent.connect("memory:"), "/clocks")
        held = names.Lock("held")
        assert held.acquire(timeout=5)
        assert not in_thread(names.Lock("held").acquire, timeout=0.1).result(10)
    assert not in_thread(names.Lock("held").acquire, timeout=0.1).result(10)
    assert not in_thread(names.Event("event").wait, 0.1).result(10)
    with pytest.raises(zkconcurrent.Empty):
        in_thread(names.Queue("queue").get, timeout=0.1).result(10)
    later = names.DelayQueue("later", codec=zkconcurrent.TEXT)
    later.put("due", delay=0.1)
    assert in_thread(later.get, timeout=5).result(10) == "due"
    with replaced() as move:
        later.put("due, too", delay=0.1)
        move(-MONTH)
        assert in_thread(later.get, timeout=5).result(10) == "due, too"
    held.release()
    names.client.stop()


@pytest.mark.fault(507)
def test_the_first_use() -> None:
    """So it is, too, where the clocks are replaced while a program first uses the library."""
    code = """
import freezegun, zkconcurrent
with freezegun.freeze_time("2020-01-01"):
    zkconcurrent.connect("memory:").stop()
one, other = zkconcurrent.connect("memory:"), zkconcurrent.connect("memory:")
with zkconcurrent.Lock(one, "/held"):
    assert not zkconcurrent.Lock(other, "/held").acquire(timeout=0.1)
later = zkconcurrent.DelayQueue(one, "/later", codec=zkconcurrent.TEXT)
later.put("due", delay=0.1)
assert later.get(timeout=5) == "due"
one.stop(), other.stop()
"""
    run_python("-c", code)


@pytest.mark.fault(507)
@ways
def test_holds(replaced: Callable[[], Iterator[Move]], zookeeper: Server, zk_path: str) -> None:
    """A hold lasts through months of a replaced clock, and is renewed while that stands."""
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}?timeout=6") as client, replaced() as move:
        lock, heartbeat = zkconcurrent.Lock(client, zk_path), Session.of(client).heartbeat
        with lock:
            for months in (12, -24):
                move(months * MONTH)
                last = heartbeat._last
                eventually(lambda last=last: heartbeat._last > last)
            assert lock.fencing_token
        assert not lock.lost.is_set()
