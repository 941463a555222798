"""`connect("memory:")`: a service of this process, and clients that exclude each other as those of processes do."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import NoReturn

import cloudpickle
import pytest

import zkconcurrent
from tests.helpers.processes import run_python
from zkconcurrent import aio


def test_two_clients() -> None:
    """Each has a session of its own: a lock of one excludes the other, which gets it as the first is stopped."""
    with zkconcurrent.connect("memory:") as one, zkconcurrent.connect("memory:") as other:
        assert one.client_id[0] != other.client_id[0]
        lock, same = zkconcurrent.RLock(one, "/two/lock"), zkconcurrent.RLock(other, "/two/lock")
        with lock:
            assert not same.acquire(blocking=False)
            owner = same.owner()
            assert owner is not None
            assert owner.pid == os.getpid()
        assert same.acquire(timeout=5)
        other.stop()
        assert lock.acquire(timeout=5)
        lock.release()


def test_services_by_name() -> None:
    """One name, one service; another name, another one. A chroot and options are as in any URL."""
    with (
        zkconcurrent.connect("memory:a/app?timeout=5") as one,
        zkconcurrent.connect("memory:a/app") as same,
        zkconcurrent.connect("memory:b/app") as other,
    ):
        with zkconcurrent.Lock(one, "/lock"):
            assert not zkconcurrent.Lock(same, "/lock").acquire(blocking=False)
            with zkconcurrent.Lock(other, "/lock"):
                assert not zkconcurrent.Lock(same, "/lock").acquire(blocking=False)
        assert one.chroot == "/app"
        assert one._session_timeout == 5000


@pytest.mark.fault(399)
def test_no_descriptor_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service asks for it a hundred times a second, not all the time; then the client is served."""
    with zkconcurrent.connect("memory:scarce"):
        pass
    tries: list[float] = []

    def accept(_: socket.socket) -> NoReturn:
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", accept)
    threading.Timer(0.5, monkeypatch.undo).start()
    with zkconcurrent.connect("memory:scarce", start_timeout=30):
        assert len(tries) <= 100 * (tries[-1] - tries[0]) + 2


def test_tasks() -> None:
    """`aio.connect` opens the same service."""

    async def main() -> None:
        async with aio.connect("memory:tasks") as one, aio.connect("memory:tasks") as other:
            async with aio.Lock(one, "/lock"):
                assert not await aio.Lock(other, "/lock").acquire(blocking=False)
            async with aio.Lock(other, "/lock"):
                pass

    asyncio.run(main())


def _nothing() -> None:
    """Do nothing."""


async def _nothing_of_tasks() -> None:
    """Do nothing."""


def test_it_is_not_pickled() -> None:
    """Another process would find another service, and nothing would be excluded: the error says what to run instead."""
    with zkconcurrent.connect("memory:") as zk:
        for what in (
            zk,
            zkconcurrent.namespace(zk, "/app"),
            zkconcurrent.Lock(zk, "/lock"),
            aio.namespace(zk, "/app"),
            zkconcurrent.synchronized(zk, "/function")(_nothing),
            zkconcurrent.synchronized(zkconcurrent.Lock(zk, "/lock"))(_nothing),
            aio.synchronized(zk, "/coroutine")(_nothing_of_tasks),
        ):
            with pytest.raises(TypeError) as raised:
                cloudpickle.dumps(what)
            assert str(raised.value) == (
                "cannot pickle a client of memory:, nor what uses it: memory: is of this process alone; run `python -m "
                "zkconcurrent.testing --memory` in another terminal, and connect to the line that it prints"
            )


def test_a_forked_child() -> None:
    """It reaches the service of its parent: the two exclude each other."""
    with zkconcurrent.connect("memory:fork") as zk:
        lock = zkconcurrent.Lock(zk, "/lock")
        with lock:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    with zkconcurrent.connect("memory:fork") as own:
                        code = int(zkconcurrent.Lock(own, "/lock").acquire(blocking=False))
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
        with lock:
            pass


_MAIN = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import zkconcurrent

zk = zkconcurrent.connect("memory:")

def work():
    pass

if __name__ == "__main__":
    method, executor = sys.argv[1:]
    context = multiprocessing.get_context(method)
    if executor:
        with ProcessPoolExecutor(1, context) as pool:
            pool.submit(work).result()
    else:
        worker = context.Process(target=work)
        worker.start()
        worker.join()
"""


@pytest.mark.fault(261)
@pytest.mark.parametrize(("method", "executor"), [("spawn", "executor"), ("forkserver", ""), ("fork", "")])
def test_a_worker_that_imports_the_main_module(method: str, executor: str, tmp_path: Path) -> None:
    """It is warned, unless it is a fork, which reaches the service of its parent; and so is nobody else."""
    main = tmp_path / "main.py"
    main.write_text(_MAIN)
    done = run_python(main, method, executor)
    told = re.findall(r"main\.py:6: RuntimeWarning: memory: is a service of this process alone", done.stderr)
    assert len(told) == (method != "fork"), done.stderr
    assert told or not done.stderr


def test_no_service_is_begun_in_vain() -> None:
    """A program that does not use it has no thread of it; at exit nothing is printed."""
    program = (
        "import threading, zkconcurrent\n"
        "assert not [each.name for each in threading.enumerate() if 'memory' in each.name]\n"
        "zk = zkconcurrent.connect('memory:'); lock = zkconcurrent.RLock(zk, '/lock'); lock.acquire()\n"
        "assert [each.name for each in threading.enumerate()].count('zkconcurrent memory:') == 1\n"
    )
    done = run_python("-W", "always", "-c", program)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("memory:?sasl=GSSAPI", "'sasl' needs a server"),
        ("memory:?acl=creator", "'acl' needs a server"),
        ("memory:a b", "memory:name"),
        ("memory:?timeout=x", "'timeout'"),
        ("memory:?ca=x", "TLS"),
        ("memory:a/../b", "path"),
    ],
)
def test_a_url_that_is_wrong(url: str, says: str) -> None:
    """The error names the part, and no service begins."""
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match=says):
        zkconcurrent.connect(url)
    assert set(threading.enumerate()) <= before
