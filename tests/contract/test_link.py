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
from zkconcurrent._kazoo.watches import CHILDREN, DATA, RemovalWithdrawn
from zkconcurrent._protocol.operations import Check, Container, Create, CreateEphemeral, Delete, SetNode
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent.testing import Server


def container(session: Session, path: str) -> None:
    """Make a container."""
    assert not isinstance(ask(session, ("make_container", path))[0], Exception)


def test_create_and_list_back_to_back(bench: Bench, path: str) -> None:
    """A listing sent behind a create, without waiting, has the node; its stat says whose it is, and when."""
    session = bench.session()
    container(session, path)
    for n in range(5):
        (name, stat), names = ask(session, ("create", f"{path}/x-", b"data"), ("children", path))
        assert name == f"/root{path}/x-{n:010d}"  # full: the link's callers take the last part
        assert name.rpartition("/")[2] in names
        assert len(names) == n + 1
        assert stat.ephemeralOwner == session.registry.session


def test_answers_come_in_order(bench: Bench, path: str) -> None:
    """A request sent behind a delete sees its effect, and each later create has a higher zxid."""
    session = bench.session()
    container(session, path)
    (one, first), (two, second) = ask(session, ("create", f"{path}/a-", b""), ("create", f"{path}/b-", b""))
    assert second.czxid > first.czxid
    deleted, names, again = ask(
        session, ("delete", one.removeprefix("/root")), ("children", path), ("delete", one.removeprefix("/root"))
    )
    assert deleted is True
    assert names == [two.rpartition("/")[2]]
    assert isinstance(again, kazoo_errors.NoNodeError)


def test_what_is_not_there(bench: Bench, path: str) -> None:
    """Without the parent, a create, a listing and a read are NoNode; a sync is not."""
    session = bench.session()
    create, children, get, sync = ask(
        session, ("create", f"{path}/x-", b""), ("children", path), ("get", path), ("sync", path)
    )
    for answer in (create, children, get):
        assert isinstance(answer, kazoo_errors.NoNodeError)
    assert not isinstance(sync, Exception)


def test_a_container_that_exists(bench: Bench, path: str) -> None:
    """To make a container twice is NodeExists."""
    session = bench.session()
    container(session, path)
    assert isinstance(ask(session, ("make_container", path))[0], kazoo_errors.NodeExistsError)


def test_sequence_numbers_count_all_creates(bench: Bench, path: str) -> None:
    """Numbers skip over what others made, also what is deleted by now."""
    session, other = bench.session(), bench.session()
    container(session, path)
    ask(session, ("create", f"{path}/a-", b""))
    ((name, _),) = ask(other, ("create", f"{path}/b-", b""))
    ask(other, ("delete", name.removeprefix("/root")))
    ((name, _),) = ask(session, ("create", f"{path}/a-", b""))
    assert name.endswith("-0000000002")


def test_a_watch_fires_once(bench: Bench, path: str) -> None:
    """A read leaves a watch, for several reads one; the delete of the node calls it once, with the path."""
    session, other = bench.session(), bench.session()
    container(session, path)
    ((name, _),) = ask(other, ("create", f"{path}/x-", b"who"))
    node = name.removeprefix("/root")
    seen: list[Any] = []
    (data, stat), _ = ask(session, ("get", node, seen.append), ("get", node, seen.append))
    assert data == b"who"
    assert stat.ephemeralOwner == other.registry.session
    assert not seen
    ask(other, ("delete", node))
    wait(session, lambda: seen)
    ask(session, ("sync", path))
    assert [event.path for event in seen] == [node]


def test_watches_are_dropped_with_the_connection(bench: Bench, path: str) -> None:
    """When the connection is lost every watcher is called once, without a path, never again; the session lives on."""
    session = bench.session()
    container(session, path)
    ((name, _),) = ask(session, ("create", f"{path}/x-", b""))
    node = name.removeprefix("/root")
    seen: list[Any] = []
    ask(session, ("get", node, seen.append))
    before = session.registry.session
    bench.cut(session)
    wait(session, lambda: seen)
    assert session.registry.session == before
    ask(session, ("delete", node), ("sync", path))
    assert [event.path for event in seen] == [None]


def test_a_check_of_nodes(bench: Bench, path: str) -> None:
    """It tells the first node that is missing; all before it are there, of those behind it nothing is said."""
    session = bench.session()
    container(session, path)
    made = ask(session, *[("create", f"{path}/{role}-", b"") for role in "abc"])
    one, two, three = [name.removeprefix("/root") for name, _ in made]
    assert ask(session, ("check", [one, two, three]), ("check", [path])) == [[True] * 3, [True]]
    assert ask(session, ("check_root",)) == [[True]]
    ask(session, ("delete", two), ("delete", three))
    (results,) = ask(session, ("check", [one, two, three]))
    first, missing, unknown = results
    assert isinstance(missing, kazoo_errors.NoNodeError)
    for each in (first, unknown):
        assert isinstance(each, kazoo_errors.RolledBackError | kazoo_errors.RuntimeInconsistency)


def test_what_the_lease_is_told(bench: Bench, path: str) -> None:
    """Of each write that succeeded and of each `sync`, that it is no write; of no failure, and of no read."""
    session = bench.session()
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


def test_an_expiry_begins_a_new_session(bench: Bench, path: str) -> None:
    """The client goes on by itself, in another session: the nodes that it makes then belong to the new one."""
    session = bench.session()
    container(session, path)
    old = session.registry.session
    bench.expire(session)
    assert session.registry.session == session.link.session() != old
    ((_, stat),) = ask(session, ("create", f"{path}/x-", b""))
    assert stat.ephemeralOwner == session.registry.session


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


@pytest.mark.parametrize("real", [True, False], ids=["real", "simulated"])
def test_containers_are_containers(real: bool, path: str) -> None:
    """One that had a child and has none is removed; one that has, or never had, stays. A create then is NoNode."""

    def test() -> None:
        session = bench.session()
        container(session, path)
        for name in ("/used", "/full", "/new"):
            container(session, path + name)
        ((used, _), _) = ask(session, ("create", f"{path}/used/x-", b""), ("create", f"{path}/full/x-", b""))
        ask(session, ("delete", used.removeprefix("/root")))
        bench.reap()
        wait(session, lambda: isinstance(ask(session, ("get", f"{path}/used"))[0], kazoo_errors.NoNodeError))
        (create, *others) = ask(
            session, ("create", f"{path}/used/x-", b""), ("get", f"{path}/full"), ("get", f"{path}/new")
        )
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


@pytest.mark.parametrize("applied", [True, False])
def test_a_lost_create(bench: Bench, path: str, applied: bool) -> None:
    """A lost create and the requests behind it fail with ConnectionLoss; the next one goes on in the same session."""
    session = bench.session()
    container(session, path)
    before = session.registry.session
    bench.lose(session, "create2", applied=applied)
    requests = ("create", f"{path}/x-", b""), ("children", path)
    create, behind = ask(session, *requests, sending=bench.unanswered(session))
    assert isinstance(create, kazoo_errors.ConnectionLoss)
    assert isinstance(behind, kazoo_errors.ConnectionLoss)
    wait(session, lambda: session.link.connected)  # a request sent while others are told is lost, too
    _, names = ask(session, ("sync", path), ("children", path))
    assert len(names) == applied
    assert session.registry.session == before


def test_a_persistent_node(bench: Bench, path: str) -> None:
    """It is made once, belongs to no session, and is written only by a client that has read its last version."""
    session = bench.session()
    made, again = ask(session, ("create_persistent", path, b"one"), ("create_persistent", path, b"two"))
    assert made == f"/root{path}"
    assert isinstance(again, kazoo_errors.NodeExistsError)
    data, stat = ask(session, ("get", path))[0]
    assert (data, stat.version, stat.ephemeralOwner) == (b"one", 0, 0)
    written, late = ask(session, ("set_data", path, b"two", 0), ("set_data", path, b"three", 0))
    assert written.version == 1
    assert isinstance(late, kazoo_errors.BadVersionError)
    data, stat = ask(session, ("get", path))[0]
    assert (data, stat.version) == (b"two", 1)
    assert isinstance(ask(session, ("set_data", f"{path}/none", b"", 0))[0], kazoo_errors.NoNodeError)
    assert isinstance(ask(session, ("create_persistent", f"{path}/none/x", b""))[0], kazoo_errors.NoNodeError)
    ask(session, ("create_persistent", f"{path}/child", b""))
    assert isinstance(ask(session, ("delete", path))[0], kazoo_errors.NotEmptyError)


def test_watches_on_data_and_on_children(bench: Bench, path: str) -> None:
    """One on data fires when the node is written, not when it gets a child; one on children the other way round."""
    session, other = bench.session(), bench.session()
    data: list[Any] = []
    names: list[Any] = []
    ask(session, ("create_persistent", path, b""))
    ask(session, ("get", path, data.append), ("children", path, names.append))
    ask(other, ("set_data", path, b"new", 0))
    wait(session, lambda: data)
    assert (data[0].type, data[0].path, names) == ("CHANGED", path, [])
    ask(other, ("create_persistent", f"{path}/child", b""))
    wait(session, lambda: names)
    assert (names[0].type, names[0].path) == ("CHILD", path)
    ask(session, ("get", path, data.append), ("children", path, names.append))
    ask(other, ("delete", f"{path}/child"))
    wait(session, lambda: len(names) == 2)
    ask(session, ("children", path, names.append))
    ask(other, ("delete", path))
    wait(session, lambda: len(names) == 3 and len(data) == 2)
    assert [event.type for event in (names[1], names[2], data[1])] == ["CHILD", "DELETED", "DELETED"]


def test_what_a_multi_can_do(bench: Bench, path: str) -> None:
    """It makes, writes, checks and deletes, a parent after its child too; the first reason to fail is told."""
    session = bench.session()
    ticket = Ticket(path, "one-", session.registry.lease)
    container(session, path)
    ask(session, ("create_persistent", f"{path}/state", b""), ("create_persistent", f"{path}/state/x", b""))
    write = SetNode(f"{path}/state", b"new", 0)
    parts = (CreateEphemeral(ticket, "x-", b""), write, Check(path), Delete(f"{path}/state/x"))
    (done,) = ask(session, ("multi", parts))
    assert [type(each).__name__ for each in done] == ["tuple", "ZnodeStat", "bool", "bool"]
    assert ask(session, ("get", f"{path}/state"))[0][0] == b"new"
    assert ask(session, ("children", f"{path}/state"))[0] == []
    late, missing = SetNode(f"{path}/state", b"", 0), Delete(f"{path}/none")
    for operations, reason, part in (
        ((Delete(f"{path}/state"), late), kazoo_errors.NoNodeError, 1),
        ((late, missing), kazoo_errors.BadVersionError, 0),
        ((missing, late), kazoo_errors.NoNodeError, 0),
        ((Check(path), Delete(path)), kazoo_errors.NotEmptyError, 1),
    ):
        error = ask(session, ("multi", operations))[0]
        assert isinstance(error, reason)
        assert error.part == part
    assert sorted(ask(session, ("children", path))[0])[-1] == "state"


def test_what_a_multi_can_create(bench: Bench, path: str) -> None:
    """A node of any kind: persistent or of the session, numbered or not; and a leaf that it deletes again."""
    session = bench.session()
    container(session, path)
    parts = (
        Create(f"{path}/plain", b"one"),
        Create(f"{path}/number-", b"two", sequential=True),
        Create(f"{path}/mine", b"three", ephemeral=True),
        Create(f"{path}/short", b"", ephemeral=True),
        Delete(f"{path}/short"),
    )
    (done,) = ask(session, ("multi", parts))
    names = [name.rpartition("/")[2] for name, _ in done[:4]]  # the link's callers take the last part
    assert names == ["plain", "number-0000000001", "mine", "short"]
    owners = [
        ask(session, ("get", f"{path}/{name}"))[0][1].ephemeralOwner for name in ("plain", "number-0000000001", "mine")
    ]
    assert owners == [0, 0, session.registry.session]
    assert sorted(ask(session, ("children", path))[0]) == ["mine", "number-0000000001", "plain"]
    for operations, reason, part in (
        ((Check(path), Create(f"{path}/plain", b"")), kazoo_errors.NodeExistsError, 1),
        ((Create(f"{path}/none/x", b""),), kazoo_errors.NoNodeError, 0),
        ((Create(f"{path}/mine", b"", ephemeral=True), Delete(f"{path}/mine")), kazoo_errors.NodeExistsError, 0),
        ((Create(f"{path}/x", b""), Delete(f"{path}/x"), Delete(f"{path}/x")), kazoo_errors.NoNodeError, 2),
    ):
        error = ask(session, ("multi", operations))[0]
        assert isinstance(error, reason)
        assert error.part == part
    (done,) = ask(session, ("multi", (Delete(f"{path}/plain"), Create(f"{path}/plain", b"anew"))))
    assert ask(session, ("get", f"{path}/plain"))[0][0] == b"anew"


@pytest.mark.fault(239)
@pytest.mark.parametrize("real", [True, False], ids=["real", "simulated"])
def test_a_multi_with_containers(real: bool, path: str) -> None:
    """One made with its child counts the child, so it is removed once empty; all other parts are read."""

    def test() -> None:
        session = bench.session()
        ticket = Ticket(path, "one-", session.registry.lease)
        container(session, path)
        ask(session, ("create_persistent", f"{path}/state", b""), ("create_persistent", f"{path}/leaf", b""))
        made, below = f"{path}/made", f"{path}/made/below"
        parts = (
            SetNode(f"{path}/state", b"new", 0),
            Container(made),
            Check(path),
            Container(below),
            Delete(f"{path}/leaf"),
            Create(f"{below}/x", b"data"),
            CreateEphemeral(ticket, "x-", b""),
        )
        (done,) = ask(session, ("multi", parts))
        assert [type(each).__name__ for each in done] == ["ZnodeStat", *["tuple", "bool"] * 2, "tuple", "tuple"]
        assert done[0].version == 1
        names = [done[n][0].rpartition("/")[2] for n in (1, 3, 5, 6)]  # the link's callers take the last part
        assert names[:3] == ["made", "below", "x"]
        mine = ask(session, ("get", f"{path}/{names[3]}"))[0][1]
        assert (mine.czxid, mine.ephemeralOwner) == (done[6][1].czxid, session.registry.session)
        assert [ask(session, ("get", each))[0][1].cversion for each in (made, below)] == [1, 1]
        assert ask(session, ("children", below))[0] == ["x"]
        for operations, reason, part in (
            ((Container(f"{path}/new"), Container(made), Check(path)), kazoo_errors.NodeExistsError, 1),
            ((Check(path), Container(f"{path}/none/new")), kazoo_errors.NoNodeError, 1),
            ((Container(f"{path}/new"), Create(f"{below}/x", b"")), kazoo_errors.NodeExistsError, 1),
            (
                (Container(f"{path}/new"), Check(path), SetNode(f"{path}/state", b"", 0)),
                kazoo_errors.BadVersionError,
                2,
            ),
            ((Container(f"{path}/new"), Check(f"{path}/none")), kazoo_errors.NoNodeError, 1),
            ((Delete(below), Container(f"{path}/new")), kazoo_errors.NotEmptyError, 0),
        ):
            error = ask(session, ("multi", operations))[0]
            assert isinstance(error, reason), operations
            assert error.part == part
        assert "new" not in ask(session, ("children", path))[0]
        ask(session, ("delete", f"{below}/x"))
        for each in (below, made):  # the upper one once the lower one is gone
            bench.reap()
            wait(session, lambda each=each: isinstance(ask(session, ("get", each))[0], kazoo_errors.NoNodeError))

    with Server(container_check_interval=0.2) if real else nullcontext() as server:
        bench: Bench = Simulated() if server is None else Real(server)
        try:
            bench.run(test)
        finally:
            bench.close()


@pytest.mark.fault(240)
def test_a_watch_that_is_removed(bench: Bench, path: str) -> None:
    """It tells of nothing any more, and kazoo keeps no watcher; one that was set behind the removal does."""
    session, other = bench.session(), bench.session()
    ask(session, ("create_persistent", path, b""))
    client, seen, told = session.link.client, list[Any](), list[Any]()
    session.link.transport.on_raw_event = lambda path, _: told.append(path)
    for kind, read in ((CHILDREN, "children"), (DATA, "get")):
        ask(session, (read, path, seen.append))
        assert session.link.watches(path, seen.append) == [kind]
        assert ask(session, ("remove_watch", path, kind, seen.append)) == [None]
        assert ask(session, ("remove_watch", path, kind, seen.append)) == [None]  # there is none
    assert not client._data_watchers
    assert not client._child_watchers
    ask(other, ("set_data", path, b"new", 0), ("create_persistent", f"{path}/child", b""))
    ask(session, ("sync", path))
    assert told == seen == []
    ask(session, ("get", path, seen.append), ("remove_watch", path, DATA, seen.append), ("get", path, seen.append))
    ask(other, ("set_data", path, b"newer", 1))
    wait(session, lambda: seen)
    assert len(told) == len(seen) == 1


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
