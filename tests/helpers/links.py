"""The network between the servers of an ensemble: each way from one server to another can fall silent, or be slow.

An ensemble's servers reach each other through it, on their quorum ports and on their election ports alike. A way is
one direction between two servers, whichever of them opened the connections: messages from server 1 to server 2 take the
way (1, 2). One thread moves all bytes and owns all state; an order of a test is carried out when the call returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from zkconcurrent.testing import Peer

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")
REACH = 2.0  # seconds in which a server that restarts must listen again
AGAIN = 0.02


class Way:
    """The messages from one server to another.

    Attributes:
        flows: cleared, nothing passes, the ends of connections included; held-back bytes pass later.
        delay: seconds that everything takes.
    """

    def __init__(self) -> None:
        self.flows = asyncio.Event()
        self.flows.set()
        self.delay = 0.0


class Links:
    """The network between servers that are numbered from 1, while its `with` block runs.

    Leave it after the ensemble: `with Links() as links, Ensemble(route=links.route) as ensemble:`.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop  # from the beginning of the block
        # The loop thread's own.
        self._ways: defaultdict[tuple[int, int], Way] = defaultdict(Way)
        self._servers: list[asyncio.AbstractServer] = []

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        async def end() -> None:
            for server in self._servers:
                for each in server.sockets:
                    self._loop.remove_reader(each.fileno())  # accept no more
            # asyncio leaves a connection just accepted open if we close its server, or cancel its task, too soon.
            await asyncio.sleep(0.01)
            while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            for server in self._servers:
                server.close()
            await asyncio.sleep(0)  # a closed flow goes in the next round
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def route(self, a: int, b: int, peer: Peer) -> Peer:
        """Return the ports at which server `a` reaches server `b`; see `Ensemble`."""
        return Peer(self._listen(a, b, peer.quorum), self._listen(a, b, peer.election))

    def silence(self, source: int, target: int) -> None:
        """Have nothing of what one server says reach the other; nothing is closed."""
        self._call(lambda: self._ways[source, target].flows.clear())

    def restore(self, source: int, target: int) -> None:
        """Have what one server says reach the other again, what was held back first."""
        self._call(lambda: self._ways[source, target].flows.set())

    def isolate(self, server: int) -> None:
        """Let nothing pass between a server and all others, either way; nothing is closed."""
        self._call(lambda: [self._ways[pair].flows.clear() for pair in self._pairs(server)])

    def delay(self, source: int, target: int, seconds: float) -> None:
        """Deliver what one server says to the other so much later."""
        self._call(lambda: setattr(self._ways[source, target], "delay", seconds))

    def heal(self) -> None:
        """Be a good network again."""

        def do() -> None:
            for way in self._ways.values():
                way.delay = 0.0
                way.flows.set()

        self._call(do)

    def _pairs(self, server: int) -> Iterator[tuple[int, int]]:
        return (pair for pair in list(self._ways) if server in pair)

    def _call(self, step: Callable[[], T]) -> T:
        async def do() -> T:
            return step()

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result(10)

    # -- on the loop's thread ------------------------------------------------------------------------------------

    def _listen(self, a: int, b: int, port: int) -> int:
        async def listen() -> int:
            there, back = self._ways[a, b], self._ways[b, a]

            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                # Cancelled at the end of all; asyncio's own would say so at length.
                with contextlib.suppress(asyncio.CancelledError), contextlib.closing(writer):
                    far = await self._reach(port, (there, back), reader)
                    if far is not None:
                        with contextlib.closing(far[1]):
                            await asyncio.gather(self._copy(reader, far[1], there), self._copy(far[0], writer, back))

            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)

    async def _reach(
        self, port: int, ways: tuple[Way, Way], near: asyncio.StreamReader
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Reach the target, once both ways flow, as no connection comes about otherwise.

        It may not listen yet: were that hidden, a server would take it for one that is gone. None if it does not.
        """
        until: float | None = None
        while not near.at_eof():
            if all(way.flows.is_set() for way in ways):
                try:
                    return await asyncio.open_connection("127.0.0.1", port)
                except ConnectionRefusedError:
                    until = until or self._loop.time() + REACH
                    if self._loop.time() > until:
                        return None
            await asyncio.sleep(AGAIN)
        return None

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: Way) -> None:
        """Pass on what comes, and the end too, when it is due and the way flows."""
        parcels: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            data = b"."
            while data:
                try:
                    data = await source.read(65536)
                except OSError:
                    data = b""
                parcels.put_nowait((self._loop.time() + way.delay, data))

        reading = asyncio.create_task(read())
        try:
            while True:
                due, data = await parcels.get()
                if (left := due - self._loop.time()) > 0:
                    await asyncio.sleep(left)
                await way.flows.wait()
                if not data or sink.is_closing():
                    break
                sink.write(data)
        finally:
            reading.cancel()
            sink.close()
