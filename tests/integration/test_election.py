"""Elections on a real ZooKeeper: one candidate leads, the others follow in order, and a lost term is told."""

from __future__ import annotations

import gc
import os
import socket
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import children, queued
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import ClientError, Election, ForeignNodeError, LockLostError, RefusedError
from zkconcurrent._threads.base import lock_base
from zkconcurrent.testing import Server

LAYOUTS = ("selector", "latch")
SOON = 30.0  # seconds for what is done at once, on a busy machine


def ids(election: Election) -> list[str]:
    """Return the ids of all candidates, the leader first."""
    return [each.id for each in election.candidates()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_leads(layout: str, connect: Connect, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """The candidates lead one after the other, in the order of arrival; all see all, by their ids."""
    first, second, third = (Election(connect(), zk_path, id=name, layout=layout) for name in ("a", "b", "ü"))
    assert first.leader() is None
    assert first.candidates() == []
    order: list[str] = []

    def lead(election: Election) -> int:
        with election.lead() as term:
            order.append(election.id)
            assert election.is_leader()
            assert election.leader().token == term.fencing_token  # type: ignore[union-attr]
            return int(term.fencing_token)

    with first.lead() as term:
        assert first.is_leader()
        waiting = [in_thread(lead, second)]
        eventually(queued(zk, zk_path, 2))
        waiting.append(in_thread(lead, third))
        eventually(queued(zk, zk_path, 3))
        assert ids(first) == ids(third) == ["a", "b", "ü"]
        leader = third.leader()
        assert leader is not None
        assert (leader.id, leader.data, leader.token) == ("a", b"a", term.fencing_token)
        assert leader.session == first.client.client_id[0]
        assert leader.node == f"{zk_path}/{children(zk, zk_path)[0]}"
        assert not second.is_leader()
        assert not any(each.done() for each in waiting)
        marker = "-lock-" if layout == "selector" else "-latch-"
        assert all(marker in name for name in children(zk, zk_path))
        tokens = [term.fencing_token]
    tokens += [each.result(SOON) for each in waiting]
    assert order == ["b", "ü"]
    assert tokens == sorted(set(tokens))
    assert first.leader() is None
    assert not first.is_leader()
    assert children(zk, zk_path) == []


@pytest.mark.fault(511)
def test_an_id_of_its_own(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A candidate without an id has one of its client alone, which shows its process and host."""
    election, other = Election(zk, zk_path), Election(connect(), zk_path)
    with election.lead():
        other.stand()
        eventually(lambda: ids(other) == [election.id, other.id])
        first, second = other.candidates()
    assert first.id != second.id
    assert Election(zk, zk_path).id == election.id
    assert (first.host, first.pid) == (second.host, second.pid) == (socket.gethostname(), os.getpid())
    other.withdraw()


def test_not_elected_in_time(zk: KazooClient, connect: Connect, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that is not entered in time names the leader, and leaves no node; nothing or less is one attempt."""
    monkeypatch.setattr(lock_base, "CLEAN_UP_PATIENCE", 30.0)
    mine, theirs = Election(zk, zk_path), Election(connect(), zk_path, id="one")
    with theirs.lead(timeout=0):
        for timeout in (0, -3, 0.1):
            with pytest.raises(TimeoutError, match=f"^not elected .*: {zk_path}, held by 'one'$"), mine.lead(timeout):
                pytest.fail("the block has run")
        eventually(queued(zk, zk_path, 1))
    with mine.lead(timeout=SOON):
        assert mine.is_leader()


def test_run(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """As kazoo's: the function has its arguments, and leads. An error that it raises ends the term, and comes out."""
    election = Election(zk, zk_path)

    def lead(*args: Any, **kwargs: Any) -> Any:
        assert election.is_leader()
        return args, kwargs

    assert election.run(lead, 1, 2, key=3) == ((1, 2), {"key": 3})
    assert not election.is_leader()

    def fail() -> None:
        raise OSError("no leader")

    with pytest.raises(OSError, match="no leader"):
        election.run(fail)
    assert not election.is_leader()
    with Election(connect(), zk_path).lead(timeout=0):
        pass


def test_to_stand(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A candidacy goes on in the background until it is withdrawn; its terms are waited for."""
    mine, theirs = Election(connect(), zk_path, id="mine"), Election(connect(), zk_path, id="theirs")
    with pytest.raises(RuntimeError, match="call stand"):
        mine.wait(0)
    mine.withdraw()
    theirs.stand()
    term = theirs.wait(SOON)
    assert term is not None
    assert theirs.is_leader()
    mine.stand()
    mine.stand()
    eventually(queued(zk, zk_path, 2))
    Election(mine.client, zk_path, id="another").stand()
    assert ids(mine) == ["theirs", "mine"]
    assert mine.wait(0.1) is None
    waiting = [in_thread(mine.wait) for _ in range(2)]
    lost = term.lost
    assert not lost.is_set()
    theirs.withdraw()
    assert lost.is_set()
    assert not theirs.is_leader()
    with pytest.raises(RuntimeError, match="ended"):
        _ = term.fencing_token
    assert theirs.wait() is None
    terms = [each.result(SOON) for each in waiting]
    assert all(each.fencing_token == mine.leader().token for each in terms)  # type: ignore[union-attr]
    assert mine.is_leader()
    mine.withdraw()
    mine.withdraw()
    assert mine.candidates() == []
    mine.stand()
    assert mine.wait(SOON) is not None
    mine.withdraw()


def test_to_publish(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The leader's data are what it has published, until the term ends; the next begins with the id."""
    mine, theirs = Election(zk, zk_path, id="mine"), Election(connect(), zk_path)
    for _ in range(2):
        with mine.lead() as term:
            assert theirs.leader().id == "mine"  # type: ignore[union-attr]
            for data in (b"10.0.0.7:8080", b"10.0.0.7:8080", b"\xff\0"):
                term.publish(data)
                leader = theirs.leader()
                assert leader is not None
                assert (leader.data, leader.token) == (data, term.fencing_token)
            with pytest.raises(RefusedError, match="max_request"):
                term.publish(bytes(2_000_000))
            assert mine.is_leader()
        for call in (lambda: term.publish(b"late"), lambda: term.fencing_token):
            with pytest.raises(RuntimeError, match="has ended"):
                call()
    assert not term.lost.is_set()


@pytest.mark.fault(90)
def test_a_publication_that_is_lost(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """The reply to its write is lost: the data are written, once."""
    election = Election(connect(hosts=proxy.hosts, **FAST), zk_path)
    with election.lead() as term:
        with proxy.lose_answer("setData") as fault:
            term.publish(b"new")
            fault.wait()
        leader = election.leader()
        assert leader is not None
        assert leader.data == b"new"
        assert zk.get(leader.node)[1].version == 1


@pytest.mark.fault(547)
def test_a_job_of_the_leader(zookeeper: Server, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A job runs only while its process surely leads; one whose term is lost while it runs ends with LockLostError."""
    mine, theirs = Election(connect(hosts=proxy.hosts, **FAST), zk_path), Election(connect(), zk_path)
    ran: list[str] = []

    def clean(what: str, *, lose: bool = False) -> str:
        ran.append(what)
        if lose:
            term = mine.wait(SOON)
            assert term is not None
            zookeeper.expire(mine.client)
            assert term.lost.wait(SOON)
        return f"cleaned {what}"

    job, other = mine.leader_only(clean), theirs.leader_only(clean)
    with pytest.raises(RuntimeError, match="call stand"):
        job("too early")
    mine.stand()
    mine.wait(SOON)
    theirs.stand()
    assert (job("a"), other("b")) == ("cleaned a", None)
    proxy.refuse()
    proxy.cut()
    eventually(lambda: not mine.client.connected)
    assert job("c") is None
    proxy.resume()
    theirs.withdraw()
    assert eventually(lambda: job("d")) == "cleaned d"
    with pytest.raises(LockLostError, match="another candidate may lead"):
        job("e", lose=True)
    assert eventually(lambda: job("f")) == "cleaned f"
    mine.withdraw()
    assert job("g") is None
    assert ran == ["a", "d", "e", "f"]


def test_a_term_that_is_lost(zookeeper: Server, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A block whose session ends is told, and ends with LockLostError; an error of its own comes out first."""
    election = Election(connect(**FAST), zk_path)
    with pytest.raises(LockLostError, match="another candidate may lead") as raised, election.lead() as term:
        assert not term.lost.is_set()
        zookeeper.expire(election.client)
        assert term.lost.wait(SOON)
        assert not election.is_leader()
        for call in (lambda: term.fencing_token, lambda: term.publish(b"late")):
            with pytest.raises(LockLostError, match="another candidate may lead"):
                call()
    assert raised.value.path == zk_path
    with pytest.raises(LockLostError) as raised, election.lead() as term:
        zookeeper.expire(election.client)
        assert term.lost.wait(SOON)
        raise OSError("of the block")
    assert isinstance(raised.value.__context__, OSError)
    eventually(queued(zk, zk_path, 0))


@pytest.mark.fault(89)
@pytest.mark.parametrize("trouble", ["expire", "delete"])
def test_a_candidacy_goes_on(zookeeper: Server, trouble: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """After a loss the candidacy queues again, behind those that wait, and the next term has a higher token."""
    mine, theirs = Election(connect(**FAST), zk_path, id="mine"), Election(connect(), zk_path, id="theirs")
    mine.stand()
    before = mine.wait(SOON)
    assert before is not None
    token = before.fencing_token
    theirs.stand()
    eventually(queued(zk, zk_path, 2))
    if trouble == "expire":
        zookeeper.expire(mine.client)
    else:
        zk.delete(mine.leader().node)  # type: ignore[union-attr]
    assert before.lost.wait(SOON)
    assert theirs.wait(SOON) is not None
    eventually(lambda: ids(theirs) == ["theirs", "mine"])
    assert not mine.is_leader()
    theirs.withdraw()
    after = mine.wait(SOON)
    assert after is not None
    assert after.fencing_token > token
    with pytest.raises(LockLostError):
        _ = before.fencing_token
    mine.withdraw()


@pytest.mark.fault(91)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_other_layout(layout: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Candidates of the other layout do not exclude ours: every call that meets one says so, and queues nothing."""
    other = LAYOUTS[1 - LAYOUTS.index(layout)]
    mine, theirs = Election(zk, zk_path, layout=layout), Election(connect(), zk_path, layout=other)
    with theirs.lead():

        def lead() -> None:
            with mine.lead(timeout=3):
                pytest.fail("two lead")

        for call in (lead, mine.stand, mine.leader, mine.candidates, lambda: next(mine.observe())):
            with pytest.raises(ForeignNodeError, match="other layout") as raised:
                call()
            assert raised.value.path == zk_path
        assert len(theirs.candidates()) == 1
        assert not mine.is_leader()


def test_a_candidacy_that_can_not_go_on(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """An error ends it; a thread that waits gets the error, and so do later ones."""
    mine, between = Election(zk, zk_path), Election(connect(), zk_path)
    with Election(connect(), zk_path).lead():
        # With a single one ahead, it would lead without another look.
        between.stand()
        eventually(queued(zk, zk_path, 2))
        mine.stand()
        waiting = in_thread(mine.wait)
        eventually(queued(zk, zk_path, 3))
        stray = zk.create(f"{zk_path}/_c_{'0' * 36}-latch-", sequence=True)
        between.withdraw()
    for call in (lambda: waiting.result(SOON), lambda: mine.wait(SOON)):
        with pytest.raises(ForeignNodeError, match="other layout"):
            call()
    eventually(queued(zk, zk_path, 1))
    zk.delete(stray)


def test_who_would_wait_for_itself(zk: KazooClient, zk_path: str) -> None:
    """A thread that leads, or whose client stands, is told so instead; its term goes on."""
    election = Election(zk, zk_path)
    with election.lead() as term:
        with pytest.raises(RuntimeError, match="leads at"), Election(zk, zk_path).lead():
            pytest.fail("it leads twice")
        assert term.fencing_token
        assert election.is_leader()
    election.stand()
    with pytest.raises(RuntimeError, match="stands at"), election.lead():
        pytest.fail("it leads twice")
    election.withdraw()


@pytest.mark.fault(317)
def test_the_remedy_after_a_restart(connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A stopped client loses its term, and those who wait for one hear of it; started again, it stands no more."""
    election, other = Election(connect(), zk_path), Election(connect(), zk_path)
    election.stand()
    term = election.wait(SOON)
    assert term is not None
    other.stand()
    waiting = in_thread(other.wait)
    for each in (other, election):
        each.client.stop()
    assert term.lost.wait(SOON)
    for call in (lambda: waiting.result(SOON), lambda: election.wait(SOON), election.stand):
        with pytest.raises(ClientError, match=r"is stopped: call client.start\(\)"):
            call()
    # The candidacy ends on a thread of its own; one that had not seen the stop would go on.
    eventually(lambda: "does not lead" in repr(election))
    election.client.start()
    with pytest.raises(ClientError, match=r"was stopped: call stand\(\) again"):
        election.wait(SOON)
    election.stand()
    assert election.wait(SOON) is not None
    election.withdraw()


def test_guard(zk: KazooClient, zk_path: str) -> None:
    """A guarded transaction commits while the term lasts, also once it has published, and never after."""
    election = Election(zk, zk_path)
    with election.lead() as term:
        term.publish(b"data")
        with zk.transaction() as writing:
            term.guard(writing)
            writing.create(f"{zk_path}-written")
        assert zk.exists(f"{zk_path}-written")
        late = term.guard(zk.transaction())
    late.create(f"{zk_path}-late")
    late.commit()
    assert not zk.exists(f"{zk_path}-late")
    with pytest.raises(RuntimeError, match="has ended"):
        term.guard(zk.transaction())
    zk.delete(f"{zk_path}-written")


def test_no_object_is_kept(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A candidacy belongs to the client and the path: it outlives its object, and another object ends it."""
    Election(zk, zk_path, id="kept").stand()
    gc.collect()
    election = Election(zk, zk_path)
    assert election.wait(SOON) is not None
    gc.collect()
    assert ids(Election(connect(), zk_path)) == ["kept"]
    election.withdraw()
    eventually(queued(zk, zk_path, 0))


def test_a_wait_in_its_own_block(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """A thread that leads would wait for its client's candidacy for ever: it is told so; with a timeout, it waits."""
    election = Election(zk, zk_path)
    with election.lead():
        election.stand()
        with pytest.raises(RuntimeError, match=f"leads at {zk_path}"):
            election.wait()
        assert election.wait(0.1) is None
        waiting = in_thread(election.wait)
    assert waiting.result(SOON) is not None
    election.withdraw()
