"""A word count in phases: the processes wait for each other between the phases.

    python examples/map_reduce.py HOSTS        # such as 127.0.0.1:2181

Four processes share a disk and meet at a barrier after each phase, so no process reads an unfinished file:

1. Each process maps its own texts to counts, with one file for each process that will reduce them.
2. Each process reduces the files that were written for it.
3. The barrier's action adds up the results, once, before any process goes on.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
from collections import Counter
from pathlib import Path

from zkconcurrent import Barrier, connect

PROCESSES = 4
TEXTS = [f"one fish two fish red fish blue fish number {n}".split() for n in range(40)]


def map_words(me: int, disk: Path) -> None:
    """Count the words of this process's texts, apart for each process that will reduce them."""
    counts = [Counter[str]() for _ in range(PROCESSES)]
    for text in TEXTS[me::PROCESSES]:
        for word in text:
            counts[sum(word.encode()) % PROCESSES][word] += 1
    for to, count in enumerate(counts):
        (disk / f"{me}-to-{to}").write_text(json.dumps(count))


def reduce_words(me: int, disk: Path) -> None:
    """Add up the counts that all processes have written for this one."""
    total = Counter[str]()
    for each in range(PROCESSES):
        total.update(json.loads((disk / f"{each}-to-{me}").read_text()))
    (disk / f"reduced-{me}").write_text(json.dumps(total))


def add_up(disk: Path) -> None:
    """Make one result of the parts; fail if there is one already."""
    total = Counter[str]()
    for each in range(PROCESSES):
        total.update(json.loads((disk / f"reduced-{each}").read_text()))
    with (disk / "result").open("x") as file:
        json.dump(total, file)


def work(hosts: str, path: str, me: int, disk: Path) -> dict[str, int]:
    """Do one process's part of each phase; return the result."""
    client = connect(f"zk://{hosts}")
    try:
        mapped = Barrier(client, f"{path}/mapped", PROCESSES, timeout=60)
        reduced = Barrier(client, f"{path}/reduced", PROCESSES, action=lambda: add_up(disk), timeout=60)
        map_words(me, disk)
        mapped.wait()
        reduce_words(me, disk)
        reduced.wait()
        return json.loads((disk / "result").read_text())  # type: ignore[no-any-return]
    finally:
        client.stop()
        client.close()


def main(hosts: str, path: str = "/examples/map-reduce") -> None:
    """Run the processes and print the outcome."""
    with tempfile.TemporaryDirectory() as disk, multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        results = pool.starmap(work, [(hosts, path, n, Path(disk)) for n in range(PROCESSES)], chunksize=1)
    assert results == [Counter(word for text in TEXTS for word in text)] * PROCESSES, "a phase began too early"
    print(f"{PROCESSES} processes agree: {sum(results[0].values())} words, {results[0]['fish']} of them fish")


if __name__ == "__main__":
    main(*sys.argv[1:])
