"""What all parts of the engine share for one client: its link, clock and lock, and how kazoo's threads get work done.

kazoo's threads post what they have to say, and never wait for the lock: whoever has it does what was posted. A thread
that keeps it may be suspended, with a signal handler on top of it that waits for kazoo's thread.
"""

from __future__ import annotations

import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from .._kazoo.link import Link, boot_clock
from .registry import Registry

POST_PATIENCE = 0.002


class ClientState:
    """What one client has, and the lock that guards it.

    Attributes:
        link: the way to ZooKeeper.
        registry: what we have there. Invariant: only the session and its parts (heartbeat, deletes) change it, with
            `lock` held. Read without the lock: `session`, `lease`, whether `lost` is empty, whether `deletes` has a
            ticket, and copies of `tickets`.
        now: what deadlines are measured by, as leases are by `clock`. A test, or the simulation, injects its own.
        identity: says who calls: a number for each thread, or greenlet.
        lock: re-entrant, as kazoo may answer a request in the thread that makes it; never held while waiting, and
            kazoo's threads do not wait for it.
        timeout: the shortest session timeout negotiated in the session, in seconds; 0 before the first connection.
        posted: what kazoo's threads have to say, in order; done by whoever has the lock.
        parked: the calls that are under way, by id; a change of the connection wakes them. Weak: an interrupt may keep
            a call from being abandoned, and then it must not stay.
    """

    def __init__(self, link: Link, clock: Callable[[], float] = boot_clock, now: Callable[[], float] = time.monotonic):
        self.link = link
        self.clock = clock
        self.now = now
        self.identity = link.identity
        self.lock = link.handler.rlock_object()
        self.registry = Registry(str(uuid.uuid4())[:-13])
        self.timeout = 0.0
        self.posted: deque[Callable[[], None]] = deque()
        self.calls: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._running: list[Callable[[], None]] = []
        self._warnings: deque[tuple[Any, ...]] = deque()
        self._wake = link.handler.event_object()

    @property
    def clock(self) -> Callable[[], float]:
        """What leases are measured by."""
        return self.time

    @clock.setter
    def clock(self, clock: Callable[[], float]) -> None:
        self.time = self.link.clock = clock

    def wake_keeper(self) -> None:
        """Have the keeper look what is due."""
        self._wake.set()

    def wake_calls(self) -> None:
        """Wake every call that waits."""
        for ref in self.calls.valuerefs():
            if (call := ref()) is not None:
                call.wake()

    def warn_later(self, text: str, *args: object) -> None:
        """Have a warning logged, by the keeper: a log handler may do anything, and here the lock may be held."""
        self._warnings.append((text, *args))
        self._wake.set()

    def post(self, act: Callable[[], None]) -> None:
        """Have something done with the lock held, in the order of posts, at once if that can be.

        A thread that keeps the lock may be suspended, with a signal handler on top of it that waits for us: then all
        that wait are woken, and do what was posted themselves, of which one is that very thread.
        """
        lock = self.lock
        if not self.posted and lock.acquire(False):  # most of the time
            try:
                if not self.posted:
                    self._run(act)
                    return
            finally:
                lock.release()
        self.posted.append(act)
        while self.posted:
            if not lock.acquire(True, POST_PATIENCE):
                self._wake.set()
                self.wake_calls()
                return
            try:
                self._run_posted_locked()
            finally:
                lock.release()

    def run_posted(self) -> None:
        """Do what was posted and not done."""
        if self.posted:
            with self.lock:
                self._run_posted_locked()

    def _run(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self.warn_later("what kazoo's thread had to say was not done: %r", error)

    def _run_posted_locked(self) -> None:
        posted, running = self.posted, self._running
        while posted:
            # In the middle of one, more may be posted, or an interrupt may bring us here again.
            try:
                act = posted[0] if not running else next(each for each in list(posted) if each not in running)
            except (IndexError, StopIteration):
                return
            running.append(act)
            try:
                self._run(act)
            finally:
                running.remove(act)
            try:  # noqa: SIM105 - on every answer
                posted.remove(act)  # only now: what is interrupted before is done again
            except ValueError:
                pass
