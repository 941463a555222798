"""Read a failing seed aloud: the least schedule that fails as the seed's does, its events, and the error.

    python -m tests.simulation latches 74
    python -m tests.simulation latches 74 '_recipes.latch:read_remaining drop-sync: op.Sync(path)'

The arguments are the runs, of `RUNS` in `test_random_runs.py`, the seed, and, to see a mutant of the library
(`tests/mutants`), its name.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from functools import partial

from tests.mutants.mutator import named, seeded
from tests.simulation.checks.explore import aloud
from tests.simulation.test_random_runs import RUNS, made


def main() -> None:
    """Run a seed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("runs", choices=RUNS)
    parser.add_argument("seed", type=int)
    parser.add_argument("mutant", nargs="?", help="the name of a mutant, which then runs in place of the library")
    asked = parser.parse_args()
    with seeded(named(asked.mutant)) if asked.mutant else nullcontext():
        sys.stdout.write(f"{aloud(partial(made, asked.runs), RUNS[asked.runs].draw(asked.seed))}\n")


if __name__ == "__main__":
    main()
