"""The wire between kazoo's connection and its callers: every answer is its request's, on any thread."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import ssl
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, ConnectionLoss, NotReadOnlyCallError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import PING_XID
from kazoo.protocol.serialization import CloseInstance, GetData, SetData
from kazoo.protocol.states import KeeperState

from tests.conftest import InThread
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import at_every_line
from tests.helpers.proxy import Proxy
from zkconcurrent._kazoo.opening import Handshake
from zkconcurrent._kazoo.reply import Reply
from zkconcurrent._kazoo.send_lock import SendLock
from zkconcurrent._kazoo.sockets import ConnectionPoll
from zkconcurrent._kazoo.transport import Transport
from zkconcurrent._runtime.events import SteadyEvent
from zkconcurrent.testing import Server

if TYPE_CHECKING:
    from typing_extensions import Self

TLS = Path(__file__).parents[1] / "integration" / "tls"  # a server's certificate for localhost, and its issuer's


class Own(SequentialThreadingHandler):  # type: ignore[misc]
    """A handler of one's own, which is left alone."""


handlers = pytest.mark.parametrize("handler", [SequentialThreadingHandler, Own])


def interrupted(*_: object) -> None:
    """Stand for a step in which Ctrl-C strikes."""
    raise KeyboardInterrupt


class Asked:
    """A request of ours, and how to wait for its answer."""

    def __init__(self, client: KazooClient, request: Any) -> None:
        # Not `threading.Event`, whose lock an interrupt in `wait` would leave taken.
        self._there = SteadyEvent()
        self._answer = Reply(self._there.set)
        Transport.of(client).send((request, self._answer))

    def done(self) -> bytes | None:
        """Return the data that were read; None if there was no answer."""
        return bytes(self._answer.value[0]) if self._there.is_set() else None

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
    client = KazooClient(zookeeper.hosts, handler=handler())
    with Proxy(zookeeper.hosts) as proxy:
        client.set_hosts(proxy.hosts)
        client.start()
        client.create(zk_path, b"data")
        with proxy.counting() as count:
            for _ in range(5):
                assert read(client, zk_path) == b"data"
                assert client.get(zk_path)[0] == b"data"
                cut(client)
        client.stop()
        client.close()
        xids = [message.xid for message in count.trace if message.kind == "request" and message.name == "getData"]
        assert len(xids) == 10
        assert xids == list(range(xids[0], xids[0] + 10))


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
        turn = wire._send_lock
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


def test_an_interrupt_before_the_send(zookeeper: Server, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an interrupt has left unsent is sent when the keeper nudges kazoo's thread."""
    with zookeeper.client() as client:
        client.create(zk_path, b"data")
        read(client, zk_path)
        first, second = Reply(), Reply()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(SendLock, "send", interrupted)
            Transport.of(client).send((GetData(zk_path, None), first), (GetData(zk_path, None), second))
        assert not first.done
        Transport.of(client).nudge()
        eventually(lambda: second.done)
        assert first.value[0] == second.value[0] == b"data"
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


class Interrupting(bytes):
    """A message at whose adding an interrupt strikes."""

    def __radd__(self, _: object) -> bytes:
        raise KeyboardInterrupt


class Peer:
    """A server by hand: kazoo's thread is the test's, and serves one end of a socket pair."""

    def __init__(
        self, near: socket.socket | None = None, far: socket.socket | None = None, timeout: float = 60
    ) -> None:
        self.client = KazooClient()
        self.connection = self.client._connection
        self.wire = Transport.of(self.client)
        if near is None or far is None:
            near, far = socket.socketpair()
        near.setblocking(False)
        self.near, self.far = near, far
        self.connection._socket = near
        self.connection._read_sock, self.connection._write_sock = socket.socketpair()
        self.wire.opening.handshake = Handshake(0.0, timeout)
        self.client._state = KeeperState.CONNECTED

    def serve(self, in_thread: InThread) -> Any:
        """Serve the connection, as kazoo's thread does, on a thread."""
        files = [self.near, self.connection._read_sock]
        served = in_thread(self.connection.handler.select, files, [], [], 1.0)
        eventually(lambda: self.wire._send_lock is not None)
        return served

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self.near, self.far, self.connection._read_sock, self.connection._write_sock):
            sock.close()

    def request(self) -> int:
        """Take the next request; return its number."""
        (length,) = struct.unpack("!i", self.receive(4))
        (xid,) = struct.unpack_from("!i", self.receive(length))
        return int(xid)

    def receive(self, length: int) -> bytes:
        """Take so many bytes."""
        self.far.settimeout(20)
        got = b""
        while len(got) < length:
            more = self.far.recv(length - len(got))
            assert more
            got += more
        return got


def reply(xid: int, data: bytes, error: int = 0) -> bytes:
    """Return the reply to a read of a node with these data."""
    body = struct.pack("!iqi", xid, 7, error) + struct.pack("!i", len(data)) + data + bytes(68)
    return struct.pack("!i", len(body)) + body


def test_replies_in_pieces(in_thread: InThread) -> None:
    """Each is taken whole, however the bytes come, by itself or with others, and however long it is."""
    datas = [b"", b"one", b"two" * 1000, bytes(range(256)) * 4096]
    for size in (1, 3, 4, 5, 23, 70_000):
        with Peer() as peer:
            served = peer.serve(in_thread)
            asked = [Asked(peer.client, GetData("/node", None)) for _ in datas]
            stream = b"".join(reply(peer.request(), data) for data in datas)
            # The last reply is long: its many bytes come in larger pieces.
            cuts = [*range(0, min(len(stream), 8_000), size), *range(8_000, len(stream), max(size, 7_000))]
            for start, end in itertools.pairwise([*cuts, len(stream)]):
                peer.far.sendall(stream[start:end])
            assert [bytes(each.get()[0]) for each in asked] == datas
            assert peer.client.last_zxid == 7
            peer.far.close()
            with pytest.raises(ConnectionDropped):
                served.result(20)


@pytest.mark.parametrize("length", [-1, 0, 15])
def test_what_comes_is_no_reply(length: int, in_thread: InThread) -> None:
    """Bytes that a middlebox has put in cost the connection, and not kazoo's thread."""
    with Peer() as peer:
        served = peer.serve(in_thread)
        peer.far.sendall(struct.pack("!i", length) + bytes(40))
        with pytest.raises(ConnectionDropped, match="not a reply"):
            served.result(20)


def test_pings(in_thread: InThread) -> None:
    """A ping goes out after a third of the session timeout without a request, and none beside requests."""
    with Peer(timeout=1.2) as peer:
        served = peer.serve(in_thread)
        for _ in range(3):
            assert peer.request() == PING_XID
            peer.far.sendall(reply(PING_XID, b""))
        for _ in range(20):
            asked = Asked(peer.client, GetData("/node", None))
            xid = peer.request()
            assert xid > 0
            time.sleep(0.05)
            peer.far.sendall(reply(xid, b"data"))
            asked.get()
        peer.far.close()
        with pytest.raises(ConnectionDropped):
            served.result(20)


@pytest.mark.parametrize("size", [None, 1, 900_000], ids=["idle", "small requests", "large requests"])
def test_a_server_that_replies_to_nothing(size: int | None, in_thread: InThread) -> None:
    """The connection is dropped before the session ends, also if requests are sent all the time."""
    with Peer(timeout=1.2) as peer:
        served, began = peer.serve(in_thread), time.monotonic()
        while not served.done():
            if size is not None:
                peer.wire.send((SetData("/node", bytes(size), -1), Reply()))
            time.sleep(0.05)
        with pytest.raises(ConnectionDropped, match="replied to nothing"):
            served.result(20)
        assert time.monotonic() - began >= 1.2 / 3


def test_stop_while_a_server_stands_still() -> None:
    """It returns in time, although large requests are under way, which nobody takes."""
    with Server() as server, server.client(timeout=2) as client:
        client.create("/node")
        read(client, "/node")
        server.freeze()
        for _ in range(12):
            client.set_async("/node", bytes(900_000))
        began = time.monotonic()
        client.stop()
        assert time.monotonic() - began < 5


@pytest.mark.fault(143)
def test_stop_beside_a_turn_that_is_kept(zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """The session ends, although an interrupt has kept a caller from giving its turn back, and a request waits."""
    with zookeeper.client() as client:
        client.create(zk_path, b"data", ephemeral=True)
        read(client, zk_path)
        send_lock = Transport.of(client)._send_lock
        assert send_lock is not None
        send_lock.lock.acquire()
        client.get_async(zk_path)
    assert not zk.exists(zk_path)


@pytest.mark.fault(143)
def test_a_ping_after_an_interrupt(in_thread: InThread) -> None:
    """A request whose message an interrupt has kept back is forgotten, and the next one gets its own reply."""
    with Peer(timeout=1.2) as peer:
        peer.serve(in_thread)
        send_lock, left = peer.wire._send_lock, (GetData("/node", None), Reply(), 7_000)
        assert send_lock is not None
        with contextlib.suppress(KeyboardInterrupt):
            send_lock.add(Interrupting(), [left], peer.client._pending)
        assert list(peer.client._pending) == [left]
        assert peer.request() == PING_XID
        peer.far.sendall(reply(PING_XID, b""))
        asked = Asked(peer.client, GetData("/node", None))
        peer.far.sendall(reply(peer.request(), b"data"))
        assert bytes(asked.get()[0]) == b"data"


@pytest.mark.fault(49)
def test_requests_without_end(zookeeper: Server, zk_path: str, in_thread: InThread) -> None:
    """Replies have their turn, however fast the program makes requests."""
    with zookeeper.client() as client:
        client.create(zk_path, b"data")
        read(client, zk_path)
        done, until = [0], time.monotonic() + 20

        def ask() -> None:
            while len(done) <= 300 and time.monotonic() < until:
                client.get_async(zk_path).rawlink(lambda _: done.append(1))

        for thread in [in_thread(ask) for _ in range(3)]:
            thread.result(60)
        assert len(done) > 300


@pytest.mark.fault(49)
def test_authentication_under_way(zookeeper: Server) -> None:
    """Its reply reaches the program, if kazoo has sent the request before the library came."""
    with zookeeper.client() as client:
        zookeeper.freeze()
        try:
            asked = client.add_auth_async("digest", "me:secret")
            eventually(lambda: client._pending)
            Transport.of(client).nudge()
            eventually(lambda: not client._pending)
        finally:
            zookeeper.thaw()
        assert asked.get(timeout=20) is True


def test_a_write_that_a_server_refuses_at_once(in_thread: InThread) -> None:
    """One that only reads does so ahead of the replies to earlier reads: each has its own reply."""
    with Peer() as peer:
        peer.serve(in_thread)
        first, write, last = (
            Asked(peer.client, each)
            for each in (GetData("/node", None), SetData("/node", b"", -1), GetData("/n", None))
        )
        one, two, three = (peer.request() for _ in range(3))
        peer.far.sendall(reply(two, b"", NotReadOnlyCallError.code) + reply(one, b"one") + reply(three, b"three"))
        assert bytes(first.get()[0]) == b"one"
        assert bytes(last.get()[0]) == b"three"
        with pytest.raises(NotReadOnlyCallError):
            write.get()


def test_an_error_that_kazoo_does_not_know(in_thread: InThread) -> None:
    """It costs the connection; kazoo then fails the request."""
    with Peer() as peer:
        served = peer.serve(in_thread)
        Asked(peer.client, GetData("/node", None))
        peer.far.sendall(reply(peer.request(), b"", -7_000))
        with pytest.raises(ConnectionDropped, match="does not know"):
            served.result(20)
        assert len(peer.client._pending) == 1


def test_the_last_request_of_all(in_thread: InThread) -> None:
    """Nothing is sent behind the request to end the session."""
    with Peer() as peer:
        peer.client._queue.extend([(CloseInstance, None), (GetData("/node", None), Reply())])
        peer.serve(in_thread)
        xid = peer.request()
        peer.far.settimeout(0.2)
        with pytest.raises(TimeoutError):
            peer.far.recv(1)
        peer.far.sendall(reply(xid, b""))


def test_a_request_of_the_program_that_has_no_bytes(zk: KazooClient, zk_path: str) -> None:
    """It fails alone; in kazoo it would end the client."""
    read(zk, "/")
    with pytest.raises(struct.error):
        zk.set_async(zk_path, b"", version=2**40).get(timeout=20)
    assert read(zk, "/") is not None


@pytest.mark.fault(474)
def test_waiting_for_the_socket_and_the_pipe() -> None:
    """Each is ready when it can be read; room in the socket alone is none of both."""
    handler = SequentialThreadingHandler()
    for polls in (True, False):
        (near, far), (pipe, byte) = socket.socketpair(), socket.socketpair()
        with near, far, pipe, byte:
            poll = ConnectionPoll(handler, near, pipe, polls=polls)
            assert poll.wait(0, to_write=False) == (False, False)
            assert poll.wait(20, to_write=True) == (False, False)
            byte.send(b"x")
            assert poll.wait(1.6e9, to_write=False) == (False, True)  # where a test has set the clock back
            far.send(b"x")
            assert poll.wait(20, to_write=False) == (True, True)
            pipe.recv(1)
            assert poll.wait(20, to_write=True) == (True, False)
            decrypted = SimpleNamespace(fileno=far.fileno, pending=lambda: 1)
            assert ConnectionPoll(handler, decrypted, pipe, polls=polls).wait(20, to_write=False) == (True, False)
    near, far = socket.socketpair()
    with near, far:
        poll = ConnectionPoll(handler, near, far, polls=True)
        os.close(near.detach())
        with pytest.raises(OSError, match="closed the descriptor"):  # kazoo's error would end its thread
            poll.wait(0, to_write=False)


@pytest.mark.fault(197)
def test_a_connection_over_tls_that_is_cut_amid_a_reply(in_thread: InThread) -> None:
    """Its rest is what the server sent, or missing; never as it came over the wire, as if it were data."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    theirs = ssl.create_default_context(cafile=TLS / "ca.pem")
    theirs.verify_flags &= ~ssl.VERIFY_X509_STRICT  # on from Python 3.13; the tests' authority is a plain one
    near, far = socket.socketpair()
    accepted = in_thread(context.wrap_socket, far, server_side=True)
    with (
        theirs.wrap_socket(near, server_hostname="localhost") as near,
        accepted.result() as far,
        Peer(near, far) as peer,
    ):
        served = peer.serve(in_thread)
        asked = Asked(peer.client, GetData("/node", None))
        answer = reply(peer.request(), b"data" * 10)
        far.sendall(answer[:30])
        eventually(lambda: len(peer.wire.reader._received) == 30)
        far.sendall(answer[30:])
        peer.wire.drop()
        with pytest.raises(ConnectionDropped):
            served.result(20)
        assert asked.done() in (None, b"data" * 10)
