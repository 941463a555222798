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
from tests.helpers.processes import run_python
from zkconcurrent._runtime.clock import boot_clock
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
@pytest.mark.parametrize("url", ["memory:", "local"])
def test_timeouts_and_delays(replaced: Callable[[], Iterator[Move]], url: str, in_thread: InThread) -> None:
    """All end in time: within the block of the test that has replaced the clocks, and in later tests."""

    def make() -> zkconcurrent.Namespace:
        return zkconcurrent.namespace("local" if url == "local" else zkconcurrent.connect(url), "/clocks")

    with replaced():
        names = make()
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
        with names.Lock("free"):
            pass
    held.release()
    if url != "local":
        names.client.stop()


@pytest.mark.fault(507)
@pytest.mark.parametrize(
    "replaced",
    ["mock.patch.multiple('time', monotonic=lambda: 1e6, time=lambda: 1e9)", "freezegun.freeze_time('2020-01-01')"],
    ids=["mocked", "frozen"],
)
def test_the_first_use(replaced: str) -> None:
    """So it is, too, where the clocks are replaced while a program first uses the library."""
    code = f"""
from unittest import mock
import freezegun, zkconcurrent
with {replaced}:
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
    """A hold lasts through months of a replaced clock, and through session timeouts while that stands."""
    timeout = 2.0
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}?timeout={timeout}") as client, replaced() as move:
        lock = zkconcurrent.Lock(client, zk_path)
        with lock:
            for months in (1, 12, -24):
                move(months * MONTH)
                assert not lock.lost.wait(0.05)
            began = boot_clock()
            while boot_clock() < began + 1.5 * timeout:
                assert not lock.lost.wait(0.05)
            assert lock.fencing_token
        assert not lock.lost.is_set()


@ways
def test_dates(replaced: Callable[[], Iterator[Move]]) -> None:
    """The times that the library reports and writes are the true ones."""
    true = datetime.datetime.now(datetime.timezone.utc)
    with zkconcurrent.connect("memory:") as client, replaced(), zkconcurrent.Lock(client, "/dates"):
        [hold] = [hold for each in zkconcurrent.inspect().clients for hold in each.holds if hold.path == "/dates"]
    assert abs((hold.since - true).total_seconds()) < 60
