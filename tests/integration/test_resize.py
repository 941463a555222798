"""`resize()`, `available()` and `value=None` of semaphores, on a real ZooKeeper."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import children, permits_awaited
from tests.helpers.eventually import eventually
from zkconcurrent import BoundedSemaphore, ForeignNodeError, Semaphore

both = pytest.mark.parametrize("kind", [Semaphore, BoundedSemaphore])


@both
def test_the_number_that_is_there(kind: type[Semaphore], zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """`value=None` takes it, whatever it is; where there is none, the first use is an error, and makes nothing."""
    taking = kind(connect(), zk_path, None)
    for call in (taking.acquire, taking.available, taking.locked, lambda: taking.resize(3)):
        with pytest.raises(ValueError, match=f"no semaphore {zk_path!r}"):
            call()
    assert not children(zk, zk_path)
    with kind(zk, zk_path, 3):
        taking.acquire(permits=2)
        assert not taking.acquire(timeout=0)
        assert taking.available() == 0
        taking.release(2)
    other = kind(connect(), zk_path, 4)
    for call in (other.acquire, lambda: other.resize(5)):
        with pytest.raises(ValueError, match="value=3, not value=4"):
            call()


@both
def test_more(kind: type[Semaphore], zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Waiters of all processes get in as far as the permits reach; an object with the old number works on."""
    mine, theirs = kind(zk, zk_path, 1), kind(connect(), zk_path, 1)
    assert mine.acquire()
    waiting = [in_thread(theirs.acquire) for _ in range(4)]
    eventually(permits_awaited(zk, zk_path, 4))
    kind(connect(), zk_path, None).resize(3)
    eventually(lambda: sum(each.done() for each in waiting) == 2)
    assert mine.available() == 0
    assert zk.get(f"{zk_path}/permits")[0] == b"3 resized"
    mine.resize(5)
    assert all(each.result(20) for each in waiting)
    theirs.release(4)
    mine.release()
    eventually(lambda: kind(connect(), zk_path, 7).available() == 5)  # no value is compared any more
    assert mine.acquire(permits=4, timeout=20)  # more than its value
    mine.release(4)


@pytest.mark.fault(74)
def test_too_few_by_another_clients_number(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """To ask for more permits than a resize has left is refused, or warned of; with none left, it waits."""
    bounded, plain = BoundedSemaphore(zk, zk_path, 3), Semaphore(connect(), zk_path, None)
    other = Semaphore(connect(), zk_path, None)
    for each in (bounded, plain):
        with each:
            pass
    other.resize(2)
    for blocking in (True, False):
        with pytest.raises(ValueError, match="at most value=2"):
            bounded.acquire(blocking, permits=3)
    with pytest.warns(RuntimeWarning, match=r"3 permits.*has 2"):
        assert not plain.acquire(timeout=0.2, permits=3)
    assert not children(zk, f"{zk_path}/locks")
    other.resize(0)
    waiting = in_thread(bounded.acquire)
    eventually(permits_awaited(zk, zk_path, 1))
    assert not bounded.acquire(blocking=False)
    other.resize(1)
    assert waiting.result(20)
    bounded.release()


def test_added_permits_are_among_them(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The number counts those that were added; those that are added later come on top."""
    mine, theirs = Semaphore(zk, zk_path, 1), Semaphore(connect(), zk_path, 1)
    mine.release(4)
    assert theirs.available() == 5
    theirs.resize(3)
    assert (mine.available(), theirs.available()) == (3, 3)
    assert zk.get(f"{zk_path}/permits")[0] == b"-1 resized"
    mine.release()
    assert theirs.available() == 4
    assert theirs.acquire(permits=4, timeout=20)
    assert not mine.acquire(timeout=0)
    theirs.release(4)


@pytest.mark.parametrize("data", [b"", b"3 sized", b"-3", b"\xff"])
def test_foreign_data(data: bytes, zk: KazooClient, zk_path: str) -> None:
    """Data that no semaphore has written is an error that names the path, and stays."""
    zk.create(f"{zk_path}/permits", data, makepath=True)
    semaphore = Semaphore(zk, zk_path, 3)
    for call in (lambda: semaphore.resize(2), semaphore.available, semaphore.acquire, semaphore.destroy):
        with pytest.raises(ForeignNodeError, match=zk_path):
            call()
    assert zk.get(f"{zk_path}/permits")[0] == data
