"""`once_per`: at most one start of a job in each period, on all machines together, even if processes die.

`_recipes/once.py` decides which call runs, and describes the mark. `zkconcurrent run --once-per`, and Celery's `Once`,
use `Job`, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timezone
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

from .._arguments.limits import check_seconds
from .._engine.call import Call
from .._engine.holds import Hold
from .._protocol.operations import OutOfReach, Recipe
from .._recipes.once import Mark, take_turn, while_held, write
from .._runtime.clock import boot_clock, in_words
from .._runtime.public import public
from .._runtime.wait_loops import Steps, wait
from .base.lock_base import LockBase, core_of
from .base.lock_core import LockCore
from .base.node_data import node_data
from .synchronized import (
    RUNS_LATER,
    Args,
    Function,
    Kind,
    KwArgs,
    LockedBy,
    LockedByThread,
    Where,
    calls_are,
    name_of,
    plain_function,
)

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


@public
class LastRun(NamedTuple):
    """The last run of a job, among the runs that count.

    Attributes:
        at: when it started or, with `until_success`, when it had succeeded; by the clock of ZooKeeper's leader.
        by: a phrase that names its thread or task, process, host and label.
    """

    at: datetime
    by: str


@public
class Turn(NamedTuple):
    """The decision about one call of a job: it is true if the job is to run, and false if the call skips it.

    Attributes:
        path: the path of the job.
        runs: whether the job is to run.
        last: the last run before this call; None if there was none.
    """

    path: str
    runs: bool
    last: LastRun | None

    def __bool__(self) -> bool:
        return self.runs

    def __str__(self) -> str:
        if self.last is None:
            return f"runs {self.path} for the first time"
        last = f"it last ran at {in_words(self.last.at)}, by {self.last.by}"
        return f"{'runs' if self.runs else 'skips'} {self.path}: {last}"


def check_period(name: str, seconds: float) -> None:
    """Refuse an invalid length of a period.

    Raises:
        TypeError, ValueError: it is invalid.
    """
    check_seconds(name, seconds)
    if not seconds >= 0:
        raise ValueError(f"{name} must be 0 or more: {seconds}")


class Job:
    """One call of a job, timed from when it was made.

    Its methods return a `Call` to wait for, and its steps, which raise

    * LockLostError: the hold was lost, or ZooKeeper was out of reach for so long that the hold must be lost.
    * RefusedError: ZooKeeper refuses the mark to this client.
    * ForeignNodeError: another program's node stands in the mark's place.

    Args:
        seconds: the length of a period.
        until_success: whether the mark records the last success; otherwise it records the last start.
        made: when the call was made, by `boot_clock`; by default, now.
    """

    def __init__(self, seconds: float, until_success: bool, made: float | None = None) -> None:
        self._seconds = seconds
        self.until_success = until_success
        self._made = boot_clock() if made is None else made

    def take_turn(self, core: LockCore) -> tuple[Call, Steps[Turn]]:
        """Decide whether the job is to run, with its lock held; write the mark of its start."""

        def turn(found: tuple[bool, Mark | None]) -> Turn:
            runs, mark = found
            last = None if mark is None else LastRun(datetime.fromtimestamp(mark.written, timezone.utc), mark.by)
            return Turn(core.path, runs, last)

        hold, path = core.must_hold(), f"{core.path}.once"
        data = None if self.until_success else partial(self._data, core, hold)
        steps = take_turn(hold.ticket, path, self._seconds, self._waited, data, queued=hold.depth == 1)
        return self._call(core, hold, path, steps, turn)

    def succeeded(self, core: LockCore) -> tuple[Call, Steps[bool]]:
        """Write the mark of a success, with the lock held."""
        hold, path = core.must_hold(), f"{core.path}.once"
        return self._call(core, hold, path, write(hold.ticket, path, self._data(core, hold)), bool)

    def _waited(self) -> float:
        return boot_clock() - self._made

    def _data(self, core: LockCore, hold: Hold) -> bytes:
        name = hold.ticket.node.rpartition("/")[2].encode()
        return b'%b, "node": "%b", "waited": %.3f}' % (node_data(hold.owner, core.label)[:-1], name, self._waited())

    def _call(
        self, core: LockCore, hold: Hold, path: str, recipe: Recipe[T], then: Callable[[T], R]
    ) -> tuple[Call, Steps[R]]:
        # The call ends if an outage would outlast any hold.
        call = Call(core.session, path, max_outage=1.0)

        def steps() -> Steps[R]:
            found = None
            with suppress(OutOfReach):
                found = yield from call.run(while_held(hold.ticket, recipe))
            # Check the hold even after a success: if it was lost meanwhile, others may already be in the next period.
            core.check(hold)
            if found is None:
                raise core.lost_error(hold)
            return then(found)

        return call, steps()


def decide_run(job: Job, lock: LockBase) -> Turn:
    """Decide whether a job is to run; the caller holds the job's lock. See `Job.take_turn`."""
    return wait(*job.take_turn(core_of(lock)))


def succeed(job: Job, lock: LockBase) -> None:
    """Record a job's success if only successful runs count; the caller holds the job's lock."""
    if job.until_success:
        wait(*job.succeeded(core_of(lock)))


@contextmanager
def taking_turn(job: Job, lock: LockBase) -> Iterator[Turn]:
    """Hold the lock of a job, decide whether it is to run, and record its success."""
    with lock:
        turn = decide_run(job, lock)
        yield turn
        if turn:
            succeed(job, lock)


class Periods(LockedBy):
    """What `once_per` decorators of threads and tasks share."""

    _lock_kind = ()
    _keeps_blocks = True

    def __init__(self, where: Any, path: str, seconds: float, *, until_success: bool = False) -> None:
        super().__init__(where, path)
        check_period("seconds", seconds)
        self._seconds, self._until_success = seconds, until_success

    def __reduce__(self) -> tuple[object, ...]:
        _, arguments = super().__reduce__()
        return partial(type(self), seconds=self._seconds, until_success=self._until_success), arguments

    def _job(self) -> Job:
        return Job(self._seconds, self._until_success)


@public
class once_per(Periods, LockedByThread):  # noqa: N801 - as `synchronized`
    """Start a job at most once in each period, on all machines together, whatever dies: `@once_per(zk, "/jobs/x", 60)`.

    Call the decorated function, or enter the block, wherever and whenever the job is due: the first call of a period
    runs it, and all others skip it. A decorated function that skips returns None. `with once_per(...) as turn:` gives
    the `Turn`, which is true if the job is to run, and has the time and the author of the last run. The calls queue for
    the lock at `path`, so two runs of a job never overlap.

    A period counts from the time when a call was made, not from the time when the job started. A call skips if the last
    call that ran was made less than `seconds` earlier, or started the job only after this call was made. Make `seconds`
    somewhat less than the time between two calls, as that time varies. Only the clock of ZooKeeper's leader counts. It
    makes no difference how long a call waits, or whether its session expires meanwhile.

    The mark of a start is written before the job starts, while the lock is sure to be held. A job that raises an
    exception, or whose process dies, does not run again until the next period. With `until_success`, a run counts only
    once its job has returned, and the mark is written then. Until then, each further call runs the job again, whether
    the last run raised an exception, died or lost the lock.

    `zkconcurrent run --once-per` uses the same lock and the same mark. Paths may have fields, which a function's
    arguments fill, as with `synchronized`: then each path has periods of its own. Generator functions and async
    functions are refused; for the latter use `aio.once_per`.

    Layout:
        `<path>` is an `RLock`'s. `<path>.once`, PERSISTENT, is the mark: JSON. Delete it to have the job run again.

    Invariant:
        The mark is written in one `multi` with a check of the lock's node.

    Cost:
        The lock's own cost. The mark adds three round trips to the first run, four to each later run, and one or two to
        a skip. A call that waits is woken once more.

    Args:
        where: a client, from `connect`; or a namespace, to whose path `path` is relative; or a function without
            arguments that returns one of these, called for each call.
        path: the path of the job: absolute for a client, relative for a namespace.
        seconds: the length of a period; 0 excludes only calls that wait while the job runs, and infinity all later
            ones.
        until_success: whether only successful runs count.

    Raises:
        TypeError, ValueError: as `synchronized`; or `seconds` is not a number, or is negative.
        LockLostError: on a call, or at either end of a block: the lock was lost. If it was lost before the job started,
            this call will not start the job; the mark may have been written.
        RefusedError: ZooKeeper refuses the mark to this client, which must be able to read, create and write it.
        ForeignNodeError: another program's node stands in the place of the mark.

    Source:
        ShedLock's `lockAtLeastFor`, with a mark for its clock.
    """

    def __init__(self, where: Where, path: str, seconds: float, *, until_success: bool = False) -> None:
        super().__init__(where, path, seconds, until_success=until_success)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R | None]:  # type: ignore[override]
        """Return a function that runs the job if it is the call's turn, and otherwise returns None."""
        return self._decorate(function)  # type: ignore[no-any-return]

    def _lock(self, arguments: KwArgs) -> AbstractContextManager[Turn]:
        return taking_turn(self._job(), super()._lock(arguments))

    def _kind(self, function: Function) -> Kind:
        if any(calls_are(each, function) for each in _LATER):
            raise TypeError(
                f"once_per is for functions that do all their work in the call, and {name_of(function)} is async or a "
                "generator function: use zkconcurrent.aio.once_per, or decorate the function that uses the generator up"
            )
        return _FUNCTION

    def __enter__(self) -> Turn:
        return super().__enter__()  # type: ignore[no-any-return]


def _run(block: AbstractContextManager[Turn], function: Function, args: Args, kwargs: KwArgs) -> Any:
    """Call a function if the job is to run."""
    with block as turn:
        result = function(*args, **kwargs) if turn else None
        # The errors below keep the run from counting as a success with `until_success`.
        if inspect.iscoroutine(result):
            result.close()
        if inspect.iscoroutine(result) or inspect.isasyncgen(result) or isinstance(result, RUNS_LATER):
            raise TypeError(_RETURNS_LATER.format(name_of(function), type(result).__name__))
        return result


_RETURNS_LATER = (
    "{0} has returned a {1}, whose body would run without the lock, and count as a success at once: put once_per, or "
    "aio.once_per, on the function whose body does the work, below other decorators"
)
_LATER = inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction
_FUNCTION = Kind(_run, plain_function)
