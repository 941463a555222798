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

# It leaves its client open, and closes the stream of its log, as pytest does with that of each test.
PROGRAM = """
import io, logging, sys, time
what, hosts, path = sys.argv[1:]
console = io.StringIO()
logging.basicConfig(stream=console, level="INFO")

import zkconcurrent
from zkconcurrent.testing import MemoryServer

if what == "gone":
    with MemoryServer() as server:
        client = zkconcurrent.connect(f"zk://{server.hosts}")
        zkconcurrent.Lock(client, path).acquire()
    while "Connection refused" not in console.getvalue():
        time.sleep(0.01)
else:
    client = zkconcurrent.connect(f"zk://{hosts}")
    lock = zkconcurrent.Lock(client, path)
    lock.acquire()
if what == "refused":
    print("held", flush=True)
    sys.stdin.readline()
console.close()
"""


def begin(what: str, server: Server, path: str) -> subprocess.Popen[str]:
    """Begin the program."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PROGRAM, what, server.hosts, path]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("what", ["held", "gone"])
def test_what_the_exit_causes_is_not_logged(what: str, zookeeper: Server, zk_path: str) -> None:
    """Neither by the library nor by kazoo for it."""
    with begin(what, zookeeper, zk_path) as process:
        assert process.communicate(timeout=4 * PATIENCE) == ("", "")
        assert process.returncode == 0


def test_a_delete_that_fails_at_the_exit(zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """The log shows it all the same, on standard error."""
    with begin("refused", zookeeper, zk_path) as process:
        assert line_from(process) == "held"
        zk.set_acls(zk_path, [make_acl("world", "anyone", read=True, create=True, admin=True)])
        tell(process)
        _, err = process.communicate(timeout=4 * PATIENCE)
    zk.set_acls(zk_path, OPEN_ACL_UNSAFE)
    assert err.count(f"not deleted: this client may not delete its own node {zk_path}/") == 1
    assert err.count("\n") == 1
