"""A run on a real ensemble under faults, with its history checked.

make soak DURATION=600 SEED=7
python -m tests.soak --duration 600 --seed 7
"""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.soak.report import summary, violations
from tests.soak.run import Plan, run
from tests.soak.testbed import SoakError
from zkconcurrent.testing import NoServerError, find_installation


def say(words: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def main() -> int:
    """Run what the command line describes; return 1 if anything happened that should not have."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--duration", type=float, default=60, help="seconds in which faults strike (default: 60)")
    parser.add_argument("--seed", type=int, help="of the faults and of what the threads do (default: a random one)")
    options = parser.parse_args()
    seed = SystemRandom().randrange(10**6) if options.seed is None else options.seed
    # A signal that ends this run ends what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    # That the connections of this process fail as well is no news.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)

    plan = Plan(seed, options.duration)
    again = f"make soak DURATION={plan.duration:g} SEED={seed}"
    folder = Path(tempfile.mkdtemp(prefix="zkconcurrent-soak-"))
    keep = False
    try:
        installation = find_installation()
        say(f"Three servers of ZooKeeper {installation.version}, {plan.places} processes, {plan.duration:g} s: {again}")
        verdict = run(plan, folder)
        (folder / "faults").write_text("".join(f"{fault}\n" for fault in verdict.history.faults), encoding="utf-8")
        say("")
        for line in summary(verdict):
            say(line)
        keep = bool(verdict.violations)
        for line in violations(verdict):
            say(line)
    except (SoakError, NoServerError) as error:
        keep = isinstance(error, SoakError)
        say(f"\nFAILED: {error}")
        return 2
    except KeyboardInterrupt:
        say("\nInterrupted.")
        return 130
    finally:
        if keep:
            say(f"The files of every process are kept in {folder}; to do the same again: {again}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if verdict.violations:
        return 1
    say("All is well: no two were inside that must not be, nothing was lost or came twice, and everybody went on.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
