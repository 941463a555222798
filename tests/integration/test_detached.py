"""Detached locks on a real ZooKeeper: held by a name, also after the end of the process; released, or broken."""

from __future__ import annotations

import json
import os
import signal

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.processes import Spawn, in_forked_child, line_from, spawning
from zkconcurrent import DetachedLock, ForeignNodeError, Lock, LockLostError, RLock

spawn = spawning("tests.integration.detached_party", 4)


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
    assert lock.hold_count() == 0
    with pytest.raises(RuntimeError, match=f"'job' does not hold {zk_path}"):
        lock.release()
    with pytest.raises(RuntimeError, match="not held"):
        _ = lock.fencing_token


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


@pytest.mark.parametrize("other", [Lock, RLock])
def test_one_queue_with_locks(
    other: type[Lock], zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """A Lock waits for the persistent node, in the order of arrival, and the tokens rise in that order."""
    detached, lock = DetachedLock(connect(), zk_path, "job"), other(connect(), zk_path)
    first = other(connect(), zk_path)
    tokens = []
    first.acquire()
    waiting = in_thread(detached.acquire)
    eventually(lambda: len(zk.get_children(zk_path)) == 2)

    def use() -> None:
        with lock:
            tokens.append(lock.fencing_token)

    using = in_thread(use)
    eventually(lambda: len(zk.get_children(zk_path)) == 3)
    seen = detached.waiters()
    assert [(each.position, each.owner) for each in seen] == [(1, "job"), (2, None)]
    tokens.append(first.fencing_token)
    first.release()
    assert waiting.result(20)
    tokens.append(detached.fencing_token)
    assert queue(zk, zk_path)[0] == 0
    assert not using.done()
    detached.release()
    using.result(20)
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 3


@pytest.mark.fault(114)
@pytest.mark.parametrize("end", ["kill", "exit"])
@pytest.mark.threads_only("is of other processes, which have threads")
def test_a_killed_holder(end: str, spawn: Spawn, zk: KazooClient, zk_path: str) -> None:
    """The hold outlives its process and session; another process of the owner has it, and releases it: fault 114."""
    holder = spawn("exit" if end == "exit" else "hold", "job")
    assert line_from(holder) == "True"
    token = zk_token(zk, zk_path)
    if end == "kill":
        holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not DetachedLock(zk, zk_path, "another").acquire(timeout=0.2)
    mine = DetachedLock(zk, zk_path, "job")
    if end == "kill":
        assert line_from(spawn("release", "job")) == "released"
        assert not mine.locked()
        return
    assert mine.acquire(blocking=False)
    assert mine.fencing_token == token
    mine.release()
    assert not mine.locked()


def zk_token(zk: KazooClient, path: str) -> int:
    """Return the token in the node."""
    (name,) = zk.get_children(path)
    return int(json.loads(zk.get(f"{path}/{name}")[0])["token"])


def test_with_blocks(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A block releases at its end, and on an exception, which is not changed; one that does not get in says so."""
    lock, other = DetachedLock(zk, zk_path, "job"), DetachedLock(connect(), zk_path, "another")
    with lock:
        assert lock.locked()
        with pytest.raises(TimeoutError, match="not acquired"), other.hold(timeout=0.1):
            pass
    assert not lock.locked()
    with pytest.raises(ZeroDivisionError), lock.hold(timeout=5):
        raise ZeroDivisionError
    assert queue(zk, zk_path) == []
    with pytest.raises(LockLostError) as lost, lock:
        assert other.force_release(lock.fencing_token)
        raise ZeroDivisionError
    assert isinstance(lost.value.__context__, ZeroDivisionError)


@pytest.mark.fault(115)
def test_force_release(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """An operator ends the hold that was looked at, and no other; the owner is told at its release: fault 115."""
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
        assert not operator.force_release(holder.token + 1)
        assert operator.locked()


def test_foreign_nodes(zk: KazooClient, zk_path: str) -> None:
    """A persistent node of another program holds for no owner; it is shown, and can be broken. Others are refused."""
    lock = DetachedLock(zk, zk_path, "job")
    zk.ensure_path(zk_path)
    for data in (b"", b"\xff", b"[" * 5000, b"[]", b'{"owner": "job"}', b'{"owner": 1, "token": 2}'):
        node = zk.create(f"{zk_path}/x-lock-", data, sequence=True)
        assert not lock.acquire(blocking=False)
        assert not lock.acquire(timeout=0.05)
        with pytest.raises(RuntimeError, match="does not hold"):
            lock.release()
        assert zk.exists(node)
        assert lock.force_release(zk.exists(node).czxid)
        assert not zk.exists(node)
    zk.create(f"{zk_path}/strange")
    for call in (lock.acquire, lock.release, lock.locked, lock.owner, lambda: lock.force_release(1)):
        with pytest.raises(ForeignNodeError, match=zk_path):
            call()
    zk.delete(f"{zk_path}/strange")
    with lock:
        pass


def test_what_it_refuses(zk: KazooClient, zk_path: str) -> None:
    """Owners that are no strings, empty or too long; a path of another primitive; wrong timeouts and tokens."""
    for owner in (None, 1, b"job"):
        with pytest.raises(TypeError, match="owner must be a string"):
            DetachedLock(zk, zk_path, owner)  # type: ignore[arg-type]
    for owner in ("", "x" * 1001):
        with pytest.raises(ValueError, match="1 to 1000 characters"):
            DetachedLock(zk, zk_path, owner)
    for owner in ("x" * 1000, "\0", "\ud800", '"}', "naïve/\n"):
        lock = DetachedLock(zk, zk_path, owner)
        with lock:
            assert lock.owner().owner == owner  # type: ignore[union-attr]
            assert DetachedLock(zk, zk_path, owner).acquire(blocking=False)
    with pytest.raises(ValueError, match=zk_path):
        Lock(zk, zk_path)
    with pytest.raises(TypeError, match="token must be an int"):
        lock.force_release("1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout"):
        lock.acquire(False, 1)
    assert repr(lock).startswith("<unlocked zkconcurrent.DetachedLock object owner='naïve/\\n' path=")


@pytest.mark.fault(23)
@pytest.mark.threads_only("forks where the thread of the loop is not")
def test_a_forked_child(zk: KazooClient, zk_path: str) -> None:
    """A child holds nothing and may not release, and a block that it leaves releases nothing."""
    lock = DetachedLock(zk, zk_path, "job")

    def child() -> None:
        lock.__exit__(None, None, None)
        assert (lock.hold_count(), repr(lock)[:9]) == (0, "<unlocked")
        with pytest.raises(RuntimeError, match="not held"):
            _ = lock.fencing_token

    with lock:
        in_forked_child(child)
        assert lock.locked()
