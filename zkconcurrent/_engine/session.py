"""The session of a client: it watches over everything that the client holds, waits for, or still has to delete.

The registry holds the state. This module runs the work around it:

* the listener (`connection_listener.py`) follows the state of kazoo's connection, and takes all watch events;
* the keeper (`keeper_thread.py`) does what is due: it sends the heartbeat (`heartbeat.py`), ends holds whose lease ran
  out (`expired_holds.py`), and repeats deletes until they are done or their session is over (`deletes.py`);
* a forked child inherits nothing, and the interpreter's exit deletes this client's nodes.

The head of `client_state.py` explains which thread does what, and what interrupts may do.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from .._errors import ClientError, RefusedError
from .._kazoo.failures import failure
from .._kazoo.link import FORKED, CreatedStat, KazooClient, Link, ZnodeStat
from .._protocol.operations import BadVersion, Busy, ConnectionLost, NodeExists, NoNode, NotEmpty
from .._protocol.session_lease import Lease
from .._protocol.ticket import LossRecord, State, Ticket
from .._runtime.clock import boot_clock, monotonic, wall_clock
from .._runtime.interpreter import check_interpreter
from .._runtime.live_set import LiveSet
from .._runtime.process_exit import end_with_process
from .._runtime.serving import in_listener
from .client_state import ClientState, log_all
from .connection_listener import Listener
from .deletes import Deletes
from .expired_holds import ExpiredHolds
from .heartbeat import Heartbeat
from .keeper_thread import IDLE_BEAT, Keeper
from .loss_cause import of_end
from .path_directory import PathDirectory, PathStateT
from .spares import Spares
from .ticket_registry import Registry
from .watch_removals import Watches

log = logging.getLogger("zkconcurrent")

EXIT_POLL_INTERVAL = 0.005  # seconds
STOP_PATIENCE = 1.0  # seconds
EXITING = (
    "the interpreter is exiting: end this thread, or join it, before the main thread ends; register a function with "
    "atexit after the client is opened"
)


class LeftTickets(NamedTuple):
    """The tickets left by a garbage collected primitive, or by an interrupted call.

    Attributes:
        paths: the primitive's path, until it is removed from the directory.
        tickets: the tickets to discard.
        why: for the log, why no other code releases the holds; empty if the program knows that the tickets are left.
    """

    paths: list[str]
    tickets: list[Ticket]
    why: str = ""


class Handoff(Protocol):
    """The hand-off between the threads of this process that want one unfair lock."""

    def end_turn(self) -> float:
        """Discard a kept ticket that no thread takes in time; return in how many seconds to call again."""
        ...

    def wake_next(self) -> None:
        """Let the next thread in, if allowed."""


class Session(ClientState):
    """One client's session with the library.

    Attributes:
        directory: the states of the live primitives, by path.
        dropped: the tickets to discard that were left by garbage collected primitives and interrupted calls.
        listener: follows the connection, and takes the watch events.
        spares: the receipts that no object uses.
        deletes: deletes the nodes of discarded tickets.
        watches: removes the watches of waits that are over.
        heartbeat: renews the lease, and finds dead links and missing nodes.
        keeper: the thread that does the due work.
        expired_holds: ends holds without a release, and reports their losses.
        handoffs: the hand-offs of the unfair locks.
        watches_handoffs: the keeper wakes soon, to end the turn of a thread that does not take its ticket.
        wall_clock: returns the time since 1970, by which delayed items are due. Tests and the simulation inject theirs.
    """

    def __init__(
        self,
        client: KazooClient,
        link: Link | None = None,
        clock: Callable[[], float] = boot_clock,
        now: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = wall_clock,
    ) -> None:
        super().__init__(link or Link(client), clock, now)
        self.wall_clock = wall_clock
        self.directory = PathDirectory()
        self.link.is_directory = self.directory.is_directory
        # A finalizer may run anywhere, even with the lock held: it only appends here.
        self.dropped: deque[LeftTickets] = deque()
        self.spares = Spares(self)
        self.listener = Listener(self, self._opened, self._ended)
        self.deletes = Deletes(self)
        self.watches = Watches(self, self.listener.on_event)
        self.heartbeat = Heartbeat(self, self.listener.on_event, self.directory.tell_asked)
        self.listener.own_changed = self.heartbeat.own_changed
        self.keeper = Keeper(self, self.do_due_work)
        # The time for which the keeper has planned its next turn. The turn comes later if this process is paused.
        self.next_turn = math.inf
        self._suspect = False
        self._suspect_warned_at = -math.inf
        # Since when the client has been stopped, or not yet started.
        self._stopped_since = math.inf
        self.expired_holds = ExpiredHolds(self, self._why_lost)
        self.handoffs: LiveSet[Handoff] = LiveSet()
        self.watches_handoffs = False

    def start(self) -> Session:
        """Begin to watch over the client. A second call changes nothing."""
        self.listener.start()
        end_with_process(id(self.link.client), self)
        self.keeper.start_thread()
        return self

    @staticmethod
    def of(client: object) -> Session:
        """Return the session of `client`; the first call makes it.

        Raises:
            TypeError: `client` is not a kazoo client.
            RuntimeError: see `check_interpreter`.
        """
        if not isinstance(client, KazooClient):
            do = ": write `async with aio.connect(...) as zk:`" if hasattr(client, "__aenter__") else ""
            raise TypeError(f"client must be a kazoo.client.KazooClient, not {type(client).__name__}{do}")
        session: Session | None = vars(client).get("_zkconcurrent_session")
        if session is not None and session.keeper.begun:
            return session
        if session is None:
            check_interpreter(client.handler.name)
        # R4: of two threads, or of a thread and its signal handler, one makes the session, and either starts it.
        found: Session = session or vars(client).setdefault("_zkconcurrent_session", Session(client))
        return found.start()

    def check_usable(self, path: str) -> None:
        """Refuse a call that could only hang.

        Raises:
            ClientError: the client is not started, is stopped, or was inherited through fork; the interpreter is
                exiting; or the caller runs on one of kazoo's threads or of the library's, or is a listener.
        """
        link = self.link
        if self.refusal is not None:
            raise ClientError(path, self.refusal)
        if link.stopped:
            link.open_at_use()
            if link.stopped:
                raise ClientError(path, link.why_stopped())
        self.check_thread(path)
        if in_listener():
            raise ClientError(path, "called from a listener, which must not wait: hand the work to another thread")

    def check_thread(self, path: str) -> None:
        """Refuse to block a thread that others wait for.

        Raises:
            ClientError: the caller runs on one of kazoo's threads, or of the library's.
        """
        if self.link.on_own_thread() or self.keeper.at_work == self.identity():
            raise ClientError(
                path,
                "called from one of kazoo's own threads or the library's (by a watch, a listener or a completion, or "
                "by a finalizer that the garbage collector ran there), where waiting for ZooKeeper would hang; hand "
                "the work to another thread: client.handler.spawn(...)",
            )

    @property
    def suspect(self) -> bool:
        """Whether the service is out of reach: no server is connected, or a reply that a holder awaits is overdue."""
        return self._suspect or not self.link.connected

    # -- the begin and the end of a session ----------------------------------------------------------------------------

    def _opened(self, lease: Lease) -> None:
        if self.link.session() not in (None, lease.session):
            # The session was adopted just as it ended, and the client has another one already.
            return
        self.registry.begin_session(lease)
        self.heartbeat.reset()
        self.deletes.forget_sends()
        self.watches.forget_all()

    def _ended(self, lease: Lease) -> None:
        if self.registry.lease is not lease and not self.registry.lease.over:
            # The next session has begun: a signal handler that interrupted this thread has done this work already.
            return
        self.deletes.forget_sends()
        self.expired_holds.end_with_session()

    # -- called by the operations of a recipe --------------------------------------------------------------------------

    def new_ticket(self, path: str, begun: list[Ticket], *, marked: bool, detached: bool) -> Ticket:
        """Return a new ticket of the present session, and add it to `begun`; see `Registry.new_ticket`.

        Raises:
            ClientError: the interpreter is exiting.
            SessionExpired: there is no session.
        """
        with self.lock:
            # The exit deletes the nodes of the tickets that it finds.
            if self.refusal is not None:
                raise ClientError(path, self.refusal)
            return self.registry.new_ticket(path, begun, marked=marked, detached=detached)

    def start_waiting(self, ticket: Ticket, on_change: Callable[[], None], *nodes: str) -> None:
        """Have `on_change` called at a change of the nodes; see `Registry.start_waiting`."""
        # The lock covers both: an event that came between them could have `on_change` send its reads before the wait,
        # and these would pass for reads made after it.
        with self.lock:
            self.registry.start_waiting(ticket, *nodes)
            ticket.on_change = on_change

    def stop_watching_tree(self, path: str, changes: deque[str]) -> None:
        """End what a `WatchRecursive` began, unless another call has begun to watch the same tree since."""
        with self.lock:
            if self.registry.trees.get(path) is changes:
                del self.registry.trees[path]
                self.registry.left[path] = True

    def stop_waiting(self, ticket: Ticket, on_change: Callable[[], None]) -> None:
        """End what `start_waiting` began; `on_change` is called from now on."""
        with self.lock:
            ticket.on_change = on_change
            # This comes last, as it empties `ticket.awaits`: the waiting thread, which takes no lock, then knows that
            # all is done.
            self.registry.stop_waiting(ticket)

    def grant(self, ticket: Ticket) -> bool:
        """Make the ticket a hold; see `Registry.grant`."""
        lease = ticket.lease
        with self.lock:
            now = self.clock()
            if not self.registry.grant(ticket, now):
                return False
        if lease.end < now + lease.timeout / 2:
            # The proof of this grant is rather old, so the heartbeat renews the lease at once.
            self.heartbeat.hurry()
        return True

    def note_create_reply(
        self, ticket: Ticket, node: tuple[str, ZnodeStat | CreatedStat] | None, error: Exception | None, before: bool
    ) -> None:
        """Note the outcome of a create, whether or not its recipe still waits for it; with the lock held.

        Args:
            ticket: the ticket of the node.
            node: the node's path and stat; None if it was not made, or if that is unknown.
            error: why it was not made, or why that is unknown.
            before: whether an earlier create of the same node was sent.
        """
        failed = None if error is None else failure(error, ticket.path)
        if node is not None:
            path, stat = node
            ticket.queued_as(path.rpartition("/")[2], stat.czxid)
        elif isinstance(failed, NoNode | NodeExists | BadVersion | NotEmpty | RefusedError | Busy):
            # The reply says that this request has made no node, but an earlier one may have made it.
            ticket.sent = before
        elif isinstance(failed, ConnectionLost):
            self.heartbeat.watch_for_late_create(ticket.path)

    def suspend_hold(self, ticket: Ticket) -> bool:
        """Turn a hold into a waiter; see `Registry.suspend_hold`."""
        with self.lock:
            return self.registry.suspend_hold(ticket)

    def mark_missing(self, ticket: Ticket) -> None:
        """Note that the node of a holder or waiter is not on the server."""
        with self.lock:
            self.registry.mark_missing(ticket)
        self.wake_keeper()

    def mark_deleted(self, ticket: Ticket) -> None:
        """Note that the server has nothing of a ticket any more."""
        with self.lock:
            # R1, as in `discard`.
            self.hooks.ending(ticket)
            self.registry.mark_deleted(ticket)

    def _why_lost(self, now: float) -> LossRecord:
        lease, paused = self.registry.lease, now - self.next_turn > self.timeout / 3
        return of_end(self.link, lease, now, paused=paused, overdue=self.heartbeat.overdue(now))

    def discard(self, ticket: Ticket) -> bool:
        """Discard the ticket and delete its node, however long that takes; return whether there is a node to wait for.

        The ticket's `on_change` is called when the node is gone, and at each failure to delete it.
        """
        with self.lock:
            # R1: what observes the hold is noted first, and so finds the end of the hold wherever an interrupt strikes.
            self.hooks.ending(ticket)
            held = ticket.state is State.HELD
            if not self.registry.discard(ticket):
                return False
            if self.deletes.send(ticket) and held:
                self.registry.hand_over(ticket)
            return True

    def is_gone(self, ticket: Ticket) -> bool:
        """Return whether nothing of a discarded ticket is left on the server."""
        return ticket.prefix not in self.registry.deletes

    # -- called by the keeper ------------------------------------------------------------------------------------------

    def do_due_work(self) -> float:
        """Do the work that is due, with the lock held; return the seconds until more is due, or infinity if none is."""
        self.link.transport.nudge()
        adoption = self.listener.adopt()
        self.listener.hint()
        self.run_posted()
        self.sweep()
        first_due = self.hooks.end_due(self.clock())
        self.expired_holds.end_past_lease()
        now = self.clock()
        held = any(ticket.state is State.HELD for ticket in list(self.registry.tickets.values()))
        pause = IDLE_BEAT
        if adoption is not None:
            pause = min(pause, adoption)
        elif self.link.connected and self.registry.session is not None:
            if self.registry.deletes:
                self.deletes.repeat(now)
            self.spares.delete_unused(now)
            pause = self.heartbeat.beat(now)
        self.watches.remove_idle(now)
        pause = min(pause, self.watches.pause)
        if pauses := [handoff.end_turn() for handoff in self.handoffs]:
            pause = min(pause, *pauses)
        self.watches_handoffs = pause < IDLE_BEAT and bool(pauses) and pause == min(pauses)
        suspect, self._suspect = self._suspect, held and (self.heartbeat.overdue(now) or not self.link.connected)
        if held:
            pause = max(0.0, min(pause, self.registry.lease.end - now, first_due - now))
        pause = self.hooks.report_due(pause, suspect=self._suspect, changed=self._suspect is not suspect)
        self.next_turn = now + pause
        if self._suspect and not suspect and now >= self._suspect_warned_at + self.timeout:
            self._suspect_warned_at = now
            self.warn_later("ZooKeeper is out of reach; holds are suspect until it replies or the lease runs out")
        return math.inf if self._is_over(now) else pause

    def _is_over(self, now: float) -> bool:
        """Return whether the client is stopped, or was never started, and nothing is left that could need the keeper.

        Otherwise the keeper's thread would go on until the garbage collector finds the client, which refers to itself.
        """
        self._stopped_since = min(self._stopped_since, now) if self.link.stopped else math.inf
        # A client that was never connected may be about to start.
        if now - self._stopped_since < (0 if self.link.was_connected else IDLE_BEAT / 2):
            return False
        left = self.registry.tickets or self.registry.deletes or self.registry.lost or self.dropped or self.posted
        begun = self.keeper.to_start or self.unlogged or self.hooks.has_left
        return not (left or begun or self.calls or self.directory.states())

    # -- objects that come and go -------------------------------------------------------------------------------------

    def path_state(self, path: str, kind: str, make: Callable[[], PathStateT], part: str = "") -> PathStateT:
        """Return the state of `path`; see `PathDirectory.open`."""
        self.sweep()
        with self.lock:
            state = self.directory.open(path, kind, make, part)
        # The keeper may have ended since the caller got this session.
        self.keeper.start_thread()
        return state

    def drop(self, tickets: list[Ticket]) -> None:
        """Have tickets discarded: now or, if that is interrupted, by the keeper."""
        self.dropped.append(LeftTickets([], tickets))
        self.sweep()

    def sweep(self) -> None:
        """Discard the tickets that garbage collected primitives and interrupted calls have left."""
        while self.dropped:
            with self.lock:
                try:
                    left = self.dropped[0]
                except IndexError:
                    # Another thread, or a signal handler that interrupted this one, has discarded the tickets.
                    return
                for ticket in left.tickets:
                    if left.why and ticket.prefix in self.registry.tickets:
                        self.warn_later("released %s, as %s", ticket.node, left.why, zk_path=ticket.path)
                    self.discard(ticket)
                # Threads of this process may wait for the tickets of an interrupted call.
                for handoff in self.handoffs if not left.paths else ():
                    handoff.wake_next()
                with suppress(IndexError):
                    self.directory.closed(left.paths.pop())
                # R2: if an interrupt comes before this, the next caller discards the tickets. R4: a signal handler that
                # interrupted this thread may have removed the entry.
                with suppress(ValueError):
                    self.dropped.remove(left)

    def abandon_all(self) -> Callable[[float], None]:
        """Delete all nodes of this client, at the interpreter's exit; return a function that waits for the deletes.

        That function also waits until the calls of `on_lost` have begun, for example after a `client.stop()` shortly
        before the exit.
        """
        self.sweep()
        with self.lock:
            self.exiting, self.refusal = True, EXITING
            self._delete_receipts()
            # Waiters first: a hold discarded here must not be handed to one of them.
            for ticket in sorted(self.registry.tickets.values(), key=lambda ticket: ticket.state is State.HELD):
                self.discard(ticket)

        def left() -> object:
            deletes = self.registry.deletes or self.spares.leaving
            return self.keeper.to_start or (deletes and self.link.connected)

        return partial(self._wait_while, left)

    def delete_receipts(self) -> None:
        """Delete the receipts that no call uses, as the client is about to be stopped; wait a moment for that.

        Otherwise each short-lived process would leave a receipt behind.
        """
        link = self.link
        if self.forked or not link.connected or link.on_own_thread() or self.has_lock():
            return
        self.sweep()
        with self.lock:
            self._delete_receipts()
        self._wait_while(lambda: self.spares.leaving and link.connected, self.now() + STOP_PATIENCE)

    def _wait_while(self, left: Callable[[], object], until: float) -> None:
        # This polls, as the reply to a delete may wake another thread instead, which is releasing.
        while left() and self.now() < until:
            self.run_posted()
            self.link.handler.sleep_func(EXIT_POLL_INTERVAL)
        # The keeper may not be able any more to start a thread that logs: log here.
        log_all(self.unlogged)

    def _delete_receipts(self) -> None:
        for state in self.directory.states():
            state.leave_receipts()
        self.spares.delete_all(self.clock())

    def forget_after_fork(self) -> None:
        """Forget the parent's nodes, holds and calls, in a forked child."""
        self.forked = self.keeper.over = True
        self.refusal = FORKED
        self.lock = self.link.handler.rlock_object()
        self.registry = Registry("")
        self.keeper.to_start.clear()
        self.posted.clear()
        self.calls.clear()
        for place in self.directory.states():
            place.forget()
