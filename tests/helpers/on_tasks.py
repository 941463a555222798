"""Classes with the interface of `zkconcurrent`'s, whose every call is made by a task, of the twin in `aio`.

Each thread that calls has a task of its own, which lives as long as the thread. All tasks run in one loop, in a thread
of its own. So a test of threads is a test of tasks.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from tests.helpers.kinds import primitives
from zkconcurrent import aio
from zkconcurrent._threads.base.lock_core import LockCore

# The awaitable of a task, by the attribute or method of a thread.
ASKS = {"locked": "fetch_locked", "is_set": "fetch"}
READS = {"count": "fetch_count", "n_waiting": "fetch_n_waiting", "broken": "fetch_broken"}


class Player:
    """The task of one thread; it ends when the thread does."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: asyncio.Queue[Any] = asyncio.Queue()
        name = threading.current_thread().name
        loop.call_soon_threadsafe(lambda calls=self._calls: _keep(loop.create_task(play(calls), name=name)))

    def __call__(self, function: Callable[[], Any]) -> Any:
        """Have the task call a function, and await what it returns if that can be awaited."""
        future: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._calls.put_nowait, (function, future))
        try:
            return future.result()
        finally:
            del function, future

    def __del__(self) -> None:
        self._loop.call_soon_threadsafe(self._calls.put_nowait, None)


_tasks: set[asyncio.Task[None]] = set()


def _keep(task: asyncio.Task[None]) -> None:
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def play(calls: asyncio.Queue[Any]) -> None:
    """Make the calls, one after the other; keep nothing of any."""
    task: Any = asyncio.current_task()
    late: asyncio.CancelledError | None = None
    while True:
        try:
            if (call := await calls.get()) is None:
                return
        except asyncio.CancelledError as error:
            # The task of a program would be at its own work here: the next call that sleeps is cancelled.
            late = error
            getattr(task, "uncancel", int)()  # since Python 3.11
            continue
        function, future = call
        try:
            result = function()
            if inspect.isawaitable(result):
                if late is not None:
                    task.cancel(*late.args)
                    late = None
                result = await result
        except BaseException as error:
            future.set_exception(error)
            error.__traceback__ = None
        else:
            future.set_result(result)
            del result
        del call, function, future


class Loop:
    """The loop, in its thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._players = threading.local()
        threading.Thread(target=self._loop.run_forever, name="loop of the tasks", daemon=True).start()

    def call(self, function: Callable[[], Any]) -> Any:
        """Have the task of this thread call a function."""
        if not hasattr(self._players, "mine"):
            self._players.mine = Player(self._loop)
        return self._players.mine(function)


_loops: list[Loop] = []
os.register_at_fork(after_in_child=_loops.clear)  # its thread is the parent's


def call(function: Callable[[], Any]) -> Any:
    """Have the task of this thread call a function."""
    if not _loops:
        _loops.append(Loop())
    return _loops[0].call(function)


class OnTasks:
    """The interface of threads, to an object of `aio`."""

    _twin: Callable[..., Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        ref = weakref.ref(self)
        for name in ("on_lost", "on_revoke"):
            if callable(told := options.get(name)):
                options[name] = lambda _, told=told: threading.Thread(target=told, args=(ref(),)).start()
        options = {name: unwrapped(value) for name, value in options.items()}
        self._made = type(self)._twin(*map(unwrapped, args), **options)
        _wrappers[id(self._made)] = self

    def __getattr__(self, name: str) -> Any:
        made = self.__dict__["_made"]
        if name.startswith("_") and not hasattr(made, name):
            made = made._core
        if name in READS:
            return call(getattr(made, READS[name]))
        value = call(lambda: getattr(made, ASKS.get(name, name)))
        if isinstance(value, aio.Lost):
            return EventOnTasks(value)
        if type(value) is tuple:
            return tuple(map(wrapped, value))
        if not callable(value):
            return wrapped(value)
        return lambda *args, **options: call(lambda: value(*args, **options))

    def acquire(self, blocking: bool = True, timeout: float | None = None, **options: Any) -> bool:
        """Acquire it; the task may not give these by position."""
        return bool(call(lambda: self._made.acquire(blocking=blocking, timeout=timeout, **options)))

    def hold(self, timeout: float | None = None, **options: Any) -> HoldOnTasks:
        """Return a block."""
        return HoldOnTasks(self._made.hold(timeout, **options))

    def __enter__(self) -> bool:
        call(self._made.__aenter__)
        return True

    def __exit__(self, *error: object) -> Any:
        return call(lambda: self._made.__aexit__(*error))

    def __repr__(self) -> str:
        return repr(self._made).replace("zkconcurrent.aio.", "zkconcurrent.")

    def __reduce__(self) -> Any:
        return self._made.__reduce__()


def unwrapped(value: Any) -> Any:
    """Return the object of `aio`, or those of a list."""
    if isinstance(value, list | tuple | Iterator):
        return [unwrapped(each) for each in value]
    return value._made if isinstance(value, OnTasks) else value


_wrappers: weakref.WeakValueDictionary[int, OnTasks] = weakref.WeakValueDictionary()


def wrapped(value: Any) -> Any:
    """Return the object with the interface of threads, for one of `aio` that another one has."""
    kind = OnTasks if isinstance(value, LockCore) else KINDS.get(type(value))
    if kind is None or (found := _wrappers.get(id(value))) is not None:
        return value if kind is None else found
    _wrappers[id(value)] = found = kind.__new__(kind)
    found._made = value
    return found


class HoldOnTasks:
    """The interface of threads, to the blocks that `hold()` makes."""

    def __init__(self, block: Any) -> None:
        self._block = block

    def __enter__(self) -> Any:
        held = call(self._block.__aenter__)
        return tuple(map(wrapped, held)) if isinstance(held, tuple) else wrapped(held)

    def __exit__(self, *error: object) -> Any:
        return call(lambda: self._block.__aexit__(*error))


class EventOnTasks:
    """The interface of a `threading.Event`, to a `Lost`."""

    def __init__(self, event: aio.Lost) -> None:
        self.is_set = event.is_set
        self._event = event

    def __getattr__(self, name: str) -> Any:
        return getattr(self._event, name)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it."""

        async def wait() -> bool:
            try:
                return await asyncio.wait_for(self._event.wait(), timeout)
            except asyncio.TimeoutError:  # on Python 3.10 it is no TimeoutError
                return False

        return bool(call(wait))


class Lock(OnTasks):
    """`aio.Lock`."""

    _twin = aio.Lock


class RLock(OnTasks):
    """`aio.RLock`."""

    _twin = aio.RLock


class ReadLock(RLock):
    """`aio.ReadLock`."""

    _twin = staticmethod(lambda *args, **options: aio.ReadWriteLock(*args, **options).read_lock)


class WriteLock(RLock):
    """`aio.WriteLock`."""

    _twin = staticmethod(lambda *args, **options: aio.ReadWriteLock(*args, **options).write_lock)


class Semaphore(OnTasks):
    """`aio.Semaphore`."""

    _twin = aio.Semaphore


class BoundedSemaphore(Semaphore):
    """`aio.BoundedSemaphore`."""

    _twin = aio.BoundedSemaphore


class Held(OnTasks):
    """`aio.Held`."""


class Term(OnTasks):
    """`aio.Term`."""


class Leading:
    """A `with` block that leads by a task."""

    def __init__(self, block: Any) -> None:
        self._block = block

    def __enter__(self) -> Any:
        return wrapped(call(self._block.__aenter__))

    def __exit__(self, *error: object) -> Any:
        return call(lambda: self._block.__aexit__(*error))


class Election(OnTasks):
    """`aio.Election`."""

    _twin = aio.Election

    def lead(self, timeout: float | None = None) -> Leading:
        """Lead in a `with` block, which no loss cancels: its body is not the task's."""
        return Leading(self._made.lead(timeout, cancel_on_loss=False))

    def run(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a function that may block, as an async one."""

        async def lead(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(func, *args, **kwargs)

        return call(lambda: self._made.run(lead if callable(func) else func, *args, **kwargs))

    def leader_only(self, function: Any) -> Any:
        """Decorate a function that may block, as an async one."""
        job = self._made.leader_only(functools.partial(asyncio.to_thread, function))
        return lambda *args, **kwargs: call(lambda: job(*args, **kwargs))

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the term."""
        return wrapped(call(lambda: self._made.wait(timeout)))

    def observe(self) -> Iterator[Any]:
        """Iterate."""
        leaders = self._made.observe()
        while True:
            yield call(leaders.__anext__)


APART = {
    **dict.fromkeys(("Dict", "Set"), "a task awaits what a thread does by `[]`: tests/aio/test_dicts.py"),
    **dict.fromkeys(
        ("Queue", "LifoQueue", "PriorityQueue", "DelayQueue"), "has asyncio's errors: tests/aio/test_queues.py"
    ),
    "Barrier": "a party of tasks may leave: tests/aio/test_barrier.py",
    "Group": "a task joins by a block: tests/aio/test_groups.py",
    "AtomicReference": "is a SharedValue",
}
"""The classes of `aio` that have no interface of threads, and why."""

globals().update(
    (name, type(name, (OnTasks,), {"__doc__": f"`aio.{name}`.", "_twin": getattr(aio, name)}))
    for name in [*primitives(aio), "MultiLock"]
    if name not in globals() and name not in APART
)

AtomicReference = globals()["SharedValue"]

KINDS = {
    aio.Held: Held,
    aio.Term: Term,
    aio.Lock: Lock,
    aio.RLock: RLock,
    aio.ReadLock: ReadLock,
    aio.WriteLock: WriteLock,
    aio.Election: Election,
}


def unfair_lock(*args: Any, **options: Any) -> Lock:
    """Make an unfair lock."""
    return Lock(*args, fair=False, **options)


def unfair_rlock(*args: Any, **options: Any) -> RLock:
    """Make an unfair lock that can be acquired again."""
    return RLock(*args, fair=False, **options)
