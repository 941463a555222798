"""One simulated process: the real session, link and kazoo client on a connection that is simulated.

Of kazoo, everything is real that decides what happens to requests, watches and states: `KazooClient` itself. Simulated
are its handler (threads are actors) and its connection thread, at the level of requests instead of bytes; that part
does, in the same order, what kazoo's `ConnectionHandler` does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kazoo.exceptions import SessionExpiredError
from kazoo.protocol.serialization import GetChildren2
from kazoo.protocol.states import Callback, EventType, KeeperState, WatchedEvent

from tests.simulation.world.ensemble import Ensemble, Server, SessionState, Transport, told
from tests.simulation.world.world import Actor, Event, ReentrantLock, World
from zkconcurrent._engine.session import Session
from zkconcurrent._kazoo.link import KazooClient, Link
from zkconcurrent._kazoo.opening import Handshake
from zkconcurrent._kazoo.private_parts import PrivateParts
from zkconcurrent._kazoo.requests import refuse_of_other_sessions
from zkconcurrent._kazoo.watches import is_of_library, withdraw_removals

RETRY = 0.1  # how long kazoo waits before it connects again


class Handler:
    """kazoo's handler, which makes threads, events and locks."""

    name = "simulated"
    timeout_exception = TimeoutError

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._callbacks: deque[tuple[int, Callback]] = deque()
        self._workers = [self._spawn("watches", self._run_callbacks)]

    def sleep_func(self, seconds: float) -> None:
        """Sleep."""
        self._world.sleep(seconds)

    def event_object(self) -> Event:
        """Return an event."""
        return Event(self._world)

    def lock_object(self) -> ReentrantLock:
        """Return a lock."""
        return ReentrantLock(self._world)

    rlock_object = lock_object

    def spawn(self, run: Callable[..., None], *args: Any) -> Actor:
        """Begin a thread."""
        return self._spawn(getattr(run, "__name__", "thread").strip("_"), lambda: run(*args))

    def _spawn(self, name: str, run: Callable[[], None]) -> Actor:
        return self._world.spawn(f"{self._process.name}.{name}", run, self._process)

    def dispatch_callback(self, callback: Callback) -> None:
        """Have a watcher called on the callback thread."""
        self._world.messages += 1
        self._callbacks.append((self._world.messages, callback))

    def _run_callbacks(self) -> None:
        while True:
            self._process.listen(self._workers[0])
            _, callback = self._callbacks.popleft()
            self._world.say(f"watch event {callback.args[0].type} {callback.args[0].path}")
            callback.func(*callback.args)


class Client(KazooClient):  # type: ignore[misc]
    """kazoo's client, on a simulated connection."""

    def __init__(self, process: Process, timeout: float, host: str) -> None:
        self._world = process.world
        super().__init__(hosts=f"{host}:1/root", timeout=timeout, handler=Handler(process))
        self._connection = Connection(self, process)

    def _reset(self) -> None:
        super()._reset()
        self._queue = Requests(self._world)

    def _notify_pending(self, state: str) -> None:
        super()._notify_pending(state)
        self._world.point()  # a request that is made now is forgotten by the reset that follows


class Requests(deque[tuple[Any, Any]]):
    """The requests that wait to be sent."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def append(self, request: tuple[Any, Any], /) -> None:
        """Queue a request."""
        self.extend([request])

    def extend(self, requests: Iterable[tuple[Any, Any]], /) -> None:
        """Queue several requests."""
        for request in requests:
            self._world.say(f"sends {told(request[0])}")
            self._world.requested(request[1])
            super().append(request)


class WakeupSocket:
    """The socket that wakes kazoo's connection thread, which then sends all that is queued.

    Attributes:
        full_until: it has no room before that time, at which the thread goes on.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.full_until = 0.0

    def send(self, _byte: bytes, flags: int = 0) -> None:
        """Wake the thread: a request is queued."""
        world = self._connection.world
        world.point()
        if world.now < self.full_until and not flags:
            world.sleep(self.full_until - world.now)
        self._connection.flush()
        if world.now < self.full_until:
            raise BlockingIOError

    def close(self) -> None:
        """Nothing is left to be closed."""


class Connection:
    """kazoo's connection thread.

    Attributes:
        wire: the present connection.
        down_until: no connection can be made before that time.
        bound_until: no other server can be reached before that time.
        server: the server that it connects to next.
        delay: how long a message to or from a server is under way.
    """

    def __init__(self, client: Client, process: Process) -> None:
        self.client = client
        self.process = process
        self.world = process.world
        self.ensemble = process.ensemble
        self.server: Server = process.ensemble.leader
        self.wire: Transport | None = None
        self.down_until = self.bound_until = 0.0
        self.delay = 0.0
        self.pipe = WakeupSocket(self)
        self._sender: object = self.pipe
        self.parts = PrivateParts(client)
        self._socket = self
        self._connection_routine = process.world.spawn(f"{process.name}.connection", self._run, process)
        self._xid = 0

    # The methods that the link uses, and the pipe.

    @property
    def _write_sock(self) -> object:
        """The pipe, which the link looks up before anything else when it makes a request."""
        self.world.point()
        return self._sender

    @_write_sock.setter
    def _write_sock(self, pipe: object) -> None:
        self._sender = pipe

    def flush(self) -> None:
        """Send what is queued."""
        wire, client = self.wire, self.client
        if wire is None or not wire.open or not client._live.is_set():
            return
        while client._queue:
            refuse_of_other_sessions(self.parts)
            withdraw_removals(self.parts)
            if not client._queue:
                return
            request, answer = client._queue.popleft()
            self._xid += 1
            client._pending.append((request, answer, self._xid))
            self.world.messages += 1
            due = max(self.world.now, self.pipe.full_until) + self.ensemble.trip + wire.delay
            wire.requests.append((self.world.messages, request, answer, due))
            if due > self.world.now:
                self.world.at(due)

    def shutdown(self, _how: int) -> None:
        """Cut the connection from this side; kazoo goes on with the next server that it knows."""
        if self.wire is None or not self.wire.open:
            raise OSError("not connected")
        self.world.say("cuts its connection")
        if self.world.now >= self.bound_until:
            self.server = next(server for server in self.ensemble.servers if server is not self.server)
        self.wire.stalled_until = self.wire.silent_until = 0.0
        self.ensemble.close(self.wire)

    # The thread.

    def _run(self) -> None:
        client = self.client
        while not client._stopped.is_set():
            if client._state != KeeperState.CONNECTING:
                client._session_callback(KeeperState.CONNECTING)
            if self._connect():
                self.flush()
                self._receive()
                self.wire = None
                if client._state != KeeperState.CONNECTING and not client._stopped.is_set():
                    client._session_callback(KeeperState.CONNECTING)
            elif not client._stopped.is_set():
                self.world.say("is told that its session has expired")
                client._session_callback(KeeperState.EXPIRED_SESSION)
                self.down_until = self.world.now + RETRY
        client._session_callback(KeeperState.CLOSED)

    def _connect(self) -> bool:
        """Connect; False if the session has expired."""
        client, world = self.client, self.world
        wire: Transport | str | None = None
        while wire is None:
            while world.now < self.down_until:
                world.sleep(self.down_until - world.now)
                if client._stopped.is_set():
                    return False
            asked = world.now
            session, timeout = client._session_id or 0, client._session_timeout / 1000
            wire = self.ensemble.connect(
                self.server, session, client.last_zxid, timeout, lambda: self.process.stopped_until
            )
            if wire is None:
                if world.now >= self.bound_until:
                    self.server = self.ensemble.leader
                world.sleep(RETRY)
        if isinstance(wire, str):
            return False
        self.wire = wire
        wire.delay = self.delay
        assert client._zkconcurrent_transport is not None
        client._zkconcurrent_transport.opening.handshake = Handshake(asked, wire.session.timeout)
        client._session_id = wire.session.number
        world.say(f"is connected to the {self.server.name}, session {client._session_id & 0xFFFF}")
        client._session_callback(KeeperState.CONNECTED)
        return True

    def _receive(self) -> None:
        """Take answers and events until the connection is cut."""
        wire, client = self.wire, self.client
        assert wire is not None
        while True:
            self.process.listen(self._connection_routine)
            if client._stopped.is_set():
                self.process.on_close(wire.session)
                return
            _, what, message, _ = wire.answers.popleft()
            self.world.say(f"gets {what}" if what != "cut" else "loses its connection")
            if message is None:
                return
            if len(message) == 2:
                self._take_event(*message)
            else:
                self._take_answer(*message)

    def _take_event(self, full: str, what: str) -> None:
        client = self.client
        assert client._zkconcurrent_transport is not None
        client._zkconcurrent_transport.reader.on_raw_event(full, what == EventType.DELETED)
        watchers: list[Any] = []
        if what != EventType.CHILD:
            watchers += client._data_watchers.pop(full, [])
        if what in (EventType.CHILD, EventType.DELETED):
            watchers += client._child_watchers.pop(full, [])
        event = WatchedEvent(what, client._state, client.unchroot(full))
        for watcher in watchers:
            if is_of_library(watcher):
                watcher(event)
            else:
                client.handler.dispatch_callback(Callback("watch", watcher, (event,)))

    def _take_answer(self, request: Any, sent: Any, value: Any, error: Exception | None, zxid: int) -> None:
        client = self.client
        _, answer, _ = client._pending.popleft()
        assert answer is sent, "answers come in the order of the requests"
        client.last_zxid = max(client.last_zxid, zxid)
        if error is not None:
            answer.set_exception(error)
            if isinstance(error, SessionExpiredError):  # as the transport does
                assert client._zkconcurrent_transport is not None
                client._zkconcurrent_transport.drop()
            return
        answer.set(value)
        watcher = getattr(request, "watcher", None)
        if watcher:
            watchers = client._child_watchers if isinstance(request, GetChildren2) else client._data_watchers
            watchers[request.path].add(watcher)


class Process:
    """One process with one client, and the threads in it.

    Attributes:
        alive: it was not killed.
        stopped_until: it does not run before that time.
        on_close: ends the session, at the server, when the client is stopped.
        starved_until: until when a thread gets no turn that others need.
        ahead: by how much its wall clock is ahead of the world's, in seconds; negative if it is behind.
        set_at: when that clock was set last, by the world's.
        read: the latest time that was read off that clock.
        told: the latest time that was read off the machine's clock, which may be a tick ahead of the world's.
    """

    def __init__(
        self, world: World, ensemble: Ensemble, name: str, number: int, timeout: float, host: str = "simulated"
    ) -> None:
        self.world = world
        self.ensemble = ensemble
        self.name = name
        self.alive = True
        self.on_close: Callable[[SessionState], None] = ensemble.end_session
        self.stopped_until = 0.0
        self.starved_until = 0.0
        self.ahead = self.set_at = self.read = 0.0
        self.told = 0.0
        begun = len(world.actors)
        self.client = Client(self, timeout, host)
        link = Link(self.client)
        link.identity = link.thread = world.whoami
        # The link's own are for threads, whatever the client's handler: they would wait outside of the world.
        link.sleep_event = link.user_event = self.client.handler.event_object
        link.spawn = lambda run, *_, **__: self.client.handler.spawn(run)
        link.seen_chroot = self.client.chroot  # as of a client that `connect` has opened
        self.client._stopped.clear()
        self.session = Session(self.client, link, self.boot_clock, lambda: world.now, self.wall_clock).start()
        self.client._zkconcurrent_session = self.session
        self.own_threads = set(world.actors[begun:])
        self.session.registry.seed = f"{number:08d}-0000-4000-8000"

    @property
    def connection(self) -> Connection:
        """The client's connection."""
        connection: Connection = self.client._connection
        return connection

    @property
    def runs(self) -> bool:
        """Whether its threads get turns."""
        return self.stopped_until <= self.world.now

    def boot_clock(self) -> float:
        """Tell the time by the machine's clock, which ticks between any two readings."""
        self.told = max(self.world.now, math.nextafter(self.told, math.inf))
        return self.told

    def wall_clock(self) -> float:
        """Tell the time by the process's wall clock."""
        now = self.world.now + self.ahead
        self.read = max(self.read, now)
        return now

    def starve(self, actor: Actor, time: float) -> None:
        """Give a thread of the process no turn before that time."""
        actor.held_until = time
        self.world.at(time)
        if actor in self.own_threads or self.session.lock.owner is actor:
            self.starved_until = max(self.starved_until, time)

    def listen(self, actor: Actor) -> None:
        """Wait until the network gives the calling actor a message."""
        actor.listens = True
        try:
            self.world.block()
        finally:
            actor.listens = False

    def messages(self) -> list[tuple[int, Callable[[], None]]]:
        """Return what can happen next on each of the process's channels, with its turn."""
        found: list[tuple[int, Callable[[], None]]] = []
        connection, handler, world = self.client._connection, self.client.handler, self.world
        wire = connection.wire
        if wire is not None and wire.requests and self.ensemble.can_serve(wire):
            found.append((wire.requests[0][0], partial(self.ensemble.serve, wire)))
        if not self.runs:
            return found
        if wire is not None and wire.answers and wire.answers[0][3] <= world.now:
            routine, arrived = connection._connection_routine, max(wire.stalled_until, wire.silent_until) <= world.now
            if arrived and routine.listens and world.available(routine):
                found.append((wire.answers[0][0], partial(world.resume, routine)))
        if handler._callbacks:
            watches = handler._workers[0]
            if watches.listens and world.available(watches):
                found.append((handler._callbacks[0][0], partial(world.resume, watches)))
        return found

    def stop_until(self, time: float) -> None:
        """Stop the process for a while; for good, if `time` is infinite."""
        wire = self.connection.wire
        if wire is not None:
            self.ensemble.silence(wire.session)
        self.starved_until = max(self.starved_until, time)
        self.stopped_until = time
        if time < math.inf:
            self.world.at(time)
            return
        self.alive = False
        if wire is not None:  # the system closes it; the requests that were sent are still applied
            self.ensemble.close(wire, served=len(wire.requests))
