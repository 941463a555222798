"""The flag: one node has the flag and the number of times it was set, so that no waiter misses a set.

An `Event` must outlive its setter, so its node is persistent, and no part of it ends with a session. So a write can be
lost, late or repeated, and three things settle it.

* Every write is conditional on the version that was read; a late one fails.
* The data has an epoch next to the flag: how often it went from clear to set. After the reply to a `set` is lost, the
  caller reads again, behind a `sync`. If the flag is set, or the epoch has moved since the call began, the flag was set
  at some moment of the call, and that counts as our `set`: if the flag is clear again, another client cleared it later.
  Otherwise nothing was written, and the caller decides anew. `clear` mirrors that: a later epoch means that another
  client cleared in between.
* A waiter remembers the epoch of its first read, over reconnects and sessions. A watch shows that the node has changed,
  but not how often; a `set(); clear()` between two reads leaves a clear flag and a later epoch. That is also why the
  first read is behind a `sync`: a server that lags shows an older epoch, and a set from before the wait would count as
  one during the wait.

Waiters have no nodes, so `destroy()` ignores them. A waiter creates the node anew, with an epoch of 0, and continues to
wait.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

from .._protocol import operations as op
from .._protocol.operations import Recipe
from .nodes import foreign_data, make, watch_until

_DATA = re.compile(rb"(\d{1,19}) (set|clear)")


class Flag(NamedTuple):
    """The content of the node: `<epoch> set` or `<epoch> clear`.

    Attributes:
        epoch: how often the flag went from clear to set since the node was made.
        is_set: whether the flag is set.
    """

    epoch: int = 0
    is_set: bool = False

    @classmethod
    def of(cls, path: str, node: op.Node) -> Flag:
        """Parse the node's data.

        Raises:
            ForeignNodeError: the data is not a flag's.
        """
        match = _DATA.fullmatch(node.data)
        if match is None:
            raise foreign_data(path, node.data, "an Event's is like b'3 set' or b'3 clear'")
        return cls(int(match[1]), match[2] == b"set")

    def changed_to(self, wanted: bool) -> Flag:
        """Return the flag after a set, or a clear."""
        return Flag(self.epoch + wanted, wanted)

    @property
    def data(self) -> bytes:
        """The data to write to the node."""
        return b"%d %s" % (self.epoch, b"set" if self.is_set else b"clear")


class Since(NamedTuple):
    """The start of a call: the node that existed then, and its epoch.

    If the node was made after the start, the call counts from epoch 0, as every set of that node came after the start.
    """

    made: int
    epoch: int

    @staticmethod
    def began(before: Since | None, node: op.Node | None, flag: Flag) -> Since:
        """Return the start to count from, given what was read."""
        if node is None:
            return before or Since(0, 0)
        if before is None:
            return Since(node.czxid, flag.epoch)
        return before if before.made == node.czxid else Since(node.czxid, 0)


def read_flag(path: str) -> Recipe[Flag]:
    """Return the flag, read behind a `sync`. A flag that was never set needs no node."""
    _, node = yield op.Sync(path), op.Get(path)
    return Flag() if node is None else Flag.of(path, node)


def set_flag(path: str, wanted: bool) -> Recipe[Flag]:
    """Set or clear the flag; return it as last seen."""
    since: Since | None = None
    while True:
        _, node = yield op.Sync(path), op.Get(path)
        flag = Flag() if node is None else Flag.of(path, node)
        since = Since.began(since, node, flag)
        # If the epoch has moved, the flag had the wanted value at some moment of this call: our change counts as made
        # then.
        if flag.is_set == wanted or flag.epoch > since.epoch:
            return flag
        if node is None:
            yield from make(path, flag.data)
            continue
        with suppress(op.ConnectionLost):
            if (yield op.SetNode(path, flag.changed_to(wanted).data, node.version)):
                return flag.changed_to(wanted)


def wait(path: str) -> Recipe[Flag]:
    """Wait until the flag is set, or was set since the wait began; return it as last seen."""
    since: Since | None = None

    def accepts(node: op.Node | None) -> Flag | None:
        nonlocal since
        flag = Flag() if node is None else Flag.of(path, node)
        since = Since.began(since, node, flag)
        return flag if flag.is_set or flag.epoch > since.epoch else None

    return (yield from watch_until(path, accepts, lambda: make(path, Flag().data)))
