"""The proxy against a real server, with plain kazoo: its counts are exact, and its faults are those of networks."""

from __future__ import annotations

import threading

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


@pytest.mark.parametrize(("pipelined", "flights"), [(True, 1), (False, 2)])
def test_flights_are_round_trips_waited_for(
    proxy: Proxy, client: KazooClient, path: str, pipelined: bool, flights: int
) -> None:
    """Requests sent without waiting in between are one flight; one after the other they are two."""
    with proxy.counting() as count, proxy.hold("create") as held:
        created = client.create_async(f"{path}/a", ephemeral=True)
        if not pipelined:
            held.release()
            created.get(timeout=10)
        children = client.get_children_async(path)
        eventually(lambda: count.requests["getChildren"])
        held.release()
        assert children.get(timeout=10) == ["a"]
    assert count.flights == flights
    assert count.requests == {"create": 1, "getChildren": 1}


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


def test_held_answer_waits_and_so_does_what_follows(
    proxy: Proxy, client: KazooClient, zk: KazooClient, path: str
) -> None:
    """A held request is applied; its answer and all behind it come when it is released, in order."""
    with proxy.counting() as count:
        hold = proxy.hold("create")
        created = client.create_async(f"{path}/a")
        read = client.get_async(path)
        assert hold.wait().path == f"{path}/a"
        assert zk.exists(f"{path}/a")
        assert not any(each.kind == "answer" for each in count.trace)
        hold.release()
        assert created.get(timeout=10) == f"{path}/a"
        read.get(timeout=10)
    assert [each.name for each in count.trace if each.kind == "answer"] == ["create", "getData"]


@pytest.mark.parametrize("towards", ["server", "client"])
def test_stall_of_one_direction(proxy: Proxy, client: KazooClient, zk: KazooClient, path: str, towards: str) -> None:
    """Stalled towards the server nothing is applied; towards the client it is, unheard; resume delivers both."""
    proxy.stall(to_server=towards == "server", to_client=towards == "client")
    with proxy.counting() as count:
        created = client.create_async(f"{path}/a")
        if towards == "client":
            there = threading.Event()
            if zk.exists(f"{path}/a", watch=lambda _: there.set()) is None:
                assert there.wait(10)
        else:
            zk.sync(path)
            assert zk.exists(f"{path}/a") is None
        assert not created.ready()
        proxy.resume()
        assert created.get(timeout=10) == f"{path}/a"
    assert [each.kind for each in count.trace] == ["request", "answer"]
