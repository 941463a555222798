"""How tasks wait for what threads wait for, over the same calls.

A primitive of threads with the mix-in `Tasks` has tasks for owners, and its methods return calls that have not begun
(`Pending`). A task awaits them. Or a thread of the library runs them in the background, so that a plain method such as
`Event.set()` returns at once, and outlives its task and its loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from .._engine.driver import Call
from .._engine.holds import Hold
from .._engine.identity import of_task
from .._engine.session import Session
from .._engine.waiting import Steps, Waiting, wait_async
from .._errors import ZkConcurrentError

T = TypeVar("T")
log = logging.getLogger("zkconcurrent")


class Pending(Generic[T]):
    """A call that has not begun."""

    def __init__(self, call: Waiting, steps: Steps[T]) -> None:
        self.call = call
        self.steps = steps

    def __await__(self) -> Generator[Any, Any, T]:
        return wait_async(self.call, self.steps).__await__()


class Tasks:
    """Mixed into a primitive of threads: tasks own what they acquire, and its calls wait for nothing by themselves."""

    _caller: Callable[[], int] = staticmethod(of_task)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._identity = self._caller

    def _await(self, call: Waiting, steps: Steps[Any]) -> Any:
        return Pending(call, steps)

    @staticmethod
    def _check_may_block() -> None:
        """Nothing blocks."""


class Completion:
    """What a plain method has begun: await it, in any task of any loop, to know that ZooKeeper has done it.

    An error that comes before anybody awaits it is logged.
    """

    def __init__(self) -> None:
        self._done = False
        self._error: BaseException | None = None
        self._wakers: list[Callable[[], None]] = []

    def done(self) -> bool:
        """Return whether it is done, or has failed."""
        return self._done

    def _finish(self, error: BaseException | None = None) -> None:
        """Take note of the end; on any thread."""
        self._error = error
        self._done = True
        wakers = list(self._wakers)
        if error is not None and not wakers:
            log.error("a call that nobody awaits has failed: %s", error)
        for wake in wakers:
            wake()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def end() -> None:
            if not future.done():
                future.set_result(None)

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(end)

        self._wakers.append(wake)
        try:
            if not self._done:
                await future
        finally:
            self._wakers.remove(wake)
        if self._error is not None:
            raise self._error


class Released(Completion):
    """What a `release()` has begun: await it to know that the node is gone, so that the next in line has its turn.

    It waits no longer than `threading`'s twin does: until the node is gone, the service is out of reach, or a sixth of
    the session's timeout is over. The session goes on with the delete in any case. It raises nothing.
    """

    def __init__(self, session: Session, path: str, holds: list[tuple[Hold, Callable[[], None]]]) -> None:
        super().__init__()
        self._session = session
        self._path = path
        self._holds = holds
        for hold, told in holds:
            hold.ticket.wake = told

    def done(self) -> bool:
        """Return whether all nodes are gone."""
        return all(self._session.is_discarded(hold.ticket) for hold, _ in self._holds)

    async def _wait(self) -> None:
        for hold, told in self._holds:
            call = Call(self._session, self._path)
            await wait_async(call, call.gone(hold.ticket))
            told()


class Background:
    """Runs the calls of one session one after the other, on a thread that ends when none is left.

    The interpreter's exit waits for that thread, as it would wait for a thread that calls the blocking twin.
    """

    def __init__(self) -> None:
        self._left: deque[tuple[Session, Pending[Any], Completion]] = deque()
        self._idle = deque([True])  # taken by the one that starts the thread; no lock, as a signal handler may call

    @classmethod
    def of(cls, session: Session) -> Background:
        """Return that of a session."""
        return _backgrounds.setdefault(session, cls())

    def run(self, session: Session, pending: Pending[Any]) -> Completion:
        """Have a call run."""
        completion = Completion()
        self._left.append((session, pending, completion))
        self._start()
        return completion

    def _start(self) -> None:
        try:
            self._idle.pop()
        except IndexError:
            return  # the thread runs, and looks once more before it ends
        try:
            threading.Thread(target=self._work, name="zkconcurrent-background").start()
        except BaseException:
            self._idle.append(True)
            raise

    def _work(self) -> None:
        while True:
            try:
                session, pending, completion = self._left.popleft()
            except IndexError:
                break
            try:
                pending.call.wait(pending.steps)  # type: ignore[attr-defined]
            except BaseException as error:
                completion._finish(error)
            else:
                completion._finish()
            del session, pending, completion
        self._idle.append(True)
        if self._left:
            self._start()


_backgrounds: weakref.WeakKeyDictionary[Session, Background] = weakref.WeakKeyDictionary()


def in_background(session: Session, pending: Any) -> Completion:
    """Begin a call that outlives its task.

    Raises:
        ClientError: the client can't be used.
    """
    return Background.of(session).run(session, pending)


def told_of_loss(check: Callable[[], object]) -> Callable[[], None]:
    """Return what takes note, once the delete is answered, of a hold that was not ours any more."""

    def told() -> None:
        with suppress(ZkConcurrentError):  # told by `lost`, `on_lost` and the log
            check()

    return told
