"""Downgrades, where our ReadWriteLock and Curator's InterProcessReadWriteLock are one."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.helpers.contenders import children
from tests.helpers.curator import CuratorClient
from tests.helpers.curator_threads import LONG, SHORT
from tests.helpers.eventually import eventually
from tests.interop.conftest import ConnectJava
from zkconcurrent import ReadWriteLock

pytestmark = pytest.mark.fault(21)

BRIEF = round(SHORT * 1000)


def test_java_stays_out_of_our_downgrade(connect_java: ConnectJava, client: KazooClient, zk_path: str) -> None:
    """Java's writer, waiting since before, does not get in between; its reader behind that keeps its turn."""
    java, pair = connect_java(), ReadWriteLock(client, zk_path)
    pair.write_lock.acquire()
    writer = java.call("write.acquire", zk_path, thread="writer")
    eventually(lambda: len(children(client, zk_path)) == 2)
    reader = java.call("read.acquire", zk_path, thread="reader")
    eventually(lambda: len(children(client, zk_path)) == 3)
    pair.read_lock.acquire()
    pair.write_lock.release()
    assert java.call("write.acquire", zk_path, BRIEF, thread="other").result(LONG) == "false"
    assert not writer.done()
    assert not reader.done()
    pair.read_lock.release()
    assert writer.result(LONG) == "true"
    assert not reader.done()
    java.call("write.release", zk_path, thread="writer").result(LONG)
    assert reader.result(LONG) == "true"


def test_we_stay_out_of_javas_downgrade(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """While Java's reader is left of its writer, we may read with it, and not write."""
    pair = ReadWriteLock(client, zk_path)
    for command in ("write.acquire", "read.acquire", "write.release"):
        java.call(command, zk_path).result(LONG)
    assert not pair.write_lock.acquire(timeout=SHORT)
    assert pair.read_lock.acquire(timeout=LONG)
    pair.read_lock.release()
    java.call("read.release", zk_path).result(LONG)
    assert pair.write_lock.acquire(timeout=LONG)
    pair.write_lock.release()
