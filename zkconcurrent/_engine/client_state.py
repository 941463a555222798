"""The state that all parts of one client's engine share: link, clock, lock, and the work posted by kazoo's threads.

Threads. The program's threads and tasks run recipes, change the state with the session's lock, and send requests. The
keeper does what is due. kazoo's connection thread takes replies and events, and *posts* the work that these cause: it
does the work at once if the lock is free, and waits for the lock for a moment at most.

Interrupts. A signal handler or a finalizer may run on top of any line of a thread, also where the thread has the lock.
If it then calls the library and waits there, its call lends the lock for the time of each sleep (`_sleep` in
`_runtime/wait_loops.py`): other threads, for one of which it may be waiting, see the same half-done step as the
handler. So the next thread can repeat each step from its start, and a step that runs on top of another one never undoes
it. The four rules of `_runtime/interrupts.py` make that so: record before acting (R1), clear last (R2), a step may run
twice (R3), move by one atomic operation (R4).

Without the lock, threads read what the text on `ClientState.registry` lists, and change deques, dicts and live sets by
single steps (R4). Only kazoo's connection thread changes what leases and ways to a grant say, also without the lock.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from .._errors import ClientError
from .._kazoo.link import FORKED, Link
from .._runtime.clock import boot_clock, monotonic
from .._runtime.live_set import LiveSet
from .._runtime.this_process import new_uuid
from .hooks import Hooks
from .ticket_registry import Registry

log = logging.getLogger("zkconcurrent")
POST_PATIENCE = 0.002  # seconds
UNANSWERED = 10.0  # seconds


def log_all(unlogged: deque[Callable[[], None]]) -> None:
    """Log what is left to log; suppress the errors of the program's log handlers."""
    while unlogged:
        with suppress(Exception):
            unlogged.popleft()()


class ClientState:
    """The shared state of one client, and the lock that guards it.

    Attributes:
        link: the connection to ZooKeeper.
        registry: the record of this client's nodes there. Invariant: it is changed only with `lock` held, except by
            `note_event`. Read without the lock: `session`, `lease`, `seed`, whether `lost` or `trees` is empty, whether
            `tickets` or `deletes` has a ticket, and copies of `tickets`.
        now: the clock of deadlines. Tests and the simulation inject their own.
        clock: the clock of leases, which is also the link's.
        identity: a function that returns the number of the calling thread, or greenlet.
        lock: re-entrant, as steps call each other, and kazoo may reply to a request in the thread that makes it. No
            step waits while it has the lock; see the head of this module.
        forked: this is the unusable copy in a forked child.
        exiting: the interpreter is exiting, and no call acquires any more.
        refusal: why no call may be made any more, if `forked` or `exiting`; None while calls may be made.
        timeout: the shortest session timeout negotiated in the session, in seconds; 0 before the first connection.
        longest_reply: how long a reply can take, in seconds; after a session timeout, kazoo has dropped the connection.
        reply_patience: how long a call waits for a reply for which its caller's timeout leaves no time, in seconds.
        posted: the work that kazoo's threads have posted, in order; the thread that has the lock does it.
        keepers_sleep: the event on which the keeper sleeps.
        calls: the calls in progress; a change of the connection wakes them. The set is weak: a call that an interrupt
            kept from being abandoned does not stay here.
        unlogged: what is left to log.
        hooks: the hooks through which `_observe` observes this client.
    """

    def __init__(self, link: Link, clock: Callable[[], float] = boot_clock, now: Callable[[], float] = monotonic):
        self.link = link
        self.clock = link.transport.opening.clock = clock
        self.now = now
        self.identity = link.identity
        self.forked = self.exiting = False
        self.refusal: str | None = None
        self.lock = link.handler.rlock_object()
        self.registry = Registry(new_uuid()[:-13])
        # Stands for the session timeout until that is known.
        self.negotiated(UNANSWERED)
        self.timeout = 0.0
        self.posted: deque[Callable[[], None]] = deque()
        self.calls: LiveSet[Any] = LiveSet()
        self.unlogged: deque[Callable[[], None]] = deque()
        self.hooks = Hooks()
        # The posted work that failed last on a thread of the program: `_run` has it done once more.
        self._failed: Callable[[], None] | None = None
        # Not `threading.Event`: a signal handler, or a finalizer, that interrupts its `set` could not set it.
        self.keepers_sleep = link.sleep_event()

    def reply_limit(self) -> float:
        """Return by when a reply has come, unless kazoo has dropped the connection or lost the request."""
        return self.now() + self.longest_reply

    def negotiated(self, timeout: float) -> None:
        """Note the session timeout, in seconds."""
        self.timeout = self.longest_reply = timeout
        self.reply_patience = timeout / 3

    def check_not_forked(self, path: str) -> None:
        """Refuse to use a client that belongs to the parent process.

        Raises:
            ClientError: this is a forked child.
        """
        if self.forked:
            raise ClientError(path, FORKED)

    def has_lock(self) -> bool:
        """Return whether the calling thread has the lock.

        The engine's own steps never begin to wait with the lock. So a caller that has it before a wait is a signal
        handler or a finalizer.
        """
        return bool(self.lock._is_owned())

    def wake_keeper(self) -> None:
        """Have the keeper check for due work."""
        self.keepers_sleep.set()

    def wake_calls(self) -> None:
        """Wake every call in progress."""
        for call in self.calls:
            call.wake()

    def warn_later(self, text: str, *args: object, logger: logging.Logger = log, **extra: object) -> None:
        """Have a warning logged on another thread: a log handler may do anything, and the caller may have the lock.

        Args:
            text: a constant format string.
            *args: the values that it formats.
            logger: the logger for warnings of this kind.
            **extra: fields of the record, for handlers that write JSON.
        """
        self.unlogged.append(partial(logger.warning, text, *args, extra=extra))
        self.wake_keeper()

    def post(self, act: Callable[[], None]) -> None:
        """Have `act` called with the lock held, in the order of posts, at once if possible.

        A thread that has the lock may be suspended, with a signal handler on top of it that waits for the calling
        thread. So this method waits for the lock for a moment only; after that, the keeper or the next thread that has
        the lock does the work.
        """
        lock = self.lock
        if not self.posted and lock.acquire(False):  # the usual case
            try:
                if not self.posted:
                    try:
                        self._run(act)
                    except BaseException:
                        self.posted.appendleft(act)
                        raise
                    return
            finally:
                lock.release()
        self.posted.append(act)
        if not lock.acquire(True, POST_PATIENCE):
            self.wake_keeper()
            return
        try:
            self._run_posted_locked()
        finally:
            lock.release()

    def run_posted(self) -> None:
        """Do the posted work that is not done yet."""
        if self.posted:
            with self.lock:
                self._run_posted_locked()

    def _run(self, act: Callable[[], None]) -> None:
        """Do posted work.

        On a thread of the program, the first error is raised: a signal handler or a deep recursion may have caused it,
        so the work is done again. Any other error is the work's own: it is logged, and the work is not repeated.
        """
        try:
            act()
        except Exception as error:
            if self._failed != act and not self.link.on_own_thread():
                self._failed = act
                raise
            self.warn_later("work posted by kazoo's thread failed: %r", error)

    def _run_posted_locked(self) -> None:
        posted = self.posted
        while posted:
            try:
                act = posted[0]
            except IndexError:
                # A signal handler that interrupted this thread has done all of it.
                return
            self._run(act)
            # R2, R3: if an interrupt comes before this line, the work is done again, perhaps by a signal handler on
            # top, or by a thread to which the handler lends the lock. `suppress` would cost more, on every reply.
            try:  # noqa: SIM105
                posted.remove(act)
            except ValueError:
                pass
