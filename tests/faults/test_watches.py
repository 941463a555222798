"""The watches of waits that are over, where servers or clients are not as usual."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.helpers.eventually import eventually
from tests.helpers.processes import run_python
from tests.helpers.proxy import Proxy
from zkconcurrent import Event
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

pytestmark = [pytest.mark.fault(240), pytest.mark.long]
ROOT = Path(__file__).parents[2]
SESSION = 4.0
PATIENCE = 20.0
PATHS = 120  # more than are removed together


def wait_in_vain(client: KazooClient, path: str, paths: int = PATHS) -> None:
    """Wait for events that nobody sets, each until its watch is there: a busy machine takes longer than one wait."""
    for n in range(paths):
        patience, watched = 0.02, False
        while not watched:
            assert not Event(client, f"{path}/{n}").wait(patience)
            watched = f"{path}/{n}" in client._data_watchers
            patience *= 2


def kept(client: KazooClient) -> list[Any]:
    """Return what the client keeps of watches that nobody needs."""
    watches = Session.of(client).watches
    return [*Session.of(client).registry.left, *watches._idle, *watches._due, *watches._later, *watches._unanswered]


def watched(client: KazooClient) -> int:
    """Return on how many paths kazoo has a watcher."""
    return len(client._data_watchers) + len(client._child_watchers)


@pytest.fixture
def at_server(zookeeper: Server) -> Callable[[], int]:
    """A function that returns how many watches the server has, more than before the test."""
    before = int(zookeeper.mntr()["zk_watch_count"])
    return lambda: int(zookeeper.mntr()["zk_watch_count"]) - before


@pytest.mark.fault(256)
def test_paths_whose_watch_has_fired(zk: KazooClient, zk_path: str) -> None:
    """No request is sent for these, so thousands are forgotten within seconds."""
    session = Session.of(zk)
    with session.lock:
        for n in range(3_000):
            session.registry.left[f"{zk_path}/{n}"] = False
    eventually(lambda: not kept(zk), patience=10)


def test_a_session_that_expires(
    connect: Connect, zookeeper: Server, zk_path: str, at_server: Callable[[], int]
) -> None:
    """Removals that are due, and those without a reply, end with the session; those of the next one go on."""
    client = connect()
    for due in (False, True):
        wait_in_vain(client, f"{zk_path}/{due}")
        if due:
            eventually(lambda: Session.of(client).watches._due or not kept(client), patience=PATIENCE)
        old = client.client_id
        zookeeper.expire(client)
        eventually(lambda old=old: client.connected and client.client_id != old, patience=PATIENCE)
        eventually(lambda: not kept(client) and not watched(client), patience=PATIENCE)
    wait_in_vain(client, f"{zk_path}/next")
    eventually(lambda: not kept(client) and not watched(client), patience=PATIENCE)
    eventually(lambda: at_server() <= 0, patience=PATIENCE)


def test_a_connection_that_is_lost_amid_removals(
    connect: Connect, proxy: Proxy, zk_path: str, at_server: Callable[[], int]
) -> None:
    """The watches end with the connection, and the client waits for no reply to their removals."""
    client = connect(hosts=proxy.hosts)
    wait_in_vain(client, f"{zk_path}/one")
    with proxy.lose_answer("removeWatches") as fault:
        fault.wait()
    eventually(lambda: client.connected and not kept(client) and not watched(client), patience=PATIENCE)
    wait_in_vain(client, f"{zk_path}/other")
    eventually(lambda: not kept(client) and not watched(client), patience=PATIENCE)
    eventually(lambda: at_server() <= 0, patience=PATIENCE)


UNUSUAL = """
import os, sys, time
how, hosts, path = sys.argv[1:]
if how == "patched":
    from gevent import monkey
    monkey.patch_all()
from kazoo.client import KazooClient
from zkconcurrent import ClientError, Event
from zkconcurrent._engine.session import Session

options = {}
if how != "forked":
    from kazoo.handlers.gevent import SequentialGeventHandler
    options["handler"] = SequentialGeventHandler()
    from gevent import sleep
else:
    sleep = time.sleep
client = KazooClient(hosts, **options)
client.start()
mine = []
client.ensure_path(path)
client.get(path, watch=mine.append)
# Not at one time: on a busy machine the first are removed before the last are made, and a short wait may end before its
# watch is there.
seen = set()
for n in range(2000):
    assert not Event(client, f"{path}/{n}").wait(0.02)
    seen.update(list(client._data_watchers))
    if n >= 120 and len(seen) > 100:
        break
assert len(seen) > 100
child = os.fork() if how == "forked" else None
if child == 0:
    inherited = len(client._data_watchers)
    try:
        Event(client, f"{path}/0").wait(0.02)
    except ClientError:
        time.sleep(5)  # nothing of the child removes what is the parent's
        os._exit(len(client._data_watchers) < inherited)
    os._exit(2)
until = time.monotonic() + 20
while len(client._data_watchers) > 1 and time.monotonic() < until:
    sleep(0.05)
assert list(client._data_watchers) == [path], client._data_watchers
client.set(path, b"new")
while not mine and time.monotonic() < until:
    sleep(0.05)
assert mine
if child is not None:
    assert os.waitpid(child, 0)[1] == 0
client.stop()
"""


@pytest.mark.parametrize("how", ["patched", "forked"])
def test_greenlets_and_forked_children(how: str, zookeeper: Server, zk_path: str) -> None:
    """Under gevent they are removed as elsewhere; a forked child removes none, and the parent goes on."""
    done = run_python("-W", "ignore::DeprecationWarning", "-c", UNUSUAL, how, zookeeper.hosts, zk_path, timeout=100)
    assert "Traceback" not in done.stderr, done.stderr
