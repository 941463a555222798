"""The locks that one thread at a time can acquire and release: true of each, of whichever class."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import read_lock, write_lock
from zkconcurrent import Condition, Lock, MultiLock, RLock, Semaphore, synchronized

Make = Callable[[KazooClient, str], Any]


def multi_lock(client: KazooClient, path: str) -> MultiLock:
    """Make a lock of two locks."""
    return MultiLock([RLock(client, f"{path}/b"), Lock(client, f"{path}/a")])


# Each with what it excludes, whichever of the two comes first.
every = pytest.mark.parametrize(
    ("make", "against"),
    [(each, each) for each in (Lock, RLock, write_lock, Semaphore, multi_lock, Condition)] + [(read_lock, write_lock)],
)


def ephemerals(client: KazooClient, path: str) -> list[str]:
    """Return the ephemeral nodes at and below a path."""
    try:
        names, stat = client.get_children(path, include_data=True)
    except NoNodeError:
        return []
    below = [node for name in names for node in ephemerals(client, f"{path}/{name}")]
    return below + [path] * bool(stat.ephemeralOwner)


def impatient(kind: type[Any]) -> type[Any]:
    """Return a kind whose `acquire` gives up where it is told nothing, as a program's own class may."""

    class Impatient(kind):  # type: ignore[misc]
        def acquire(self, blocking: bool = True, timeout: float = 0.1) -> bool:
            return super().acquire(blocking, timeout)  # type: ignore[no-any-return]

    return Impatient


@pytest.mark.fault(59)
@pytest.mark.parametrize("make", [Lock, RLock, Semaphore, "multi", "condition", "synchronized"])
def test_a_block_does_not_run_with_nothing_held(make: Any, connect: Connect, zk: KazooClient, zk_path: str) -> None:
    """Where `acquire` returns False, `with` raises: its body never runs, and its end releases nothing of others."""
    path = f"{zk_path}/lock" if make in ("condition", "synchronized") else zk_path
    mine: Any
    holder: Any
    if make == "multi":
        mine, holder = impatient(MultiLock)([Lock(zk, path)]), Lock(connect(), path)
    elif isinstance(make, str):
        mine, holder = impatient(RLock)(zk, path), RLock(connect(), path)
        mine = Condition(zk, zk_path, mine) if make == "condition" else synchronized(mine)
    else:
        mine, holder = impatient(make)(zk, path), make(connect(), path)
    ran = False
    with holder:
        with pytest.raises(RuntimeError, match="nothing is held"), mine:
            ran = True
        assert holder.locked()
    assert not ran
    with mine:
        ran = True
    assert ran
    if isinstance(holder, Semaphore):
        assert holder.available() == 1


@pytest.mark.fault(27)
@every
def test_exclusion(
    make: Make, against: Make, connect: Connect, zk: KazooClient, zk_path: str, in_thread: InThread
) -> None:
    """Threads of two clients count without losing one; at the end no node is left."""
    other = connect()
    counter = [0]

    def count(lock: Any) -> None:
        for _ in range(15):
            with lock:
                seen = counter[0]
                time.sleep(0.0005)  # long enough for somebody else to get in, if he could
                counter[0] = seen + 1

    locks = [make(zk, zk_path), against(zk, zk_path), against(other, zk_path), against(other, zk_path)]
    for each in [in_thread(count, lock) for lock in locks]:
        each.result(60)
    assert counter == [60]
    eventually(lambda: ephemerals(zk, zk_path) == [])
