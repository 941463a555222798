"""The lease, step by step: its proofs, its end, and when a hold may begin on it."""

from __future__ import annotations

import math

import pytest

from zkconcurrent._protocol.lease import MARGIN, NEVER, THIN, Exchange, Lease, proved

T = 10.0
GAP = 0.3 * T
LASTS = (1 - MARGIN) * T


def opened(connected: float = 100.0, timeout: float = T, tick: float | None = None) -> Lease:
    """Return the lease of a session whose connection was asked for then."""
    lease = Lease(1, tick)
    lease.opened(connected, timeout)
    return lease


@pytest.mark.parametrize(
    ("log", "heard"),
    [
        pytest.param([], 100.0, id="nothing before it"),
        pytest.param([(101, 102)], 100.0, id="no X"),
        pytest.param([(101, 102), (106, 107)], 101.0, id="q and X"),
        pytest.param([(101, 102), (105, 106)], 101.0, id="just a gap between them"),
        pytest.param([(101, 102), (104.9, 106)], 100.0, id="less than a gap between them"),
        pytest.param([(101, 102), (106, 110)], 100.0, id="X answered as the write was sent"),
        pytest.param([(101, 102), (106, 109.9)], 101.0, id="X answered just before"),
        pytest.param([(101, 102), (103, 104), (107, 108)], 103.0, id="the newest q"),
        pytest.param([(101, 102), (106, 107), (109, 112)], 101.0, id="one is answered after the write was sent"),
        pytest.param([(90, 91), (106, 107)], 100.0, id="q before the connection was asked for"),
    ],
)
def test_what_a_write_proves(log: list[tuple[float, float]], heard: float) -> None:
    """Of a write sent at 110: when q was sent, answered a gap before X was sent, which was answered by then."""
    newest_first = [Exchange(*each) for each in reversed(log)]
    assert proved(110.0, newest_first, 100.0, 3.0) == heard


@pytest.mark.parametrize(
    ("tick", "gap", "beat"),
    [
        pytest.param(None, 0.3 * T, T / 9, id="unknown"),
        pytest.param(2.0, 1.2, T / 6, id="known"),
        pytest.param(T / 2, 0.3 * T, T / 9, id="known, but as long as it may be"),
    ],
)
def test_the_gap_and_the_beat(tick: float | None, gap: float, beat: float) -> None:
    """The gap is more than half a tick; a client that knows it to be short sends fewer heartbeats."""
    lease = opened(tick=tick)
    assert lease.gap == pytest.approx(gap)
    assert lease.beat == pytest.approx(beat)


def test_nothing_is_proved_at_first() -> None:
    """There is no lease by default: not when the session is there, nor by any number of syncs."""
    lease = Lease(1)
    assert lease.end == NEVER
    assert not lease.believed(0.0)
    assert lease.renewable == math.inf
    lease.opened(100.0, T)
    assert (lease.heard, lease.end) == (NEVER, NEVER)
    for n in range(20):
        lease.answered(100.0 + n, 100.5 + n, write=False)
        assert lease.end == NEVER
        assert not lease.believed(100.5 + n)


def test_the_first_write_proves_what_opened_the_connection() -> None:
    """It is the leader itself that answered that; the first acquire of a program needs no more."""
    lease = opened()
    lease.answered(100.1, 100.2, write=True)
    assert lease.heard == 100.0
    assert lease.end == pytest.approx(100.0 + LASTS)
    assert lease.renewable == pytest.approx(100.2 + GAP)
    assert lease.believed(100.2)


def test_a_hold_begins_on_what_can_be_renewed_in_time() -> None:
    """A lease by the opening of an old connection alone, which ends before it can be renewed, is none to begin with."""
    for sent, believed in (105.0, True), (107.0, False):
        lease = opened()
        lease.answered(sent, sent + 0.1, write=True)
        assert lease.end == pytest.approx(100.0 + LASTS)
        assert lease.believed(sent + 0.1) is believed
    lease.answered(111.0, 111.1, write=True)  # X: a gap after the first was answered
    assert not lease.believed(111.1)
    lease.answered(111.2, 111.3, write=True)
    assert lease.heard == 107.0
    assert lease.believed(111.3)


def test_where_the_connection_s_begin_is_unknown() -> None:
    """Three requests prove the first lease: an old one, one a gap behind that, and a write behind that."""
    lease = opened(NEVER)
    lease.answered(100.0, 100.1, write=False)
    lease.answered(100.2, 100.3, write=True)
    assert lease.end == NEVER
    assert not lease.believed(100.3)
    assert lease.renewable == pytest.approx(100.1 + GAP)
    lease.answered(lease.renewable, 103.2, write=False)
    lease.answered(103.2, 103.3, write=True)
    assert lease.end == NEVER  # X was answered as it was sent, not before
    lease.answered(103.4, 103.5, write=True)
    assert lease.heard == 100.0
    assert lease.end == pytest.approx(100.0 + LASTS)
    assert lease.believed(103.5)


def test_a_hold_ends_with_its_lease() -> None:
    """Nothing is believed at its end, nor after it, until a write is answered that proves more."""
    lease = opened()
    lease.answered(100.1, 100.2, write=True)
    assert lease.believed(lease.end - 0.001)
    assert not lease.believed(lease.end)
    lease.answered(120.0, 120.1, write=True)  # X; there is nothing between this and what is too old
    lease.answered(120.2, 120.3, write=True)
    assert lease.heard == 100.1
    assert not lease.believed(120.3)
    lease.answered(123.2, 123.3, write=False)
    lease.answered(123.4, 123.5, write=True)
    assert lease.heard == 120.0
    assert lease.believed(123.5)


def test_a_hold_begins_with_time_for_a_renewal() -> None:
    """Fault 221: an idle client's slow requests prove a lease that is almost over: no hold is to be lost at once."""
    lease = opened()
    for n in range(6):
        lease.answered(100.0 + n * T / 3, 100.0 + n * T / 3 + T / 20, write=False)
    sent = 100.0 + 6 * T / 3 - T / 10
    lease.answered(sent, sent + T / 20, write=True)
    assert lease.heard == pytest.approx(100.0 + 3 * T / 3)  # the next but one was answered too late to be a q
    assert lease.end > sent + T / 20
    assert not lease.believed(sent + T / 20)
    assert lease.believed(lease.end - lease.beat - 0.001)
    assert not lease.believed(lease.end - lease.beat)
    doubted = lease.heard
    assert not lease.believed(lease.end - lease.beat, doubted)
    lease.answered(sent + T / 10, sent + T / 5, write=True)
    assert lease.heard > doubted
    assert lease.believed(lease.end - 0.001, doubted)  # on a slow link, no better proof may ever come


def test_beats_renew_it() -> None:
    """With a write each beat, answered at once, the lease runs on for at least (4/9 - margin) of the timeout."""
    lease, now, least = opened(), 100.0, math.inf
    for _ in range(100):
        if now > 110:
            least = min(least, lease.end - now)
        lease.answered(now, now + 0.001, write=True)
        now += lease.beat
    assert 4 / 9 - MARGIN - 0.01 < least / T < 4 / 9 - MARGIN + 0.01


def test_a_busy_client() -> None:
    """Of many writes some are judged and kept; for that the lease is older by hundredths of the timeout at most."""
    lease, now, judged = opened(), 100.0, set[float]()
    while now < 130:
        lease.answered(now, now + 0.001, write=True)
        if now > 104:
            assert lease.heard >= now - GAP - 4 * T / THIN
        judged.add(lease.heard)
        assert len(lease._log) <= THIN + 3
        now += 0.01
    assert len(judged) <= 30 / T * THIN + 1


def test_a_write_counts_where_the_lease_has_run_out() -> None:
    """It is judged then, however short the time since the last."""
    lease = opened(90.0)
    lease.answered(100.0, 100.1, write=False)
    lease.answered(120.0, 120.01, write=True)
    assert lease.heard == 90.0
    assert lease.end < 120.0
    lease.answered(120.02, 120.03, write=True)
    assert lease.heard == 100.0  # q, answered a gap before X, the write before


def test_another_connection() -> None:
    """The last connection's replies renew nothing on the new one; the lease stays, and the reconnect proves more."""
    lease = opened()
    for n in range(10):
        lease.answered(100.0 + n, 100.1 + n, write=True)
    heard, end = lease.heard, lease.end
    assert heard == 104.0
    lease.opened(109.5, T)
    assert (lease.heard, lease.end, lease.renewable) == (heard, end, math.inf)
    assert not lease.believed(110.0)  # nothing was sent yet that could renew it
    lease.answered(110.0, 110.1, write=True)
    assert lease.heard == 109.5
    assert lease.believed(110.1)


def test_another_connection_proves_no_less() -> None:
    """The lease of one session only grows, also where the next connection's begin is unknown."""
    lease = opened()
    lease.answered(100.1, 100.2, write=True)
    lease.opened(NEVER, T)
    lease.answered(101.0, 101.1, write=True)
    assert lease.heard == 100.0


def test_a_shorter_timeout() -> None:
    """It counts from the reconnect on, also for what was proved before; a longer one later changes nothing."""
    lease = opened(timeout=40.0)
    lease.answered(100.1, 100.2, write=True)
    assert lease.end == pytest.approx(100 + 0.98 * 40)
    lease.opened(105.0, 4.0)
    assert lease.timeout == 4.0
    assert lease.gap == pytest.approx(0.3 * 4.0)
    assert lease.beat == pytest.approx(4.0 / 9)
    assert lease.end == pytest.approx(100 + 0.98 * 4)  # which is over
    assert not lease.believed(105.1)
    lease.opened(110.0, 40.0)
    assert lease.timeout == 4.0
    lease.answered(110.1, 110.2, write=True)
    assert lease.end == pytest.approx(110 + 0.98 * 4)


def test_it_ends_with_its_session() -> None:
    """For good: an answer that comes late, or another connection, begins none."""
    lease = opened()
    lease.answered(100.1, 100.2, write=True)
    lease.ended()
    assert lease.end == NEVER
    assert not lease.believed(100.3)
    lease.answered(104.0, 104.1, write=True)
    lease.answered(104.2, 104.3, write=True)
    lease.opened(105.0, T)
    lease.answered(105.1, 105.2, write=True)
    assert lease.end == NEVER
    assert not lease.believed(105.3)


def test_the_margin_is_the_client_s() -> None:
    """A machine whose clock may run slower than that is told so."""
    lease = Lease(1, margin=0.1)
    lease.opened(100.0, T)
    lease.answered(100.1, 100.2, write=True)
    assert lease.end == pytest.approx(109.0)
