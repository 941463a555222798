"""Our MultiLock and Curator's InterProcessMultiLock over the same paths exclude each other, all or none."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.helpers.contenders import children
from tests.helpers.curator import CuratorClient
from tests.helpers.curator_threads import LONG, SHORT
from tests.helpers.eventually import eventually
from zkconcurrent import MultiLock, RLock

BRIEF = round(SHORT * 1000)
PATIENT = round(LONG * 1000)


@pytest.fixture
def paths(zk_path: str) -> list[str]:
    """Three paths, in the order in which both sides must take them."""
    return [f"{zk_path}-{name}" for name in "abc"]


def queues(client: KazooClient, paths: list[str]) -> list[int]:
    """Return how many hold or wait at each path."""
    return [len(children(client, path)) for path in paths]


def test_java_holds(java: CuratorClient, client: KazooClient, paths: list[str]) -> None:
    """While Java holds all, we get neither all nor any one of them; once it releases, we get all."""
    java.call("multi.acquire", ",".join(paths)).result(LONG)
    ours = MultiLock([RLock(client, path) for path in reversed(paths)])
    assert ours.locked()
    assert not ours.acquire(blocking=False)
    assert not ours.acquire(timeout=SHORT)
    for lock in ours.locks:
        assert not lock.acquire(blocking=False)
    eventually(lambda: queues(client, paths) == [1, 1, 1])
    java.call("multi.release", ",".join(paths)).result(LONG)
    assert ours.acquire(timeout=LONG)
    ours.release()


def test_we_hold(java: CuratorClient, client: KazooClient, paths: list[str]) -> None:
    """While we hold all, Java gets neither all nor any one of them; once we release, the one that waits gets all."""
    ours = MultiLock([RLock(client, path) for path in paths])
    with ours:
        assert java.call("multi.acquire", ",".join(paths), BRIEF).result(LONG) == "false"
        for path in paths:
            assert java.call("mutex.acquire", path, BRIEF).result(LONG) == "false"
        eventually(lambda: queues(client, paths) == [1, 1, 1])
        waiting = java.call("multi.acquire", ",".join(paths))
        eventually(lambda: queues(client, paths) == [2, 1, 1])
        assert not waiting.done()
    assert waiting.result(LONG) == "true"
    assert not any(lock.acquire(blocking=False) for lock in ours.locks)
    java.call("multi.release", ",".join(paths)).result(LONG)
    assert ours.acquire(timeout=LONG)
    ours.release()


def test_none_of_ours_is_left(java: CuratorClient, client: KazooClient, paths: list[str]) -> None:
    """Where Java holds the last of them alone, our attempt fails, and the first ones are free again."""
    java.call("mutex.acquire", paths[-1]).result(LONG)
    assert not MultiLock([RLock(client, path) for path in paths]).acquire(timeout=SHORT)
    eventually(lambda: queues(client, paths) == [0, 0, 1])
    assert java.call("mutex.acquire", paths[0], PATIENT, thread="two").result(LONG) == "true"


def test_none_of_javas_is_left(java: CuratorClient, client: KazooClient, paths: list[str]) -> None:
    """Where we hold the last of them alone, Java's attempt fails, and the first ones are free again."""
    with RLock(client, paths[-1]):
        assert java.call("multi.acquire", ",".join(paths), BRIEF).result(LONG) == "false"
        eventually(lambda: queues(client, paths) == [0, 0, 1])
        first = RLock(client, paths[0])
        assert first.acquire(timeout=LONG)
        first.release()
