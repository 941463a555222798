"""All contestants on one server in one run: tables, targets, JSON and charts.

A run that is interrupted, or fails, shows what it has measured until then.

python -m benchmarks                          everything, some half an hour
python -m benchmarks uncontended network      some parts
python -m benchmarks --quick                  everything in small: whether it works, rather than how fast
python -m benchmarks --against v0.1.0         this package and that of another revision, in turns: has it become slower?
python -m benchmarks --from run.json          tables and charts of an earlier run, measuring nothing
python -m benchmarks scale --help             how the load of a server grows with processes, sessions, paths and waiters
python -m benchmarks plan --clients 5000      what an ensemble must carry for so many clients
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from benchmarks import plan, scale
from benchmarks.charts import charts
from benchmarks.figures import Figure, find
from benchmarks.machine import describe
from benchmarks.parts import PARTS, Lane
from benchmarks.progress import Progress
from benchmarks.report import as_json, from_json, tables, targets
from benchmarks.stage import ROOT, BenchmarkError, Stage
from zkconcurrent.testing import NoServerError


def say(words: str = "") -> None:
    """Print a line."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def measure(stage: Stage, names: Sequence[str], quick: bool, figures: list[Figure]) -> None:
    """Run the parts, and add what is measured to the figures."""
    progress = Progress(sum(PARTS[name].seconds for name in names))
    before = 0.0
    for name in names:
        part = PARTS[name]
        progress.show(before, name, "the stage is set")
        with closing(part.groups(stage, quick)) as groups:  # type: ignore[type-var]
            for number, lanes in enumerate(groups):
                rounds = part.rounds[quick]
                for done, (turn, lane) in enumerate(turns := _turns(lanes, rounds, part.warm_up)):
                    share = (number + done / len(turns)) / part.sets
                    progress.show(before + share * part.seconds, name, f"{lane.case}, {lane.contestant}")
                    measured = lane.measure()
                    if turn:  # the one before the first is to warm up
                        note(figures, name, lane, measured)
        before += part.seconds
    progress.clear()


def _turns(lanes: Sequence[Lane], rounds: int, warm_up: bool) -> list[tuple[int, Lane]]:
    """Return the contestants in their order: all in each round, every round begins with another."""
    turns = [(0, lane) for lane in lanes if warm_up]
    for turn in range(1, rounds + 1):
        first = (turn - 1) % len(lanes)
        turns += [
            (turn, lane) for lane in (*lanes[first:], *lanes[:first]) if lane.rounds is None or turn <= lane.rounds
        ]
    return turns


def note(figures: list[Figure], part: str, lane: Lane, measured: dict[str, float]) -> None:
    """Add a round to the figures."""
    for quantity, value in measured.items():
        figure = find(figures, part, lane.case, quantity, lane.contestant)
        if figure is None:
            figure = Figure(part, lane.case, quantity, lane.contestant)
            figures.append(figure)
        figure.rounds.append(value)


def main() -> int:
    """Do what the command line says."""
    if sys.argv[1:2] in (["scale"], ["plan"]):
        return {"scale": scale.main, "plan": plan.main}[sys.argv[1]](sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=f"all, or some of: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="few rounds, small crowds: three minutes")
    parser.add_argument("--against", metavar="REVISION", help="measure this package beside that of a revision of git")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round there")
    parser.add_argument("--charts", type=Path, metavar="FOLDER", help="(default: docs/charts; none for a quick run)")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="earlier", help="show what a --json has")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    names = [name for name in PARTS if (name in options.parts if options.parts else name != "against")]
    if options.against or "against" in names:
        if options.parts or not options.against:
            parser.error("--against REVISION measures the part `against`, and no other")
        names = ["against"]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    quick, machine, figures, ended = options.quick, {}, [], 0
    try:
        if options.earlier:
            run = json.loads(options.earlier.read_text(encoding="utf-8"))
            machine, quick, figures = run["machine"], run["quick"], from_json(run)
        else:
            with Stage(100 if quick else 600, options.against) as stage:
                machine = describe(stage)
                measure(stage, names, quick, figures)
    except (BenchmarkError, NoServerError) as error:
        say(f"\nFAILED: {error}")
        ended = 2
    except KeyboardInterrupt:
        say("\nInterrupted.")
        ended = 130
    if ended and not figures:
        return ended

    for what, words in machine.items():
        say(f"{what:13} {words}")
    for line in (*tables(figures), *(() if options.against else targets(figures))):
        say(line)
    if options.json:
        options.json.write_text(json.dumps(as_json(machine, quick, figures), indent=1) + "\n", encoding="utf-8")
    folder = options.charts or (None if quick or ended or options.against else ROOT / "docs" / "charts")
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        for name, picture in charts(figures, machine):
            (folder / name).write_text(picture, encoding="utf-8")
            say(f"chart: {name}")
    return ended


if __name__ == "__main__":
    sys.exit(main())
