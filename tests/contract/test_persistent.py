"""The operations of recipes on nodes that outlive them: make, write, delete and watch."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.helpers.bench import Bench, ask, perform, wait
from zkconcurrent._protocol.operations import (
    BadVersion,
    Children,
    CreatePersistent,
    DeadlinePassed,
    Delete,
    Discard,
    EnsureContainer,
    Get,
    Multi,
    NewTicket,
    NoNode,
    NotEmpty,
    SessionExpired,
    SetNode,
    Wait,
    Watch,
)

Steps = Generator[Any, Any, Any]


def test_what_is_made_and_written(bench: Bench, path: str) -> None:
    """Make says whether it was there; a write needs the version that it names, a delete that there are no children."""

    def recipe() -> Steps:
        with pytest.raises(NoNode):
            yield CreatePersistent(f"{path}/child", b"")
        assert (yield SetNode(path, b"", 0)) is False
        assert (yield CreatePersistent(path, b"one")) is True
        assert (yield CreatePersistent(path, b"two")) is False
        node = yield Get(path)
        assert (node.data, node.version, node.session) == (b"one", 0, 0)
        assert (yield SetNode(path, b"three", 0)) is True
        written, again = yield SetNode(path, b"four", 0), Get(path)
        assert written is False
        assert (again.data, again.version, again.czxid) == (b"three", 1, node.czxid)
        yield CreatePersistent(f"{path}/child", b"")
        with pytest.raises(NotEmpty):
            yield Delete(path)
        with pytest.raises(BadVersion):
            yield Delete(path, version=0)
        ticket = yield NewTicket(path)
        with pytest.raises(NotEmpty):
            yield Multi(ticket, (Delete(path),))
        yield Multi(ticket, (Delete(f"{path}/child"), Delete(path)))
        with pytest.raises(NoNode):
            yield Multi(ticket, (Delete(path),))
        yield Discard(ticket)
        assert (yield Delete(path)) is False
        assert (yield CreatePersistent(path, b"anew"))
        made_anew = yield Get(path)
        assert made_anew.version == 0
        assert made_anew.czxid > node.czxid
        assert (yield Delete(path, version=0)) is True
        return "done"

    assert perform(bench.session(), path, recipe()) == "done"


@pytest.mark.parametrize("change", ["set", "delete", "make"])
def test_a_wait_ends_with_a_change(bench: Bench, path: str, change: str) -> None:
    """A change of data or children, or the end of the node, ends the wait; reads before it have the older state."""

    def recipe(session: Any, other: Any) -> Steps:
        yield CreatePersistent(path, b"")
        ticket = yield NewTicket(path)
        node, names = yield Watch(ticket, (Get(path, ticket), Children(path, ticket)))
        assert (node.data, names) == (b"", [])
        assert not ticket.changed
        requests = {
            "set": ("set_data", path, b"new", 0),
            "delete": ("delete", path),
            "make": ("create_persistent", f"{path}/x", b""),
        }
        session.link.handler.spawn(ask, other, requests[change])
        yield Wait(ticket)
        yield Discard(ticket)
        return (yield Get(path)), (yield Children(path))

    session, other = bench.session(), bench.session()
    node, names = perform(session, path, recipe(session, other))
    assert (node and node.data, names) == {
        "set": (b"new", []),
        "delete": (None, ()),
        "make": (b"", ["x"]),
    }[change]


def test_a_wait_ends_with_the_connection(bench: Bench, path: str) -> None:
    """Watches are gone then, so a wait ends; in the same session the recipe may go on watching."""

    def recipe(session: Any) -> Steps:
        yield CreatePersistent(path, b"")
        ticket = yield NewTicket(path)
        yield Watch(ticket, (Get(path, ticket),))
        session.link.handler.spawn(bench.cut, session)
        yield Wait(ticket)
        (node,) = yield Watch(ticket, (Get(path, ticket),))
        yield Discard(ticket)
        return node.data

    session = bench.session()
    assert perform(session, path, recipe(session)) == b""


def test_a_wait_ends_with_the_session(bench: Bench, path: str) -> None:
    """A ticket's operation after the session's end raises SessionExpired; an operation without a ticket goes on."""

    def recipe(session: Any) -> Steps:
        yield CreatePersistent(path, b"")
        ticket = yield NewTicket(path)
        yield Watch(ticket, (Get(path, ticket),))
        bench.expire(session)
        yield Wait(ticket)
        with pytest.raises(SessionExpired):
            yield Watch(ticket, (Get(path, ticket),))
        yield Discard(ticket)
        yield SetNode(path, b"later", 0)
        return (yield Get(path)).data

    session = bench.session()
    assert perform(session, path, recipe(session)) == b"later"


def test_a_wait_ends_with_the_deadline(bench: Bench, path: str) -> None:
    """DeadlinePassed is thrown in at the wait, and the ticket, which has no node, leaves nothing."""

    def recipe() -> Steps:
        yield CreatePersistent(path, b"")
        ticket = yield NewTicket(path)
        try:
            yield Watch(ticket, (Get(path, ticket),))
            yield Wait(ticket)
        except DeadlinePassed:
            yield Discard(ticket)
            raise

    session = bench.session()
    wait(session, lambda: session.registry.session is not None)
    assert perform(session, path, recipe(), session.now() + 1.0) is None
    assert (session.registry.tickets, session.registry.deletes, session.registry._awaiting) == ({}, {}, {})


def test_what_is_not_there_is_not_watched(bench: Bench, path: str) -> None:
    """A read of a missing node answers None, or no names, and leaves no watch."""

    def recipe(session: Any) -> Steps:
        ticket = yield NewTicket(path)
        assert (yield Watch(ticket, (Get(path, ticket), Children(path, ticket)))) == [None, ()]
        yield Discard(ticket)
        yield EnsureContainer(path)
        client = session.link.client
        return [*filter(None, client._data_watchers.values()), *filter(None, client._child_watchers.values())]

    session = bench.session()
    assert perform(session, path, recipe(session)) == []
