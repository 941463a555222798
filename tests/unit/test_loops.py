"""A signal handler, or a finalizer, changes what the library goes through at that moment, and no loop ends for that."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from kazoo.client import KazooClient

from zkconcurrent import Lock
from zkconcurrent._engine.holds import Hold
from zkconcurrent._engine.local_handoff import LocalHandoff
from zkconcurrent._engine.loss import Loss
from zkconcurrent._engine.session import LeftTickets, Session
from zkconcurrent._protocol.lease import Lease
from zkconcurrent._protocol.ticket import Ticket

pytestmark = pytest.mark.fault(352)

MOST_STEPS = 5_000
# Each turn of a loop has more steps, so none is passed over.
STRIDE = 3


class At:
    """Run a function once, at the n-th step of the library's bytecode: a handler strikes between any two of them."""

    def __init__(self, step: int, act: Callable[[], object]) -> None:
        self.left = step
        self._act = act

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _arg: object) -> Any:
        # The weak collections of the standard library are loops in Python, too.
        if not str(frame.f_globals.get("__name__")).startswith(("zkconcurrent.", "weakref", "_weakrefset")):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                self._act()
        return self._trace


class Situation:
    """A client that was never connected, with nodes that wait or are held, and what a handler does to them."""

    def __init__(self) -> None:
        self.client = KazooClient()
        self.session = Session.of(self.client)
        # It has ended, as in a forked child: nothing but the test works here.
        self.session.keeper.over = True
        self.registry = self.session.registry
        lease = Lease(1)
        lease.opened(self.session.clock(), 1000.0)
        self.registry.opened(lease)
        self.kept: list[object] = []
        self.tickets = [self.begun() for _ in range(3)]
        self.lock = self.made(fair=False)
        handoff = self.lock._path_state.handoff
        assert isinstance(handoff, LocalHandoff)
        self.handoff = handoff
        self.state = self.lock._path_state
        for ticket in self.tickets:
            self.hold(ticket)

    def begun(self) -> Ticket:
        """Return a new ticket, which waits."""
        ticket = self.registry.begin("/queue", [])
        ticket.name = f"{ticket.prefix}lock-0000000000"
        self.registry.start_waiting(ticket, f"/queue/{len(self.registry.tickets)}", "/queue/of all")
        ticket.shown = ticket.awaits
        return ticket

    def hold(self, ticket: Ticket) -> None:
        """Make it a hold that is lost, so that the hand-off looks at the next one, too."""
        hold = Hold("/queue", ticket, "lock-", len(self.kept), Loss(self.session.link.user_event))
        self.kept.append(hold)
        self.state.holds["lock-"][hold.owner] = hold

    def made(self, **options: Any) -> Lock:
        """Return a new lock."""
        lock = Lock(self.client, f"/locks/{len(self.kept)}", **options)
        self.kept.append(lock)
        return lock

    def act(self) -> None:
        """Acquire, release, ask, and make locks: as a handler may."""
        self.registry.mark_deleted(self.tickets[0])
        self.hold(self.begun())
        self.begun()
        self.made(fair=False)
        self.kept.append(Lock(self.client, self.lock.path, fair=False, on_lost=print, on_revoke=print))
        self.state.note_holders(f"role {len(self.kept)}", [], 0)
        self.session.heartbeat.watch_for_late_create(f"/late/{len(self.kept)}")


def sweep(at: Situation) -> None:
    """Discard what was left: the threads of unfair locks may wait for that."""
    at.session.dropped.append(LeftTickets([], []))
    at.session.sweep()


def in_doubt(at: Situation) -> None:
    """Look whether any create is still in doubt; none is."""
    at.session.heartbeat._asked_leader = math.inf
    at.session.heartbeat._look_around(math.inf)


def made_above(at: Situation) -> None:
    """Make a lock above others, which is refused."""
    with suppress(ValueError):  # paths must not nest
        Lock(at.client, "/locks")


def due_work(at: Situation) -> None:
    """Take a turn of the keeper."""
    with at.session.lock:
        at.session.do_due_work()


LOOPS: dict[str, Callable[[Situation], object]] = {
    "the nodes that must be there": lambda at: at.registry.known(),
    "the nodes that are waited for": lambda at: at.registry.shown(),
    "an equal tuple": lambda at: at.registry.shared(at.tickets[2], ("none",)),
    "any hold": lambda at: at.session.heartbeat._holds(),
    "any waiter": lambda at: at.session.heartbeat._is_proving(),
    "the creates in doubt": in_doubt,
    "the keeper's work": due_work,
    "the holds of an unfair lock": lambda at: at.handoff._is_open(),
    "the holds elsewhere": lambda at: at.state._limit_elsewhere(0),
    "the hand-offs": sweep,
    "whom to tell of a loss": lambda at: at.state.tell_lost(at.tickets[1]),
    "whom to ask": lambda at: at.state.tell_asked(at.tickets[1]),
    "the paths": made_above,
    "the states of paths": lambda at: at.session._delete_receipts(),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_handler_changes_what_is_gone_through(loop: str) -> None:
    """At any step, whatever the handler adds and removes."""
    for step in range(1, MOST_STEPS, STRIDE):
        at = Situation()
        at.act()
        hook = At(step, at.act)
        with hook:
            LOOPS[loop](at)
        if hook.left > 0:
            assert step > 10  # it has begun
            return
    pytest.fail(f"more than {MOST_STEPS} steps")
