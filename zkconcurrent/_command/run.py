"""`zkconcurrent run`: runs a command while it holds a lock, and ends the command before another client can get it.

There are three processes, each in another process group: this one, in the caller's group, holds the lock; the guard
(`guard.py`) ends the command in time; the third is the command. One loop here gets all events, in one order: signals,
results of the thread that holds the lock, messages of the guard, and the clock. So once a signal has come that ends
this program, no command starts.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import stat
import threading
import time
from argparse import Namespace
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .arguments import server_url
from .guard import fork_guard
from .outcome import BY_SIGNAL, CommandError, Exit, Outcome, die_of, say
from .processes import (
    adopt_orphans,
    boot_clock,
    can_write,
    changed_children,
    is_orphaned,
    kill_all,
    wait_for_any,
    wakeup_pipe,
)

if TYPE_CHECKING:
    from .holder import Holder

RELEASE_PATIENCE = 1.0  # seconds
CONNECT_PATIENCE = 10.0  # seconds
LATE = "lease_ending"
"""The cause if the guard has ended the command in time, before the hold was lost."""
_TURN = 0.5  # seconds
# The guard learns of a heartbeat within this part of the session timeout.
_LEASE_TURN = 1 / 60
_AGAIN = 0.05  # seconds
# The command must be gone SPARE session timeouts, or MOST_SPARE seconds if that is less, before the lease ends.
SPARE, MOST_SPARE = 1 / 30, 1.0
# The time from TERM to KILL is at most this part of the session timeout.
MOST_PATIENCE = 1 / 4
# These signals do not end the wait for the lock: by default, they end no program.
_HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
# These signals stop a job.
_STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
# These signals can't be caught, come from a fault of this very process, or have a disposition that Python sets.
_NOT_PASSED_ON = {
    getattr(signal, f"SIG{name}", signal.SIGKILL)
    for name in (
        *("KILL", "STOP", "CHLD", "SEGV", "BUS", "FPE", "ILL", "ABRT"),
        *("TRAP", "SYS", "PIPE", "XFSZ", "XCPU", "TTIN", "TTOU", "PROF"),
    )
}


def run(found: Namespace) -> int:
    """Run a command under a lock; return the exit code, or die of the signal that ended the command."""
    outcome = Outcome()
    try:
        url = server_url(found)
        try:
            job = _Run(found, url, outcome)
        except OSError as error:
            raise CommandError(Exit.NO_PROCESS, f"no process can be started: {error.strerror}") from None
        job.serve()
    except CommandError as error:
        outcome.code, outcome.outcome = error.code, error.code.name.lower()
        if error.code != Exit.NOT_ACQUIRED:
            say(str(error))
        elif found.conflict_exit_code is not None:
            # As with `flock`, there is no message.
            outcome.code = found.conflict_exit_code
    if found.status_fd is not None and not can_write(found.status_fd):
        # All work is done, so a signal may end the wait for a reader.
        for number in signal.valid_signals():
            if signal.getsignal(number) is _note:
                signal.signal(number, signal.SIG_DFL)
    outcome.write(found.status_fd)
    if outcome.outcome == "interrupted" or outcome.signal == signal.SIGINT:
        die_of(outcome.signal)
    # The threads have nothing more to do; a normal exit would wait for them, and unload all modules.
    os._exit(outcome.code)


class _Run:
    """One run.

    Attributes:
        phase: "waiting" for the lock, "leaving" (giving up the wait), "running", "ending" (releasing), or "over".
    """

    def __init__(self, found: Namespace, url: str, outcome: Outcome) -> None:
        self._found = found
        self._outcome = outcome
        self.phase = "waiting"
        self._connected = False
        # By the boot clock: the time that the machine is asleep counts as part of the wait.
        found.began += boot_clock() - time.monotonic()
        # When to log that ZooKeeper does not answer.
        self._log_at = found.began + CONNECT_PATIENCE
        # The signal that ended the wait; and why the command does not run.
        self._gave_up: int = 0
        self._error: CommandError | None = None
        self._granted = math.inf
        self._deadline = math.inf
        if found.nonblock:
            self._deadline = found.began + CONNECT_PATIENCE
        elif found.wait is not None:
            self._deadline = found.began + found.wait
        # The wait status of the command; why the lock was lost; the end of the lease, as the guard knows it.
        self._status: int | None = None
        self._lost: str | None = None
        self._lease = -math.inf
        self._pulse = _TURN
        self._finished = False
        # Whether the release also writes the mark of a success.
        self._marks = False
        self._group = 0
        # Whether a part of the command belongs to another user, and can't be ended.
        self._refused = False
        # How often the command has stopped.
        self._stops = 0
        self._posts: deque[tuple[Any, ...]] = deque()
        # Signals that are ignored when the program begins, as under nohup, stay ignored.
        self._caught = {
            number
            for number in signal.valid_signals() - _NOT_PASSED_ON
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        self._guard, self._line = fork_guard(found)
        adopt_orphans()
        self._woken, self._wake = wakeup_pipe()
        for number in {*self._caught, signal.SIGCHLD}:
            signal.signal(number, _note)
        # Only a background process that writes to a terminal with `tostop` gets this signal.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        # Imported after the fork, as from here on there may be threads.
        from .holder import Holder

        deadline = math.inf if found.nonblock else self._deadline
        self._holder: Holder = Holder(found, url, deadline, self._post)

    def _post(self, *what: object) -> None:
        """Tell the loop what has happened, from any thread."""
        self._posts.append(what)
        with suppress(BlockingIOError):
            os.write(self._wake, b"\0")

    def serve(self) -> None:
        """Go through all phases, and fill in the outcome.

        Raises:
            CommandError: the command did not run.
        """
        self._holder.start()
        while self.phase != "over":
            self._turn()
        self._line.close()
        if self._gave_up:
            self._outcome.code, self._outcome.outcome = BY_SIGNAL + self._gave_up, "interrupted"
            self._outcome.signal = self._gave_up
        elif self._error is not None:
            raise self._error
        elif self._status is not None:
            self._take_status(self._status)

    def _take_status(self, status: int) -> None:
        """Fill in the outcome of a command that has run."""
        outcome, lost = self._outcome, self._lost
        outcome.code, outcome.outcome, outcome.cause = os.waitstatus_to_exitcode(status), "exited", lost
        if outcome.code < 0:
            outcome.signal = -outcome.code
            outcome.code, outcome.outcome = BY_SIGNAL + outcome.signal, "signalled"
        if lost is not None:
            paths = " ".join(self._found.paths)
            if lost == LATE:
                why = "ZooKeeper was out of reach, or this program was stopped"
                say(f"the command was ended before the lease of {paths} ended: {why}")
            else:
                say(f"{paths} was lost before the command had ended ({lost}): others may have held it meanwhile")
            if self._found.on_lost != "ignore":
                outcome.code, outcome.outcome, outcome.signal = Exit.LOST, "lost", 0

    # -- the loop -------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        descriptors = [self._woken] if self._line.closed else [self._woken, self._line.fileno()]
        ready = wait_for_any(descriptors, self._pause())
        signals = []
        if self._woken in ready:
            with suppress(BlockingIOError):
                signals = [number for number in os.read(self._woken, 4096) if number]
        # Signals first: if a signal came before the grant, the command must not start.
        for number in signals:
            self._on_signal(number)
        while self._posts:
            kind, *values = self._posts.popleft()
            getattr(self, f"_on_{kind}")(*values)
        for kind, *values in self._line.receive():
            getattr(self, f"_heard_{kind}")(*values)
        self._check_guard()
        self._check_clock()

    def _pause(self) -> float:
        if self.phase == "leaving":
            return _AGAIN
        return max(0.0, min(self._pulse, self._deadline - boot_clock()))

    def _check_clock(self) -> None:
        now = boot_clock()
        if self.phase == "running":
            self._send_lease()
        elif self.phase == "ending":
            if self._finished or now >= self._deadline:
                if self._marks and not self._finished:
                    say("ZooKeeper is out of reach, so another run may not learn that the command has succeeded")
                self.phase = "over"
        elif self.phase == "leaving":
            self._holder.give_up()
            if now >= self._deadline:
                self.phase = "over"
        elif self.phase == "over":
            # The error is known already.
            return
        elif now >= self._deadline:
            if not self._connected:
                why = f"ZooKeeper did not answer in time{self._holder.failures()}"
                self._error = CommandError(Exit.UNREACHABLE, why)
                self.phase = "over"
            elif now >= self._deadline + RELEASE_PATIENCE / 2:
                # The thread has not noticed the deadline: it can't reach ZooKeeper, or the machine was asleep.
                self._error = CommandError(Exit.NOT_ACQUIRED, "not acquired in time")
                self._give_up(RELEASE_PATIENCE / 2)
        elif self._deadline == math.inf and not self._connected and now >= self._log_at:
            self._log_at = math.inf
            _say_aside(f"waiting for ZooKeeper, which does not answer{self._holder.failures()}")

    def _send_lease(self) -> None:
        """Tell the guard when the lease ends; kill a guard that hangs."""
        if self._found.on_lost == "ignore":
            return
        left, timeout = self._holder.lease()
        self._pulse = min(_TURN, _LEASE_TURN * timeout)
        patience = min(self._found.kill_after, MOST_PATIENCE * timeout)
        spare = min(MOST_SPARE, SPARE * timeout)
        end = boot_clock() + left
        if left and abs(end - self._lease) > _AGAIN:
            self._lease = end
            self._line.send("lease", end, patience, spare)
        elif self._group and not self._refused and boot_clock() > self._lease - spare / 2:
            # The guard hangs. Once it is killed, this process ends the command.
            with suppress(ProcessLookupError):
                os.kill(self._guard, signal.SIGKILL)

    def _check_guard(self) -> None:
        """Resume the guard if it was stopped; end the command if the guard has ended."""
        for pid, status in changed_children():
            if pid != self._guard:
                # An orphan that this process has adopted.
                continue
            if os.WIFSTOPPED(status):
                os.kill(pid, signal.SIGCONT)
            elif self.phase in ("waiting", "running"):
                self._without_guard()

    def _without_guard(self) -> None:
        """End the command, as the guard has ended too early."""
        # The guard's last messages may still be in the socket.
        for kind, *values in self._line.receive():
            getattr(self, f"_heard_{kind}")(*values)
        if self.phase == "waiting":
            self._error = CommandError(Exit.NO_PROCESS, "the guard was killed")
            self._give_up()
        elif self.phase == "running":
            ended = kill_all(self._group)
            if self._status is None:
                self._status = ended.get(self._group, signal.SIGKILL)
            self._release()
            say("the guard was killed, so the command was, too")

    # -- signals --------------------------------------------------------------------------------------------------

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGCHLD or self.phase in ("ending", "over"):
            return
        if self.phase == "running":
            if number == signal.SIGCONT:
                self._go_on()
            else:
                self._line.send("signal", number)
        elif number == signal.SIGTSTP:
            self._stop(lent=False)
        elif number not in _HARMLESS and self.phase == "waiting":
            self._gave_up = number
            self._give_up()

    def _give_up(self, patience: float = RELEASE_PATIENCE) -> None:
        """Give up the wait for the lock."""
        self.phase = "leaving"
        self._deadline = boot_clock() + patience

    def _stop(self, *, lent: bool) -> None:
        """Stop like a job until the shell resumes this process; without a shell, the kernel lets it go on at once."""
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        if lent:
            # The terminal's stop was meant for the caller's group, but went to the command's. Stop the whole group with
            # one signal: a shell that sees a script stop may resume the job before a second signal is sent.
            os.killpg(os.getpgrp(), signal.SIGTSTP)
        else:
            # Sent to this thread, so that it stops before the next line.
            signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
        if signal.SIGTSTP in self._caught:
            signal.signal(signal.SIGTSTP, _note)

    def _go_on(self) -> None:
        """Let the command go on, if the lock is still held."""
        if self._found.on_lost != "ignore" and not self._holder.lease()[0]:
            self._line.send("lost")
        else:
            self._line.send("go_on", _may_lend(), self._stops)

    # -- what the thread that holds has done ----------------------------------------------------------------------

    def _on_connected(self) -> None:
        self._connected = True

    def _on_granted(self) -> None:
        if self.phase == "waiting":
            # The lock came in time, however long it takes to write the mark of `--once-per`.
            self._deadline = math.inf

    def _on_acquired(self, tokens: dict[str, int], environment: dict[str, str]) -> None:
        self._granted = boot_clock()
        self._outcome.tokens = tokens
        self._outcome.waited = self._granted - self._found.began
        if self.phase == "leaving":
            self._holder.finish(success=False)
        elif not self._holder.lease()[0]:
            self._error = CommandError(Exit.LOST, "the lock was lost before the command began")
            self._release()
        elif self.phase == "waiting":
            self.phase = "running"
            self._send_lease()
            self._line.send("start", environment, _may_lend())

    def _on_skipped(self) -> None:
        self._outcome.code, self._outcome.outcome = self._found.skip_code, "skipped"
        self._release()

    def _on_finished(self, cause: str | None) -> None:
        self._finished = True
        self._lost = self._lost or cause
        if self.phase == "leaving":
            self.phase = "over"

    def _on_failed(self, error: CommandError) -> None:
        self._finished = True
        if self.phase in ("waiting", "leaving"):
            self._error = self._error or error
            self.phase = "over"
        else:
            # The release, or the mark of a success, has failed.
            say(str(error))
            if error.code == Exit.LOST:
                self._lost = self._lost or "unknown"

    def _on_lost(self, cause: str) -> None:
        if self.phase == "running":
            self._lost = self._lost or cause
            self._line.send("lost")

    # -- what the guard says --------------------------------------------------------------------------------------

    def _heard_started(self, group: int) -> None:
        self._group = group

    def _heard_failed(self, error: int) -> None:
        command = self._found.command[0]
        missing = error in (errno.ENOENT, errno.ENOTDIR)
        code = Exit.NOT_FOUND if missing else Exit.NOT_EXECUTABLE
        self._error = CommandError(code, f"{command}: {os.strerror(error)}")
        self._release()

    def _heard_no_process(self, error: int) -> None:
        self._error = CommandError(Exit.NO_PROCESS, f"no process can be started: {os.strerror(error)}")
        self._release()

    def _heard_stopped(self, number: int, lent: bool) -> None:
        self._stops += 1
        if number not in _STOPS:
            # An operator has stopped the command, and may resume it.
            return
        if number == signal.SIGTSTP or not _may_lend():
            if number != signal.SIGTSTP and is_orphaned(os.getpgrp()):
                # The kernel sends SIGHUP to a stopped job that has lost its shell. Without SIGHUP, the command would
                # stop again and again, as fast as it can.
                self._line.send("signal", signal.SIGHUP)
                time.sleep(_AGAIN)
            else:
                self._stop(lent=lent)
        self._go_on()

    def _heard_late(self) -> None:
        self._lost = self._lost or LATE

    def _heard_left(self, names: list[str]) -> None:
        whose = f": {', '.join(names)}" if names else ""
        _say_aside(f"the command has ended; the lock is held until what it has left behind has{whose}")

    def _heard_refused(self) -> None:
        self._refused = True
        lost = "and others may hold the lock meanwhile" if self._lost else "nor ended if the lock is lost"
        _say_aside(f"the command, or a part of it, is another user's, as by sudo: it can't be signalled, {lost}")

    def _heard_ended(self, status: int) -> None:
        self._status = status

    def _heard_done(self) -> None:
        self._release()

    def _release(self) -> None:
        """Begin to end the hold: mark a success, with `--until-success`, and then release; limit the time for both."""
        if self.phase == "ending":
            return
        self.phase = "ending"
        self._outcome.held = None if self._granted == math.inf else boot_clock() - self._granted
        success = self._status == 0 and self._lost is None
        self._marks = success and self._found.until_success
        # Wait for the mark for as long as no other client can hold the lock.
        patience = max(RELEASE_PATIENCE, self._holder.lease()[0] if self._marks else 0)
        self._deadline = boot_clock() + patience
        self._holder.finish(success=success)


def _note(number: int, frame: object) -> None:
    """Do nothing: the number of the signal is in the pipe."""


def _say_aside(message: str) -> None:
    """Write a message on another thread: standard error may block, as when a pager waits for a key."""
    # If no thread can be started, the message is left out.
    with suppress(RuntimeError):
        threading.Thread(target=say, args=(message,), daemon=True).start()


def _may_lend() -> bool:
    """Return whether the command gets the terminal: it is ours, and no pipeline shares it."""
    try:
        ours = os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
        return ours and not stat.S_ISFIFO(os.fstat(1).st_mode)
    except OSError:
        return False
