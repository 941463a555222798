"""The library's assumptions, as questions to a real ZooKeeper and to the simulated one: both must reply alike."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from kazoo import exceptions as kazoo_errors

from tests.helpers.bench import Bench, Real, Simulated, ask, wait
from zkconcurrent._engine.session import Session
from zkconcurrent._kazoo.watches import DATA, RemovalWithdrawn
from zkconcurrent._protocol.operations import Container, Create
from zkconcurrent.testing import Server


def container(session: Session, path: str) -> None:
    """Make a container."""
    assert not isinstance(ask(session, ("make_container", path))[0], Exception)


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
