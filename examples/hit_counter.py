"""Processes that count hits in one `AtomicLong`; a `SharedValue` tells them how many pages to serve.

    python examples/hit_counter.py HOSTS        # such as 127.0.0.1:2181

Four processes with three threads each serve pages and count each one. A fifth is killed as it counts. The parent raises
the limit once, by an `update` of the settings, and each process sees it. At the end the count is the number of pages
that were served; the process that was killed may have counted one that it had no time to report.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
from multiprocessing.synchronize import Event
from typing import Any

from zkconcurrent import JSON, AtomicLong, SharedValue, connect

PROCESSES, THREADS = 4, 3


def serve(hosts: str, path: str, served: Any) -> None:
    """Wait for the settings, then serve and count that many pages in each thread."""
    client = connect(f"zk://{hosts}")
    hits = AtomicLong(client, f"{path}/hits")
    settings = SharedValue(client, f"{path}/settings", {"pages": 0}, codec=JSON)
    settings.wait_for(lambda value: value["pages"] > 0, timeout=30)
    pages = settings.get().value["pages"]

    def work() -> None:
        for _ in range(pages):
            hits.add()
            with served.get_lock():
                served.value += 1

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.stop()
    client.close()


def count_until_killed(hosts: str, path: str, served: Any, counting: Event) -> None:
    """Count until killed."""
    client = connect(f"zk://{hosts}")
    hits = AtomicLong(client, f"{path}/hits")
    while True:
        hits.add()
        with served.get_lock():
            served.value += 1
        counting.set()


def main(hosts: str, path: str = "/examples/hit_counter") -> None:
    """Start the processes, kill one, and print the outcome."""
    client = connect(f"zk://{hosts}")
    hits = AtomicLong(client, f"{path}/hits")
    settings = SharedValue(client, f"{path}/settings", {"pages": 0}, codec=JSON)
    context = multiprocessing.get_context("spawn")
    served, unlucky, counting = context.Value("q", 0), context.Value("q", 0, lock=True), context.Event()
    servers = [context.Process(target=serve, args=(hosts, path, served)) for _ in range(PROCESSES)]
    victim = context.Process(target=count_until_killed, args=(hosts, path, unlucky, counting))
    for each in (*servers, victim):
        each.start()
    assert counting.wait(30)
    settings.update(lambda value: {**value, "pages": 25})
    victim.kill()
    for each in (*servers, victim):
        each.join()
    pages, told = served.value, unlucky.get_obj().value  # the one that was killed may have kept the lock
    count = hits.get()
    assert pages == PROCESSES * THREADS * 25, pages
    assert count - pages - told in (0, 1), (count, pages, told)
    for value in (hits, settings):
        value.destroy()
    client.stop()
    client.close()
    print(f"{pages} pages were served and counted, each once, although a process was killed as it counted")


if __name__ == "__main__":
    main(*sys.argv[1:])
