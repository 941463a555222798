"""Elections on a real ZooKeeper: one candidate leads, the others follow in order, and a lost term is told."""

from __future__ import annotations

import gc
import itertools
import os
import socket
import sys
import threading
import time
import weakref
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import children, queued
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import finalizing
from tests.helpers.processes import Spawn, line_from, spawning
from tests.helpers.proxy import Proxy
from zkconcurrent import ClientError, Election, ForeignNodeError, Lock, LockLostError, RefusedError
from zkconcurrent._engine.session import Session
from zkconcurrent._runtime.waiting import LONGEST_SLEEP, wait
from zkconcurrent._threads import election as elections
from zkconcurrent._threads.base import candidacy as _candidacy
from zkconcurrent._threads.base import lock_base
from zkconcurrent._threads.base.candidacy import Candidacy, ElectionState
from zkconcurrent._threads.base.lock_core import LockCore
from zkconcurrent.testing import Server

LAYOUTS = ("selector", "latch")
SESSION = 4.0
SOON = 30.0  # seconds for what is done at once, on a busy machine


spawn = spawning("tests.integration.election_party", SESSION)


def ids(election: Election) -> list[str]:
    """Return the ids of all candidates, the leader first."""
    return [each.id for each in election.candidates()]


def state_of(election: Any) -> ElectionState:
    """Return what an election's client knows of it, in either binding."""
    state = Session.of(election.client).directory[election.path]
    assert isinstance(state, ElectionState)
    return state


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_leads(layout: str, connect: Connect, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """The candidates lead one after the other, in the order of arrival; all see all, by their ids."""
    first, second, third = (Election(connect(), zk_path, id=name, layout=layout) for name in ("a", "b", "ü"))
    assert first.leader() is None
    assert first.candidates() == []
    assert not first.is_leader()
    order: list[str] = []
    go = threading.Event()

    def lead(election: Election) -> int:
        with election.lead() as term:
            order.append(election.id)
            assert election.is_leader()
            assert election.leader().token == term.token  # type: ignore[union-attr]
            return int(term.token)

    with first.lead() as term:
        assert first.is_leader()
        waiting = [in_thread(lead, second)]
        eventually(queued(zk, zk_path, 2))
        waiting.append(in_thread(lead, third))
        eventually(queued(zk, zk_path, 3))
        assert ids(first) == ids(third) == ["a", "b", "ü"]
        leader = third.leader()
        assert leader is not None
        assert (leader.id, leader.data, leader.token) == ("a", b"a", term.token)
        assert leader.session == first.client.client_id[0]
        assert leader.node == f"{zk_path}/{children(zk, zk_path)[0]}"
        assert abs(leader.queued.timestamp() - time.time()) < 600
        assert not second.is_leader()
        assert not any(each.done() for each in waiting)
        assert zk.get(leader.node)[0] == b"a"
        marker = "-lock-" if layout == "selector" else "-latch-"
        assert all(marker in name for name in children(zk, zk_path))
        tokens = [term.token]
        go.set()
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


def test_an_id_of_the_programs_own(zk: KazooClient, zk_path: str) -> None:
    """It shows no host and no process, whatever it is like."""
    for name in ("web-1", "7@host", "7@host#12345", "x@host#12345678", ""):
        election = Election(zk, zk_path, id=name)
        with election.lead():
            leader = election.leader()
        assert leader is not None
        assert (leader.id, leader.data, leader.host, leader.pid) == (name, name.encode(), None, None)


def test_not_elected_in_time(zk: KazooClient, connect: Connect, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that is not entered in time names the leader, and leaves no node; nothing or less is one attempt."""
    monkeypatch.setattr(lock_base, "CLEAN_UP_PATIENCE", 30.0)
    mine, theirs = Election(zk, zk_path), Election(connect(), zk_path, id="one")
    with theirs.lead(timeout=0):
        for timeout in (0, -3, 0.1):
            with pytest.raises(TimeoutError, match=f"^not elected .*: {zk_path}, held by 'one'$"), mine.lead(timeout):
                pytest.fail("the block has run")
        assert len(mine.candidates()) == 1
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
    with pytest.raises(ValueError, match="not callable"):
        election.run(7)  # type: ignore[arg-type]
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
    assert mine.wait(0) is None
    assert mine.wait(0.1) is None
    waiting = [in_thread(mine.wait) for _ in range(2)]
    lost = term.lost
    assert not lost.is_set()
    theirs.withdraw()
    assert lost.is_set()
    assert not theirs.is_leader()
    with pytest.raises(RuntimeError, match="ended"):
        _ = term.token
    assert theirs.wait() is None
    terms = [each.result(SOON) for each in waiting]
    assert all(each.token == mine.leader().token for each in terms)  # type: ignore[union-attr]
    assert mine.is_leader()
    theirs.stand()
    eventually(queued(zk, zk_path, 2))
    theirs.withdraw()
    assert ids(mine) == ["mine"]
    mine.withdraw()
    mine.withdraw()
    assert mine.candidates() == []
    mine.stand()
    assert mine.wait(SOON) is not None
    mine.withdraw()


@pytest.mark.fault(211)
def test_a_withdrawal_whose_thread_is_late(connect: Connect, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The term is told before the call returns, though the candidacy's thread has not run since."""
    election = Election(connect(timeout=SESSION), zk_path)
    election.stand()
    term = election.wait(SOON)
    assert term is not None
    with monkeypatch.context() as late:
        late.setattr(Candidacy, "set", lambda _: None)  # nothing wakes that thread
        election.withdraw()
        assert term.lost.is_set()
    election.withdraw()
    eventually(lambda: not election.candidates())


def test_a_withdrawal_ends_the_wait(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A thread that waits for the term returns without one."""
    mine, theirs = Election(zk, zk_path), Election(connect(), zk_path)
    with theirs.lead():
        mine.stand()
        eventually(queued(zk, zk_path, 2))
        waiting = in_thread(mine.wait)
        candidacy = state_of(mine).candidacy
        assert candidacy is not None
        eventually(lambda: candidacy.waiters)
        mine.withdraw()
        assert waiting.result(SOON) is None
        assert len(theirs.candidates()) == 1


def test_to_publish(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The leader's data are what it has published, until the term ends; the next begins with the id."""
    mine, theirs = Election(zk, zk_path, id="mine"), Election(connect(), zk_path)
    for _ in range(2):
        with mine.lead() as term:
            assert theirs.leader().id == "mine"  # type: ignore[union-attr]
            for data in (b"10.0.0.7:8080", b"10.0.0.7:8080", b"", b"\xff\0"):
                term.publish(data)
                leader = theirs.leader()
                assert leader is not None
                assert leader.data == data
                assert leader.token == term.token
            assert leader.id == "\ufffd\0"
            with pytest.raises(TypeError, match="data must be bytes, not str"):
                term.publish("text")
            with pytest.raises(RefusedError, match="max_request"):
                term.publish(bytes(2_000_000))
            assert mine.is_leader()
        for call in (lambda: term.publish(b"late"), lambda: term.token):
            with pytest.raises(RuntimeError, match="has ended"):
                call()
    assert not term.lost.is_set()


def test_who_waits_behind_a_publication(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A candidate whose leader publishes again and again waits on, and leads next. A latch's leader can't publish."""
    mine, theirs = Election(zk, zk_path), Election(connect(), zk_path)
    with mine.lead() as term:
        theirs.stand()
        eventually(queued(zk, zk_path, 2))
        for n in range(20):
            term.publish(b"%d" % n)
        assert not theirs.is_leader()
    assert theirs.wait(SOON) is not None
    theirs.withdraw()
    latch = Election(zk, f"{zk_path}-latch", layout="latch")
    with latch.lead() as term, pytest.raises(RuntimeError, match="a LeaderLatch of Curator"):
        term.publish(b"never seen")


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


def test_to_observe(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The leader as it is, then each change: another leader, other data, none."""
    first, second, watched = (Election(connect(), zk_path, id=name) for name in ("a", "b", "c"))
    leaders = watched.observe()
    assert next(leaders) is None
    assert zk.exists(zk_path) is None
    coming = in_thread(next, leaders)
    with first.lead() as term:
        assert coming.result(SOON).token == term.token
        coming = in_thread(next, leaders)
        second.stand()
        term.publish(b"at home")
        assert coming.result(SOON).data == b"at home"
        coming = in_thread(next, leaders)
    assert coming.result(SOON).id == "b"
    second.withdraw()
    assert next(leaders) is None
    second.stand()
    assert next(leaders).id == "b"  # type: ignore[union-attr]
    assert next(watched.observe()).id == "b"  # type: ignore[union-attr]
    second.withdraw()
    assert not state_of(watched).session.registry.tickets


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
        for call in (lambda: term.token, lambda: term.publish(b"late")):
            with pytest.raises(LockLostError, match="another candidate may lead"):
                call()
    assert raised.value.path == zk_path
    with election.lead(timeout=SOON) as again:
        assert not again.lost.is_set()
    with pytest.raises(LockLostError) as raised, election.lead() as term:
        zookeeper.expire(election.client)
        assert term.lost.wait(SOON)
        raise OSError("of the block")
    assert isinstance(raised.value.__context__, OSError)
    with pytest.raises(KeyboardInterrupt), election.lead() as term:
        zookeeper.expire(election.client)
        assert term.lost.wait(SOON)
        raise KeyboardInterrupt
    eventually(queued(zk, zk_path, 0))


@pytest.mark.fault(89)
@pytest.mark.parametrize("trouble", ["expire", "delete"])
def test_a_candidacy_goes_on(zookeeper: Server, trouble: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """After a loss the candidacy queues again, behind those that wait, and the next term has a higher token."""
    mine, theirs = Election(connect(**FAST), zk_path, id="mine"), Election(connect(), zk_path, id="theirs")
    mine.stand()
    before = mine.wait(SOON)
    assert before is not None
    token = before.token
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
    assert after.token > token
    with pytest.raises(LockLostError):
        _ = before.token
    mine.withdraw()


@pytest.mark.fault(231)
def test_withdrawn_as_the_wait_begins(
    connect: Connect, proxy: Proxy, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A withdrawal just before the candidacy's thread first sleeps ends that sleep, in a silence, too."""
    election = Election(connect(hosts=proxy.hosts, timeout=30.0), zk_path)

    def late(*arguments: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            proxy.stall()
            candidacy = state_of(election).candidacy
            assert candidacy is not None
            candidacy.withdraw()
        return wait(*arguments)

    monkeypatch.setattr(_candidacy, "wait", late)
    election.stand()
    # Before that sleep ends by itself.
    eventually(
        lambda: (candidacy := state_of(election).candidacy) is not None and candidacy.over, patience=LONGEST_SLEEP - 1
    )
    proxy.resume()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("stopped", [False, True])
def test_a_candidacy_that_is_over_is_freed(stopped: bool, connect: Connect, zk_path: str) -> None:
    """The path is free once its last object is gone, without the garbage collector: no cycle keeps anything."""
    election = Election(client := connect(), zk_path)
    election.stand()
    assert election.wait(SOON) is not None
    state = weakref.ref(state_of(election))
    candidacy = weakref.ref(state_of(election).candidacy)
    if stopped:
        client.stop()
    else:
        election.withdraw()
    eventually(lambda: (there := candidacy()) is not None and there.over)
    del election
    eventually(lambda: state() is None and candidacy() is None)


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

        def attempt() -> None:
            with mine.lead(timeout=0):
                pytest.fail("two lead")

        for call in (lead, attempt, mine.stand, mine.leader, mine.candidates, lambda: next(mine.observe())):
            with pytest.raises(ForeignNodeError, match="other layout") as raised:
                call()
            assert raised.value.path == zk_path
        assert len(theirs.candidates()) == 1
        assert not mine.is_leader()
        with pytest.raises(RuntimeError, match="call stand"):
            mine.wait(0)


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
    mine.stand()
    assert mine.wait(SOON) is not None
    mine.withdraw()


def test_one_path_is_one_thing(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A client has one primitive, of one layout, at a path. Another client's Lock there excludes the selector's."""
    election = Election(zk, zk_path)
    with pytest.raises(ValueError, match="Election"):
        Lock(zk, zk_path)
    with pytest.raises(ValueError, match="layout='latch'"):
        Election(zk, zk_path, layout="latch")
    with Lock(connect(), zk_path), pytest.raises(TimeoutError), election.lead(timeout=0):
        pytest.fail("both are in")


def test_bad_arguments(zk: KazooClient, zk_path: str) -> None:
    """They are refused at construction, and where they are given."""
    for wrong in (7, b"name"):
        with pytest.raises(TypeError, match="id must be a str"):
            Election(zk, zk_path, id=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="id contains"):
        Election(zk, zk_path, id="\ud800")
    for layout in ("mutex", None, "", [], {}):
        with pytest.raises(ValueError, match="layout must be 'selector' or 'latch'"):
            Election(zk, zk_path, layout=layout)  # type: ignore[arg-type]
    with pytest.raises(RefusedError), Election(zk, f"{zk_path}-large", id="x" * 2_000_000).lead(1):
        pass


def test_who_would_wait_for_itself(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """A thread that leads, or whose client stands, is told so instead; its term goes on."""
    election = Election(zk, zk_path)
    with election.lead() as term:
        with pytest.raises(RuntimeError, match="leads at"), Election(zk, zk_path).lead():
            pytest.fail("it leads twice")
        assert term.token
        assert election.is_leader()
    election.stand()
    with pytest.raises(RuntimeError, match="stands at"), election.lead():
        pytest.fail("it leads twice")
    with pytest.raises(RuntimeError, match="stands at"):
        in_thread(election.run, print).result(SOON)
    election.withdraw()
    block = election.lead()
    with block:
        pass
    with pytest.raises(RuntimeError, match="one block"), block:
        pytest.fail("a block is used twice")


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


@pytest.mark.fault(88)
@pytest.mark.threads_only("is of other processes, which have threads")
def test_the_leader_is_killed(zk: KazooClient, connect: Connect, zk_path: str, spawn: Spawn) -> None:
    """The next candidate leads once the session of the killed one is over; and the token is higher."""
    leader = spawn("doomed")
    token = int(line_from(leader))
    heir, third = (Election(connect(), zk_path, id=name) for name in ("heir", "third"))
    heir.stand()
    eventually(queued(zk, zk_path, 2))
    third.stand()
    eventually(lambda: ids(heir) == ["doomed", "heir", "third"])
    leader.kill()
    for next_one in (heir, third):
        term = next_one.wait(SOON)
        assert term is not None
        assert term.token > token
        token = term.token
        next_one.withdraw()


@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_a_handler_that_stands(zk: KazooClient, zk_path: str) -> None:
    """Wherever a signal handler stands and waits in a `stand`, there is one candidacy, and `withdraw` ends it."""
    election = Election(zk, zk_path)
    for line in itertools.count(1):
        left = line

        def at_line(frame: Any, event: str, _: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith("_threads/base/candidacy.py"):
                return None
            if event == "line":
                left -= 1
                if not left:
                    sys.settrace(None)
                    election.stand()
                    with suppress(ClientError):  # where this thread keeps what the candidacy needs
                        assert election.wait() is not None
            return at_line

        before = sys.gettrace()  # that of coverage
        sys.settrace(at_line)
        try:
            election.stand()
        finally:
            sys.settrace(before)
        assert election.wait(SOON) is not None, line
        election.withdraw()
        eventually(queued(zk, zk_path, 0), f"line {line}")
        assert not election.is_leader()
        if left > 0:
            break
    assert line > 10


@pytest.mark.threads_only("calls on the candidacy's thread, where no task runs")
def test_a_finalizer_that_withdraws(zk: KazooClient, zk_path: str) -> None:
    """On the candidacy's own thread, where the garbage collector may run it, a withdrawal does not wait for itself."""
    election = Election(zk, zk_path)
    with finalizing("_recipes/lock.py", election.withdraw):
        election.stand()
        assert election.wait(SOON) is None
    election.withdraw()
    assert children(zk, zk_path) == []


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


@pytest.mark.threads_only("tests/unit/test_twins.py compares the repr of each class of tasks with its twin's")
def test_the_object_itself(zk: KazooClient, zk_path: str) -> None:
    """Its repr tells what this process knows."""
    election = Election(zk, zk_path, id="me")
    start = f"<zkconcurrent.Election at {id(election):#x}: id='me' "
    assert repr(election) == f"{start}does not lead path={zk_path!r}>"
    assert (election.path, election.id, election.client) == (zk_path, "me", zk)
    with election.lead() as term:
        assert repr(election) == f"{start}leads path={zk_path!r}>"
        assert "lasts" in repr(term)
    assert "over" in repr(term)
    assert zkconcurrent.namespace(zk).Election(zk_path[1:], id="me").id == "me"


@pytest.mark.fault(217)
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_interrupts_at_the_end_of_a_block(zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two in a row, as the block is left, or as it begins: the term ends, which no later call could end."""
    election = Election(zk, zk_path)
    seat, strikes = election._leader_lock, list[type[BaseException]]()

    def strike(*_: Any) -> None:
        if strikes:
            raise strikes.pop()

    def drop(hold: Any) -> None:
        strike()
        LockCore.drop(seat._lock_core, hold)

    monkeypatch.setattr(seat._lock_core, "drop", drop)
    with monkeypatch.context() as patch:
        patch.setattr(seat, "end_term", strike)
        with pytest.raises(TimeoutError), election.lead(20):
            strikes += [TimeoutError, KeyboardInterrupt]
    assert not strikes
    eventually(queued(zk, zk_path, 0))
    strikes += [TimeoutError, KeyboardInterrupt]
    with monkeypatch.context() as patch:
        patch.setattr(elections, "Term", strike)
        with pytest.raises(TimeoutError), election.lead(20):
            pass
    assert not strikes
    eventually(queued(zk, zk_path, 0))


@pytest.mark.fault(418)
def test_a_listener_that_exits(connect: Connect, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sys.exit()` in a listener ends no thread of the library: the client goes on standing."""
    monkeypatch.setattr(_candidacy, "EXIT_PAUSE", 0.01)
    election, told = Election(connect(), zk_path), list[str]()

    def leave(event: zkconcurrent.LockEvent) -> None:
        told.append(type(event).__name__)
        if told == ["Acquired"]:
            sys.exit(1)

    remove = zkconcurrent.add_listener(leave)
    try:
        election.stand()
        eventually(lambda: told.count("Acquired") == 2)
        assert election.wait(SOON) is not None
        election.withdraw()
    finally:
        remove()
