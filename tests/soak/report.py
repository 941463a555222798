"""The results of a run, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.soak.checks.data import Record
from tests.soak.checks.history import lateness, recovery
from tests.soak.checks.items import Ledger
from tests.soak.events import What
from tests.soak.keeper import KEEPER
from tests.soak.run import Verdict

SHOWN = 20  # violations told in full


def summary(verdict: Verdict) -> Iterator[str]:
    """Yield the lines of the summary."""
    plan, history = verdict.plan, verdict.history
    counts = Counter(event.what for event in history.events if event.path in history.models)
    holds = history.holds
    processes = {event.process for event in history.events if event.thread}

    yield _line("seed", f"{plan.seed}")
    words = f"{plan.duration:g} s; {plan.places} processes at a time, {len(processes)} in all"
    yield _line("duration", f"{words}; session timeout {plan.session:g} s")
    if history.models:
        refused = f"{counts[What.REFUSED]:,} refused"
        yield _line("operations", f"{counts[What.ASKS]:,} acquires: {counts[What.GRANTED]:,} granted, {refused}")
        by_path = Counter(hold.path for hold in holds)
        yield _line("holds", ", ".join(f"{path} {count:,}" for path, count in sorted(by_path.items())))
        told = sum(hold.told is not None and hold.told == hold.end for hold in holds)  # not by its own end
        yield _line("losses", f"{told:,} told, {counts[What.LOST]:,} calls raised LockLostError")
    for number, (path, stock) in enumerate(history.queues.items()):
        yield _line("" if number else "items", f"{path} {_items(Ledger(history, path, stock))}")
    for number, path in enumerate(history.data):
        calls = Record(history, path).calls
        outcomes = Counter(call.outcome.what.value if call.outcome else "cut off" for call in calls)
        words = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
        yield _line("" if number else "data", f"{path} {words}")
    late = max((lateness(call, history) for call in history.calls), default=0.0)
    yield _line("punctuality", f"no call came back more than {max(late, 0.0):.2f} s after its deadline")
    slowest = max((recovery(history, who) for who in history.threads), default=0.0)
    yield _line("recovery", f"a thread that waited when all was healed waited for {slowest:.1f} s more, at most")
    for server in sorted(verdict.diverged):
        words = "found another digest than its leader's: its reads may be wrong"
        yield _line("service", f"server {server} {words}")
    for number, (kind, count) in enumerate(sorted(Counter(fault.kind for fault in history.faults).items())):
        yield _line("" if number else "faults", f"{count:4} {kind}")
    yield _line("violations", f"{len(verdict.violations)}")


def violations(verdict: Verdict) -> Iterator[str]:
    """Yield each violation with the events around it."""
    for number, violation in enumerate(verdict.violations[:SHOWN], 1):
        yield f"VIOLATION {number}: {violation}"
        if verdict.diverged:
            yield "    It may be the service's fault: its servers' copies differ, and the leader's undoes the others."
        yield from (f"    {line}" for line in verdict.history.around(violation))
    if len(verdict.violations) > SHOWN:
        rest = Counter(violation.rule for violation in verdict.violations[SHOWN:])
        yield "and more: " + ", ".join(f"{count} of {rule}" for rule, count in rest.items())


def _items(ledger: Ledger) -> str:
    """The fates of the items of a queue."""
    items, outcomes = ledger.items.values(), Counter(claim.outcome.what for claim in ledger.claims if claim.outcome)
    ends = Counter(event.what for item in items for event in item.ends if event.process != KEEPER)
    left = Counter(event.what for item in items for event in item.ends if event.process == KEEPER)
    unknown = sum(item.put is not What.PUT for item in items if item.asked is not None and item.put is not What.REFUSED)
    parts = [
        f"{sum(item.put is What.PUT for item in items):,} put, {unknown} perhaps;",
        f"{ends[What.ACKNOWLEDGED]:,} acknowledged, {ends[What.TAKEN]:,} got, {left[What.BURIED]:,} dead,",
        f"{left[What.TAKEN]:,} left,",
        f"{len(ledger.missing)} taken along by the killed;",
        f"of {len(ledger.claims):,} claims {outcomes[What.GAVE_BACK]:,} given back, {outcomes[What.LOST]:,} lost",
    ]
    return " ".join(parts)


def _line(name: str, words: str) -> str:
    return f"  {name:13} {words}"
