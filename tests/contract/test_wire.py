"""The wire between kazoo's connection and its callers: every answer is its request's, on any thread."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.handlers.utils import selector_select
from kazoo.protocol.serialization import GetData, SetData

from tests.conftest import InThread
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import at_every_line
from zkconcurrent._kazoo.replies import Reply
from zkconcurrent._kazoo.sockets import Poller, wait_for_files
from zkconcurrent._kazoo.transport import Transport
from zkconcurrent.testing import Server

TLS = Path(__file__).parents[1] / "integration" / "tls"  # a server's certificate for localhost, and its issuer's


class Own(SequentialThreadingHandler):  # type: ignore[misc]
    """A handler of one's own, which is left alone."""


handlers = pytest.mark.parametrize("handler", [SequentialThreadingHandler, Own])


class Asked:
    """A request of ours, and how to wait for its answer."""

    def __init__(self, client: KazooClient, request: Any) -> None:
        self._there = threading.Event()
        self._answer = Reply(self._there.set)
        Transport.of(client).send(request, self._answer)

    def get(self, timeout: float = 20) -> Any:
        """Return the answer's value, or raise its error."""
        assert self._there.wait(timeout)
        if self._answer.error is not None:
            raise self._answer.error
        return self._answer.value


def read(client: KazooClient, path: str) -> bytes:
    """Read a node's data."""
    return bytes(Asked(client, GetData(path, None)).get()[0])


def cut(client: KazooClient) -> None:
    """Cut the connection, and wait for the next one."""
    had = client._connection._socket
    Transport.of(client).drop()
    eventually(lambda: client._connection._socket is not had and client.connected)


@handlers
def test_no_number_is_used_twice(handler: type[SequentialThreadingHandler], zookeeper: Server, zk_path: str) -> None:
    """The server tells the changes of a session apart by them, also of its last connection, or of kazoo alone."""
    with zookeeper.client(handler=handler()) as client:
        client.create(zk_path, b"data")
        for number in range(client._connection._xid + 1, 20, 2):
            assert read(client, zk_path) == b"data"
            assert client._connection._xid == number
            assert client.get(zk_path)[0] == b"data"
            assert client._connection._xid == number + 1
            cut(client)


@handlers
def test_an_answer_to_another_request(
    handler: type[SequentialThreadingHandler], zookeeper: Server, zk_path: str
) -> None:
    """A waiting call is told that the connection is lost; kazoo's thread goes on, and the session with it."""
    with zookeeper.client(handler=handler()) as client:
        client.create(zk_path, b"data")
        read(client, zk_path)
        session, never = client.client_id, Reply(lambda: None)
        client._pending.append((GetData(zk_path, None), never, 7_000))
        with pytest.raises(ConnectionLoss):
            read(client, zk_path)
        assert isinstance(never.error, ConnectionLoss)
        eventually(lambda: client.connected)
        assert read(client, zk_path) == b"data"
        assert client.client_id == session


@pytest.mark.fault(49)
def test_kazoo_s_requests_go_between(zookeeper: Server, zk_path: str, in_thread: InThread) -> None:
    """Threads that ask kazoo and us in turns read what they wrote: nothing is overtaken, and nothing is another's."""
    with zookeeper.client() as client:
        states: list[str] = []
        client.add_listener(states.append)

        def turns(n: int) -> None:
            path = f"{zk_path}/{n}"
            client.create(path, makepath=True)
            for turn in range(100):
                data = f"{n} {turn}".encode()
                if turn % 2:
                    client.set_async(path, data)
                    assert read(client, path) == data
                else:
                    Asked(client, SetData(path, data, -1))
                    assert client.get(path)[0] == data

        for thread in [in_thread(turns, n) for n in range(4)]:
            thread.result(60)
        assert not states


def test_no_room() -> None:
    """If a server stands still, requests without room are sent later, whole and in order; no caller waits for that."""
    with Server() as server, server.client(timeout=20) as client:
        client.create("/node")
        read(client, "/node")
        server.freeze()
        sent: list[Asked] = []
        while not client._queue:
            sent.append(Asked(client, SetData("/node", b"%d " % len(sent) * 50_000, -1)))
        sent += [Asked(client, GetData("/node", None)) for _ in range(3)]
        server.thaw()
        versions = [each.get().version for each in sent[:-3]]
        assert versions == list(range(1, len(versions) + 1))
        assert {each.get()[1].version for each in sent[-3:]} == {versions[-1]}
        assert read(client, "/node").startswith(b"%d " % (len(versions) - 1))


@pytest.mark.parametrize("lost", [False, True])
def test_no_room_for_the_rest(lost: bool) -> None:
    """It is sent as soon as there is room, although nothing else is to be sent; and never on another connection."""
    with Server() as server, server.client(timeout=20) as client:
        client.create("/node")
        read(client, "/node")
        wire, states = Transport.of(client), list[str]()
        client.add_listener(states.append)
        turn = wire._turn
        assert turn is not None
        server.freeze()
        sent: list[Asked] = []
        while not turn.unsent:
            sent.append(Asked(client, SetData("/node", b"%d " % len(sent) * 50_000, -1)))
        if lost:
            wire.drop()
        server.thaw()
        if lost:
            for each in sent[-2:]:
                with pytest.raises(ConnectionLoss):
                    each.get()
            assert client.retry(client.exists, "/node")
        else:
            assert sent[-1].get().version == len(sent)
        assert read(client, "/node")
        assert states == (["SUSPENDED", "CONNECTED"] if lost else [])


def test_an_interrupted_step(zookeeper: Server, zk_path: str) -> None:
    """If an interrupt keeps the request from coming that another one waits for, the keeper has the latter sent."""
    with zookeeper.client() as client:
        client.create(zk_path, b"data")
        read(client, zk_path)
        first = Reply(None)
        Transport.of(client).send(GetData(zk_path, None), first)
        assert not first.done
        Transport.of(client).nudge()
        eventually(lambda: first.done)
        assert first.value[0] == b"data"
        assert read(client, zk_path) == b"data"


@pytest.mark.fault(143)
@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_interrupted_at_every_line_of_sending(error: type[BaseException], zookeeper: Server, zk_path: str) -> None:
    """No caller gets the reply to another request: the connection is dropped, and all waiting callers are told.

    An error that a signal handler raises passes, also if it is an `OSError`, as an alarm's `TimeoutError` is.
    """
    with zookeeper.client(timeout=60) as client:  # kazoo, which pings seldom then, does not get between
        client.create(zk_path, b"data")
        read(client, zk_path)
        outcomes = set()
        for hook in at_every_line("transport.py", error=error):
            read(client, zk_path)  # the queue is empty, and callers may send
            with contextlib.suppress(error), hook:
                Asked(client, GetData(f"{zk_path}/none", None))
            for _ in range(3):
                try:
                    assert read(client, zk_path) == b"data", hook.where
                    outcomes.add("answered")
                except ConnectionLoss:
                    outcomes.add("told")
            eventually(lambda: client.connected)  # before, the next may be told too
        assert outcomes == {"answered", "told"}
        assert hook.line > 15
        assert read(client, zk_path) == b"data"


def test_interrupted_and_nobody_asks(zookeeper: Server, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to what an interrupted caller did send is not taken for anybody's."""
    with zookeeper.client() as client:
        client.create(zk_path, b"data")
        read(client, zk_path)
        wire, sock = Transport.of(client), client._connection._socket
        turn = wire._turn
        assert turn is not None

        class Interrupting:
            def send(self, message: bytes) -> int:
                sock.send(message)
                raise KeyboardInterrupt

        monkeypatch.setattr(turn, "socket", Interrupting())
        asked = threading.Event()
        answer = Reply(asked.set)
        zookeeper.freeze()  # it answers once the caller is out, and nobody can take the answer in between
        try:
            with pytest.raises(KeyboardInterrupt):
                wire.send(GetData(zk_path, None), answer)
        finally:
            zookeeper.thaw()
        assert asked.wait(20)
        assert isinstance(answer.error, ConnectionLoss)
        assert client.retry(client.get, zk_path)[0] == b"data"


class Peer:
    """A wire whose connection is a socket pair; kazoo's thread is the test's."""

    def __init__(self) -> None:
        self.client = KazooClient()
        self.connection = self.client._connection
        self.wire = Transport.of(self.client)
        self.far = self.connect()
        self.pipe, self.byte = socket.socketpair()

    def connect(self) -> socket.socket:
        """Make a new connection; return the far end."""
        near, far = socket.socketpair()
        near.setblocking(False)
        self.connection._socket = near
        return far

    def ready(self) -> list[Any]:
        """Return which is ready to be read: the connection, or the pipe."""
        return list(self.connection.handler.select([self.connection._socket, self.pipe], [], [], 0)[0])


def test_reading_ahead(in_thread: InThread) -> None:
    """Bytes come as they were sent, in pieces of any size; bytes that were read ahead count as ready, to their end."""
    peer = Peer()
    read = peer.connection._read
    with peer.far as far, peer.pipe, peer.byte:
        sock = peer.connection._socket
        far.send(b"onetwothree")
        assert read(3, 1) == b"one"
        assert peer.ready() == [sock]
        peer.byte.send(b"\0")
        assert peer.ready() == [sock, peer.pipe]  # the queue gets its turn, however much there is to be read
        assert read(8, 1) == b"twothree"
        assert peer.ready() == [peer.pipe]
        far.send(b"be")
        reading = in_thread(read, 6, 20)
        far.send(b"fore")
        assert reading.result(20) == b"before"
        with pytest.raises(KazooTimeoutError):
            read(1, 0.01)
        large = bytes(range(256)) * 4096
        sending = in_thread(far.sendall, large)
        assert read(len(large), 20) == large
        sending.result(20)
        far.send(b"of the old connection")
        assert read(2, 1) == b"of"
        sock.close()
        with peer.connect() as far:
            far.send(b"new")
            assert read(3, 1) == b"new"
            far.send(b"x")
            far.close()
            with pytest.raises(ConnectionDropped):
                read(2, 1)
        peer.connection._socket.close()
        with pytest.raises(ConnectionDropped):
            read(2, 1)


def test_waiting_for_files() -> None:
    """The connection thread's wait finds the same ready files as kazoo's own, in time, and refuses others."""
    near, far = socket.socketpair()
    other, gone = socket.socketpair()
    gone.close()
    waiter = Poller()
    closed = socket.socket()
    closed.close()
    cases: list[tuple[Any, ...]] = [
        ([near], [], [], 0),
        ([], [near], [], 0),
        ([near, other], [], [], 0),
        ([near], [far], [], 0),
        ([other], [], [], None),
        ([near], [near], [], 0),
        ([near], [], [], 0.001),
    ]
    with near, far, other:
        for sent in (b"", b"x"):
            near.send(sent)
            far.send(sent)
            for case in cases:
                for wait in (wait_for_files, waiter.wait, waiter.wait):  # the second time, of the same files
                    assert wait(*case) == selector_select(*case)
        for bad in ([closed], [near, closed]):
            for wait in (wait_for_files, waiter.wait):
                with pytest.raises(TypeError):
                    wait(bad, [], [], 0)
        number = near.fileno()
        decrypted = SimpleNamespace(fileno=other.fileno, pending=lambda: 1)
        for wait in (wait_for_files, waiter.wait):
            assert wait([decrypted, other], [], [], None)[0] == [decrypted]
        assert waiter.wait([near], [], [], 0)[0] == [near]
        near.close()
        with pytest.raises(TypeError):
            waiter.wait([near], [], [], 0)
        with pytest.raises(OSError, match="closed the descriptor"):  # kazoo's error would end its thread
            wait_for_files([SimpleNamespace(fileno=lambda: number)], [], [], 0)


@pytest.mark.fault(197)
def test_a_connection_over_tls_that_is_cut_amid_a_reply(in_thread: InThread) -> None:
    """Its rest is what the server sent, or missing; never as it came over the wire, as if it were data."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    theirs = ssl.create_default_context(cafile=TLS / "ca.pem")
    theirs.verify_flags &= ~ssl.VERIFY_X509_STRICT  # on from Python 3.13; the tests' authority is a plain one
    near, far = socket.socketpair()
    accepted = in_thread(context.wrap_socket, far, server_side=True)
    client = KazooClient()
    wire = Transport.of(client)
    with theirs.wrap_socket(near, server_hostname="localhost") as near, accepted.result() as far:
        client._connection._socket = near
        near.setblocking(False)
        far.sendall(b"half a ")
        assert client._connection._read(7, 10.0) == b"half a "
        far.sendall(b"reply")
        select.select([near], [], [])
        wire.drop()
        assert client._connection._read(5, 10.0) == b"reply"
        with pytest.raises(ConnectionDropped):
            client._connection._read(1, 10.0)


@pytest.mark.fault(474)
@pytest.mark.parametrize("wait", [Poller().wait, wait_for_files], ids=["poller", "one system call"])
def test_a_wait_of_years(wait: Callable[..., Any]) -> None:
    """It is no error: kazoo asks for one where a test has set the clock back that it reads."""
    one, other = socket.socketpair()
    with one, other:
        other.send(b"x")
        assert wait([one], [], [], 1.6e9) == ([one], [], [])
