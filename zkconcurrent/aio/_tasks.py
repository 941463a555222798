"""How tasks wait: they await the calls of the primitives for threads, or have these calls run in the background.

The mix-in `Tasks` makes tasks the owners of a primitive for threads, whose methods then return calls that have not
begun (`Pending`). A task awaits such a call, or a thread of the library runs it in the background. So a plain method
such as `Event.set()` returns at once, and its call outlives its task and its loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar, cast

from .._engine.call import Call
from .._engine.holds import Hold
from .._engine.session import LeftTickets, Session
from .._errors import ClientError, ZkConcurrentError
from .._runtime.identity import ended, of_caller, of_task, release_at_end
from .._runtime.process_exit import waits_for_library
from .._runtime.public import Named, public
from .._runtime.wait_loops import Resumable, Steps, call_soon, wait, wait_async
from .._runtime.worker import Worker
from .._threads.base.lock_core import LockCore
from .._threads.base.settling import exits_out_of_reach

T = TypeVar("T")
log = logging.getLogger("zkconcurrent")


class Pending(Generic[T]):
    """A call that has not begun; a task awaits it."""

    __slots__ = ("call", "steps")

    def __init__(self, call: Resumable, steps: Steps[T]) -> None:
        self.call: Resumable = call
        self.steps: Steps[T] = steps

    def __await__(self) -> Generator[object, object, T]:
        return wait_async(self.call, self.steps).__await__()


class Tasks:
    """Mixed into a primitive for threads: tasks own its holds, and its methods return `Pending` calls."""

    _await: Any = Pending
    _caller: Callable[[], int] | None = staticmethod(of_task)
    _path_state: Any
    _session: Session

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if issubclass(primitive := cls.__bases__[-1], Named):
            # Messages show the name of the twin.
            cls.__name__ = cls.__qualname__ = primitive.__name__

    def _check_may_block(self) -> None:
        """Allow every call, as no call blocks the loop."""


class AnyTask(Tasks):
    """`Tasks`, for a primitive whose holds any task may end; a callback of the loop may call its methods, too."""

    _caller: Callable[[], int] | None = staticmethod(of_caller)


def release_with_task(core: LockCore) -> None:
    """If only the task that acquires a lock may release it, have its hold released when the task ends."""
    if core.identity is of_task:
        release_at_end(core.identity(), core.path_state)


def leave_to_keeper(core: LockCore) -> bool:
    """Hand the holds of a thrown-away task to the keeper; return whether a block of the task ends now."""
    if core.path_state.leave_block():
        return True
    if core.identity is of_task:
        return False
    left = [hold for hold in core.all() if ended(hold.owner)]
    left.sort(key=lambda hold: hold.alive)
    # The other holds do not belong to this block, and any task may release them.
    tickets = [hold.ticket for hold in left[-1:]]
    core.session.dropped.append(LeftTickets([], tickets))
    core.session.wake_keeper()
    return bool(tickets)


def is_thrown_away(kind: type[BaseException] | None) -> bool:
    """Return whether a block ends with this error because its task was thrown away with its loop."""
    return kind is GeneratorExit or asyncio._get_running_loop() is None


def of_tasks(kind: type[T], mixin: type[Tasks] = Tasks) -> type[T]:
    """Return the class of a primitive for threads, with tasks as owners; messages show the name of its twin."""
    return cast("type[T]", type(kind.__name__, (mixin, kind), {"__module__": "zkconcurrent.aio"}))


@public
class Completion:
    """A call that a plain method has begun. A task of any loop may await it, until ZooKeeper has applied the call.

    An awaiting task gets the call's error. An error that comes while no task awaits it is also logged.
    """

    def __init__(self) -> None:
        self._done = False
        self._error: BaseException | None = None
        self._wakers: list[Callable[[], None]] = []
        self._calls: list[Callable[[], None]] = []

    def done(self) -> bool:
        """Return whether the call has ended, with success or an error."""
        return self._done

    def wake_at_end(self, wake: Callable[[], None]) -> None:
        """Have another call woken when this one ends. Check `done()` after this: the call may have ended already."""
        self._calls.append(wake)

    def _finish(self, error: BaseException | None = None) -> None:
        """Record the end of the call. Any thread may call this."""
        self._error = error
        self._done = True
        wakers = list(self._wakers)
        for wake in (*wakers, *self._calls):
            wake()
        if error is not None and not wakers:
            # A log handler of the program may raise. The next calls must still run.
            with suppress(Exception):
                log.error("a call has failed, and no task awaits it: %s", error)

    def __await__(self) -> Generator[object, object, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        ended = asyncio.Event()
        wake = partial(call_soon, asyncio.get_running_loop(), ended.set)
        self._wakers.append(wake)
        try:
            if not self._done:
                await ended.wait()
        finally:
            self._wakers.remove(wake)
        if self._error is not None:
            raise self._error


class ReleaseCompletion(Completion):
    """A `release()` whose deletes are sent or owed. A task may await it, to wait until the nodes are gone.

    An awaiting task waits no longer than a thread would: until the node is gone, ZooKeeper is out of reach, or a
    sixth of the session timeout has passed. The library keeps trying the delete in any case. The `await` raises no
    error of the release.
    """

    def __init__(self, holds: list[tuple[LockCore, Hold]]) -> None:
        super().__init__()
        self._holds = holds
        for core, hold in holds:
            core.end_with_reply(hold)

    def done(self) -> bool:
        """Return whether all nodes are gone."""
        return all(core.session.is_gone(hold.ticket) for core, hold in self._holds)

    async def _wait(self) -> None:
        for core, hold in self._holds:
            call = Call(core.session, hold.path)
            with suppress(ZkConcurrentError):
                await wait_async(call, core.released(call, hold))


class Background:
    """Runs the calls of one session, one after the other, on a thread that ends when none is left.

    The interpreter waits for that thread at exit, as it would for a thread that calls the blocking twin. But it waits
    only for a session timeout if ZooKeeper is out of reach.
    """

    def __init__(self) -> None:
        # The time after which the interpreter no longer waits.
        self._exits_by = math.inf
        self._left: deque[tuple[Session, Pending[object], Completion]] = deque()
        self._worker = Worker(self._left)

    def run(self, session: Session, pending: Pending[object]) -> Completion:
        """Queue a call; start the thread if it is not running."""
        completion = Completion()
        self._left.append(begun := (session, pending, completion))
        try:
            self._worker.start(_spawn, self._work)
        except BaseException:
            with suppress(ValueError):  # it runs already
                # Otherwise the thread of a later call would also run this call, which the caller may have repeated.
                self._left.remove(begun)
                pending.call.abandon()
            raise
        return completion

    def _work(self) -> None:
        while True:
            try:
                session, pending, completion = self._left.popleft()
            except IndexError:
                return
            pending.call.why_end = partial(self._why_end, session, pending.call.path)
            try:
                wait(pending.call, pending.steps)
            except BaseException as error:
                completion._finish(error)
            else:
                completion._finish()
            del session, pending, completion

    def _why_end(self, session: Session, path: str) -> ClientError | None:
        """Return the error that ends a call which would keep the interpreter from exiting; None if it may go on."""
        if session.link.connected or not waits_for_library():
            self._exits_by = math.inf
            return None
        now = session.now()
        self._exits_by = min(self._exits_by, now + session.longest_reply)
        return None if now < self._exits_by else exits_out_of_reach(path)


def _spawn(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="zkconcurrent background").start()


_backgrounds: weakref.WeakKeyDictionary[Session, Background] = weakref.WeakKeyDictionary()


def in_background(session: Session, pending: object) -> Completion:
    """Begin a pending call that outlives its task.

    Raises:
        ClientError: the client can't be used.
    """
    assert isinstance(pending, Pending)
    return _backgrounds.setdefault(session, Background()).run(session, pending)
