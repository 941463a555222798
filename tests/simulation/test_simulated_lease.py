"""Leases of the whole client, while servers disagree about who leads, in schedules that strike at its proofs.

`test_lease.py` asks the rule alone, in many more histories, and finds each weaker one; here are those that the library
could be brought to by a change elsewhere.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.world.run import Run, runs
from tests.simulation.world.schedule import LEASE_KINDS, lease_schedule


def run_of(seed: int) -> Run:
    """Return the run of a seed."""
    return Run(lease_schedule(Random(seed)))


@pytest.mark.fault(44, 45)
def test_whatever_strikes() -> None:
    """No lease runs when its session is over, with any leader, and with any messages late or lost."""
    injected = {kind for run in runs(Run, lambda seed: lease_schedule(Random(seed)), 150) for kind in run.injected}
    assert injected >= set(LEASE_KINDS)


MUTANTS = [
    bug(
        "the lease is as long as the timeout and a quarter",
        "_protocol.lease:Lease._set_end",
        "(1 - self._margin)",
        "1.25",
    ),
    bug(
        "the heartbeat is a sync, which proves what a write does",
        "_kazoo.leases:Leases._note_sync",
        "write=False",
        "write=True",
        ("_engine.heartbeat:Heartbeat._prove", "self._client.registry.known()", "[]"),
    ),
    bug(
        "a write counts from its own sending",
        "_protocol.lease:proved",
        "return max(each.sent, connected)",
        "return write_sent",
    ),
    bug(
        "a connection is proof enough",
        "_protocol.lease:Lease.opened",
        "self._set_end()",
        "self.heard = max(self.heard, connected)\n    self._set_end()",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, run_of)
