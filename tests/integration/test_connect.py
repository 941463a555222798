"""`connect` on a real server: an opened client works, a failure is reported, and nothing is left of either."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NotEmptyError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_digest_acl

import zkconcurrent
from tests.conftest import InThread
from tests.helpers.eventually import PATIENCE, eventually
from tests.helpers.forwarder import Forwarder
from tests.helpers.installations import real_installation
from tests.helpers.kinds import KINDS
from tests.helpers.over_tls import TLS, OverTls
from tests.helpers.proxy import Proxy
from tests.helpers.trickle import trickling
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import MemoryServer, Server
from zkconcurrent.testing._ports import ReservedPorts

clean = pytest.mark.usefixtures("nothing_left")


@pytest.mark.filterwarnings("error")
def test_a_stopped_client_that_is_dropped(zookeeper: Server) -> None:
    """Its sockets are closed when it is garbage collected: no warning tells of one."""
    client = zkconcurrent.connect(f"zk://{zookeeper.hosts}")
    wakeup_socket = client._connection._write_sock  # kazoo's own until the library sends by it
    sockets = getattr(wakeup_socket, "_sock", wakeup_socket), client._connection._read_sock
    del wakeup_socket
    client.stop()
    del client
    gc.collect()
    assert [each.fileno() for each in sockets] == [-1, -1]


def test_a_client_that_was_idle(zookeeper: Server) -> None:
    """It has proved all the time that its session lives, so that the first acquire waits for no proof."""
    with Proxy(zookeeper.hosts) as proxy, zkconcurrent.connect(f"zk://{proxy.hosts}/idle?timeout=4") as zk:
        with proxy.counting() as count:
            eventually(lambda: sum(each.name == "sync" and each.kind == "answer" for each in list(count.trace)) >= 2)
        lock = zkconcurrent.Lock(zk, "/lock")
        with proxy.counting() as count:
            lock.acquire()
        assert count.requests["multi"] == 1  # the path and the node; no proof
        lock.release()


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


@contextlib.contextmanager
def nobodys_port() -> Iterator[int]:
    """Keep a port on which nobody listens: bound, it can't become another's."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


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
        assert client._session_timeout == 7000
        lock_once(client, "/lock")
        client.create("/mine", ephemeral=True)
        assert sorted(zk.get_children(f"{zk_path}/a/b")) == ["lock", "mine"]
        assert f"{zk_path}/a/b: CONNECTED" in repr(client)
    assert not client.connected
    assert zk.get_children(f"{zk_path}/a/b") == ["lock"]
    with pytest.raises(zkconcurrent.ClientError, match="stopped"):
        zkconcurrent.RLock(client, "/lock").acquire()


@clean
def test_the_block_raises(zookeeper: Server) -> None:
    """An error that the block raises passes, and the client is closed."""
    with pytest.raises(KeyError), zkconcurrent.connect(f"zk://{zookeeper.hosts}") as client:
        raise KeyError
    assert not client.connected


def test_a_chroot_that_is_there(zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """A chroot that is there is used as it is, also by a client that could not make it."""
    zk.create(zk_path, b"data")
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}{zk_path}") as client:
        assert client.get("/")[0] == b"data"


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


def strangers(zookeeper: Server, zk: KazooClient) -> Iterator[KazooClient]:
    """Yield a client without credentials, and one with other credentials."""
    yield zk
    with zkconcurrent.connect(f"zk://other:secret@{zookeeper.hosts}") as other:
        yield other


def nodes(client: KazooClient, path: str) -> list[str]:
    """Return all nodes at and below a path, the deepest first."""
    return [each for name in client.get_children(path) for each in nodes(client, f"{path}/{name}")] + [path]


@pytest.mark.fault(67)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "Condition, with a lock"])  # it leaves no node
@pytest.mark.filterwarnings("ignore:the last object of:ResourceWarning")
def test_what_a_user_makes_is_its_own(kind: str, zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """No stranger can read, change or delete what a user holds, nor take part; beside it, and above, there is room."""
    url = f"zk://user:secret@{zookeeper.hosts}{zk_path}/team/app"
    with zkconcurrent.connect(url) as mine:
        end = KINDS[kind].use(zkconcurrent, mine, "/some/lock")
        inside = [f"{zk_path}/team/app{path}" for path in nodes(mine, "/some/lock")]
        for stranger in strangers(zookeeper, zk):
            for node in inside:
                with pytest.raises(NoAuthError):
                    stranger.get(node) if node != inside[-1] else stranger.get_children(node)
                with pytest.raises((NoAuthError, NotEmptyError)):
                    stranger.delete(node)
                with pytest.raises(NoAuthError):
                    stranger.set(node, b"")
                with pytest.raises(NoAuthError):
                    stranger.set_acls(node, OPEN_ACL_UNSAFE)
            with pytest.raises(NoAuthError):
                stranger.create(f"{inside[-1]}/_c_stranger-lock-", sequence=True, ephemeral=True)
            with pytest.raises(zkconcurrent.RefusedError, match="may not do that here"):
                KINDS[kind].use(zkconcurrent, stranger, inside[-1])
            assert nodes(mine, "/some/lock") == [path.removeprefix(f"{zk_path}/team/app") for path in inside]
            for above in (zk_path, f"{zk_path}/team", f"{zk_path}/team/app", f"{zk_path}/team/app/some"):
                lock = zkconcurrent.Lock(stranger, f"{above}/{id(stranger)}")
                with lock:
                    assert stranger.get_children(above)
                with pytest.raises((NoAuthError, NotEmptyError)):
                    stranger.delete(above)
                with pytest.raises(NoAuthError):
                    stranger.delete(lock.path)  # as it would delete the user's own
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
def test_the_log_shows_no_password(zookeeper: Server, zk_path: str, caplog: pytest.LogCaptureFixture) -> None:
    """At no level does a log show a password, the user's or the session's: not at the start, nor at a reconnect."""
    with caplog.at_level(1), Forwarder(zookeeper.port) as network:
        sessions = []
        own = logging.getLogger("an application's")
        for options in ({}, {"logger": own}, {"logger": logging.LoggerAdapter(own, {})}):
            with zkconcurrent.connect(
                f"zk://user:s3cr3t@127.0.0.1:{network.server_address[1]}{zk_path}", timeout=6.0, **options
            ) as client:
                client.add_auth("digest", "another:s3cr3t")
                lock_once(client, "/lock")
                connections = []
                client.add_listener(connections.append)
                client._connection._socket.shutdown(socket.SHUT_RDWR)
                eventually(lambda connections=connections: "CONNECTED" in connections)
                lock_once(client, "/lock")
                sessions.append(client.client_id[1])
        network.shutdown()
    said = "".join(f"{record.getMessage()}{record.args!r}{record.msg!r}" for record in caplog.records)
    assert {record.name for record in caplog.records} >= {"kazoo.client", own.name}
    # Each time in the text and among what it is made of: two at first, and two again.
    assert said.count("scheme='digest'") == len(sessions) * 2 * (2 + 2)
    assert "session_passwd" in said
    assert "s3cr3t" not in said
    for password in sessions:
        assert len(password) == 16
        assert password.hex() not in said
        assert repr(password)[2:-1] not in said
        assert str(list(password)) not in said
    places = {record.pathname.rpartition("/")[2] for record in caplog.records if record.name == own.name}
    if sys.version_info >= (3, 11):  # before, `logging` counts its own frames as those of its caller
        assert "secrets.py" not in places  # they are said to be from where they are


def test_the_log_while_no_server_replies(caplog: pytest.LogCaptureFixture) -> None:
    """What kazoo tells of each attempt, in the same words, is shown once; the rest is at DEBUG."""
    with caplog.at_level(logging.DEBUG), socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # it does not listen
        with pytest.raises(TimeoutError):
            zkconcurrent.connect(f"zk://127.0.0.1:{taken.getsockname()[1]}", start_timeout=2)

    def levels(*words: str) -> list[int]:
        said = [(record.levelno, record.getMessage()) for record in caplog.records]
        return [level for level, text in said if all(word in text for word in words)]

    for shown, said in ((logging.WARNING, levels("dropped", "refused")), (logging.INFO, levels("Connecting to"))):
        assert len(said) > 2
        assert said == [shown] + [logging.DEBUG] * (len(said) - 1)


@pytest.mark.fault(453)
def test_the_log_of_a_server_that_flaps(proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    """The first connections that are lost are shown, and that more are; the rest is at DEBUG."""
    with caplog.at_level(logging.DEBUG), zkconcurrent.connect(f"zk://{proxy.hosts}", timeout=6) as client:
        caplog.clear()
        for _ in range(8):
            connections: list[str] = []
            client.add_listener(connections.append)
            proxy.cut(reset=False)
            eventually(lambda connections=connections: "CONNECTED" in connections)
        said = [(record.levelno, record.getMessage()) for record in caplog.records]
    for words, shown in (("dropped", 4), ("Transition", 3), ("connection lost", 3), ("Connecting to", 3)):
        levels = [level for level, text in said if words in text]
        assert len(levels) == 8
        assert all(level > logging.DEBUG for level in levels[:shown]), words
        assert levels[shown:] == [logging.DEBUG] * (8 - shown), words
    assert [text for level, text in said if level > logging.DEBUG][-1].endswith("is logged at DEBUG")


@pytest.mark.fault(331)
@pytest.mark.parametrize("byte", [b"x", b"\1"], ids=["much", "too much"])
def test_a_host_that_trickles(zookeeper: Server, zk_path: str, byte: bytes, in_thread: InThread) -> None:
    """A host that sends a byte now and then holds up neither `connect` nor the way to another server."""
    with trickling(byte) as port:
        with pytest.raises(TimeoutError, match="no answer from ZooKeeper"):
            in_thread(zkconcurrent.connect, f"zk://127.0.0.1:{port}?start_timeout=0.5&timeout=300").result(PATIENCE)
        with zkconcurrent.connect(f"zk://{zookeeper.hosts}?timeout=2") as client:
            client.set_hosts(f"127.0.0.1:{port},{zookeeper.hosts}", randomize_hosts=False)
            client.stop()
            client.start(timeout=15)
            lock_once(client, zk_path)


def test_tls(tls_port: int, zk_path: str) -> None:
    """With zks:// the locks work over TLS."""
    with zkconcurrent.connect(f"zks://localhost:{tls_port}?ca={TLS / 'ca.pem'}") as client:
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
    """A certificate that nobody vouches for, or of another host, is as good as no answer; so is TLS not spoken.

    Fault 406: the error says what to do about that.
    """
    with pytest.raises(TimeoutError) as caught:
        zkconcurrent.connect(url.format(tls_port, TLS / "ca.pem", zookeeper.port), start_timeout=2.0, timeout=2.0)
    said = str(caught.value)
    host = url[url.index("//") + 2 :].partition(":")[0]
    assert re.match(rf"no answer from ZooKeeper at {host}:({tls_port}|{zookeeper.port}), ", said)
    assert advice in said
    assert ("over TLS" in said) == url.startswith("zks")


@pytest.mark.fault(481)
@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("with_tls", [True, False], ids=["not trusted", "a port without TLS"])
def test_the_socket_of_a_failed_handshake(tls_port: int, zookeeper: Server, with_tls: bool) -> None:
    """Each attempt to connect by TLS that fails closes its socket; no garbage is left to be collected."""
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(TimeoutError, match="over TLS"):
        zkconcurrent.connect(f"zks://localhost:{tls_port if with_tls else zookeeper.port}", start_timeout=2.0)
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.fault(406)
def test_a_certificate_that_is_refused_later(zookeeper: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Servers refuse the certificate of a client that was connected before: the log says what to look at."""

    class Demands(OverTls):
        demands = True

    with Forwarder(zookeeper.port) as door, Proxy(f"127.0.0.1:{door.server_address[1]}") as proxy:
        door.RequestHandlerClass = OverTls
        port = proxy.hosts.rpartition(":")[2]
        with zkconcurrent.connect(f"zks://localhost:{port}?timeout=1&ca={TLS / 'ca.pem'}"):
            door.RequestHandlerClass = Demands
            proxy.cut()
            (said,) = eventually(lambda: [each for each in caplog.messages if "certfile" in each][:1])
        assert "which is valid today" in said
        assert not any("maxClientCnxns" in each for each in caplog.messages)
        door.shutdown()


@pytest.mark.fault(200)
def test_tls_and_one_of_three_servers_that_stands_still(tls_port: int, zk_path: str) -> None:
    """A client that waits for its handshake reaches another before its session, or a hold, ends."""
    with (
        socket.create_server(("127.0.0.1", 0)) as still,
        zkconcurrent.connect(f"zks://localhost:{tls_port}?timeout=6&ca={TLS / 'ca.pem'}") as client,
        (held := zkconcurrent.Lock(client, zk_path)),
    ):
        session, alive = client.client_id, f"localhost:{tls_port}"
        client.set_hosts(f"localhost:{still.getsockname()[1]},{alive},{alive}", randomize_hosts=False)
        Session.of(client).link.transport.drop()
        eventually(lambda: not client.connected)
        eventually(lambda: client.connected)
        assert client.client_id == session
        assert not held.lost.is_set()


@pytest.mark.parametrize("option", ["check_hostname=false", "verify_certs=false"])
def test_tls_unchecked(option: str, tls_port: int, zk_path: str) -> None:
    """A check that the URL switches off is not made."""
    with zkconcurrent.connect(f"zks://127.0.0.1:{tls_port}?{option}&ca={TLS / 'ca.pem'}") as client:
        lock_once(client, zk_path)


@clean
def test_nobody_is_there() -> None:
    """Where nobody listens it is a TimeoutError that names all hosts; nothing is left."""
    with nobodys_port() as one, contextlib.closing(ReservedPorts(1)) as reserved:
        (other,) = reserved.numbers  # where all others listen on 127.0.0.1
        with pytest.raises(TimeoutError, match=rf"127.0.0.1:{one},\[::1\]:{other}, without TLS, within 0.6 s"):
            zkconcurrent.connect(f"zk://u:secret@127.0.0.1:{one},[::1]:{other}/app?start_timeout=0.6&timeout=2")


@pytest.mark.fault(253)
@clean
def test_each_address_and_its_failure(caplog: pytest.LogCaptureFixture) -> None:
    """The error says how the attempt at each address ended, and the log does long before; no password."""
    with nobodys_port() as one, caplog.at_level(logging.WARNING, "zkconcurrent"):
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


@pytest.mark.fault(253)
@clean
def test_no_name_is_resolved(caplog: pytest.LogCaptureFixture) -> None:
    """Where the host's name is wrong, a server of one's own is no help, and is not spoken of."""
    with caplog.at_level(logging.WARNING, "zkconcurrent"), pytest.raises(TimeoutError) as caught:
        zkconcurrent.connect("zk://nosuch.invalid?start_timeout=2.5&timeout=2")
    (hint,) = [each.getMessage() for each in caplog.records if each.name == "zkconcurrent"]
    for text in (str(caught.value), hint):
        assert re.search(r"nosuch\.invalid:2181: \w.* \(check the host's name\)$", text)
        assert "zkconcurrent.testing" not in text


@pytest.mark.fault(395)
@clean
@pytest.mark.parametrize("place", ["getaddrinfo", "create_connection"])
def test_no_descriptor_for_an_attempt(place: str, zookeeper: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the host's name nor a missing server is to blame, so the error advises about neither."""

    def no_more(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket if place == "getaddrinfo" else SequentialThreadingHandler, place, no_more)
    with pytest.raises(TimeoutError, match=r"Too many open files.* \(find what keeps files open .* ulimit -n\)$"):
        zkconcurrent.connect(f"zk://localhost:{zookeeper.port}?start_timeout=2")


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


@pytest.mark.fault(398)
def test_a_server_that_has_lost_its_data(caplog: pytest.LogCaptureFixture) -> None:
    """It closes the connections of a client that has seen more: the client's log says what to do."""
    with MemoryServer() as server, zkconcurrent.connect(f"zk://{server.hosts}/app?timeout=1") as client:
        zkconcurrent.Event(client, "/seen").set()
        server.stop()
        with MemoryServer(port=int(server.hosts.rpartition(":")[2])):
            eventually(lambda: any("then restart this program" in each.getMessage() for each in caplog.records))


@pytest.mark.fault(415)
def test_servers_that_begin_anew() -> None:
    """Servers lose all data while a client is in use: its chroot comes back with its next session."""
    with MemoryServer() as server, zkconcurrent.connect(f"zk://{server.hosts}/app/x?timeout=1") as client:
        lock = zkconcurrent.Lock(client, "/lock")
        with lock:
            pass
        session, seen = client.client_id, client.last_zxid
        server.stop()
        with MemoryServer(port=int(server.hosts.rpartition(":")[2])) as anew, anew.client() as other:
            other.create("/other")
            while other.last_zxid <= seen:
                other.set("/other", b"")
            eventually(lambda: client.connected and client.client_id != session)
            with lock:
                assert other.exists("/app/x/lock")


@pytest.mark.fault(253)
def test_a_plain_client_that_finds_no_server(caplog: pytest.LogCaptureFixture) -> None:
    """A call that waits is told of in the log, once for each client."""
    with nobodys_port() as port, caplog.at_level(logging.WARNING, "zkconcurrent"):
        client = KazooClient(f"127.0.0.1:{port}", connection_retry={"max_tries": -1, "max_delay": 0.2})
        lock = zkconcurrent.Lock(client, "/nowhere")
        client.start_async()
        try:
            assert not lock.acquire(timeout=4)
            hints = [each.getMessage() for each in caplog.records if "has replied" in each.getMessage()]
            assert len(hints) == 1
            assert f"127.0.0.1:{port}: Connection refused" in hints[0]
        finally:
            client.stop()
            client.close()


@clean
def test_nobody_answers() -> None:
    """Where somebody listens and never answers it is the same."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        with pytest.raises(TimeoutError, match=f"127.0.0.1:{port}"):
            zkconcurrent.connect(f"zk://127.0.0.1:{port}?start_timeout=0.5&timeout=2")


@clean
def test_a_session_alone_is_no_answer(proxy: Proxy, in_thread: InThread) -> None:
    """A service that falls silent once the session is made has not answered."""
    with proxy.hold("exists", "sync", "create", "getData") as silent, proxy.counting() as count:
        opening = in_thread(zkconcurrent.connect, f"zk://{proxy.hosts}/app?start_timeout=0.5&timeout=40")
        silent.wait()
        # It gives up, and not when the connection is given up, after two thirds of the session timeout.
        eventually(lambda: count.requests["closeSession"], patience=20)
    with pytest.raises(TimeoutError, match="no answer from ZooKeeper"):
        opening.result(20)


@pytest.mark.fault(395, 412)
@clean
@pytest.mark.parametrize("missing", ["a descriptor", 1, 2, 3, 4])
def test_nothing_left_to_start_with(missing: int | str, zookeeper: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread can be started, or no descriptor is left: the error says so, and no thread stays."""

    def no_more(*_: object) -> NoReturn:
        raise RuntimeError("can't start new thread") if begun else OSError(errno.EMFILE, "Too many open files")

    begin = threading.Thread.start
    begun: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        begun.append(thread)
        if len(begun) == missing:
            no_more()
        begin(thread)

    if isinstance(missing, int):
        monkeypatch.setattr(threading.Thread, "start", start)
    else:
        monkeypatch.setattr(SequentialThreadingHandler, "create_socket_pair", no_more)
    with pytest.raises((RuntimeError, OSError), match=r"can't start new thread|Too many open files"):
        zkconcurrent.connect(f"zk://{zookeeper.hosts}")
    monkeypatch.undo()
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}") as zk:
        assert zk.connected


@pytest.mark.fault(412)
@clean
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_start_after_one_that_failed(
    error: type[BaseException], zookeeper: Server, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start ends at the second of kazoo's workers: the client can be started again, and stopped."""
    client = zkconcurrent.connect(f"zk://{zookeeper.hosts}")
    client.stop()
    begin = threading.Thread.start
    begun: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        begun.append(thread)
        if len(begun) == 2:
            raise error("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(error, match="can't start new thread"):
        client.start()
    monkeypatch.undo()
    assert not begun[0].is_alive()
    client.start()
    in_thread(client.stop).result(20)
    client.close()


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
import os, sys, zkconcurrent
with zkconcurrent.connect(f"zk://{sys.argv[1]}?timeout=6") as zk:
    lock = zkconcurrent.RLock(zk, sys.argv[2])
    with lock:
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            assert zk.get_children(sys.argv[2]) and lock.fencing_token
            print("status", status, zk.connected)
        else:
            zk.stop()
            zk.close()
            print("leaving", flush=True)
"""


@pytest.mark.fault(343)
def test_a_forked_child(zookeeper: Server, zk_path: str) -> None:
    """A forked child stops the parent's client, leaves its block and ends at once; the session lives."""
    with python(FORKS, zookeeper.hosts, zk_path) as process:
        said, _ = process.communicate(timeout=30)
    assert said == "leaving\nstatus 0 True\n"
    assert process.returncode == 0


STARTS = """
import os, pickle, sys, zkconcurrent
with zkconcurrent.connect(f"zk://{sys.argv[1]}{sys.argv[2]}") as zk:
    unpickled = pickle.loads(pickle.dumps(zk))
    if child := os.fork():
        os.waitpid(child, 0)
        print(zk.connected, unpickled.connected, flush=True)
    else:
        for client in (zk, unpickled):
            for start in (client.start, client.restart):
                try:
                    start()
                except zkconcurrent.ClientError as error:
                    print("before fork()" in str(error), flush=True)
        os._exit(0)
"""


@pytest.mark.fault(23)
def test_a_start_in_a_forked_child(zookeeper: Server, zk_path: str) -> None:
    """A forked child starts the parent's client, or one that the parent has unpickled and not used."""
    with python(STARTS, zookeeper.hosts, zk_path) as process:
        said, _ = process.communicate(timeout=30)
    assert said == "True\n" * 4 + "True False\n"
