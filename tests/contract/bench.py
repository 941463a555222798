"""One bench, two servers: the same questions are asked of a real ZooKeeper through kazoo, and of the simulated one.

On the simulated bench everything is an actor of the simulation, the test included; so a test is a function that the
bench runs. What it asks, it asks through the library's own `Link`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from kazoo.client import KazooClient

from tests.simulation.client import Process
from tests.simulation.ensemble import Ensemble
from tests.simulation.world import World
from zkconcurrent._kazoo import Answer
from zkconcurrent._session import Session
from zkconcurrent.testing import Server

T = TypeVar("T")
CHROOT = "/root"
PATIENCE = 20.0


class Bench(Protocol):
    """A ZooKeeper and clients of it, whose chroot is `/root`."""

    def run(self, test: Callable[[], T]) -> T:
        """Run a test to its end."""

    def session(self) -> Session:
        """Open a client; return the library's session of it."""

    def expire(self, session: Session) -> None:
        """Expire the client's session, and wait until it has another."""

    def cut(self, session: Session) -> None:
        """Cut the client's connection, and wait until it has another, in the same session."""


def ask(session: Session, *requests: tuple[Any, ...]) -> list[Any]:
    """Send requests together, each the name of a method of `Link` and its arguments; return values, or errors."""
    event = session.link.handler.event_object()
    answers = []
    for name, *arguments in requests:
        answer = Answer(event.set)
        watcher = [arguments.pop()] if name == "get" and callable(arguments[-1]) else []
        getattr(session.link, name)(*arguments, answer, *watcher)
        answers.append(answer)
    wait(session, lambda: all(answer.done for answer in answers))
    return [answer.value if answer.error is None else answer.error for answer in answers]


def wait(session: Session, condition: Callable[[], Any]) -> None:
    """Wait until a condition is true."""
    until = session.now() + PATIENCE
    while not condition():
        assert session.now() < until, "the condition does not come true"
        session.link.handler.sleep_func(0.005)


class Real:
    """A real server, kazoo, and threads."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._clients: list[KazooClient] = []
        with server.client() as client:
            client.ensure_path(CHROOT)

    def run(self, test: Callable[[], T]) -> T:
        """Run the test."""
        return test()

    def session(self) -> Session:
        """Open a client."""
        retry = {"max_tries": -1, "delay": 0.05, "max_delay": 0.2}
        client = KazooClient(self._server.hosts + CHROOT, timeout=6, connection_retry=retry)
        self._clients.append(client)
        client.start()
        return Session.of(client)

    def expire(self, session: Session) -> None:
        """Have a thief close it."""
        old = session.registry.session
        self._server.expire(session.link.client)
        wait(session, lambda: session.registry.session not in (None, old))

    def cut(self, session: Session) -> None:
        """Cut the connection as the library itself does with one that is dead."""
        states: list[str] = []
        session.link.client.add_listener(states.append)
        session.link.drop()
        wait(session, lambda: states[-1:] == ["CONNECTED"])
        assert states == ["SUSPENDED", "CONNECTED"]

    def close(self) -> None:
        """Stop the clients."""
        for client in self._clients:
            client.stop()
            client.close()


class Simulated:
    """The simulated server, on its own clock."""

    def __init__(self) -> None:
        self._world = World()
        self._ensemble = Ensemble(self._world)
        self._ensemble._commit(("create", CHROOT, b"", 0.0, 0, False, None))
        self._processes: list[Process] = []
        self._world.network = self._network

    def _network(self) -> Callable[[], None] | None:
        moves = [move for process in self._processes for move in process.messages()]
        return min(moves, key=lambda move: move[0])[1] if moves else None

    def run(self, test: Callable[[], T]) -> T:
        """Run the test as an actor."""
        result: list[T] = []
        with self._world.closing():
            self._world.spawn("test", lambda: result.append(test()))
            while not result:
                self._world.step()
        return result[0]

    def session(self) -> Session:
        """Begin a process with one client."""
        number = len(self._processes) + 1
        process = Process(self._world, self._ensemble, f"p{number}", number, 6.0)
        self._processes.append(process)
        wait(process.session, lambda: process.session.registry.session is not None)
        return process.session

    def _process(self, session: Session) -> Process:
        return next(process for process in self._processes if process.session is session)

    def expire(self, session: Session) -> None:
        """Have the server expire it."""
        old = session.registry.session
        wire = self._process(session).connection.wire
        assert wire is not None
        self._ensemble.end_session(wire.session)
        wait(session, lambda: session.registry.session not in (None, old))

    def cut(self, session: Session) -> None:
        """Cut the connection."""
        wire = self._process(session).connection.wire
        session.link.drop()
        wait(session, lambda: session.link.connected and self._process(session).connection.wire is not wire)

    def close(self) -> None:
        """Leave nothing for the interpreter's exit to clean up."""
        for process in self._processes:
            process.session.forked = True
