"""Until when a recipe may wait."""

from __future__ import annotations

import math

import pytest

from zkconcurrent._engine.patience import CLEAN_UP_PATIENCE, OUTAGE_MARGIN, Patience
from zkconcurrent._protocol.operations import DeadlinePassed, OutOfReach


def test_no_deadline() -> None:
    """Without a deadline, a recipe waits for ever."""
    patience = Patience()
    assert patience.limit() == math.inf
    patience.begin_wait(1e9)
    patience.await_proof(5.0)
    assert patience.limit() == math.inf
    assert patience.cutoff is None


def test_before_the_first_wait() -> None:
    """The first replies are waited for past the deadline, if theirs is later; the first wait applies it."""
    patience = Patience(10.0, 13.0)
    assert patience.limit() == 13.0
    patience.begin_wait(9.9)
    assert patience.limit() == 10.0
    for late in (patience, Patience(10.0, 13.0)):  # the first replies may have come after the deadline
        with pytest.raises(DeadlinePassed):
            late.begin_wait(10.0)
    assert Patience(20.0, 13.0).limit() == 20.0


def test_a_proof() -> None:
    """A proof of the lease is waited for as the first replies, never for a shorter time than these."""
    patience = Patience(10.0, 13.0)
    patience.await_proof(12.0)
    assert patience.limit() == 13.0
    patience.await_proof(15.0)
    assert patience.limit() == 15.0
    patience.begin_wait(9.0)
    patience.await_proof(16.0)
    assert patience.limit() == 10.0


def test_a_firm_request() -> None:
    """After the first wait, too, a request may have its reply awaited past the deadline."""
    patience = Patience(10.0, 13.0)
    patience.begin_wait(9.0)
    patience.await_replies(14.0)
    assert patience.limit() == 14.0
    patience.begin_wait(9.5)
    assert patience.limit() == 10.0


def test_clean_up() -> None:
    """Once the deadline was raised, the recipe has a moment; then it is raised again. The deadline stays known."""
    patience = Patience(10.0, 13.0)
    patience.begin_clean_up(11.0)
    assert patience.limit() == patience.cutoff == 11.0 + CLEAN_UP_PATIENCE
    assert patience.deadline == 10.0
    patience.begin_wait(11.0)
    with pytest.raises(DeadlinePassed):
        patience.begin_wait(11.0 + CLEAN_UP_PATIENCE)


def test_an_outage() -> None:
    """An outage counts from the first look at it, and a connection ends it."""
    patience = Patience()
    assert patience.reachable_by(1.0, True, 3.0) == math.inf
    assert patience.reachable_by(2.0, False, 3.0) == 5.0 + OUTAGE_MARGIN
    assert patience.reachable_by(5.0, False, 3.0) == 5.0 + OUTAGE_MARGIN
    with pytest.raises(OutOfReach):
        patience.reachable_by(5.0 + OUTAGE_MARGIN, False, 3.0)
    assert patience.reachable_by(6.0, True, 3.0) == math.inf
    assert patience.reachable_by(7.0, False, 3.0) == 10.0 + OUTAGE_MARGIN


@pytest.mark.parametrize(("held", "timeout", "most"), [(True, 12.0, 2.0), (False, 12.0, 0.1), (False, 0.3, 0.05)])
def test_how_long_a_delete_is_waited_for(held: bool, timeout: float, most: float) -> None:
    """It counts from the deadline, if that has passed: the waits for several nodes do not add up."""
    assert Patience().cleaned_up_by(5.0, timeout, held=held) == pytest.approx(5.0 + most)
    assert Patience(9.0).cleaned_up_by(5.0, timeout, held=held) == pytest.approx(5.0 + most)
    assert Patience(4.0).cleaned_up_by(5.0, timeout, held=held) == pytest.approx(4.0 + most)
