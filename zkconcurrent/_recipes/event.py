"""The flag: one node that says whether it is set, and how often it was, so that nobody who waits can miss a set.

Every change is a write on condition that nobody else has written since the node was read. So a write that comes late
fails, and one whose answer was lost is settled by reading again: either the flag is as wanted, or the epoch has moved,
which means that somebody made it so since the call began, or neither, and then nothing was written.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

from .._errors import ForeignNodeError
from .nodes import make
from .operations import (
    ConnectionLost,
    Discard,
    Get,
    NewTicket,
    Node,
    Recipe,
    Requeue,
    Set,
    Sync,
    Wait,
    Watch,
)
from .ticket import Ticket

_DATA = re.compile(rb"(\d{1,19}) (set|clear)")
CHILD = re.compile("(?!)")
"""The names of its node's children: it has none."""


class Flag(NamedTuple):
    """What the node says, as `<epoch> set` or `<epoch> clear`.

    Attributes:
        epoch: how often the flag went from clear to set, since the node was made.
        is_set: whether it is set.
    """

    epoch: int = 0
    is_set: bool = False

    @classmethod
    def of(cls, path: str, node: Node) -> Flag:
        """Read the node's data.

        Raises:
            ForeignNodeError: it is no flag's.
        """
        said = _DATA.fullmatch(node.data)
        if said is None:
            raise ForeignNodeError(
                path,
                f"the node's data is {node.data[:100]!r}, and an Event's is like b'3 set' or b'3 clear'; delete the "
                "node if it is left from something else, or use another path",
            )
        return cls(int(said[1]), said[2] == b"set")

    def turned(self, wanted: bool) -> Flag:
        """Return what the flag is after it was set, or cleared."""
        return Flag(self.epoch + wanted, wanted)

    @property
    def data(self) -> bytes:
        """What the node says."""
        return b"%d %s" % (self.epoch, b"set" if self.is_set else b"clear")


class Since(NamedTuple):
    """From where on a call counts: the node that there was when it began, and the epoch.

    A node that was made since then counts from its first epoch, as each of its sets is one since the call began.
    """

    made: int
    epoch: int

    @staticmethod
    def began(before: Since | None, node: Node | None, flag: Flag) -> Since:
        """Return from where to count on, now that this was read."""
        if node is None:
            return before or Since(0, 0)
        if before is None:
            return Since(node.czxid, flag.epoch)
        return before if before.made == node.czxid else Since(node.czxid, 0)


def look(path: str) -> Recipe[Flag]:
    """Return the flag as the leader has it; one that was never set needs no node."""
    _, node = yield Sync(path), Get(path)
    return Flag() if node is None else Flag.of(path, node)


def turn(path: str, wanted: bool) -> Recipe[Flag]:
    """Set the flag, or clear it; return what it was last seen to be."""
    since: Since | None = None
    while True:
        _, node = yield Sync(path), Get(path)
        flag = Flag() if node is None else Flag.of(path, node)
        since = Since.began(since, node, flag)
        # That the epoch has moved means: set by somebody, or cleared in between, while this call lasted. So ours took
        # place at the same moment.
        if flag.is_set == wanted or flag.epoch > since.epoch:
            return flag
        if node is None:
            yield from make(path, flag.data)
            continue
        with suppress(ConnectionLost):
            if (yield Set(path, flag.turned(wanted).data, node.version)):
                return flag.turned(wanted)


def wait(path: str) -> Recipe[Flag]:
    """Wait until the flag is set, or was since the wait began; return what it was last seen to be."""
    since: Since | None = None
    while True:
        ticket: Ticket = yield NewTicket(path)
        try:
            # Behind a sync, so that no set from before the call is taken for one since. Later looks in the same session
            # see no less.
            _, node = yield Sync(path, ticket), Get(path, ticket)
            watched = False
            while True:
                flag = Flag() if node is None else Flag.of(path, node)
                since = Since.began(since, node, flag)
                if flag.is_set or flag.epoch > since.epoch:
                    yield Discard(ticket)
                    return flag
                if node is None:
                    yield from make(path, flag.data)  # what is not there can't be watched
                elif watched:
                    yield Wait(ticket)
                (node,) = yield Watch(ticket, (Get(path, ticket),))
                watched = True
        except Requeue:
            yield Discard(ticket)
