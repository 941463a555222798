"""The invariants after every step, when nothing goes on, and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.models.lock import Lock, Place, ReadWriteLock
from tests.simulation.world.ensemble import Ensemble, SessionState, Transport
from tests.simulation.world.world import Violation, World
from zkconcurrent._engine.holds import all_holds
from zkconcurrent._protocol.blocking_rules import MUTEX, READ, WRITE, blocker
from zkconcurrent._protocol.ticket import State, Ticket
from zkconcurrent._runtime.identity import ended

if TYPE_CHECKING:
    from tests.simulation.world.client import Process
    from tests.simulation.world.workload import Section


HELD = State.HELD  # looked up once, as it is asked for at every step
RULES = {rule.role: rule for rule in (MUTEX, READ, WRITE)}
WANTS = {READ.role: "read", WRITE.role: "write"}


def role_of(ticket: Ticket) -> str:
    """Return as what a ticket is queued, from its name alone; "" if that is no lock's queue."""
    return next((role for role in RULES if role in (ticket.name or "")), "")


def excluded_by(ticket: Ticket) -> tuple[str, ...]:
    """Return the roles that must not be held together with the ticket's."""
    role = role_of(ticket)
    others = WANTS if role in WANTS else (role,)
    return tuple(other for other in others if role == "" or not together((role, 1), (other, 2)))


def exclude(one: Ticket, other: Ticket) -> bool:
    """Return whether two must not hold together; of one number are a writer and its own reader."""
    return role_of(one) != "" and not together(*((role_of(each), (each.name or "")[-10:]) for each in (one, other)))


def together(*holds: tuple[str, object]) -> bool:
    """Return whether the model lets them hold together: each the role of a node, and whose it is."""
    model = ReadWriteLock() if holds[0][0] in WANTS else Lock()
    return model.together([Place(str(whose), "", WANTS.get(role)) for role, whose in holds])


class Checks:
    """The invariants.

    Attributes:
        sections, past: the critical sections that threads believe to be in, and were in.
        removed: nodes that an operator removed, and when, in changes of the service.
        listed: how much of the log the last listing had seen that a ticket's recipe was given.
    """

    def __init__(self, world: World, ensemble: Ensemble, processes: list[Process], chroot: str) -> None:
        self.world = world
        self.ensemble = ensemble
        self.processes = processes
        self.chroot = chroot
        self.sections: list[Section] = []
        self.removed: dict[str, int] = {}
        self.listed: dict[Ticket, int] = {}
        self.seen: dict[Ticket, None] = {}
        self.newest: dict[tuple[str, str], int] = {}
        self.lost: dict[Ticket, float] = {}
        self.past: list[Section] = []

    # -- after every step ----------------------------------------------------------------------------------------

    def step(self) -> None:
        """No two hold what excludes each other, tokens only grow, no hold ends behind its thread's back."""
        now = self.world.now
        holders: dict[str, list[Ticket]] = {}
        for process in self.processes:
            if not process.alive:
                continue
            registry = process.session.registry
            for ticket in registry.tickets.values():
                if ticket.state is not HELD:
                    continue
                if ticket not in self.seen:
                    self._granted(ticket, ticket.lease.end)
                if now >= ticket.lease.end:
                    continue  # it says of itself that it is lost
                if self.ensemble.sessions[ticket.session].expired:
                    raise Violation(f"{ticket} is held, its lease runs, and its session is over at the server")
                others = holders.setdefault(ticket.path, [])
                for other in others:
                    if exclude(other, ticket) and not self.excused(other) and not self.excused(ticket):
                        raise Violation(f"two hold {ticket.path}: {other} and {ticket}")
                others.append(ticket)
            if registry.lost:
                for ticket in registry.lost:
                    if ticket not in self.lost:
                        self._lost(process, ticket)
        for section in self.sections:
            if section.hold.ticket.state is State.DISCARDED and section.worker.process.alive:
                raise Violation(f"{section.worker.name} is in its critical section, and its hold was given up")

    def _granted(self, ticket: Ticket, lease_end: float) -> None:
        self.seen[ticket] = None
        self.world.say(f"HOLDS {ticket.path} by {ticket.name}, token {ticket.token}")
        if self.world.now >= lease_end:
            raise Violation(f"{ticket} was granted, and the lease has run out")
        before = max((self.newest.get((ticket.path, role), 0) for role in excluded_by(ticket)), default=0)
        if ticket.token < before and not self.excused(ticket):
            raise Violation(f"the fencing token of {ticket} is {ticket.token}, after {before}")
        self.newest[ticket.path, role_of(ticket)] = max(before, ticket.token)

    def _lost(self, process: Process, ticket: Ticket) -> None:
        self.lost[ticket] = self.world.now
        self.world.say(f"{process.name} knows that {ticket} is LOST")
        registry = process.session.registry
        if (
            registry.session == ticket.session
            and max(self.world.now, process.told) < ticket.lease.end
            and self.chroot + ticket.node in self.ensemble.leader.nodes
        ):
            raise Violation(f"{ticket} is said to be lost, and is not")

    def excused(self, ticket: Ticket) -> bool:
        """Whether an operator took the node away after it was first in its queue, so that its process can't know yet.

        A thread that was handed the lock by a thread of its own process has not looked since, but would have learned of
        a node that was missing from its last listing.
        """
        node = self.chroot + ticket.node
        removed = self.removed.get(node)
        if removed is None:
            return False
        if ticket.handed_over and removed > self.listed.get(ticket, 0):
            return True
        nodes, queue = self.ensemble.leader.nodes, node.rpartition("/")[0] + "/"
        if any(path.startswith(queue) and nodes[path].czxid < ticket.token for path in nodes):
            return False
        ahead = (
            when for path, (when, made) in self.ensemble.gone.items() if path.startswith(queue) and made < ticket.token
        )
        return removed > max(ahead, default=0)

    def expiring(self, state: SessionState) -> None:
        """No session ends at the server while its lease runs."""
        for process in self.processes:
            for ticket in process.session.registry.tickets.values() if process.alive else ():
                held = ticket.state is State.HELD and self.world.now < ticket.lease.end
                if held and ticket.session == state.number:
                    raise Violation(f"{ticket} is held, its lease runs, and its session is over at the server")

    def remove(self, node: str) -> None:
        """Take note of a node that an operator took away: its process must know of it after a heartbeat."""
        self.removed[node] = len(self.ensemble.log)
        for process in self.processes:
            for ticket in process.session.registry.tickets.values():
                if self.chroot + ticket.node == node:
                    self._notice(process, ticket, self.world.now)

    def _notice(self, process: Process, ticket: Ticket, began: float) -> None:
        """Look whether the process knows, as soon as it had the time for two heartbeats."""
        wire, now = process.connection.wire, self.world.now
        within = process.session.timeout / 3 + 0.1 + 6 * self.ensemble.trip
        known = ticket.state is State.QUEUED and (not ticket.awaits or ticket.changed)  # its thread will look
        if known or ticket.prefix not in process.session.registry.tickets or not process.alive:
            return
        since = max(began, process.starved_until, self.world.late, self.ensemble.amiss_until)
        since = now if wire is None or not wire.open else max(since, wire.heard_since(), wire.silent_until)
        if now >= since + within:
            raise Violation(f"{ticket} was deleted {now - began:g} s ago, and its process does not know")
        self.world.at(since + within, lambda: self._notice(process, ticket, began))

    # -- when nothing can happen before time passes --------------------------------------------------------------

    def faults(self) -> bool:
        """Whether anything is kept from going on by a fault."""
        now = self.world.now
        # A follower catches up only when time passes, also if its lag has ended: until then it answers what is stale.
        if self.ensemble.amiss_until > now or self.ensemble.is_behind:
            return True
        if any(actor.held_until > now for actor in self.world.actors):
            return True
        for process in self.processes:
            wire, until = process.connection.wire, process.connection.pipe.full_until
            if wire is not None:
                if wire.server.diverged:
                    return True
                until = max(until, wire.stalled_until, wire.silent_until)
                until = max(until, *(message[3] for message in (*wire.requests, *wire.answers)), 0.0)
            if process.alive and (until > now or not process.runs):
                return True
        return False

    def quiet(self) -> None:
        """Each waiter is rightly blocked, by the nearest ahead, and will hear of its end; when nothing is amiss."""
        if self.faults():
            return
        for process in self.processes:
            wire = process.connection.wire
            if not process.alive or wire is None or not process.client.connected or process.client._queue:
                continue
            for ticket in process.session.registry.tickets.values():
                if not ticket.awaits or ticket.name is None or role_of(ticket) == "":
                    continue
                names = self.ensemble.leader.children(self.chroot + ticket.path)
                if ticket.name in names:  # else the next heartbeat tells
                    self._waits(wire, ticket, ticket.name, names)

    def _waits(self, wire: Transport, ticket: Ticket, name: str, names: list[str]) -> None:
        """Look at one who waits."""
        awaited = ticket.awaits[0].rpartition("/")[2]
        rule = RULES[role_of(ticket)]
        ahead = blocker(name, names, rule)
        # Of a writer and its own reader, which have one number, either will do.
        if awaited not in names or ahead is None or rule.key(ahead) != rule.key(awaited):
            raise Violation(f"{ticket} waits for {awaited}; ahead is {ahead}: {names}")
        if not wire.watches(self.chroot + ticket.awaits[0]):
            raise Violation(f"{ticket} waits for {awaited} without a watch")

    def _no_fresh_containers(self) -> None:
        """No container stays that never had a child, as no server removes it; unless a node of its primitive stays."""
        nodes = self.ensemble.leader.nodes
        containers = self.ensemble.leader.tree.containers
        for path in containers:
            above = path.rpartition("/")[0]
            if nodes[path].creates or not (above == self.chroot or above in containers):
                continue
            if all(f"{above}/{name}" in containers for name in nodes[above].children):
                raise Violation(f"left at the server, where it never had a child, so that it stays: {path}")

    def _is_watched(self, process: Process, path: str) -> bool:
        """Whether the process's server has a watch of it at a node."""
        wire = process.connection.wire
        return wire is not None and wire.watches(path)

    def stays(self, path: str) -> bool:  # noqa: ARG002
        """Whether an ephemeral node may be there at the end."""
        return False

    # -- at the end ----------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Nothing is left: no node, no ticket, no delete, nobody parked, no watch."""
        nodes = [path for path in self.ensemble.leader.all_ephemerals() if not self.stays(path)]
        if nodes:
            raise Violation(f"left at the server: {nodes}")
        self._no_fresh_containers()
        for process in self.processes:
            if not process.alive:
                continue
            session, client = process.session, process.client
            registry = session.registry
            left = {
                "tickets": registry.tickets,
                # A client that is stopped keeps those for when it is started again.
                "deletes": [
                    each for each in registry.deletes.values() if not (each.lasting and client._stopped.is_set())
                ],
                "losses untold": registry.lost,
                "waiting": registry._awaiting,
                "parked": session.calls,
                "dropped": session.dropped,
                # One is left at a node that outlives its watcher, until that changes; on the same path, no second. And
                # one for the creation of a missing node: then the server has it, too.
                "watchers": [
                    path
                    for path, watchers in client._data_watchers.items()
                    if len(watchers) > 1
                    or (watchers and path not in self.ensemble.leader.nodes and not self._is_watched(process, path))
                ],
                "in flight": session.deletes.last_tried,
            }
            for what, there in left.items():
                if there:
                    raise Violation(f"left in {process.name}: {what} {there}")
            for section in self.past:
                ticket = section.ticket
                if section.worker.process is not process or section.left or ticket.state is not State.LOST:
                    continue
                if not section.hold.loss.is_lost:
                    raise Violation(f"{section.worker.name}: `lost` of {ticket} was never set")
            for state in list(session.directory.values()):
                for hold in all_holds(state.holds):
                    # A lost hold whose task has ended goes when the next one takes a hold.
                    unsettled = hold.ticket.state is State.LOST and ended(hold.owner)
                    if hold.ticket.state is not State.DISCARDED and not unsettled:
                        raise Violation(f"left in {process.name}: a hold with {hold.ticket}")
