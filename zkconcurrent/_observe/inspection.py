"""What this process holds and waits for, as data, as text, or written when a signal comes.

The sessions have the tables that show this: the nodes of each client, the holds of each path, the calls in progress.
All are read without taking their locks or sending a request, and each table is copied in one step (R4). So any thread
may call `inspect()`, and so may a signal handler or finalizer, whatever it has interrupted. The price: two tables may
show different moments, so a hold that passes from one thread to another meanwhile may be missing or shown twice.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache, partial
from itertools import islice, starmap
from operator import attrgetter
from types import FrameType
from typing import Any, NamedTuple

from .._engine.call import Call
from .._engine.holds import all_holds
from .._engine.loss_cause import cause_of
from .._engine.session import Session
from .._errors import LossCause
from .._kazoo.addresses import shown
from .._protocol.node_names import PREFIX_LENGTH
from .._protocol.ticket import State, Ticket
from .._runtime.clock import ago, in_words
from .._runtime.identity import Task, ended, ident, label, name, task_of
from .._runtime.process_exit import living_sessions
from .._runtime.public import public
from .._runtime.stacks import frames_from, read_stacks
from .._runtime.this_process import getpid

MODES = {"__READ__": "read", "__WRIT__": "write", "lease": "permit"}
"""The modes of holds, by the role of their nodes without its hyphen; other roles have one mode only."""
# Only the thread that has acquired a primitive of these classes can release it.
_OWN = ("RLock", "ReadWriteLock")
# Any thread of the process can release a primitive of these classes.
_ANY_THREAD = ("Lock", "Semaphore", "BoundedSemaphore")
_PACKAGE = __name__.partition(".")[0]
_MOST_FRAMES = 3
# The code of the outermost frames of each thread.
_BEGINS = {getattr(threading.Thread, name).__code__ for name in ("run", "_bootstrap", "_bootstrap_inner")}


@public
class OwnerReport(NamedTuple):
    """The thread, greenlet or task that holds or waits.

    Attributes:
        name: what it is, and its name, such as "thread 'MainThread'"; empty if it has ended.
        by: its name in the data of its nodes, as in `Contender.by`.
        gone: why it will never go on, such as "its thread has ended"; empty while it may go on.
        at: the calls that it is in, without the library's own, the innermost first, such as "wait (threading.py:320) <
            settle (app.py:27)"; empty if they are not known.
    """

    name: str
    by: str
    gone: str
    at: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.name or self.by, self.gone)))


@public
class HoldReport(NamedTuple):
    """A hold of this process; each node is a hold, so three permits are three holds.

    Attributes:
        path: the primitive's path, without the chroot.
        kind: the primitive's class.
        mode: "read", "write" or "permit"; for holds of other primitives, "claim", "party" or "member"; empty if the
            class has one mode only.
        token: the fencing token.
        since: when the hold began, by this machine's clock.
        held_for: how many seconds the hold has lasted; a lost hold counts until its loss was noticed.
        depth: how many acquires are not released yet.
        owner: the thread or task that has acquired it. None for a membership, which belongs to the client; for the hold
            of a generator, if the thread that acquired it has ended; and while a hold is being granted, or handed to
            the next thread of this process.
        cause: why the hold was lost; None while it is held. A lost hold is shown until its owner has settled the loss.
        label: the `label` of the lock, if it has one.
    """

    path: str
    kind: str
    mode: str
    token: int
    since: datetime
    held_for: float
    depth: int
    owner: OwnerReport | None
    cause: LossCause | None
    label: str | None = None

    def __str__(self) -> str:
        text = f"{_named(self)}, token {self.token}, since {in_words(self.since)}"
        text += f" ({self.held_for:.1f} s)"
        if self.depth > 1:
            text += f", {self.depth} levels"
        text += ": " + ("no thread's own" if self.owner is None else str(self.owner))
        lost = self.cause is not None
        if not lost and self.owner is not None and self.owner.gone and self.kind.startswith((*_OWN, *_ANY_THREAD)):
            others = ", unless another thread does" if self.kind.startswith(_ANY_THREAD) else ""
            text += f": nobody will release it before this process ends{others}"
        elif self.owner is not None and self.owner.at:
            text += f", at {self.owner.at}"
        return f"lost ({self.cause.value}): {text}" if self.cause is not None else f"holds {text}"


@public
class WaitReport(NamedTuple):
    """A call of this process that waits: for a lock, an event, an item, or for ZooKeeper to be in reach.

    Attributes:
        path: the primitive's path, without the chroot.
        kind: the primitive's class.
        mode: as for a hold.
        since: when the wait began, by this machine's clock.
        waited: how many seconds the wait has lasted.
        timeout: how many seconds the wait may last; None if it may last forever.
        owner: the thread or task that waits.
        awaits: the nodes whose change it awaits; empty while it asks ZooKeeper, or waits for its turn among the threads
            of this process.
        holder: the owner of the awaited node, if that owner is in this process.
        label: as for a hold.
    """

    path: str
    kind: str
    mode: str
    since: datetime
    waited: float
    timeout: float | None
    owner: OwnerReport
    awaits: tuple[str, ...]
    holder: OwnerReport | None
    label: str | None = None

    def __str__(self) -> str:
        text = f"waits at {_named(self)}, since {in_words(self.since)} ({self.waited:.1f} s"
        text += f"{', no timeout' if self.timeout is None else f' of {self.timeout:.1f} s'}): {self.owner}"
        if self.awaits:
            text += f"; awaits {', '.join(self.awaits)}"
        return text if self.holder is None else f"{text}, held in this process by {self.holder}"


@public
class ClientReport(NamedTuple):
    """A client of this process.

    Attributes:
        hosts: its servers, and the chroot.
        state: "connected", "out of reach", "stopped" (or not started), "given up", or "forked" (it belongs to the
            parent process).
        session: its session id, a signed number; None between two sessions.
        timeout: its session timeout, in seconds; infinite before the first connection.
        lease: how many seconds its holds last if no server replies; None without a session. Without a hold, it does not
            matter if the lease is over.
        holds: what it holds, by path.
        waits: its calls that wait, the longest first.
    """

    hosts: str
    state: str
    session: int | None
    timeout: float
    lease: float | None
    holds: tuple[HoldReport, ...]
    waits: tuple[WaitReport, ...]

    def __str__(self) -> str:
        session = "" if self.session is None else f", session {self.session & (1 << 64) - 1:#x} of {self.timeout:g} s"
        # Nothing renews the lease of a client without holds, so an ended lease would look like a fault.
        holds = any(hold.cause is None for hold in self.holds)
        lease = f", lease ends in {self.lease:.1f} s unless renewed" if holds and self.lease is not None else ""
        return "\n  ".join([f"{self.hosts}: {self.state}{session}{lease}", *map(str, self.holds + self.waits)])


@public
class Inspection(NamedTuple):
    """What this process holds and waits for. Its `str()` is a text for operators.

    Attributes:
        at: when this report was made, by this machine's clock.
        pid: the process id.
        clients: the clients, in the order of their first use.
    """

    at: datetime
    pid: int
    clients: tuple[ClientReport, ...]

    @property
    def holds(self) -> tuple[HoldReport, ...]:
        """What all clients hold."""
        return tuple(hold for client in self.clients for hold in client.holds)

    @property
    def waits(self) -> tuple[WaitReport, ...]:
        """The waiting calls of all clients."""
        return tuple(wait for client in self.clients for wait in client.waits)

    def __str__(self) -> str:
        lost = sum(hold.cause is not None for hold in self.holds)
        counts = ((len(self.clients), "client"), (len(self.holds) - lost, "hold"), (len(self.waits), "wait"))
        told = ", ".join(f"{n} {what}{'' if n == 1 else 's'}" for n, what in counts)
        told += f", {lost} lost" if lost else ""
        return "\n".join([f"zkconcurrent, process {self.pid}, {in_words(self.at)}: {told}", *map(str, self.clients)])


@public
def inspect() -> Inspection:
    """Return what all clients, threads and tasks of this process hold and wait for; print the result to read it.

    It takes no lock that a call holds while waiting, and sends nothing. So any thread or signal handler may call it.
    """
    at = ago(0.0)
    sessions: list[Any] = living_sessions()
    with read_stacks():
        # One owner may hold a thousand locks.
        describe = cache(partial(report_owner, frames=sys._current_frames()))
        seen = [_Seen(session, describe) for session in sessions]
        owners = {prefix: owner for each in seen for prefix, owner in each.owners.items()}
        return Inspection(at, getpid(), tuple(each.report(owners) for each in seen))


class _Seen:
    """A copy of one client's tables.

    Attributes:
        owners: the owners of its holds, by the prefixes of their nodes.
    """

    def __init__(self, session: Session, describe: Callable[[int], OwnerReport]) -> None:
        self._session = session
        self._describe = describe
        # R4: each of these copies is made in one step.
        self._tickets = list(session.registry.tickets.values())
        self._states = session.directory.states()
        self._kinds: dict[str, str] = {state.path: state.kind for state in self._states}
        self._holds = [hold for state in self._states for hold in all_holds(state.holds)]
        self.owners = {hold.ticket.prefix: hold.owner for hold in self._holds}

    def report(self, owners: dict[str, int]) -> ClientReport:
        """Return the report of the client, given the owners of all holds of the process."""
        session = self._session
        lease, present = session.registry.lease, session.registry.session
        return ClientReport(
            servers_of(session),
            state_of(session),
            present,
            lease.timeout,
            None if present is None else max(0.0, lease.end - session.clock()),
            tuple(sorted(self._held(), key=attrgetter("path", "since"))),
            tuple(sorted(self._waiting(owners), key=attrgetter("since"))),
        )

    def _held(self) -> Iterator[HoldReport]:
        for state in self._states:
            for kept in [each for keeping in state.keeping for each in keeping._kept()]:
                held_for = kept.held_for
                owner = None if kept.owner is None else self._describe(kept.owner)
                yield HoldReport(state.path, state.kind, kept.mode, kept.token, ago(held_for), held_for, 1, owner, None)
        for hold in self._holds:
            if hold.ticket.state in (State.HELD, State.LOST):
                of_generator = hold.lent is not None and ended(hold.owner)
                owner = None if of_generator else self._describe(hold.owner)
                yield self._hold(hold.ticket, hold.path, hold.depth, owner)
        for ticket in self._tickets:
            if ticket.state is State.HELD and ticket.prefix not in self.owners:
                yield self._hold(ticket, ticket.path, 1, None)

    def _hold(self, ticket: Ticket, path: str, depth: int, owner: OwnerReport | None) -> HoldReport:
        lasted = self._session.clock() - ticket.granted
        lost = ticket.state is State.LOST
        known = None if ticket.loss is None else ticket.loss.held_for
        return HoldReport(
            *self._primitive(path),
            mode_of(ticket),
            ticket.token,
            ago(lasted),
            lasted if known is None else known,
            depth,
            owner,
            cause_of(ticket) if lost else None,
            ticket.label,
        )

    def _waiting(self, owners: dict[str, int]) -> Iterator[WaitReport]:
        for call in self._session.calls:
            if (waiting := call.waiting) is None:
                continue
            waited = self._session.now() - waiting.since
            timeout = None if waiting.deadline is None else waiting.deadline - waiting.since
            yield self._wait(call, waiting.owner, waited, timeout, owners)

    def _wait(self, call: Call, owner: int, waited: float, timeout: float | None, owners: dict[str, int]) -> WaitReport:
        tickets = [ticket for ticket in list(call.tickets) if ticket.state is State.QUEUED]
        awaits = tuple(node for ticket in tickets for node in ticket.awaits)
        holders = [owners[prefix] for node in awaits if (prefix := _prefix(node)) in owners]
        waiter = self._describe(owner)
        if call.deserted is not None and not waiter.gone and call.deserted():
            waiter = waiter._replace(gone="its event loop is closed")
        return WaitReport(
            *self._primitive(call.path),
            next((mode for ticket in tickets if (mode := mode_of(ticket))), ""),
            ago(waited),
            waited,
            timeout,
            waiter,
            awaits,
            self._describe(holders[0]) if holders else None,
            call.label,
        )

    def _primitive(self, path: str) -> tuple[str, str]:
        """Return the path and class of the primitive at a path or, if there is none, of the nearest primitive above."""
        above = path
        while above and above not in self._kinds:
            above = above.rpartition("/")[0]
        return above or path, self._kinds.get(above, "")


def servers_of(session: Session) -> str:
    """Return the servers of a client, and the chroot."""
    client = session.link.client
    return f"{','.join(starmap(shown, client.hosts))}{client.chroot}"


def state_of(session: Session) -> str:
    """Return the state of a client, as in `ClientReport`."""
    link = session.link
    if session.forked:
        return "forked"
    if link.stopping or link.gave_up:
        return "stopped" if link.stopping else "given up"
    return "connected" if link.connected else "out of reach"


def report_owner(owner: int, frames: Mapping[int, FrameType]) -> OwnerReport:
    """Return the report of an owner, given the innermost frame of each thread."""
    if (task := task_of(owner)) is not None:
        gone = "its event loop is closed" if task.get_loop().is_closed() else ""
        gone, at = "its task has ended" if task.done() else gone, _place(_frames_of_task(task))
        return OwnerReport(f"task {task.get_name()!r}", label(owner), gone, at)
    if ended(owner):
        return OwnerReport("", label(owner), "its thread has ended")
    return OwnerReport(f"thread {name(owner)!r}", label(owner), "", _place(frames_from(frames.get(ident(owner)))))


def _frames_of_task(task: Task) -> Iterable[FrameType]:
    """Return the frames of the coroutines of a task, the innermost first."""
    frames: list[FrameType] = []
    coroutine: Any = task.get_coro()
    # Some coroutines are written in C, as Cython's are.
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append(frame)
        coroutine = coroutine.cr_await
    return reversed(frames)


def _place(frames: Iterable[FrameType]) -> str:
    """Return the innermost frames that are not the library's, as text."""
    theirs = (
        frame
        for frame in frames
        if str(frame.f_globals.get("__name__")).partition(".")[0] != _PACKAGE and frame.f_code not in _BEGINS
    )
    return " < ".join(
        f"{frame.f_code.co_name} ({os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno})"
        for frame in islice(theirs, _MOST_FRAMES)
    )


def mode_of(ticket: Ticket) -> str:
    """Return the mode in which a ticket holds or waits."""
    return MODES.get((ticket.name or "")[PREFIX_LENGTH:].rstrip("-0123456789"), "")


def _prefix(node: str) -> str:
    return node.rpartition("/")[2][:PREFIX_LENGTH]


def _named(report: HoldReport | WaitReport) -> str:
    label = "" if report.label is None else f"label {report.label!r}"
    return f"{report.path} ({', '.join(filter(None, (report.kind, report.mode, label)))})"


class _Dump:
    """A signal handler that writes what `inspect()` finds, and then calls the handler that was there before."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.before: Any = None

    def __call__(self, signum: int, interrupted: FrameType | None) -> None:
        # Signals that come faster than they are handled would nest too deeply. The frames show whether one is being
        # handled, as an interrupt could leave a flag set.
        if all(frame.f_code is not self._write.__code__ for frame in frames_from(interrupted)):
            self._write()
        if callable(self.before):
            self.before(signum, interrupted)

    def _write(self) -> None:
        # An error would be raised in whatever the main thread is running.
        try:
            text = str(inspect())
        except Exception as error:
            text = f"zkconcurrent: inspect() failed: {error!r}"
        # If the descriptor is closed, the program goes on without the text.
        with suppress(OSError):
            os.write(self._fd, f"{text}\n".encode(errors="backslashreplace"))


@public
def dump_on_signal(signum: int, fd: int = 2) -> None:
    """Have a signal write to stderr what `inspect()` finds: `kill -USR2 <pid>` then shows what a program waits for.

    ::

        zkconcurrent.dump_on_signal(signal.SIGUSR2)

    One `os.write` writes the text and bypasses `sys.stderr` and the log. As with `faulthandler`, the write blocks while
    a pipe is full. The handler that the program had set before is called afterwards; a signal that would have ended the
    process no longer does. The main thread runs the handler, even while it waits for a lock, but not while it is inside
    a call of a C library that never returns.

    Args:
        signum: the signal, such as `signal.SIGUSR2`.
        fd: the file descriptor to write to.

    Raises:
        ValueError: there is no such signal, it can't be handled, or the caller is not the main thread.
    """
    dump = _Dump(fd)
    try:
        before = signal.getsignal(signum)
        # A second call replaces the handler that the first has set.
        dump.before = before.before if isinstance(before, _Dump) else before
        signal.signal(signum, dump)
    except (ValueError, OSError) as error:
        raise ValueError(f"dump_on_signal can't handle signal {signum!r}: {error}") from None
