"""A wait that is in trouble: its session ends, its connection is lost, its nodes are deleted, no server is in reach.

What ends the wait ends it all the same, whether it comes meanwhile or afterwards; a deadline ends the wait before the
service is in reach again. `Kind.expired` names the kinds whose wait does not outlive its session.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NotEmptyError

from tests.conftest import FAST, Connect, InThread
from tests.every_primitive import SAME_RECIPE, calls, each, sleeps, waiting
from tests.helpers.eventually import eventually
from tests.helpers.kinds import KINDS, nodes
from tests.helpers.proxy import Proxy


def outcome(call: Callable[[], object]) -> object:
    """Return the result, or the class of the error."""
    try:
        return call()
    except Exception as error:
        return type(error)


class Scene:
    """A wait of one client, near, which sleeps; another client, far, can end it.

    Attributes:
        result: what came of the wait.
        end: ends it.
    """

    def __init__(self, of: Any, kind: str, near: KazooClient, far: KazooClient, path: str, in_thread: InThread) -> None:
        self.row, self.near, self.far, self.path = KINDS[kind], near, far, path
        assert self.row.ends
        end = self.row.ends(of, far, path)
        assert end
        self.end = end
        self.result = in_thread(outcome, lambda: self.row.wait(of, near, path, 60.0))
        eventually(lambda: sleeps(near))

    def check(self, *, ends: bool = True) -> None:
        """Check that the wait has not ended, unless it has to, and is ended on this thread, which may release."""
        if self.row.expired is None and ends:
            assert not self.result.done()
            outcome(self.end)
        assert self.result.result(50) is (self.row.expired is not False)


@pytest.mark.fault(5, 6)
@pytest.mark.parametrize("missed", [True, False], ids=["in the gap", "afterwards"])
@waiting
def test_its_session_ends(
    of: Any, kind: str, missed: bool, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """The wait goes on in the next session; what ends it in the gap, or afterwards, is not missed."""
    scene = Scene(of, kind, connect(hosts=proxy.hosts, **FAST), connect(), zk_path, in_thread)
    near, old = scene.near, scene.near.client_id
    proxy.refuse()
    proxy.cut()
    eventually(lambda: not near.connected)
    connect(client_id=old).stop()  # closes the session
    if missed:
        outcome(scene.end)
    proxy.resume()
    if not missed and scene.row.expired is None:
        eventually(lambda: near.connected and near.client_id[0] != old[0] and sleeps(near))
    scene.check(ends=not missed)


@pytest.mark.fault(8)
@waiting
def test_its_connection_is_lost(
    of: Any, kind: str, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """What ends the wait meanwhile is not missed."""
    scene = Scene(of, kind, connect(hosts=proxy.hosts, timeout=30, **FAST), connect(), zk_path, in_thread)
    proxy.refuse()
    proxy.cut()
    eventually(lambda: not scene.near.connected)
    assert not scene.result.done()
    scene.end()
    proxy.resume()
    assert scene.result.result(50) is True


def delete_all_but(client: KazooClient, path: str, session: int) -> None:
    """Delete a path with all below it, but for the nodes of a session."""
    for node in sorted(nodes(client, path), reverse=True):
        stat = client.exists(node)
        if stat and stat.ephemeralOwner != session:
            with suppress(NoNodeError, NotEmptyError):
                client.delete(node)


@pytest.mark.fault(20)
@waiting
def test_its_nodes_are_deleted(
    of: Any, kind: str, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """An operator deletes all that the waiter has made, or waits for: it makes that anew, and waits on."""
    scene = Scene(of, kind, connect(), connect(), zk_path, in_thread)
    delete_all_but(zk, zk_path, scene.far.client_id[0])
    if scene.row.expired is None:
        eventually(lambda: sleeps(scene.near) or scene.result.done())
        outcome(scene.end)
    scene.check(ends=False)


@pytest.mark.fault(9, 10)
@pytest.mark.parametrize("how", ["silent", "refused"])
@each(
    lambda kind, row: row.ends and kind not in (*SAME_RECIPE, "Group")
)  # whose deadline is for each change: its first look has none
def test_out_of_reach(
    of: Any, kind: str, how: str, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A wait with a deadline ends while no server is in reach; later the wait is as if it had not been."""
    row, near = KINDS[kind], connect(hosts=proxy.hosts, timeout=4, **FAST)
    calls(of, kind, near, f"{zk_path}-warm")["use"]()()
    if how == "silent":
        proxy.stall()
    else:
        proxy.refuse()
        proxy.cut()
        eventually(lambda: not near.connected)
    timed = in_thread(outcome, lambda: row.wait(of, near, zk_path, 0.3))
    assert timed.result(30) is False
    proxy.resume()
    eventually(lambda: near.connected)
    scene = Scene(of, kind, near, connect(), zk_path, in_thread)
    scene.end()
    assert scene.result.result(50) is True
