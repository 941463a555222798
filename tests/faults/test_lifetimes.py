"""Clients that come and go, and servers that differ: nobody hangs, and nothing is taken wrongly."""

from __future__ import annotations

import socket

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionLoss
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from tests.conftest import Connect, InThread
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.processes import run_python
from tests.helpers.proxy import Proxy
from zkconcurrent import ClientError, Lock, LockLostError, RefusedError
from zkconcurrent.testing import Server


@pytest.mark.fault(24)
def test_stopped_while_there_is_no_session(zk_path: str, in_thread: InThread) -> None:
    """A waiter of a client without a session gets its error, although kazoo tells nobody that it stops."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        client = KazooClient(f"127.0.0.1:{nobody.getsockname()[1]}", timeout=2)
        lock = Lock(client, zk_path)
        client.start_async()
        waiting = in_thread(lock.acquire)
        eventually(lambda: lock._session.calls)
        client.stop()
        client.close()
        assert isinstance(waiting.exception(20), ClientError)


@pytest.mark.fault(11)
def test_kazoo_gives_up(connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """Once kazoo's connection_retry is exhausted, the hold is lost and a waiter gets an error."""
    client = connect(hosts=proxy.hosts, connection_retry={"max_tries": 2, "delay": 0.1})
    lock = Lock(client, zk_path)
    lock.acquire()
    lost = lock.lost
    waiting = in_thread(lock.acquire)
    eventually(lambda: lock._session.calls)
    proxy.refuse()
    proxy.cut()
    assert isinstance(waiting.exception(20), ClientError)
    assert lost.wait(20)
    with pytest.raises(LockLostError):
        lock.release()
    with pytest.raises(ClientError):
        lock.acquire(timeout=1)


@pytest.mark.fault(340)
def test_refused_while_it_waits(connect: Connect, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Once the servers have refused a client's credentials, its calls say so."""
    client = connect()
    lock = Lock(client, zk_path)
    with Lock(zk, zk_path):
        waiting = in_thread(lock.acquire)
        with pytest.raises((AuthFailedError, ConnectionLoss)):  # as the connection is closed, too
            client.add_auth("nosuch", "a:b")
        assert "credentials" in str(waiting.exception(20))
    with pytest.raises(ClientError, match="refused the client's credentials"):
        lock.acquire()


CLOSES_DESCRIPTOR = """
import os, sys
from kazoo.client import KazooClient
from zkconcurrent import ClientError, Lock, connect
zk = {made}
zk.start()
lock = Lock(zk, sys.argv[2])
lock.acquire()
os.close(zk._connection._socket.fileno())
zk.get_async("/")  # wakes kazoo's thread
try:
    print(lock.locked())
    lock.release()
    with lock:
        print("again")
except ClientError as error:
    print(error)
"""


@pytest.mark.fault(341)
@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("connect(f'zk://{sys.argv[1]}?timeout=4')", "True\nagain\n"),
        ("KazooClient(sys.argv[1], timeout=4)", "an unexpected error"),
    ],
    ids=["connect", "kazoo"],
)
def test_closed_by_something_else(made: str, told: str, zookeeper: Server, zk_path: str) -> None:
    """Another part of the program closes the client's socket: it reconnects, or kazoo ends it and calls say so."""
    run = run_python("-c", CLOSES_DESCRIPTOR.format(made=made), zookeeper.hosts, zk_path)
    assert run.stdout.startswith(told)
    assert "atexit" not in run.stderr


@pytest.mark.fault(31, 53)
def test_no_rights_above(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A client with rights only further down can use a lock there, although the root refuses it."""
    zk.ensure_path(f"{zk_path}/mine")
    zk.set_acls(zk_path, [make_acl("world", "anyone", read=True, admin=True)])
    try:
        lock = Lock(connect(), f"{zk_path}/mine/app/lock")
        with lock:
            assert len(zk.get_children(lock.path)) == 1
        above = Lock(lock.client, f"{zk_path}/other/lock")
        with pytest.raises(RefusedError, match="NoAuth"):
            above.acquire()
    finally:
        zk.set_acls(zk_path, OPEN_ACL_UNSAFE)


@pytest.mark.fault(53)
def test_a_node_that_may_not_be_read(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """The holder's own node can't be read: its lease is proved by another, asked from then on."""
    lock = Lock(connect(proxy.hosts, timeout=4), zk_path)
    lock.acquire()
    (name,) = zk.get_children(zk_path)
    node = f"{zk_path}/{name}"
    zk.set_acls(node, [make_acl("world", "anyone", write=True, create=True, delete=True, admin=True)])
    with proxy.counting() as count:
        # For longer than a lease lasts that nothing proves.
        eventually(
            lambda: [each.path for each in count.trace if each.heartbeat and each.name == "multi"].count("/") > 9
        )
    assert not lock.lost.is_set()
    lock.release()
    eventually(queued(zk, zk_path, 0))
