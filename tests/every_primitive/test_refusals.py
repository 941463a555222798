"""A path that the service refuses: the client has no rights there, may only read, or has a chroot that does not exist.

The error says which, names the path, and comes at once, each time; nothing is made, and nothing is left to clean up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from tests.conftest import Connect
from tests.every_primitive import calls, each
from tests.helpers.kinds import KINDS
from zkconcurrent import RefusedError
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server


def refused(call: Callable[[], object], why: str) -> None:
    """Check that a call is refused, twice."""
    for _ in range(2):
        with pytest.raises(RefusedError, match=why):
            call()


@pytest.mark.fault(31)
@pytest.mark.parametrize("rights", ["none", "to read"])
@each()
def test_no_right_to_create(of: Any, kind: str, rights: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Whatever makes nodes is refused with the path, and makes none; the client is as if it had not asked."""
    there = make_acl("world", "anyone", read=True) if rights == "to read" else make_digest_acl("me", "secret", all=True)
    zk.create(zk_path, acl=[there], makepath=True)
    near, path = connect(), f"{zk_path}/below"
    refused(lambda: KINDS[kind].use(of, near, path), "NoAuth")
    assert zk.exists(path) is None
    assert not Session.of(near).registry.deletes


@pytest.mark.fault(258)
@each()
def test_a_chroot_that_is_missing(of: Any, kind: str, zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """Whatever makes nodes, looks or waits raises an error that names the chroot."""
    with pytest.warns(UserWarning, match="chroot"):
        astray = connect(f"{zookeeper.hosts}{zk_path}-missing")
    for call in calls(of, kind, astray, "/a").values():
        refused(call, "chroot.*does not exist")
