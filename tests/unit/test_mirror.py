"""The copy of a `Dict` or `Set`: neither a signal handler's write nor a slow read takes anything back."""

from __future__ import annotations

import threading

import pytest

from zkconcurrent._protocol.operations import Node
from zkconcurrent._recipes.map import mirror as mirrors
from zkconcurrent._recipes.map.mirror import MapLayout, Mirror


class Call:
    """A call under way."""


def read_slowly() -> bool:
    """Delete an entry while a read that was answered before is yet to be taken; return whether it comes back."""
    mirror, call = Mirror(MapLayout("/a", "Dict"), threading.RLock()), Call()
    mirror.keep("k", b"", 5)
    reading = mirrors.read(mirror, ["k"], mirror)
    next(reading)
    mirror.note_begun(call)
    mirror.drop("k", 7)
    mirror.note_ended(call)
    with pytest.raises(StopIteration):
        reading.send([(Node(b"", 5, 0.0, 0, 0, 0, 0.0, mzxid=5), 6)])
    assert not mirror.tombstones
    return "k" in mirror.entries


def test_a_slow_read() -> None:
    """A name deleted meanwhile stays deleted. Random runs hardly ever keep a thread for so long at that place."""
    assert not read_slowly()
