"""`destroy()`: all nodes of a path go, whatever is lost; not while it is used, and not if others have nodes there."""

from __future__ import annotations

import os
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.every_primitive import can_end, class_of, each, sleeps
from tests.helpers.eventually import eventually
from tests.helpers.kinds import KINDS, make, nodes
from tests.helpers.proxy import Proxy
from zkconcurrent import ForeignNodeError

ending = each(lambda kind, _: can_end(kind))


@pytest.mark.parametrize("effect", ["lose_answer", "lose_request"])
@ending
def test_all_nodes_go(
    of: Any, kind: str, effect: str, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str
) -> None:
    """The nodes go, if there are any, also if the change or its reply is lost; the next use begins anew."""
    near = connect(hosts=proxy.hosts, timeout=30, **FAST)
    made = make(of, class_of(kind), near, f"{zk_path}-made")
    made.destroy()
    assert zk.exists(f"{zk_path}-made") is None
    for _ in range(2):
        KINDS[kind].use(of, near, zk_path)()  # type: ignore[misc]
        with getattr(proxy, effect)("multi", where=lambda message: not message.heartbeat) as fault:
            end(of, kind, near, zk_path)
        assert fault.injected.is_set() or kind == "DoubleBarrier"  # whose nodes go with the last party
        assert gone(zk, zk_path)
        end(of, kind, near, zk_path)


def gone(client: KazooClient, path: str) -> bool:
    """Return whether nothing is there but, at most, an empty container, which the server removes."""
    return nodes(client, path) in ({}, {path: b""})


def lasting(client: KazooClient, path: str) -> dict[str, bytes]:
    """Return the nodes but for those that say whose they are."""
    return {node: data for node, data in nodes(client, path).items() if b'"thread"' not in data}


def end(of: Any, kind: str, client: KazooClient, path: str) -> None:
    """Destroy what is at a path, by an object that may have other arguments, such as another number of parties."""
    make(of, class_of(kind), client, path).destroy()


@ending
def test_in_use(of: Any, kind: str, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """While another client uses it, the error names that client's process, and no node goes; or the user goes on."""
    row, far = KINDS[kind], connect()
    if row.occupies == "wait":
        waiting = in_thread(row.wait, of, far, zk_path, 60.0)
        eventually(lambda: sleeps(far))
    else:
        user = row.use(of, far, zk_path)
        assert user
    before = nodes(zk, zk_path)
    if not row.occupies:
        end(of, kind, zk, zk_path)
        assert gone(zk, zk_path)
        assert row.use(of, far, zk_path)
        return
    with pytest.raises(RuntimeError, match=rf"is in use.*thread .+ of process {os.getpid()} on host"):
        make(of, class_of(kind), zk, zk_path).destroy()
    assert nodes(zk, zk_path) == before
    if row.occupies == "use":
        user()
    far.stop()
    if row.occupies == "wait":
        waiting.exception(20)
    make(of, class_of(kind), zk, zk_path).destroy()
    assert gone(zk, zk_path)


@pytest.mark.fault(60, 145)
@each(lambda kind, _: can_end(kind) and "Semaphore" not in kind)  # which leaves alone what it does not know
def test_what_others_have_made(of: Any, kind: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A node that is no primitive's is named by the error, and nothing goes, until that node has gone."""
    near = connect()
    KINDS[kind].use(of, near, zk_path)()  # type: ignore[misc]
    zk.create(f"{zk_path}/mine", b"precious", makepath=True)
    before = lasting(zk, zk_path)
    with pytest.raises((ForeignNodeError, RuntimeError), match="mine"):
        end(of, kind, near, zk_path)
    assert lasting(zk, zk_path) == before
    zk.delete(f"{zk_path}/mine")
    end(of, kind, near, zk_path)
    assert gone(zk, zk_path)
