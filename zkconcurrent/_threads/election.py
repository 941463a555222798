"""`Election`: among all processes that open the same path, one candidate leads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from .._arguments.functions import check_callable
from .._arguments.limits import check_seconds
from .._engine.holds import Hold
from .._engine.session import Session
from .._errors import LockLostError
from .._kazoo.link import KazooClient
from .._recipes.election import Leader
from .._runtime.identity import HOST
from .._runtime.interrupts import insist
from .._runtime.public import ErrorKind, Traceback, public
from .._runtime.this_process import getpid
from .base.candidacy import Candidate, LeaderLock, core_of_leader_lock
from .base.held import HeldByThread
from .base.primitive import PickledByPath, kind_of, reports_loss

P = ParamSpec("P")
T = TypeVar("T")


@public
class Term(HeldByThread):
    """One candidate's time as the leader, as `Election.lead` and `Election.wait` return it."""

    def __init__(self, leader_lock: LeaderLock, hold: Hold) -> None:
        super().__init__(core_of_leader_lock(leader_lock), hold)
        self._leader_lock: LeaderLock = leader_lock

    def publish(self, data: bytes) -> None:
        """Replace the data of the leader's node, which are at first the candidate's id. Waits for ZooKeeper.

        All candidates and observers see the data. In this candidate's next term, the node has the id again.

        Raises:
            TypeError: the data are not bytes.
            LockLostError: the term was lost, before or during the call; observers may have seen the data.
            RuntimeError: the term has ended; or the layout is `latch`: a LeaderLatch of Curator that waits behind a
                rewritten node misses the delete of that node.
            RefusedError: the data are larger than the client's `max_request` allows.
            ClientError: the client can't be used here.
        """
        return self._leader_lock.publish(self._hold, data)


class Leading:
    """A `with` block in which the caller leads; `Election.lead` returns it."""

    def __init__(self, leader_lock: LeaderLock, timeout: float | None) -> None:
        if timeout is not None:
            check_seconds("timeout", timeout)
        self._leader_lock = leader_lock
        self._timeout = timeout
        self._hold: Hold | None = None

    def __enter__(self) -> Term:
        if self._hold is not None:
            raise RuntimeError("a lead() is for one block: call lead() again for the next")
        leader_lock, core = self._leader_lock, core_of_leader_lock(self._leader_lock)
        before = core.mine()
        try:
            leader_lock.hold(None if self._timeout is None else max(self._timeout, 0.0)).__enter__()
            hold = self._hold = core.mine()
            assert hold is not None
            return Term(leader_lock, hold)
        except BaseException:
            # If an interrupt struck after the grant, the block does not run, and the term must end.
            insist(lambda: self._drop(core.mine(), before))
            raise

    def __exit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        try:
            assert self._hold is not None
            if not self._leader_lock._session.forked:  # the term is the parent's
                self._leader_lock.end_term(self._hold)
        except LockLostError:
            if reports_loss(kind):
                raise
        except BaseException:
            # If an interrupt struck before the release, the term still lasts; otherwise nothing is left to do.
            insist(self._give_up)
            raise

    def _give_up(self) -> None:
        self._drop(self._hold)

    def _drop(self, hold: Hold | None, before: Hold | None = None) -> None:
        if hold is not None and hold is not before:
            core_of_leader_lock(self._leader_lock).drop(hold)


class Election(PickledByPath):
    """An election: of all processes that open the same path, one candidate leads, in the order of arrival.

    A thread leads in a block `with election.lead() as term`, or while `run` calls a function. Alternatively, the client
    stands in the background: `stand` begins a candidacy, and a thread of the library keeps the candidacy up, through
    losses and new sessions, until `withdraw`. `is_leader` returns whether the client leads now, and `wait` returns its
    term.

    Layout:
        `selector`: `<path>/_c_<uuid>-lock-<sequence>`, EPHEMERAL_SEQUENTIAL, one for each candidate: the znodes of
        Curator's LeaderSelector. `latch`: `<path>/_c_<uuid>-latch-<sequence>`, the znodes of Curator's LeaderLatch. A
        node's data are the candidate's id as UTF-8, or what the leader has published. The path itself is a container.

    Invariant:
        The candidate with the lowest sequence number leads; each other candidate watches only the node ahead of it.

    Cost:
        As `Lock`: a term begins with one write and one read, in one round trip, and ends with one write, which wakes
        one candidate. `publish` takes one write and two reads. Each change of the leader, or of its data, wakes all
        observers; each sends five reads. A new candidate wakes no observer while there is a leader.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the election's path; missing nodes are created as containers.
        id: the candidate's name, which all candidates see, Java's included; None stands for `<pid>@<host>#<hex>`. Its
            eight random digits make it unique, as two containers may have the same host name and process id.
        layout: `"selector"` or `"latch"`; all processes must give the same, as candidates of different layouts do
            not exclude each other.
        label: as for `Lock`, but it is not written into the nodes: these have the id.

    Raises:
        TypeError: the id, the path or the label is not a string.
        ValueError: the layout is neither of the two; the id can't be encoded as UTF-8; the path or the label is
            invalid; or this client already uses the path for another primitive or with the other layout.

    Source:
        kazoo's `Election`; Curator's `LeaderSelector` and `LeaderLatch`; etcd's `Election`.
    """

    def __init__(
        self,
        client: KazooClient,
        path: str,
        *,
        id: str | None = None,  # noqa: A002 - as Curator has it
        layout: str = "selector",
        label: str | None = None,
    ) -> None:
        # Pickling needs the argument as it was given: None means another candidate in each process.
        self._id, self._layout, self._label = id, layout, label
        self._name = candidate_id(id, client)
        self._leader_lock = LeaderLock(client, path, layout, self._name.encode(), label)

    @property
    def client(self) -> KazooClient:
        """The kazoo client."""
        return self._leader_lock.client

    @property
    def path(self) -> str:
        """The path. All processes that open it share this election."""
        return self._leader_lock.path

    @property
    def id(self) -> str:
        """The candidate's name."""
        return self._name

    # -- to lead -------------------------------------------------------------------------------------------------

    def lead(self, timeout: float | None = None) -> Leading:
        """Return a `with` block in which the calling thread leads; `as` gives its `Term`.

        Args:
            timeout: how long to wait for the term, in seconds; None waits forever, zero or less makes one attempt.

        Raises:
            TimeoutError: another candidate still led at the deadline. The start of the block raises this, and all other
                errors except LockLostError.
            LockLostError: the term was lost. The end of the block raises this, unless an interrupt leaves the block.
            RuntimeError: the thread leads already, or its client stands; so the thread would wait for itself.
            ValueError, OverflowError: as `Lock.acquire`.
            ClientError: the client can't be used here.
            ZkConcurrentError: the path can't be used for an election of this layout.
        """
        return Leading(self._leader_lock, timeout)

    def run(self, func: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Wait until this candidate leads, and call a function; return its result. The term ends with the call.

        An error of the function also ends the term, and is raised here. Other errors are those of `lead`.

        Raises:
            ValueError: the function is not callable.
            TypeError: it is a coroutine function, whose body would run after the term.
        """
        check_leader(func)
        check_callable("func", func, "the term would end before it runs; use aio.Election")
        with self.lead():
            return func(*args, **kwargs)

    def leader_only(self, function: Callable[P, T]) -> Callable[P, T | None]:
        """Decorate a function, such as a scheduler's job, so that only the process that leads runs it.

        While this client's candidacy does not lead, or ZooKeeper is out of reach, a call returns None at once, and
        sends nothing. A term that is lost while the function runs does not stop the function: fence what it writes.

        Raises:
            TypeError: the function can't be called, or is a coroutine function.
            LockLostError: on a call: the term was lost while the function ran, so another process may have run it, too.
            RuntimeError: on a call: the client has never stood at this path; or it withdrew while the function ran.
            Exception: on a call: what the function or `wait` raises.
        """
        check_callable("function", function, "use aio.Election")

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T | None:
            if (term := self.wait(0)) is None:
                return None
            result = function(*args, **kwargs)
            _ = term.fencing_token  # raises if it is over
            return result

        return call

    def stand(self) -> None:
        """Stand as a candidate, in the background, until `withdraw()`; if this client stands already, change nothing.

        The call waits only until ZooKeeper has shown that the path can be an election's, not until the client leads.
        The candidacy belongs to the client and the path, not to this object. Its node has this object's id.

        Raises:
            ClientError: the client can't be used here.
            ForeignNodeError: the path has candidates of the other layout, or other nodes.
        """
        return self._leader_lock.stand()

    def withdraw(self) -> None:
        """End the candidacy that `stand` has begun, and its term, if any; without a candidacy, do nothing.

        The call first sets the term's `lost`, so that threads that work for the term notice. Then it waits until the
        node is gone, for a third of the session timeout at most. If ZooKeeper is out of reach, the library deletes the
        node after the reconnect.

        Raises:
            ClientError: the process was forked; the candidacy belongs to its parent.
        """
        return self._leader_lock.withdraw()

    def is_leader(self) -> bool:
        """Return whether this client leads: by `stand`, or in a block of any of its threads. Sends nothing.

        The result is False while ZooKeeper is out of reach, even if the term may survive the outage.
        """
        return self._leader_lock.leads()

    def wait(self, timeout: float | None = None) -> Term | None:
        """Wait until the candidacy that `stand` has begun leads; return its term.

        Args:
            timeout: how long to wait, in seconds; None waits forever, zero or less looks once.

        Returns:
            The term; None at the deadline, or if the candidacy is withdrawn.

        Raises:
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            RuntimeError: the client has never stood at this path; or there is no timeout, and the calling thread leads
                in a block, so it would wait for itself.
            ClientError: the client can't be used here; the candidacy has ended; or the caller is a finalizer that would
                wait, without a timeout, for the thread that it has interrupted.
            ZkConcurrentError: the candidacy has ended with this error, as the path can't be used.
        """
        return self._leader_lock.wait(timeout, lambda hold: Term(self._leader_lock, hold))

    # -- to look -------------------------------------------------------------------------------------------------

    def leader(self) -> Candidate | None:
        """Return the leader, read from the server; None if there is none. Cost: 3 reads, in 2 round trips.

        Raises:
            ClientError: the client can't be used here.
            ForeignNodeError: the path has candidates of the other layout, or other nodes.
        """
        return self._leader_lock.leader()

    def candidates(self) -> list[Candidate]:
        """Return all candidates, the leader first, read from the server; errors as `leader`.

        Cost: 2 + n reads for n candidates, in 2 round trips.
        """
        return self._leader_lock.candidates()

    def observe(self) -> Iterator[Candidate | None]:
        """Yield the leader, at once and then after each change of the leader or of its data; None while there is none.

        The iteration never ends by itself. It skips a leader that comes and goes before the caller asks for the next
        one. Errors are those of `leader`.
        """
        seen: tuple[Leader] | None = None
        while True:
            seen = self._leader_lock.follow(seen)
            yield self._leader_lock.candidate(seen[0])

    def __repr__(self) -> str:
        return f"<{kind_of(self)} at {id(self):#x}: id={self._name!r} {self._leader_lock.standing()}>"


def candidate_id(id: object, client: KazooClient) -> str:  # noqa: A002
    """Return the candidate's name; for None, `<pid>@<host>#<hex>`, which is this client's alone.

    Raises:
        TypeError: it is not a string, or `client` is not a kazoo client.
        ValueError: it can't be written as UTF-8.
    """
    if id is None:
        return f"{getpid()}@{HOST}#{Session.of(client).registry.seed[:8]}"
    if not isinstance(id, str):
        raise TypeError(f"id must be a str, not {type(id).__name__}")
    try:
        id.encode()
    except UnicodeEncodeError:
        raise ValueError(f"id contains a lone surrogate, which UTF-8 can't write: {id!r}") from None
    return id


def check_leader(func: object) -> None:
    """Refuse an object that can't be called, as kazoo's `Election.run` does.

    Raises:
        ValueError: it is not callable.
    """
    if not callable(func):
        raise ValueError("leader function is not callable")
