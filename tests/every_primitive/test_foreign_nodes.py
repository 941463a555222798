"""Nodes of others at a primitive's path: an application's, or those of another kind in another session.

Two kinds exclude each other by design, or the second is refused before it does anything.
"""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.every_primitive import can_end, class_of, each
from tests.helpers.eventually import eventually
from tests.helpers.kinds import KINDS, is_same, make, nodes
from zkconcurrent import ForeignNodeError

pytestmark = pytest.mark.fault(236)


FAMILIES = {kind.family: name for name, kind in KINDS.items()}


@each()
def test_the_second_kind_is_refused(of: Any, kind: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Every other kind gets an error before it does anything, leaves no node, and the first goes on."""
    other, family = connect(), KINDS[kind].family
    for second in KINDS:
        # One of each other family, and all of its own.
        if hasattr(of, class_of(second)) and (second in FAMILIES.values() or KINDS[second].family == family):
            check_pair(of, kind, second, zk, other, f"{zk_path}/{second}")


ANY_DATA = ("Semaphore", "BoundedSemaphore", "Group", "AtomicReference", "SharedValue", "Condition, with a lock")
"""These have no data of their own at the path, or any; the last one leaves its lock held."""


@each(lambda kind, _: kind not in ANY_DATA)
def test_an_applications_data(of: Any, kind: str, zk: KazooClient, zk_path: str) -> None:
    """A node of an application at the path is an error that names it, to use it and to destroy it; the node stays."""
    zk.create(f"{zk_path}/child", b"too", makepath=True)
    zk.set(zk_path, b"an application's")
    before = nodes(zk, zk_path)
    with pytest.raises(ForeignNodeError, match=zk_path):
        KINDS[kind].wait(of, zk, zk_path, 20.0)
    if can_end(kind):
        with pytest.raises(ForeignNodeError, match=zk_path):
            make(of, kind, zk, zk_path).destroy()
    assert nodes(zk, zk_path) == before


def check_pair(of: object, first: str, second: str, zk: KazooClient, other: KazooClient, path: str) -> None:
    """Check one ordered pair, on a path of its own."""
    one, two = KINDS[first], KINDS[second]
    end = one.use(of, zk, path)
    assert end is not None, "the first kind found the path free"
    before = nodes(zk, path)
    if not is_same(one, two):
        with pytest.raises(ForeignNodeError) as caught:
            two.use(of, other, path)
        assert caught.value.path.startswith(path), (first, second)
        eventually(lambda: nodes(zk, path) == before)
    elif one.made_as != two.made_as:
        with pytest.raises(ValueError, match="was made as"):
            two.use(of, other, path)
        eventually(lambda: nodes(zk, path) == before)
    elif one.excludes and (two.excludes or second == "ReadLock"):
        assert two.use(of, other, path) is None, (first, second)
        eventually(lambda: nodes(zk, path) == before)
    elif two.excludes and first == "ReadLock":
        assert two.use(of, other, path) is None, (first, second)
    end()
    again = one.use(of, zk, path)
    assert again is not None
    again()
