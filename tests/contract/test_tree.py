"""The basis of a copy of a node's children: recursive watches, and reads that name the change that they reflect."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any

import pytest

from tests.helpers.bench import Bench, ask, perform, wait
from zkconcurrent._protocol.operations import (
    CreatePersistent,
    Discard,
    Get,
    NewTicket,
    WaitRecursive,
    WatchRecursive,
)

Steps = Generator[Any, Any, Any]


def test_a_tree(bench: Bench, path: str) -> None:
    """Each child that is made, written or deleted is told, as often as that happens, also if the path was not there."""

    def recipe(session: Any, other: Any) -> Steps:
        changes: deque[str] = deque()
        ticket = yield NewTicket(path)
        connection = yield WatchRecursive(ticket, changes)
        for request in (
            ("create_persistent", path, b""),
            ("create_persistent", f"{path}/a", b""),
            ("set_data", f"{path}/a", b"1", 0),
            ("set_data", f"{path}/a", b"2", 1),
            ("create_persistent", f"{path}/b", b""),
            ("create_persistent", f"{path}/b/deeper", b""),
            ("delete", f"{path}/a"),
        ):
            session.link.handler.spawn(ask, other, request)
            if request[1] != path and not request[1].endswith("deeper"):
                assert (yield WaitRecursive(ticket, changes, connection))
                assert changes.popleft() == request[1]
                assert not changes
            else:
                while (yield Get(request[1])) is None:
                    pass
        yield Discard(ticket)
        session.stop_watching_tree(path, deque())
        assert session.registry.trees[path] is changes
        session.stop_watching_tree(path, changes)
        return session.registry.trees, session.registry._awaiting

    session, other = bench.session(), bench.session()
    assert perform(session, path, recipe(session, other)) == ({}, {})


@pytest.mark.parametrize("how", ["cut", "expire"])
def test_a_tree_ends_with_the_connection(bench: Bench, path: str, how: str) -> None:
    """The wait tells so, also if the next connection was there before the wait; the tree is watched anew."""

    def recipe(session: Any, other: Any) -> Steps:
        changes: deque[str] = deque()
        ticket = yield NewTicket(path)
        connection = yield WatchRecursive(ticket, changes)
        struck: list[None] = []
        session.link.handler.spawn(lambda: struck.append(getattr(bench, how)(session)))
        assert (yield WaitRecursive(ticket, changes, connection)) is False
        yield Discard(ticket)
        wait(session, lambda: struck)  # until then the session may come back, and end once more
        ticket = yield NewTicket(path)
        connection = yield WatchRecursive(ticket, changes)
        assert (yield CreatePersistent(path, b""))
        session.link.handler.spawn(ask, other, ("create_persistent", f"{path}/a", b""))
        assert (yield WaitRecursive(ticket, changes, connection))
        assert changes.pop() == f"{path}/a"
        bench.cut(session)
        assert (yield WaitRecursive(ticket, changes, connection)) is False
        yield Discard(ticket)
        return "done"

    session, other = bench.session(), bench.session()
    assert perform(session, path, recipe(session, other)) == "done"
