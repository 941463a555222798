"""One bench, two servers: the same questions are asked of a real ZooKeeper through kazoo, and of the simulated one.

On the simulated bench everything is an actor of the simulation, the test included; so a test is a function that the
bench runs. It sends its questions through the library's own `Link`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

from kazoo.client import KazooClient
from kazoo.protocol.serialization import Create, Create2, Delete, SetData, Transaction

from tests.helpers.proxy import Proxy
from tests.simulation.world.client import Process
from tests.simulation.world.ensemble import Ensemble
from tests.simulation.world.world import World
from zkconcurrent._engine.call import Call
from zkconcurrent._engine.session import Session
from zkconcurrent._kazoo.reply import Reply
from zkconcurrent._memory import changes
from zkconcurrent._protocol.operations import Recipe
from zkconcurrent.testing import Server

T = TypeVar("T")
CHROOT = "/root"
PATIENCE = 20.0
REQUESTS = {"create": Create, "create2": Create2, "setData": SetData, "delete": Delete, "multi": Transaction}


class Bench(Protocol):
    """A ZooKeeper and clients of it, whose chroot is `/root`."""

    def run(self, test: Callable[[], T]) -> T:
        """Run a test to its end."""

    def session(self, **options: Any) -> Session:
        """Open a client; return the library's session of it."""

    def expire(self, session: Session) -> None:
        """Expire the client's session, and wait until it has another."""

    def cut(self, session: Session) -> None:
        """Cut the client's connection, and wait until it has another, in the same session."""

    def lose(self, session: Session, request: str, *, applied: bool) -> None:
        """Lose the answer to the client's next request of that kind, or the request, with the connection."""

    def unanswered(self, session: Session) -> AbstractContextManager[None]:
        """Have nothing come from the server within the block, however long it takes, nor the end of the connection."""

    def close(self) -> None:
        """Let go of it all."""


def ask(session: Session, *requests: tuple[Any, ...], sending: AbstractContextManager[None] | None = None) -> list[Any]:
    """Send requests together, each the name of a method of `Link` and its arguments; return values, or errors."""
    event = session.link.handler.event_object()
    answers = []
    with sending or nullcontext():
        for name, *arguments in requests:
            answer = Reply(event.set)
            watcher = [arguments.pop()] if arguments and callable(arguments[-1]) else []
            made = getattr(session.link, name)(*arguments, answer, *watcher)
            if made is not None:  # `remove_watch` sends its request itself
                session.link.send(made)
            answers.append(answer)
    wait(session, lambda: all(answer.done for answer in answers))
    return [answer.value if answer.error is None else answer.error for answer in answers]


def perform(session: Session, path: str, recipe: Recipe[T], deadline: float | None = None) -> T | None:
    """Run a recipe as one call of a primitive does."""
    call = Call(session, path)
    return call.wait(call.run(recipe, deadline))


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
        self._open = ExitStack()
        self._proxies: dict[int, Proxy] = {}
        with server.client() as client:
            client.ensure_path(CHROOT)

    def run(self, test: Callable[[], T]) -> T:
        """Run the test."""
        return test()

    def session(self, **options: Any) -> Session:
        """Open a client, through a proxy."""
        retry = {"max_tries": -1, "delay": 0.05, "max_delay": 0.2}
        proxy = self._open.enter_context(Proxy(self._server.hosts))
        client = KazooClient(proxy.hosts + CHROOT, connection_retry=retry, **{"timeout": 6, **options})
        self._open.callback(client.close)
        self._open.callback(client.stop)
        client.start()
        session = Session.of(client)
        wait(session, lambda: session.registry.session is not None)
        self._proxies[id(session)] = proxy
        return session

    def expire(self, session: Session) -> None:
        """Have a thief close it."""
        old = session.registry.session
        self._server.expire(session.link.client)
        wait(session, lambda: session.registry.session not in (None, old))

    def cut(self, session: Session) -> None:
        """Cut the connection as the library itself does with one that is dead."""
        states: list[str] = []
        session.link.client.add_listener(states.append)
        session.link.transport.drop()
        wait(session, lambda: "CONNECTED" in states)
        assert states[:2] == ["SUSPENDED", "CONNECTED"]

    def lose(self, session: Session, request: str, *, applied: bool) -> None:
        """Have the proxy lose it."""
        proxy = self._proxies[id(session)]
        lose = proxy.lose_answer if applied else proxy.lose_request
        lose(request)

    @contextmanager
    def unanswered(self, session: Session) -> Iterator[None]:
        """Have the proxy keep it back."""
        proxy = self._proxies[id(session)]
        proxy.stall(to_server=False)
        yield
        proxy.resume()

    def close(self) -> None:
        """Stop the clients and the proxies."""
        self._open.close()


class Simulated:
    """The simulated server, on its own clock."""

    def __init__(self) -> None:
        self._world = World()
        self._ensemble = Ensemble(self._world)
        self._ensemble.ask(0, changes.Create(CHROOT))
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

    def session(self, **options: Any) -> Session:
        """Begin a process with one client."""
        number = len(self._processes) + 1
        process = Process(self._world, self._ensemble, f"p{number}", number, options.pop("timeout", 6.0))
        for name, value in options.items():
            setattr(process.client, name, value)
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
        session.link.transport.drop()
        wait(session, lambda: session.link.connected and self._process(session).connection.wire is not wire)

    def lose(self, session: Session, request: str, *, applied: bool) -> None:
        """Close the connection when it comes, or when it was served."""
        ensemble, connection = self._ensemble, self._process(session).connection

        def is_next() -> bool:
            wire = connection.wire
            return wire is not None and bool(wire.requests) and type(wire.requests[0][1]) is REQUESTS[request]

        def lose_it(served: int) -> bool:
            if not is_next():
                return False
            assert connection.wire is not None
            ensemble.on_request = lambda _: False
            ensemble.close(connection.wire, served=served)
            return True

        ensemble.on_request = lambda _: lose_it(1 if applied else 0)

    def unanswered(self, _session: Session) -> AbstractContextManager[None]:
        """Nothing comes while the one actor runs."""
        return nullcontext()

    def close(self) -> None:
        """Leave nothing for the interpreter's exit to clean up."""
        for process in self._processes:
            process.session.forked = True
