"""The behaviour of a barrier, on a real ZooKeeper, among threads and among clients."""

from __future__ import annotations

import uuid
from threading import BrokenBarrierError

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import barrier_state, parties_in
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import Barrier, ClientError
from zkconcurrent._recipes.barrier_state import BarrierContent, most_parties


@pytest.mark.fault(479)
def test_an_action_that_waits_for_its_barrier(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """It gets an error, by each object of its path, of any client and name of the server; another path is free."""
    by_name = connect(hosts=f"localhost:{zk.hosts[0][1]}")
    objects = [Barrier(client, zk_path, 2) for client in (zk, connect(), by_name)]
    elsewhere = Barrier(zk, f"{zk_path}-2", 1)

    def act() -> None:
        assert elsewhere.wait(20) == 0
        for each in (barrier, *objects):
            with pytest.raises(ClientError, match="would wait for its own end"):
                each.wait()

    barrier = Barrier(zk, zk_path, 2, act)
    told = [in_thread(barrier.wait, 20) for _ in range(2)]
    assert sorted(each.result(30) for each in told) == [0, 1]


@pytest.mark.fault(50)
def test_no_more_parties_than_one_request_can_name(zk: KazooClient, zk_path: str) -> None:
    """A barrier for more is refused when it is made; the trip of the largest is one that a server takes."""
    path = f"{zk_path}/{'p' * 600}"
    most = most_parties(path)
    with pytest.raises(ValueError, match=rf"parties must be <= {most} "):
        Barrier(zk, path, most + 1)
    assert most_parties("/p") == 10_000
    barrier = Barrier(zk, path, most)
    with pytest.raises(BrokenBarrierError):
        barrier.wait(0)  # makes the nodes
    barrier.reset()
    zk.ensure_path(f"{path}/{1:010d}")
    for some in range(0, most - 1, 100):
        making = [
            zk.create_async(f"{path}/{1:010d}/_c_{uuid.uuid4()}-party-", b"", ephemeral=True, sequence=True)
            for _ in range(some, min(some + 100, most - 1))
        ]
        for each in making:
            each.get(20)
    assert barrier.wait(60) == most - 1
    for name in zk.get_children(f"{path}/{1:010d}"):
        zk.delete_async(f"{path}/{1:010d}/{name}")


def test_all_must_agree_on_the_parties(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A barrier for another number of parties is refused at its first use, by an error that names both numbers."""
    assert Barrier(zk, zk_path, 1).wait(10) == 0
    other = Barrier(connect(), zk_path, 2)
    for use in (lambda: other.wait(10), other.abort, other.reset, lambda: other.broken, lambda: other.n_waiting):
        with pytest.raises(ValueError, match=r"for 1 parties, not for 2"):
            use()
    assert barrier_state(zk, zk_path)["generation"] == 1


def test_old_failures_are_forgotten(zk: KazooClient, zk_path: str) -> None:
    """The state remembers the last hundred failures, so that it does not grow."""
    barrier = Barrier(zk, zk_path, 2)
    for _ in range(103):
        barrier.reset()
    said = barrier_state(zk, zk_path)
    assert said["generation"] == 103
    assert said["failed"] == list(range(3, 103))


@pytest.mark.fault(366)
@pytest.mark.parametrize("error", [LookupError, StopIteration])
def test_an_action_that_raises(
    error: type[Exception], zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """Its error, of any class, leaves the wait of the party that ran it; the others get BrokenBarrierError."""

    def fail() -> None:
        raise error

    barriers = [Barrier(client, zk_path, 2, fail) for client in (zk, connect())]
    errors = [type(future.exception(30)) for future in [in_thread(barrier.wait, 20) for barrier in barriers]]
    assert set(errors) == {BrokenBarrierError, error}
    assert barriers[0].broken
    eventually(parties_in(zk, zk_path, 0))


def test_destroy_of_many_generations(zk: KazooClient, zk_path: str) -> None:
    """However many generations have left their nodes, all go, and no request is larger than a server takes."""
    barrier = Barrier(zk, zk_path, 1)
    barrier.wait(10)
    for each in [zk.create_async(f"{zk_path}/{n:010d}", b"") for n in range(10, 2510)]:
        each.get(20)
    barrier.destroy()
    assert zk.exists(zk_path) is None


@pytest.mark.fault(190)
@pytest.mark.parametrize("end", ["its session", "its node"])
def test_a_party_of_a_barrier_that_was_destroyed_since(
    end: str, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A party that was lost unnoticed is told, and does not break the barrier that was made anew since."""
    client = connect(hosts=proxy.hosts, timeout=20, **FAST)
    late, first, second = (Barrier(each, zk_path, 2) for each in (client, zk, connect()))
    waiting = in_thread(late.wait, 60)
    # A reply to its own client proves that this client has the one to the arrival, too: with that reply lost and its
    # node gone, the party may not have arrived, and would come anew.
    eventually(lambda: late.n_waiting == 1)
    session = client.client_id
    proxy.refuse()
    proxy.cut()
    if end == "its session":
        connect(client_id=session).stop()  # closes it
    else:
        (node,) = zk.get_children(f"{zk_path}/0000000000")
        zk.delete(f"{zk_path}/0000000000/{node}")
    eventually(parties_in(zk, zk_path, 0))
    first.destroy()
    passing = in_thread(first.wait, 60)
    eventually(lambda: second.n_waiting == 1)
    proxy.resume()
    with pytest.raises(BrokenBarrierError):
        waiting.result(30)
    assert not second.broken
    assert second.wait(20) == 1
    assert passing.result(20) == 0


@pytest.mark.fault(190)
def test_destroyed_and_made_anew_as_a_party_comes(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A party that looked at the barrier just before it was destroyed belongs to the one made anew."""
    late, first = Barrier(connect(hosts=proxy.hosts), zk_path, 3), Barrier(zk, zk_path, 3)
    zk.create(zk_path, BarrierContent(3).data)
    with proxy.hold("getData", where=lambda message: message.path == zk_path) as looked:
        waiting = [in_thread(late.wait, 30)]
        looked.wait()
        first.destroy()
        waiting.append(in_thread(first.wait, 30))
        eventually(lambda: first.n_waiting == 1)
    eventually(lambda: first.n_waiting == 2)
    waiting.append(in_thread(first.wait, 30))
    assert sorted(each.result(20) for each in waiting) == [0, 1, 2]
