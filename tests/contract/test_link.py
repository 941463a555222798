"""The library's assumptions, as questions to a real ZooKeeper and to the simulated one: both must reply alike."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
from kazoo import exceptions as kazoo_errors
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from tests.helpers.bench import Bench, Real, Simulated, ask, wait
from zkconcurrent._engine.session import Session
from zkconcurrent._kazoo.watches import DATA, RemovalWithdrawn
from zkconcurrent._protocol.operations import Check, Container, Create, CreateEphemeral, Delete
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent.testing import Server


def container(session: Session, path: str) -> None:
    """Make a container."""
    assert not isinstance(ask(session, ("make_container", path))[0], Exception)


def test_what_the_lease_is_told(bench: Bench, path: str) -> None:
    """Of each write that succeeded and of each `sync`, that it is no write; of no failure, and of no read."""
    session = bench.session(timeout=60.0)  # of which no heartbeat is due but the first
    wait(session, lambda: session.heartbeat._last > -math.inf and not session.heartbeat._unanswered)
    lease, told = session.registry.lease, list[tuple[float, float, bool]]()
    answered = lease.answered

    def noted(sent: float, at: float, *, write: bool) -> None:
        told.append((sent, at, write))
        answered(sent, at, write=write)

    lease.answered = noted  # type: ignore[method-assign]
    container(session, path)
    container(session, f"{path}/queue")
    assert [write for *_, write in told].count(True) == 2
    ticket = Ticket(f"{path}/queue", "one-", lease)
    succeed = [
        ("create", f"{path}/x-", b""),
        ("create_persistent", f"{path}/state", b""),
        ("set_data", f"{path}/state", b"new", 0),
        ("check", [path, f"{path}/state"]),
        ("multi", (Check(path), CreateEphemeral(ticket, "x-", b""))),
        ("delete", f"{path}/state"),
        ("check_root",),
    ]
    fail = [
        ("create", f"{path}/none/x-", b""),
        ("make_container", path),
        ("create_persistent", path, b""),
        ("set_data", path, b"", 7),
        ("check", [path, f"{path}/none"]),
        ("multi", (Check(path), Delete(f"{path}/none"))),
        ("delete", path),
    ]
    read = [("get", path), ("children", path), ("get", f"{path}/none")]
    for requests, writes in (succeed, 1), (fail, 0), (read, 0):
        for each in requests:
            told.clear()
            began = session.clock()
            (answer,) = ask(session, each)
            assert isinstance(answer, Exception) is (
                (requests is fail and each[0] != "check") or each[-1] == f"{path}/none"
            )
            mine = [(sent, at) for sent, at, write in told if write]
            assert len(mine) == writes, each
            assert all(began <= sent <= at <= session.clock() for sent, at in mine)
    told.clear()
    ask(session, ("sync", path))
    assert {write for *_, write in told} == {False}


def anew(bench: Bench, session: Session) -> float:
    """Return the session timeout as it is negotiated on the next connection."""
    lease = session.registry.lease
    assert lease is not None
    session.timeout, lease.timeout = 0.0, math.inf
    bench.cut(session)
    ask(session, ("sync", "/"))  # answered once everybody was told of the new connection
    assert session.registry.lease is lease
    assert session.timeout == lease.timeout
    return lease.timeout


def told_by_kazoo(session: Session, timeout: float) -> None:
    """Kazoo's thread tells the session timeout, as for a client that was connected before the library saw it."""
    opening = session.link.transport.opening
    opening.handshake = opening.old_timeout = None
    session.link.transport.nudge()
    wait(session, lambda: session.link.leases.negotiated() == timeout)


def test_the_negotiated_timeout(bench: Bench) -> None:
    """The session timeout is read right, of an old connection and after a reconnect; kazoo's thread tells it anew."""
    session = bench.session()
    assert session.timeout == session.registry.lease.timeout == 6.0
    assert anew(bench, session) == 6.0
    if not isinstance(bench, Simulated):
        session.link.client._session_timeout = 1  # the message if nothing was found
        told_by_kazoo(session, 6.0)


def test_the_clamped_timeout() -> None:
    """Of a server that allows less than was asked for, the timeout is the server's; after a reconnect too."""
    with Server(max_session_timeout=4.0) as server:
        bench = Real(server)
        try:
            session = bench.session(timeout=30.0)
            assert session.timeout == session.registry.lease.timeout == 4.0
            assert anew(bench, session) == 4.0
            told_by_kazoo(session, 4.0)
        finally:
            bench.close()


@pytest.mark.fault(239)
@pytest.mark.parametrize("real", [True, False], ids=["real", "simulated"])
def test_containers_are_containers(real: bool, path: str) -> None:
    """One that had a child and has none is removed, also if a multi made both; one that has, or never had, stays."""

    def test() -> None:
        session = bench.session()
        for name in ("", "/full", "/new"):
            container(session, path + name)
        made, below = f"{path}/made", f"{path}/made/below"
        ask(session, ("create", f"{path}/full/x-", b""))
        ask(
            session, ("multi", (Container(made), Container(below), Create(f"{below}/x", b""))), ("delete", f"{below}/x")
        )
        for each in (below, made):  # the upper one once the lower one is gone
            bench.reap()
            wait(session, lambda each=each: isinstance(ask(session, ("get", each))[0], kazoo_errors.NoNodeError))
        create, *others = ask(session, ("create", f"{made}/x-", b""), ("get", f"{path}/full"), ("get", f"{path}/new"))
        assert isinstance(create, kazoo_errors.NoNodeError)
        assert not [answer for answer in others if isinstance(answer, Exception)]

    with Server(container_check_interval=0.2) if real else nullcontext() as server:
        bench: Bench = Simulated() if server is None else Real(server)
        try:
            bench.run(test)
        finally:
            bench.close()


def test_the_access_rights(bench: Bench, path: str) -> None:
    """Nodes and containers get the client's `default_acl`, or else are open to all."""
    rights = [make_acl("world", "anyone", read=True, create=True, delete=True)]
    for session, expected in (bench.session(), OPEN_ACL_UNSAFE), (bench.session(default_acl=rights), rights):
        lock = f"{path}-{len(expected)}-{session.registry.session}"
        container(session, lock)
        ((name, _),) = ask(session, ("create", f"{lock}/x-", b""))
        assert list(bench.acl(session, lock)) == expected
        assert list(bench.acl(session, name.removeprefix("/root"))) == expected


@pytest.mark.fault(240)
@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_a_removal_spares_the_programs_watch(bench: Bench, path: str, first: bool, pending: bool) -> None:
    """The watcher of another stays on the same watch, also if the reply to its request is still to come."""
    session, other = bench.session(), bench.session()
    ask(session, ("create_persistent", path, b""))
    ours, theirs = list[Any](), list[Any]()
    reads = [("get", path, ours.append), ("get", path, theirs.append)]
    reads = reads[::-1] if first else reads
    removal = ("remove_watch", path, DATA, ours.append)
    if pending:
        *_, result = ask(session, *reads, removal)
        assert result is None or isinstance(result, RemovalWithdrawn)
    else:
        ask(session, *reads)
        assert ask(session, removal) == [None]
        assert session.link.client._data_watchers == {session.link.full(path): {theirs.append}}
    ask(other, ("set_data", path, b"new", 0))
    wait(session, lambda: theirs)


@pytest.mark.fault(240)
def test_a_tree_that_is_watched_no_more(bench: Bench, path: str) -> None:
    """It tells of no change, and a watch on the data of the node itself is spared."""
    session, other = bench.session(), bench.session()
    ask(session, ("create_persistent", path, b""))
    told: list[Any] = []
    session.link.transport.on_raw_event = lambda path, _: told.append(path)
    ask(session, ("watch_tree", path))
    while (kinds := session.link.kinds_of_trees()) and any(
        isinstance(each, RemovalWithdrawn) for each in ask(session, *(("remove_watch", path, kind) for kind in kinds))
    ):
        pass
    assert session.link.kinds_of_trees() == kinds
    ask(other, ("create_persistent", f"{path}/child", b""), ("set_data", path, b"new", 0))
    ask(session, ("sync", path))
    assert told == []
    seen: list[Any] = []
    ask(session, ("get", path, seen.append), *(("remove_watch", path, kind) for kind in kinds))
    ask(other, ("set_data", path, b"newer", 1))
    wait(session, lambda: seen)
