"""A short run of what the search for deadlocks promises, with clients in processes of their own."""

from __future__ import annotations

import pytest

from tests.soak.deadlocks import contention, rings


@pytest.mark.long
def test_rings() -> None:
    """Each ring of two to eight processes has one victim, which is told of the whole ring."""
    report, kept = rings(14, 4)
    assert kept, report


@pytest.mark.long
def test_contention() -> None:
    """Waits of threads that take locks in one order are searched, and nothing is found."""
    report, kept = contention(20, 3)
    assert kept, report
