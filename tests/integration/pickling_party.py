"""Processes that get primitives by pickle.

    python -m tests.integration.pickling_party URL PATH JOB METHOD

JOB is `pool` or `executor`, and METHOD how its processes start. The last line that it prints is what it found.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import zkconcurrent
from zkconcurrent import AtomicLong, Condition, Lock, Queue

held: list[Any] = []


def count(job: tuple[Lock, AtomicLong]) -> tuple[int, int]:
    """Add one to a number as no other process does: by a read and a write."""
    lock, number = job
    with lock:
        number.set(number.get() + 1)
    return os.getpid(), id(lock.client)


def put(queue: Queue[str], item: str) -> str:
    """Put an item."""
    queue.put(item)
    return item


def keep(lock: Lock) -> bool:
    """Acquire a lock and end without a release."""
    held.append(lock)
    return lock.acquire(timeout=30)


def fork(lock: Lock) -> bool:
    """Use a lock by pickle, fork, and use it by pickle in the child; the parent's object is refused there."""
    mine = pickle.loads(pickle.dumps(lock))
    with mine:
        pass
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                mine.acquire()
            except zkconcurrent.ClientError:
                again = pickle.loads(pickle.dumps(mine))  # by name, although the object itself is of no use here
                with again:
                    code = 0 if again.client is not mine.client else 2
                again.client.stop()
        finally:
            os._exit(code)
    with mine:  # the parent is undisturbed
        pass
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def main(url: str, path: str, job: str, method: str) -> None:
    """Do a job."""
    context: Any = multiprocessing.get_context(method)
    with zkconcurrent.connect(url) as zk:
        lock, number = Lock(zk, f"{path}/lock"), AtomicLong(zk, f"{path}/number")
        if job == "fork":
            assert fork(lock)
        elif job == "pool":
            with lock, context.Pool(2) as pool:  # it is held here: no process holds it by that
                later = pool.map_async(count, [(lock, number)] * 10, chunksize=1)
                assert not later.ready()
                lock.release()
                found = later.get(60)
                lock.acquire()
                pool.close()
                pool.join()
            assert len({process for process, _ in found}) == len(set(found)), found  # one client in each
            assert number.get() == 10
        else:
            queue: Queue[str] = Queue(zk, f"{path}/queue", 100, codec=zkconcurrent.TEXT)
            with ProcessPoolExecutor(2, mp_context=context) as executor:
                assert sorted(executor.map(put, [queue] * 4, "abcd")) == sorted("abcd")
                assert executor.submit(keep, lock).result(60)
                assert executor.submit(Condition(zk, f"{path}/condition").acquire).result(60)
            assert {queue.get() for _ in range(4)} == set("abcd")
            assert lock.acquire(timeout=10)  # the process that held it has ended, long before its session would
            lock.release()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
