"""What a program logs as it ends: nothing that its end has caused, and all that went wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from tests.helpers.eventually import PATIENCE
from tests.helpers.processes import line_from, tell
from zkconcurrent.testing import Server

pytestmark = pytest.mark.fault(515)

# It leaves its client open. If `closes`, it closes the stream of its log, as pytest does with that of each test.
PROGRAM = """
import atexit, io, logging, sys, time
what, closes, hosts, path = sys.argv[1:]
console = io.StringIO() if closes else sys.stderr
logging.basicConfig(stream=console, level="INFO" if closes else "WARNING")
if not closes:
    # It is called behind the library's.
    atexit.register(logging.getLogger("kazoo.client").warning, "of another client")

import zkconcurrent
from kazoo.client import KazooClient
from zkconcurrent.testing import MemoryServer

if what == "gone":
    with MemoryServer() as server:
        client = zkconcurrent.connect(f"zk://{server.hosts}")
        zkconcurrent.Lock(client, path).acquire()
    while "Connection refused" not in console.getvalue():
        time.sleep(0.01)
elif what == "plain":
    client = KazooClient(hosts)
    client.start()
else:
    client = zkconcurrent.connect("memory:" if what == "memory" else f"zk://{hosts}")
lock = zkconcurrent.Lock(client, path)
if what not in ("idle", "gone"):
    lock.acquire()
if what in ("refused", "lost"):
    print("held", flush=True)
    sys.stdin.readline()
if what == "lost":
    lock.lost.wait()
if closes:
    console.close()
"""


def begin(what: str, server: Server, path: str, *, closes: bool) -> subprocess.Popen[str]:
    """Begin the program."""
    command = [sys.executable, "-c", PROGRAM, what, "closes" * closes, server.hosts, path]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("what", ["idle", "held", "plain", "memory", "gone"])
def test_what_the_exit_causes_is_not_logged(what: str, zookeeper: Server, zk_path: str) -> None:
    """Neither by the library nor by kazoo for it, whose streams may be closed by then."""
    with begin(what, zookeeper, zk_path, closes=True) as process:
        assert process.communicate(timeout=4 * PATIENCE) == ("", "")
        assert process.returncode == 0


@pytest.mark.parametrize("closes", [False, True])
def test_a_delete_that_fails_at_the_exit(closes: bool, zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """The log shows it all the same, on standard error if its own stream is closed; others log on."""
    with begin("refused", zookeeper, zk_path, closes=closes) as process:
        assert line_from(process) == "held"
        zk.set_acls(zk_path, [make_acl("world", "anyone", read=True, create=True, admin=True)])
        tell(process)
        _, err = process.communicate(timeout=4 * PATIENCE)
    zk.set_acls(zk_path, OPEN_ACL_UNSAFE)
    assert err.count(f"not deleted: this client may not delete its own node {zk_path}/") == 1
    assert err.count("\n") == (1 if closes else 2)
    assert ("of another client" in err) is not closes


def test_a_hold_that_is_lost_at_the_exit(zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """A program that ends as it learns of the loss has it in its log."""
    with begin("lost", zookeeper, zk_path, closes=False) as process:
        assert line_from(process) == "held"
        (node,) = zk.get_children(zk_path)
        zk.delete(f"{zk_path}/{node}")
        tell(process)
        _, err = process.communicate(timeout=4 * PATIENCE)
    assert err.count(f"lost: {zk_path}/{node}") == 1
