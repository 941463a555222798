"""Processes that do a job and are killed, stopped or forked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.processes import Spawn, parties
from zkconcurrent.testing import Server

SESSION = 4.0
SLACK = 10.0  # for a machine that is busy; the server looks for sessions to expire once a tick


@pytest.fixture
def party(zookeeper: Server, zk_path: str) -> Iterator[Spawn]:
    """Start a process that does a job; see `tests.faults.party`."""
    with parties("tests.faults.party", zookeeper.hosts, zk_path, SESSION) as spawn:
        yield spawn
