"""Threads of several processes add to one counter under one lock; processes die meanwhile, and the count stays exact.

    make demo                                   # or, in an environment with zkconcurrent installed:
    python examples/demo
    python examples/demo --without-lock         # the same without the lock: the count is wrong

The demo starts a ZooKeeper server on loopback: a real one, or one in memory where none is installed. It kills one
worker in the middle of its critical section. It freezes another one there until its session has expired and the other
workers have gone on. That worker then wakes, believes that it still holds the lock, and writes. Every thread keeps a
journal; at the end the demo checks the journals and draws them as a picture.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from store import Store
from timeline import draw
from verdict import Fault, Verdict, judge, overlaps, victim
from workers import DemoError, Workers

from zkconcurrent.testing import NoServerError, any_server

KILLED, FROZEN = 2, 3  # the workers with a fault


def run(workers: Workers, options: argparse.Namespace) -> list[Fault]:
    """Calm, a kill, calm, a freeze, calm."""
    everybody = [(w, t) for w in range(1, options.workers + 1) for t in range(1, options.threads + 1)]
    try:
        workers.run_until_all_had_a_turn(everybody)
        workers.run_for(options.seconds)
        killed = workers.kill(KILLED)
        workers.run_for(options.seconds)
        frozen = workers.freeze(FROZEN)
        workers.run_for(1)
        frozen = replace(frozen, woken=workers.wake(FROZEN))
        workers.run_until_all_had_a_turn([who for who in everybody if who[0] != KILLED])
        workers.run_for(options.seconds)
        workers.stop()
    finally:
        workers.clear()
    return [killed, frozen]


def cycles_per_second(verdict: Verdict) -> float:
    """The pace while all was well; the waits for a session to expire do not count."""
    waited = sum(fault.next_grant - fault.at for fault in verdict.faults)
    return len(verdict.holds) / (verdict.holds[-1].end - verdict.holds[0].start - waited)


def report(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """The outcome, as pairs of a name and its figures."""
    start = verdict.holds[0].start
    yield "count", f"{verdict.number:,} after {verdict.proven:,} increments"
    for fault in verdict.faults:
        until = ", until its session expired" if fault.woken else ""
        where = f"at {fault.at - start:.1f} s, in its critical section{until}"
        yield fault.kind, f"worker {fault.worker} (pid {fault.pid}) {where}"
        yield "", f"another worker entered {fault.next_grant - fault.at:.1f} s later"
        hold = victim(fault, verdict.holds)
        if fault.woken and hold:
            late = "refused its late write, which had an old fencing token" if hold.refused else "took its late write"
            told = "its thread got a LockLostError" if hold.lost else "its thread got no LockLostError"
            yield "", f"the store {late}; {told}"
    tokens = [hold.token for hold in verdict.holds]
    grown = "each higher than the last" if sorted(set(tokens)) == tokens else "not always higher than the last"
    yield "fencing tokens", f"{len(tokens):,}, from {tokens[0]:,} to {tokens[-1]:,}, {grown}"
    turns = Counter((hold.worker, hold.thread) for hold in verdict.holds if hold.worker not in (KILLED, FROZEN))
    yield "turns", f"{min(turns.values()):,} to {max(turns.values()):,} by each thread of the workers without a fault"
    yield "speed", f"{cycles_per_second(verdict):,.0f} cycles per second"


def picture(verdict: Verdict, options: argparse.Namespace) -> str:
    """The timeline; its title says what happened."""
    crowd = overlaps(verdict.holds)
    who = "Without a lock" if options.without_lock else "With the lock"
    title = f"{who}, threads came in {crowd:,} times while another was inside"
    if not crowd:
        title = "One process was killed, one was frozen: no two threads ever held the lock at once"
    subtitle = (
        f"{options.workers * options.threads} threads in {options.workers} processes, a row for each thread;"
        f" {len(verdict.holds):,} holds, {verdict.proven:,} finished increments, the counter says {verdict.number:,}"
    )
    return draw(verdict.holds, verdict.faults, options.workers, options.threads, title, subtitle)


def play(options: argparse.Namespace) -> Verdict:
    """Runs everything on a server of its own, and judges the outcome."""
    with any_server() as server, tempfile.TemporaryDirectory(prefix="zkconcurrent-demo-") as name:
        lock = "without a lock" if options.without_lock else "under one RLock"
        print(f"ZooKeeper ({server.kind}) on {server.hosts}")
        print(f"{options.workers} processes with {options.threads} threads each add to one counter {lock}\n")
        folder = Path(name)
        arguments = [f"--hosts={server.hosts}", f"--threads={options.threads}"]
        arguments += [f"--session-timeout={options.session_timeout}"]
        arguments += ["--without-lock"] * options.without_lock
        workers = Workers(options.workers, arguments, folder)
        faults = run(workers, options)
        store = Store(folder / "counter")
        state = store.read(sys.maxsize)
        store.close()
        return judge(workers.entries, faults, state.number, state.writer, time.monotonic())


def main() -> int:
    """Runs the demo that the command line describes."""
    summary, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="python examples/demo", description=summary)
    parser.add_argument("--without-lock", action="store_true", help="let all threads in, and see the count go wrong")
    parser.add_argument("--workers", type=int, default=4, help="processes, at least 3 (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=3, help="in each process (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="of calm around each fault (default: %(default)s)")
    parser.add_argument("--session-timeout", type=float, default=4, help="in seconds (default: %(default)s)")
    parser.add_argument("--timeline", type=Path, default=Path("demo-timeline.svg"), help="(default: %(default)s)")
    options = parser.parse_args()
    if options.workers < 3 or options.threads < 1:
        parser.error("at least 3 workers with 1 thread each are needed: one is killed, one is frozen, and one goes on")

    try:
        verdict = play(options)
    except (DemoError, NoServerError) as error:
        print(f"\nFAILED: {error}")
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted.")
        return 130
    options.timeline.write_text(picture(verdict, options), encoding="utf-8")
    print()
    for name, figures in [*report(verdict), ("picture", str(options.timeline))]:
        print(f"  {name:15} {figures}")
    print()
    if verdict.wrong:
        for flaw in verdict.wrong:
            print(f"WRONG: {flaw}")
        return 1
    print("All is well: the count is exact, no two threads held the lock at once, every token is higher than the last.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
