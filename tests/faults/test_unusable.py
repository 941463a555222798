"""A client that can't be used says why: the one cause that applies, and its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.helpers.eventually import eventually
from tests.helpers.processes import run_python
from tests.helpers.proxy import Proxy
from zkconcurrent import ClientError, Lock
from zkconcurrent.testing import Server

ROOT = Path(__file__).parents[2]
CAUSES = {
    "not started": "call client.start()",
    "is stopped": "call client.start()",
    "given up": "open another one",
    "before fork()": "in each child after the fork",
    "own threads": "hand the work to another thread",
    "exiting": "end this thread",
}


def check(text: str, cause: str) -> None:
    """Check that an error names this cause, with its remedy, and no other."""
    assert [each for each in CAUSES if each in text] == [cause], text
    assert CAUSES[cause] in text


def error(lock: Lock) -> str:
    """Return the error of an acquire."""
    with pytest.raises(ClientError) as raised:
        lock.acquire(timeout=20)
    return str(raised.value)


def test_never_started_and_stopped(zookeeper: Server, zk_path: str) -> None:
    """A client that was never started, and one that is stopped, or stopped and closed, are told apart."""
    client = KazooClient(zookeeper.hosts)
    lock = Lock(client, zk_path)
    check(error(lock), "not started")
    client.start()
    client.stop()
    check(error(lock), "is stopped")
    client.close()
    check(error(lock), "is stopped")
    client.start()
    with lock:
        pass
    client.stop()
    client.close()


def test_given_up(connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A client whose tries to connect are used up says so."""
    client = connect(hosts=proxy.hosts, connection_retry={"max_tries": 2, "delay": 0.1})
    lock = Lock(client, zk_path)
    proxy.refuse()
    proxy.cut()
    eventually(lambda: lock._session.link.stopped)
    check(error(lock), "given up")


def test_own_thread(zk: KazooClient, zk_path: str) -> None:
    """A call on one of kazoo's threads says so."""
    told = zk.handler.async_result()
    lock = Lock(zk, zk_path)
    zk.handler.completion_queue.put(lambda: told.set(error(lock)))
    check(told.get(timeout=20), "own threads")


FORK = """
import os, sys
import zkconcurrent
from kazoo.client import KazooClient
hosts, path, how = sys.argv[1:]
client = zkconcurrent.connect(f"zk://{hosts}") if how == "connect" else KazooClient(hosts)
client.start()
lock = zkconcurrent.Lock(client, path) if how == "used before" else None
if os.fork() == 0:
    try:
        (lock or zkconcurrent.Lock(client, path)).acquire(timeout=20)
    except zkconcurrent.ClientError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
client.stop()
"""


@pytest.mark.parametrize("how", ["connect", "never used before", "used before"])
def test_forked(how: str, zookeeper: Server, zk_path: str) -> None:
    """A client that a module has opened before the fork says so in the child, as in a worker of Celery or gunicorn."""
    done = run_python("-W", "ignore::DeprecationWarning", "-c", FORK, zookeeper.hosts, zk_path, how, timeout=100)
    check(done.stdout, "before fork()")
    assert "worker_process_init" in done.stdout
