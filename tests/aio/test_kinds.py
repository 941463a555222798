"""Two kinds of primitives on one path, of tasks: from the text of the threads' test."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.helpers import on_tasks
from tests.helpers.kinds import KINDS
from tests.integration.test_kinds import check_pair

pytestmark = pytest.mark.fault(236)

HERE = [name for name in KINDS if hasattr(on_tasks, name.partition(",")[0])]


@pytest.mark.parametrize("first", HERE)
def test_the_second_kind_is_refused(first: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Of each ordered pair, the second gets an error before it does anything, and leaves no node."""
    other = connect()
    for second in HERE:
        check_pair(on_tasks, first, second, zk, other, f"{zk_path}/{second}")
