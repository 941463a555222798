"""The demo's store: it knows nothing of locks, and yet no holder that was overtaken can write into it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from store import StaleTokenError, Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """One that is empty."""
    store = Store(tmp_path / "counter")
    yield store
    store.close()


def test_overtaken_writer_is_refused(store: Store) -> None:
    """A successor's read is enough to shut its predecessor out, before it has written anything itself."""
    store.read(token=10)
    store.read(token=11)
    with pytest.raises(StaleTokenError):
        store.write(1, token=10)
    assert store.read(token=11).number == 0


def test_two_writers_can_lose_an_increment(store: Store) -> None:
    """With one token for all, as without a lock, of two that have read the same number one is lost."""
    for number in [store.read(token=0).number, store.read(token=0).number]:
        store.write(number + 1, token=0)
    assert store.read(token=0).number == 1
