"""`revoke()` asks a Java holder on Curator, and Curator's `Revoker` asks a holder here; waiters wait on as before."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.helpers.curator import CuratorClient
from tests.helpers.curator_threads import LONG
from tests.helpers.eventually import eventually
from zkconcurrent import ReadWriteLock, RLock
from zkconcurrent._protocol.ticket import REVOKED

KINDS = {
    "mutex": RLock,
    "read": lambda *args, **options: ReadWriteLock(*args, **options).read_lock,
    "write": lambda *args, **options: ReadWriteLock(*args, **options).write_lock,
}
every = pytest.mark.parametrize("name", KINDS)


@every
def test_we_ask_java(java: CuratorClient, client: KazooClient, zk_path: str, name: str) -> None:
    """A Java holder's listener is called once for each `revoke()`; once it lets go, we get in."""
    lock = KINDS["write" if name == "read" else name](client, zk_path)
    java.call(f"{name}.makeRevocable", zk_path).result(LONG)
    java.call(f"{name}.acquire", zk_path).result(LONG)
    for n in range(1, 4):
        assert lock.revoke() == 1
        eventually(lambda n=n: java.call(f"{name}.revoked", zk_path).result(LONG) == str(n))
    owner = lock.owner()
    assert (owner.host, owner.revoked) == (None, True)
    assert not lock.acquire(timeout=0.2)
    java.call(f"{name}.release", zk_path).result(LONG)
    assert lock.acquire(timeout=LONG)
    lock.release()
    assert lock.revoke() == 0


@every
def test_java_asks_us(java: CuratorClient, client: KazooClient, zk_path: str, name: str) -> None:
    """`on_revoke` is called once for each `attemptRevoke`; Java waits until we let go, and then gets in."""
    told: list[object] = []
    lock = KINDS[name](client, zk_path, on_revoke=told.append)
    other = "write" if name == "read" else name
    with lock:
        for n in range(1, 4):
            asked = java.call(f"{name}.revoke", zk_path).result(LONG)
            assert client.get(asked)[0] == REVOKED
            eventually(lambda n=n: told == [lock] * n)
        waiting = java.call(f"{other}.acquire", zk_path)
        eventually(lambda: lock.waiters())
        # Java's watch on our node fires, and it waits on.
        java.call(f"{name}.revoke", zk_path, thread="other").result(LONG)
        eventually(lambda: told == [lock] * 4)
        assert not waiting.done()
    assert waiting.result(LONG) == "true"
    java.call(f"{other}.release", zk_path).result(LONG)
