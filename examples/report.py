"""A report that many processes read, and that one of them rebuilds when it is out of date.

    python examples/report.py HOSTS        # such as 127.0.0.1:2181

Four processes answer questions from a file on a disk that they share. A process that finds the file too old rebuilds it
while the others wait; a process that waited to rebuild it finds it fresh. No process reads half a report, and a process
that rebuilt the report answers from that very build.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from zkconcurrent import ReadWriteLock, connect

PROCESSES = 4
QUESTIONS = 50
MAX_AGE = 0.1  # seconds
LINES = 20


def is_fresh(report: Path) -> bool:
    """Return whether the report is young enough."""
    return report.exists() and time.time() - report.stat().st_mtime < MAX_AGE


def rebuild(report: Path) -> None:
    """Rewrite the report, slowly and in place, which is why readers must be kept out."""
    build = int(report.read_text().split()[0]) + 1 if report.exists() else 1
    with report.open("w") as file:
        for _ in range(LINES):
            file.write(f"{build}\n")
            file.flush()


def answer(lock: ReadWriteLock, report: Path) -> list[str]:
    """Answer from a fresh report."""
    with lock.read_lock:  # shared with other readers
        if is_fresh(report):
            return report.read_text().split()
    with lock.write_lock:  # alone
        if not is_fresh(report):  # another process may have been faster
            rebuild(report)
        lock.read_lock.acquire()  # before the write lock is released, so that no writer gets in between
    try:
        return report.read_text().split()
    finally:
        lock.read_lock.release()


def work(hosts: str, path: str, report: Path) -> set[str]:
    """Answer some questions; return the builds of the report that the answers came from."""
    client = connect(f"zk://{hosts}")
    try:
        lock = ReadWriteLock(client, path)
        builds = set()
        for _ in range(QUESTIONS):
            lines = answer(lock, report)
            assert lines == lines[:1] * LINES, "half a report"
            builds.add(lines[0])
        return builds
    finally:
        client.stop()
        client.close()


def main(hosts: str, path: str = "/examples/report") -> None:
    """Run the processes and print the outcome."""
    with tempfile.TemporaryDirectory() as disk, multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        job = (hosts, path, Path(disk) / "report")
        builds = set().union(*pool.starmap(work, [job] * PROCESSES))
        print(f"{PROCESSES * QUESTIONS} questions were answered from {len(builds)} builds of the report, all whole")


if __name__ == "__main__":
    main(*sys.argv[1:])
