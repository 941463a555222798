"""The trial of a mutant, in a forked process: the runs that reach its place, the cheapest first, until one fails."""

from __future__ import annotations

import ast
import faulthandler
import gc
import json
import os
import select
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import count, zip_longest
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TypeVar

from tests.mutants import mutator
from tests.mutants.killers import Killer, killers
from tests.mutants.mutator import Mutant

T = TypeVar("T")
BUDGET = 40.0
"""Seconds of processor time for a mutant that survives."""
HANGS, WALL = 20.0, 100.0
"""Seconds of processor time, and on the clock, after which a run that takes far less is taken for one that hangs."""
HUNG = 97
AT_ONCE = (os.cpu_count() or 1) + 1
"""How many trials run at once: one of them may hang, and compute nothing."""
MARK = "__reached__"


class Outcome(NamedTuple):
    """What came of a trial.

    Attributes:
        killer, seed: the run that failed; of a survivor, None.
        error: how it failed.
        runs: how many runs there were.
        reached: whether any that is known to reach the place was among them.
        seconds: the processor time.
    """

    killer: str | None
    seed: int | None
    error: str
    runs: int
    reached: bool
    seconds: float


# -- in a process of its own -----------------------------------------------------------------------------------------


def start(call: Callable[[Callable[[Any], None]], None]) -> tuple[int, int]:
    """Call a function in a forked process; return its number and the pipe of what it says, one JSON value a line."""
    read, write = os.pipe()
    if pid := os.fork():
        os.close(write)
        return pid, read
    code = 1
    try:
        os.close(read)
        null = os.open(os.devnull, os.O_RDWR)
        for each in range(3):
            os.dup2(null, each)
        faulthandler.disable()
        for number in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(number, lambda *_: os._exit(HUNG))
        with os.fdopen(write, "w") as told:
            call(lambda value: (told.write(f"{json.dumps(value)}\n") and told.flush()) or None)
        code = 0
    finally:
        os._exit(code)


def finish(pid: int, pipe: int) -> tuple[int, list[Any]]:
    """Wait for a process; return how it ended, and what it said."""
    with os.fdopen(pipe) as told:
        values = [json.loads(line) for line in told if line.endswith("\n")]
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), values


def _bound(seconds: float = HANGS) -> None:
    """End the process if what begins now does not end."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, WALL)


def side_by_side(
    jobs: Iterable[tuple[T, Callable[[Callable[[Any], None]], None]]],
) -> Iterator[tuple[T, int, list[Any]]]:
    """Run jobs, `AT_ONCE` of them; yield each with its outcome."""
    waiting = iter(jobs)
    running: dict[int, tuple[T, int]] = {}
    said: dict[int, bytearray] = {}
    while True:
        while len(running) < AT_ONCE and (job := next(waiting, None)) is not None:
            pid, pipe = start(job[1])
            running[pipe], said[pipe] = (job[0], pid), bytearray()
        if not running:
            return
        for pipe in select.select(list(running), [], [])[0]:
            if some := os.read(pipe, 1 << 16):
                said[pipe] += some
                continue
            os.close(pipe)
            key, pid = running.pop(pipe)
            _, status = os.waitpid(pid, 0)
            values = [json.loads(line) for line in said.pop(pipe).splitlines(keepends=True) if line.endswith(b"\n")]
            yield key, os.waitstatus_to_exitcode(status), values


# -- which runs reach what -------------------------------------------------------------------------------------------


class Reach(NamedTuple):
    """A run that reaches a line, and what it takes."""

    killer: str
    seed: int
    seconds: float


class _Marker(ast.NodeTransformer):
    """Have each statement of the functions of a module note that it is reached."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._inside = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        inside, self._inside = self._inside, True
        self.generic_visit(node)
        self._inside = inside
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Mark all statements of a body."""
        super().generic_visit(node)
        if self._inside and not isinstance(node, ast.ClassDef):
            for field, value in ast.iter_fields(node):
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    marked = [[self._mark(each), each] for each in value]
                    setattr(node, field, [each for some in marked for each in some])
        return node

    def _mark(self, statement: ast.stmt) -> ast.stmt:
        mark = ast.parse(f"{MARK}({self._module!r}, {statement.lineno})").body[0]
        return ast.copy_location(mark, statement)


def _marks() -> list[tuple[FunctionType, CodeType]]:
    """Return all functions, with code that notes what is reached."""
    found: list[tuple[FunctionType, CodeType]] = []
    for module in mutator.modules():
        tree = ast.parse(mutator.path_of(module).read_text())
        found += mutator.changes(module, ast.fix_missing_locations(_Marker(module).visit(tree)))
    return found


def _measure(killer: Killer, marks: list[tuple[FunctionType, CodeType]], tell: Callable[[Any], None]) -> None:
    reached: set[tuple[str, int]] = set()
    for function, code in marks:
        function.__globals__[MARK] = lambda *place: reached.add(place)
        function.__code__ = code
    for seed in range(min(killer.measured, killer.seeds)):
        reached.clear()
        began, failed = time.process_time(), ""
        try:
            killer.run(seed)
        except BaseException as error:
            failed = f"{type(error).__name__}: {error}"[-3000:]
        tell([seed, time.process_time() - began, sorted(reached), failed])


class Reaches:
    """Which runs reach which lines, as they were measured.

    Attributes:
        wrong: the runs that fail without any mutant.
    """

    def __init__(self) -> None:
        self.by_line: dict[tuple[str, int], list[Reach]] = defaultdict(list)
        self.measured: Counter[str] = Counter()
        self.wrong: dict[tuple[str, int], str] = {}
        marks = _marks()
        jobs = [(name, partial(_measure, killer, marks)) for name, killer in killers().items()]
        for name, _, values in side_by_side(jobs):
            for seed, seconds, lines, failed in values:
                if failed and not passes(name, seed):  # it may count lines, some of which are marks here
                    self.wrong[name, seed] = failed
                    continue
                self.measured[name] += 1
                for module, line in lines:
                    self.by_line[module, line].append(Reach(name, seed, seconds))

    def of(self, mutant: Mutant) -> tuple[list[Reach], bool]:
        """Return the runs that reach a mutant's place; if there is none, those that reach its function."""
        exact = self.by_line.get((mutant.module, mutant.line), [])
        if exact:
            return exact, True
        tree = ast.parse(mutator.path_of(mutant.module).read_text())
        function = next(function for name, function in mutator.functions(tree) if name == mutant.function)
        lines = range(function.lineno, (function.end_lineno or 0) + 1)
        return list({each for line in lines for each in self.by_line.get((mutant.module, line), [])}), False


# -- trials ----------------------------------------------------------------------------------------------------------


def plan(found: list[Reach], measured: Counter[str]) -> Iterator[tuple[str, int]]:
    """Yield the runs to try: a cheap one of each killer, then the tests, then more of the cheap ones."""
    by_killer: dict[str, list[Reach]] = {}
    for each in found:
        by_killer.setdefault(each.killer, []).append(each)
    cost = {name: sum(each.seconds for each in some) / len(some) for name, some in by_killer.items()}
    names = sorted(by_killer, key=cost.__getitem__)
    # A turn is worth as much of each killer: of the cheap ones, several runs.
    share = {name: max(1, min(10, int(0.1 / (cost[name] + 1e-3)))) for name in names}
    cheap = [name for name in names if cost[name] < 0.3]
    yield from ((name, by_killer[name][0].seed) for name in cheap)
    yield from ((name, each.seed) for name in names if name not in cheap for each in by_killer[name])
    turns = [
        [by_killer[name][n : n + share[name]] for n in range(1, len(by_killer[name]), share[name])] for name in cheap
    ]
    for turn in zip_longest(*turns, fillvalue=[]):
        yield from ((each.killer, each.seed) for some in turn for each in some)
    all_killers = killers()
    often = {name: len(by_killer[name]) / measured[name] for name in names}
    more = {name: count(all_killers[name].measured) for name in names}
    while more:
        for name in list(more):
            for _ in range(max(1, round(share[name] * often[name]))):
                if (seed := next(more[name])) >= all_killers[name].seeds:
                    del more[name]
                    break
                yield name, seed


def _try(mutant: Mutant | None, runs: Iterable[tuple[str, int]], tell: Callable[[Any], None]) -> None:
    """Try runs, until one fails or the budget is used up; say each before it begins, and how it ended."""
    began = time.process_time()
    error = ""
    with nullcontext() if mutant is None else mutator.seeded(mutant):
        for name, seed in runs:
            tell([name, seed])
            _bound()
            error = _error(name, seed)
            if error or time.process_time() - began > BUDGET:
                break
    tell([error, time.process_time() - began])


def _error(name: str, seed: int) -> str:
    """Run one; return how it fails, or nothing."""
    try:
        killers()[name].run(seed)
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {' '.join(str(error).split())} ({last.name})"[:300]
    return ""


def _outcome(code: int, values: list[Any], reached: bool) -> Outcome:
    """Return what came of a trial, by what its process said.

    Raises:
        RuntimeError: the process failed before the first run.
    """
    if not values:
        raise RuntimeError(f"a trial ended with {code}")
    ended = not isinstance(values[-1][1], int)
    ran = values[:-1] if ended else values
    # Without a last word, it ended in the midst of a run.
    lost = "does not end" if code == HUNG else f"ends its process: {code}"
    error, seconds = values[-1] if ended else (lost, HANGS)
    killer, seed = ran[-1] if error else (None, None)
    return Outcome(killer, seed, error, len(ran), reached, seconds)


def passes(name: str, seed: int) -> bool:
    """Return whether the library as it is passes a run."""
    code, values = finish(*start(lambda tell: _try(None, [(name, seed)], tell)))
    return _outcome(code, values, True).killer is None


def trials(mutants: Iterable[Mutant], reaches: Reaches) -> Iterator[tuple[Mutant, Outcome]]:
    """Try mutants side by side; yield each with its outcome."""
    gc.collect()
    gc.freeze()
    wrong = set(reaches.wrong)

    def job(mutant: Mutant) -> Callable[[Callable[[Any], None]], None]:
        found, _ = reaches.of(mutant)
        runs = (each for each in plan(found, reaches.measured) if each not in wrong)
        return lambda tell: _try(mutant, runs, tell)

    for mutant, code, values in side_by_side((mutant, job(mutant)) for mutant in mutants):
        outcome = _outcome(code, values, reaches.of(mutant)[1])
        while outcome.killer is not None and outcome.seed is not None and not passes(outcome.killer, outcome.seed):
            run = outcome.killer, outcome.seed
            if run in reaches.wrong or not passes(*run):  # once, a busy machine may have failed it
                wrong.add(run)
            reaches.wrong[run] = outcome.error
            sys.stderr.write(f"fails without a mutant: {outcome.killer} {outcome.seed}: {outcome.error}\n")
            code, values = finish(*start(job(mutant)))
            outcome = _outcome(code, values, reaches.of(mutant)[1])
        yield mutant, outcome
