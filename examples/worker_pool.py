"""A pool of workers on one queue of jobs; one worker is killed, and its job is done by another.

    python examples/worker_pool.py HOSTS        # such as 127.0.0.1:2181

A producer puts jobs into a `Queue`. Three workers claim one at a time, and acknowledge it at the end of the block. One
of them is killed at its work. When its session has expired, the job that it had claimed is free again, in its place,
and the next worker begins it anew. So a job must be harmless to repeat: here it writes one file, by a rename.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import tempfile
from pathlib import Path

from zkconcurrent import JSON, Queue, ShutDown, connect

WORKERS = 3
JOBS = 40
FATAL = 13  # the job at which a worker is killed
SESSION = 4.0  # seconds after which the job of a dead worker is free again


def do(job: dict[str, int], attempt: int, disk: Path) -> None:
    """Do a job: write down what comes of it, all at once."""
    if job["number"] == FATAL and attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    result = disk / f"job-{job['number']}"
    result.with_suffix(f".{os.getpid()}").write_text(json.dumps({"square": job["number"] ** 2, "attempt": attempt}))
    result.with_suffix(f".{os.getpid()}").rename(result)


def worker(hosts: str, path: str, disk: Path) -> None:
    """Claim and do jobs until the queue is shut down and empty."""
    client = connect(f"zk://{hosts}", timeout=SESSION)
    jobs = Queue[dict[str, int]](client, path, codec=JSON, max_attempts=3)
    try:
        while True:
            with jobs.claim() as claim:
                do(claim.item, claim.attempts, disk)
    except ShutDown:
        pass
    finally:
        client.stop()
        client.close()


def main(hosts: str, path: str = "/examples/worker-pool") -> None:
    """Start the workers, put the jobs and print the outcome."""
    client = connect(f"zk://{hosts}")
    jobs = Queue[dict[str, int]](client, path, codec=JSON, max_attempts=3)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as disk:
        workers = [context.Process(target=worker, args=(hosts, path, Path(disk))) for _ in range(WORKERS)]
        for each in workers:
            each.start()
        for number in range(JOBS):
            jobs.put({"number": number})
        jobs.shutdown()  # the workers end when nothing is left, not before the dead one's job is done
        for each in workers:
            each.join()
        done = {number: json.loads((Path(disk) / f"job-{number}").read_text()) for number in range(JOBS)}
    assert sorted(each.exitcode or 0 for each in workers) == [-signal.SIGKILL, 0, 0], workers
    assert all(result["square"] == number**2 for number, result in done.items())
    again = [number for number, result in done.items() if result["attempt"] > 1]
    assert FATAL in again
    assert jobs.empty()
    assert not jobs.dead()
    jobs.destroy()
    client.stop()
    client.close()
    print(f"{JOBS} jobs are done, although a worker was killed: job {FATAL} was begun again")


if __name__ == "__main__":
    main(*sys.argv[1:])
