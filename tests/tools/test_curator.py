"""The Java peer alone on a real server: it does as told, and its znodes look as our own must."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.tools.conftest import Connect
from tests.tools.curator import CuratorClient, CuratorPeer, JavaError
from tests.tools.proxy import Proxy
from zkconcurrent.testing import Installation, Server

UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture
def direct(server: Server, connect: Connect) -> KazooClient:
    """A client that sees what the server has."""
    return connect(server.hosts)


@pytest.fixture
def path() -> str:
    """A path nobody has used."""
    return f"/peer-{uuid4().hex}"


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    """A file with the number 0."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    return counter


def children(client: KazooClient, path: str) -> list[str]:
    """Return the children there, none if there is no parent."""
    try:
        return sorted(client.get_children(path))
    except NoNodeError:
        return []


@pytest.mark.parametrize("kind", ["mutex", "write", "semaphoreMutex"])
def test_threads_exclude_each_other(java: CuratorClient, path: str, kind: str) -> None:
    """While one Java thread holds, another's acquire fails in time; after the release it succeeds."""
    assert java.call(f"{kind}.acquire", path, thread="one").result(20) == "true"
    assert java.call(f"{kind}.acquire", path, 100, thread="two").result(20) == "false"
    java.call(f"{kind}.release", path, thread="one").result(20)
    assert java.call(f"{kind}.acquire", path, 10_000, thread="two").result(20) == "true"
    java.call(f"{kind}.release", path, thread="two").result(20)
    assert java.call(f"{kind}.held", path).result(20) == "false"


def test_blocked_thread_holds_up_no_other(java: CuratorClient, path: str) -> None:
    """A thread that waits for a lock leaves the peer free to be told other things."""
    java.call("mutex.acquire", path, thread="one").result(20)
    waiting = java.call("mutex.acquire", path, thread="two")
    assert java.call("mutex.held", path, thread="three").result(20) == "true"
    assert not waiting.done()
    java.call("mutex.release", path, thread="one").result(20)
    assert waiting.result(20) == "true"
    assert java.call("mutex.owned", path, thread="two").result(20) == "true"


def test_readers_share_and_exclude_the_writer(java: CuratorClient, path: str) -> None:
    """Two readers hold at once, and a writer not with them."""
    assert java.call("read.acquire", path, thread="one").result(20) == "true"
    assert java.call("read.acquire", path, thread="two").result(20) == "true"
    assert java.call("write.acquire", path, 100, thread="three").result(20) == "false"


def test_semaphore_has_as_many_permits(java: CuratorClient, path: str) -> None:
    """Permits are taken several at once and given back one by one, and never are more out than there are."""
    assert java.call("semaphore.acquire", path, 3, 2).result(20) == "true"
    assert java.call("semaphore.acquire", path, 3, 2, 100).result(20) == "false"
    java.call("semaphore.release", path, 3).result(20)
    assert java.call("semaphore.acquire", path, 3, 2, 10_000).result(20) == "true"
    assert len(java.call("semaphore.participants", path, 3).result(20).split("\t")) == 3


@pytest.mark.parametrize("kind", ["mutex", "write", "semaphoreMutex", "semaphore"])
def test_increments_are_exact(java: CuratorClient, path: str, counter: Path, kind: str) -> None:
    """A counter that two threads increment under one lock loses nothing."""
    permits = (1,) if kind == "semaphore" else ()
    loops = [java.call(f"{kind}.increment", path, *permits, counter, 50, thread=name) for name in ("one", "two")]
    assert [loop.result(60) for loop in loops] == ["50", "50"]
    assert counter.read_text() == "100"


@pytest.mark.parametrize(
    ("command", "arguments", "parent", "node"),
    [
        ("mutex.acquire", (), "", "lock-"),
        ("read.acquire", (), "", "__READ__"),
        ("write.acquire", (), "", "__WRIT__"),
        ("semaphore.acquire", (3,), "/leases", "lease-"),
        ("semaphoreMutex.acquire", (), "/leases", "lease-"),
    ],
)
def test_znodes_look_as_ours_must(
    peer: CuratorPeer,
    proxy: Proxy,
    direct: KazooClient,
    path: str,
    command: str,
    arguments: tuple[int, ...],
    parent: str,
    node: str,
) -> None:
    """A hold is one ephemeral node, named by a uuid, its role and ten digits, in a container."""
    with proxy.counting() as count, peer.client(proxy.hosts) as java:
        java.call(command, path, *arguments).result(20)
        (name,) = children(direct, path + parent)
        assert re.fullmatch(f"_c_{UUID}-{node}[0-9]{{10}}", name)
        assert direct.exists(f"{path}{parent}/{name}").ephemeralOwner == java.session
        assert children(direct, f"{path}/locks") == []
    # No stat tells a container, only the request that made it.
    assert path + parent in {each.path for each in count.trace if each.name == "createContainer"}


def test_participants_in_order(java: CuratorClient, direct: KazooClient, path: str) -> None:
    """The queue is told by its nodes, the holder's first."""
    java.call("mutex.acquire", path, thread="one").result(20)
    (first,) = children(direct, path)
    java.call("mutex.acquire", path, 500, thread="two").result(20)
    assert java.call("mutex.participants", path).result(20) == f"{path}/{first}"


def test_exceptions_come_back(java: CuratorClient, path: str) -> None:
    """What a command throws in Java is raised here, by its name and its message."""
    with pytest.raises(JavaError, match="IllegalMonitorStateException: You do not own the lock"):
        java.call("mutex.release", path).result(20)
    with pytest.raises(JavaError, match="IllegalArgumentException: rwlock"):
        java.call("rwlock.acquire", path).result(20)


def test_expired_session_takes_its_nodes(java: CuratorClient, direct: KazooClient, path: str) -> None:
    """After expire the server has ended the session: its locks are free, and the client comes back in another."""
    session = java.session
    java.call("mutex.acquire", path, thread="one").result(20)
    java.expire()
    direct.sync(path)
    assert children(direct, path) == []
    assert java.call("mutex.acquire", path, thread="two").result(20) == "true"
    assert java.session != session


def test_closed_session_interrupts_its_threads(
    peer: CuratorPeer, server: Server, direct: KazooClient, path: str
) -> None:
    """Closing a client ends the wait of its threads and leaves no node."""
    with peer.client(server.hosts) as java:
        java.call("mutex.acquire", path, thread="one").result(20)
        waiting = java.call("mutex.acquire", path, thread="two")
        assert java.call("mutex.held", path, thread="three").result(20) == "true"
    with pytest.raises(JavaError):
        waiting.result(20)
    direct.sync(path)
    assert children(direct, path) == []


def test_killed_peer_answers_with_errors(server: Server, direct: KazooClient, path: str) -> None:
    """After kill nothing waits in vain, and the sessions last until they time out."""
    with CuratorPeer() as peer:
        java = peer.client(server.hosts, session_timeout=2)
        java.call("mutex.acquire", path, thread="one").result(20)
        waiting = java.call("mutex.acquire", path, thread="two")
        peer.kill()
        assert children(direct, path)
        with pytest.raises(JavaError, match="has ended"):
            waiting.result(20)
        with pytest.raises(JavaError, match="does not run"):
            java.call("session")


def test_missing_curator_says_what_to_install() -> None:
    """Where no Curator is, the error names the packages that bring it."""
    with pytest.raises(RuntimeError, match="libcurator-recipes-java"), CuratorPeer(Installation("home", "3.8.0", ())):
        pass


def test_broken_class_path_says_what_to_install(tmp_path: Path) -> None:
    """Where the Java program does not start, the error has Java's words and names the packages."""
    broken = Installation("home", "3.8.0", (), (tmp_path / "none.jar",))
    with (
        pytest.raises(RuntimeError, match=r"(?s)compilation failed.*default-jdk"),
        CuratorPeer(broken),
    ):
        pass
