"""`Barrier`: `threading.Barrier` for every process that opens the same path."""

from __future__ import annotations

import operator
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from .._arguments.functions import check_callbacks
from .._engine.call import Call
from .._errors import ZkConcurrentError
from .._kazoo.link import KazooClient
from .._protocol.operations import OutOfReach, Recipe, Requeue
from .._recipes.barrier import abort, finish, give_up, outlast, read_state, reset, wait, withdraw
from .._recipes.barrier_state import BarrierContent, BarrierView, Party, most_parties
from .._recipes.destroy import Users, destroy
from .._runtime import wait_loops
from .._runtime.stacks import frames_from
from .._runtime.wait_loops import Steps
from .base.node_data import node_data
from .base.primitive import Primitive, discard_result, kind_of

WITHDRAWAL_POLL_INTERVAL = 0.01  # seconds


class Barrier(Primitive):
    """A point that a fixed number of parties, threads of any processes, reach and leave together, again and again.

    A party breaks the barrier for all that wait with it if its timeout passes, its wait is interrupted, or its session
    ends during the wait, as in `threading`. A task of `zkconcurrent.aio` that is cancelled only leaves. A party that
    arrives when a generation already has all its parties waits for the next one. All parties that reach ZooKeeper
    within a third of the session timeout learn the same outcome.

    A broken barrier stays broken until `reset()`, and outlives its processes: if a killed party broke it, it is still
    broken for the next run of a job. So give each run its own path (`f"/app/start/{job_id}"`) and `destroy()` it at the
    end; or let the program that starts the parties call `reset()` first.

    Layout:
        `<path>`, PERSISTENT, with the number of parties, the generation, and the last generations that were broken or
        reset. `<path>/<generation>`, PERSISTENT, with the parties that have left; removed when a later generation
        begins. Below that node, `_c_<uuid>-party-<number>`, EPHEMERAL_SEQUENTIAL, one for each party that waits.

    Invariant:
        A generation trips only while the nodes of its first `parties` parties, not counting those that have left, all
        exist: every living party passes, or none does. A party's node is created only in the current generation, and
        only if that is not broken.

    Cost:
        To arrive: 1 write and 3 reads, in 2 round trips; then 2 reads to wait, or 3 for the first party. Each arrival
        wakes the first party. To trip: 2 writes in 1 round trip. One wakes all parties; the other creates the node of
        the next generation. An action adds 2 writes before these. A party whose timeout passes: 1 write and 3 reads,
        in 2 round trips, and the delete of its node.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the barrier's path; missing nodes are created, those above it as containers.
        parties: the number of parties that trip the barrier; all processes must give the same. At most 10,000, or as
            many as one request can name: about 5,300 if the path has 100 bytes.
        action: called by the last party to arrive, in its own thread, before any party goes on. If the action raises an
            exception, the barrier breaks. While the action runs, the other parties wait for it, even past their
            timeouts.
        timeout: how long `wait` waits by default, in seconds; None waits forever.

    Raises:
        TypeError: `parties` is not an integer, the path is not a string, or the action is not a plain function.
        ValueError: `parties` is less than 1, or too large; the path is invalid; or this client already uses it for
            another primitive.

    Source:
        `threading.Barrier`; java.util.concurrent's `CyclicBarrier`; ZooKeeper's barrier recipe.
    """

    _kind = "Barrier"
    _broken_error: type[Exception] = threading.BrokenBarrierError
    _withdraw: Callable[[Party], object] | None = None

    def __init__(
        self,
        client: KazooClient,
        path: str,
        parties: int,
        action: Callable[[], object] | None = None,
        timeout: float | None = None,
    ) -> None:
        # The node's data needs a number, so a bool becomes an int.
        parties = int(operator.index(parties))
        if parties < 1:
            raise ValueError("parties must be >= 1")
        super().__init__(client, path)
        at_most = most_parties(self._session.link.full(path))
        if parties > at_most:
            raise ValueError(f"parties must be <= {at_most} at {path!r}: one request must name all of them")
        check_callbacks(action=action)
        self._parties = parties
        self._action = action
        self._timeout = timeout
        self._view = BarrierView(self._path, parties)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all parties have arrived, and go on together.

        Args:
            timeout: how long to wait for the others, in seconds; None uses the barrier's own. The timeout does not
                bound the action: once the action runs, the call waits for its end.

        Returns:
            The arrival index, from 0 to `parties - 1`, a different one for each party.

        Raises:
            threading.BrokenBarrierError: the barrier is broken, or is broken or reset during the wait. Also if the
                caller's timeout passes or its session ends, unless a reply shows in time that the barrier has tripped:
                within a third of the session timeout or, while an action runs, within the whole session timeout.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            ValueError: the barrier was made for another number of parties.
            ForeignNodeError: the path has other nodes or data.
            ClientError: the client can't be used here; or the action that the barrier waits for makes this call,
                through this object or another one with the same path.
        """
        if timeout is None:
            timeout = self._timeout
        call = Call(self._session, self._path)
        arrival = wait(self._view, node_data(self._identity()), acts=self._action is not None, acting=_acting())
        return self._await(call, self._wait_steps(call, arrival, timeout, self._until(timeout)))

    def _wait_steps(
        self, call: Call, arrival: Recipe[int | Party | None], timeout: float | None, deadline: float | None
    ) -> Steps[int]:
        party: Party | None = None
        try:
            came = yield from call.run(arrival, deadline)
            while isinstance(came, Party):
                party = came
                if party.struck is not None:
                    raise party.struck
                came = yield from self._conclude(call, party, timeout)
        except GeneratorExit:
            raise
        except BaseException as error:
            if party is None:
                raise
            # Otherwise the traceback and the frames keep each other alive, and the barrier with them.
            party.struck = None
            late: deque[BaseException] = deque(maxlen=1)
            # If the client can't report that the party leaves, the others learn it from the party's missing node.
            with suppress(ZkConcurrentError, Requeue):
                yield from wait_loops.outlast(self._departing(call, party, error, late), late.append)
            if late:
                raise late.pop() from error
            raise
        if came is None:
            if party is not None and party.goes_on:
                # No reply has shown the outcome: a thread of the library retries until the others can learn that the
                # party has left.
                session = self._session
                leave = partial(session.keeper.spawn, partial(self._leave_later, party), f"leaves {self._path}")
                session.keeper.start_soon(leave)
            raise self._broken_error(f"the barrier {self._path!r} is broken; call reset() to use it again")
        return came

    def _conclude(self, call: Call, party: Party, timeout: float | None) -> Steps[int | Party | None]:
        """Finish a party's wait: run the action, or learn or decide the outcome. Return as the recipe `wait` does."""
        now, patience = self._session.now, self._session.longest_reply
        if party.is_to_act:
            self._act(party)
            return (yield from call.run(finish(party), None if timeout is None else now() + patience))
        if party.others_decide():
            return (yield from call.run(outlast(party), now() + patience))
        # A party that may have arrived also waits for a reconnect: if other parties have passed with it, it must report
        # the same outcome as they do.
        return (yield from call.run(give_up(party), now() + (patience / 3 if party.ticket.sent else 0.0)))

    def _act(self, party: Party) -> None:  # noqa: ARG002
        # `_acting` finds the party on the stack.
        assert self._action is not None
        wait_loops.call_user(self._action)

    def _leave_later(self, party: Party) -> None:
        with suppress(ZkConcurrentError):
            call = Call(self._session, self._path)
            call.wait(call.run(give_up(party)))

    def _departing(self, call: Call, party: Party, error: BaseException, late: deque[BaseException]) -> Steps[None]:
        """Have a party leave the barrier after its wait was interrupted or has failed; no other party then counts it.

        `late` gets further interrupts. If ZooKeeper is out of reach, or does not reply for a third of the session
        timeout, others may still count the party.
        """
        session, ticket, now = self._session, party.ticket, self._session.now()
        if self._withdraw is None or isinstance(error, Exception):
            yield from call.outlast(partial(give_up, party, struck=True), now, now, late.append)
            return
        # If no thread can be started, this raises while the call still has the ticket, so the call discards the ticket.
        self._withdraw(party)
        call.tickets.remove(ticket)
        until, known = now + session.reply_patience, session.registry.tickets
        while session.link.connected and session.now() < until:
            if ticket.prefix not in known and session.is_gone(ticket):
                return
            yield WITHDRAWAL_POLL_INTERVAL

    def _withdrawal(self, party: Party) -> tuple[Call, Steps[None]]:
        """Return the call that takes over the ticket of a party whose wait was cancelled, and the call's steps."""
        call = Call(self._session, self._path, max_outage=1.0)
        call.tickets.append(party.ticket)
        return call, self._depart(call, party)

    def _depart(self, call: Call, party: Party) -> Steps[None]:
        try:
            yield from call.run(withdraw(party))
        except OutOfReach:
            # The outage was so long that the session is over, and the party's node is gone with it.
            call.abandon()

    def reset(self) -> None:
        """Begin a new generation, even if the barrier is broken; parties that wait get BrokenBarrierError."""
        return self._run(reset(self._view), discard_result)

    def abort(self) -> None:
        """Break the barrier: parties that wait, or arrive before a `reset()`, get BrokenBarrierError."""
        return self._run(abort(self._view), discard_result)

    def destroy(self) -> None:
        """Remove the barrier, broken or not, after its last use; the next party to arrive creates it again.

        Raises:
            RuntimeError: a party waits.
            ForeignNodeError: the path has other nodes or data; none of them is deleted.
            ClientError: the client can't be used here.
        """
        view = self._view

        def destroyed(using: Users) -> None:
            self._destroyed(using)
            view.note(BarrierContent(view.parties))

        return self._run(destroy(view.tree), destroyed)

    @property
    def parties(self) -> int:
        """The number of parties that trip the barrier."""
        return self._parties

    @property
    def n_waiting(self) -> int:
        """The number of parties that wait; asks the leader. Cost: 3 reads, in 2 round trips."""
        return self._run(read_state(self._view, counts=True), lambda seen: seen[1])

    @property
    def broken(self) -> bool:
        """Whether the barrier is broken; asks the leader. Cost: 2 reads, pipelined."""
        return self._run(read_state(self._view), lambda seen: seen[0].broken)

    def __repr__(self) -> str:
        known = "broken" if self._view.state.broken else f"waiters={self._view.waiting}/{self._parties}"
        return f"<{kind_of(self)} at {id(self):#x}: {known}>"


def _acting() -> set[str | None]:
    """Return the nodes of the parties whose actions run on this thread, through any barrier and client of this process.

    This reads the stack: an interrupt could leave any other record behind.
    """
    callers = frames_from(sys._getframe(1))
    return {frame.f_locals["party"].ticket.name for frame in callers if frame.f_code is _ACTION}


_ACTION = Barrier._act.__code__
