"""Random histories: whatever clients ask, the simulated ZooKeeper gives what the real one gives.

Two clients send requests through the library's link, and have the driver run operations of recipes, while connections
are cut, sessions expire, and requests or their replies are lost. What differs between any two runs is made the same:
zxids have their ranks, sessions and tickets numbers in the order of their coming.
"""

from __future__ import annotations

import os
import random
import re
from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from difflib import unified_diff
from functools import cache, partial
from typing import Any

import pytest
from kazoo.exceptions import RolledBackError, RuntimeInconsistency
from kazoo.protocol.states import Callback, WatchedEvent, ZnodeStat

from tests.helpers.bench import CHROOT, Bench, Real, Simulated, ask, perform, wait
from zkconcurrent._engine.session import Session
from zkconcurrent._kazoo.requests import CreatedStat
from zkconcurrent._kazoo.watches import CHILDREN, DATA
from zkconcurrent._protocol.operations import (
    Check,
    Children,
    Container,
    Create,
    CreateEphemeral,
    CreatePersistent,
    CreateTogether,
    Delete,
    Discard,
    Failure,
    Get,
    GetWithZxid,
    Multi,
    NewTicket,
    Node,
    SetNode,
    Sync,
)
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent.testing import Server

UNIQUE = re.compile(r"_c_[0-9a-f-]{36}")
# The names in ZooKeeper of requests that are lost, with those of `Link`, or the operations.
OF_LINK = {"create2": "create", "create": "create_persistent", "setData": "set_data", "delete": "delete"}
OF_DRIVER = {CreateEphemeral: "create2", CreatePersistent: "create", SetNode: "setData", Delete: "delete"}


class Zxid(int):
    """The number of a change, which is told as its rank among those of the history."""


class Seen(int):
    """The number of a state, which is told as that of the last change before it."""


class History:
    """One history on one server.

    Args:
        bench: where.
        root: a path that no other history uses.
        seed: of the choices, which do not depend on the results.
    """

    def __init__(self, bench: Bench, root: str, seed: int) -> None:
        self._bench = bench
        self._root = root
        self._random = random.Random(seed)
        self._sessions = [bench.session(), bench.session()]
        self._lines: list[list[Any]] = []
        self._heard: list[tuple[int, str]] = []
        self._numbers: dict[object, int] = {}
        self._watcher = cache(lambda *who: partial(self._hear, *who))
        for n, session in enumerate(self._sessions):
            transport = session.link.transport
            reader = transport.reader
            reader.on_raw_event = partial(self._hear_raw, n, reader.on_raw_event)

    def run(self, steps: int) -> list[str]:
        """Let so many things happen; return what came of them."""
        ask(self._sessions[0], ("create_persistent", self._root, b""))
        acts = {self._ask: 20, self._recipe: 8, self._remove_watch: 2, self._lose: 2, self._cut: 1, self._expire: 1}
        for _ in range(steps):
            n = self._random.randrange(2)
            act = self._random.choices([*acts], [*acts.values()])[0]
            act(n, self._sessions[n])
            self._settle()
        changes = sorted({each for line in self._lines for each in line if isinstance(each, Zxid)})
        return [" ".join(self._shown(each, changes) for each in line) for line in self._lines]

    # -- what happens ------------------------------------------------------------------------------------------------

    def _ask(self, n: int, session: Session) -> None:
        requests = [self._request(n, session) for _ in range(self._random.randrange(1, 4))]
        for request, result in zip(requests, ask(session, *requests), strict=True):
            # The connection of a tree's watch may be older than the library's use of the client.
            is_connection = request[0] == "watch_tree" and not isinstance(result, Exception)
            self._say(
                n, request, "" if is_connection else ("Seen", result) if request[0] == "get_with_zxid" else result
            )

    def _remove_watch(self, n: int, session: Session) -> None:
        path, kind, who = self._path(), self._random.choice([CHILDREN, DATA]), self._random.randrange(2)
        for _ in range(2):
            watcher = self._watcher(n, path, who)
            had = session.link.watches(path, watcher)
            (result,) = ask(session, ("remove_watch", path, kind, watcher))
            self._say(n, ("remove_watch", path, kind), had, result, session.link.watches(path, watcher))

    def _lose(self, n: int, session: Session) -> None:
        kind, applied = self._random.choice([*OF_LINK]), self._random.random() < 0.5
        while (request := self._request(n, session))[0] != OF_LINK[kind]:
            pass
        self._bench.lose(session, kind, applied=applied)
        behind = ("children", self._root)
        results = ask(session, request, behind, sending=self._bench.unanswered(session))
        self._say(n, f"lost, applied={applied}", request, results)
        # It may have heard of an event before the reply behind that was lost.
        self._settle(but=n)

    def _cut(self, n: int, session: Session) -> None:
        self._say(n, "cut")
        self._bench.cut(session)

    def _expire(self, n: int, session: Session) -> None:
        self._say(n, "expires")
        self._bench.expire(session)

    def _recipe(self, n: int, session: Session) -> None:
        """Run a recipe of some operations; between two, the session may expire, or the next write be lost."""
        path = self._path()
        tickets: list[Ticket] = []
        lost: list[str] = []

        def recipe() -> Generator[Any, Any, None]:
            ticket = yield NewTicket(path)
            tickets.append(ticket)
            self._number(UNIQUE.search(ticket.prefix)[0])  # type: ignore[index]
            for _ in range(self._random.randrange(1, 5)):
                if self._random.random() < 0.05:
                    self._expire(n, session)
                operations = tuple(self._operation(ticket) for _ in range(self._random.choice([1, 1, 2, 3])))
                if type(operations[0]) in OF_DRIVER and self._random.random() < 0.2:
                    lost.append(OF_DRIVER[type(operations[0])])
                    operations, applied = operations[:1], self._random.random() < 0.5
                    self._say(n, f"next is lost, applied={applied}")
                    self._bench.lose(session, lost[-1], applied=applied)
                try:
                    results = yield operations
                except Failure as failure:
                    self._say(n, operations, failure, failure.part)
                else:
                    for operation, result in zip(operations, results, strict=True):
                        self._say(n, operation, ("Seen", result) if type(operation) is GetWithZxid else result)
            yield Discard(ticket)

        perform(session, path, recipe())
        wait(session, lambda: session.is_gone(tickets[0]))
        self._say(n, tickets[0].state)
        self._settle(but=n if lost else None)

    def _settle(self, but: int | None = None) -> None:
        """Wait until each client has heard of all that was, and write it down, in no order, but what one has heard."""
        for session in self._sessions:
            wait(session, lambda session=session: not isinstance(ask(session, ("sync", "/"))[0], Exception))
            done: list[WatchedEvent] = []
            end = WatchedEvent("NONE", "CONNECTED", None)
            session.link.handler.dispatch_callback(Callback("watch", done.append, (end,)))
            wait(session, lambda done=done: done)
        self._lines += [[f"  {n}: {what}"] for n, what in sorted(self._heard) if n != but]
        self._heard.clear()

    def _hear(self, n: int, path: str, who: int, event: Any) -> None:
        self._heard.append((n, self._labelled(f"{path}, {who}: {event.type} {event.path}")))

    def _hear_raw(self, n: int, others: Callable[[str, bool], None], path: str, deleted: bool) -> None:
        if path:
            self._heard.append((n, self._labelled(f"event of {path}, deleted={deleted}")))
        others(path, deleted)

    # -- choices -----------------------------------------------------------------------------------------------------

    def _path(self) -> str:
        return self._root + self._random.choice(["", "/a", "/a", "/b", "/a/c", "/a/c", "/b/c", "/b/c"])

    def _node(self) -> str:
        return self._root + self._random.choice(["/a", "/b", "/a/c", "/b/c", "/a/c/d"])

    def _data(self) -> bytes:
        return self._random.choice([b"", b"1", b"22"])

    def _version(self) -> int:
        return self._random.choice([-1, -1, 0, 0, 1, 2])

    def _request(self, n: int, session: Session) -> tuple[Any, ...]:
        """Return the name of a method of `Link`, and its arguments."""
        watcher = lambda path: [self._watcher(n, path, self._random.randrange(2))][: self._random.randrange(2)]  # noqa: E731
        path, node = self._path(), self._node()
        ticket = Ticket(path, "one-", session.registry.lease)
        parts = [self._part(ticket) for _ in range(self._random.randrange(1, 5))]
        requests: list[tuple[int, tuple[Any, ...]]] = [
            (4, ("create", f"{path}/x-", self._data())),
            (6, ("create_persistent", node, self._data())),
            (4, ("multi", [Container(node)])),
            (5, ("set_data", path, self._data(), self._version())),
            (6, ("delete", node)),
            (5, ("get", path, *watcher(path))),
            (4, ("exists", path, *watcher(path))),
            (5, ("children", path, *watcher(path))),
            (2, ("get_with_zxid", path)),
            (1, ("sync", path)),
            (2, ("check", [self._path() for _ in range(3)])),
            (1, ("check", ())),
            (8, ("multi", parts)),
            (1, ("watch_tree", path)),
        ]
        weights, choices = zip(*requests, strict=True)
        request: tuple[Any, ...] = self._random.choices(choices, weights)[0]
        return request

    def _part(self, ticket: Ticket) -> Any:
        node, path = self._node(), self._path()
        flags = {"ephemeral": self._random.random() < 0.3, "sequential": self._random.random() < 0.3}
        return self._random.choice(
            [
                Check(path, self._version()),
                Delete(node, version=self._version()),
                SetNode(path, self._data(), self._version()),
                Create(node, self._data(), **flags),
                Container(node),
                CreateEphemeral(ticket, "x-", self._data()),
            ]
        )

    def _operation(self, ticket: Ticket) -> Any:
        path, node, bound = self._path(), self._node(), self._random.choice([None, ticket])
        parts = [self._part(ticket) for _ in range(self._random.randrange(1, 4))]
        # A ticket has one node.
        parts = [part for part in parts if not isinstance(part, CreateEphemeral)]
        operations = [
            *(Get(path, bound), Children(path, bound), GetWithZxid(path), Sync(path, bound)),
            CreateTogether((Container(node),)),
            *(CreatePersistent(node, self._data()), CreatePersistent(node, self._data())),
            *(SetNode(path, self._data(), max(self._version(), 0)), Delete(node, version=self._version())),
            Multi(ticket, tuple(parts) or (Check(path),)),
        ]
        if not ticket.sent:
            operations += [CreateEphemeral(ticket, "x-", self._data())]
        return self._random.choice(operations)

    # -- words -------------------------------------------------------------------------------------------------------

    def _number(self, what: object) -> int:
        return self._numbers.setdefault(what, len(self._numbers))

    def _say(self, *what: Any) -> None:
        self._lines.append([*self._words(what)])

    def _words(self, what: Any) -> Generator[Any, None, None]:
        """Yield texts, zxids and what was seen."""
        match what:
            case RolledBackError() | RuntimeInconsistency():
                yield "not done"
            case Exception() | Ticket():
                yield type(what).__name__
            case ZnodeStat():
                owner = self._number(what.ephemeralOwner)
                yield Zxid(what.czxid)
                yield Zxid(what.mzxid)
                yield Zxid(what.pzxid)
                yield f"{what.version} {what.cversion} S{owner} {what.dataLength} {what.numChildren}"
            case CreatedStat():
                yield Zxid(what.czxid)
                yield f"S{self._number(what.ephemeralOwner)}"
            case Node():
                yield Zxid(what.czxid)
                yield Zxid(what.mzxid)
                yield f"{what.data!r} S{self._number(what.session)} {what.version} {what.created} {what.children}"
            case ("Seen", (value, zxid)):
                yield from self._words(value)
                yield Seen(zxid)
            case list() if what and all(isinstance(each, str) for each in what):
                yield str(sorted(map(self._labelled, what)))
            case str():
                yield self._labelled(what)
            case Sequence() if not isinstance(what, bytes):
                if hasattr(what, "_fields"):
                    yield type(what).__name__
                for each in what:
                    yield from self._words(each)
            case _ if callable(what):
                yield "with a watcher"
            case _:
                yield repr(what)

    def _labelled(self, text: str) -> str:
        # The link's callers take the last part of a full path, which kazoo makes relative in some replies.
        return UNIQUE.sub(lambda found: f"T{self._number(found[0])}", text.removeprefix(CHROOT))

    def _shown(self, word: Any, changes: list[int]) -> str:
        return f"+{bisect_right(changes, word)}" if isinstance(word, Zxid | Seen) else str(word)


@pytest.mark.parametrize("seed", range(int(os.environ.get("LINK_HISTORIES", "3"))))
def test_history(seed: int, zookeeper: Server, path: str) -> None:
    """Both servers give the same results and events."""
    said = []
    for bench in (Real(zookeeper), Simulated()):
        try:
            said.append(bench.run(lambda bench=bench: History(bench, path, seed).run(120)))  # type: ignore[misc]
        finally:
            bench.close()
    differences = "\n".join(unified_diff(*said, "the real server", "the simulated server", lineterm="", n=6))
    assert not differences, differences
