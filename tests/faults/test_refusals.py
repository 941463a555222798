"""Fault 31: what the service refuses is an error that says what to do, and leaves nothing.

A read-only server is none that could refuse: kazoo (2.11) cannot read what one (ZooKeeper 3.8) answers to a connection,
and goes on as if no server were there.
"""

from __future__ import annotations

import time

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError

from tests.conftest import Eventually
from tests.integration.test_locks import queued
from zkconcurrent import ClientError, Lock, RefusedError
from zkconcurrent.testing import Server


def test_credentials_that_are_not_accepted(zk_path: str, zookeeper: Server) -> None:
    """A client that ZooKeeper has turned away raises at once, and hangs nobody."""
    client = KazooClient(zookeeper.hosts, timeout=6)
    client.start()
    try:
        lock = Lock(client, zk_path)
        lock.acquire()
        with pytest.raises(AuthFailedError):
            client.add_auth("none-such", "me")
        began = time.monotonic()
        with pytest.raises((RefusedError, ClientError)) as caught:
            Lock(client, f"{zk_path}-other").acquire()
        assert time.monotonic() - began < 15
        assert f"{zk_path}-other" in str(caught.value)
    finally:
        client.stop()
        client.close()


def test_a_quota_that_is_used_up(zk_path: str, eventually: Eventually) -> None:
    """Who would exceed it is told so, and leaves no node; there is room again once the holder has left."""
    with Server(settings={"enforceQuota": "true"}) as server, server.client() as one, server.client() as other:
        one.ensure_path(zk_path)
        quota = f"/zookeeper/quota{zk_path}"
        one.ensure_path(quota)
        # The path itself counts: there is room for one node below it.
        one.create(f"{quota}/zookeeper_stats", b"count=1,bytes=0")
        one.create(f"{quota}/zookeeper_limits", b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2")
        mine, theirs = Lock(one, zk_path), Lock(other, zk_path)
        with mine:
            with pytest.raises(RefusedError, match="quota"):
                theirs.acquire()
            assert len(one.get_children(zk_path)) == 1
        eventually(queued(one, zk_path, 0))
        with theirs:
            pass
