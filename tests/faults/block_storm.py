"""Strikes at random moments of `with` blocks: is the lock left held, and how soon does another client get in?

    python -m tests.faults.block_storm --strikes 10000

On threads, a strike is a signal to the main thread whose handler raises KeyboardInterrupt, as Ctrl-C does; on tasks, a
cancellation of an `async with` block. Strikes come alone, and in bursts of two and four. After each block that was
struck, another client acquires. All goes by public names of the library, so the figures of two engines compare. A
process that hangs ends with the stacks of all threads. The table counts the blocks

left held     whose client still holds, by its own account
left unknown  of which a node stays, though its client holds nothing
at exit       of these two, those struck at the first instruction of an `__exit__`, a gap of all classes in Python
> 1 s         after which the other client waited for longer than that
swallowed     that raised nothing
"""

from __future__ import annotations

import argparse
import asyncio
import dis
import functools
import inspect
import logging
import math
import random
import signal
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import product
from types import CodeType, FrameType
from typing import Any

from kazoo.client import KazooClient

import zkconcurrent
from tests.faults.storm import alive, client
from tests.helpers.contenders import NODE
from tests.helpers.kinds import KINDS, make, nodes
from zkconcurrent import LockLostError, aio
from zkconcurrent.testing import Server

BURSTS = (1, 2, 4)
TIMEOUT = 10.0  # seconds, kazoo's default session timeout
LATE = 1.0  # seconds
LOOK = 5.0  # seconds; the heartbeats, T / 3 apart, have had their turn at what a strike left
PATIENCE = TIMEOUT
PACKAGES = {"threads": zkconcurrent, "tasks": aio}
HOLD = "Lock.hold()"
BLOCKS = [kind for kind, row in KINDS.items() if row.excludes and kind != "ReadWriteLock"]
BLOCKS += ["ReadLock", "MultiLock", HOLD]
COLUMNS = ("blocks", "struck", "strikes", "left held", "left unknown", "at exit", "> 1 s", "swallowed")
FIRST, PROGRAM = ", first instruction", "the program's own frame"
PROVEN = 1  # so many strikes in a row leave nothing; further ones may hit the clean-up


# -- the blocks ------------------------------------------------------------------------------------------------------


def subject(of: Any, kind: str, client: KazooClient, path: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what makes a block of a kind, and what returns whether the caller or its client still holds any of it."""
    if kind.startswith("Election"):
        election = of.Election(client, path, layout="latch" if "latch" in kind else "selector")
        return election.lead, election.is_leader
    if kind == "MultiLock":
        locks = [of.Lock(client, f"{path}/{name}") for name in "ab"]
        block = of.MultiLock(locks)
    elif kind == "Condition":
        locks = [of.RLock(client, f"{path}/lock")]
        block = of.Condition(client, path, *locks)
    else:
        locks = [block := make(of, "Lock" if kind == HOLD else kind, client, path)]
    return block.hold if kind == HOLD else lambda: block, lambda: any(lock.hold_count() for lock in locks)


def rival(kind: str, client: KazooClient, path: str) -> Callable[[], object] | None:
    """Acquire what excludes the blocks of a kind, without waiting; return the release, None if it is not free."""
    if kind == "MultiLock":
        lock = zkconcurrent.MultiLock([zkconcurrent.Lock(client, f"{path}/{name}") for name in "ab"])
        return lock.release if lock.acquire(blocking=False) else None
    return KINDS[{"ReadLock": "WriteLock", HOLD: "Lock"}.get(kind, kind)].use(zkconcurrent, client, path)


def enter(block: Any, arm: Callable[[], None]) -> None:
    """Enter and leave a block; strikes hit nothing but what runs in here."""
    arm()
    with block:
        pass


async def enter_on_task(block: Any, arm: Callable[[], None]) -> None:
    """Enter and leave a block of a task; strikes hit nothing but what runs in here."""
    arm()
    async with block:
        pass


ENTER = (enter.__code__, enter_on_task.__code__)


# -- the strikes -----------------------------------------------------------------------------------------------------


def interrupted(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames that a signal has interrupted, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def suspended(coroutine: Any) -> Iterator[FrameType]:
    """Yield the frames in which a coroutine is suspended, the innermost first."""
    frames: deque[FrameType] = deque()
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            frames.appendleft(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return iter(frames)


@functools.cache
def first_instruction(code: CodeType) -> int:
    """Return where a function handles signals as it begins."""
    return next((each.offset for each in dis.get_instructions(code) if each.opname == "RESUME"), 0)


def place(frames: list[FrameType]) -> str:
    """Return the innermost line of the library; behind it, the innermost function, if that is another's."""
    names = [(frame.f_globals.get("__name__", ""), frame) for frame in frames]
    inner, frame = names[0]
    for module, each in names:
        if each.f_code in ENTER:
            break
        if module.startswith("zkconcurrent."):
            begins = each is frame and each.f_lasti <= first_instruction(each.f_code)
            below = "" if each is frame else f" > {inner}.{frame.f_code.co_name}"
            name = getattr(each.f_code, "co_qualname", each.f_code.co_name)
            return f"{module.partition('.')[2]}:{each.f_lineno} {name}{FIRST if begins else ''}{below}"
    return PROGRAM


def has_gap(where: str) -> bool:
    """Return whether a `with` block may be left held if it was struck there, as those of `threading`."""
    # CPython 3.10 handles signals between the start of a block and its body.
    return f"__exit__{FIRST}" in where or (where == PROGRAM and sys.version_info < (3, 11))


class Strikes:
    """Strikes upon one thread or task, the first at a random moment of the time that a block takes.

    Attributes:
        places: where the present block was struck.
        total: the strikes so far.
    """

    def __init__(self) -> None:
        self.places: list[str] = []
        self.total = self._left = 0
        self._began = 0.0
        self._times: deque[float] = deque(maxlen=50)  # of whole blocks

    def begin(self, burst: int) -> None:
        """Have so many strikes come in the next block, unless it is over before; none in the first ten."""
        self.places.clear()
        self._left = burst if len(self._times) >= 10 else 0
        self._began = time.monotonic()

    def arm(self) -> None:
        """Begin the block."""
        if self._left:
            self._strike_in(random.uniform(0, 1.1 * statistics.median(self._times)))

    def end(self) -> None:
        """Have no more come."""
        self._left = 0
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not self.places:
            self._times.append(time.monotonic() - self._began)

    def raise_there(self, _number: int, frame: FrameType | None) -> None:
        """Handle the signal on a thread."""
        if self._strikes([*interrupted(frame)]):
            raise KeyboardInterrupt

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Handle the signal in an event loop."""
        if self._strikes([*suspended(task.get_coro())]):
            task.cancel()

    def _strikes(self, frames: list[FrameType]) -> bool:
        if not self._left or not any(frame.f_code in ENTER for frame in frames):
            return False
        if any(frame.f_code is Strikes.raise_there.__code__ for frame in frames):  # two would be one
            self._strike_in(1e-5)
            return False
        self._left -= 1
        self.total += 1
        self.places.append(place(frames))
        if self._left:
            # The next one hits the clean-up: its first steps as often as its waits.
            self._strike_in(math.exp(random.uniform(math.log(1e-6), math.log(2e-3))))
        return True

    @staticmethod
    def _strike_in(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))


# -- the storm -------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What came of the strikes upon one kind of block.

    Attributes:
        counts: the figures of the table, and the errors of the blocks.
        longest: how long the other client waited at most, in seconds.
        late: where those blocks were struck after which it waited for long, and how long, or what was left.
        wrong: what must not be.
    """

    counts: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    late: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count another's, too."""
        self.counts += other.counts
        self.longest = max(self.longest, other.longest)
        self.late += other.late
        self.wrong += other.wrong

    def row(self) -> str:
        """Return the figures of a row of the table."""
        return f"{''.join(f'{self.counts[column]:13}' for column in COLUMNS)}{self.longest:13.2f}"


class Storm:
    """A storm upon blocks at one path, by two clients of its own.

    What a burst leaves may only be met by the next block. So each number of strikes in a row has storms of its own.

    Attributes:
        is_free: whether the blocks so far have left nothing that stays.
    """

    def __init__(self, hosts: str, path: str, package: str, kind: str, burst: int, tally: Tally) -> None:
        self.is_free = True
        self._package, self._kind, self._burst, self._path, self._tally = package, kind, burst, path, tally
        self._strikes = Strikes()
        with ExitStack() as ends:
            self._mine, self._other = (client(hosts, TIMEOUT) for _ in range(2))
            for each in (self._mine, self._other):
                ends.callback(each.close)
                ends.callback(each.stop)
            # A thread of its own: what the main thread has left held is none of its business.
            self._pool = ends.enter_context(ThreadPoolExecutor(1))
            self._ends = ends.pop_all()
        self._block, self._held = subject(PACKAGES[package], kind, self._mine, path)

    def run(self, strikes: int) -> None:
        """Strike so often, or until something stays."""
        with self._ends:
            steps = self._run(strikes)
            if self._package == "tasks":
                asyncio.run(self._on_loop(steps))
                return
            before = signal.signal(signal.SIGALRM, self._strikes.raise_there)
            try:
                with suppress(StopIteration):
                    steps.send(None)
            finally:
                signal.signal(signal.SIGALRM, before)

    async def _on_loop(self, steps: Coroutine[Any, Any, None]) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        loop.add_signal_handler(signal.SIGALRM, self._strikes.cancel, task)
        await steps

    async def _done(self, result: Any) -> Any:
        """Return the result of a call, which tasks await."""
        if isinstance(result, Future):
            result = asyncio.wrap_future(result) if self._package == "tasks" else result.result()
        return await result if inspect.isawaitable(result) else result

    async def _run(self, strikes: int) -> None:
        while self._strikes.total < strikes and self.is_free:
            alive()
            self._tally.counts["blocks"] += 1
            await self._strike(self._block())
            if self._strikes.places:
                self._tally.counts["struck"] += 1
                await self._let_in()
        self._tally.counts["strikes"] += self._strikes.total
        alive()
        until = time.monotonic() + PATIENCE
        while self.is_free and (left := [name for name in nodes(self._other, self._path) if NODE.search(name)]):
            if time.monotonic() > until:
                self._leaves("left unknown", [], f"nodes stay: {left}")
                break
            time.sleep(0.1)

    async def _strike(self, block: Any) -> None:
        counts = self._tally.counts
        enters = enter_on_task if self._package == "tasks" else enter
        self._strikes.begin(self._burst)
        try:
            await self._done(enters(block, self._strikes.arm))
        except (KeyboardInterrupt, asyncio.CancelledError):
            pass
        except BaseException as error:
            counts[f"{type(error).__name__}: {error}".replace(self._path, "")] += 1
        else:
            counts["swallowed"] += bool(self._strikes.places)
        finally:
            self._strikes.end()
        task = asyncio.current_task() if self._package == "tasks" else None
        while task is not None and hasattr(task, "uncancel") and task.cancelling():
            task.uncancel()

    async def _let_in(self) -> None:
        """See how soon the other client gets in, and what is in its way."""
        tally, began, places = self._tally, time.monotonic(), [*self._strikes.places]
        release = await self._done(self._pool.submit(self._get_in, LOOK))
        # The process of a DetachedLock may not know whether an interrupted call has done its work. What an interrupted
        # acquire leaves is the owner's, as after a kill.
        held = release is None if self._kind == "DetachedLock" else bool(await self._done(self._held()))
        if release is not None and held:
            tally.wrong.append(f"held by two after {places}")
        if release is None and not held:
            release = await self._done(self._pool.submit(self._get_in, PATIENCE))
        what = f"free after {(took := time.monotonic() - began):.1f} s"
        if release is None:
            what, self.is_free = "left held" if held else "left unknown", False
            self._leaves(what, places, f"{what} after {places}: {nodes(self._other, self._path)}")
        else:
            tally.longest = max(tally.longest, took)
            with suppress(LockLostError):  # a machine may stand still
                await self._done(self._pool.submit(release))
        if took > LATE:
            tally.counts["> 1 s"] += 1
            tally.late[f"{what}: {' then '.join(places)}"] += 1

    def _leaves(self, what: str, places: list[str], wrong: str) -> None:
        counts = self._tally.counts
        counts[what] += 1
        if any(map(has_gap, places)):
            counts["at exit"] += 1
        elif self._burst <= PROVEN and self._kind != "DetachedLock":
            self._tally.wrong.append(wrong)

    def _get_in(self, patience: float) -> Callable[[], object] | None:
        until = time.monotonic() + patience
        while (release := rival(self._kind, self._other, self._path)) is None and time.monotonic() < until:
            time.sleep(0.005)
        return release


def main() -> int:
    """Run what the command line describes; return 1 if anything happened that should not have."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.block_storm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--strikes", type=int, default=1000, help="of all kinds together (default: %(default)s)")
    parser.add_argument("--on", choices=PACKAGES, action="append", help="(default: both)")
    parser.add_argument("--kind", choices=BLOCKS, action="append", help="(default: all)")
    parser.add_argument("--hosts", help="of a ZooKeeper server (default: one is started)")
    parser.add_argument("--path", default="/block-storm", help="below which the locks are (default: %(default)s)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    kinds, packages = options.kind or BLOCKS, options.on or [*PACKAGES]
    strikes = -(-options.strikes // (len(packages) * len(kinds) * len(BURSTS)))
    totals = {burst: Tally() for burst in BURSTS}
    say(f"{'':26}{''.join(f'{column:>13}' for column in COLUMNS)}   longest, s")
    with ExitStack() as ends:
        hosts = options.hosts or ends.enter_context(Server()).hosts
        for package, kind in product(packages, kinds):
            whole = Tally()
            for burst in BURSTS:
                tally = Tally()
                while (done := tally.counts["strikes"]) < strikes:
                    path = f"{options.path}/{package}/{kind.replace(', ', '-')}/{burst}-{done}"
                    Storm(hosts, path, package, kind, burst, tally).run(strikes - done)
                whole.add(tally)
                totals[burst].add(tally)
            say(f"{f'{kind}, {package}':26}{whole.row()}")
            errors = Counter({text: n for text, n in whole.counts.items() if text not in COLUMNS})
            for text, count in (errors + whole.late).most_common():
                say(f"    {count} x {text}")
            for text in whole.wrong:
                say(f"    WRONG: {text}")
    total = Tally()
    for burst, tally in totals.items():
        say(f"{f'all, {burst} in a row':26}{tally.row()}")
        total.add(tally)
    say(f"{'all':26}{total.row()}")
    return bool(total.wrong)


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
