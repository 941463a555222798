"""Counts of the messages sent, in ZooKeeper's own terms, from a trace, so that a test never measures time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from tests.helpers.wire import Message

__all__ = ["Count"]


class Count:
    """The messages of a stretch of time, in the order they passed the client's end of the wire, and their counts.

    May be read at any time; it grows until the block that made it ends.
    """

    def __init__(self, trace: list[Message] | None = None) -> None:
        self.trace: list[Message] = [] if trace is None else trace

    @property
    def requests(self) -> Counter[str]:
        """How many requests of each name were sent, without pings, heartbeats and removals of watches."""
        return Counter(message.name for message in self._work())

    @property
    def events(self) -> Counter[str]:
        """How many watch events of each name were delivered."""
        return Counter(message.name for message in list(self.trace) if message.kind == "event")

    @property
    def heartbeats(self) -> int:
        """How many heartbeats were sent, each of which checks what is held, or asks for `getEphemerals`."""
        return sum(1 for each in self._sent() if each.heartbeat and each.name not in ("sync", "getData"))

    @property
    def pings(self) -> int:
        """How many pings were sent."""
        return sum(1 for each in self._sent() if each.name == "ping")

    @property
    def flights(self) -> int:
        """How many times a request was sent on a connection on which none of these requests was outstanding.

        It is the number of round trips somebody waited for, if one thread at a time uses each connection. Heartbeats
        and pings neither make a flight nor join one. Exact when answers take longer than the pause between
        two requests that are sent without waiting: give the proxy a delay of some milliseconds.
        """
        work = set(self._work())
        outstanding: defaultdict[int, set[Message]] = defaultdict(set)
        flights = 0
        for message in list(self.trace):
            flying = outstanding[message.connection]
            if message in work:
                flights += not flying
                flying.add(message)
            elif message.request is not None:
                flying.discard(message.request)
        return flights

    def of(self, *, session: int | None = None, connection: int | None = None) -> Count:
        """The same of one session or of one connection."""
        return Count(
            [
                each
                for each in list(self.trace)
                if session in (None, each.session) and connection in (None, each.connection)
            ]
        )

    def _sent(self) -> list[Message]:
        return [message for message in list(self.trace) if message.kind == "request"]

    def _work(self) -> list[Message]:
        return [each for each in self._sent() if each.name not in ("ping", "removeWatches") and not each.heartbeat]

    def __repr__(self) -> str:
        return (
            f"<Count {dict(self.requests)}, {self.flights} flights, events {dict(self.events)}, "
            f"{self.heartbeats} heartbeats, {self.pings} pings>"
        )

    def __str__(self) -> str:
        return "\n".join(map(str, list(self.trace)))


def answered(count: Count, name: str, n: int = 1) -> Callable[[], bool]:
    """Return a condition: n requests of a name were answered. A waiter's watch is set then, and not when it is sent."""
    return lambda: sum(each.kind == "answer" and each.name == name for each in list(count.trace)) >= n
