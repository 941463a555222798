"""The watches that the connections to a server have left, and which of these connections get an event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from .changes import CHANGED, CHILD, DELETED, Code, Event, Refused, split

W = TypeVar("W")

CHILDREN_WATCH, DATA_WATCH, ANY_WATCH = 1, 2, 3  # the kinds of watches
ONCE, PERSISTENT, RECURSIVE = -1, 0, 1  # the modes of watches


class _Table(Generic[W]):
    """The watches of one kind: for each path, the watchers, and the mode of each."""

    def __init__(self) -> None:
        self.watchers: dict[str, dict[W, int]] = {}
        self.paths: dict[W, dict[str, None]] = {}
        self._recursive = 0

    @property
    def size(self) -> int:
        """How many watches there are."""
        return sum(map(len, self.paths.values()))

    def add(self, watcher: W, path: str, mode: int) -> None:
        watching = self.watchers.setdefault(path, {})
        # As in ZooKeeper before 3.9, the new mode replaces the earlier one.
        self._recursive += (mode == RECURSIVE) - (watching.get(watcher) == RECURSIVE)
        watching[watcher] = mode
        self.paths.setdefault(watcher, {})[path] = None

    def remove(self, watcher: W, path: str) -> bool:
        """Remove a watch; return whether there was one."""
        watching = self.watchers.get(path, {})
        if watcher not in watching:
            return False
        self._recursive -= watching.pop(watcher) == RECURSIVE
        if not watching:
            del self.watchers[path]
        del self.paths[watcher][path]
        return True

    def remove_all(self, watcher: W) -> None:
        for path in list(self.paths.get(watcher, ())):
            self.remove(watcher, path)
        self.paths.pop(watcher, None)

    def fire(self, kind: int, path: str) -> list[W]:
        """Return the watchers that get an event; remove their watches of the mode `ONCE`."""
        receivers: dict[W, None] = {}
        for watcher, mode in list(self.watchers.get(path, {}).items()):
            if mode == RECURSIVE and kind == CHILD:
                continue
            receivers[watcher] = None
            if mode == ONCE:
                self.remove(watcher, path)
        above = path
        while self._recursive and kind != CHILD and above != "/":
            above = split(above)[0] or "/"
            receivers.update((each, None) for each, mode in self.watchers.get(above, {}).items() if mode == RECURSIVE)
        return list(receivers)


class Watches(Generic[W]):
    """The watches that the connections to one server have left.

    Attributes:
        data: the watches that reads of data and checks of existence have left.
        children: the watches that listings have left; a persistent watch is in both tables.
    """

    def __init__(self) -> None:
        self.data: _Table[W] = _Table()
        self.children: _Table[W] = _Table()

    def add(self, watcher: W, path: str, kind: int, mode: int = ONCE) -> None:
        """Add a watch of this kind."""
        for table in self.tables(kind):
            table.add(watcher, path, mode)

    def remove(self, watcher: W, path: str, kind: int) -> None:
        """Remove a watch.

        Raises:
            Refused: there is no such watch.
        """
        removed = [table.remove(watcher, path) for table in self.tables(kind)]
        if not any(removed):
            raise Refused(Code.NO_WATCHER)

    def remove_all(self, watcher: W) -> None:
        """Remove all watches of a connection."""
        self.data.remove_all(watcher)
        self.children.remove_all(watcher)

    def fire(self, events: Iterable[Event]) -> list[tuple[W, Event]]:
        """Return the events to be sent, each with the connection that gets it."""
        sent = []
        for event in events:
            kind, path, _, acl_above = event
            receivers = self.data.fire(kind, path)
            if kind == DELETED:
                receivers += [each for each in self.children.fire(kind, path) if each not in receivers]
            sent += [(each, event) for each in receivers]
            if kind != CHANGED:
                above = Event(CHILD, split(path)[0] or "/", acl_above)
                sent += [(each, above) for each in self.children.fire(CHILD, above.path)]
        return sent

    def tables(self, kind: int) -> list[_Table[W]]:
        """Return the tables that have the watches of this kind."""
        tables = {CHILDREN_WATCH: [self.children], DATA_WATCH: [self.data], ANY_WATCH: [self.children, self.data]}
        return tables[kind]
