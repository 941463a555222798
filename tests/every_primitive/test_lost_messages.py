"""A request or a reply that is lost, each in its turn, of each call: the call is made once, and leaves what it should.

Each recipe is asked once: kinds that send the same are left out. A use, its end, and a wait are each made as often as
they send requests, at a new path each time. In the nth run the nth request of the client is lost, or its reply,
together with the connection.
"""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.every_primitive import SAME_RECIPE, each, sleeps
from tests.helpers.eventually import eventually
from tests.helpers.kinds import KINDS, nodes
from tests.helpers.proxy import Proxy
from tests.helpers.wire import REQUESTS, Message

pytestmark = pytest.mark.fault(1, 3, 4, 7, 80, 116)
effects = pytest.mark.parametrize("effect", ["lose_answer", "lose_request"])
LATER = {"tasks": pytest.mark.later}  # they run the same recipes
CALLS = sorted(REQUESTS - {"ping", "auth", "connect", "closeSession"})
CHANGING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{14,27}|[0-9a-f]{8,}|[0-9A-F]{8,}")
"""What differs from run to run: names that are drawn, sessions and sequence numbers."""
GENERATION = re.compile(r"/\d{10}")
"""A barrier's generation. One that is over stays for a later call if its party's node goes after the next one looks."""


def is_a_call(message: Message) -> bool:
    """Return whether a message is no heartbeat."""
    return not message.heartbeat


def left(client: KazooClient, path: str) -> list[tuple[str, object]]:
    """Return the nodes at a path and below, with their data, but for what differs from run to run."""
    return sorted(
        (
            CHANGING.sub("#", node.removeprefix(path)),
            "a user's" if b'"thread"' in data else CHANGING.sub("#", repr(data)),
        )
        for node, data in nodes(client, path).items()
        if data or not GENERATION.fullmatch(node.removeprefix(path))
    )


@effects
@each(lambda kind, _: kind not in SAME_RECIPE, marks=LATER)
def test_a_use_and_its_end(
    of: Any, kind: str, effect: str, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str
) -> None:
    """Whichever is lost, the nodes after a use, and after its end, are those of a run without a loss."""
    row, near = KINDS[kind], connect(hosts=proxy.hosts, timeout=30, **FAST)
    end = row.use(of, near, f"{zk_path}/0/x")
    assert end
    used = left(zk, f"{zk_path}/0/x")
    end()
    eventually(lambda: left(zk, f"{zk_path}/0/x") != used or not row.excludes)
    ended = left(zk, f"{zk_path}/0/x")

    def leaves(path: str, *expected: object) -> None:
        eventually(lambda: left(zk, path) in expected, f"of {path} one of {expected}")

    for nth in count(1):
        path = f"{zk_path}/{nth}/x"
        with getattr(proxy, effect)(*CALLS, nth=nth, where=is_a_call) as fault:
            if (end := row.use(of, near, path)) is not None:
                leaves(path, used)
                end()
        leaves(path, ended, *[[] for _ in range(end is None)])  # a try gives up, and leaves nothing
        if not fault.injected.is_set():
            break
    assert nth > 2


@effects
@each(lambda kind, row: row.ends and kind not in SAME_RECIPE, marks=LATER)
def test_a_wait(
    of: Any, kind: str, effect: str, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Whichever is lost, before the wait sleeps or after it is ended, it ends as without a loss."""
    row, near, far = KINDS[kind], connect(hosts=proxy.hosts, timeout=30, **FAST), connect()
    assert row.ends
    for nth in count(1):
        path = f"{zk_path}/{nth}/x"
        end = row.ends(of, far, path)
        assert end
        with getattr(proxy, effect)(*CALLS, nth=nth, where=is_a_call) as fault:
            result = in_thread(row.wait, of, near, path, 60.0)
            eventually(lambda: near.connected and sleeps(near))
            end()
            assert result.result(50) is True
        if not fault.injected.is_set():
            break
    assert nth > 2
