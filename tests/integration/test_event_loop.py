"""A program that blocks its event loop is warned, and no other."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.helpers.kinds import KINDS
from zkconcurrent import RLock

pytestmark = pytest.mark.fault(70)

Told = list[warnings.WarningMessage]


@pytest.fixture
def told() -> Iterator[Told]:
    """Collect the warnings that a program shows by default: one for each place."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        yield told


def said(told: Told, what: str) -> list[tuple[str, int]]:
    """Return where it was said, if it was."""
    assert all(each.category is RuntimeWarning for each in told)
    return [(each.filename, each.lineno) for each in told if what in str(each.message)]


def line() -> int:
    """Return the line that comes next."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno + 1


WAITS = [kind for kind in KINDS if kind not in ("AtomicLong", "AtomicInteger")]  # they only change a number
MORE: list[Callable[[KazooClient, str], object]] = [
    lambda zk, path: zkconcurrent.MultiLock([RLock(zk, path)]).acquire(),
    lambda zk, path: zkconcurrent.Election(zk, path).run(print),
    lambda zk, path: zkconcurrent.Group(zk, path).join(wait=0.01).leave(),
    lambda zk, path: zkconcurrent.Queue[bytes](zk, path).put(b""),
    lambda zk, path: zkconcurrent.synchronized(zk, path)(lambda: 0)(),
]


@pytest.mark.parametrize("wait", [*WAITS, *MORE])
@pytest.mark.filterwarnings("ignore:the last object of:ResourceWarning")
def test_whatever_waits(
    wait: str | Callable[[KazooClient, str], object], zk: KazooClient, zk_path: str, told: Told
) -> None:
    """A call that waits in a loop's thread is warned of, where the program makes it."""
    call = KINDS[wait].wait if isinstance(wait, str) else wait

    async def main() -> None:
        if isinstance(wait, str):
            KINDS[wait].wait(zkconcurrent, zk, zk_path, 0.01)
        else:
            wait(zk, zk_path)

    asyncio.run(main())
    lines = {(call.__code__.co_filename, line) for _, _, line in call.__code__.co_lines()}
    assert lines & {*said([each for each in told if each.category is RuntimeWarning], "running event loop")}


def test_what_does_not_block(zk: KazooClient, zk_path: str, told: Told) -> None:
    """A try, and a call by to_thread, are not warned of; nor is anything where no loop runs."""
    lock = RLock(zk, zk_path)

    async def main() -> None:
        assert lock.acquire(blocking=False)
        lock.release()
        assert lock.acquire(timeout=0)
        lock.release()
        await asyncio.to_thread(lambda: lock.acquire() and lock.release())

    asyncio.run(main())
    with lock, lock:
        pass
    assert told == []


def test_an_error_if_it_is_to_be_one(zk: KazooClient, zk_path: str) -> None:
    """Where warnings are errors nothing is acquired by the call that raised one."""
    lock = RLock(zk, zk_path)

    async def main() -> None:
        with pytest.raises(RuntimeWarning, match="event loop"):
            lock.acquire()
        assert not lock._is_owned()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
