"""The proof in the journals: every hold, its effect on the counter, and every rule that was broken."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from journal import Entry, Step


@dataclass(frozen=True)
class Fault:
    """Something done to a worker while it held the lock."""

    kind: Literal["killed", "frozen"]
    worker: int
    thread: int
    pid: int
    token: int
    at: float  # just before it was done
    next_grant: float  # when another worker entered
    woken: float | None = None  # when the worker could go on, if it ever could


@dataclass(frozen=True)
class Hold:
    """One stay in the critical section.

    Invariant: `end` is never later than the instant at which the lock may pass on, so a lock that works never shows an
    overlap: it is taken before the call of `release`, before the kill or freeze, or when `on_lost` was called.
    """

    worker: int
    thread: int
    token: int
    start: float
    end: float
    wrote: bool
    refused: bool
    lost: bool


def holds(entries: Sequence[Entry], faults: Sequence[Fault], writers: set[int], now: float) -> list[Hold]:
    """Returns every hold, in the order they began.

    Args:
        entries: of all journals.
        faults: of the run.
        writers: the tokens of all writes that the store has shown. They decide about a hold that was cut off after its
            read: its journal alone does not tell whether the store took its write.
        now: the end of a hold that nothing else has ended.
    """
    found = []
    threads: dict[tuple[int, int], list[Entry]] = {}
    for entry in entries:
        threads.setdefault((entry.worker, entry.thread), []).append(entry)
    for (worker, _), journal in threads.items():
        starts = [i for i, entry in enumerate(journal) if entry.step is Step.ENTERS]
        for start, stop in pairwise([*starts, len(journal)]):
            steps = {entry.step: entry for entry in journal[start:stop]}
            found.append(_hold(steps, faults, threads.get((worker, 0), []), writers, now))
    return sorted(found, key=lambda hold: hold.start)


def _hold(
    steps: dict[Step, Entry], faults: Sequence[Fault], told: Sequence[Entry], writers: set[int], now: float
) -> Hold:
    """Returns the hold that took these steps."""
    entry = steps[Step.ENTERS]
    who = entry.worker, entry.thread, entry.token
    ends = [now]
    if Step.LEAVES in steps:
        ends.append(steps[Step.LEAVES].at)
    if Step.PAUSES in steps:
        ends += [fault.at for fault in faults if (fault.worker, fault.thread, fault.token) == who]
    ends += [fault.at for fault in faults if fault.kind == "killed" and fault.worker == entry.worker]
    if Step.LOST in steps:
        ends += [news.at for news in told if news.step is Step.TOLD and news.at >= entry.at]
    return Hold(
        *who,
        start=entry.at,
        end=min(ends),
        wrote=Step.WRITES in steps or (Step.LEAVES not in steps and entry.token in writers),
        refused=Step.REFUSED in steps,
        lost=Step.LOST in steps,
    )


def victim(fault: Fault, all_holds: Sequence[Hold]) -> Hold | None:
    """Returns the hold during which the fault came."""
    struck = (fault.worker, fault.thread, fault.at)
    return next((hold for hold in all_holds if (hold.worker, hold.thread, hold.end) == struck), None)


def overlaps(all_holds: Sequence[Hold]) -> int:
    """Counts the holds that began before all earlier ones had ended."""
    count, latest = 0, 0.0
    for hold in all_holds:
        count += hold.start < latest
        latest = max(latest, hold.end)
    return count


@dataclass(frozen=True)
class Verdict:
    """The holds, the faults, and the flaws: none if all is well."""

    holds: list[Hold]
    faults: list[Fault]
    number: int
    proven: int
    wrong: list[str]


def judge(entries: Sequence[Entry], faults: Sequence[Fault], number: int, writer: int, now: float) -> Verdict:
    """Checks the counter against what the journals prove.

    Args:
        entries: of all journals.
        faults: of the run.
        number: the counter at the end.
        writer: the token of the write that made it so.
        now: a time after the last entry.
    """
    writers = {entry.writer for entry in entries if entry.step is Step.READS} | {writer}
    all_holds = holds(sorted(entries, key=lambda entry: entry.at), faults, writers - {0}, now)
    proven = sum(hold.wrote for hold in all_holds)
    wrong = []
    if number != proven:
        wrong.append(f"{proven:,} increments were made, but the counter says {number:,}")
    if crowd := overlaps(all_holds):
        wrong.append(f"{crowd:,} times a thread came in while another was inside")
    stuck = sum(after.token <= before.token for before, after in pairwise(all_holds))
    if stuck:
        wrong.append(f"{stuck:,} times the fencing token did not grow from one holder to the next")
    for fault in faults:
        wrong += [f"worker {fault.worker} was {fault.kind}, but {flaw}" for flaw in _flaws(fault, all_holds)]
    return Verdict(all_holds, list(faults), number, proven, wrong)


def _flaws(fault: Fault, all_holds: Sequence[Hold]) -> list[str]:
    """Returns the outcomes of the fault that should not have happened."""
    hold = victim(fault, all_holds)
    if hold is None:
        return ["it did not hold the lock at that time"]
    if fault.kind == "killed":
        return ["its unfinished increment was counted"] if hold.wrote else []
    flaws = []
    if not hold.refused:
        flaws.append("the store took its late write")
    if not hold.lost:
        flaws.append("it got no LockLostError")
    return flaws
