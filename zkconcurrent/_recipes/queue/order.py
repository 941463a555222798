"""The order of a queue's items, and the data of its nodes: decided from names and bytes alone.

An item's name is `queue-`, then its priority if the queue orders by priorities, then the number that the server gave
it. So the names, compared as text, are in the order of the priorities, and items of equal priority in the order of
arrival. In a queue of delayed items, the time at which the item is due takes the place of the priority. Names and data
are as in Curator's `DistributedQueue`, `DistributedPriorityQueue` and `DistributedDelayQueue`.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from ..._arguments.limits import check_int
from ..._errors import ForeignNodeError
from ..._protocol import operations as op
from ..._protocol.blocking_rules import LAST_SEQUENCE
from ..nodes import foreign_data

ITEM = "queue-"
LARGEST_PRIORITY = 2**31 - 1
# Puts are refused from here on, as numbers beyond the last one are in no order. The margin is for puts that are under
# way.
LAST_ITEM = LAST_SEQUENCE - 100_000

_DATA = re.compile(rb"(fifo|lifo|priority|float|delay) (\d{1,19}) (open|shutdown)")
_VERSION = struct.pack(">i", 0x00010001)
_SIGN, _ALL_BITS = 1 << 63, (1 << 64) - 1
_ENTRY, _END, _BASE = b"\x01", b"\x02", struct.Struct(">i")


class Order(NamedTuple):
    """The order of a queue.

    Attributes:
        name: its name in the data of the queue's node.
        pattern: matches the names of the items.
        newest_first: the item with the last name is taken next.
        keeps: a new item goes behind all others, so a listing that is a little old still has the right order.
        timed: an item's name says when the item is due; consumers take it no earlier, and the earliest item first.
    """

    name: str
    pattern: re.Pattern[str]
    newest_first: bool = False
    keeps: bool = False
    timed: bool = False


FIFO = Order("fifo", re.compile(r"queue-\d{10}"), keeps=True)
LIFO = Order("lifo", FIFO.pattern, newest_first=True)
# A consumer of Curator's that fails to process an item puts it back without its priority, or its time.
PRIORITY = Order("priority", re.compile(r"queue-(?:[01][0-9A-F]{8})?\d{10}"))
FLOAT = Order("float", re.compile(r"queue-[0-9A-F]{16}\d{10}"))
# The time has eight digits, or more without a leading zero. So of two items, the one with the longer name is due later.
# The latest time is the largest signed 64-bit number: Java reads larger ones as 0.
DELAY = Order(
    "delay",
    re.compile(r"queue-(?:\|(?:[0-9A-F]{8}|[1-9A-F][0-9A-F]{8,14}|[1-7][0-9A-F]{15})\|)?\d{10}"),
    timed=True,
)


def item_prefix(priority: int) -> str:
    """Return the name of an item without its number.

    Raises:
        OverflowError: the priority has more than 32 bits.

    Source: Curator's `DistributedPriorityQueue.priorityToString`.
    """
    if not -LARGEST_PRIORITY - 1 <= priority <= LARGEST_PRIORITY:
        raise OverflowError(f"a priority must be between -2**31 and 2**31 - 1: {priority}")
    return f"{ITEM}{int(priority >= 0)}{priority & 0xFFFFFFFF:08X}"


def float_prefix(priority: object) -> str:
    """Return the name of an item without its number: the bits of its priority, so that the names sort as the floats do.

    Raises:
        TypeError: the priority is not a number.
        ValueError: it is NaN, or an int that equals no float.
    """
    if not isinstance(priority, int | float):
        raise TypeError(f"priority must be a float, not {type(priority).__name__}")
    try:
        number = float(priority)
    except OverflowError:
        number = math.nan
    if number != priority:
        raise ValueError(f"priority must be equal to a float: {priority}")
    (bits,) = struct.unpack(">Q", struct.pack(">d", number or 0.0))  # -0.0 is 0.0
    return f"{ITEM}{bits ^ (_ALL_BITS if bits >> 63 else _SIGN):016X}"


def ranked_prefix(item: object, priority: Callable[[Any], float] | None, *, floats: bool = False) -> str:
    """Return an item's name without its number, ranked by what `priority` returns, by the item or its first element.

    Raises:
        TypeError: the priority is not an int or, with `floats`, a float.
        OverflowError: the priority has more than 32 bits.
        ValueError: it equals no float.
    """
    if priority is not None:
        rank: Any = priority(item)
    else:
        rank = item[0] if isinstance(item, tuple | list) and item else item
    return float_prefix(rank) if floats else item_prefix(check_int("priority", rank))


def delayed_prefix(now: float, delay: float) -> str:
    """Return the name, without its number, of an item that is due `delay` seconds from `now`; at once if that is 0.

    Source: Curator's `DistributedDelayQueue.epochToString`.
    """
    at = milliseconds(now) if delay <= 0 else math.ceil((now + delay) * 1000)
    return f"{ITEM}|{max(1, at):08X}|"


def milliseconds(now: float) -> int:
    """Return a time, in seconds of the wall clock, in whole milliseconds."""
    return math.floor(now * 1000)


def due(name: str) -> int:
    """Return when an item is due, in milliseconds since 1970, as its name shows; 0 if the name has no time."""
    _, at, _ = name.split("|") if "|" in name else ("", "0", "")
    return int(at, 16)


def is_item(name: str) -> bool:
    """Return whether a name is an item's, in a queue of any order."""
    return any(order.pattern.fullmatch(name) for order in (FIFO, PRIORITY, FLOAT, DELAY))


def number(name: str) -> int:
    """Return the number that the server gave an item."""
    return int(name[-10:])


def items(path: str, names: Sequence[str], order: Order) -> list[str]:
    """Return the names of the items among the children of `path`, the next one first.

    Children whose names do not begin like an item's are ignored, as in Curator.

    Raises:
        ForeignNodeError: a queue of another order has made an item.
    """
    found = [name for name in names if name.startswith(ITEM)]
    for name in found:
        if not order.pattern.fullmatch(name):
            raise ForeignNodeError(
                path,
                f"the item {name!r} does not belong to a {order.name} queue, or its number is exhausted; use another "
                "path, or delete the item if something else left it behind",
            )
    if order.timed:
        # An item with a longer name is due later. Names of one length sort as text: by due time, then by number.
        return sorted(sorted(found), key=len)
    return sorted(found, reverse=order.newest_first)


def free(listed: Sequence[str], claims: Collection[str]) -> list[str]:
    """Return the items that no consumer has claimed, in the same order."""
    taken = frozenset(claims)
    return [name for name in listed if name not in taken]


class Header(NamedTuple):
    """The content of the queue's node: its order and size, which all clients must agree on, and whether it is open.

    Attributes:
        order: the name of the order.
        maxsize: how many items the queue may have; 0 sets no limit.
        state: "open"; or "shutdown": items can still be taken, but not put.
    """

    order: str
    maxsize: int = 0
    state: str = "open"

    @property
    def data(self) -> bytes:
        """The data to write to the node."""
        return f"{self.order} {self.maxsize} {self.state}".encode()

    @classmethod
    def of(cls, path: str, node: op.Node) -> Header | None:
        """Parse the node's data; None if the node has no data, as when a program on Curator made it.

        Raises:
            ForeignNodeError: the data is not a queue's.
        """
        if not node.data:
            return None
        match = _DATA.fullmatch(node.data)
        if match is None:
            raise foreign_data(path, node.data, "a queue's is like b'fifo 0 open'")
        return cls(match[1].decode(), int(match[2]), match[3].decode())

    def check(self, path: str, ours: Header) -> None:
        """Refuse a queue that was made with another order or size.

        Raises:
            ValueError: its order or size differs.
        """
        if self[:2] != ours[:2]:
            raise ValueError(
                f"the queue at {path!r} was made as {self.order} with maxsize={self.maxsize}, not as {ours.order} with "
                f"maxsize={ours.maxsize}: all clients must give the same; destroy() it if no client uses it any more"
            )


def frame(payloads: Sequence[bytes], base: int = 0) -> bytes:
    """Return the data of an item's node, as Curator's `ItemSerializer` writes it.

    Args:
        payloads: the items.
        base: the node's version less the claims of the first item. It stands behind the end mark, where Curator does
            not read.
    """
    entries = (_ENTRY + struct.pack(">i", len(payload)) + payload for payload in payloads)
    return b"".join((_VERSION, *entries, _END, _BASE.pack(base) if base else b""))


def unframe(path: str, data: bytes) -> tuple[list[bytes], int]:
    """Return the payloads in the data of an item's node, and its base: see `frame`.

    There are several payloads only if Curator's `putMulti` made the node.

    Raises:
        ForeignNodeError: the data is not an item's.
    """
    payloads, at = [], len(_VERSION)
    try:
        if data[:at] != _VERSION:
            raise ValueError
        while data[at : at + 1] == _ENTRY:
            (size,) = struct.unpack_from(">i", data, at + 1)
            at += 5 + size
            if size < 0 or at > len(data):
                raise ValueError
            payloads.append(data[at - size : at])
        end, base = data[at : at + 1], data[at + 1 :]
        if end != _END or not payloads:
            raise ValueError
        return payloads, _BASE.unpack(base)[0] if base else 0
    except (ValueError, struct.error):
        raise ForeignNodeError(
            path,
            f"the node's data, {data[:100]!r}, is not an item's; delete the node if something else left it behind",
        ) from None


def unfinished_by_session(members: Sequence[op.Node | None]) -> dict[int, int]:
    """Return how many items were taken and are not done, for each session, from the consumers' nodes.

    A client has several nodes. An item that is counted in one may be counted as done in another. So the counts of a
    session's nodes are added up; a negative sum counts as 0.
    """
    counts: dict[int, int] = {}
    for node in members:
        if node is not None:
            counts[node.session] = counts.get(node.session, 0) + member_count(node)
    return {session: max(0, count) for session, count in counts.items()}


def member_count(node: op.Node) -> int:
    """Return the count in one consumer's node; 0 if the node has no count."""
    try:
        return int(json.loads(node.data)["unfinished"])
    except op.MALFORMED:
        return 0
