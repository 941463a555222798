"""A TCP proxy between ZooKeeper clients and one server: it counts messages, and imitates the faults of networks.

One thread moves all bytes and owns all state; an order of a test is a step run on that thread, done when the call
returns. Each direction of a connection is a queue of parcels, each with the time at which it is due, so a delay adds to
every round trip and takes nothing from the throughput. A stalled direction, or an answer that is held, is a queue whose
head does not go: later bytes wait behind it, as TCP would have it.

The proxy's place is the client's end of the wire: a request counts when the client has sent it, an answer when the
client is given it.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Literal, NamedTuple, TypeVar, final

from tests.helpers.count import Count
from tests.helpers.wire import REQUESTS, Dialogue, Message

__all__ = ["Count", "Fault", "Message", "Proxy"]

T = TypeVar("T")
Effect = Literal["pass", "hold", "lose answer", "lose request"]


@final
class Fault:
    """An appointment with one request that is still to come: the fault that shall befall it, and whether it has.

    As a context manager it is called off, and its held messages released, at the end of the block.

    Attributes:
        injected: set once it happened: the connection is cut, the answer is held, or (`expect`) passed on.
        message: the request that met it.
    """

    def __init__(
        self, proxy: Proxy, effect: Effect, names: tuple[str, ...], nth: int, where: Callable[[Message], bool] | None
    ) -> None:
        if not names or not REQUESTS.issuperset(names):
            raise ValueError(f"no names of requests: {names}; there are {sorted(REQUESTS)}")
        self.injected = threading.Event()
        self.message: Message | None = None
        self.released = False
        self._proxy, self.effect, self._names, self._left, self._where = proxy, effect, names, nth, where

    def wait(self, timeout: float = 30) -> Message:
        """Wait until it has happened, and return the request.

        Raises:
            TimeoutError: it has not within `timeout` seconds.
        """
        if not self.injected.wait(timeout):
            raise TimeoutError(f"no request to {self.effect}, named {self._names}, within {timeout} s")
        assert self.message is not None
        return self.message

    def release(self) -> None:
        """Let the held answer, and all that waits behind it, go."""
        self.released = True
        self._proxy._call(lambda: None)  # the loop flushes after each step

    def cancel(self) -> None:
        """Call it off, if it has not happened."""
        self._proxy._call(lambda: self._proxy._withdraw(self))

    def meets(self, message: Message) -> bool:
        """Whether this request is the one."""
        if message.name in self._names and (self._where is None or self._where(message)):
            self._left -= 1
            return self._left == 0
        return False

    def inject(self, message: Message) -> None:
        """Note that it has happened."""
        self.message = message
        self.injected.set()

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.cancel()
        self.release()


@final
class Proxy:
    """A proxy on a free loopback port before one server, running while its `with` block does.

    Args:
        target: the server, as "host:port".

    Attributes:
        hosts: the proxy, as "host:port", for a client to connect to.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.target = (host, int(port))
        self.hosts = ""
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._steps: deque[tuple[Callable[[], object], Future[object]]] = deque()
        self._running = False
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        # Bound and never listening, it keeps the port ours while connections are refused.
        self._place = _bound(("127.0.0.1", 0))
        self._listener: socket.socket | None = None
        # The loop thread's own from here on.
        self._links: set[_Link] = set()
        self._accepted = 0
        self._stalled: set[str] = set()
        self._delay = 0.0
        self._faults: list[Fault] = []  # the oldest first; each request is offered to them in this order
        self._counts: list[Count] = []

    def __enter__(self) -> Proxy:
        self.hosts = "{}:{}".format(*self._place.getsockname())
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._run_steps)
        self._listen()
        self._running = True
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._call(self._stop)
        self._thread.join()

    # The faults of a network.

    def cut(self, *, reset: bool = True) -> int:
        """Cut all connections, with RST or else FIN, and return how many; bytes not yet passed on are lost."""
        return self._call(lambda: sum(link.cut(reset) for link in list(self._links)))

    def refuse(self) -> None:
        """Refuse new connections until `resume`; those there are stay."""
        self._call(self._unlisten)

    def stall(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Become a black hole until `resume`: accept and read, pass nothing on, close nothing."""
        stalled = {towards for towards, wanted in (("server", to_server), ("client", to_client)) if wanted}
        self._call(lambda: self._stalled.update(stalled))

    def delay(self, seconds: float) -> None:
        """Deliver everything `seconds` later, each way, so that a round trip takes twice as much longer."""
        self._call(lambda: setattr(self, "_delay", seconds))

    def resume(self) -> None:
        """Be a good network again: accept, pass on what was stalled, and delay no more."""
        self._call(self._resume)

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return self._call(lambda: sum(link.open for link in self._links))

    # Faults of single requests. Each is named as in `wire.OPCODES`; several names mean the first of these to come.
    # A request that one fault takes is not counted by those made after it.

    def lose_answer(self, *names: str, nth: int = 1, where: Callable[[Message], bool] | None = None) -> Fault:
        """Let the nth such request be applied, swallow its answer, and cut its connection.

        All answers before it are delivered; no answer and no event after it is.
        """
        return self._inject("lose answer", names, nth, where)

    def lose_request(self, *names: str, nth: int = 1, where: Callable[[Message], bool] | None = None) -> Fault:
        """Swallow the nth such request and all that follow on its connection, and cut that.

        All requests before it are applied and answered first; it and those after it are not applied.
        """
        return self._inject("lose request", names, nth, where)

    def hold(self, *names: str, nth: int = 1, where: Callable[[Message], bool] | None = None) -> Fault:
        """Hold back the reply to the nth such request, and all that comes after it, until it is released."""
        return self._inject("hold", names, nth, where)

    def expect(self, *names: str, nth: int = 1, where: Callable[[Message], bool] | None = None) -> Fault:
        """Do no harm; only tell when the answer of the nth such request has been passed on."""
        return self._inject("pass", names, nth, where)

    def _inject(
        self, effect: Effect, names: tuple[str, ...], nth: int, where: Callable[[Message], bool] | None
    ) -> Fault:
        fault = Fault(self, effect, names, nth, where)
        self._call(lambda: self._faults.append(fault))
        return fault

    # Messages that passed.

    @contextmanager
    def counting(self) -> Iterator[Count]:
        """Count what passes within the block."""
        count = Count()
        self._call(lambda: self._counts.append(count))
        try:
            yield count
        finally:
            self._call(lambda: self._counts.remove(count))

    @contextmanager
    def costs(self, *, flights: int | None = None, **requests: int) -> Iterator[Count]:
        """See that a block sends these requests and no others, in so many flights, if that is given."""
        with self.counting() as count:
            yield count
        assert count.requests == Counter(requests), f"expected {requests}, got {count!r}"
        assert flights in (None, count.flights), f"expected {flights} flights, got {count!r}"

    # The loop.

    def _call(self, step: Callable[[], T]) -> T:
        if not self._thread.is_alive():
            raise RuntimeError("the proxy is not running; use it in its with block")
        future: Future[T] = Future()
        self._steps.append((step, future))  # type: ignore[arg-type]
        self._wake.send(b"\0")
        return future.result(timeout=10)

    def _run(self) -> None:
        try:
            while self._running:
                for key, mask in self._selector.select(self._flush()):
                    key.data(mask)
        finally:
            for link in list(self._links):
                link.close()
            self._unlisten()
            self._selector.close()
            for each in (self._wake, self._woken, self._place):
                each.close()

    def _run_steps(self, _mask: int) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        while self._steps:
            step, future = self._steps.popleft()
            try:
                future.set_result(step())
            except BaseException as error:
                future.set_exception(error)

    def _flush(self) -> float | None:
        now = time.monotonic()
        dues = [due for link in list(self._links) for due in link.flush(now) if due is not None]
        return max(0.0, min(dues) - now) if dues else None

    def _stop(self) -> None:
        self._running = False

    def _resume(self) -> None:
        self._stalled.clear()
        self._delay = 0.0
        if self._listener is None:
            self._listen()

    def _listen(self) -> None:
        self._listener = _bound(self._place.getsockname())
        self._listener.listen()
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _unlisten(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, _mask: int) -> None:
        if self._listener is None:  # it came together with the call to refuse, which was heard first
            return
        try:
            client, _ = self._listener.accept()
        except OSError:  # it went again before it was accepted
            return
        self._accepted += 1
        self._links.add(_Link(self, self._accepted, client))

    def _record(self, message: Message) -> None:
        for count in self._counts:
            count.trace.append(message)

    def _fault_for(self, message: Message) -> Fault | None:
        for fault in self._faults:
            if fault.meets(message):
                self._faults.remove(fault)
                return fault
        return None

    def _withdraw(self, fault: Fault) -> None:
        with suppress(ValueError):  # it has happened
            self._faults.remove(fault)


class _Parcel(NamedTuple):
    """A message on its way in one direction: a frame, or (data None) the end of the stream."""

    due: float
    data: bytes | None
    message: Message | None = None
    fault: Fault | None = None


class _Half:
    """One direction of a connection."""

    def __init__(self, towards: Literal["server", "client"]) -> None:
        self.towards = towards
        self.queue: deque[_Parcel] = deque()
        self.out = bytearray()  # due, but the sink's buffer was full
        self.ended = False  # nothing more is read from the source
        self.shut = False  # nothing more goes to the sink


class _Link:
    """One client's connection and the one to the server that stands behind it."""

    def __init__(self, proxy: Proxy, number: int, client: socket.socket) -> None:
        self.proxy = proxy
        self.dialogue = Dialogue(number)
        self.client: socket.socket | None = client  # None: cut; the server's side is read to its end
        self.server = socket.socket()
        self.to_server, self.to_client = _Half("server"), _Half("client")
        self.faults: dict[Message, Fault] = {}
        self.lost: tuple[Message, Fault] | None = None  # the request that was swallowed: to be cut
        self._masks: dict[socket.socket, int] = {}
        for each in (client, self.server):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A refusal shows when it is read from.
        self.server.connect_ex(proxy.target)
        self._watch()

    @property
    def open(self) -> bool:
        """Whether the client is there, as far as is known."""
        return self.client is not None and not self.to_server.ended

    def flush(self, now: float) -> list[float | None]:
        """Pass on what is due both ways; return when each direction's next parcel is."""
        dues = [self._pass_on(half, now) for half in (self.to_server, self.to_client)]
        if self.to_server.shut and self.to_client.shut:
            self.close()
        else:
            self._watch()
        return dues

    def cut(self, reset: bool) -> bool:
        """Close the client's side at once, the server's in order: requests already passed on are still applied."""
        if self.client is None:
            return False
        if reset:
            self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._forget(self.client)
        self.client.close()
        self.client = None
        for half in (self.to_server, self.to_client):
            half.queue.clear()
            half.out.clear()
        self.to_server.ended = self.to_server.shut = True
        try:
            self.server.shutdown(socket.SHUT_WR)
        except OSError:  # not connected, or no more
            self.to_client.ended = self.to_client.shut = True
        return True

    def close(self) -> None:
        """Close both sides."""
        for each in (self.client, self.server):
            if each is not None:
                self._forget(each)
                each.close()
        self.proxy._links.discard(self)

    def _ready(self, source: socket.socket, half: _Half, mask: int) -> None:
        # Writing is left to the flush that follows.
        if mask & selectors.EVENT_READ and not half.ended and self._masks.get(source):
            try:
                data = source.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:  # reset, or refused
                data = b""
            now = time.monotonic()
            if self.client is None:
                half.ended = half.shut = not data
            elif not data:
                half.ended = True
                half.queue.append(_Parcel(now + self.proxy._delay, None))
            elif half is self.to_server:
                self._take_requests(data, now)
            else:
                self._take_answers(data, now)
        if mask & selectors.EVENT_WRITE:
            self._send(self.to_client if half is self.to_server else self.to_server)

    def _take_requests(self, data: bytes, now: float) -> None:
        for frame, message in self.dialogue.requests(data, now):
            if message is not None:
                self.proxy._record(message)
                fault = self.proxy._fault_for(message)
                if fault is not None and fault.effect == "lose request":
                    self.dialogue.outstanding.remove(message)
                    self.lost = message, fault
                    self.to_server.ended = True
                    self._cut_when_answered(now)
                    return
                if fault is not None:
                    self.faults[message] = fault
            self.to_server.queue.append(_Parcel(now + self.proxy._delay, frame, message))

    def _take_answers(self, data: bytes, now: float) -> None:
        for frame, message in self.dialogue.answers(data, now):
            fault = None
            if message is not None and message.request is not None:
                fault = self.faults.pop(message.request, None)
            self.to_client.queue.append(_Parcel(now + self.proxy._delay, frame, message, fault))
            self._cut_when_answered(now)

    def _cut_when_answered(self, now: float) -> None:
        if self.lost is not None and not self.dialogue.outstanding:
            self.to_client.queue.append(_Parcel(now + self.proxy._delay, None, *self.lost))
            self.lost = None

    def _pass_on(self, half: _Half, now: float) -> float | None:
        self._send(half)
        if half.shut:
            half.queue.clear()
        while half.queue and not half.out:
            due, data, message, fault = half.queue[0]
            if half.towards in self.proxy._stalled:
                return None
            if due > now:
                return due
            if fault is not None and message is not None:
                if fault.effect.startswith("lose"):
                    fault.inject(message.request or message)  # first, so that a client that knows finds it told
                    self.cut(reset=True)
                    return None
                if fault.effect == "hold" and not fault.released:
                    fault.inject(message.request or message)
                    return None
            half.queue.popleft()
            if data is None:
                self._shut(half)
                continue
            if message is not None and message.kind != "request":
                message.time = time.monotonic()
                self.proxy._record(message)
            half.out += data
            self._send(half)
            if fault is not None and message is not None and fault.effect == "pass":
                fault.inject(message.request or message)
        return None

    def _sink(self, half: _Half) -> socket.socket | None:
        return self.server if half is self.to_server else self.client

    def _send(self, half: _Half) -> None:
        sink = self._sink(half)
        if half.out and sink is not None:
            try:
                del half.out[: sink.send(half.out)]
            except BlockingIOError:
                pass
            except OSError:  # the sink is gone; its own direction will tell the other side
                half.out.clear()
                half.shut = True

    def _shut(self, half: _Half) -> None:
        half.shut = True
        sink = self._sink(half)
        if sink is not None:
            with suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    def _watch(self) -> None:
        sides = ((self.client, self.to_server, self.to_client), (self.server, self.to_client, self.to_server))
        for source, half, back in sides:
            if source is None:
                continue
            mask = (0 if half.ended else selectors.EVENT_READ) | (selectors.EVENT_WRITE if back.out else 0)
            known = self._masks.get(source, 0)
            if mask == known:
                continue
            if not mask:
                self._forget(source)
                continue
            act = self.proxy._selector.modify if known else self.proxy._selector.register
            act(source, mask, lambda mask, source=source, half=half: self._ready(source, half, mask))
            self._masks[source] = mask

    def _forget(self, source: socket.socket) -> None:
        if self._masks.pop(source, 0):
            self.proxy._selector.unregister(source)


def _bound(address: tuple[str, int]) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(address)
    return bound
