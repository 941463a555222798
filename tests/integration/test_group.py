"""Groups on a real ZooKeeper: processes join and leave, and see each other."""

from __future__ import annotations

import threading
import time
from functools import partial
from queue import Queue as Inbox

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, PATIENCE, Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.manual_clock import jump
from tests.helpers.proxy import Proxy
from zkconcurrent import ForeignNodeError, Group, LossCause


def test_members_see_each_other(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """All see a member that joins, with its data, the longest member first, and see no more one that has left."""
    mine, theirs = Group(zk, zk_path), Group(connect(), zk_path)
    assert mine.members() == {}
    with mine.join(b"one", "z") as member:
        assert member.active
        assert not member.lost.is_set()
        other = theirs.join(b"", "a")
        assert list(mine.members().items()) == list(theirs.members().items()) == [("z", b"one"), ("a", b"")]
        assert zk.get(f"{zk_path}/z")[1].ephemeralOwner == zk.client_id[0]
        other.leave()
        other.leave()
        assert not other.active
        assert theirs.members() == {"z": b"one"}
    assert theirs.members() == {}
    assert not member.lost.is_set()


def test_an_id_is_taken(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Another member's id is a ValueError that names it, of this client and of others, and its node stays as it is."""
    group, other = Group(zk, zk_path), Group(connect(), zk_path)
    with group.join(b"first", "id") as first:
        for each in (group, Group(zk, zk_path), other):
            with pytest.raises(ValueError, match="'id'") as caught:
                each.join(b"second", "id")
            assert zk_path in str(caught.value)
        waiting = in_thread(other.join, b"third", "id", wait=20)
        began = time.monotonic()
        with pytest.raises(ValueError, match="another member"):
            Group(connect(), zk_path).join(b"fourth", "id", wait=0.2)
        assert time.monotonic() - began >= 0.2
        assert group.members() == {"id": b"first"}
        assert first.active
    assert waiting.result(20).active
    assert group.members() == {"id": b"third"}


def test_a_persistent_node(zk: KazooClient, zk_path: str) -> None:
    """A node that no session owns is no member's, and never goes: nobody waits for that, and nobody deletes it."""
    zk.create(f"{zk_path}/id", b"theirs", makepath=True)
    with pytest.raises(ForeignNodeError, match="'id'") as caught:
        Group(zk, zk_path).join(b"", "id", wait=60)
    assert zk_path in str(caught.value)
    assert zk.get(f"{zk_path}/id")[0] == b"theirs"


def test_observe(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """An observer is given the members at once, and again after each change of them, until its time is up."""
    group, other = Group(zk, zk_path), Group(connect(), zk_path)
    seen: Inbox[dict[str, bytes]] = Inbox()
    observing = in_thread(lambda: [seen.put(members) for members in group.observe(timeout=60)])
    assert seen.get(timeout=20) == {}
    member = other.join(b"1", "a")
    assert seen.get(timeout=20) == {"a": b"1"}
    zk.set(f"{zk_path}/a", b"2")  # as Curator's `setThisData`
    assert seen.get(timeout=20) == {"a": b"2"}
    other.join(b"3", "b")
    assert seen.get(timeout=20) == {"a": b"2", "b": b"3"}
    member.leave()
    assert seen.get(timeout=20) == {"b": b"3"}
    jump(group._session, 60)
    observing.result(20)
    assert seen.empty()
    assert not group._session.registry.tickets.keys() & {None}
    for members in group.observe(timeout=0):
        assert members == {"b": b"3"}


def test_members_that_come_and_go_all_the_time(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """They keep no observer from the news, although each of its reads finds others than the read before."""
    group, far = Group(zk, zk_path), Group(connect(hosts=proxy.hosts), zk_path)
    assert far.members() == {}
    proxy.delay(0.1)
    over = threading.Event()

    def come_and_go(pause: float) -> None:
        over.wait(pause)
        while not over.is_set():
            with group.join():
                over.wait(0.5)

    coming = [in_thread(come_and_go, n / 20) for n in range(10)]
    news = in_thread(lambda: [set(members) for _, members in zip(range(4), far.observe(), strict=False)])
    try:
        assert len(news.result(PATIENCE)) == 4
    finally:
        over.set()
        for each in coming:
            each.result(20)


@pytest.mark.fault(107)
def test_a_lost_answer_and_another_member(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A leave whose answer was lost does not delete the node of the next member with the same id."""
    group = Group(connect(hosts=proxy.hosts, **FAST), zk_path)
    member = group.join(b"first", "id")
    eventually(lambda: member._member.ticket.awaits)  # it watches its node
    with proxy.lose_answer("multi", where=lambda message: not message.heartbeat) as fault:
        proxy.refuse()
        member.leave()
        fault.wait()
    next_member = Group(zk, zk_path).join(b"second", "id")
    proxy.resume()
    eventually(lambda: group._session.link.connected and not group._path_state.members)
    assert next_member.active
    assert zk.get(f"{zk_path}/id")[0] == b"second"
    assert zk.get(f"{zk_path}/id")[1].czxid == next_member._member.ticket.token


@pytest.mark.fault(106)
@pytest.mark.parametrize("how", ["expires", "deleted"])
def test_its_id_is_another_members(
    how: str, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """If another took the id, the membership is lost: an event, a cause and a warning tell, and the other is left."""
    group = Group(connect(hosts=proxy.hosts, **FAST), zk_path)
    member = group.join(b"mine", "id")
    make_way = partial(zk.delete, f"{zk_path}/id")
    assert member.cause is None
    if how == "expires":
        old = group.client.client_id
        proxy.refuse()
        proxy.cut()
        eventually(lambda: not group.client.connected)
        connect(client_id=old).stop()  # closes the session
        make_way = Group(zk, zk_path).join(b"theirs", "id").leave
        proxy.resume()
    else:
        with zk.transaction() as at_once:
            at_once.delete(member.path)
            at_once.create(member.path, b"theirs", ephemeral=True)
    assert member.lost.wait(20)
    assert not member.active
    assert member.cause is (LossCause.SESSION_EXPIRED if how == "expires" else LossCause.NODE_DELETED)
    why = {"expires": "its session expired", "deleted": "its node was deleted"}[how]
    eventually(lambda: f"the membership {zk_path}/id is lost: {why}, and then: the group" in caplog.text)
    member.leave()
    assert zk.get(f"{zk_path}/id")[0] == b"theirs"
    make_way()
    assert group.join(b"again", "id").active  # the id can be used anew


def test_leaving_while_cut_off(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A leave without a connection returns; the node is deleted after the reconnect, and a join waits for that."""
    group = Group(connect(hosts=proxy.hosts, **FAST), zk_path)
    member = group.join(b"one", "id")
    proxy.refuse()
    proxy.cut()
    eventually(lambda: not group.client.connected)
    member.leave()
    assert zk.get_children(zk_path) == ["id"]
    joining = in_thread(group.join, b"two", "id")
    proxy.resume()
    assert joining.result(20).active
    assert zk.get(f"{zk_path}/id")[0] == b"two"


def test_stopping_the_client(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The end of the client ends its memberships, for good."""
    mine = connect()
    group = Group(mine, zk_path)
    with group.join(b"", "id") as member:
        mine.stop()
        assert member.lost.wait(20)
        assert zk.get_children(zk_path) == []
    mine.start()
    assert group.join(b"", "id").active
