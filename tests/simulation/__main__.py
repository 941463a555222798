"""Read a failing seed aloud: the least schedule that fails as the seed's does, its events, and the error.

    python -m tests.simulation latch:LatchRun random_steps 74
    python -m tests.simulation latch:LatchRun random_steps 74 'the count is asked of a server that lags'

The arguments are the run and the function that draws its schedules, both in `subjects`, the seed, and, to see a seeded
bug, its name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

from tests.simulation.checks.explore import aloud
from tests.simulation.checks.mutants import Mutant, seeded


def mutants() -> Iterator[Mutant]:
    """Yield all seeded bugs."""
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        for each in vars(import_module(f"tests.simulation.{file.stem}")).values():
            yield from (mutant for mutant in each if isinstance(mutant, Mutant)) if isinstance(each, list) else ()


def main() -> None:
    """Run a seed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("run", help="the subject's module and the class of its runs: latch:LatchRun")
    parser.add_argument("draw", help="the function of that module that draws a schedule: random_steps")
    parser.add_argument("seed", type=int)
    parser.add_argument("bug", nargs="?", help="the name of a seeded bug, which the library then has")
    asked = parser.parse_args()
    name, _, kind = asked.run.partition(":")
    subject = import_module(f"tests.simulation.subjects.{name}")
    bug = next(each for each in mutants() if each.name == asked.bug) if asked.bug else None
    with nullcontext() if bug is None else seeded(bug):
        sys.stdout.write(f"{aloud(getattr(subject, kind), getattr(subject, asked.draw)(asked.seed))}\n")


if __name__ == "__main__":
    main()
