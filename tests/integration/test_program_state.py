"""The program's state is the program's: its seed of `random`, its forks, and what a test of it patches."""

from __future__ import annotations

import os
import random
import re
import uuid
from pathlib import Path
from unittest.mock import patch

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect
from tests.helpers.processes import run_python
from zkconcurrent import DetachedLock, Dict, Group, Lock
from zkconcurrent._protocol.node_names import unique
from zkconcurrent.testing import Server

pytestmark = pytest.mark.fault(510)

ONE = uuid.UUID(int=2**127 - 1)


@pytest.fixture
def _patched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that seeds `random`, and a test of it that patches what makes random names and tells the process."""
    random.seed(7)
    for module, name, value in (
        (uuid, "uuid4", ONE),
        (os, "urandom", b"1234567890123456"),
        (os, "getpid", 7),
        (random, "choice", None),
        (random, "random", 0.5),
        (random, "uniform", 1.0),
    ):
        monkeypatch.setattr(module, name, lambda *_, value=value: value)


@pytest.mark.usefixtures("_patched")
def test_a_client_stops_whatever_getpid_says(zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """Only a fork makes a client the parent's; it is stopped, and another client gets its lock."""
    client = zkconcurrent.connect(f"zk://{zookeeper.hosts}")
    with patch.object(os, "getpid", return_value=8):
        lock = Lock(client, zk_path)
        lock.acquire()
        client.stop()
    assert not client.connected
    with Lock(zk, zk_path).hold(timeout=0):
        assert lock.hold_count() == 0


@pytest.mark.usefixtures("_patched")
def test_names_differ_whatever_a_test_patches(connect: Connect, zk_path: str) -> None:
    """Two clients, holds, members and candidates have names of their own."""
    clients = [connect(), connect()]
    locks = [DetachedLock(client, f"{zk_path}/{n}", owner="me") for n, client in enumerate(clients)]
    assert all(lock.acquire() for lock in locks)
    nodes = [owner.node for lock in locks if (owner := lock.owner()) is not None]
    assert len({unique(node.rpartition("/")[2]) for node in nodes}) == 2
    plain = [Lock(client, f"{zk_path}/plain") for client in clients]
    with plain[0]:
        assert not plain[1].acquire(timeout=0.1)
    groups = [Group(client, f"{zk_path}/group") for client in clients]
    for group in groups:
        group.join()
    assert len(groups[0].members()) == 2
    mine = Dict(clients[0], f"{zk_path}/dict", codec=zkconcurrent.JSON)
    mine.update(a=1, b=2)
    assert {mine.popitem()[0], mine.popitem()[0]} == {"a", "b"}


FORKS = """
import os, random, sys
from zkconcurrent import Election, Group, Lock, Semaphore, connect
from zkconcurrent._protocol.node_names import unique

hosts, path = sys.argv[1:]

def seeded():
    random.seed(7)
    return connect("zk://" + hosts)

def names(zk):
    lock, group = Lock(zk, path + "/lock"), Group(zk, path + "/group")
    with lock:
        node = lock.owner().node
    Semaphore(zk, path + "/semaphore", 0).release()
    return [unique(node.rpartition("/")[2]), Election(zk, path + "/election").id, group.join().id]

with seeded() as zk:
    print(*names(zk), sep="\\n", flush=True)
    for _ in range(2):
        if (child := os.fork()) == 0:
            with seeded() as own:
                print(*names(own), sep="\\n", flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert Semaphore(zk, path + "/semaphore", 0).available() == 3
"""


def test_children_of_one_process_share_no_name(zookeeper: Server, zk_path: str) -> None:
    """Nor with their parent, which has used the library, if all three seed `random` alike."""
    said = run_python("-c", FORKS, zookeeper.hosts, zk_path).stdout.split()
    assert len(said) == 9
    assert len(set(said)) == 9


def test_nothing_asks_what_a_test_may_patch() -> None:
    """Names, choices and the process come from `_runtime/this_process.py`, which has bound it all."""
    package = Path(zkconcurrent.__file__).parent
    asks = re.compile(r"\buuid\.uuid|\buuid[14]\(|\brandom\.\w+\(|\bos\.(getpid|urandom)\(|\bgethostname\(")
    found = {
        f"{file.relative_to(package)}: {line.strip()}"
        for file in package.rglob("*.py")
        # The command and the servers of tests are programs of their own.
        if file.relative_to(package).parts[0] not in ("_command", "testing")
        for line in file.read_text().splitlines()
        if asks.search(line)
    }
    assert {each for each in found if "HOST = " not in each} == set()
