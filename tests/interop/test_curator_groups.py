"""Groups and double barriers that Java services on Curator share."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import InThread
from tests.helpers.contenders import waits
from tests.helpers.curator import CuratorClient
from tests.helpers.eventually import eventually
from zkconcurrent import DoubleBarrier, Group


def test_members_see_each_other(client: KazooClient, java: CuratorClient, zk_path: str) -> None:
    """Both see all members and their data, as they come, change and go."""
    group = Group(client, zk_path)
    seen = group.observe(timeout=20)
    assert next(seen) == {}
    java.call("group.join", zk_path, "java", "one").result(20)
    assert next(seen) == {"java": b"one"}
    with group.join(b"two", "python"):
        eventually(
            lambda: java.call("group.members", zk_path, "java").result(20) == "java=one\tpython=two", "both members"
        )
        assert next(seen) == {"java": b"one", "python": b"two"}
        java.call("group.set", zk_path, "java", "three").result(20)
        assert next(seen) == {"java": b"three", "python": b"two"}
        java.call("group.leave", zk_path, "java").result(20)
        assert next(seen) == {"python": b"two"}
        java.call("group.join", zk_path, "other").result(20)
        eventually(lambda: len(group.members()) == 2)
        address = group.members()["other"].decode()
        assert address.count(".") == 3  # Curator's default data
    eventually(lambda: java.call("group.members", zk_path, "other").result(20) == f"other={address}")


@pytest.mark.parametrize("first", ["java", "python"])
def test_in_and_out_together(
    first: str, client: KazooClient, java: CuratorClient, zk_path: str, in_thread: InThread
) -> None:
    """A Java party and ours wait for each other, whichever comes first, and again as they leave."""
    barrier = DoubleBarrier(client, zk_path, 2)
    for turn in range(2):
        thread = f"turn {turn}"
        if first == "java":
            entering = java.call("doubleBarrier.enter", zk_path, 2, thread=thread)
            eventually(lambda: client.exists(zk_path) and len(client.get_children(zk_path)) == 1)
            assert not entering.done()
        else:
            # Java enters once we wait; and this thread does, for only it can leave.
            def enter(thread: str = thread) -> str:
                eventually(lambda: waits(barrier))
                return str(java.call("doubleBarrier.enter", zk_path, 2, thread=thread).result(20))

            entering = in_thread(enter)
        assert barrier.enter(20)
        assert entering.result(20) == "true"
        assert client.exists(f"{zk_path}/ready")
        assert not barrier.leave(0.3)  # Java is inside
        leaving = java.call("doubleBarrier.leave", zk_path, 2, thread=thread)
        assert leaving.result(20) == "true"
        assert client.get_children(zk_path) == []
