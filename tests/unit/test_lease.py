"""The lease, step by step: its proofs, its end, and when a hold may begin on it."""

from __future__ import annotations

import itertools
import math

import pytest

from zkconcurrent._protocol.session_lease import MARGIN, NEVER, THIN, Exchange, Lease, proved

T = 10.0
GAP = 0.3 * T
LASTS = (1 - MARGIN) * T


def opened(
    connected: float = 100.0, timeout: float = T, tick: float | None = None, survive: float | None = None
) -> Lease:
    """Return the lease of a session whose connection was asked for then."""
    lease = Lease(1, tick, survive=survive)
    lease.note_opened(connected, timeout)
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
    ("tick", "survive", "gap", "spacing", "beat"),
    [
        pytest.param(None, None, 0.3 * T, 0.26 * T, 0.26 * T / 3, id="unknown"),
        pytest.param(1.0, None, 0.6, 0.5 * T, T / 10, id="known"),
        pytest.param(T / 2, None, 0.3 * T, 0.26 * T, 0.26 * T / 3, id="known, but as long as it may be"),
        pytest.param(2.0, 2.0, 1.2, LASTS - 3.4, (LASTS - 3.4) / 6, id="a short outage"),
        pytest.param(None, 0.5 * T, 0.3 * T, 0.16 * T, 0.08 * T, id="a long outage"),
        pytest.param(None, T, 0.3 * T, T / 9, T / 9, id="an outage that no hold can survive"),
    ],
)
def test_how_often(tick: float | None, survive: float | None, gap: float, spacing: float, beat: float) -> None:
    """A proof each spacing, by the outage to survive and the gap; and so many beats that one is a spacing after q."""
    lease = opened(tick=tick, survive=survive)
    assert lease.gap == pytest.approx(gap)
    assert lease.spacing == pytest.approx(spacing)
    assert lease.beat == pytest.approx(beat)


def test_nothing_is_proved_at_first() -> None:
    """There is no lease by default: not when the session is there, nor by any number of syncs."""
    lease = Lease(1)
    assert lease.end == NEVER
    assert not lease.believed(0.0)
    assert lease.renewable == math.inf
    lease.note_opened(100.0, T)
    assert (lease.heard, lease.end) == (NEVER, NEVER)
    for n in range(20):
        lease.note_answered(100.0 + n, 100.5 + n, write=False)
        assert lease.end == NEVER
        assert not lease.believed(100.5 + n)


def test_a_hold_begins_on_what_can_be_renewed_in_time() -> None:
    """A lease by the opening of an old connection alone, which ends before it can be renewed, is none to begin with."""
    for sent, believed in (105.0, True), (107.0, False):
        lease = opened()
        lease.note_answered(sent, sent + 0.1, write=True)
        assert lease.end == pytest.approx(100.0 + LASTS)
        assert lease.believed(sent + 0.1) is believed
    lease.note_answered(111.0, 111.1, write=True)  # X: a gap after the first was answered
    assert not lease.believed(111.1)
    lease.note_answered(111.2, 111.3, write=True)
    assert lease.heard == 107.0
    assert lease.believed(111.3)


def test_where_the_connection_s_begin_is_unknown() -> None:
    """Three requests prove the first lease: an old one, one a gap behind that, and a write behind that."""
    lease = opened(NEVER)
    lease.note_answered(100.0, 100.1, write=False)
    lease.note_answered(100.2, 100.3, write=True)
    assert lease.end == NEVER
    assert not lease.believed(100.3)
    assert lease.renewable == pytest.approx(100.1 + GAP)
    lease.note_answered(lease.renewable, 103.2, write=False)
    lease.note_answered(103.2, 103.3, write=True)
    assert lease.end == NEVER  # X was answered as it was sent, not before
    lease.note_answered(103.4, 103.5, write=True)
    assert lease.heard == 100.0
    assert lease.end == pytest.approx(100.0 + LASTS)
    assert lease.believed(103.5)


def test_a_hold_ends_with_its_lease() -> None:
    """Nothing is believed at its end, nor after it, until a write is answered that proves more."""
    lease = opened()
    lease.note_answered(100.1, 100.2, write=True)
    assert lease.believed(lease.end - 0.001)
    assert not lease.believed(lease.end)
    lease.note_answered(120.0, 120.1, write=True)  # X; there is nothing between this and what is too old
    lease.note_answered(120.2, 120.3, write=True)
    assert lease.heard == 100.1
    assert not lease.believed(120.3)
    lease.note_answered(123.2, 123.3, write=False)
    lease.note_answered(123.4, 123.5, write=True)
    assert lease.heard == 120.0
    assert lease.believed(123.5)


@pytest.mark.fault(221)
def test_a_hold_begins_with_time_for_a_renewal() -> None:
    """An idle client's slow requests prove a lease that is almost over: no hold is to be lost at once."""
    lease = opened()
    for n in range(6):
        lease.note_answered(100.0 + n * T / 3, 100.0 + n * T / 3 + T / 20, write=False)
    sent = 100.0 + 6 * T / 3 - T / 10
    lease.note_answered(sent, sent + T / 20, write=True)
    assert lease.heard == pytest.approx(100.0 + 3 * T / 3)  # the next but one was answered too late to be a q
    assert lease.end > sent + T / 20
    assert not lease.believed(sent + T / 20)
    assert lease.believed(lease.end - lease.beat - 0.001)
    assert not lease.believed(lease.end - lease.beat)
    doubted = lease.heard
    assert not lease.believed(lease.end - lease.beat, doubted)
    lease.note_answered(sent + T / 10, sent + T / 5, write=True)
    assert lease.heard > doubted
    assert lease.believed(lease.end - 0.001, doubted)  # on a slow link, no better proof may ever come


@pytest.mark.parametrize("tick", [None, 1.0])
@pytest.mark.parametrize("survive", [None, 1.0, 4.0])
def test_spaced_proofs(tick: float | None, survive: float | None) -> None:
    """With a proof when it is due, the lease runs on for the outage to survive, and a proof comes each spacing."""
    lease, least, proofs, trip = opened(tick=tick, survive=survive), math.inf, list[float](), 0.001
    begun = now = beat = 100.0
    while now < begun + 50 * T:
        if now > begun + 5 * T:
            least = min(least, lease.end - now)
        if now >= lease.due:
            lease.note_answered(now, now + trip, write=False)
            lease.note_answered(now + 2 * trip, now + 3 * trip, write=True)
            proofs.append(now)
        if now >= beat:
            lease.note_answered(now + 3 * trip, now + 4 * trip, write=beat == begun)
            beat += lease.beat
        now += 5 * trip
    target = LASTS - lease.gap - lease.spacing - 2 * T / THIN
    assert survive is None or target == pytest.approx(survive)
    assert target < least < target + 1.5 * T / THIN
    between = [later - earlier for earlier, later in itertools.pairwise(proofs[5:])]
    assert sum(between) / len(between) == pytest.approx(lease.spacing, rel=0.02)


def test_another_connection() -> None:
    """The last connection's replies renew nothing on the new one; the lease stays, and the reconnect proves more."""
    lease = opened()
    for n in range(10):
        lease.note_answered(100.0 + n, 100.1 + n, write=True)
    heard, end = lease.heard, lease.end
    assert heard == 104.0
    lease.note_opened(109.5, T)
    assert (lease.heard, lease.end, lease.renewable) == (heard, end, math.inf)
    assert not lease.believed(110.0)  # nothing was sent yet that could renew it
    lease.note_answered(110.0, 110.1, write=True)
    assert lease.heard == 109.5
    assert lease.believed(110.1)


@pytest.mark.fault(46)
def test_a_shorter_timeout() -> None:
    """It counts from the reconnect on, also for what was proved before; a longer one later changes nothing."""
    lease = opened(timeout=40.0)
    lease.note_answered(100.1, 100.2, write=True)
    assert lease.end == pytest.approx(100 + 0.98 * 40)
    lease.note_opened(105.0, 4.0)
    assert lease.timeout == 4.0
    assert lease.gap == pytest.approx(0.3 * 4.0)
    assert lease.spacing == pytest.approx(0.26 * 4.0)
    assert lease.end == pytest.approx(100 + 0.98 * 4)  # which is over
    assert not lease.believed(105.1)
    lease.note_opened(110.0, 40.0)
    assert lease.timeout == 4.0
    lease.note_answered(110.1, 110.2, write=True)
    assert lease.end == pytest.approx(110 + 0.98 * 4)


def test_it_ends_with_its_session() -> None:
    """For good: an answer that comes late, or another connection, begins none."""
    lease = opened()
    lease.note_answered(100.1, 100.2, write=True)
    lease.note_ended()
    assert lease.end == NEVER
    assert not lease.believed(100.3)
    lease.note_answered(104.0, 104.1, write=True)
    lease.note_answered(104.2, 104.3, write=True)
    lease.note_opened(105.0, T)
    lease.note_answered(105.1, 105.2, write=True)
    assert lease.end == NEVER
    assert not lease.believed(105.3)


def test_the_margin_is_the_client_s() -> None:
    """A machine whose clock may run slower than that is told so."""
    lease = Lease(1, margin=0.1)
    lease.note_opened(100.0, T)
    lease.note_answered(100.1, 100.2, write=True)
    assert lease.end == pytest.approx(109.0)
