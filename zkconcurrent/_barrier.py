"""`Barrier`: `threading.Barrier` for every process that opens the same path."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from contextlib import suppress

from ._engine.driver import UNANSWERED, Call
from ._engine.waiting import Steps
from ._errors import ZkConcurrentError
from ._kazoo.link import KazooClient
from ._primitive import Primitive, node_data, nothing
from ._recipes.barrier import (
    Party,
    View,
    abort,
    count,
    destroy,
    finish,
    glance,
    leave,
    most_parties,
    outlast,
    reset,
    wait,
)


class Barrier(Primitive):
    """A point that a fixed number of parties, threads of whatever processes, reach and leave together; again and again.

    A party whose time is up, whose wait is interrupted, or whose session ends while it waits breaks the barrier for
    all who wait with it, as in `threading`. Those who come while a generation is complete wait for the next. Every
    party that reaches the service within a third of the session timeout is told the same.

    A barrier that is broken stays so until `reset()`, and outlives its processes: one that a killed party broke is
    broken for the next run of a job too. So give each run a path of its own (`f"/app/start/{job_id}"`), and `destroy()`
    it at the end; or have the program that starts the parties call `reset()` before it does.

    Layout:
        `<path>`, PERSISTENT, with the number of parties, the generation, and the last generations that were broken or
        reset. `<path>/<generation>`, PERSISTENT, removed when a later one begins, and in it
        `_c_<uuid>-party-<number>`, EPHEMERAL_SEQUENTIAL, one for each party that waits.

    Invariant:
        A generation trips once the nodes numbered 0 to `parties - 1` are there, all of them: every party that lives
        passes, or none does. A party is made only in the present generation, if that is not broken.

    Cost:
        To come: one write and three reads in two round trips, then two reads to wait. To trip: two writes in one round
        trip, the one that wakes all and one that makes room for the next generation; with an action, two more before
        it. A party whose time is up: one write and one read in one round trip. Each party that comes wakes the first.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: the path that is the barrier; missing nodes are made, those above as containers.
        parties: how many trip the barrier; all must agree on it. One request names them all, so that it is limited by
            the length of the path: to about 7,000, or 10,000 at most.
        action: called by the last to come, on its own thread, before anybody goes on. If it raises, that breaks the
            barrier. While it runs, the others wait for it beyond their time.
        timeout: how long `wait` waits if it is not told, in seconds; None for ever.

    Raises:
        TypeError: `parties` is no integer.
        ValueError: `parties` is less than 1, or too many; or the path is bad, or is another primitive of this client
            already.

    Source:
        `threading.Barrier`; java.util.concurrent's `CyclicBarrier`; ZooKeeper's barrier recipe.
    """

    _kind = "Barrier"
    _broken_error: type[Exception] = threading.BrokenBarrierError

    def __init__(
        self,
        client: KazooClient,
        path: str,
        parties: int,
        action: Callable[[], object] | None = None,
        timeout: float | None = None,
    ) -> None:
        parties = int(operator.index(parties))  # of a bool, too, the node must say a number
        if parties < 1:
            raise ValueError("parties must be >= 1")
        super().__init__(client, path)
        at_most = most_parties(self._session.link.full(path))
        if parties > at_most:
            raise ValueError(f"parties must be <= {at_most} at {path!r}: one request must name all of them")
        self._parties = parties
        self._action = action
        self._timeout = timeout
        self._view = View(path, parties)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all parties have come, and go on together.

        Args:
            timeout: how long to wait for the others, in seconds; None for the barrier's own. It bounds no action: once
                that has begun, its end is waited for.

        Returns:
            The arrival index, from 0 to `parties - 1`, another one for each party.

        Raises:
            threading.BrokenBarrierError: the barrier is broken, or was broken or reset while we waited; or our time is
                up, or our session over, and it has not tripped, or no answer has told of that: in a third of the
                session timeout, or in all of it while an action runs.
            ValueError: the barrier is for another number of parties.
            ForeignNodeError: the path has something else.
            ClientError: the client can't be used here.
        """
        if timeout is None:
            timeout = self._timeout
        call = Call(self._session, self._path)
        return self._await(call, self._meeting(call, timeout, self._until(timeout), self._identity()))

    def _meeting(self, call: Call, timeout: float | None, deadline: float | None, owner: int) -> Steps[int]:
        party: Party | None = None
        try:
            came = yield from call.run(wait(self._view, node_data(owner), acts=self._action is not None), deadline)
            while isinstance(came, Party):
                party = came
                came = yield from self._go_on(call, party, timeout)
        except GeneratorExit:
            raise
        except BaseException:
            if party is not None:
                with suppress(ZkConcurrentError):  # the others see by its node that it has gone
                    yield from call.run(leave(party), self._session.now())
            raise
        if came is None:
            if party is not None and party.goes_on:  # not answered: the others learn of it as soon as that can be
                self._session.link.handler.spawn(self._leave_later, party)
            raise self._broken_error(f"the barrier {self._path!r} is broken; reset() makes it whole")
        return came

    def _go_on(self, call: Call, party: Party, timeout: float | None) -> Steps[int | Party | None]:
        """Do what a party has to do once it waits no more; answers as its wait does."""
        now, patience = self._session.now, self._session.timeout or UNANSWERED
        if party.is_to_act:
            assert self._action is not None
            self._action()
            return (yield from call.run(finish(party), None if timeout is None else now() + patience))
        if party.others_decide():
            return (yield from call.run(outlast(party), now() + patience))
        # One that may have come waits for a reconnect, too: else it could be told other than those it has passed with.
        return (yield from call.run(leave(party), now() + (patience / 3 if party.ticket.sent else 0.0)))

    def _leave_later(self, party: Party) -> None:
        with suppress(ZkConcurrentError):
            call = Call(self._session, self._path)
            call.wait(call.run(leave(party)))

    def reset(self) -> None:
        """Send away whoever waits, with BrokenBarrierError, and begin anew, broken or not."""
        return self._run(reset(self._view), nothing)

    def abort(self) -> None:
        """Break the barrier: BrokenBarrierError for whoever waits, and for all who come until it is reset."""
        return self._run(abort(self._view), nothing)

    def destroy(self) -> None:
        """Remove the barrier, broken or not, when nobody uses it any more; the next to come makes it anew.

        Raises:
            RuntimeError: somebody waits.
            ForeignNodeError: the path has something else, which is left alone.
            ClientError: the client can't be used here.
        """

        def done(destroyed: bool) -> None:
            if not destroyed:
                raise RuntimeError(f"the barrier {self._path!r} is in use: its parties must have left")

        return self._run(destroy(self._view), done)

    @property
    def parties(self) -> int:
        """How many trip the barrier."""
        return self._parties

    @property
    def n_waiting(self) -> int:
        """How many wait; asks the leader. Cost: three reads, in two round trips."""
        return self._run(count(self._view), int)

    @property
    def broken(self) -> bool:
        """Whether the barrier is broken; asks the leader. Cost: two reads, pipelined."""
        return self._run(glance(self._view), lambda state: state is not None and state.broken)

    def __repr__(self) -> str:
        state = self._view.state
        known = "broken" if state and state.broken else f"waiters={self._view.waiting}/{self._parties}"
        return f"<zkconcurrent.{type(self).__name__} at {id(self):#x}: {known}>"
