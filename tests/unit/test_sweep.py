"""Old receipts: how many requests a new client's look for them takes."""

from __future__ import annotations

from typing import Any

import pytest

from zkconcurrent._arguments.limits import most_together
from zkconcurrent._protocol.operations import BadVersion, Children, Delete, Get, Node
from zkconcurrent._recipes.receipts import UNTOUCHED, sweep

NOW = 10 * UNTOUCHED
MINE = "/n/receipts/0500"


def begun(czxid: int, children: int) -> tuple[Any, Any]:
    """Return a client's look, and what it asks for first; None if it does not look."""
    looking = sweep(MINE, Node(b"", 1, 0.0, 0, children=children), Node(b"", czxid, NOW, 0))
    return looking, next(looking, None)


@pytest.mark.fault(246)
@pytest.mark.parametrize(("children", "lists"), [(1, 1), (999, 1), (1_000, 2), (100_000, 200), (10**6, 2_000)])
def test_one_client_in_so_many_lists(children: int, lists: int) -> None:
    """Few receipts are listed by each new client; of many, one in n / 500 clients lists all n."""
    asked = [begun(czxid, children)[1] for czxid in range(4_000)]
    assert asked.count(Children("/n/receipts")) == 4_000 // lists
    assert asked.count(None) == 4_000 - 4_000 // lists


@pytest.mark.fault(246)
def test_a_piece_of_many() -> None:
    """One look is three flights, of a thousand reads and deletes at most, from its own receipt's name on."""
    looking, _ = begun(0, 5_000)
    names = [f"{n:04}" for n in range(5_000)]
    reads = looking.send(names)
    most = most_together("/n/receipts")
    assert reads == tuple(Get(f"/n/receipts/{n:04}") for n in range(501, 501 + most))
    old, new = Node(b"", 1, 0.0, 0, mtime=NOW - UNTOUCHED - 1, version=3), Node(b"", 1, 0.0, 0, mtime=NOW - UNTOUCHED)
    deletes = looking.send([old, None, new, old, *[new] * (len(reads) - 4)])
    assert deletes == tuple(Delete(f"/n/receipts/{name}", version=3) for name in ("0501", "0504"))
    with pytest.raises(StopIteration):
        looking.throw(BadVersion())  # one is in use
