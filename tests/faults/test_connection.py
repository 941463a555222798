"""A link that drops everything and closes nothing; and creates that come late, or before a new session."""

from __future__ import annotations

import logging

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import Lock, LockLostError


@pytest.mark.fault(9)
def test_a_black_hole(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread, caplog: pytest.LogCaptureFixture
) -> None:
    """With a link that drops everything and closes nothing, the hold is lost before another can get in."""
    caplog.set_level(logging.WARNING, "zkconcurrent")
    mine, theirs = Lock(connect(hosts=proxy.hosts, timeout=8, **FAST), zk_path), Lock(zk, zk_path)
    mine.acquire()
    lost = mine.lost
    got: list[bool] = []
    waiting = in_thread(lambda: theirs.acquire() and got.append(lost.is_set()))
    eventually(queued(zk, zk_path, 2))
    proxy.stall()
    proxy.refuse()
    eventually(lambda: mine.suspect)
    assert lost.wait(20)
    waiting.result(20)
    assert got == [True]
    eventually(lambda: "suspect" in caplog.text)
    eventually(lambda: "lost" in caplog.text)
    proxy.resume()
    theirs.release()
    with pytest.raises(LockLostError):
        mine.release()
    assert mine.acquire(timeout=20)
    mine.release()


@pytest.mark.fault(2, 13)
@pytest.mark.parametrize("applied", [True, False])
def test_a_create_that_straddles_an_expiry(
    applied: bool, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """The answer to a create lost, and a new session while the old node exists: that is never taken for ours."""
    client = connect(hosts=proxy.hosts, timeout=4, **FAST)
    lock = Lock(client, zk_path)
    with lock:
        pass
    old = client.client_id
    fault = proxy.lose_answer("create2") if applied else proxy.lose_request("create2")
    with fault:
        proxy.refuse()  # before: else the client might be back, in its session, sooner than that
        waiting = in_thread(lambda: (lock.acquire(), lock.owner(), lock.fencing_token))
        fault.wait()
        eventually(lambda: client.state == KazooState.SUSPENDED)
        client._reset_session()  # no server has ended it
        proxy.resume()
        _, owner, token = waiting.result(20)
    assert owner.session == client.client_id[0] != old[0]
    assert owner.token == token
    assert queued(zk, zk_path, 1)()
    lock.release()
    eventually(queued(zk, zk_path, 0))


@pytest.mark.fault(1)
def test_a_create_that_lingers(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A create that a lost connection delivers after its recipe has looked is found, and deleted."""
    client = connect(hosts=proxy.hosts, timeout=6, **FAST)
    lock = Lock(client, zk_path)
    with proxy.lose_request("create2"):
        lock.acquire()
    mine = zk.get_children(zk_path)[0]
    lock.release()
    late = mine[: mine.index("lock-") - 13] + "f" * 12 + "-lock-"
    client.create(f"{zk_path}/{late}", b"", ephemeral=True, sequence=True)
    eventually(queued(zk, zk_path, 0))
