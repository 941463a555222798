"""`connect("memory:")`: a service of this process, and clients that exclude each other as those of processes do."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import cloudpickle
import pytest

import zkconcurrent
from tests.helpers.processes import in_forked_child, run_python


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


def test_it_is_not_pickled() -> None:
    """Another process would find another service, and nothing would be excluded: the error says what to run instead."""
    with zkconcurrent.connect("memory:") as zk:
        function = zkconcurrent.synchronized(zk, "/function")(lambda: None)
        for what in (zk, zkconcurrent.namespace(zk, "/app"), zkconcurrent.Lock(zk, "/lock"), function):
            with pytest.raises(
                TypeError, match=r"memory: is of this process alone; run `python -m zkconcurrent\.testing"
            ):
                cloudpickle.dumps(what)


def test_a_forked_child() -> None:
    """It reaches the service of its parent: the two exclude each other."""
    with zkconcurrent.connect("memory:fork") as zk:
        lock = zkconcurrent.Lock(zk, "/lock")

        def look() -> None:
            with zkconcurrent.connect("memory:fork") as own:
                assert not zkconcurrent.Lock(own, "/lock").acquire(blocking=False)

        with lock:
            in_forked_child(look)
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
    with ProcessPoolExecutor(1, multiprocessing.get_context(sys.argv[1])) as pool:
        pool.submit(work).result()
"""


@pytest.mark.fault(261)
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_worker_that_imports_the_main_module(method: str, tmp_path: Path) -> None:
    """It is warned, unless it is a fork, which reaches the service of its parent; and so is nobody else."""
    main = tmp_path / "main.py"
    main.write_text(_MAIN)
    done = run_python(main, method)
    told = re.findall(r"main\.py:6: RuntimeWarning: memory: is a service of this process alone", done.stderr)
    assert len(told) == (method != "fork"), done.stderr
    assert told or not done.stderr


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("memory:?sasl=GSSAPI", "'sasl' needs a server"),
        ("memory:a b", "memory:name"),
        ("memory:a/../b", "path"),
    ],
)
def test_a_url_that_is_wrong(url: str, says: str) -> None:
    """The error names the part, and no service begins."""
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match=says):
        zkconcurrent.connect(url)
    assert set(threading.enumerate()) <= before
