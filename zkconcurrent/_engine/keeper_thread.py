"""The keeper: a thread for each client, which goes on working whatever the program's threads do.

In each turn the keeper starts threads, and does the work that is due in the session. It refers to the session only
during a turn, so that a client which the program drops is freed. The keeper ends once its client is stopped and has no
primitive left; the next primitive starts another keeper. It logs on a thread of its own: a log handler that blocks, for
example on a full pipe without a reader, would stop the heartbeat.

A signal handler may interrupt a thread that has the session's lock. While the handler waits for a call of the library,
it lends the lock to other threads, the keeper among them. So the keeper waits for the lock for a moment only, and tries
again: even if the lock stays taken, the keeper starts threads.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from .._runtime.events import AutoResetEvent
from .client_state import ClientState, log, log_all

# The pause between two turns, if nothing is due earlier.
IDLE_BEAT = 1.0  # seconds
LOCK_PATIENCE = 0.1  # seconds
STARTS_FOR = 0.1  # seconds


class Keeper:
    """The keeper of one session.

    Attributes:
        to_start: the functions that start threads, for the keeper to call; see `start_soon`.
        over: the keeper is to end, as in a forked child.
        client: the session.
        thread: the number of its thread; 0 before it runs.
        at_work: the number of its thread during a turn, otherwise None. In a turn, finalizers are the only code of the
            program that runs; no heartbeat is sent until they return.
    """

    def __init__(self, client: ClientState, do_due_work: Callable[[], float]) -> None:
        """Make the keeper, whose thread is not started yet.

        Args:
            client: the session.
            do_due_work: does the session's due work, with the session's lock held; returns the seconds until more is
                due, or infinity if the client is over: then the thread ends, and `start_thread` starts another one.
        """
        self.to_start: deque[Callable[[], None]] = deque()
        self.over = False
        self.thread = 0
        self.at_work: int | None = None
        self.client = client
        self._do_due_work = do_due_work
        self._loops_checked_at = -math.inf
        self._logger = Helper(self, "log", partial(log_all, client.unlogged))
        # R4: the thread that takes this entry begins the keeper.
        self._to_begin = [_keep]

    @property
    def begun(self) -> bool:
        """Whether its thread was started."""
        return not self._to_begin

    def start_thread(self) -> None:
        """Start its thread. A second call changes nothing while the thread runs."""
        with suppress(IndexError):
            keep = self._to_begin.pop()
            try:
                link = self.client.link
                link.spawn(
                    partial(keep, weakref.ref(self), self.client.keepers_sleep), f"keeper {link.client.chroot or '/'}"
                )
            except BaseException:
                self._to_begin.append(keep)
                raise

    def start_soon(self, start: Callable[[], None]) -> None:
        """Have the keeper call `start`, which starts a thread, without the lock: `start` waits until the thread runs.

        If no thread can be started, `start` adds to `to_start` what the keeper is to call at its next turn.
        """
        self.to_start.append(start)
        self.client.wake_keeper()

    def spawn(self, run: Callable[[], object], name: str) -> None:
        """Run a function on a thread of its own, as `Link.spawn` does; if none can start now, the keeper tries later.

        Raises:
            RuntimeError: no thread can be started now.
        """
        try:
            self.client.link.spawn(run, name)
        except BaseException:
            self.to_start.append(partial(self.spawn, run, name))
            raise

    def turn(self) -> float:
        """Do what is due; return the seconds until more is due, or infinity if it is to end. On the keeper's thread."""
        client = self.client
        self.thread = self.at_work = here = client.identity()
        try:
            self._abandon_deserted_calls()
            self._start_threads()
            if not client.lock.acquire(True, LOCK_PATIENCE):
                return LOCK_PATIENCE
            try:
                pause = self._do_due_work()
                if pause == math.inf:
                    # This needs the lock, so that the next caller finds that there is no keeper.
                    self._to_begin.append(_keep)
            finally:
                client.lock.release()
            if client.unlogged:
                self._logger.start()
            self._start_threads()
        finally:
            # The next keeper may have begun.
            if self.at_work == here:
                self.at_work = None
        return pause

    def _start_threads(self) -> None:
        """Call the functions in `to_start`, until no thread can be started. Without the lock; see `start_soon`.

        This stops after `STARTS_FOR` seconds: on a busy machine, starting a hundred threads takes seconds, and holds
        would be lost without a heartbeat.
        """
        until = self.client.now() + STARTS_FOR
        while self.to_start and self.client.now() < until:
            try:
                self.to_start[0]()
            except RuntimeError:
                # No thread can be started now. `start` has put what is left of its work at the end, for the next turn.
                return
            finally:
                # R2: at its exit, the interpreter waits until `to_start` is empty.
                self.to_start.popleft()
        if self.to_start:
            # The heartbeat does not wait for the other threads: the keeper starts them later.
            self.client.wake_keeper()

    def _abandon_deserted_calls(self) -> None:
        """Abandon the calls whose event loops are closed. Without the lock, as a call may belong to two sessions."""
        now = self.client.now()
        if now < self._loops_checked_at + IDLE_BEAT:
            return
        self._loops_checked_at = now
        for call in self.client.calls:
            if call.deserted is not None and call.deserted():
                call.abandon_by_loop()


class Helper:
    """A thread of the library that works while there is work. The keeper starts it, and never two at a time.

    Args:
        keeper: the keeper.
        name: the thread's name.
        work: does all the work there is, and returns when nothing is left.

    Attributes:
        works: the thread runs, or is about to be started.
    """

    def __init__(self, keeper: Keeper, name: str, work: Callable[[], None]) -> None:
        self._keeper = keeper
        self._name = name
        self._work = work
        self.works = False

    def start(self) -> None:
        """Have the thread started, unless it runs already. For the keeper."""
        if not self.works:
            self.works = True
            chroot = self._keeper.client.link.client.chroot
            self._keeper.start_soon(partial(self._keeper.spawn, self._run, f"{self._name} {chroot or '/'}"))

    def _run(self) -> None:
        try:
            self._work()
        finally:
            self.works = False
            # The keeper starts it again if work has come since its last look.
            self._keeper.client.wake_keeper()


def _keep(keeper_ref: weakref.ref[Keeper], wake: AutoResetEvent) -> None:
    """Take turns while the session lives; keep no reference to it while waiting."""
    while True:
        keeper = keeper_ref()
        if keeper is None or keeper.over:
            return
        try:
            pause = keeper.turn()
        except Exception:
            # The error may be a log handler's, which then may fail to log it, too.
            with suppress(Exception):
                log.exception("the keeper continues after an error")
            pause = IDLE_BEAT
        del keeper
        if pause == math.inf:
            return
        wake.wait(max(0.0, pause))
        wake.clear()
