"""The session: one per client, it watches over everything that the client holds, waits for, or has still to delete.

The state is in the registry; here are the threads, the clock and the connection around it:

* a listener takes kazoo's word on the connection, and one watcher serves all watches;
* the keeper, a thread of our own, sends the heartbeat (`_heartbeat.py`), ends holds whose lease ran out, repeats
  deletes until they are done or their session is over (`_deletes.py`), and tells of losses;
* a forked child gets nothing of it, and the interpreter's exit deletes our nodes.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ._deletes import Deletes
from ._errors import ClientError
from ._heartbeat import Heartbeat
from ._interpreter import check_interpreter
from ._kazoo import KazooClient, KazooState, Link, Made, ZnodeStat, failure
from ._ops import ConnectionLost
from ._paths import ancestors
from ._registry import Registry, State, Ticket
from ._wire import at_once

if TYPE_CHECKING:
    from ._place import Place

log = logging.getLogger("zkconcurrent")

# The monotonic clock stands still while a machine sleeps, and the server does not wait for it.
boot_clock: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
IDLE_BEAT = 1.0
EXIT_PATIENCE = 1.0
EXIT_LOOKS = 0.005


class Session:
    """Everything that the library does with one client.

    Attributes:
        link: the way to ZooKeeper.
        registry: what we have there. Invariant: touched only with `lock` held.
        clock: what leases are measured by; `now`, what deadlines are. A test, or the simulation, injects its own.
        lock: re-entrant, as kazoo may answer a request in the thread that makes it; never held while waiting.
        places: the live primitives, by path.
        timeout: the negotiated session timeout, in seconds; 0 before the first connection.
        deletes: what is being deleted in the background.
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
        self.link = link or Link(client)
        self.clock = clock
        self.now = now
        self.identity = self.link.identity
        self.lock = self.link.handler.rlock_object()
        self.registry = Registry(str(uuid.uuid4())[:-13])
        self.places: weakref.WeakValueDictionary[str, Place] = weakref.WeakValueDictionary()
        self.interior: dict[str, int] = {}
        # A finalizer may run anywhere, also where the lock is held: it only appends here.
        self.dropped: deque[tuple[str, list[Ticket]]] = deque()
        self.parked: set[Callable[[], None]] = set()
        self.timeout = 0.0
        self.forked = False
        self.exiting = False
        self._wake = self.link.handler.event_object()
        self.deletes = Deletes(self, self._wake.set)
        self._heartbeat = Heartbeat(self, self._wake.set)
        self._suspect = False
        client.add_listener(self._on_state)  # keeps the session alive for as long as its client
        if self.link.connected:
            self._opened()
        self.link.handler.spawn(_keep, weakref.ref(self), self._wake)
        _exit_with_multiprocessing()
        _sessions[id(client)] = self  # last: one whose making was interrupted would have no keeper

    @staticmethod
    def of(client: object) -> Session:
        """Return the session of `client`, made with the first object.

        Raises:
            TypeError: it is no kazoo client.
            RuntimeError: this is an isolated subinterpreter.
        """
        if not isinstance(client, KazooClient):
            raise TypeError(f"client must be a kazoo.client.KazooClient, not {type(client).__name__}")
        with _making:
            session = _sessions.get(id(client))
            if session is None:
                check_interpreter()
                session = Session(client)
            return session

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
            self._opened()
        elif state == KazooState.LOST:
            with self.lock:
                self.registry.ended()
                self.deletes.in_flight.clear()
        self.unpark()
        self._wake.set()
        return None

    def _opened(self) -> None:
        with self.lock:
            session = self.link.session()
            if session is None:
                return
            self.timeout = self.link.timeout()
            self.registry.opened(session, self.timeout)
            self._heartbeat.begin()
            self.deletes.in_flight.clear()

    @at_once
    def on_event(self, event: Any) -> None:
        """Take a watch event; this one watcher, left on any node, is left there once."""
        with self.lock:
            self.registry.stir(event.path)

    def unpark(self) -> None:
        """Wake every thread that waits for a change of the connection."""
        for wake in list(self.parked):
            wake()

    # -- what the driver calls ----------------------------------------------------------------------------------------

    def renewed(self, sent: float) -> None:
        """Renew the lease."""
        with self.lock:
            self.registry.renewed(sent)

    def grant(self, ticket: Ticket) -> bool:
        """Take the ticket for a hold; see `Registry.grant`."""
        with self.lock:
            return self.registry.grant(ticket, self.clock())

    def made(self, ticket: Ticket, node: tuple[str, ZnodeStat | Made] | None, error: Exception | None) -> None:
        """Take what became of a create, whether or not its recipe still waits for it; on kazoo's thread."""
        with self.lock:
            if node is not None:
                path, stat = node
                ticket.queued_as(path.rpartition("/")[2], stat.czxid)
                slipped_into = stat.ephemeralOwner
            elif error is not None and isinstance(failure(error, ticket.path), ConnectionLost):
                slipped_into = self.registry.session  # if at all
                self._heartbeat.doubt()
            else:
                return
            if slipped_into != ticket.session:
                self.registry.slipped(ticket, slipped_into)
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
        if not self.registry.lost and self.clock() < self.registry.lease_end:
            return
        with self.lock:
            self.registry.expire_lease(self.clock())
            if self.registry.lost:
                self._wake.set()
        while self.registry.lost:
            with self.lock:
                if not self.registry.lost:
                    return
                ticket = self.registry.lost[0]
                place = self._place_of(ticket)
                if place is not None:
                    place.tell_lost(ticket)
                del self.registry.lost[0]  # only now: who is interrupted before leaves it to the next
            log.warning("lost: %s (fencing token %d)", ticket.node, ticket.token)

    def _place_of(self, ticket: Ticket) -> Place | None:
        """Return the primitive that a hold belongs to: its queue is the primitive's path, or a part of that."""
        return self.places.get(ticket.path) or self.places.get(ticket.path.rpartition("/")[0])

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

    def tick(self) -> float:
        """Do what is due; return the seconds until there is more. On the keeper's thread."""
        self.link.wire.nudge()
        self.sweep()
        self.check_lease()
        with self.lock:
            now = self.clock()
            held = any(ticket.state is State.HELD for ticket in self.registry.tickets.values())
            if self.link.connected and self.timeout:
                if self.registry.deletes:
                    self.deletes.repeat(now)
                self._heartbeat.beat(now)
            overdue = self._heartbeat.overdue(now)
            suspect, self._suspect = self._suspect, held and (overdue or not self.link.connected)
            pause = self.timeout / 6 if self.timeout else IDLE_BEAT
            if held:
                pause = max(0.0, min(pause, self.registry.lease_end - now))
        if self._suspect and not suspect:
            log.warning("ZooKeeper is out of reach; what is held is suspect until it answers or the lease runs out")
        return pause

    # -- objects that come and go -------------------------------------------------------------------------------------

    def place(self, path: str, kind: str, make: Callable[[], Place], part: str = "") -> Place:
        """Return what this process knows of `path`, the same for every object made for it.

        Args:
            path: the primitive's path.
            kind: what it is.
            make: makes what is returned, for the first object.
            part: what may be a primitive of its own, although it lies below: it is a part of this one.

        Raises:
            ValueError: another kind of primitive lives there, or above it, or below it.
        """
        self.sweep()
        with self.lock:
            place = self.places.get(path)
            if place is not None:
                if place.kind != kind:
                    raise ValueError(f"{path!r} is a {place.kind} of this client already; a {kind} needs another path")
                return place
            own = f"{path}/{part}"
            if path in self.interior and any(each.startswith(f"{path}/") and each != own for each in list(self.places)):
                raise ValueError(f"a primitive of this client lives below {path!r}; paths must not nest")
            for above in ancestors(path):
                other = self.places.get(above)
                if other is not None and path != f"{above}/{other.part}":
                    raise ValueError(f"{path!r} lies below {above!r}, which is a primitive; paths must not nest")
            place = self.places[path] = make()
            place.part = part
            for above in ancestors(path):
                self.interior[above] = self.interior.get(above, 0) + 1
            return place

    def is_directory(self, path: str) -> bool:
        """Return whether a path lies above primitives only, so that others may have theirs below it."""
        return not any(each in self.places for each in (path, *ancestors(path)))

    def drop(self, path: str, tickets: list[Ticket]) -> None:
        """Have tickets given up, now or, if that is interrupted, by the keeper."""
        self.dropped.append((path, tickets))
        self.sweep()

    def sweep(self) -> None:
        """Give up what garbage collected primitives still held, and what interrupted drivers left."""
        while self.dropped:
            with self.lock:
                if not self.dropped:
                    return
                path, tickets = self.dropped[0]
                for ticket in tickets:
                    self.discard(ticket)
                # What an interrupted driver left may be what others of its process wait for.
                for place in list(self.places.values()) if not path else ():
                    if place.gate is not None:
                        place.gate.look()
                self.dropped.popleft()  # only now: who is interrupted before leaves it to the next
                for above in ancestors(path):
                    self.interior[above] -= 1
                    if not self.interior[above]:
                        del self.interior[above]

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
                self.link.handler.sleep_func(EXIT_LOOKS)

        return wait

    def leave_to_parent(self) -> None:
        """Forget everything, in a forked child."""
        self.forked = True
        self.lock = self.link.handler.rlock_object()
        self.registry = Registry("")
        self.dropped.clear()
        self.parked.clear()
        for place in list(self.places.values()):
            place.forget()


def _keep(session_ref: weakref.ref[Session], wake: Any) -> None:
    """Tick for as long as the session is there; holds no reference to it while it waits."""
    while True:
        session = session_ref()
        if session is None or session.forked:
            return
        try:
            pause = session.tick()
        except Exception:
            log.exception("the keeper goes on after an error")
            pause = IDLE_BEAT
        del session
        wake.wait(pause)
        wake.clear()


def _at_exit() -> None:
    until = time.monotonic() + EXIT_PATIENCE
    with _making:
        sessions = [session for session in _sessions.values() if not session.forked]
    for wait in [session.abandon_all() for session in sessions]:
        wait(until)
    for close in at_exit:
        close(until)


def _exit_with_multiprocessing() -> None:
    """Have our nodes deleted also when a child of multiprocessing ends: by os._exit, which atexit never hears of."""
    global _exits_in
    if _exits_in != os.getpid() and (util := sys.modules.get("multiprocessing.util")):
        util.Finalize(None, _at_exit, exitpriority=0)
        _exits_in = os.getpid()


def _after_fork_in_child() -> None:
    global _making
    _making = threading.Lock()
    for session in list(_sessions.values()):
        session.leave_to_parent()


# By the client's id: a session lives no longer than its client, so an id is not found again for another one.
_sessions: weakref.WeakValueDictionary[int, Session] = weakref.WeakValueDictionary()
_making = threading.Lock()
_exits_in = 0
# What is done at the interpreter's exit when our nodes are deleted, each told until when, by the monotonic clock.
at_exit: list[Callable[[float], None]] = []
atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
