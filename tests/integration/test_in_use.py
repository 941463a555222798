"""`destroy()` of what is in use: the error names the users."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.helpers.eventually import eventually
from zkconcurrent import AtomicLong, Barrier, Dict, DoubleBarrier, Queue, Semaphore, Set

USES: dict[str, tuple[Callable[[KazooClient, str], Any], Callable[[Any], Any]]] = {
    "barrier": (lambda zk, at: Barrier(zk, at, 2), lambda barrier: barrier.wait(20)),
    "dict": (lambda zk, at: Dict[bytes](zk, at), lambda entries: [entries.update(a=b"1") for _ in range(2)]),
    "double barrier": (lambda zk, at: DoubleBarrier(zk, at, 2), lambda barrier: barrier.enter(20)),
    "queue, a member": (lambda zk, at: Queue(zk, at), lambda queue: queue.put(b"x")),
    "queue, a consumer": (lambda zk, at: Queue(zk, at), lambda queue: queue.get(timeout=20)),
    "semaphore": (lambda zk, at: Semaphore(zk, at), lambda semaphore: semaphore.acquire()),
    "set": (lambda zk, at: Set(zk, at), lambda entries: [entries.add("a"), entries.add("b")]),
}


@pytest.mark.parametrize("what", USES)
def test_it_names_the_user(what: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The error has the host, the process and the thread of a user; nothing is destroyed."""
    make, use = USES[what]
    mine, theirs = make(zk, zk_path), make(client := connect(), zk_path)

    told: list[str] = []

    def run() -> None:
        with suppress(Exception):  # its client is stopped below
            # Again and again: what a client makes while `destroy()` is under way goes, too.
            while not told:
                use(theirs)

    using = threading.Thread(target=run, name="the user's")
    using.start()

    def refused() -> bool:
        try:
            mine.destroy()
        except RuntimeError as error:
            told.append(str(error))
        return bool(told)

    eventually(refused)
    user = f'thread "the user\'s" of process {os.getpid()} on host {socket.gethostname()!r}'
    assert "is in use" in told[0]
    assert user in told[0]
    client.stop()
    using.join()


def test_it_names_a_client_that_queues(zk: KazooClient, zk_path: str) -> None:
    """Of a number that is changed in turn, it names the client that queues; of Curator's, what it has left."""
    number = AtomicLong(zk, zk_path)
    number.add()
    zk.create(f"{zk_path}/lock/_c_x-lock-", b"10.0.0.1", ephemeral=True, sequence=True)
    with pytest.raises(RuntimeError, match=r"session 0x[0-9a-f]+, which says b'10.0.0.1'"):
        number.destroy()


def test_it_names_a_few(zk: KazooClient, zk_path: str) -> None:
    """Of many users, the error names five, and counts the others."""
    number = AtomicLong(zk, zk_path)
    number.add()
    for _ in range(8):
        zk.create(f"{zk_path}/lock/_c_x-lock-", b"", ephemeral=True, sequence=True)
    with pytest.raises(RuntimeError, match="and 3 more"):
        number.destroy()
