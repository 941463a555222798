"""Read a failing seed aloud: the least schedule that fails as the seed's does, its events, and the error.

    python -m tests.simulation latch:LatchRun random_steps 74
    python -m tests.simulation latch:LatchRun random_steps 74 '_recipes.latch:look drop-sync: op.Sync(path)'

The arguments are the run and the function that draws its schedules, both in `subjects`, the seed, and, to see a mutant
of the library (`tests/mutants`), its name.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from importlib import import_module

from tests.mutants.mutator import named, seeded
from tests.simulation.checks.explore import aloud


def main() -> None:
    """Run a seed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("run", help="the subject's module and the class of its runs: latch:LatchRun")
    parser.add_argument("draw", help="the function of that module that draws a schedule: random_steps")
    parser.add_argument("seed", type=int)
    parser.add_argument("mutant", nargs="?", help="the name of a mutant, which then runs in place of the library")
    asked = parser.parse_args()
    name, _, kind = asked.run.partition(":")
    subject = import_module(f"tests.simulation.subjects.{name}")
    with seeded(named(asked.mutant)) if asked.mutant else nullcontext():
        sys.stdout.write(f"{aloud(getattr(subject, kind), getattr(subject, asked.draw)(asked.seed))}\n")


if __name__ == "__main__":
    main()
