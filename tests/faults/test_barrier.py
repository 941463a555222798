"""A barrier whose parties are killed, stopped or interrupted, and whose requests are lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent import futures
from threading import BrokenBarrierError
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.faults.conftest import SESSION, SLACK
from tests.helpers.contenders import barrier_state, parties_in
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import at_every_line
from tests.helpers.processes import Spawn, line_from, tell
from tests.helpers.proxy import Proxy
from zkconcurrent import Barrier
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server


def waits(server: Server, path: str, generation: int = 0) -> Callable[[], bool]:
    """Return a condition: a party knows that it has come to the generation, as it has left its watches."""
    return lambda: f"{path}/{generation:010d}\n" in server.command("wchp")


def test_processes_meet(party: Spawn, zk: KazooClient, zk_path: str) -> None:
    """Parties in processes of their own pass together, generation by generation."""
    parties = [party("meet", 3) for _ in range(3)]
    for generation in range(5):
        for each in parties:
            tell(each)
        assert sorted(line_from(each) for each in parties) == ["0", "1", "2"], generation
    assert barrier_state(zk, zk_path)["generation"] == 5


@pytest.mark.fault(36)
@pytest.mark.parametrize("first", [True, False])
def test_a_party_killed_while_it_waits(
    first: bool, party: Spawn, zk: KazooClient, zk_path: str, in_thread: InThread
) -> None:
    """The others learn that the barrier is broken within the session timeout, whichever party died."""
    victim = party("meet", 3)
    mine = Barrier(zk, zk_path, 3)
    if first:
        tell(victim)
        eventually(parties_in(zk, zk_path, 1))
    waiting = in_thread(mine.wait)
    eventually(parties_in(zk, zk_path, 1 + first))
    if not first:
        tell(victim)
        eventually(parties_in(zk, zk_path, 2))
    victim.kill()
    with pytest.raises(BrokenBarrierError):
        waiting.result(SESSION + SLACK)
    assert mine.broken


@pytest.mark.fault(36)
@pytest.mark.long
def test_a_party_killed_while_it_acts(party: Spawn, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Nobody passes, also not a party whose time is up and that waits for the action."""
    victim = party("meet", 2, "action")
    mine = Barrier(zk, zk_path, 2)
    assert line_from(victim) == "ready"
    waiting = in_thread(mine.wait, 6.0)
    eventually(parties_in(zk, zk_path, 1))
    tell(victim)
    assert line_from(victim) == "acting"
    with pytest.raises(futures.TimeoutError):
        waiting.result(7)
    victim.kill()
    with pytest.raises(BrokenBarrierError):
        waiting.result(SESSION + SLACK)


@pytest.mark.fault(62)
@pytest.mark.parametrize("way", ["reset", "destroy", "another path"])
def test_a_run_after_one_that_was_killed(
    way: str, party: Spawn, zk: KazooClient, zk_path: str, in_thread: InThread
) -> None:
    """A barrier that a killed party broke is broken for the next run; it begins anew by each of the ways documented."""
    victim, mine = party("meet", 2), Barrier(zk, zk_path, 2)
    tell(victim)
    eventually(parties_in(zk, zk_path, 1))
    victim.kill()
    eventually(parties_in(zk, zk_path, 0))
    with pytest.raises(BrokenBarrierError):
        mine.wait(0)
    with pytest.raises(BrokenBarrierError, match=zk_path):
        mine.wait()
    if way == "another path":
        mine = Barrier(zk, f"{zk_path}-2", 2)
    else:
        getattr(mine, way)()
    assert sorted(each.result(20) for each in [in_thread(mine.wait) for _ in range(2)]) == [0, 1]


@pytest.mark.fault(36)
def test_a_party_killed_after_the_trip(party: Spawn, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """The generation has tripped, and the next is not broken by it."""
    victim = party("meet", 2)
    mine = Barrier(zk, zk_path, 2)
    waiting = in_thread(mine.wait)
    tell(victim)
    assert {int(line_from(victim)), waiting.result(10)} == {0, 1}
    victim.kill()
    other = party("meet", 2)
    waiting = in_thread(mine.wait)
    tell(other)
    assert {int(line_from(other)), waiting.result(10)} == {0, 1}


@pytest.mark.fault(15)
def test_a_stopped_party(party: Spawn, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Stopped past its session while it waits, it is told that its generation is broken when it goes on."""
    stopped = party("meet", 3)
    mine = Barrier(zk, zk_path, 3)
    tell(stopped)
    eventually(parties_in(zk, zk_path, 1))
    waiting = in_thread(mine.wait)
    eventually(parties_in(zk, zk_path, 2))
    stopped.send_signal(signal.SIGSTOP)
    with pytest.raises(BrokenBarrierError):
        waiting.result(SESSION + SLACK)
    mine.reset()
    stopped.send_signal(signal.SIGCONT)
    assert line_from(stopped) == "broken"
    assert not mine.broken


def test_a_party_stopped_across_the_trip(
    party: Spawn, zookeeper: Server, zk: KazooClient, zk_path: str, in_thread: InThread
) -> None:
    """A party that does not run when the barrier trips, until its session is over, has passed all the same."""
    stopped = party("meet", 2)
    mine = Barrier(zk, zk_path, 2)
    tell(stopped)
    eventually(waits(zookeeper, zk_path))
    stopped.send_signal(signal.SIGSTOP)
    assert in_thread(mine.wait).result(SLACK) == 1
    eventually(parties_in(zk, zk_path, 0))
    stopped.send_signal(signal.SIGCONT)
    assert line_from(stopped) == "0"


@pytest.mark.fault(1, 4)
@pytest.mark.parametrize("effect", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("action", [False, True])
def test_a_lost_multi(
    effect: str,
    nth: int,
    action: bool,
    zk: KazooClient,
    connect: Connect,
    proxy: Proxy,
    zk_path: str,
    in_thread: InThread,
) -> None:
    """Whichever write of coming, acting and tripping is lost, applied or not, both pass, once."""
    ran: list[int] = []
    client = connect(hosts=proxy.hosts, timeout=10, **FAST)
    theirs = Barrier(client, zk_path, 2, (lambda: ran.append(1)) if action else None)
    mine = Barrier(zk, zk_path, 2)
    with getattr(proxy, effect)("multi", nth=nth) as fault:
        for generation in range(3):
            waiting = in_thread(mine.wait, 20)
            eventually(parties_in(zk, zk_path, 1, generation))
            assert (waiting, theirs.wait(20)) == (waiting, 1)
            assert waiting.result(20) == 0
            assert len(ran) == (generation + 1) * action
            eventually(parties_in(zk, zk_path, 0, generation))
        fault.wait()
    assert barrier_state(zk, zk_path)["generation"] == 3


@pytest.mark.fault(1, 4)
@pytest.mark.parametrize("effect", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("way", ["abort", "reset", "time-out"])
def test_a_lost_write(
    effect: str, way: str, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A break or reset is done once, whether its answer or its request was lost."""
    theirs, mine = Barrier(connect(hosts=proxy.hosts, timeout=10, **FAST), zk_path, 3), Barrier(zk, zk_path, 3)
    waiting = in_thread(mine.wait, 30)
    eventually(lambda: mine.n_waiting == 1)
    with getattr(proxy, effect)("setData") as fault:
        if way == "time-out":
            with pytest.raises(BrokenBarrierError):
                theirs.wait(0.3)
        else:
            getattr(theirs, way)()
        fault.wait()
    with pytest.raises(BrokenBarrierError):
        waiting.result(20)
    assert barrier_state(zk, zk_path)["generation"] == (way == "reset")
    assert mine.broken == (way != "reset")
    eventually(parties_in(zk, zk_path, 0))


@pytest.mark.fault(7, 8)
def test_a_drop_while_waiting(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Watches are set anew after a reconnect; a trip while the connection was down is not missed."""
    client = connect(hosts=proxy.hosts, timeout=10, **FAST)
    theirs, mine = Barrier(client, zk_path, 2), Barrier(zk, zk_path, 2)
    for generation in range(2):
        waiting = in_thread(theirs.wait)
        eventually(parties_in(zk, zk_path, 1, generation))
        proxy.refuse()
        proxy.cut()
        eventually(lambda: not client.connected)
        if generation:
            assert mine.wait(10) == 1
        proxy.resume()
        eventually(lambda: client.connected)
        if not generation:
            assert not waiting.done()
            assert mine.wait(10) == 1
        assert waiting.result(10) == 0


@pytest.mark.fault(9)
@pytest.mark.long
def test_a_service_out_of_reach(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A party whose time is up is told so in time; the others learn of it when its node goes."""
    theirs, mine = Barrier(connect(hosts=proxy.hosts, timeout=18, **FAST), zk_path, 3), Barrier(zk, zk_path, 3)
    waiting = in_thread(mine.wait)
    eventually(lambda: mine.n_waiting == 1)
    late = in_thread(theirs.wait, 5.0)
    eventually(lambda: mine.n_waiting == 2)
    proxy.stall()
    with pytest.raises(BrokenBarrierError):
        late.result(5 + 18 / 3 + 4)
    assert not waiting.done()
    proxy.resume()
    with pytest.raises(BrokenBarrierError):
        waiting.result(20)


@pytest.mark.fault(262)
@pytest.mark.parametrize("effect", ["lose_request", "lose_answer"])
def test_a_session_that_ends_as_a_party_comes(
    effect: str, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A party that does not know whether it came while the action runs breaks nothing, and comes again."""
    begun, go = threading.Event(), threading.Event()
    client = connect(hosts=proxy.hosts, timeout=10, **FAST)
    theirs, mine = Barrier(client, zk_path, 2), Barrier(zk, zk_path, 2, lambda: begun.set() or go.wait(30))
    waiting = [in_thread(mine.wait) for _ in range(2)]
    assert begun.wait(10)
    session = client.client_id
    with getattr(proxy, effect)("multi") as fault:
        late = in_thread(theirs.wait)
        proxy.refuse()
        fault.wait()
    connect(client_id=session).stop()  # closes the session
    proxy.resume()
    eventually(parties_in(zk, zk_path, 3))
    go.set()
    assert sorted(each.result(20) for each in waiting) == [0, 1]
    assert {mine.wait(20), late.result(20)} == {0, 1}


@pytest.mark.fault(9, 61, 166)
@pytest.mark.parametrize("failures", [0, 2])
def test_a_party_that_is_cut_off_as_it_comes(
    failures: int,
    zk: KazooClient,
    connect: Connect,
    proxy: Proxy,
    zk_path: str,
    in_thread: InThread,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its time is up before its node was made; the others learn of it when it is back, by a thread."""
    client = connect(hosts=proxy.hosts, timeout=10, **FAST)
    theirs, mine = Barrier(client, zk_path, 2), Barrier(zk, zk_path, 2)
    link = Session.of(client).link
    spawn, tries = link.spawn, []

    def start(*args: Any, **options: bool) -> None:
        tries.append(args)
        if len(tries) <= failures:
            raise RuntimeError("can't start new thread")
        spawn(*args, **options)

    monkeypatch.setattr(link, "spawn", start)
    waiting = in_thread(mine.wait)
    eventually(lambda: mine.n_waiting == 1)
    with proxy.lose_request("multi") as fault:
        late = in_thread(theirs.wait, 0.5)
        proxy.refuse()
        fault.wait()
    with pytest.raises(BrokenBarrierError):
        late.result(10)
    assert not waiting.done()
    proxy.resume()
    with pytest.raises(BrokenBarrierError):
        waiting.result(20)
    assert mine.broken
    assert len(tries) == failures + 1


@pytest.mark.fault(16)
@pytest.mark.long
def test_a_wait_interrupted_at_every_line(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Alone at a barrier for one, the wait is interrupted and leaves nothing, or has passed."""
    ran: list[int] = []
    barrier = Barrier(connect(timeout=4), zk_path, 1, lambda: ran.append(1))
    barrier.wait()
    for hook in at_every_line():
        before = len(ran)
        try:
            with hook:
                assert barrier.wait() == 0
        except KeyboardInterrupt:
            pass
        except BrokenBarrierError:
            assert hook.where.endswith(" send"), hook.where  # kazoo takes what is raised there for a closed connection
        assert len(ran) <= before + 1
        generation = int(str(barrier_state(zk, zk_path)["generation"]))
        where = f"{zk_path}/{generation:010d}"
        eventually(
            lambda where=where: not zk.exists(where) or not zk.get_children(where),
            hook.where,
        )
        eventually(lambda: not barrier._session.registry.tickets, f"left at {hook.where}")
        barrier.reset()
    assert hook.line > 100


@pytest.mark.fault(16)
@pytest.mark.long
def test_a_waiter_interrupted_at_every_line(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Wherever a waiting party is interrupted, no node of it is left, and a reset makes all good."""
    barrier, other = Barrier(connect(timeout=4), zk_path, 2), Barrier(zk, zk_path, 2)

    def wait() -> None:
        with pytest.raises(BrokenBarrierError):
            barrier.wait(0.02)

    wait()
    other.reset()
    for hook in at_every_line(step=2):
        other.reset()
        try:
            with hook:
                barrier.wait(0.02)
        except (KeyboardInterrupt, BrokenBarrierError):
            pass
        where = f"{zk_path}/{int(str(barrier_state(zk, zk_path)['generation'])):010d}"
        eventually(
            lambda where=where: not zk.exists(where) or not zk.get_children(where),
            hook.where,
        )
    assert not barrier._session.registry.tickets


@pytest.mark.usefixtures("uncollected")
def test_an_interrupted_party_is_missed(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Ctrl-C in the main thread while it waits breaks the barrier for those who wait with it, as in `threading`."""
    mine, theirs = Barrier(zk, zk_path, 3), Barrier(connect(), zk_path, 3)

    def interrupt() -> None:
        eventually(lambda: theirs.n_waiting == 2)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    waiting, interrupting = in_thread(theirs.wait), in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        mine.wait()
    interrupting.result(10)
    with pytest.raises(BrokenBarrierError):
        waiting.result(10)
