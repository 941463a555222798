"""Runs on real servers: a minute under faults breaks no rule, and a broken lock is found."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from tests.helpers.eventually import eventually
from tests.soak.checks.data import Record
from tests.soak.checks.history import GRACE
from tests.soak.checks.items import Ledger
from tests.soak.events import Event, Logs, What, clock
from tests.soak.faults import Networks, Processes, Servers
from tests.soak.report import summary, violations
from tests.soak.run import Plan, Verdict, judge, run
from tests.soak.testbed import Testbed
from tests.soak.workers import Workers


def told(verdict: Verdict) -> str:
    """Everything there is to say, for when it is not as it should be."""
    return "\n".join([*summary(verdict), *violations(verdict)])


@pytest.mark.fault(12, 30, 38, 58)
@pytest.mark.long
def test_a_run_under_faults(tmp_path: Path) -> None:
    """With any fault, nobody is inside who must not be, everybody is told, and everybody goes on."""
    for seed in (7, 8, 9):
        folder = tmp_path / str(seed)
        folder.mkdir()
        verdict = run(Plan(seed, duration=45), folder)
        # A server that lost writes in a restart, and then leads, brings back what was released, acknowledged or
        # replaced; that is the service's fault, and shows nothing of the library.
        if not (verdict.violations and verdict.diverged):
            break
    assert verdict.violations == [], told(verdict)
    injected = Counter(fault.kind for fault in verdict.history.faults)
    for track, least in ((Networks, 3), (Processes, 2), (Servers, 3)):  # a busy machine gets to fewer
        assert len(injected.keys() & set(track(0, None, None).kinds)) >= least, told(verdict)  # type: ignore[arg-type]
    by_path = Counter(hold.path for hold in verdict.history.holds)
    assert set(by_path) == set(verdict.history.models), told(verdict)
    assert len(verdict.history.holds) > 200, told(verdict)
    for path, stock in verdict.history.queues.items():
        ledger = Ledger(verdict.history, path, stock)
        outcomes = {claim.outcome.what for claim in ledger.claims if claim.outcome}
        assert outcomes >= {What.ACKNOWLEDGED, What.GAVE_BACK}, told(verdict)
        assert any(item.put is What.PUT and item.ends for item in ledger.items.values()), told(verdict)
    for path in verdict.history.data:
        outcomes = {call.outcome.what for call in Record(verdict.history, path).calls if call.outcome}
        assert What.ANSWERED in outcomes, told(verdict)


@pytest.mark.parametrize("workload", ["lock", "deaf"])
@pytest.mark.long
def test_a_loss_that_is_not_told(workload: str, tmp_path: Path) -> None:
    """Holders that can't reach the server are told before others are let in; one that is not told is found."""
    plan = Plan(seed=1, places=2, session=6, workload=workload)
    with Testbed(2, alone=True) as testbed, Workers(testbed, tmp_path, 1, plan.session, workload, 2) as workers:
        workers.wait_until_connected()
        logs, last = Logs(tmp_path), {place: Event(0, "", 0, What.LEFT) for place in workers.places}

        def look(place: int) -> Event:
            for event in logs.news(What.GRANTED, What.LEAVES):
                last[int(event.process[0])] = event
            return last[place]

        def stays() -> bool:
            workers.stay(60, 1)
            event = look(1)
            return event.what is What.GRANTED and clock() - event.at > 1.5  # a party that leaves has left by then

        eventually(stays, "a holder that stays")
        cut = clock()
        for proxy in testbed.proxies[0]:
            proxy.refuse()
            proxy.cut()
        eventually(lambda: look(2).at > cut, "a grant to the other process")
        both = clock()
        eventually(lambda: clock() - both > GRACE + 3, "a pause longer than any that excuses a process")
        for proxy in testbed.proxies[0]:
            proxy.resume()
        eventually(lambda: Logs(tmp_path).news(What.TOLD), "the loss of a hold, at last")
        healed = clock()
        assert workers.finish()
        workers.end()
    verdict = judge(plan, Logs(tmp_path).news(), [], healed, [])
    rules = {violation.rule for violation in verdict.violations}
    assert rules == (set() if workload == "lock" else {"exclusion"}), told(verdict)


def test_the_order_of_faults() -> None:
    """It is a function of the seed, and all kinds take turns."""

    def order(seed: int) -> list[str]:
        track = Servers(seed, None, None)  # type: ignore[arg-type]
        return list(islice(track.order(), 3 * len(track.kinds)))

    assert order(7) == order(7) != order(8)
    kinds = set(order(7))
    assert all(set(order(7)[i : i + len(kinds)]) == kinds for i in range(0, 3 * len(kinds), len(kinds)))
