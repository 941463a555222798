"""The lease in random histories: it never outlives its session; and how long it lasts."""

from __future__ import annotations

import math
from random import Random

import pytest

from tests.simulation.subjects.lease import TICK, History, Plan, Request, history
from tests.simulation.world.run import TIMES
from zkconcurrent._protocol.session_lease import MARGIN, SURVIVED

HISTORIES = 2000
FAULTS = {"cut off", "usurped", "crashed", "reconnected"}


@pytest.mark.fault(44, 45)
def test_the_lease_never_outlives_the_session() -> None:
    """With any delay, standstill, cut or election of another leader, others get in after the lease has ended."""
    ended, closest = 0, math.inf
    happened: set[str] = set()
    for seed in range(HISTORIES * TIMES):
        it = history(seed)
        ended += it.happened["ended"]
        closest = min(closest, it.closest)
        happened.update(it.happened)
    assert happened >= FAULTS
    assert ended > HISTORIES * TIMES / 4
    assert closest < MARGIN / 2, "the histories are too kind to tell"


class Calm(History):
    """A history without faults, or with one outage.

    Attributes:
        gaps: when the lease had run out before it was proved again.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(Random(1), plan)
        self.gaps: list[float] = []
        self.connect(self.voters[1])
        self.at(0.01, self.client, self.keep)

    def take(self, request: Request) -> None:
        """Look whether the lease has run out."""
        if 0 < self.lease.end <= self.clock(self.now):
            self.gaps.append(self.now)
        super().take(request)

    def outage(self, begin: float, length: float) -> bool:
        """Cut the client off for a while; return whether the lease has survived it."""
        self.holding = True
        self.at(begin, self.client, self._out, length)
        self.run(begin + 2 * self.plan.timeout)
        return not self.gaps and self.runs

    def _out(self, length: float) -> None:
        assert self.conn is not None
        self._cut(self.conn.up, length)
        self._cut(self.conn.down, length)


@pytest.mark.parametrize("tick", [None, TICK], ids=["tick unknown", "tick known"])
@pytest.mark.parametrize("timeout", [4.0, 10.0])
def test_nothing_is_lost_in_calm(timeout: float, tick: float | None) -> None:
    """The lease of a client that holds and does nothing never runs out; nor do holds that begin after idleness wait."""
    it = Calm(Plan(timeout, tick, delay=0.01, jitter=0.01, faults=False))
    it.run(3.1 * timeout)
    assert not it.runs
    it.hold(True)
    it.run(3.1 * timeout + 0.1)
    assert it.lease.believed(it.now)
    it.gaps.clear()
    it.run(20 * timeout)
    assert it.runs
    assert not it.gaps


@pytest.mark.parametrize("tick", [None, TICK], ids=["tick unknown", "tick known"])
def test_an_outage_that_is_survived(tick: float | None) -> None:
    """A hold survives an outage of this part of the timeout, whenever it begins; hardly a longer one."""
    timeout, began = 10.0, 30.0

    def most(begin: float) -> float:
        least, most = 0.0, 1.0
        while most - least > 0.001:
            length = (least + most) / 2
            if Calm(Plan(timeout, tick, delay=0.002, faults=False)).outage(begin, length * timeout):
                least = length
            else:
                most = length
        return least

    worst = min(most(began + n / 20) for n in range(40))
    assert SURVIVED <= worst <= SURVIVED + 0.05
