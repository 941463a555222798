"""Detached locks on a real ZooKeeper: held by a name, also after the end of the process; released, or broken."""

from __future__ import annotations

import json
import os

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.helpers.processes import run_python
from zkconcurrent import DetachedLock, Lock, LockLostError
from zkconcurrent.testing import Server


def queue(zk: KazooClient, path: str) -> list[int]:
    """Return the sessions of the nodes, in the order of their turns; 0 for a persistent one."""
    names = sorted(zk.get_children(path), key=lambda name: name.rpartition("lock-")[2])
    stats = [zk.exists(f"{path}/{name}") for name in names]
    return [stat.ephemeralOwner for stat in stats if stat is not None]


def test_what_it_leaves(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """One persistent node, which tells the owner, the process and the token; the release leaves none."""
    lock = DetachedLock(zk, zk_path, "job")
    assert not lock.locked()
    assert lock.owner() is None
    assert lock.acquire()
    (name,) = zk.get_children(zk_path)
    data, stat = zk.get(f"{zk_path}/{name}")
    said = json.loads(data)
    assert stat.ephemeralOwner == 0
    assert (said["owner"], said["pid"], said["token"]) == ("job", os.getpid(), lock.fencing_token)
    seen = DetachedLock(connect(), zk_path, "looker").owner()
    assert seen is not None
    assert (seen.owner, seen.session, seen.token, seen.position) == ("job", 0, lock.fencing_token, 0)
    assert seen.node == f"{zk_path}/{name}"
    assert (lock.locked(), lock.hold_count(), lock.name) == (True, 1, "job")
    lock.release()
    assert zk.get_children(zk_path) == []
    with pytest.raises(RuntimeError, match=f"'job' does not hold {zk_path}"):
        lock.release()


def test_one_owner(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The owner finds itself the holder, wherever it acquires, with the same token; one release ends the hold."""
    mine, again, other = (DetachedLock(client, zk_path, "job") for client in (zk, zk, connect()))
    stranger = DetachedLock(connect(), zk_path, "another")
    mine.acquire()
    assert again.acquire(blocking=False)
    assert other.acquire(timeout=5)
    assert mine.fencing_token == again.fencing_token == other.fencing_token
    assert len(queue(zk, zk_path)) == 1
    assert not stranger.acquire(blocking=False)
    assert not stranger.acquire(timeout=0.1)
    with pytest.raises(RuntimeError, match="'another' does not hold"):
        stranger.release()
    other.release()
    assert stranger.acquire(blocking=False)
    for late in (mine, again):
        with pytest.raises(LockLostError, match="another `release"):
            late.release()
        assert late.hold_count() == 0
    assert stranger.locked()
    stranger.release()


@pytest.mark.fault(114)
@pytest.mark.threads_only("is of another process, which has threads")
def test_a_holder_that_exits(zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """The hold outlives its process and session; another process of the owner has it, and releases it."""
    code = """import sys, zkconcurrent
zk = zkconcurrent.connect(f"zk://{sys.argv[1]}")
zkconcurrent.DetachedLock(zk, sys.argv[2], "job").acquire()
"""
    run_python("-c", code, zookeeper.hosts, zk_path)
    another, mine = DetachedLock(zk, zk_path, "another"), DetachedLock(zk, zk_path, "job")
    assert not another.acquire(timeout=0.2)
    holder = another.owner()
    assert holder is not None
    assert mine.acquire(blocking=False)
    assert mine.fencing_token == holder.token
    mine.release()
    assert not mine.locked()


def test_with_blocks(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A block that does not get in says so; one that has lost its hold tells that, with its own exception."""
    lock, other = DetachedLock(zk, zk_path, "job"), DetachedLock(connect(), zk_path, "another")
    with lock, pytest.raises(TimeoutError, match="not acquired"), other.hold(timeout=0.1):
        pass
    assert not lock.locked()
    with pytest.raises(LockLostError) as lost, lock:
        assert other.force_release(lock.fencing_token)
        raise ZeroDivisionError
    assert isinstance(lost.value.__context__, ZeroDivisionError)


@pytest.mark.fault(115)
def test_force_release(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """An operator ends the hold that was looked at, and no other; the owner is told at its release."""
    lock, operator = DetachedLock(zk, zk_path, "job"), DetachedLock(connect(), zk_path, "operator")
    assert not operator.force_release(1)
    lock.acquire()
    seen = operator.owner()
    assert seen is not None
    assert seen.owner == "job"
    assert not operator.force_release(seen.token + 1)
    lock.release()
    lock.acquire()
    assert not operator.force_release(seen.token)  # another hold of the same owner
    assert operator.force_release(lock.fencing_token)
    assert not operator.force_release(lock.fencing_token)
    with operator:
        with pytest.raises(LockLostError, match="operator"):
            lock.release()
        assert operator.locked()
    with Lock(connect(), zk_path) as _:
        holder = operator.owner()
        assert holder is not None
        with pytest.raises(ValueError, match="its session"):
            operator.force_release(holder.token)


def test_foreign_nodes(zk: KazooClient, zk_path: str) -> None:
    """A persistent node of another program holds for no owner, and can be broken."""
    lock = DetachedLock(zk, zk_path, "job")
    zk.ensure_path(zk_path)
    for data in (b"", b"[" * 5000, b'{"owner": "job"}'):
        node = zk.create(f"{zk_path}/x-lock-", data, sequence=True)
        assert not lock.acquire(timeout=0.05)
        with pytest.raises(RuntimeError, match="does not hold"):
            lock.release()
        assert lock.force_release(zk.exists(node).czxid)
    with lock:
        pass
