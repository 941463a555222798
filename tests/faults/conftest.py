"""Processes that do a job and are killed, stopped or forked; and machines without power."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.helpers.processes import spawning

SESSION = 4.0
SLACK = 10.0  # for a machine that is busy; the server looks for sessions to expire once a tick


party = spawning("tests.faults.party", SESSION)


@pytest.fixture
def dead_address() -> Iterator[Callable[[], int]]:
    """Make a port that neither takes nor refuses a connection, as where a machine has no power."""
    with ExitStack() as ends:

        def make() -> int:
            sock = ends.enter_context(socket.socket())
            sock.bind(("127.0.0.1", 0))
            sock.listen(0)
            for _ in range(3):  # the system lets so many wait, and drops what any other client sends
                visitor = ends.enter_context(socket.socket())
                visitor.setblocking(False)
                visitor.connect_ex(sock.getsockname())
            return int(sock.getsockname()[1])

        yield make
