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
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zkconcurrent
from zkconcurrent import aio, synchronized

URL, FOLDER, HOW = sys.argv[1:]
ROUNDS = 3

zk = zkconcurrent.connect(URL)
lock = zkconcurrent.RLock(zk, "/all/x")
names = zkconcurrent.namespace(zk, "/all")

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


@synchronized(zk, "/all/{name}")
def function(name: str = "x") -> Told:
    """Visit."""
    return visit()


@synchronized(lambda: zk, "/all/{name}")
def later(name: str = "x") -> Told:
    """Visit; the client is the one of a function."""
    return visit()


@synchronized(names, "{name}")
def named(name: str = "x") -> Told:
    """Visit; a namespace has the path."""
    return visit()


@synchronized(lock)
def given() -> Told:
    """Visit with a lock that is there."""
    return visit()


@synchronized(zk, "/all/{name}")
def steps(name: str = "x") -> Iterator[Told]:
    """Visit in a generator."""
    yield visit()


@contextmanager
@synchronized(zk, "/all/{name}")
def block(name: str = "x") -> Iterator[None]:
    """Give a block that holds the lock."""
    yield


def in_block() -> Told:
    """Visit in a block."""
    with block():
        return visit()


@aio.synchronized(zk, "/all/{name}")
async def coroutine(name: str = "x") -> Told:
    """Visit in a coroutine."""
    return visit()


@aio.synchronized(aio.namespace(zk, "/all"), "{name}")
async def async_steps(name: str = "x") -> AsyncIterator[Told]:
    """Visit in an async generator."""
    yield visit()


@synchronized(zk, "/all/{name}")
def recursive(n: int = 2, name: str = "x") -> Told:
    """Call itself by its name, which is the decorated function's."""
    return recursive(n - 1) if n else visit()


class Account:
    """Has methods of all kinds."""

    name = "x"

    @synchronized(zk, "/all/{self.name}")
    def method(self) -> Told:
        """Visit."""
        return visit()

    @synchronized(zk, "/all/{self.name}")
    def generator(self) -> Iterator[Told]:
        """Visit."""
        yield visit()

    @synchronized(zk, "/all/{cls.name}")
    @classmethod
    def above(cls) -> Told:
        """Visit."""
        return visit()

    @classmethod
    @synchronized(zk, "/all/{cls.name}")
    def below(cls) -> Told:
        """Visit."""
        return visit()

    @synchronized(zk, "/all/{name}")
    @staticmethod
    def static(name: str = "x") -> Told:
        """Visit."""
        return visit()

    @staticmethod
    @synchronized(zk, "/all/{name}")
    def static_below(name: str = "x") -> Told:
        """Visit."""
        return visit()

    @aio.synchronized(zk, "/all/{self.name}")
    async def coroutine(self) -> Told:
        """Visit."""
        return visit()

    @aio.synchronized(zk, "/all/{cls.name}")
    @classmethod
    async def async_above(cls) -> Told:
        """Visit."""
        return visit()


class Savings(Account):
    """Has them by inheritance, and one of its own that calls its base's."""

    @synchronized(zk, "/all/{self.name}")
    def method(self) -> Told:
        """Visit."""
        return super().method()


class Callable_:  # noqa: N801
    """An object that can be called."""

    def __call__(self) -> Told:
        """Visit."""
        return visit()


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

    acquire = functools.partial(lock.acquire, timeout=60)

    def with_acquire(release: Any = lock.release) -> Told:
        assert acquire()
        try:
            return visit()
        finally:
            release()

    def with_client() -> Told:
        with zkconcurrent.RLock(zk, "/all/x"):
            return visit()

    return [
        *(nested, nested_steps, with_lock, with_hold, with_acquire, with_client),
        synchronized(zk, "/all/x")(lambda: visit()),
        synchronized(zk, "/all/x")(functools.partial(Callable_())),
        synchronized(zk, "/all/x")(Callable_()),
        in_block,
    ]


def run(call: Callable[[], Any]) -> Told:
    """Run a call of any kind to its end."""
    told = call()
    if inspect.iscoroutine(told):
        return asyncio.run(told)
    if not inspect.isasyncgen(told):
        return next(iter(list(told))) if inspect.isgenerator(told) else told

    async def first() -> Any:
        [only] = [each async for each in told]
        return only

    return asyncio.run(first())


def main() -> None:
    """Have all of them called by two processes, or more."""
    account, savings = Account(), Savings()
    by_name: list[Callable[[], Any]] = [
        *(
            function,
            later,
            named,
            given,
            steps,
            coroutine,
            async_steps,
            recursive,
            functools.partial(function, name="x"),
        ),
        *(account.method, account.generator, account.above, Account.below, account.static, Account.static_below),
        *(account.coroutine, Account.async_above, savings.method, functools.partial(Account.method, savings)),
    ]
    calls = (by_name if HOW in ("spawn", "forkserver") else by_name + made()) * ROUNDS
    if HOW == "loky":
        from joblib import Parallel, delayed

        told = Parallel(n_jobs=2, batch_size=1)(delayed(run)(call) for call in calls)
    elif HOW == "dask":
        import dask

        told = dask.compute(*(dask.delayed(run)(call) for call in calls), scheduler="processes", num_workers=2)
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
