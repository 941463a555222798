"""The session: one per client, it watches over everything that the client holds, waits for, or has still to delete.

The state is in the registry; here are the threads, the clock and the connection around it:

* a listener takes kazoo's word on the connection, and one watcher serves all watches;
* the keeper, a thread of our own, sends the heartbeat (`heartbeat.py`), ends holds whose lease ran out, repeats
  deletes until they are done or their session is over (`deletes.py`), tells of losses, and logs;
* a forked child gets nothing of it, and the interpreter's exit deletes our nodes.

A signal handler, or a finalizer that the garbage collector runs, may interrupt a thread at any line and call the
library, or wait for kazoo's thread. So kazoo's threads post what they have to say, and never wait for the session's
lock; nothing is logged with the lock held; and no step here is undone by another that comes in its middle.
"""

from __future__ import annotations

import logging
import math
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from .._errors import ClientError, RefusedError
from .._kazoo.link import KazooClient, KazooState, Link, Made, ZnodeStat, boot_clock, failure
from .._kazoo.transport import at_once
from .._recipes.operations import BadVersion, ConnectionLost, NoNode
from .._recipes.ticket import State, Ticket
from .client_state import ClientState
from .deletes import Deletes
from .heartbeat import Heartbeat
from .interpreter import check_interpreter
from .lease import Lease
from .path_directory import PathDirectory, PathStateT
from .process_exit import watch
from .registry import Registry

log = logging.getLogger("zkconcurrent")

IDLE_BEAT = 1.0
ADOPTING = 0.01
STUCK = 0.1
EXIT_LOOKS = 0.005


class Dropped(NamedTuple):
    """What a garbage collected primitive, or an interrupted driver, left.

    Attributes:
        paths: the primitive's path, until it was taken off.
        tickets: what is to be given up.
    """

    paths: list[str]
    tickets: list[Ticket]


class Turns(Protocol):
    """Threads of this process that want one unfair lock."""

    def end_turn(self) -> float:
        """Give up what is kept for a thread that does not come for it in time; return in how many seconds to look."""
        ...

    def look(self) -> None:
        """Let the next in, if that may be."""


class Session(ClientState):
    """Everything that the library does with one client.

    Attributes:
        places: the live primitives, by path.
        deletes: what is being deleted in the background.
        gates: of the unfair locks.
        watches_handoffs: the keeper wakes soon, to end the turn of a thread that does not take what is kept for it.
        stuck: a thread keeps the lock: it is suspended, with a signal handler on top of it, so the keeper can't work.
        forked: this is a child's copy, of no use.
        exiting: the interpreter exits; nothing is acquired any more.
    """

    def __init__(
        self,
        client: KazooClient,
        link: Link | None = None,
        clock: Callable[[], float] = boot_clock,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(link or Link(client), clock, now)
        self.directory = PathDirectory()
        # A finalizer may run anywhere, also where the lock is held: it only appends here.
        self.dropped: deque[Dropped] = deque()
        self.stuck = False
        self.forked = False
        self.exiting = False
        self.deletes = Deletes(self)
        self.heartbeat = Heartbeat(self)
        self._suspect = False
        self._suspect_said = -math.inf
        self._looked = -math.inf  # when it was last seen which event loops are closed
        self.handoffs: weakref.WeakSet[Turns] = weakref.WeakSet()
        self.watches_handoffs = False
        self._keepers = [_keep]  # taken by who starts it

    def start(self) -> Session:
        """Watch over the client; to do so again changes nothing."""
        client = self.link.client
        client.add_listener(self._on_state)  # a set: there once
        self.link.wire.on_close = self._over
        if self.registry.session is None:
            self._adopt()
        watch(id(client), self)
        with suppress(IndexError):
            keep = self._keepers.pop()
            try:
                self.link.handler.spawn(keep, weakref.ref(self), self._wake)
            except BaseException:
                self._keepers.append(keep)
                raise
        return self

    @staticmethod
    def of(client: object) -> Session:
        """Return the session of `client`, made with the first object.

        Raises:
            TypeError: it is no kazoo client.
            RuntimeError: this is an isolated subinterpreter.
        """
        if not isinstance(client, KazooClient):
            raise TypeError(f"client must be a kazoo.client.KazooClient, not {type(client).__name__}")
        session: Session | None = vars(client).get("_zkconcurrent_session")
        if session is not None and not session._keepers:
            return session
        if session is None:
            check_interpreter()
        # In one step: of two threads, or of a thread and its signal handler, one makes it, and either starts it.
        found: Session = session or vars(client).setdefault("_zkconcurrent_session", Session(client))
        return found.start()

    def check_usable(self, path: str) -> None:
        """Refuse a call that could only hang.

        Raises:
            ClientError: the client is not started, stopped, inherited through fork, or calls from its own threads.
        """
        self.check_not_forked(path)
        self.check_not_exiting(path)
        if self.link.stopped:
            raise ClientError(
                path,
                "the client is not started, is stopped, or has given up; call client.start() first (one opened "
                "before fork() is the parent's: open another in the child)",
            )
        if self.link.on_own_thread():
            raise ClientError(
                path,
                "called from one of kazoo's own threads (a watch, a listener or a completion), where waiting for "
                "ZooKeeper would wait for ever; hand the work to another thread: client.handler.spawn(...)",
            )

    def check_not_forked(self, path: str) -> None:
        """Refuse a call on what the parent process owns.

        Raises:
            ClientError: this is a forked child.
        """
        if self.forked:
            raise ClientError(
                path, "the client belongs to the parent process; open one of its own in the child, after fork()"
            )

    def check_not_exiting(self, path: str) -> None:
        """Refuse what nobody would be there to release.

        Raises:
            ClientError: the interpreter has deleted our nodes on its way out.
        """
        if self.exiting:
            raise ClientError(path, "the interpreter is exiting; end the thread, or join it, before the main one ends")

    @property
    def suspect(self) -> bool:
        """Whether the service is out of reach at the moment."""
        return self._suspect or not self.link.connected

    # -- kazoo's word, on kazoo's threads: never block ----------------------------------------------------------------

    def _on_state(self, state: str) -> bool | None:
        if self.forked:
            return True  # takes the listener off
        if state == KazooState.CONNECTED:
            self._opened(self.link.opened())
        elif state == KazooState.LOST:
            self._over()
        self.unpark()
        self._wake.set()
        return None

    def _over(self) -> None:
        """Take note that the session is over, or will be in a moment, as it is being closed."""
        self.link.ended()  # at once, for whoever looks at it without the lock
        self.post(self._ended)

    def _adopt(self) -> None:
        """Go on with a connection that was there first, if its timeout can be told by now."""
        if self.link.connected and self.registry.session is None:
            self._opened(self.link.adopt())
            self.unpark()

    def _opened(self, lease: Lease | None) -> None:
        if lease is None:
            return
        self.timeout = lease.timeout
        if self.link.containers is None:
            self.link.probe()
        self.post(partial(self._begin, lease))

    def _begin(self, lease: Lease) -> None:
        if self.link.session() not in (None, lease.session):
            return  # one that was adopted just as it ended
        self.registry.opened(lease)
        self.heartbeat.begin()
        self.deletes.in_flight.clear()

    def _ended(self) -> None:
        self.registry.ended()
        self.deletes.in_flight.clear()
        self._tell_losses()

    @at_once
    def on_event(self, event: Any) -> None:
        """Take a watch event; this one watcher, left on any node, is left there once."""
        self.post(partial(self.registry.note_change, event.path))

    # -- what the driver calls ----------------------------------------------------------------------------------------

    def grant(self, ticket: Ticket) -> bool:
        """Take the ticket for a hold; see `Registry.grant`."""
        with self.lock:
            now = self.clock()
            if not self.registry.grant(ticket, now):
                return False
        if ticket.lease.end < now + ticket.lease.timeout / 2:
            self.heartbeat.hurry()  # what it was granted on is rather old
        return True

    def made(
        self, ticket: Ticket, node: tuple[str, ZnodeStat | Made] | None, error: Exception | None, before: bool
    ) -> None:
        """Take what became of a create, whether or not its recipe still waits for it; with the lock held.

        Args:
            ticket: whose node it is.
            node: its path and stat; None if it was not made, or if that is unknown.
            error: why not.
            before: whether another create of the same node was sent before.
        """
        failed = None if error is None else failure(error, ticket.path)
        if node is not None:
            path, stat = node
            ticket.queued_as(path.rpartition("/")[2], stat.czxid)
            created_in = stat.ephemeralOwner
        elif isinstance(failed, ConnectionLost):
            created_in = self.registry.session  # if at all
            self.heartbeat.doubt(ticket.path)
        else:
            if isinstance(failed, NoNode | BadVersion | RefusedError):
                ticket.sent = before  # it was answered that there is none
            return
        if created_in != ticket.session:
            self.registry.created_in_wrong_session(ticket, created_in)
            self._wake.set()

    def missing(self, ticket: Ticket) -> None:
        """Note that the node of what waits or holds is not on the server."""
        with self.lock:
            self.registry.missing(ticket)
        self._wake.set()

    def leave(self, ticket: Ticket) -> bool:
        """Count on a hold no more; see `Registry.leave`."""
        with self.lock:
            return self.registry.leave(ticket)

    def gone(self, ticket: Ticket) -> None:
        """Note that the server has nothing of a ticket any more."""
        with self.lock:
            self.registry.gone(ticket)

    def check_lease(self) -> None:
        """Lose what our own clock says is lost, before anybody builds on it, and tell of every loss."""
        # The common case takes no lock: the lease runs, and it was renewed for the session that everything held is of.
        if not self.registry.lost and self.clock() < self.registry.lease.end:
            return
        with self.lock:
            self.registry.expire_lease(self.clock())
            if self.registry.lost:
                self._wake.set()
        self._tell_losses()

    def _tell_losses(self) -> None:
        while self.registry.lost:
            with self.lock:
                if not self.registry.lost:
                    return
                ticket = self.registry.lost[0]
                if (observe := ticket.observer()) is not None:
                    observe(ticket)
                with suppress(ValueError):  # what interrupted us has told it too
                    self.registry.lost.remove(ticket)  # only now: an interrupt before leaves it to the next
            self.say("lost: %s (fencing token %d)", ticket.node, ticket.token)

    def discard(self, ticket: Ticket) -> bool:
        """Give the ticket up and delete its node, for as long as it takes; return whether there is any to wait for.

        Its `wake` is called when the node is gone.
        """
        with self.lock:
            held = ticket.state is State.HELD
            if not self.registry.discard(ticket):
                return False
            if self.deletes.send(ticket) and held:
                self.registry.hand_over(ticket)
            return True

    def is_discarded(self, ticket: Ticket) -> bool:
        """Return whether nothing of a ticket given up is left on the server."""
        return ticket.prefix not in self.registry.deletes

    # -- the keeper ---------------------------------------------------------------------------------------------------

    def attend(self) -> float:
        """Do what is due, and log; return the seconds until there is more. On the keeper's thread."""
        self._abandon_deserted()
        if not self.lock.acquire(True, STUCK):
            self.stuck = True
            self.unpark()
            return STUCK
        try:
            self.stuck = False
            pause = self._tick()
        finally:
            self.lock.release()
        with suppress(IndexError):
            while True:
                log.warning(*self._said.popleft())
        return pause

    def _abandon_deserted(self) -> None:
        """Abandon the calls whose event loops are closed; called without the lock, as a call may be of two sessions."""
        now = self.now()
        if now < self._looked + IDLE_BEAT:
            return
        self._looked = now
        for ref in self.parked.valuerefs():
            if (call := ref()) is not None and call.deserted is not None and call.deserted():
                call.abandon()

    def help(self) -> None:
        """Do what is due in the place of a keeper that is stuck, if it is the calling thread that has the lock."""
        if self.stuck and self.lock.acquire(False):
            try:
                self._tick()
            finally:
                self.lock.release()

    def _tick(self) -> float:
        """Do what is due, with the lock held."""
        self.link.wire.nudge()
        self._adopt()
        self.serve()
        self.sweep()
        self.check_lease()
        now = self.clock()
        held = any(ticket.state is State.HELD for ticket in self.registry.tickets.values())
        pause = IDLE_BEAT
        if self.link.connected and self.registry.session is None:
            pause = ADOPTING
        elif self.link.connected:
            if self.registry.deletes:
                self.deletes.repeat(now)
            pause = self.heartbeat.beat(now)
        if pauses := [handoff.end_turn() for handoff in list(self.handoffs)]:
            pause = min(pause, *pauses)
        self.watches_handoffs = pause < IDLE_BEAT and bool(pauses) and pause == min(pauses)
        suspect, self._suspect = self._suspect, held and (self.heartbeat.overdue(now) or not self.link.connected)
        if held:
            pause = max(0.0, min(pause, self.registry.lease.end - now))
        if self._suspect and not suspect and now >= self._suspect_said + self.timeout:
            self._suspect_said = now
            self.say("ZooKeeper is out of reach; what is held is suspect until it answers or the lease runs out")
        return pause

    # -- objects that come and go -------------------------------------------------------------------------------------

    def path_state(self, path: str, kind: str, make: Callable[[], PathStateT], part: str = "") -> PathStateT:
        """Return what this process knows of `path`; see `PathDirectory.open`."""
        self.sweep()
        with self.lock:
            return self.directory.open(path, kind, make, part)

    def drop(self, tickets: list[Ticket]) -> None:
        """Have tickets given up, now or, if that is interrupted, by the keeper."""
        self.dropped.append(Dropped([], tickets))
        self.sweep()

    def sweep(self) -> None:
        """Give up what garbage collected primitives still held, and what interrupted drivers left."""
        while self.dropped:
            with self.lock:
                if not self.dropped:
                    return
                left = self.dropped[0]
                for ticket in left.tickets:
                    self.discard(ticket)
                # What an interrupted driver left may be what others of its process wait for.
                for handoff in list(self.handoffs) if not left.paths else ():
                    handoff.look()
                with suppress(IndexError):
                    self.directory.closed(left.paths.pop())
                with suppress(ValueError):  # what interrupted us has done it too
                    self.dropped.remove(left)  # only now: an interrupt before leaves it to the next

    def abandon_all(self) -> Callable[[float], None]:
        """Delete every node of ours, at the interpreter's exit; return how to wait until then for that to be done."""
        self.sweep()
        with self.lock:
            self.exiting = True
            # Who waits goes first: none of them shall be handed what is given up here.
            for ticket in sorted(self.registry.tickets.values(), key=lambda ticket: ticket.state is State.HELD):
                self.discard(ticket)

        def wait(until: float) -> None:
            # Not by what a delete wakes: a thread that releases just now may be the one.
            while self.registry.deletes and self.link.connected and self.now() < until:
                self.serve()
                self.link.handler.sleep_func(EXIT_LOOKS)

        return wait

    def leave_to_parent(self) -> None:
        """Forget everything, in a forked child."""
        self.forked = True
        self.lock = self.link.handler.rlock_object()
        self.registry = Registry("")
        self.dropped.clear()
        self.posted.clear()
        self.parked.clear()
        for place in list(self.directory.values()):
            place.forget()


def _keep(session_ref: weakref.ref[Session], wake: Any) -> None:
    """Attend to the session for as long as it is there; holds no reference to it while it waits."""
    while True:
        session = session_ref()
        if session is None or session.forked:
            return
        try:
            pause = session.attend()
        except Exception:
            log.exception("the keeper goes on after an error")
            pause = IDLE_BEAT
        del session
        wake.wait(pause)
        wake.clear()
