"""The wire between kazoo's connection and its callers: every answer is its request's, on any thread."""

from __future__ import annotations

import contextlib
import itertools
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
from kazoo.protocol.serialization import Connect, GetData, Ping, SetData

from tests.conftest import InThread
from tests.helpers.bench import ask
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import at_every_line
from zkconcurrent import Lock
from zkconcurrent._engine.session import Session
from zkconcurrent._kazoo.replies import Reply
from zkconcurrent._kazoo.sockets import Poller, wait_for_files
from zkconcurrent._kazoo.transport import XIDS, Transport
from zkconcurrent._kazoo.watches import on_connection_thread
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


def waits_in_the_queue(client: KazooClient, path: str) -> bool:
    """Ask for a node's data, and return whether that is left to kazoo."""
    request = GetData(path, None)
    Asked(client, request)
    return any(each is request for each, _ in list(client._queue))  # others queue theirs meanwhile


def cut(client: KazooClient) -> None:
    """Cut the connection, and wait for the next one."""
    had = client._connection._socket
    Transport.of(client).drop()
    eventually(lambda: client._connection._socket is not had and client.connected)


class Queued:
    """Counts the requests that kazoo's own thread sends."""

    def __init__(self, client: KazooClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        theirs = Transport.of(client)._kazoo
        send = theirs.send_request

        def counted(*timeouts: float) -> None:
            self.count += bool(client._queue)
            send(*timeouts)

        monkeypatch.setattr(theirs, "send_request", counted)


class Submitted:
    """Notes the requests that kazoo's own thread sends, pings and those of its handshake included."""

    def __init__(self, client: KazooClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.types: list[type] = []
        submit = client._connection._submit

        def noted(request: Any, *arguments: Any) -> None:
            self.types.append(type(request))
            submit(request, *arguments)

        monkeypatch.setattr(client._connection, "_submit", noted)


def test_a_request_is_sent_by_its_caller(zookeeper: Server, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the first one on each connection, which tells that kazoo's handshake is over."""
    with zookeeper.client(timeout=60) as client:  # kazoo, which pings seldom then, does not get between
        client.create(zk_path, b"data")
        wire, queued = Transport.of(client), Queued(client, monkeypatch)
        answered: list[int] = []
        read_header = wire._kazoo.read_header

        def noted(timeout: float) -> Any:
            header = read_header(timeout)
            answered.append(header[0].xid)
            return header

        monkeypatch.setattr(wire._kazoo, "read_header", noted)
        for connection in (1, 2):
            wire._xids = itertools.count(1000)
            assert [read(client, zk_path) for _ in range(10)] == [b"data"] * 10
            assert queued.count == connection
            assert answered == list(range(1001, 1011))
            wire._xids = itertools.count(XIDS - 5)  # they begin again, and do not end
            assert [read(client, zk_path) for _ in range(10)] == [b"data"] * 10
            assert answered[10:] == [*range(XIDS - 4, XIDS + 1), *range(1, 6)]
            cut(client)
            answered.clear()


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


def test_not_while_kazoo_sends(zookeeper: Server, zk_path: str) -> None:
    """Between kazoo's sending a request and its noting that: a caller's would be taken for the first of the two."""
    with zookeeper.client() as client:
        client.create(zk_path, b"data")
        read(client, zk_path)
        pipe, waited = client._connection._read_sock, []

        class WakeupSocket:
            fileno = pipe.fileno
            close = pipe.close

            def recv(self, size: int) -> Any:
                if not client._queue and not waited:
                    waited.append(waits_in_the_queue(client, zk_path))
                return pipe.recv(size)

        client._connection._read_sock = WakeupSocket()
        assert client.get(zk_path)[0] == b"data"  # wakes it, and it finds the other pipe from now on
        assert client.get(zk_path)[0] == b"data"
        assert waited == [True]
        assert read(client, zk_path) == b"data"


def test_kazoo_pings_between(
    zookeeper: Server, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kazoo, which found that nobody had sent for a while, pings while callers send, but for that moment."""
    with zookeeper.client(timeout=6) as client:  # a server that stands still for a second misses no ping
        client.create(zk_path, b"data")
        over, pings, states = threading.Event(), threading.Semaphore(0), list[str]()
        client.add_listener(states.append)
        wire, connection = Transport.of(client), client._connection
        send_ping, submit = connection._send_ping, connection._submit

        def wished(*timeouts: float) -> None:
            wire._sent_lately = False  # callers send from this very moment on
            send_ping(*timeouts)

        def submitted(request: Any, *arguments: Any) -> None:
            if isinstance(request, Ping):
                assert waits_in_the_queue(client, zk_path)
                pings.release()
            submit(request, *arguments)

        monkeypatch.setattr(connection, "_send_ping", wished)
        monkeypatch.setattr(connection, "_submit", submitted)

        def reads() -> int:
            for turn in itertools.count():
                assert read(client, zk_path) == b"data"
                if over.is_set():
                    return turn
            raise AssertionError

        threads = [in_thread(reads) for _ in range(2)]
        for _ in range(3):
            assert pings.acquire(timeout=20)
        over.set()
        assert min(thread.result(20) for thread in threads) > 4  # more than pings
        assert not states


def test_no_ping_where_callers_send(zookeeper: Server, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their requests keep the session as a ping does; once they send no more, kazoo pings again."""
    with zookeeper.client(timeout=4) as client:
        client.create(zk_path, b"data")
        states: list[str] = []
        client.add_listener(states.append)
        read(client, zk_path)
        session, submitted = client.client_id, Submitted(client, monkeypatch)
        wishes, send_ping = [0], client._connection._send_ping

        def wished(*timeouts: float) -> None:
            wishes[0] += 1
            send_ping(*timeouts)

        monkeypatch.setattr(client._connection, "_send_ping", wished)
        while wishes[0] < 4:  # longer than the session's timeout
            assert read(client, zk_path) == b"data"
        assert Ping not in submitted.types
        eventually(lambda: Ping in submitted.types)
        assert wishes[0] <= 6  # the first for which nobody had sent since the last
        assert not states
        assert client.client_id == session


def test_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a server stands still, requests without room are sent later, whole and in order; no caller waits for that."""
    with Server() as server, server.client(timeout=20) as client:
        client.create("/node")
        read(client, "/node")
        queued = Queued(client, monkeypatch)
        server.freeze()
        sent: list[Asked] = []
        while not client._queue:
            sent.append(Asked(client, SetData("/node", b"%d " % len(sent) * 50_000, -1)))
        sent += [Asked(client, GetData("/node", None)) for _ in range(3)]
        assert queued.count <= 1  # it waits for room, for the rest of one
        server.thaw()
        versions = [each.get().version for each in sent[:-3]]
        assert versions == list(range(1, len(versions) + 1))
        assert {each.get()[1].version for each in sent[-3:]} == {versions[-1]}
        assert read(client, "/node").startswith(b"%d " % (len(versions) - 1))


@pytest.mark.parametrize("lost", [False, True])
def test_no_room_for_the_rest(lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent as soon as there is room, although nothing else is to be sent; and never on another connection."""
    with Server() as server, server.client(timeout=20) as client:
        client.create("/node")
        read(client, "/node")
        wire, submitted = Transport.of(client), Submitted(client, monkeypatch)
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
            assert submitted.types.count(Connect) == 1
        else:
            assert sent[-1].get().version == len(sent)
            assert not submitted.types
        assert read(client, "/node")


def test_the_reads_of_a_wait_go_out_together(zookeeper: Server, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter reads its own node and the one ahead by one system call."""
    with zookeeper.client() as holder, zookeeper.client() as client:
        first, lock = Lock(holder, zk_path), Lock(client, zk_path)
        with lock:
            sock, sent = client._connection._socket, []

        class Counting:
            def send(self, message: bytes) -> int:
                sent.append(message)
                return int(sock.send(message))

        first.acquire()
        monkeypatch.setattr(Transport.of(client)._turn, "socket", Counting())

        def wait() -> None:
            with lock:
                pass

        waiter = threading.Thread(target=wait)
        waiter.start()
        eventually(lambda: len(holder.get_children(zk_path)) == 2)
        ahead, own = (node.encode() for node in sorted(holder.get_children(zk_path), key=lambda node: node[-10:]))
        eventually(lambda: any(ahead in message for message in sent))
        assert any(ahead in message and own in message for message in sent)
        first.release()
        waiter.join()


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


def test_a_request_meets_a_broken_connection(zookeeper: Server, zk_path: str) -> None:
    """Its caller is told by its answer, once kazoo has found that, and can go on."""
    with zookeeper.client() as client:
        client.create(zk_path, b"data")
        for _ in range(20):
            read(client, zk_path)
            Transport.of(client).drop()
            with contextlib.suppress(ConnectionLoss):
                assert read(client, zk_path) == b"data"
            eventually(lambda: client.connected)  # before, the next may be told too


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


def test_half_an_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection waits once for the rest, and does not look again and again because read-ahead bytes are ready."""
    waits = []

    def waiting(*files: Any) -> Any:
        waits.append(files)
        return wait_for_files(*files)

    monkeypatch.setattr("zkconcurrent._kazoo.transport.wait_for_files", waiting)
    peer = Peer()
    with peer.far as far, peer.connection._socket, peer.pipe, peer.byte:
        far.send(b"half")
        with pytest.raises(KazooTimeoutError):
            peer.connection._read(8, 0.05)
    assert len(waits) == 1


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


def test_two_clients_with_one_handler(zookeeper: Server, zk_path: str, in_thread: InThread) -> None:
    """Each client has a wire of its own, and does not lose bytes that it has read ahead during the other's wait."""
    handler = SequentialThreadingHandler()
    with zookeeper.client(handler=handler) as one, zookeeper.client(handler=handler) as other:
        one.create(zk_path, b"data")

        def reads(client: KazooClient) -> None:
            for _ in range(50):
                asked = [Asked(client, GetData(zk_path, None)) for _ in range(5)]
                assert {each.get()[0] for each in asked} == {b"data"}

        for reading in [in_thread(reads, client) for client in (one, other)]:
            reading.result(20)


def test_a_watcher_is_called_at_once(zookeeper: Server, zk_path: str, caplog: pytest.LogCaptureFixture) -> None:
    """Ours, on the connection thread, which survives its errors; others on kazoo's, where they may wait."""
    called: list[tuple[str, bool]] = []

    def watcher(name: str, client: KazooClient) -> Callable[[Any], None]:
        def watch(_: Any) -> None:
            called.append((name, threading.current_thread() is client._connection._connection_routine))
            raise ValueError(name)

        return watch

    with zookeeper.client() as client:
        session = Session.of(client)
        client.create(zk_path)
        client.get(zk_path, watcher("theirs", client))
        assert not isinstance(
            ask(session, ("get", zk_path, on_connection_thread(watcher("ours", client))))[0], Exception
        )
        client.set(zk_path, b"changed")
        eventually(lambda: len(called) == 2)
        assert sorted(called) == [("ours", True), ("theirs", False)]
        assert client.get(zk_path)[0] == b"changed"
    assert "a watch event was not handled" in caplog.text


@pytest.mark.fault(474)
@pytest.mark.parametrize("wait", [Poller().wait, wait_for_files], ids=["poller", "one system call"])
def test_a_wait_of_years(wait: Callable[..., Any]) -> None:
    """It is no error: kazoo asks for one where a test has set the clock back that it reads."""
    one, other = socket.socketpair()
    with one, other:
        other.send(b"x")
        assert wait([one], [], [], 1.6e9) == ([one], [], [])
