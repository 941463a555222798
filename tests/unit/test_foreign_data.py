"""The data of nodes that other programs have written: no data cause a crash."""

from __future__ import annotations

import pytest

from zkconcurrent import ForeignNodeError
from zkconcurrent._protocol.operations import Names, Node
from zkconcurrent._recipes import semaphore, value
from zkconcurrent._recipes.barrier_state import ArrivalIndexes, BarrierContent
from zkconcurrent._recipes.destroy import named
from zkconcurrent._recipes.detached import parse
from zkconcurrent._recipes.map.mirror import MapLayout
from zkconcurrent._recipes.nodes import PathCheck
from zkconcurrent._recipes.queue.order import member_count
from zkconcurrent._recipes.semaphore import permits_wanted
from zkconcurrent._threads.base.contender import Contender

pytestmark = pytest.mark.fault(21)

DATA = [
    b"",
    b"\xff",
    b"null",
    b'"text"',
    b"[" * 100_000,  # of these, some versions of Python raise a RecursionError
    b'{"owner":' * 100_000,
    b'{"permits": Infinity, "try": false, "unfinished": Infinity, "parties": Infinity}',
    b'{"permits": 1e999, "try": false, "unfinished": -1e999, "seats": {"1": 1e999}, "gone": []}',
    b'{"permits": NaN, "try": false, "unfinished": NaN, "seats": [], "gone": []}',
    b'{"permits": ' + b"9" * 5000 + b', "unfinished": ' + b"9" * 5000 + b"}",
    b'{"owner": "job", "token": 1e999}',
    b'{"owner": {}, "token": 1}',
    b'{"parties": "2", "generation": 0, "failed": [], "acting": false}',
    b'{"parties": 2, "generation": 0, "failed": [], "acting": 0}',
    b'{"parties": 2, "generation": 0, "failed": []}',
]


@pytest.mark.parametrize("data", DATA)
def test_none_is_a_crash(data: bytes) -> None:
    """They count as those of a node that says nothing."""
    node = Node(data, 7, 0.0, 0)
    said = Contender.of("/path", "x-lock-0000000000", node)
    assert (said.pid, said.thread, said.owner, said.token) == (None, None, None, 7)
    assert (said.host or "") == data.decode("utf-8", "replace")
    assert parse("x-lock-0000000000", node) == ("x-lock-0000000000", 7, None)
    assert permits_wanted(data, 1) == (1, False)
    assert member_count(node) == 0
    with pytest.raises(ForeignNodeError, match="not a barrier's"):
        BarrierContent.parse("/path", node)
    if data:  # nothing is what a generation's node has at first
        with pytest.raises(ForeignNodeError, match="not a barrier's"):
            ArrivalIndexes.parse("/path", 2, node)


def test_what_another_kind_has_left() -> None:
    """Each kind refuses it, in its own words."""
    layout = MapLayout("/path", "Dict")
    layout.check(Node(b"dict persistent", 1, 0.0, 0))
    with pytest.raises(ValueError, match="all clients must give the same"):
        layout.check(Node(b"dict ephemeral", 1, 0.0, 0))
    with pytest.raises(ForeignNodeError, match="that of an Event, but a Dict's is"):
        layout.check(Node(b"7 set", 1, 0.0, 0))
    names = Names([])
    names.data_length = 7
    with pytest.raises(ForeignNodeError, match="7 bytes of data"):
        PathCheck("/path", "Semaphore").check_listing([names])
    looking = value.read_value(value.ValueLayout("/path", "AtomicLong", b"", 8))
    next(looking)
    with pytest.raises(ForeignNodeError, match="has 8 bytes"):
        looking.send((None, Node(b"7", 1, 0.0, 0)))
    with pytest.raises(ValueError, match="there is no semaphore"):
        semaphore.shared(semaphore.SemaphoreLayout("/path", None, PathCheck("/path", "Semaphore")))
    with pytest.raises(ForeignNodeError, match="a Semaphore's value"):
        semaphore.parse(
            semaphore.SemaphoreLayout("/path", 1, PathCheck("/path", "Semaphore")), Node(b"many", 1, 0.0, 0)
        )


def test_users_of_other_programs() -> None:
    """The error of a `destroy` names them by what their nodes say."""
    assert named([("/p/lock", Node(b"10.0.0.7", 1, 0.0, 255))]) == "session 0xff, which says b'10.0.0.7' (/p/lock)"
