"""A link that drops everything and closes nothing, under a lock that is held."""

from __future__ import annotations

import logging

import pytest
from kazoo.client import KazooClient

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
