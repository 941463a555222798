"""Services that restart one after the other on a signal, and a parent that waits until all are back.

    python examples/rolling_restart.py HOSTS        # such as 127.0.0.1:2181

Four services wait for an `Event`. Then each one restarts while it holds a `Lock`, so two are never down at once, and
counts down a `CountDownLatch` when it is up again. The parent, which set the event, waits for the latch.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from zkconcurrent import CountDownLatch, Event, Lock, connect

SERVICES = 4
RESTART = 0.1  # seconds


def restart(down: Path) -> None:
    """Go down and come up again; no other service may be down meanwhile."""
    down.touch(exist_ok=False)  # fails if another service is down
    time.sleep(RESTART)
    down.unlink()


def service(hosts: str, path: str, disk: Path, number: int) -> None:
    """Wait for the signal, then restart in turn."""
    client = connect(f"zk://{hosts}")
    ready = CountDownLatch(client, f"{path}/ready", SERVICES)
    back = CountDownLatch(client, f"{path}/back", SERVICES)
    ready.count_down()
    Event(client, f"{path}/word").wait()
    with Lock(client, f"{path}/turn"):
        restart(disk / "down")
        (disk / f"restarted-{number}").touch()
    back.count_down()  # stays counted when this process ends
    client.stop()
    client.close()


def main(hosts: str, path: str = "/examples/rolling_restart") -> None:
    """Start the services, give the signal and print the outcome."""
    client = connect(f"zk://{hosts}")
    word = Event(client, f"{path}/word")
    ready, back = (CountDownLatch(client, f"{path}/{name}", SERVICES) for name in ("ready", "back"))
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as disk:
        services = [context.Process(target=service, args=(hosts, path, Path(disk), n)) for n in range(SERVICES)]
        for each in services:
            each.start()
        assert ready.wait(30)
        assert not list(Path(disk).iterdir()), "a service did not wait for the signal"
        word.set()
        assert back.wait(30)
        restarted = sorted(file.name for file in Path(disk).iterdir())
        assert restarted == [f"restarted-{n}" for n in range(SERVICES)], restarted
        for each in services:
            each.join()
            assert each.exitcode == 0
    for each in (word, ready, back):  # no process waits any more
        each.destroy()
    client.stop()
    client.close()
    print(f"{SERVICES} services have restarted, one at a time")


if __name__ == "__main__":
    main(*sys.argv[1:])
