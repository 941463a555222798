"""The pure part of queues: the next item, the data of their nodes, and the nodes that are no queue's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconcurrent import ForeignNodeError
from zkconcurrent._protocol import operations as op
from zkconcurrent._protocol.operations import Node
from zkconcurrent._protocol.session_lease import Lease
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent._recipes.queue.manage import drain
from zkconcurrent._recipes.queue.order import (
    DELAY,
    FIFO,
    FLOAT,
    LIFO,
    PRIORITY,
    Header,
    Order,
    delayed_prefix,
    due,
    float_prefix,
    frame,
    is_item,
    item_prefix,
    items,
    milliseconds,
    number,
    unframe,
)
from zkconcurrent._recipes.queue.state import QueueLayout, QueueView

numbers = st.integers(0, 2_147_483_647)
ORDERS: dict[str, tuple[Order, st.SearchStrategy[Any], Callable[[Any], str]]] = {
    "arrival": (FIFO, st.just(0), lambda _: "queue-"),
    "priorities": (PRIORITY, st.integers(-(2**31), 2**31 - 1), item_prefix),
    "floats": (FLOAT, st.floats(allow_nan=False), float_prefix),
    "times": (DELAY, st.integers(1, 2**63 - 1), lambda at: f"queue-|{at:08X}|"),
}


@pytest.mark.parametrize("by", ORDERS)
@given(st.data())
def test_the_order(by: str, data: st.DataObject) -> None:
    """The lowest is first, and of the same the first in: floats to the last bit, 0.0 as -0.0, times of any digits.

    The first in is the last out of a LIFO queue.
    """
    order, keys, prefix = ORDERS[by]
    arrived = data.draw(st.lists(st.tuples(keys, numbers), unique_by=lambda each: each[1]))
    names = {f"{prefix(key)}{n:010d}": (key, n) for key, n in arrived}
    in_turn = items("/q", list(names), order)
    assert [names[name] for name in in_turn] == sorted(arrived)
    assert all(number(name) == n and is_item(name) for name, (_, n) in names.items())
    assert order is not DELAY or all(due(name) == at for name, (at, _) in names.items())
    assert order is not FIFO or items("/q", list(names), LIFO) == in_turn[::-1]


def test_what_is_no_float() -> None:
    """NaN has no place in any order; an int is taken for the float that is equal to it, if there is one."""
    assert float_prefix(3) == float_prefix(3.0) == "queue-C008000000000000"
    assert float_prefix(-0.0) == float_prefix(0) == "queue-8000000000000000"
    for wrong in (float("nan"), 2**53 + 1, 10**400):
        with pytest.raises(ValueError, match="equal to a float"):
            float_prefix(wrong)
    with pytest.raises(TypeError, match="must be a float, not str"):
        float_prefix("1")
    for name in ("queue-1000000050000000001", "queue-0000000001"):
        with pytest.raises(ForeignNodeError, match="float"):
            items("/q", [name], FLOAT)
    with pytest.raises(ForeignNodeError, match="priority"):
        items("/q", ["queue-C0080000000000000000000001"], PRIORITY)


def test_times_are_curators() -> None:
    """The milliseconds since 1970, as `DistributedDelayQueue` writes them; it reads none above a Java long."""
    assert delayed_prefix(1_700_000_000.123, 0) == "queue-|18BCFE5687B|"
    assert delayed_prefix(0.0, 0.0) == "queue-|00000001|"
    assert delayed_prefix(1.0, 4_294_966.295) == "queue-|FFFFFFFF|"
    with pytest.raises(ForeignNodeError, match="delay"):
        items("/q", ["queue-|8000000000000000|0000000001"], DELAY)
    for other in (
        "queue-000000001",
        "queue-1000000050000000001",
        "queue-|18BCFE5687B|-000000001",
        "queue-||0000000001",
    ):
        with pytest.raises(ForeignNodeError):
            items("/q", [other], DELAY)


@given(st.floats(0, 1e11), st.floats(0, 1e9))
def test_no_item_is_due_early(now: float, delay: float) -> None:
    """One without a delay is due at the very moment; one with a delay less than 2 ms after it, and never before."""
    assert due(delayed_prefix(now, 0.0)) == max(1, milliseconds(now))
    at = due(delayed_prefix(now, delay) + "0000000001") if delay else milliseconds(now)
    assert delay == 0 or (now + delay) * 1000 <= at < (now + delay) * 1000 + 2


def test_names_are_curators() -> None:
    """A priority is written as by Curator's `priorityToString`; one of more than 32 bits is refused."""
    assert [item_prefix(n) for n in (0, 5, 2**31 - 1)] == ["queue-100000000", "queue-100000005", "queue-17FFFFFFF"]
    assert [item_prefix(n) for n in (-1, -(2**31))] == ["queue-0FFFFFFFF", "queue-080000000"]
    for beyond in (2**31, -(2**31) - 1):
        with pytest.raises(OverflowError):
            item_prefix(beyond)


def test_children_that_are_no_items() -> None:
    """A node that does not begin as an item is left alone; an item of another order is an error that names it."""
    assert items("/q", ["queue-0000000002", "x", "lock-0000000001"], FIFO) == ["queue-0000000002"]
    with pytest.raises(ForeignNodeError, match="queue-1000000050000000001"):
        items("/q", ["queue-1000000050000000001"], FIFO)
    with pytest.raises(ForeignNodeError, match="priority"):
        items("/q", ["queue-|18BCFE5687B|0000000001"], PRIORITY)
    with pytest.raises(ForeignNodeError):
        items("/q", ["queue--2147483648"], FIFO)


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=4), st.integers(-(2**31), 2**31 - 1))
def test_the_data_of_items(payloads: list[bytes], base: int) -> None:
    """A framed item is unframed again; the bytes are those of Curator's `ItemSerializer`, which ignores the base."""
    assert unframe("/q", frame(payloads)) == (payloads, 0)
    assert unframe("/q", frame(payloads, base)) == (payloads, base)


def test_the_bytes_of_items() -> None:
    """A version, an entry for each item with its length, and an end."""
    assert frame([b"ab", b""]) == b"\0\1\0\1" + b"\1\0\0\0\2ab" + b"\1\0\0\0\0" + b"\2"
    assert frame([b""], -2) == b"\0\1\0\1" + b"\1\0\0\0\0" + b"\2" + b"\xff\xff\xff\xfe"


@given(st.binary(max_size=20))
def test_other_data(data: bytes) -> None:
    """Data that is no item's is an error that shows it, and never another one."""
    for each in (data, frame([b"x"])[:-1], frame([b"x"]) + data + b"\0", b"\0\1\0\1" + data):
        with suppress(ForeignNodeError):
            payloads, base = unframe("/q", each)
            assert frame(payloads, base) == (each if base else each.removesuffix(b"\0\0\0\0"))


def test_the_header() -> None:
    """The queue's node says its order, size and state; Curator leaves none; anything else is foreign."""

    def node(data: bytes) -> Node:
        return Node(data, 0, 0.0, 0)

    header = Header("fifo", 10)
    assert header.data == b"fifo 10 open"
    assert Header.of("/q", node(header.data)) == header
    assert Header.of("/q", node(b"lifo 0 shutdown")) == ("lifo", 0, "shutdown")
    assert Header.of("/q", node(b"")) is None
    for data in (b"fifo", b"fifo x open", b"3 set", b"fifo 1 open "):
        with pytest.raises(ForeignNodeError, match="queue's is like"):
            Header.of("/q", node(data))
    header._replace(state="shutdown").check("/q", header)
    for other in (Header("lifo", 10), Header("fifo", 9)):
        with pytest.raises(ValueError, match="maxsize=10, not as"):
            header.check("/q", other)


@pytest.mark.fault(348)
@pytest.mark.parametrize("order", [FIFO, LIFO], ids=lambda order: order.name)
def test_a_drain_begins_where_no_consumer_is(order: Order) -> None:
    """Consumers go on, so the item that they take next goes with the last request."""
    names = [f"queue-{n:010d}" for n in range(1_000)]
    at = QueueLayout("/queue", order)
    steps = drain(QueueView(at, lambda: 0.0))
    next(steps)
    asked = steps.send((None, Node(at.header.data, 1, 0.0, 0), names, ()))
    deleted: list[list[str]] = []
    while type(asked) is not op.Discard:
        answer = None
        if type(asked) is op.NewTicket:
            answer = Ticket("/queue/claims", "_c_x-", Lease(1))
        elif type(asked) is op.Multi:
            deleted.append([each.path for each in asked.operations if each.path.startswith(f"{at.items}/")])
        asked = steps.send(answer)
    first = f"{at.items}/{items('/queue', names, order)[0]}"
    assert [first in some for some in deleted] == [False] * (len(deleted) - 1) + [True]
    assert sorted(name for each in deleted for name in each) == [f"{at.items}/{name}" for name in names]
