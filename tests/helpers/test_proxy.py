"""The proxy against a real server, with plain kazoo: its counts are exact, and its faults are those of networks."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from tests.conftest import Connect
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy


@pytest.fixture
def client(proxy: Proxy, connect: Connect) -> KazooClient:
    """A client behind the proxy, which pings so seldom that no ping gets into a count."""
    return connect(proxy.hosts, timeout=30)


@pytest.fixture
def path(zk: KazooClient, zk_path: str) -> str:
    """A znode that is there, new for each test."""
    return str(zk.create(zk_path))


def connected(client: KazooClient) -> None:
    """Wait until the client is connected, by asking for something that waits for it."""
    client.retry(client.exists, "/")


@pytest.mark.parametrize("wrong", [{"getData": 2}, {"getData": 1, "exists": 1}, {}, {"getData": 1, "flights": 2}])
def test_costs_that_are_others(proxy: Proxy, client: KazooClient, path: str, wrong: dict[str, int]) -> None:
    """The right requests and flights pass; one too many or too few of either is an error."""
    with proxy.costs(getData=1, flights=1):
        client.get(path)
    with pytest.raises(AssertionError, match="expected"), proxy.costs(**wrong):
        client.get(path)


@pytest.mark.parametrize("how", ["lose_answer", "lose_request"])
def test_only_the_lost_request_and_what_follows_is_lost(
    proxy: Proxy, client: KazooClient, zk: KazooClient, path: str, how: str
) -> None:
    """Of requests sent at once, those before the lost one are applied and answered, those after it unanswered."""
    proxy.stall(to_server=False)  # all three are sent before the first is answered
    with getattr(proxy, how)("create", where=lambda message: message.path.endswith("b")):
        before, swallowed, after = (client.create_async(f"{path}/{name}") for name in "abc")
        if how == "lose_answer":
            eventually(lambda: zk.exists(f"{path}/c"))
        eventually(lambda: not client._queue)  # sent: one that meets the cut would keep kazoo from reading the answer
        proxy.resume()
        assert before.get(timeout=10) == f"{path}/a"
        for each in (swallowed, after):
            with pytest.raises(ConnectionLoss):
                each.get(timeout=10)
    connected(client)
    applied = {"lose_answer": {"a", "b", "c"}, "lose_request": {"a"}}[how]
    assert set(zk.get_children(path)) == applied
