"""The znodes of Curator look as our own must."""

from __future__ import annotations

import re

import pytest
from kazoo.client import KazooClient

from tests.helpers.contenders import children
from tests.helpers.curator import CuratorPeer
from tests.helpers.proxy import Proxy

UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.mark.parametrize(
    ("command", "arguments", "parent", "node"),
    [
        ("mutex.acquire", (), "", "lock-"),
        ("read.acquire", (), "", "__READ__"),
        ("write.acquire", (), "", "__WRIT__"),
        ("semaphore.acquire", (3,), "/leases", "lease-"),
        ("semaphoreMutex.acquire", (), "/leases", "lease-"),
    ],
)
def test_znodes_look_as_ours_must(
    peer: CuratorPeer,
    proxy: Proxy,
    zk: KazooClient,
    zk_path: str,
    command: str,
    arguments: tuple[int, ...],
    parent: str,
    node: str,
) -> None:
    """A hold is one ephemeral node, named by a uuid, its role and ten digits, in a container."""
    with proxy.counting() as count, peer.client(proxy.hosts) as java:
        java.call(command, zk_path, *arguments).result(20)
        (name,) = children(zk, zk_path + parent)
        assert re.fullmatch(f"_c_{UUID}-{node}[0-9]{{10}}", name)
        assert zk.exists(f"{zk_path}{parent}/{name}").ephemeralOwner == java.session
        assert children(zk, f"{zk_path}/locks") == []
    # No stat tells a container, only the request that made it.
    assert zk_path + parent in {each.path for each in count.trace if each.name == "createContainer"}
