"""A barrier whose parties are killed or cut off, and whose requests are lost."""

from __future__ import annotations

import threading
from threading import BrokenBarrierError

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import parties_in
from tests.helpers.eventually import PATIENCE, eventually
from tests.helpers.processes import Spawn, tell
from tests.helpers.proxy import Proxy
from zkconcurrent import Barrier


@pytest.mark.fault(36, 62)
def test_a_party_that_is_killed(party: Spawn, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """The barrier breaks within the session timeout, and is broken for the next run of the program until a reset."""
    victim, mine = party("meet", 3), Barrier(zk, zk_path, 3)
    tell(victim)
    eventually(parties_in(zk, zk_path, 1))
    waiting = in_thread(mine.wait)
    eventually(parties_in(zk, zk_path, 2))
    victim.kill()
    with pytest.raises(BrokenBarrierError):
        waiting.result(PATIENCE)
    with pytest.raises(BrokenBarrierError, match=zk_path):
        Barrier(zk, zk_path, 3).wait()
    mine.reset()
    assert sorted(each.result(PATIENCE) for each in [in_thread(mine.wait) for _ in range(3)]) == [0, 1, 2]


@pytest.mark.fault(262)
def test_a_session_that_ends_as_a_party_comes(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A party that does not know whether it came while the action runs breaks nothing, and comes again."""
    begun, go = threading.Event(), threading.Event()
    client = connect(hosts=proxy.hosts, timeout=10, **FAST)
    theirs, mine = Barrier(client, zk_path, 2), Barrier(zk, zk_path, 2, lambda: begun.set() or go.wait(30))
    waiting = [in_thread(mine.wait) for _ in range(2)]
    assert begun.wait(10)
    session = client.client_id
    with proxy.lose_answer("multi") as fault:
        late = in_thread(theirs.wait)
        proxy.refuse()
        fault.wait()
    connect(client_id=session).stop()  # closes the session
    proxy.resume()
    eventually(parties_in(zk, zk_path, 3))
    go.set()
    assert sorted(each.result(20) for each in waiting) == [0, 1]
    assert {mine.wait(20), late.result(20)} == {0, 1}


@pytest.mark.fault(9, 61)
def test_a_party_that_is_cut_off_as_it_comes(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A party whose time is up before its node was made: the others learn of it when it is back, by a thread."""
    client = connect(hosts=proxy.hosts, timeout=10, **FAST)
    theirs, mine = Barrier(client, zk_path, 2), Barrier(zk, zk_path, 2)
    waiting = in_thread(mine.wait)
    eventually(lambda: mine.n_waiting == 1)
    with proxy.lose_request("multi") as fault:
        late = in_thread(theirs.wait, 0.5)
        proxy.refuse()
        fault.wait()
    with pytest.raises(BrokenBarrierError):
        late.result(PATIENCE)
    assert not waiting.done()
    proxy.resume()
    with pytest.raises(BrokenBarrierError):
        waiting.result(PATIENCE)
    assert mine.broken
