"""`connect` on a real server: an opened client works, a failure is reported, and nothing is left of either."""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NotEmptyError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import CREATOR_ALL_ACL, make_digest_acl

import zkconcurrent
from tests.conftest import InThread
from tests.helpers.eventually import PATIENCE, eventually
from tests.helpers.forwarder import Forwarder
from tests.helpers.installations import real_installation
from tests.helpers.kinds import KINDS, nodes
from tests.helpers.over_tls import TLS, OverTls
from tests.helpers.proxy import Proxy
from tests.helpers.trickle import trickling
from zkconcurrent.testing import MemoryServer, Server

clean = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def tls_port(zookeeper: Server) -> Iterator[int]:
    """The port of a door to the server, for TLS alone."""
    with Forwarder(zookeeper.port) as door:
        door.RequestHandlerClass = OverTls
        yield door.server_address[1]
        door.shutdown()


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run some Python in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lock_once(client: KazooClient, path: str) -> None:
    """Hold a lock for a moment."""
    lock = zkconcurrent.RLock(client, path)
    with lock:
        assert lock.fencing_token
    assert lock.owner() is None


@clean
def test_a_client(zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """It is a started kazoo client with the URL's timeout, whose chroot was made; its session ends with the block."""
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}{zk_path}/a/b?timeout=7") as client:
        assert isinstance(client, KazooClient)
        assert client.connected
        assert client.session_timeout == 7
        lock_once(client, "/lock")
        client.create("/mine", ephemeral=True)
        assert sorted(zk.get_children(f"{zk_path}/a/b")) == ["lock", "mine"]
        assert f"{zk_path}/a/b: CONNECTED" in repr(client)
    assert not client.connected
    assert zk.get_children(f"{zk_path}/a/b") == ["lock"]
    with pytest.raises(zkconcurrent.ClientError, match="stopped"):
        zkconcurrent.RLock(client, "/lock").acquire()


def test_digest(zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """User and password of the URL are a digest's, percent-decoded: nobody else can read the nodes of their owner."""
    with zkconcurrent.connect(f"zk://us%65r:p%40%3Ass%2F%25@{zookeeper.hosts}", default_acl=CREATOR_ALL_ACL) as client:
        client.create(zk_path, b"secret")
    with pytest.raises(NoAuthError):
        zk.get(zk_path)
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}", auth_data=[("digest", "user:p@:ss/%")]) as client:
        assert client.get(zk_path)[0] == b"secret"
    with (
        pytest.raises(zkconcurrent.RefusedError, match="may not do that"),
        zkconcurrent.connect(f"zk://{zookeeper.hosts}{zk_path}/chroot"),
    ):
        pass


@pytest.mark.fault(67)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "Condition, with a lock"])  # it leaves no node
@pytest.mark.filterwarnings("ignore:the last object of:ResourceWarning")
def test_what_a_user_makes_is_its_own(kind: str, zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """No stranger can read, change or delete what a user holds, nor take part; beside it, and above, there is room."""
    root = f"{zk_path}/team/app"
    with (
        zkconcurrent.connect(f"zk://user:secret@{zookeeper.hosts}{root}") as mine,
        zkconcurrent.connect(f"zk://other:secret@{zookeeper.hosts}") as other,
    ):
        end = KINDS[kind].use(zkconcurrent, mine, "/some/lock")
        inside = [f"{root}{path}" for path in sorted(nodes(mine, "/some/lock"), reverse=True)]
        for stranger in (zk, other):
            for node in inside:
                with pytest.raises(NoAuthError):
                    stranger.get(node) if node != inside[-1] else stranger.get_children(node)
                with pytest.raises((NoAuthError, NotEmptyError)):
                    stranger.delete(node)
                with pytest.raises(NoAuthError):
                    stranger.set(node, b"")
            with pytest.raises(NoAuthError):
                stranger.create(f"{inside[-1]}/_c_stranger-lock-", sequence=True, ephemeral=True)
            with pytest.raises(zkconcurrent.RefusedError, match="may not do that here"):
                KINDS[kind].use(zkconcurrent, stranger, inside[-1])
            assert len(nodes(mine, "/some/lock")) == len(inside)
            for above in (zk_path, root, f"{root}/some"):
                with zkconcurrent.Lock(stranger, f"{above}/{id(stranger)}"):
                    pass
                with pytest.raises((NoAuthError, NotEmptyError)):
                    stranger.delete(above)
        assert end is not None
        end()


@pytest.mark.fault(67)
def test_users_that_share(zookeeper: Server, zk_path: str) -> None:
    """One user's clients share its locks; those of several users, if all say that it is open, or name them."""
    one, other = "zk://one:secret@", "zk://other:secret@"
    both = [make_digest_acl(name, "secret", all=True) for name in ("one", "other")]
    for n, (urls, acl) in enumerate([((one, one), None), ((one, other), "open"), ((one, other), both)]):
        host = f"{zookeeper.hosts}{zk_path}-{n}"
        with (
            zkconcurrent.connect(f"{urls[0]}{host}", acl=acl) as mine,
            zkconcurrent.connect(f"{urls[1]}{host}", acl=acl) as theirs,
            zkconcurrent.Lock(mine, "/app/lock"),
        ):
            assert not zkconcurrent.Lock(theirs, "/app/lock").acquire(blocking=False)
            assert zkconcurrent.Lock(theirs, "/app/other").locked() is False


@pytest.mark.fault(68)
def test_the_log_shows_no_password(proxy: Proxy, zk_path: str, caplog: pytest.LogCaptureFixture) -> None:
    """At no level does a log show a password, the user's or the session's: not at the start, nor at a reconnect."""
    own = logging.getLogger("an application's")
    sessions = []
    with caplog.at_level(1):
        for options in ({}, {"logger": own}, {"logger": logging.LoggerAdapter(own, {})}):
            with zkconcurrent.connect(f"zk://user:s3cr3t@{proxy.hosts}{zk_path}", timeout=6.0, **options) as client:
                client.add_auth("digest", "another:s3cr3t")
                lock_once(client, "/lock")
                connections = []
                client.add_listener(connections.append)
                proxy.cut()
                eventually(lambda connections=connections: "CONNECTED" in connections)
                lock_once(client, "/lock")
                sessions.append(client.client_id[1])
    said = "".join(f"{record.getMessage()}{record.args!r}{record.msg!r}" for record in caplog.records)
    assert {record.name for record in caplog.records} >= {"kazoo.client", own.name}
    assert "scheme='digest'" in said
    assert "session_passwd" in said
    assert "s3cr3t" not in said
    for password in sessions:
        assert len(password) == 16
        assert password.hex() not in said
        assert repr(password)[2:-1] not in said
        assert str(list(password)) not in said


@pytest.mark.fault(331)
@pytest.mark.parametrize(("bytes_", "why"), [(b"xxxx", "no reply of a ZooKeeper"), (b"\0\1\0\0", "")])
def test_a_host_that_trickles(bytes_: bytes, why: str, zookeeper: Server, zk_path: str, in_thread: InThread) -> None:
    """A host that sends a bit now and then, of a reply of any length, holds up no `connect`, nor the next server."""
    with trickling(bytes_) as port:
        with pytest.raises(TimeoutError, match=f"no answer from ZooKeeper.*{why}"):
            in_thread(zkconcurrent.connect, f"zk://127.0.0.1:{port}?start_timeout=0.5&timeout=300").result(PATIENCE)
        with zkconcurrent.connect(f"zk://{zookeeper.hosts}?timeout=2") as client:
            client.set_hosts(f"127.0.0.1:{port},{zookeeper.hosts}", randomize_hosts=False)
            client.stop()
            client.start(timeout=15)
            lock_once(client, zk_path)


@pytest.mark.parametrize(
    "host", ["localhost:{}?", "127.0.0.1:{}?check_hostname=false&", "127.0.0.1:{}?verify_certs=false&"]
)
def test_tls(host: str, tls_port: int, zk_path: str) -> None:
    """With zks:// the locks work over TLS; a check that the URL switches off is not made."""
    with zkconcurrent.connect(f"zks://{host.format(tls_port)}ca={TLS / 'ca.pem'}") as client:
        lock_once(client, zk_path)


@pytest.mark.fault(406)
@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("zks://localhost:{0}", "certificate must come from an issuer in `ca`"),
        ("zks://127.0.0.1:{0}?ca={1}", "certificate must come from an issuer in `ca`, name this host"),
        ("zk://localhost:{0}", "a server closes a connection at once"),
        ("zks://localhost:{2}", "speak TLS at another port"),
    ],
    ids=["not trusted", "not its name", "not TLS", "a port without TLS"],
)
def test_tls_is_checked(url: str, advice: str, tls_port: int, zookeeper: Server) -> None:
    """A certificate that nobody vouches for, or of another host, is as good as no answer; so is TLS not spoken."""
    with pytest.raises(TimeoutError) as caught:
        zkconcurrent.connect(url.format(tls_port, TLS / "ca.pem", zookeeper.port), start_timeout=3.0, timeout=2.0)
    said = str(caught.value)
    host = url[url.index("//") + 2 :].partition(":")[0]
    assert re.match(rf"no answer from ZooKeeper at {host}:({tls_port}|{zookeeper.port}), ", said)
    assert advice in said
    assert ("over TLS" in said) == url.startswith("zks")


@pytest.mark.fault(253)
@clean
def test_each_address_and_its_failure(caplog: pytest.LogCaptureFixture) -> None:
    """The error says how the attempt at each address ended, and the log does long before; no password."""
    with socket.socket() as bound, caplog.at_level(logging.WARNING, "zkconcurrent"):
        bound.bind(("127.0.0.1", 0))  # it does not listen
        one = bound.getsockname()[1]
        url = f"zk://u:secret@127.0.0.1:{one},nosuch.invalid,a{'b' * 70}.invalid/app?start_timeout=2.5&timeout=2"
        with pytest.raises(TimeoutError) as caught:
            zkconcurrent.connect(url)
    (hint,) = [each.getMessage() for each in caplog.records if each.name == "zkconcurrent"]
    for text in (str(caught.value), hint):
        assert re.search(rf"127\.0\.0\.1:{one}: Connection refused", text)
        assert re.search(r"nosuch\.invalid:2181: \w", text)
        assert re.search(r"ab+\.invalid:2181: \S", text)  # a name that can be none, which would end kazoo's thread
        assert "python -m zkconcurrent.testing" in text
        assert "secret" not in text


@pytest.mark.fault(398)
@clean
def test_a_server_that_hangs_up() -> None:
    """A server that has too many connections closes the next one: the error says why servers do that."""
    with (
        Server(settings={"maxClientCnxns": 1}, installation=real_installation()) as server,
        zkconcurrent.connect(f"zk://{server.hosts}"),
        pytest.raises(TimeoutError) as caught,
    ):
        zkconcurrent.connect(f"zk://{server.hosts}?start_timeout=2")
    assert "maxClientCnxns" in str(caught.value)
    assert "zkconcurrent.testing" not in str(caught.value)


def test_a_server_that_hangs_up_as_tcp_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says the same if the connection is closed before the client sees that it was made."""

    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr(SequentialThreadingHandler, "create_connection", closed)
    with MemoryServer() as server, pytest.raises(TimeoutError, match="maxClientCnxns"):
        zkconcurrent.connect(f"zk://{server.hosts}?start_timeout=1")


@pytest.mark.fault(398, 415)
def test_servers_that_begin_anew(caplog: pytest.LogCaptureFixture) -> None:
    """They close the connections of a client that has seen more, and its log says what to do.

    Once they let it in again, its chroot comes back with its next session.
    """
    with MemoryServer() as server, zkconcurrent.connect(f"zk://{server.hosts}/app/x?timeout=4") as client:
        lock = zkconcurrent.Lock(client, "/lock")
        with lock:
            pass
        session, seen = client.client_id, client.last_zxid
        server.stop()
        with MemoryServer(port=int(server.hosts.rpartition(":")[2])) as anew:
            eventually(lambda: any("then restart this program" in each.getMessage() for each in caplog.records))
            with anew.client() as other:
                other.create("/other")
                while other.last_zxid <= seen:
                    other.set("/other", b"")
                eventually(lambda: client.connected and client.client_id != session)
                with lock:
                    assert other.exists("/app/x/lock")


@clean
@pytest.mark.usefixtures("uncollected")
def test_an_interrupt(in_thread: InThread) -> None:
    """Ctrl-C ends the wait for an answer, and nothing is left of the client."""

    def interrupt() -> None:
        with deaf.accept()[0]:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        interrupting = in_thread(interrupt)
        with pytest.raises(KeyboardInterrupt):
            zkconcurrent.connect(f"zk://127.0.0.1:{deaf.getsockname()[1]}?timeout=2")
        interrupting.result(10)


HOLDS = """
import sys, zkconcurrent
zk = zkconcurrent.connect(f"zk://{sys.argv[1]}?timeout=40")
zk.create(sys.argv[2], ephemeral=True)
lock = zkconcurrent.RLock(zk, sys.argv[2] + "-lock")
lock.acquire()
print("held", flush=True)
sys.stdin.readline()
"""


def test_the_exit_closes(zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """A process that ends without closing its client closes it: its nodes, of any kind, go with it at once."""
    with python(HOLDS, zookeeper.hosts, zk_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert zk.exists(zk_path)
        _, complaints = process.communicate("\n", timeout=20)
    assert (process.returncode, complaints) == (0, "")
    eventually(lambda: not zk.exists(zk_path), patience=10)
    lock = zkconcurrent.RLock(zk, f"{zk_path}-lock")
    assert lock.acquire(timeout=10)
    lock.release()


def test_the_exit_does_not_wait(zookeeper: Server, zk_path: str) -> None:
    """Where the service does not answer any more, a process ends all the same, before kazoo would give up."""
    with Forwarder(zookeeper.port) as network:
        with python(HOLDS, f"127.0.0.1:{network.server_address[1]}", zk_path) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            network.passes.clear()
            process.communicate("\n", timeout=20)
        network.passes.set()
        network.shutdown()


FORKS = """
import os, pickle, sys, zkconcurrent
with zkconcurrent.connect(f"zk://{sys.argv[1]}?timeout=6") as zk:
    unpickled = pickle.loads(pickle.dumps(zk))
    lock = zkconcurrent.RLock(zk, sys.argv[2])
    with lock:
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            assert zk.get_children(sys.argv[2]) and lock.fencing_token
            print("status", status, zk.connected, unpickled.connected)
        else:
            for client in (zk, unpickled):
                try:
                    client.start()
                except zkconcurrent.ClientError as error:
                    print("before fork()" in str(error), flush=True)
            zk.stop()
            zk.close()
            print("leaving", flush=True)
"""


@pytest.mark.fault(23, 343)
def test_a_forked_child(zookeeper: Server, zk_path: str) -> None:
    """A forked child can't start the parent's client; it stops that, leaves its block and ends at once.

    The session lives. A client that the parent has unpickled, and not used, is the parent's, too.
    """
    with python(FORKS, zookeeper.hosts, zk_path) as process:
        said, _ = process.communicate(timeout=30)
    assert said == "True\nTrue\nleaving\nstatus 0 True False\n"
    assert process.returncode == 0
