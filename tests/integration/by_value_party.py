"""A program whose synchronized functions are run by other processes, which get them by value, or by name.

All functions have one path, so no two calls may overlap. It prints the number of calls, of those that overlapped, and
whether two processes took part. Run it as a script, so that its functions are those of `__main__`.
"""

# ruff: noqa: ARG001, ARG004 - the arguments are in the paths
from __future__ import annotations

import asyncio
import functools
import inspect
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zkconcurrent
from zkconcurrent import aio, synchronized

URL, FOLDER, HOW = sys.argv[1:]
ROUNDS = 3

zk = zkconcurrent.connect(URL)
lock = zkconcurrent.RLock(zk, "/all/x")

Told = tuple[int, bool]  # the process, and whether the call overlapped with another


def visit() -> Told:
    """Be in a place where only one may be, for as long as it takes to meet another."""
    mark = Path(FOLDER) / "inside"
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return os.getpid(), True
    time.sleep(0.01)
    mark.unlink()
    return os.getpid(), False


def meet() -> Told:
    """Wait until another process is here, so that both take part."""
    (Path(FOLDER) / f"here-{os.getpid()}").touch()
    while len([*Path(FOLDER).glob("here-*")]) < 2:
        time.sleep(0.01)
    return os.getpid(), False


@synchronized(zk, "/all/{name}")
def function(name: str = "x") -> Told:
    """Visit."""
    return visit()


@synchronized(lambda: zk, "/all/{name}")
def later(name: str = "x") -> Told:
    """Visit; the client is the one of a function."""
    return visit()


@synchronized(lock)
def given() -> Told:
    """Visit with a lock that is there."""
    return visit()


@synchronized(zk, "/all/{name}")
def steps(name: str = "x") -> Iterator[Told]:
    """Visit in a generator."""
    yield visit()


@aio.synchronized(zk, "/all/{name}")
async def coroutine(name: str = "x") -> Told:
    """Visit in a coroutine."""
    return visit()


class Account:
    """Has methods."""

    name = "x"

    @synchronized(zk, "/all/{self.name}")
    def method(self) -> Told:
        """Visit."""
        return visit()

    @synchronized(zk, "/all/{cls.name}")
    @classmethod
    def above(cls) -> Told:
        """Visit."""
        return visit()

    @staticmethod
    @synchronized(zk, "/all/{name}")
    def static(name: str = "x") -> Told:
        """Visit."""
        return visit()

    @aio.synchronized(zk, "/all/{self.name}")
    async def coroutine(self) -> Told:
        """Visit."""
        return visit()


class Savings(Account):
    """Has one of its own that calls its base's."""

    @synchronized(zk, "/all/{self.name}")
    def method(self) -> Told:
        """Visit."""
        return super().method()


def made() -> list[Callable[[], Any]]:
    """Return functions that have no name in the module."""
    name = "x"

    @synchronized(zk, "/all/x")
    def nested() -> Told:
        return visit() if name else (0, True)

    @synchronized(zk, "/all/x")
    def nested_steps() -> Iterator[Told]:
        yield visit()

    def with_lock() -> Told:
        with lock:
            return visit()

    def with_hold(hold: Any = lock.hold) -> Told:
        with hold(60):
            return visit()

    def with_client() -> Told:
        with zkconcurrent.RLock(zk, "/all/x"):
            return visit()

    return [nested, nested_steps, with_lock, with_hold, with_client, synchronized(zk, "/all/x")(lambda: visit())]


def run(call: Callable[[], Any]) -> Told:
    """Run a call of any kind to its end."""
    told = call()
    if inspect.iscoroutine(told):
        return asyncio.run(told)
    return next(iter(list(told))) if inspect.isgenerator(told) else told


def main() -> None:
    """Have all of them called by two processes, or more."""
    account = Account()
    by_name: list[Callable[[], Any]] = [
        *(function, later, given, steps, coroutine, functools.partial(function, name="x")),
        *(account.method, account.above, Account.static, account.coroutine, Savings().method),
    ]
    calls = [meet, meet] + (by_name if HOW == "spawn" else by_name + made()) * ROUNDS
    if HOW == "loky":
        from joblib import Parallel, delayed

        told = Parallel(n_jobs=2, batch_size=1)(delayed(run)(call) for call in calls)
    elif HOW == "cloudpickle":
        import cloudpickle

        text = "import pickle, sys; run, calls = pickle.load(sys.stdin.buffer); print([run(call) for call in calls])"
        workers = [
            subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(cloudpickle.dumps((run, calls)))
            worker.stdin.close()
        told = []
        for worker in workers:
            assert worker.stdout is not None
            told += eval(worker.stdout.read() or "[]")
            worker.stdout.close()
            worker.wait()
    else:
        with multiprocessing.get_context(HOW).Pool(2) as pool:
            told = pool.map(run, calls, chunksize=1)
            pool.close()
            pool.join()
    several = len({pid for pid, _ in told}) > 1
    sys.stdout.write(f"{len(told) // len(calls)} {sum(overlap for _, overlap in told)} {several}\n")


if __name__ == "__main__":
    main()
