"""A client that can't be used: not started, stopped, given up, of a parent process, or asked on kazoo's own thread.

Each call of each kind says so at once, by an error that names the path, the one cause that applies, and its remedy. A
wait that sleeps as its client is stopped ends with such an error. What can't be done leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.every_primitive import calls, each, sleeps, waiting
from tests.helpers.eventually import eventually
from tests.helpers.kinds import KINDS, nodes
from tests.helpers.processes import in_forked_child
from tests.helpers.proxy import Proxy
from zkconcurrent import ClientError, Lock
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

CAUSES = {
    "not started": "call client.start()",
    "is stopped": "call client.start()",
    "given up": "open another one",
    "before fork()": "in each child after the fork",
    "own threads": "hand the work to another thread",
    "exiting": "end this thread",
}


def check(text: str, cause: str) -> None:
    """Check that an error names this cause, with its remedy, and no other."""
    assert [each for each in CAUSES if each in text] == [cause], text
    assert CAUSES[cause] in text


def refused(call: Callable[[], object], cause: str, path: str) -> None:
    """Check that a call is refused for this cause, with the path."""
    with pytest.raises(ClientError) as raised:
        call()
    check(str(raised.value), cause)
    assert cause != "before fork()" or "worker_process_init" in str(raised.value)
    assert path in str(raised.value)


@each()
def test_never_started_and_stopped(of: Any, kind: str, zookeeper: Server, zk_path: str) -> None:
    """A client that was never started, and one that is stopped, or stopped and closed, are told apart."""
    client = KazooClient(zookeeper.hosts)
    asked = calls(of, kind, client, zk_path)
    for call in asked.values():
        refused(call, "not started", zk_path)
    client.start()
    asked["use"]()()
    client.stop()
    for call in asked.values():
        refused(call, "is stopped", zk_path)
    client.close()
    refused(asked["use"], "is stopped", zk_path)
    client.start()
    asked["use"]()()
    client.stop()
    client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_own_thread(kind: str, zk: KazooClient, zk_path: str) -> None:
    """A call on one of kazoo's threads says so."""
    for call in calls(zkconcurrent, kind, zk, zk_path).values():
        told = zk.handler.async_result()

        def ask(call: Callable[[], object] = call, told: Any = told) -> None:
            try:
                told.set(call())
            except ClientError as error:
                told.set(str(error))

        zk.handler.completion_queue.put(ask)
        check(str(told.get(timeout=20)), "own threads")


@pytest.mark.fault(24)
@waiting
def test_stopped_while_it_waits(of: Any, kind: str, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The wait ends with an error; others go on, unless they need the one that has left, and are told so."""
    row, near, far = KINDS[kind], connect(), connect()
    assert row.ends
    end = row.ends(of, far, zk_path)
    result = in_thread(row.wait, of, near, zk_path, 60.0)
    eventually(lambda: sleeps(near))
    near.stop()
    assert isinstance(result.exception(20), ClientError)
    if row.expired is False:
        assert not row.wait(of, far, zk_path, 20.0)
        return
    other = connect()
    result = in_thread(row.wait, of, other, zk_path, 60.0)
    eventually(lambda: sleeps(other))
    end()
    assert result.result(30)


@each()
def test_given_up(of: Any, kind: str, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A client whose tries to connect are used up says so."""
    client = connect(hosts=proxy.hosts, connection_retry={"max_tries": 2, "delay": 0.01})
    asked = calls(of, kind, client, zk_path)
    asked["use"]()()
    proxy.refuse()
    proxy.cut()
    eventually(lambda: Session.of(client).link.stopped)
    for call in asked.values():
        refused(call, "given up", zk_path)


BLOCKS = ("Election", "Election, latch", "Condition, with a lock")
"""What ends a block, which is silent in a child."""


@pytest.mark.fault(23)
@each()
def test_forked(of: Any, kind: str, zk: KazooClient, zk_path: str) -> None:
    """In a forked child each call is refused, also the end of a use but for a block's; the parent goes on."""
    asked = calls(of, kind, zk, zk_path)
    end = asked["use"]()
    before = nodes(zk, zk_path)

    def child() -> None:
        for call in asked.values():
            refused(call, "before fork()", zk_path)
        if kind in BLOCKS:
            end()
        else:
            refused(end, "before fork()", zk_path)

    in_forked_child(child)
    assert nodes(zk, zk_path) == before
    end()
    asked["use"]()()


@pytest.mark.fault(23)
@waiting
def test_forked_while_another_thread_waits(
    of: Any, kind: str, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """The thread goes on waiting in the parent, and gets what it waits for; in the child each call is refused."""
    row, near, far = KINDS[kind], connect(), connect()
    assert row.ends
    end = row.ends(of, far, f"{zk_path}/wait")
    result = in_thread(row.wait, of, near, f"{zk_path}/wait", 60.0)
    eventually(lambda: sleeps(near))

    def child() -> None:
        for call in calls(of, kind, near, zk_path).values():
            refused(call, "before fork()", zk_path)

    in_forked_child(child)
    assert not result.done()
    end()
    assert result.result(30)


def test_a_client_that_a_module_has_opened(zookeeper: Server, zk_path: str) -> None:
    """A client that was used by nobody before the fork is refused too; the error names what workers of pools call."""
    plain = KazooClient(zookeeper.hosts)
    plain.start()
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}") as opened:
        for client in (plain, opened):
            in_forked_child(lambda client=client: refused(Lock(client, zk_path).acquire, "before fork()", zk_path))
    plain.stop()
    plain.close()
