"""One server, a real one or a memory server: its life, its faults, its sessions."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient, KazooState

from tests.helpers.eventually import eventually
from tests.helpers.processes import processes_of
from zkconcurrent.testing import MemoryServer, Server
from zkconcurrent.testing import _server as server_module
from zkconcurrent.testing import _service as service_module
from zkconcurrent.testing._ports import PortTakenError, ReservedPorts

pytestmark = pytest.mark.xdist_group("test_server")


KINDS: list[type[Server]] = [Server, MemoryServer]
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server for the tests that leave it as it was."""
    with request.param() as server:
        yield server


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the servers of one test have their folders."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@each_kind
def test_leaves_nothing(temporary: Path, kind: type[Server]) -> None:
    """A stopped server has left no process, no folder and no listening port."""
    with kind() as server:
        pid = server.pid
        assert len(processes_of(temporary)) == 2  # with its watch
    assert not any(temporary.iterdir())
    assert not processes_of(temporary)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    with pytest.raises(ConnectionRefusedError):
        server.command("ruok")


@each_kind
def test_start_after_stop_is_afresh(kind: type[Server]) -> None:
    """A server that was stopped starts with no data, and can be used again and again."""
    server = kind()
    for _ in range(2):
        with server, server.client() as client:
            client.create("/once")


def test_killed() -> None:
    """A killed server is not running, its clients are told, and it can be started again."""
    with Server() as server, server.client(timeout=10) as client:
        lost = threading.Event()
        client.add_listener(lambda state: lost.set() if state == KazooState.SUSPENDED else None)
        server.kill()
        assert lost.wait(10)
        assert not server.is_running
        with pytest.raises(RuntimeError, match="not running"):
            _ = server.pid
        server.start()
        assert server.command("ruok") == "imok"


@each_kind
def test_stops_when_frozen(kind: type[Server]) -> None:
    """A frozen server can be stopped like any other."""
    with kind() as server:
        server.freeze()
    assert not server.is_running


@each_kind
def test_a_taken_port(shared: Server, kind: type[Server]) -> None:
    """If a port that is asked for is taken, that is an error, and not another port."""
    with pytest.raises(PortTakenError, match=rf"^port {shared.port} of 127\.0\.0\.1 is in use: .*$"):
        kind(port=shared.port).start()
    assert shared.status(timeout=10)["Mode"] == "standalone"


@pytest.mark.parametrize("port", [-1, 0, 65536])
@each_kind
def test_no_such_port(port: int, kind: type[Server]) -> None:
    """A port that does not exist is refused at once."""
    with pytest.raises(ValueError, match=f"from 1 to 65535, not {port}"):
        kind(port=port)


@pytest.mark.fault(259)
@each_kind
@pytest.mark.parametrize(
    "name", ["port", "tick_time", "min_session_timeout", "max_session_timeout", "container_check_interval"]
)
def test_a_number_as_text(name: str, kind: type[Server]) -> None:
    """A text where a number belongs, as of the environment, is refused; the error names the argument."""
    with pytest.raises(TypeError, match=f"^{name} must be .* not str$"):
        kind(**{name: "2181"})  # type: ignore[arg-type]


def test_taken_port(shared: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chosen port that someone else takes first is given up for another."""
    tries = iter(range(2))

    def reserve(count: int) -> ReservedPorts:
        reserved = ReservedPorts(count)
        if next(tries, None) is not None:
            reserved.numbers = (shared.port,)
        return reserved

    monkeypatch.setattr(server_module, "ReservedPorts", reserve)
    with Server() as server:
        assert server.port != shared.port
    assert next(tries, None) is None


def test_bad_settings(temporary: Path) -> None:
    """A server that does not come up raises with its log and its Java, and leaves nothing."""
    with pytest.raises(RuntimeError, match=r"(?s)ended instead of serving.*version.*NumberFormatException"):
        Server(settings={"tickTime": "soon"}).start()
    assert not any(temporary.iterdir())


def test_started_twice(shared: Server) -> None:
    """A second start of a running server is an error, and does it no harm."""
    with pytest.raises(RuntimeError, match="is running already"):
        shared.start()
    assert shared.command("ruok") == "imok"


def test_loopback_only(shared: Server) -> None:
    """Nobody outside this machine can connect."""
    tables = "".join(table.read_text() for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")))
    rows = [row.split()[1] for row in tables.splitlines() if row.split()[1].endswith(f":{shared.port:04X}")]
    assert rows
    assert all(row[-13:] == f"0100007F:{shared.port:04X}" for row in rows)


@each_kind
def test_session_limits(kind: type[Server]) -> None:
    """The limits for session timeouts are those that were given."""
    with kind(min_session_timeout=3, max_session_timeout=5) as server:
        for asked, given in ((1, 3), (60, 5)):
            with server.client(timeout=asked):
                eventually(lambda given=given: f",to={given}000," in server.command("cons"))


def test_expire(shared: Server) -> None:
    """An expired session is over when the call returns: its ephemerals are gone; its client goes on in a new one."""
    with shared.client(timeout=30) as client, shared.client() as other:
        client.create("/ephemeral", ephemeral=True)
        states: list[str] = []
        is_back = threading.Event()

        def listener(state: str) -> None:
            states.append(state)
            if state == KazooState.CONNECTED:
                is_back.set()

        client.add_listener(listener)
        session = client.client_id
        shared.expire(client)
        other.sync("/")
        assert other.exists("/ephemeral") is None
        assert is_back.wait(10)
        assert KazooState.LOST in states
        assert client.client_id != session


def test_expire_without_a_session(shared: Server) -> None:
    """A client that is not connected has no session to expire."""
    with pytest.raises(ValueError, match="not connected"):
        shared.expire(KazooClient(shared.hosts))


def test_a_session_of_another_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """`expire` refuses it: before, it returned as if it had ended the session."""
    monkeypatch.setattr(service_module, "PATIENCE", 1.0)
    with MemoryServer() as server, MemoryServer() as other, other.client() as client:
        session = client.client_id
        with pytest.raises(ValueError, match="is the client one of another service"):
            server.expire(client)
        assert client.client_id == session
        other.expire(client)


@pytest.mark.fault(394)
def test_a_folder_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server keeps its data in its own folder, whatever characters the path has, and whatever the locale is."""
    folder = tmp_path / "jürgen \N{ROCKET}"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("LC_ALL", "C")
    with Server() as server, server.client() as client:
        assert list(folder.glob("*/version-2"))
        client.ensure_path("/here")
        server.restart()
        assert client.retry(client.exists, "/here")
    assert list(tmp_path.iterdir()) == [folder]
    assert not any(folder.iterdir())
