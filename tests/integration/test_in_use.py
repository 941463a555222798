"""`destroy()` of what is in use: the error names the users."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from zkconcurrent import AtomicLong


def test_it_names_a_client_that_queues(zk: KazooClient, zk_path: str) -> None:
    """Of a number that is changed in turn, it names the client that queues; of Curator's, what it has left."""
    number = AtomicLong(zk, zk_path)
    number.add()
    zk.create(f"{zk_path}/lock/_c_x-lock-", b"10.0.0.1", ephemeral=True, sequence=True)
    with pytest.raises(RuntimeError, match=r"session 0x[0-9a-f]+, which says b'10.0.0.1'"):
        number.destroy()


def test_it_names_a_few(zk: KazooClient, zk_path: str) -> None:
    """Of many users, the error names five, and counts the others."""
    number = AtomicLong(zk, zk_path)
    number.add()
    for _ in range(8):
        zk.create(f"{zk_path}/lock/_c_x-lock-", b"", ephemeral=True, sequence=True)
    with pytest.raises(RuntimeError, match="and 3 more"):
        number.destroy()
