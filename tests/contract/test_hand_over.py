"""A wait for the only one ahead tells when that is enough to hold, on a real and a simulated ZooKeeper.

`tests/simulation/test_way.py` shows that the rule is right; this shows that the driver tells the rule what happens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import pytest

from tests.helpers.bench import Bench, ask, perform, wait
from zkconcurrent._protocol.blocking_rules import MUTEX
from zkconcurrent._protocol.operations import (
    CLEAR,
    Children,
    CreateEphemeral,
    CreatePersistent,
    Discard,
    Grant,
    NewTicket,
    WaitGone,
)
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent._protocol.way_to_grant import Way

pytestmark = pytest.mark.fault(293)

Steps = Generator[Any, Any, Any]
AHEAD = "_c_00000000-0000-0000-0000-000000000001-lock-"


class Scene:
    """A waiter, and the only one ahead of it, which is another client's.

    Attributes:
        session: the waiter's client.
        other: the other client.
        ahead: the node of that.
        me: the waiter's ticket.
    """

    me: Ticket
    ahead: str

    def __init__(self, bench: Bench, path: str) -> None:
        self.bench = bench
        self.path = path
        self.session, self.other = bench.session(), bench.session()

    def queue(self) -> Steps:
        """Have both queue; return the listing."""
        path = self.path
        yield CreatePersistent(path, b"")
        ((self.ahead, _),) = ask(self.other, ("create", f"{path}/{AHEAD}", b""))
        self.ahead = f"{path}/{self.ahead.rpartition('/')[2]}"
        self.me = yield NewTicket(path)
        yield CreateEphemeral(self.me, "lock-", b"")
        return (yield Children(path, self.me))

    def way(self, names: list[str]) -> Way | None:
        """Return the waiter's way."""
        assert self.me.name is not None
        return Way.of(self.me.name, names, MUTEX, self.me.session, self.me.listed_on)

    def once_watched(self, strike: Callable[[Scene], None]) -> None:
        """Strike once both nodes are watched."""
        link = self.session.link
        both = {link.full(self.ahead), link.full(self.me.node)}
        wait(self.session, lambda: both <= {*link.client._data_watchers})
        strike(self)

    def wait_gone(self, names: list[str]) -> WaitGone:
        """Return the wait."""
        return WaitGone(self.me, self.ahead.rpartition("/")[2], (Children(self.path, self.me),), way=self.way(names))


def leaves(scene: Scene) -> None:
    """Delete the node ahead."""
    ask(scene.other, ("delete", scene.ahead))


def own_node_goes_first(scene: Scene) -> None:
    """Delete the waiter's node, then the one ahead."""
    ask(scene.other, ("delete", scene.me.node), ("delete", scene.ahead))


def own_node_is_written(scene: Scene) -> None:
    """Write the waiter's node; then the other leaves, and the watch on the waiter's node is used up."""
    ask(scene.other, ("set_data", scene.me.node, b"new", -1), ("delete", scene.ahead))


def connection_is_lost(scene: Scene) -> None:
    """Cut the connection."""
    scene.bench.cut(scene.session)


def removal_is_due(scene: Scene) -> None:
    """Have the watches removed that an earlier wait for the waiter's node has left; then both nodes go."""
    session = scene.session
    with session.lock:
        session.registry.left[scene.me.node] = False
        for _ in range(3):
            session.watches._looked_at = -math.inf
            session.watches.remove_idle(session.clock())
    ask(session, ("sync", scene.path))
    own_node_goes_first(scene)


def holds(bench: Bench, path: str, strike: Callable[[Scene], None]) -> bool:
    """Return whether the waiter may hold without a look after the strike; a look shows what there is."""
    scene = Scene(bench, path)

    def recipe() -> Steps:
        names = yield from scene.queue()
        scene.session.link.handler.spawn(partial(scene.once_watched, strike))
        found = yield scene.wait_gone(names)
        if found is CLEAR:
            assert (yield Grant(scene.me))
        else:
            (names,) = found
            assert (scene.me.name in names) == (strike in (own_node_is_written, connection_is_lost))
        yield Discard(scene.me)
        return found is CLEAR

    return bool(perform(scene.session, path, recipe()))


def test_the_one_ahead_leaves(bench: Bench, path: str) -> None:
    """The waiter holds, and nothing was read."""
    assert holds(bench, path, leaves)


@pytest.mark.parametrize(
    "strike",
    [
        own_node_goes_first,
        own_node_is_written,
        connection_is_lost,
        # The watch that an earlier wait has left is the waiter's own, too, and so is not removed.
        pytest.param(removal_is_due, marks=pytest.mark.fault(294)),
    ],
    ids=lambda strike: strike.__name__,
)
def test_what_is_a_look(bench: Bench, path: str, strike: Callable[[Scene], None]) -> None:
    """Any other event, and a lost connection, has the waiter list."""
    assert not holds(bench, path, strike)
