"""What the blocking driver promises, on a real ZooKeeper and on the simulated one."""

from __future__ import annotations

import uuid
from collections.abc import Generator
from typing import Any

import pytest

from tests.contract.bench import Bench, ask, wait
from zkconcurrent._driver import Driver
from zkconcurrent._ops import (
    Begin,
    Children,
    Create,
    DeadlinePassed,
    Discard,
    Get,
    Grant,
    MakeContainer,
    NoNode,
    SessionExpired,
    Sync,
    WaitGone,
)
from zkconcurrent._registry import State

Steps = Generator[Any, Any, Any]
ROLE = "lock-"


@pytest.fixture
def path() -> str:
    """A path that no other test uses."""
    return f"/{uuid.uuid4().hex}"


def test_answers_of_operations_yielded_together(bench: Bench, path: str) -> None:
    """They are answered together, in their order; of several failures the first is raised."""

    def recipe() -> Steps:
        ticket = yield Begin(path)
        with pytest.raises(NoNode):
            yield Create(ticket, ROLE, b""), Children(path, ticket)
        assert (yield Children(path)) == []
        assert (yield Get(path)) is None
        yield MakeContainer(path), MakeContainer(path)  # that it exists is success
        name, names = yield Create(ticket, ROLE, b"me"), Children(path, ticket)
        assert names == [name] == [ticket.name]
        node = yield Get(ticket.node, ticket)
        assert (node.data, node.session, node.czxid) == (b"me", ticket.session, ticket.token)
        yield Discard(ticket)
        assert (yield Children(path)) == []
        return "done"

    assert bench.run(lambda: Driver(bench.session(), path).run(recipe())) == "done"


def test_a_grant_needs_a_running_lease(bench: Bench, path: str) -> None:
    """Before any write was answered there is no lease; a sync renews it; a session that is over has none."""

    def recipe(session: Any) -> Steps:
        ticket = yield Begin(path)
        session.registry.lease_end = 0.0
        assert not (yield Grant(ticket))
        yield Sync(path, ticket)
        assert (yield Grant(ticket))
        assert ticket.state is State.HELD
        yield Discard(ticket)
        assert ticket.state is State.DISCARDED

    def test() -> None:
        session = bench.session()
        Driver(session, path).run(recipe(session))

    bench.run(test)


def test_an_operation_of_a_session_that_is_over(bench: Bench, path: str) -> None:
    """It fails with SessionExpired, read or write; one that is bound to no session goes on in the next."""

    def recipe(session: Any) -> Steps:
        yield MakeContainer(path)
        ticket = yield Begin(path)
        bench.expire(session)
        for step in (Children(path, ticket), Create(ticket, ROLE, b""), Grant(ticket), WaitGone(ticket, "x")):
            with pytest.raises(SessionExpired):
                yield step
        yield Discard(ticket)
        assert (yield Children(path)) == []
        return (yield Begin(path)).session != ticket.session

    def test() -> object:
        session = bench.session()
        return Driver(session, path).run(recipe(session))

    assert bench.run(test)


def test_reads_go_on_after_a_reconnect(bench: Bench, path: str) -> None:
    """A read waits for the connection, and a wait ends early with it: the recipe looks again."""

    def recipe(session: Any) -> Steps:
        def cut_once_watched() -> None:
            wait(session, lambda: any(session.link.client._data_watchers.values()))
            bench.cut(session)

        yield MakeContainer(path)
        ahead, me = (yield Begin(path)), (yield Begin(path))
        yield Create(ahead, ROLE, b"")
        yield Create(me, ROLE, b"")
        session.link.handler.spawn(cut_once_watched)
        assert not (yield WaitGone(me, ahead.name))
        assert sorted((yield Children(path, me))) == sorted([ahead.name, me.name])
        yield Discard(me)
        yield Discard(ahead)
        return "done"

    def test() -> object:
        session = bench.session()
        return Driver(session, path).run(recipe(session))

    assert bench.run(test) == "done"


def test_a_wait_ends_with_the_node(bench: Bench, path: str) -> None:
    """It ends when the node ahead goes, at once if it is gone already, and does not say that it was handed over."""

    def recipe(other: Any) -> Steps:
        yield MakeContainer(path)
        me = yield Begin(path)
        yield Create(me, ROLE, b"")
        ((theirs, _),) = ask(other, ("create", f"{path}/theirs-", b""))
        name = theirs.rpartition("/")[2]
        other.link.handler.spawn(ask, other, ("delete", f"{path}/{name}"))
        assert not (yield WaitGone(me, name))
        assert (yield Children(path)) == [me.name]
        assert not (yield WaitGone(me, name))
        yield Discard(me)
        return "done"

    def test() -> object:
        return Driver(bench.session(), path).run(recipe(bench.session()))

    assert bench.run(test) == "done"


def test_a_deadline_enters_at_the_yield(bench: Bench, path: str) -> None:
    """When its time is up the recipe is told so where it waits, may still discard, and the run's result is None."""
    told = []

    def recipe(other: Any) -> Steps:
        yield MakeContainer(path)
        me = yield Begin(path)
        yield Create(me, ROLE, b"")
        ((theirs, _),) = ask(other, ("create", f"{path}/theirs-", b""))
        try:
            yield WaitGone(me, theirs.rpartition("/")[2])
        except DeadlinePassed:
            told.append(me)
            yield Discard(me)
            raise

    def test() -> Any:
        session, other = bench.session(), bench.session()
        assert Driver(session, path, session.now() + 0.2).run(recipe(other)) is None
        return ask(other, ("children", path))[0]

    assert [name[:6] for name in bench.run(test)] == ["theirs"]
    assert len(told) == 1
