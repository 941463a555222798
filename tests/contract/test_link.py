"""The library's assumptions, as questions to a real ZooKeeper and to the simulated one: both must reply alike."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.bench import Bench, ask, wait
from zkconcurrent._kazoo.watches import DATA, RemovalWithdrawn


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
