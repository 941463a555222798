"""Workers that read their settings from a shared `Dict`, and a `Set` of the workers that are alive.

    python examples/shared_config.py HOSTS        # such as 127.0.0.1:2181

Each worker adds itself to an ephemeral `Set`, and reads a setting thousands of times: each read is of a local copy. The
parent changes the setting, and waits until each worker has reported the new value in another `Dict`. Then it kills one
worker, whose entry goes with its session.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable

from zkconcurrent import JSON, Dict, Set, connect

WORKERS = 3
SESSION = 4.0  # seconds


def worker(hosts: str, path: str, number: int) -> None:
    """Read the setting until the parent ends this process; report each new value."""
    client = connect(f"zk://{hosts}", timeout=SESSION)
    config = Dict[int](client, f"{path}/config", codec=JSON)
    reported = Dict[int](client, f"{path}/reported", codec=JSON)
    Set(client, f"{path}/alive", ephemeral=True).add(f"worker-{number}")
    last = None
    while True:
        for _ in range(1000):
            limit = config.get("limit")  # no request
        if limit != last and limit is not None:
            reported[f"worker-{number}"] = last = limit
        time.sleep(0.01)


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def main(hosts: str, path: str = "/examples/shared_config") -> None:
    """Start the workers, change the setting, kill a worker and print the outcome."""
    client = connect(f"zk://{hosts}", timeout=SESSION)
    config = Dict[int](client, f"{path}/config", codec=JSON)
    reported = Dict[int](client, f"{path}/reported", codec=JSON)
    alive = Set(client, f"{path}/alive", ephemeral=True)
    config["limit"] = 10
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=worker, args=(hosts, path, n), daemon=True) for n in range(WORKERS)]
    for each in workers:
        each.start()
    names = {f"worker-{n}" for n in range(WORKERS)}
    wait_for(lambda: alive == names and reported == dict.fromkeys(names, 10))
    assert config.replace("limit", 10, 20)
    assert not config.replace("limit", 10, 30)
    wait_for(lambda: reported == dict.fromkeys(names, 20))
    workers[0].kill()
    wait_for(lambda: alive == names - {"worker-0"})
    print(f"{WORKERS} workers saw the new limit, and {len(alive)} are alive after one was killed")
    for each in workers:
        each.kill()
        each.join()
    client.stop()
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
