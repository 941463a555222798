"""The memory server: what it can beside a real one, as `test_server` shows that; its replies are compared elsewhere."""

from __future__ import annotations

import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST
from tests.helpers.eventually import eventually
from tests.helpers.processes import line_from, python
from zkconcurrent import Lock, LockLostError
from zkconcurrent.testing import Ensemble, MemoryServer, Server
from zkconcurrent.testing.__main__ import MEMORY_ONLY


@pytest.fixture(scope="module")
def shared() -> Iterator[MemoryServer]:
    """A server for the tests that leave it as it was."""
    with MemoryServer() as server:
        yield server


@pytest.fixture
def client(shared: MemoryServer) -> Iterator[KazooClient]:
    """A client of it, which comes back soon."""
    with shared.client(timeout=10, **FAST) as client:
        yield client


def hello(timeout: int) -> bytes:
    """Return the bytes that open a session, with its timeout in milliseconds."""
    return struct.pack("!iiqiqi", 44, 0, 0, timeout, 0, 16) + bytes(16)


@contextmanager
def slow_reader(shared: MemoryServer, client: KazooClient, path: str) -> Iterator[socket.socket]:
    """Make a large node, and ask for it fifty times without reading."""
    client.create(path, b"x" * 1_000_000)
    request = struct.pack("!iii", 1, 4, len(path)) + path.encode() + b"\0"
    with socket.create_connection(("127.0.0.1", shared.port)) as slow:
        slow.sendall(hello(10_000))
        slow.recv(4 + 36, socket.MSG_WAITALL)
        slow.sendall((struct.pack("!i", len(request)) + request) * 50)
        yield slow


def test_killed() -> None:
    """A killed server has its data and sessions again when it is started; no fencing token comes twice."""
    with MemoryServer() as server, server.client(timeout=10, **FAST) as client:
        lock = Lock(client, "/lock")
        client.create("/kept", b"data")
        client.create("/ephemeral", ephemeral=True)
        session = client.client_id
        with lock:
            token = lock.fencing_token
            server.kill()
            assert not server.is_running
            eventually(lambda: client.client_state == "CONNECTING")
            server.start()
            eventually(lambda: client.connected)
            assert not lock.lost.is_set()
        with lock:
            assert lock.fencing_token > token
        assert client.client_id == session
        assert client.get("/kept")[0] == b"data"
        assert client.exists("/ephemeral")


def test_a_restart_without_the_sessions() -> None:
    """The data is there, all sessions are over, and clients go on in new ones."""
    with MemoryServer() as server, server.client(timeout=10, **FAST) as client, server.client(**FAST) as other:
        lock = Lock(client, "/lock")
        client.create("/kept", b"data")
        session = client.client_id
        with pytest.raises(LockLostError), lock:
            server.restart(sessions=False)
            assert lock.lost.wait(10)
            with other.Lock("/unused"):
                assert other.get("/kept")[0] == b"data"
        eventually(lambda: client.connected)
        assert client.client_id != session
        again = client.client_id
        server.restart()  # the next one is not without them
        eventually(lambda: client.connected)
        assert client.client_id == again


def test_a_client_that_does_not_read(shared: MemoryServer, client: KazooClient) -> None:
    """Its requests wait in the server, which serves other clients meanwhile; then it gets all replies."""
    with slow_reader(shared, client, "/large") as slow:
        assert len(client.get("/large")[0]) == 1_000_000
        left = 50 * (4 + 16 + 4 + 1_000_000 + 68)
        while left:
            came = len(slow.recv(min(left, 1 << 20)))
            assert came
            left -= came
    assert shared.command("ruok") == "imok"


def test_a_setting_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused, rather than ignored; so is an ensemble."""
    monkeypatch.setenv("ZKCONCURRENT_SERVER", "memory")
    for service in (Server(settings={"enforceQuota": "true"}), Server(properties={"a": 1}), Ensemble()):
        with pytest.raises(RuntimeError, match=r"the memory server has no setting '.*': use a real ZooKeeper"):
            service.start()


def test_the_command(tmp_path: Path) -> None:
    """It prints the line that connects to it, and what it is for."""
    with python("-m", "zkconcurrent.testing", "--memory", folder=tmp_path) as process:
        hosts = line_from(process).partition("zk://")[2].rstrip('")')
        client = KazooClient(hosts)
        client.start()
        assert client.exists("/zookeeper")
        client.stop()
        client.close()
        process.send_signal(signal.SIGINT)
        output, said = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "")
    assert said.endswith(f"{MEMORY_ONLY}\n")
    assert not any(tmp_path.iterdir())
