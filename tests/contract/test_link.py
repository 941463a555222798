"""What the library leans on, asked of a real ZooKeeper and of the simulated one: both must answer alike."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kazoo import exceptions as kazoo_errors

from tests.contract.bench import Bench, Simulated, ask, wait
from zkconcurrent._session import Session


@pytest.fixture
def path() -> str:
    """A path that no other test uses."""
    return f"/{uuid.uuid4().hex}"


def container(session: Session, path: str) -> None:
    """Make a container."""
    assert not isinstance(ask(session, ("make_container", path))[0], Exception)


def test_create_and_list_back_to_back(bench: Bench, path: str) -> None:
    """A listing sent behind a create, without waiting, has the node; its stat says whose it is, and when."""

    def test() -> None:
        session = bench.session()
        container(session, path)
        for n in range(5):
            (name, stat), names = ask(session, ("create", f"{path}/x-", b"data"), ("children", path))
            assert name == f"/root{path}/x-{n:010d}"  # full: the link's callers take the last part
            assert name.rpartition("/")[2] in names
            assert len(names) == n + 1
            assert stat.ephemeralOwner == session.registry.session

    bench.run(test)


def test_answers_come_in_order(bench: Bench, path: str) -> None:
    """What is sent behind a delete sees its effect, and each later create has a higher zxid."""

    def test() -> None:
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

    bench.run(test)


def test_what_is_not_there(bench: Bench, path: str) -> None:
    """Without the parent, a create, a listing and a read are NoNode; a sync is not."""

    def test() -> None:
        session = bench.session()
        create, children, get, sync = ask(
            session, ("create", f"{path}/x-", b""), ("children", path), ("get", path), ("sync", path)
        )
        for answer in (create, children, get):
            assert isinstance(answer, kazoo_errors.NoNodeError)
        assert not isinstance(sync, Exception)

    bench.run(test)


def test_a_container_that_exists(bench: Bench, path: str) -> None:
    """To make a container twice is NodeExists."""

    def test() -> None:
        session = bench.session()
        container(session, path)
        assert isinstance(ask(session, ("make_container", path))[0], kazoo_errors.NodeExistsError)

    bench.run(test)


def test_sequence_numbers_count_all_creates(bench: Bench, path: str) -> None:
    """Numbers skip over what others made, also what is deleted by now."""

    def test() -> None:
        session, other = bench.session(), bench.session()
        container(session, path)
        ask(session, ("create", f"{path}/a-", b""))
        ((name, _),) = ask(other, ("create", f"{path}/b-", b""))
        ask(other, ("delete", name.removeprefix("/root")))
        ((name, _),) = ask(session, ("create", f"{path}/a-", b""))
        assert name.endswith("-0000000002")

    bench.run(test)


def test_a_watch_fires_once(bench: Bench, path: str) -> None:
    """A read leaves a watch, for several reads one; the delete of the node calls it once, with the path."""

    def test() -> None:
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

    bench.run(test)


def test_watches_are_dropped_with_the_connection(bench: Bench, path: str) -> None:
    """When the connection is lost every watcher is called once, without a path, never again; the session lives on."""

    def test() -> None:
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

    bench.run(test)


def test_a_sessions_ephemerals(bench: Bench, path: str) -> None:
    """A session's nodes are listed, of no other session, and none once it has expired."""

    def test() -> None:
        session, other = bench.session(), bench.session()
        container(session, path)
        (mine, _), (too, _) = ask(session, ("create", f"{path}/a-", b""), ("create", f"{path}/b-", b""))
        ask(other, ("create", f"{path}/c-", b""))
        (nodes,) = ask(session, ("ephemerals",))
        assert sorted(nodes) == sorted([mine, too])
        assert session.link.own(nodes) == [node.removeprefix("/root") for node in nodes]
        bench.expire(session)
        nodes, names = ask(session, ("ephemerals",), ("children", path))
        assert nodes == []
        assert [name[:2] for name in names] == ["c-"]

    bench.run(test)


def test_an_expiry_begins_a_new_session(bench: Bench, path: str) -> None:
    """The client goes on by itself, in another session: what it makes then is the new one's."""

    def test() -> None:
        session = bench.session()
        container(session, path)
        old = session.registry.session
        bench.expire(session)
        assert session.registry.session == session.link.session() != old
        ((_, stat),) = ask(session, ("create", f"{path}/x-", b""))
        assert stat.ephemeralOwner == session.registry.session

    bench.run(test)


def test_the_negotiated_timeout(bench: Bench) -> None:
    """The session timeout is read right, at once and after a reconnect. It leans on kazoo's local variables."""

    def test() -> None:
        session = bench.session()
        assert session.timeout == session.link.timeout() == 6.0
        session.timeout = 0.0
        bench.cut(session)
        assert session.timeout == 6.0
        if not isinstance(bench, Simulated):
            session.link.client._session_timeout = 1  # what would be said if nothing was found
            assert session.link.timeout() == 6.0

    bench.run(test)
