"""What all parties do: programs that a test starts, tells to go on, and kills; see `processes.parties`."""

from __future__ import annotations

import sys

from kazoo.client import KazooClient


def started(hosts: str, session: str) -> KazooClient:
    """Return a client that is started."""
    client = KazooClient(hosts, timeout=float(session))
    client.start()
    return client


def say(word: object) -> None:
    """Tell the test."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()
