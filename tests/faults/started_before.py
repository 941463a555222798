"""A lock of a client that was started before the library first saw it, in a program that gevent has patched.

Run by test_gevent in a process of its own, as monkey-patching is for a whole process.

python -m tests.faults.started_before HOSTS PATH gevent|threads
"""

# ruff: noqa: E402 - gevent patches before all else
from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sys
from typing import Any

import gevent
from kazoo.client import KazooClient
from kazoo.handlers.gevent import SequentialGeventHandler

from zkconcurrent import Lock

HOSTS, PATH, HANDLER = sys.argv[1:]
T = 6.0


def start() -> KazooClient:
    """Return a client that is connected."""
    options: dict[str, Any] = {"handler": SequentialGeventHandler()} if HANDLER == "gevent" else {}
    client = KazooClient(HOSTS, timeout=T, **options)
    client.start()
    return client


def main() -> None:
    """Acquire, contend and time out."""
    looks: list[str] = []
    sys.addaudithook(lambda event, _: looks.append(event) if event.startswith("gc.get_") else None)
    client = start()
    lock = Lock(client, PATH)
    assert lock.acquire(timeout=T)
    lock.release()
    inside: list[int] = []

    def work() -> None:
        for _ in range(5):
            with lock:
                inside.append(1)
                gevent.sleep(0.002)
                assert len(inside) == 1
                inside.pop()

    gevent.joinall([gevent.spawn(work) for _ in range(4)], raise_error=True)
    ticks: list[int] = []

    def tick() -> None:
        while True:
            gevent.sleep(0.01)
            ticks.append(1)

    other = start()
    with Lock(other, PATH):
        ticking = gevent.spawn(tick)
        assert not lock.acquire(timeout=1)
        ticking.kill()
        assert len(ticks) > 10, len(ticks)
    for each in (client, other):
        each.stop()
        each.close()
    assert not looks, looks


main()
