"""`zkconcurrent.tree` on a real server: what only a program sees; the rest is asked of `ls`, `show` and `deadlocks`."""

from __future__ import annotations

import dataclasses
import os
import threading

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import tree


def test_a_lock(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The holder and the waiters are those that the lock's own object shows; a report is equal to one of the same."""
    lock, other = (zkconcurrent.ReadWriteLock(client, f"{zk_path}/pair") for client in (zk, connect()))
    with lock.read_lock as _:
        waiting = in_thread(lambda: other.write_lock.acquire() and other.write_lock.release())
        eventually(queued(zk, lock.path, 2))
        report = tree.inspect(zk, zk_path)
        (found,) = report.primitives
        assert (found.path, found.kind, report.exists, report.is_whole) == (lock.path, "ReadWriteLock", True, True)
        (holder,), (waiter,) = found.holders, found.waiters
        assert [holder, waiter] == [*found.contenders] == [*report.contenders]
        assert (holder.pid, holder.mode, holder.token) == (os.getpid(), "read", lock.read_lock.fencing_token)
        owner = lock.read_lock.owner()
        assert owner is not None
        assert owner._replace(first_seen_holding=None) == holder._replace(first_seen_holding=None)
        assert [waiter] == lock.read_lock.waiters()
        assert (waiter.mode, waiter.blocker, waiter.position) == ("write", holder.node.rpartition("/")[2], 1)
        assert tree.inspect(zk, zk_path, before=report) == report
        assert tree.inspect(zk, zk_path) != report
        assert dataclasses.asdict(found)["kind"] == "ReadWriteLock"
    waiting.result()


def test_the_waiters_of_a_semaphore(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Its object shows the same of a waiter, with the mode: the first waits for a permit, and behind no node."""
    semaphore, other = (zkconcurrent.Semaphore(client, zk_path, 1) for client in (zk, connect()))
    with semaphore:
        waits = [in_thread(lambda: other.acquire() and other.release()) for _ in range(2)]
        first, second = eventually(lambda: len(semaphore.waiters()) == 2 and semaphore.waiters())
        assert [first, second] == [*tree.inspect(zk, zk_path).primitives[0].waiters]
        assert (first.mode, first.blocker, second.blocker) == ("permit", None, first.node.rpartition("/")[2])
    for each in waits:
        each.result()


def test_how_deep(zk: KazooClient, zk_path: str) -> None:
    """It reads so many levels, and says whether there are more; a path that is not there has nothing."""
    with zkconcurrent.Lock(zk, f"{zk_path}/a/b"):
        found = {depth: tree.inspect(zk, zk_path, depth=depth) for depth in (0, 1, 2, None)}
    counts = {depth: (len(report.primitives), report.is_whole) for depth, report in found.items()}
    assert counts == {0: (0, False), 1: (0, False), 2: (1, True), None: (1, True)}
    missing = tree.inspect(zk, f"{zk_path}/missing")
    assert (missing.exists, missing.primitives, missing.unreadable) == (False, (), ())
    hidden = f"{zk_path}/hidden"
    zk.create(hidden, acl=[make_acl("digest", "other:xyz", all=True)])
    assert tree.inspect(zk, zk_path).unreadable == tree.inspect(zk, hidden).unreadable == (hidden,)
    with pytest.raises(ValueError, match="path"):
        tree.inspect(zk, "relative")


def test_where_it_can_not_be_called(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """On kazoo's thread, where the reply would never come, by a stopped client, and by what is no client."""
    errors: list[Exception] = []
    called = threading.Event()

    def call(_: object) -> None:
        try:
            tree.inspect(zk, zk_path)
        except zkconcurrent.ClientError as error:
            errors.append(error)
        called.set()

    zk.ensure_path(zk_path)
    zk.get_children(zk_path, watch=call)
    zk.create(f"{zk_path}/a")
    assert called.wait(20)
    assert len(errors) == 1
    stopped = connect()
    stopped.stop()
    with pytest.raises(zkconcurrent.ClientError, match="stopped"):
        tree.find_deadlocks(stopped)
    with pytest.raises(TypeError, match="KazooClient"):
        tree.inspect("zk://127.0.0.1")  # type: ignore[arg-type]


def test_an_outage(zk: KazooClient, connect: Connect, zk_path: str, proxy: Proxy) -> None:
    """It outlives one that is over in time, and otherwise raises `TimeoutError`."""
    client = connect(hosts=proxy.hosts)
    with zkconcurrent.Lock(zk, zk_path):
        proxy.refuse()
        proxy.cut()
        with pytest.raises(TimeoutError, match="reply within"):
            tree.inspect(client, zk_path, timeout=0.5)
        threading.Timer(1.0, proxy.resume).start()
        assert len(tree.inspect(client, zk_path).primitives) == 1
