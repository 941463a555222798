"""A lock of a client that was started before the library first saw it, where greenlets take the place of threads.

Run by test_environments in a process of its own, as monkey-patching is for a whole process.

python -m tests.faults.environments HOSTS PATH PATCHED HANDLER
"""

from __future__ import annotations

import sys

if sys.argv[3].endswith("late"):
    import zkconcurrent  # noqa: F401
if sys.argv[3].startswith("gevent"):
    from gevent import monkey

    monkey.patch_all()
elif sys.argv[3].startswith("eventlet"):
    import eventlet

    eventlet.monkey_patch()

import os
import threading
from typing import Any

from kazoo.client import KazooClient

from zkconcurrent import ClientError, Lock

HOSTS, PATH, PATCHED, HANDLER = sys.argv[1:]
T = 6.0


def handler() -> dict[str, Any]:
    """Return the argument for kazoo."""
    if HANDLER == "gevent":
        from kazoo.handlers.gevent import SequentialGeventHandler

        return {"handler": SequentialGeventHandler()}
    if HANDLER == "eventlet":
        from kazoo.handlers.eventlet import SequentialEventletHandler

        return {"handler": SequentialEventletHandler()}
    return {}


def spawn(run: Any) -> Any:
    """Start a greenlet, or what is a thread here; return the function that waits for its end."""
    if PATCHED.startswith("eventlet") or HANDLER == "eventlet":
        import eventlet

        return eventlet.spawn(run).wait
    if PATCHED.startswith("gevent") or HANDLER == "gevent":
        import gevent

        return gevent.spawn(run).get
    thread = threading.Thread(target=run)
    thread.start()
    return thread.join


def main() -> None:
    """Acquire, contend and time out; or be refused in time."""
    looks: list[str] = []
    sys.addaudithook(lambda event, _: looks.append(event) if event.startswith("gc.get_") else None)
    client = KazooClient(HOSTS, timeout=T, **handler())
    if PATCHED.endswith("other hub"):
        import gevent

        gevent.get_hub().threadpool.apply(client.start)
    else:
        client.start()
    lock = Lock(client, PATH)
    if PATCHED.endswith("other hub"):
        for _ in range(2):
            try:
                lock.acquire(timeout=T)
            except ClientError as error:
                sys.stdout.write(f"refused: {error}\n")
        # kazoo's own `stop` may wait for greenlets that don't run.
        sys.stdout.flush()
        os._exit(0)
    assert lock.acquire(timeout=T)
    lock.release()
    inside: list[int] = []

    def work() -> None:
        for _ in range(5):
            with lock:
                inside.append(1)
                client.handler.sleep_func(0.002)
                assert len(inside) == 1
                inside.pop()

    for done in [spawn(work) for _ in range(4)]:
        done()
    ticks: list[int] = []
    over: list[int] = []

    def tick() -> None:
        while not over:
            client.handler.sleep_func(0.01)
            ticks.append(1)

    other = KazooClient(HOSTS, timeout=T, **handler())
    other.start()
    with Lock(other, PATH):
        ticking = spawn(tick)
        assert not lock.acquire(timeout=1)
        over.append(1)
        ticking()
        assert len(ticks) > 10, len(ticks)
    for each in (client, other):
        each.stop()
        each.close()
    assert not looks, looks
    sys.stdout.write("all is well\n")


main()
