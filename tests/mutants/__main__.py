"""Seed mutants of the library, and see which of them the tests without a server kill.

python -m tests.mutants               # 400 of them; writes tests/mutants/results.md
python -m tests.mutants '_recipes.latch:read_remaining drop-sync: op.Sync(path)'
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.mutants.mutator import OPERATORS, Mutant, modules, mutants_of, sample
from tests.mutants.trial import BUDGET, Outcome, Reaches, trials

NUMBER = 400
RESULTS = Path(__file__).with_name("results.md")
REASONS = Path(__file__).with_name("survivors.txt")
HEAD = """# Mutants, killed and not

`make mutants` writes this page; `survivors.txt` has the reasons. A mutant is a small change of one place of a function,
by one of {operators} operators (`mutator.py`). It is killed if a run of the simulation or a test without a
server fails (`killers.py`). Of {made} mutants tried, out of the {number} that it draws, {killed} are
killed: {share:.0%}, each within {budget:g} seconds of processor time.

| module | killed of made | by function |
| --- | --- | --- |
"""


def reasons() -> dict[str, str]:
    """Return why mutants survive: a line with the mutant, and below it, indented, the reason."""
    found: dict[str, str] = {}
    mutant = ""
    for line in REASONS.read_text().splitlines():
        if line.startswith(" "):
            found[mutant] = f"{found[mutant]} {line.strip()}".strip()
        elif line and not line.startswith("#"):
            mutant = line
            found[mutant] = ""
    return found


def render(tried: Iterable[Mutant], survived: set[str]) -> str:
    """Return the page of results."""
    made: dict[str, Counter[str]] = {}
    killed: dict[str, Counter[str]] = {}
    alive: list[str] = []
    for mutant in sorted(tried, key=lambda each: (each.module, each.line, each.id)):
        made.setdefault(mutant.module, Counter())[mutant.function] += 1
        killed.setdefault(mutant.module, Counter())[mutant.function] += mutant.id not in survived
        if mutant.id in survived:
            alive.append(mutant.id)
    total = sum(sum(each.values()) for each in made.values())
    lines = [
        f"| `{module}` | {sum(killed[module].values())} of {sum(each.values())} | "
        + ", ".join(f"`{name}` {killed[module][name]} of {n}" for name, n in each.items())
        + " |\n"
        for module, each in made.items()
    ]
    why = reasons()
    told = [f"- `{name}`\n  {why.get(name, '**Not explained.**')}\n" for name in alive]
    dead = total - len(alive)
    share = dead / max(total, 1)
    head = HEAD.format(operators=len(OPERATORS), made=total, number=NUMBER, killed=dead, share=share, budget=BUDGET)
    return f"{head}{''.join(lines)}\n## Survivors\n\n{''.join(told)}"


def tell(mutant: Mutant, outcome: Outcome) -> None:
    """Say what came of a trial."""
    by = f"{outcome.killer} {outcome.seed}: {outcome.error}" if outcome.killer else f"{outcome.runs} runs"
    how = "killed" if outcome.killer else "survives" if outcome.reached else "survives, not reached"
    sys.stdout.write(f"{how}: {mutant.id} | {by} | {outcome.seconds:.1f} s\n")
    sys.stdout.flush()


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "mutants", nargs="*", help="mutants to try, by the beginnings of their names; nothing is written"
    )
    parser.add_argument("--number", type=int, default=NUMBER, help="how many mutants to make")
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set decides what some runs do
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.mutants", *sys.argv[1:]], os.environ | {"PYTHONHASHSEED": "0"}
        )
    drawn = sample(asked.number)
    if asked.mutants:
        drawn = [each for module in modules() for each in mutants_of(module) if each.id.startswith((*asked.mutants,))]
    began = time.monotonic()
    reaches = Reaches()
    sys.stdout.write(f"{sum(reaches.measured.values())} runs measured in {time.monotonic() - began:.0f} s\n")
    for name, seed in reaches.wrong:
        sys.stdout.write(f"fails without a mutant: {name} {seed}: {reaches.wrong[name, seed]}\n")
    survived: set[str] = set()
    seconds = 0.0
    for mutant, outcome in trials(drawn, reaches):
        tell(mutant, outcome)
        seconds += outcome.seconds
        if outcome.killer is None:
            survived.add(mutant.id)
    sys.stdout.write(
        f"{len(drawn) - len(survived)} of {len(drawn)} killed, in {time.monotonic() - began:.0f} s, of the trials' "
        f"processor time {seconds:.0f} s\n"
    )
    if not asked.mutants:
        RESULTS.write_text(render(drawn, survived))
        for name in reasons().keys() - {each.id for each in drawn}:
            sys.stdout.write(f"survivors.txt has a reason for what is no mutant: {name}\n")


if __name__ == "__main__":
    main()
