"""Each thread of the library says in its name what it does, and where, for stack dumps and debuggers."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.helpers.eventually import eventually
from zkconcurrent import Dict, Election, Group, Lock, aio
from zkconcurrent.testing import Server


def names() -> set[str]:
    """Return the names of the library's threads, without their prefix."""
    return {thread.name[13:] for thread in threading.enumerate() if thread.name.startswith("zkconcurrent ")}


def test_their_names(zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """The keeper, an observer of a loss, a candidate, a member, the copies of maps."""
    client = connect(timeout=6)
    before: set[str] = set()
    told = threading.Event()

    def on_lost(_: Any) -> None:
        before.update({threading.current_thread().name})
        told.set()

    lock = Lock(client, f"{zk_path}/lock", on_lost=on_lost)
    lock.acquire()
    assert "keeper /" in names()
    election = Election(client, f"{zk_path}/election")
    election.stand()
    with Group(client, f"{zk_path}/group").join(b""):
        eventually(lambda: {f"candidacy {zk_path}/election", f"member {zk_path}/group"} <= names())
    election.withdraw()
    entries = Dict[bytes](client, f"{zk_path}/dict")
    assert len(entries) == 0
    assert "maps" in names()
    zookeeper.expire(client)
    assert told.wait(20)
    assert before == {f"zkconcurrent on_lost {zk_path}/lock"}


def test_the_thread_of_tasks(zk: KazooClient, zk_path: str) -> None:
    """A call that outlives its task has a thread, too."""
    seen: set[str] = set()

    async def main() -> None:
        # The thread may have ended before this one looks.
        until = time.monotonic() + 30
        while "background" not in seen and time.monotonic() < until:
            done = aio.Event(zk, zk_path).set()
            seen.update(names())
            await done

    asyncio.run(main())
    assert "background" in seen
