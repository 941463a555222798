"""An asyncio event loop in the simulation: its clock is the world's, and it sleeps in a greenlet of a simulated client.

The loop does no I/O. It runs callbacks as asyncio's own loop does, and waits in the world's `block`; a wake-up from
another thread, by `call_soon_threadsafe`, ends that wait. So real tasks run the real classes of `zkconcurrent.aio`, and
a schedule can take the turn from their thread, interrupt it, or starve it, as that of any other thread.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import weakref
from asyncio import tasks as asyncio_tasks
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from greenlet import GreenletExit  # type: ignore[import-untyped,unused-ignore]

from tests.simulation.world.client import Process
from tests.simulation.world.world import World

COLLECT = 0.5  # seconds between two garbage collections, while tasks of a closed loop are left


def _swap_current_task(loop: Any, task: Any) -> Any:
    """Make a task, or none, the running one, and return the one before, from Python 3.12 on.

    In 3.14 the running task belongs to the thread, as the running loop always did.
    """
    try:
        return asyncio_tasks._swap_current_task(loop, task)  # type: ignore[attr-defined]
    except (AttributeError, KeyError):  # there is no such function; or, in 3.12.1, no task
        return None


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop whose selector is the world.

    Attributes:
        on_sleep: is given each future that is made, for a task to sleep on.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._selector = self
        self._signaled = False
        self._actor: Any = None  # while it sleeps
        self.on_sleep: Callable[[asyncio.Future[Any]], None] = lambda _: None

    def time(self) -> float:
        """Return the time."""
        return self._world.now

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future, for a task to sleep on."""
        future = super().create_future()
        self.on_sleep(future)
        return future

    def select(self, timeout: float | None) -> list[Any]:
        """Wait as a selector would; nothing is ever there to be read."""
        world = self._world
        if world.closed:
            raise GreenletExit
        if self._signaled or (timeout is not None and timeout <= 0):
            world.point()
        else:
            self._actor = world.current
            try:
                world.block(timeout)
            finally:
                self._actor = None
        self._signaled = False
        return []

    def _process_events(self, _events: list[Any]) -> None:
        """Do nothing: there are none."""

    def _write_to_self(self) -> None:
        """End the loop's sleep, from another thread."""
        self._signaled = True
        if self._actor is not None:
            self._actor.ready = True

    def turn(self) -> None:
        """Run what is due, or wait until something is."""
        self._run_once()  # type: ignore[attr-defined]


class Member(Protocol):
    """A member that runs as a task.

    Attributes:
        done: it has done everything, or its loop is closed.
        cancelled: when it was cancelled last.
    """

    name: str
    done: bool
    cancelled: float

    def main(self) -> Coroutine[Any, Any, None]:
        """Do everything that it does."""
        ...


class LoopThread:
    """A thread that runs an event loop until its tasks have ended, as `asyncio.run` does; or until it is closed.

    Attributes:
        members: those that run as its tasks.
        tasks: their tasks.
        ending: its tasks are told to end, by a cancellation.
        closed: when the loop was closed, with tasks that wait; None if it was not.
        other: another thread's loop, in which the garbage of this one is collected; None: in this thread.
        on_close: is called when the loop is closed with tasks that wait.
        before_collection: is called before each garbage collection.
    """

    def __init__(self, process: Process, name: str) -> None:
        self.world = process.world
        self.process = process
        self.loop = SimulatedLoop(self.world)
        self.members: list[Member] = []
        self.tasks: dict[Any, asyncio.Task[None]] = {}
        self.ending = False
        self.closed: float | None = None
        self.other: SimulatedLoop | None = None
        self.on_close: Callable[[], None] = lambda: None
        self.before_collection: Callable[[], None] = lambda: None
        self._stopped = False
        self._keep = 0.0
        self._runs = False
        self._current: Any = None
        self.actor = self.world.spawn(name, self._run, process)
        self.actor.switch = self._switch
        self.loop.set_exception_handler(self._fail)

    @property
    def over(self) -> bool:
        """Whether no task of it runs any more."""
        return self._stopped or all(task.done() for task in self.tasks.values())

    def stop(self, *, cancel: bool, keep: float = 0.0) -> None:
        """Have the loop end: cancel its tasks and wait for them, or close it at once, with tasks that wait.

        Args:
            cancel: whether to cancel.
            keep: how long somebody keeps the tasks of a closed loop from being garbage, in seconds.
        """

        def act() -> None:
            if cancel:
                self._cancel_waits()
            else:
                self._stopped, self._keep = True, keep

        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(act)

    def _switch(self) -> None:
        """Give the thread its turn: the running loop, and its task, are the thread's, which it shares with others."""
        if self._runs:
            asyncio._set_running_loop(self.loop)
            _swap_current_task(self.loop, self._current)
        self.actor.greenlet.switch()
        if asyncio._get_running_loop() is self.loop:
            self._current = _swap_current_task(self.loop, None)
        asyncio._set_running_loop(None)

    def _run(self) -> None:
        self._runs = True
        asyncio._set_running_loop(self.loop)
        try:
            try:
                for member in self.members:
                    self._begin(member)
                self._run_tasks()
            except KeyboardInterrupt:
                self.world.say("is interrupted: its tasks are cancelled")
                self._cancel_waits()
                self._run_tasks()
        except KeyboardInterrupt:
            self.world.say("is interrupted again")
        finally:
            self._runs = False
            self._current = None  # or it would never be garbage
            asyncio._set_running_loop(None)
            if not self.world.closed:
                self._close()

    def _begin(self, member: Member) -> None:
        task = self.loop.create_task(member.main(), name=member.name)
        self.tasks[member] = task
        task.add_done_callback(self._ended)

    def _run_tasks(self) -> None:
        while not self.over:
            self.loop.turn()

    def _cancel_waits(self) -> None:
        self.ending = True
        for member, task in self.tasks.items():
            if not task.done():
                member.cancelled = self.world.now
                task.cancel()

    def _close(self) -> None:
        """Close the loop, and wait until the tasks that were left are garbage."""
        world = self.world
        left = [task for task in self.tasks.values() if not task.done()]
        if left:
            self.closed = world.now
            world.say(f"closes its loop, with {', '.join(task.get_name() for task in left)}")
        self.loop.close()
        self.on_close()
        for task in left:
            _forget(task)
        refs = [weakref.ref(task) for task in left]
        self._sleep(self._keep)
        self.tasks.clear()
        del left
        task = None  # type: ignore[assignment]
        while any(ref() is not None for ref in refs):
            self.before_collection()
            if self.other is not None and not self.other.is_closed():
                self.other.call_soon_threadsafe(gc.collect)
            else:
                gc.collect()
            self._sleep(COLLECT)
        for member in self.members:
            member.done = True

    def _sleep(self, seconds: float) -> None:
        until = self.world.now + seconds
        while self.world.now < until:
            try:
                self.world.block(until - self.world.now)
            except KeyboardInterrupt:
                continue

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, (GreenletExit, KeyboardInterrupt)):
            self.world.failure = self.world.failure or error

    def _fail(self, _loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception") or AssertionError(context["message"])
        if not isinstance(error, (GreenletExit, KeyboardInterrupt)):
            self.world.failure = self.world.failure or error

    def bury(self) -> None:
        """Forget everything, when the run is over."""
        for task in self.tasks.values():
            _forget(task)
        self.tasks.clear()
        self.members.clear()
        self.loop.on_sleep = lambda _: None
        self.loop.close()


def _forget(task: asyncio.Task[None]) -> None:
    """Have a task go without a word that it has not ended, or not begun."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    if task.done() and not task.cancelled():
        task.exception()
    elif inspect.getcoroutinestate(coroutine := task.get_coro()) == inspect.CORO_CREATED:
        coroutine.close()
