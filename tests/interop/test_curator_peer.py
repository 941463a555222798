"""The Java peer alone on a real server: it does as told, and its znodes look as our own must."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.conftest import Eventually
from tests.helpers.contenders import children
from tests.helpers.curator import CuratorClient, CuratorPeer, JavaError
from tests.helpers.proxy import Proxy
from zkconcurrent.testing import Installation, Server

UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    """A file with the number 0."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    return counter


@pytest.mark.parametrize("kind", ["mutex", "write", "semaphoreMutex"])
def test_threads_exclude_each_other(java: CuratorClient, zk_path: str, kind: str) -> None:
    """While one Java thread holds, another's acquire fails in time; after the release it succeeds."""
    assert java.call(f"{kind}.acquire", zk_path, thread="one").result(20) == "true"
    assert java.call(f"{kind}.acquire", zk_path, 100, thread="two").result(20) == "false"
    java.call(f"{kind}.release", zk_path, thread="one").result(20)
    assert java.call(f"{kind}.acquire", zk_path, 10_000, thread="two").result(20) == "true"
    java.call(f"{kind}.release", zk_path, thread="two").result(20)
    assert java.call(f"{kind}.held", zk_path).result(20) == "false"


def test_blocked_thread_holds_up_no_other(java: CuratorClient, zk_path: str) -> None:
    """A thread that waits for a lock leaves the peer free to be told other things."""
    java.call("mutex.acquire", zk_path, thread="one").result(20)
    waiting = java.call("mutex.acquire", zk_path, thread="two")
    assert java.call("mutex.held", zk_path, thread="three").result(20) == "true"
    assert not waiting.done()
    java.call("mutex.release", zk_path, thread="one").result(20)
    assert waiting.result(20) == "true"
    assert java.call("mutex.owned", zk_path, thread="two").result(20) == "true"


def test_readers_share_and_exclude_the_writer(java: CuratorClient, zk_path: str) -> None:
    """Two readers hold at once, and a writer not with them."""
    assert java.call("read.acquire", zk_path, thread="one").result(20) == "true"
    assert java.call("read.acquire", zk_path, thread="two").result(20) == "true"
    assert java.call("write.acquire", zk_path, 100, thread="three").result(20) == "false"


def test_semaphore_has_as_many_permits(java: CuratorClient, zk_path: str) -> None:
    """Permits are taken several at once and given back one by one, and never are more out than there are."""
    assert java.call("semaphore.acquire", zk_path, 3, 2).result(20) == "true"
    assert java.call("semaphore.acquire", zk_path, 3, 2, 100).result(20) == "false"
    java.call("semaphore.release", zk_path, 3).result(20)
    assert java.call("semaphore.acquire", zk_path, 3, 2, 10_000).result(20) == "true"
    assert len(java.call("semaphore.participants", zk_path, 3).result(20).split("\t")) == 3


@pytest.mark.parametrize("kind", ["mutex", "write", "semaphoreMutex", "semaphore"])
def test_increments_are_exact(java: CuratorClient, zk_path: str, counter: Path, kind: str) -> None:
    """A counter that two threads increment under one lock loses nothing."""
    permits = (1,) if kind == "semaphore" else ()
    loops = [java.call(f"{kind}.increment", zk_path, *permits, counter, 50, thread=name) for name in ("one", "two")]
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
    zk: KazooClient,
    zk_path: str,
    command: str,
    arguments: tuple[int, ...],
    parent: str,
    node: str,
) -> None:
    """A hold is one ephemeral node, named by a uuid, its role and ten digits, in a container."""
    with proxy.counting() as count, peer.client(proxy.hosts) as java:
        java.call(command, zk_path, *arguments).result(20)
        (name,) = children(zk, zk_path + parent)
        assert re.fullmatch(f"_c_{UUID}-{node}[0-9]{{10}}", name)
        assert zk.exists(f"{zk_path}{parent}/{name}").ephemeralOwner == java.session
        assert children(zk, f"{zk_path}/locks") == []
    # No stat tells a container, only the request that made it.
    assert zk_path + parent in {each.path for each in count.trace if each.name == "createContainer"}


def test_participants_in_order(java: CuratorClient, zk: KazooClient, zk_path: str, eventually: Eventually) -> None:
    """The queue is told by its nodes, the holder's first."""
    java.call("mutex.acquire", zk_path, thread="holder").result(20)
    java.call("mutex.acquire", zk_path, thread="waiter")
    eventually(lambda: len(children(zk, zk_path)) == 2)
    queue = sorted(children(zk, zk_path), key=lambda name: name[-10:])
    told = java.call("mutex.participants", zk_path).result(20)
    assert told.split("\t") == [f"{zk_path}/{name}" for name in queue]


def test_exceptions_come_back(java: CuratorClient, zk_path: str) -> None:
    """What a command throws in Java is raised here, by its name and its message."""
    with pytest.raises(JavaError, match="IllegalMonitorStateException: You do not own the lock"):
        java.call("mutex.release", zk_path).result(20)
    with pytest.raises(JavaError, match="IllegalArgumentException: rwlock"):
        java.call("rwlock.acquire", zk_path).result(20)


def test_expired_session_takes_its_nodes(java: CuratorClient, zk: KazooClient, zk_path: str) -> None:
    """After expire the server has ended the session: its locks are free, and the client comes back in another."""
    session = java.session
    java.call("mutex.acquire", zk_path, thread="one").result(20)
    java.expire()
    zk.sync(zk_path)
    assert children(zk, zk_path) == []
    assert java.call("mutex.acquire", zk_path, thread="two").result(20) == "true"
    assert java.session != session


def test_closed_session_interrupts_its_threads(
    peer: CuratorPeer, zookeeper: Server, zk: KazooClient, zk_path: str
) -> None:
    """Closing a client ends the wait of its threads and leaves no node."""
    with peer.client(zookeeper.hosts) as java:
        java.call("mutex.acquire", zk_path, thread="one").result(20)
        waiting = java.call("mutex.acquire", zk_path, thread="two")
        assert java.call("mutex.held", zk_path, thread="three").result(20) == "true"
    with pytest.raises(JavaError):
        waiting.result(20)
    zk.sync(zk_path)
    assert children(zk, zk_path) == []


def test_killed_peer_answers_with_errors(zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """After kill nothing waits in vain, and the sessions last until they time out."""
    with CuratorPeer() as peer:
        java = peer.client(zookeeper.hosts)
        java.call("mutex.acquire", zk_path, thread="one").result(20)
        waiting = java.call("mutex.acquire", zk_path, thread="two")
        peer.kill()
        assert children(zk, zk_path)
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
