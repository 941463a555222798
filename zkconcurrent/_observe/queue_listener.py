"""`QueueListener`: a listener that may take long, called on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from .._runtime import this_process
from .._runtime.public import public
from .._runtime.worker import Worker
from .event_listeners import Listener, check_listener, log_failure
from .event_types import LockEvent

# How long the thread waits for more events, so that not every event starts a thread.
LINGER = 1.0  # seconds


class _Calls(SimpleQueue[Callable[[], object]]):
    """The calls to make. Any thread, and any signal handler, may add one."""

    def __len__(self) -> int:
        return self.qsize()


@public
class QueueListener:
    """A listener that calls another listener on a thread of its own, so that the other may take long, or wait.

    Events that come while the queue is full are dropped, and counted. The thread runs while there are events. It does
    not keep the interpreter from exiting: call `flush()` before the exit. A forked child begins with an empty queue.

    Args:
        listener: called with each event. The first `Exception` that it raises is logged; all are ignored.
        maxsize: how many events may wait.

    Attributes:
        dropped: how many events were dropped.

    Raises:
        TypeError: the listener can't be called, or is a coroutine function.
        ValueError: `maxsize` is less than one.
    """

    def __init__(self, listener: Listener, maxsize: int = 10_000) -> None:
        check_listener(listener)
        if maxsize < 1:
            raise ValueError(f"maxsize must be at least 1: {maxsize}")
        self._listener = listener
        self._maxsize = maxsize
        self._failed = False
        self._start_thread()

    def _start_thread(self) -> None:
        self._calls = _Calls()
        self._worker = Worker(self._calls)
        self._counting = threading.Lock()
        self.dropped: int = 0
        self._forks = this_process.forks
        # The thread that is calling the listener; 0 if none is.
        self._thread = 0

    def _begin_in_child(self) -> None:
        """In a forked child, begin anew: the parent's thread does not run here."""
        if self._forks != this_process.forks:
            self._start_thread()

    def __call__(self, event: LockEvent) -> None:
        """Pass an event on; never waits."""
        self._begin_in_child()
        if self._calls.qsize() < self._maxsize:
            self._put(partial(self._listener, event))
        else:
            with self._counting:
                self.dropped += 1

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the listener has been called with all events so far; return False if the timeout passes first.

        Raises:
            RuntimeError: the listener itself calls this, and so would wait for itself.
        """
        self._begin_in_child()
        if self._thread == threading.get_ident():
            raise RuntimeError("the listener of a QueueListener can't flush it: it would wait for itself")
        done = threading.Event()
        self._put(done.set)
        return done.wait(timeout)

    def _put(self, call: Callable[[], object]) -> None:
        self._calls.put(call)
        self._worker.start(_spawn, self._work)

    def _work(self) -> None:
        self._thread = threading.get_ident()
        try:
            self._call_all()
        finally:
            self._thread = 0

    def _call_all(self) -> None:
        with suppress(Empty):
            while True:
                call = self._calls.get(timeout=LINGER)
                try:
                    call()
                except Exception:
                    if not self._failed:
                        self._failed = True
                        log_failure(self._listener)
                # Otherwise this variable would keep the event alive until the next one comes.
                del call


def _spawn(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="zkconcurrent listener", daemon=True).start()
