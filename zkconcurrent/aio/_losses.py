"""The losses of holds, for tasks: a task can await a loss, a loop calls the callbacks, and a loss ends a block."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

from .._engine.loss_signal import Loss
from .._engine.session import Session
from .._errors import LockLostError
from .._runtime.interrupts import check_depth
from .._runtime.public import ErrorKind, Traceback, public
from .._runtime.wait_loops import call_soon
from .._threads.base.primitive import OnLost, OnSuspect

H = TypeVar("H", covariant=True)
# How many frames the end of an `async with` block needs.
DEPTH_OF_END = 8


@public
class Lost:
    """The loss of a hold, or the first loss of several holds: tasks ask `is_set()`, or await `wait()`."""

    def __init__(self, parts: Iterable[tuple[Session, Callable[[], Loss]]]) -> None:
        self._parts: list[tuple[Session, Loss]] = []
        for session, loss in parts:
            session.expired_holds.end_past_lease()
            with session.lock:
                self._parts.append((session, loss()))

    def is_set(self) -> bool:
        """Return whether the hold is lost, even if its lease has just ended by the local clock."""
        for session, _ in self._parts:
            session.expired_holds.end_past_lease()
        return any(loss.is_lost for _, loss in self._parts)

    async def wait(self) -> bool:
        """Wait until the hold is lost; return True."""
        told = asyncio.Event()
        listener = self._listen(told.set)
        try:
            await told.wait()
        finally:
            listener.over = True
        return True

    def _listen(self, call: Callable[[], object]) -> _LossCallback:
        """Have the running loop call a method when the loss comes; at once, if it has come already."""
        listener = _LossCallback(asyncio.get_running_loop(), call)
        for session, loss in self._parts:
            with session.lock:
                loss.add(listener)
        if self.is_set():
            listener.set()
        return listener


class _LossCallback:
    """A method that a loop calls on a loss, while the method's object lives. The loss notifies it like a `JointLoss`.

    Attributes:
        over: whether the method will no longer be called.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        self._loop = loop
        # A weak reference: a loss lives as long as its hold. Otherwise it would keep a thrown-away task alive, and that
        # task would keep the hold.
        self._call = weakref.WeakMethod(call)
        self.over = False

    def set(self) -> None:
        """Have the method called. Any thread may call this."""
        call_soon(self._loop, self._call_once)

    def _call_once(self) -> None:
        if not self.over:
            self.over = True
            if (call := self._call()) is not None:
                call()

    def note_loss(self) -> None:
        """Do nothing: `set` has already had the method called."""


class Holding(Generic[H]):
    """An `async with` block that holds a lock and is cancelled when the hold is lost; `lock.hold()` makes it."""

    def __init__(self, lock: Any, timeout: float | None, blocking: bool, cancel_on_loss: bool) -> None:
        self._lock = lock
        self._timeout = timeout
        self._blocking = blocking
        self._cancel_on_loss = cancel_on_loss
        self._task: Any = None
        self._listener: _LossCallback | None = None
        self._cancelled = False
        self._before = 0
        self._held: H | None = None

    async def __aenter__(self) -> H:
        if self._task is not None:
            raise RuntimeError("a hold() is for one block: call hold() again for the next")
        # A weak reference, and no variable for the task: CPython 3.10 and 3.11 crash if the end of a coroutine frees
        # the one that awaits it.
        self._task = weakref.ref(asyncio.current_task())
        self._before = getattr(self._task(), "cancelling", int)()  # since Python 3.11
        check_depth(DEPTH_OF_END + 1)
        core = self._lock._core
        since = core._session.now()
        if not await self._lock._acquire_for_block(blocking=self._blocking, timeout=self._timeout):
            raise await core._not_acquired(self._timeout if self._blocking else 0, since)
        if self._cancel_on_loss:
            self._listener = self._lock.lost._listen(self._cancel)
        self._held = held = self._lock._handle()
        return held  # type: ignore[no-any-return]

    def _cancel(self) -> None:
        if self._is_released():
            # The reply to the release shows the loss. The body continues without the hold.
            return
        self._cancelled = True
        if (task := self._task()) is not None:
            task.cancel("the hold was lost")

    async def __aexit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        if self._listener is not None:
            self._listener.over = True
        if self._cancelled and self._is_only_ours() and isinstance(error, asyncio.CancelledError):
            try:
                if not self._is_released():
                    self._lock.release()
            except LockLostError as lost:
                raise lost from error
            # The body has settled the loss; or an inner block of the same semaphore has, and this block has released
            # the inner block's permit.
            path = next(iter(self._lock._lock_cores())).path
            raise LockLostError(
                path, "the hold of this block was lost, and its body settled it: acquire again"
            ) from error
        if not self._is_released():
            await self._lock.__aexit__(kind, error, traceback)

    def _is_released(self) -> bool:
        return bool(getattr(self._held, "_released", False))

    def _is_only_ours(self) -> bool:
        """Withdraw this block's own cancellation; return whether no other cancellation is left."""
        task = self._task()
        return not hasattr(task, "uncancel") or task.uncancel() <= self._before


class _OnLoop:
    """Calls a user's callback, plain or async, on the loop that acquired last among the open ones."""

    def __init__(self, lock: Any, callback: Callable[..., object]) -> None:
        self._lock = weakref.ref(lock)
        self._callback = callback

    def __call__(self, core: Any, left: float | None = None) -> None:
        there = self._lock()
        loop = None if there is None else there._loop
        if loop is not None:
            call_soon(loop, partial(_call, self._callback, there, None if left is None else core))


def on_loop(lock: Any, on_lost: OnLost | None, on_suspect: OnSuspect | None, **others: OnLost | None) -> dict[str, Any]:
    """Return the callbacks of a lock for tasks, as arguments for the constructor of its core."""
    callbacks = {"on_lost": on_lost, "on_suspect": on_suspect, **others}
    return {name: _OnLoop(lock, each) if callable(each) else each for name, each in callbacks.items()}


def _call(callback: Callable[..., object], lock: object, core: Any) -> None:
    # The loop may make this call late, so count the seconds from now.
    result = callback(lock) if core is None else callback(lock, core._suspect_and_remaining()[1])
    if isinstance(result, Awaitable):
        task = asyncio.ensure_future(result)
        _running.add(task)
        task.add_done_callback(_running.discard)


_running: set[asyncio.Future[object]] = set()
