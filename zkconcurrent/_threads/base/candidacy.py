"""The seat of an election, which the leader holds, and the candidacy of a client that stands for the seat.

A seat is a lock whose nodes contain the candidates' ids. In a block `with election.lead()` the calling thread
holds the seat. For a candidacy, a thread of the library holds the seat, and queues again after each loss.

A seat's queue has no recipes of its own: `LeaderLock` is a `LockBase` that passes other data to the recipes of a lock,
and its rule decides which nodes it refuses.

`stand()` begins a `Candidacy`, which has a thread of the library. The thread acquires the seat, sleeps until the hold
is lost or the candidacy is withdrawn, ends the hold, and starts over. The candidacy belongs to the path's state, not to
an object: the node stands for the process, so it must not disappear when a variable goes out of scope. A candidacy is
withdrawn by a flag and a wake-up: the `why_end` of the acquire's call reads the flag, so the trampoline raises an error
in the steps, and they clean up as after an interrupt. When a term ends this way, its `lost` is set before the delete is
sent: other threads may work for the term, and must learn of its end before the next candidate can lead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from typing import NamedTuple, NoReturn, TypeVar

from ..._engine.call import Attempt, Call
from ..._engine.holds import Hold, PathState
from ..._engine.loss_cause import cause_of, why_lost
from ..._engine.patience import POLL_INTERVAL
from ..._engine.session import log
from ..._errors import ClientError, LockLostError, WaitCancelledError
from ..._kazoo.link import KazooClient
from ..._protocol.blocking_rules import LATCH, MUTEX, Rule
from ..._protocol.node_info import origin_of
from ..._protocol.operations import Node, Recipe
from ..._protocol.ticket import Ticket
from ..._recipes.election import Leader, follow, publish, read_leader
from ..._recipes.lock import acquire, contenders, list_queue, try_acquire
from ..._runtime.events import AutoResetEvent
from ..._runtime.live_set import LiveSet
from ..._runtime.public import public
from ..._runtime.wait_loops import Steps, wait
from .lock_base import LockBase
from .lock_core import LockCore

T = TypeVar("T")
LAYOUTS = {"selector": MUTEX, "latch": LATCH}
EXIT_PAUSE = 1.0  # seconds


@public
class Candidate(NamedTuple):
    """One node in the queue of an election.

    Attributes:
        id: the node's data as text: the candidate's id, until the candidate publishes other data.
        data: the node's data.
        session: the ZooKeeper session id, a signed number, as in kazoo's `client_id`; the servers' logs have it in
            hexadecimal, without a sign.
        queued: when the candidate queued, by the server's clock.
        node: the node's path.
        token: the node's creation zxid, the fencing token of its term.
        host: the candidate's host; None if `pid` is None.
        pid: its process id; None if the program chose the id, or the leader has published other data.
    """

    id: str
    data: bytes
    session: int
    queued: datetime
    node: str
    token: int
    host: str | None = None
    pid: int | None = None

    @classmethod
    def of(cls, path: str, name: str, node: Node) -> Candidate:
        """Make a candidate from a node that was read."""
        queued = datetime.fromtimestamp(node.ctime, timezone.utc)
        text = node.data.decode("utf-8", "replace")
        return cls(text, node.data, node.session, queued, f"{path}/{name}", node.czxid, *origin_of(node.data))


class CandidacyWithdrawn(WaitCancelledError):
    """Raised in the steps of a candidacy, to end it."""

    def __init__(self) -> None:
        super().__init__("", "the candidacy was withdrawn")


class ElectionState(PathState):
    """The state of an election that all objects of one client and path share.

    Attributes:
        candidacy: the client's last candidacy; None if the client has never stood.
    """

    candidacy: Candidacy | None = None

    @property
    def stands(self) -> bool:
        """Whether the client stands for election."""
        return self.candidacy is not None and self.candidacy.goes_on

    def stand(self, core: LeaderCore) -> None:
        """Begin a candidacy, unless there is one."""
        begun = Candidacy(core)
        try:
            with self.session.lock:
                if not self.stands:
                    before, self.candidacy = self.candidacy, begun
                    if before is not None:
                        # `before` goes on only if a signal handler has begun it since the check above.
                        before.withdraw()
            self.start()
        except BaseException:
            # An interrupt may also strike in `spawn`, when the candidacy's thread already runs.
            begun.withdraw()
            raise

    def start(self) -> None:
        """Start the candidacy's thread, unless it has begun.

        A signal handler calls this, too: it may have interrupted the thread that was about to make this start.
        """
        if (candidacy := self.candidacy) is not None and candidacy.thread is None:
            # If several threads are started, the first to run takes the core, and the others end.
            self.session.link.spawn(candidacy.run, f"candidacy {self.path}")

    def forget(self) -> None:
        """Forget all holds, and the candidacy, in a forked child: they are the parent's."""
        super().forget()
        self.candidacy = None


class Candidacy:
    """A candidacy, from `stand()` to `withdraw()`: a thread of the library queues, leads, and queues again.

    The candidacy listens for the loss of its hold, which wakes it; see `Loss`.

    Attributes:
        hold: its hold, while it leads.
        withdrawn: the candidacy must end.
        thread: the number of its thread; None until the thread has begun.
        over: its thread has ended.
        error: the error that has ended its thread; None if there is none.
        waiters: the calls to wake at each change. The set is weak, as a task of a closed loop never ends its call, and
            the candidacy outlives the call.
    """

    def __init__(self, core: LeaderCore) -> None:
        # R4: the thread that runs takes the core by one `pop`.
        self._cores = [core]
        self._event: AutoResetEvent | None = None
        self.hold: Hold | None = None
        self.withdrawn = False
        self.thread: int | None = None
        self.over = False
        self.error: Exception | None = None
        self.waiters: LiveSet[Call] = LiveSet()

    @property
    def goes_on(self) -> bool:
        """Whether the candidacy is neither withdrawn nor over."""
        return not (self.withdrawn or self.over)

    def withdraw(self) -> None:
        """Have the candidacy end. Any thread may call this; the call never waits."""
        self.withdrawn = True
        self.set()

    # -- the thread ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Stand until the candidacy is withdrawn, or can't go on."""
        try:
            core = self._cores.pop()
        except IndexError:
            return  # another thread runs it
        # Set this before reading `withdrawn`: `LeaderLock.withdraw` waits only for a candidacy that has begun.
        self.thread = core.session.identity()
        try:
            while not self.withdrawn:
                try:
                    self._queue_and_lead(core)
                except SystemExit:
                    # A listener has called `sys.exit()`, which must not end the candidacy. Pause: it may do so again.
                    log.error("a listener has called sys.exit() on the thread of the candidacy at %s", core.path)
                    if self._event is not None:
                        self._event.wait(EXIT_PAUSE)
        except CandidacyWithdrawn:
            pass
        except Exception as error:
            # The frames of the traceback would keep this candidacy and its seat alive.
            self.error = error.with_traceback(None)
            if not isinstance(error, ClientError):
                log.error("the candidacy at %s has ended: %s", core.path, error, extra={"zk_path": core.path})
        finally:
            self.over = True
            self._wake_waiters()

    def _queue_and_lead(self, core: LeaderCore) -> None:
        call = core.call()
        call.why_end = self._why_stop
        self._run(call, core.acquire_steps(call, core.attempt(core.identity(), True, None)))
        hold = core.mine()
        if hold is None:
            # The hold has ended at the interpreter's exit, or this is a forked child, which has forgotten it.
            return
        try:
            with core.session.lock:
                hold.loss.add(self)
            self.hold = hold
            self._wake_waiters()
            self._run(Call(core.session, core.path), self._leading(hold))
        finally:
            self.hold = None
            with core.session.lock:
                # All threads that work for the term must learn of its end before another candidate can lead.
                hold.loss.set()
            with suppress(LockLostError):
                if (ending := core.begin_release(hold)) is not None:
                    self._run(ending, core.released(ending, hold))

    def _run(self, call: Call, steps: Steps[T]) -> T:
        # The event exists before the call sleeps, so a withdrawal ends even the first sleep.
        self._event = call.session.link.sleep_event()
        return wait(call, steps, self._event)

    def _why_stop(self) -> Exception | None:
        return CandidacyWithdrawn() if self.withdrawn else None

    def _leading(self, hold: Hold) -> Steps[None]:
        while hold.alive and not self.withdrawn:
            yield None

    # -- as a listener of its hold's loss ------------------------------------------------------------------------

    def set(self) -> None:
        """Wake the candidacy's thread. Any thread may call this."""
        if (event := self._event) is not None:
            event.set()

    def note_loss(self) -> None:
        """Do nothing more: `set` has woken the thread."""

    def _wake_waiters(self) -> None:
        for call in self.waiters:
            call.wake()


class LeaderCore(LockCore):
    """The machinery of an election's seat: a lock whose nodes have the candidate's data, and whose holds are terms."""

    path_state: ElectionState
    over = "the term at {} has ended: lead again for a new one"
    # A candidate is meant to wait while another leads, so its wait is not part of a deadlock.
    owned: bool | None = None

    def __init__(self, path_state: ElectionState, rule: Rule, identity: Callable[[], int], data: bytes) -> None:
        super().__init__(path_state, rule, identity)
        self.data = data

    def note_wait(self, call: Call, attempt: Attempt) -> None:
        """Do nothing: a candidate is meant to wait while another leads, so a long wait is not logged."""

    def recipe(self, call: Call, attempt: Attempt) -> Recipe[Ticket | None]:  # noqa: ARG002
        return (acquire if attempt.wait else try_acquire)(self.path, self.rule, self.data)

    def released(self, call: Call, hold: Hold) -> Steps[None]:
        try:
            yield from super().released(call, hold)
            return
        except LockLostError:
            # The next error is raised outside of this handler, so that its `__context__` is the block's own error.
            pass
        raise self.lost_error(hold)

    def lost_error(self, hold: Hold, owed: int | None = None) -> LockLostError:  # noqa: ARG002
        return LockLostError(
            self.path,
            f"the term was lost ({why_lost(hold.ticket)}), and another candidate may lead",
            cause_of(hold.ticket),
            hold.ticket.token,
        )

    def publish(self, call: Call, hold: Hold, data: bytes) -> Steps[None]:
        """Replace the data of the leader's node, in this call."""
        yield from call.run(publish(hold.ticket, data))
        self.check_lasts(hold)

    def holds_any(self) -> bool:
        """Return whether any thread or task of this client leads, as last known."""
        return any(hold.alive for hold in self.all())


class LeaderLock(LockBase):
    """The lock of an election: the thread or task that holds it leads."""

    _kind = "Election"
    _missed = "not elected"
    _path_state: ElectionState
    _lock_core: LeaderCore

    def __init__(self, client: KazooClient, path: str, layout: str, data: bytes, label: str | None) -> None:
        if not isinstance(layout, str) or layout not in LAYOUTS:
            raise ValueError(f"layout must be 'selector' or 'latch', not {layout!r}")
        self._layout = layout
        self._rule = LAYOUTS[layout]
        if layout == "latch":
            self._kind = "Election(layout='latch')"
        self._data = data
        super().__init__(client, path, label=label)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle a term of the election {self._path!r}: pickle the election, and lead there")

    def _new_state(self) -> ElectionState:
        return ElectionState(self._session, self._path, self._kind)

    def _new_core(self) -> LeaderCore:
        return LeaderCore(self._path_state, self._rule, self._identity, self._data)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Lead, on the calling thread; arguments and errors as `Lock.acquire`.

        Raises:
            RuntimeError: the caller leads, or its client stands, so it would wait for itself.
        """
        core = self._lock_core
        if (hold := core.mine()) is not None:
            core.check(hold)
            raise RuntimeError(f"the caller leads at {self._path}, and would wait for itself: leave that block first")
        if self._path_state.stands:
            raise RuntimeError(
                f"the client stands at {self._path} already, and the caller would wait for that candidacy: call wait() "
                "for its term, or withdraw() first"
            )
        call, steps = core.new_acquire(blocking and timeout != 0, self._deadline(blocking, timeout))
        return self._await(call, steps)

    def release(self) -> None:
        """End the term of the calling thread; errors as `RLock.release`."""
        self.end_term(self._lock_core.hold_to_release())

    def end_term(self, hold: Hold) -> None:
        """End a term, or settle one that was lost; errors as `release`."""
        core = self._lock_core
        if (call := core.begin_release(hold)) is not None:
            self._await(call, core.released(call, hold))

    def standing(self) -> str:
        """Return the part of the repr that describes this client, as last known."""
        leads = self._lock_core.holds_any()
        return f"{'leads' if leads else 'stands' if self._path_state.stands else 'does not lead'} path={self._path!r}"

    # -- terms ---------------------------------------------------------------------------------------------------

    def publish(self, hold: Hold, data: bytes) -> None:
        """Replace the data of a term's node; see `Term.publish`."""
        if not isinstance(data, bytes):
            raise TypeError(f"data must be bytes, not {type(data).__name__}")
        if self._layout == "latch":
            # Seen with Curator 5.4.0: a LeaderLatch's watch on the leader's node fires once, and the latch goes on only
            # if the event is a delete.
            raise RuntimeError(
                f"the election {self._path} can't publish: a LeaderLatch of Curator that waits behind a node that was "
                "rewritten misses the delete of that node, and would never lead; put the data into the id, or use the "
                "layout 'selector' in every client"
            )
        core = self._lock_core
        core.check_lasts(hold)
        call = Call(self._session, self._path)
        call.why_end = partial(core.why_over, hold)
        return self._await(call, core.publish(call, hold, data))

    # -- the candidates, as all clients see them -----------------------------------------------------------------

    def leader(self) -> Candidate | None:
        """Return the leader."""
        return self._run(read_leader(self._path, self._rule), self.candidate)

    def candidates(self) -> list[Candidate]:
        """Return all candidates, the leader first."""
        path = self._path
        return self._run(contenders(path, self._rule), lambda found: [Candidate.of(path, *each) for each in found[1]])

    def follow(self, seen: tuple[Leader] | None) -> tuple[Leader]:
        """Return the leader, as soon as it is not the one that was seen."""
        return self._run(follow(self._path, self._rule, seen), lambda leader: (leader,))

    def candidate(self, leader: Leader) -> Candidate | None:
        """Return a leader as a `Candidate`; None if there is none."""
        return None if leader is None else Candidate.of(self._path, *leader)

    # -- the candidacy -------------------------------------------------------------------------------------------

    def stand(self) -> None:
        """Check that the path is an election's, then begin a candidacy; see `Election.stand`."""

        def stand(_: object) -> None:
            # A thread of the library holds the seat, even if a task has called this.
            core = LeaderCore(self._path_state, self._rule, self._session.identity, self._data)
            core.label = self._label
            self._path_state.stand(core)

        return self._run(list_queue(self._path, self._rule), stand)

    def leads(self) -> bool:
        """Return whether this client leads; see `Election.is_leader`."""
        self._session.expired_holds.end_past_lease()
        return not self._session.suspect and self._lock_core.holds_any()

    def wait(self, timeout: float | None, then: Callable[[Hold], T]) -> T | None:
        """Wait for the candidacy's term; return `then(its hold)`; see `Election.wait`."""
        candidacy = self._path_state.candidacy
        if candidacy is None:
            self._session.check_usable(self._path)
            raise RuntimeError(f"the client does not stand at {self._path}: call stand() first")
        mine = self._lock_core.mine()
        if timeout is None and mine is not None and mine.alive:
            raise RuntimeError(
                f"the caller leads at {self._path}, and its client's candidacy would wait for it: leave that block "
                "first"
            )
        call = Call(self._session, self._path)
        return self._await(call, self._awaiting(call, candidacy, self._until(timeout), then))

    def _awaiting(
        self, call: Call, candidacy: Candidacy, deadline: float | None, then: Callable[[Hold], T]
    ) -> Steps[T | None]:
        session = self._session
        candidacy.waiters.add(call)
        try:
            self._path_state.start()
            while candidacy.goes_on:
                session.check_usable(self._path)
                hold = candidacy.hold
                if hold is not None and hold.alive and self.leads():
                    return then(hold)
                left = None if deadline is None else deadline - session.now()
                if left is not None and left <= 0:
                    return None
                if left is None and session.identity() == candidacy.thread:
                    raise ClientError(
                        self._path,
                        "a finalizer called wait() on the candidacy's own thread, and would wait for it: use a timeout",
                    )
                if hold is not None:
                    # There is a hold, but the client does not lead: ZooKeeper is out of reach (`suspect`), and nothing
                    # wakes the call when the outage ends. So the call polls.
                    left = POLL_INTERVAL if left is None else min(left, POLL_INTERVAL)
                yield left
            if (error := candidacy.error) is not None and not candidacy.withdrawn:
                if isinstance(error, ClientError):
                    # The error's advice may be out of date: the program may have started the client again.
                    session.check_usable(self._path)
                    raise ClientError(self._path, "the candidacy ended as the client was stopped: call stand() again")
                raise copy.copy(error)
            return None
        finally:
            candidacy.waiters.discard(call)

    def withdraw(self) -> None:
        """End the candidacy; see `Election.withdraw`."""
        self._session.check_not_forked(self._path)
        call = Call(self._session, self._path)
        return self._await(call, self._withdrawing(call))

    def _withdrawing(self, call: Call) -> Steps[None]:
        session, candidacy = self._session, self._path_state.candidacy
        if candidacy is None:
            return
        candidacy.waiters.add(call)
        try:
            candidacy.withdraw()
            if (hold := candidacy.hold) is not None:
                # Set the loss now: the candidacy's thread may run much later, for instance if the process was paused.
                with session.lock:
                    hold.loss.set()
            if session.link.on_own_thread() or session.identity() == candidacy.thread:
                # Do not wait here: the candidacy's thread may need this thread, which is one of kazoo's; or a finalizer
                # makes this call on the candidacy's own thread, which continues only when the call returns.
                return
            until = session.now() + session.reply_patience
            while candidacy.thread is not None and not candidacy.over and (left := until - session.now()) > 0:
                yield left
        finally:
            candidacy.waiters.discard(call)


def core_of_leader_lock(leader_lock: LeaderLock) -> LeaderCore:
    """Return the machinery of a seat."""
    return leader_lock._lock_core
