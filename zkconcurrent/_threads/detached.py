"""`DetachedLock`: a lock that belongs to a named owner, and survives the process that acquired it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from .._arguments.limits import check_int
from .._engine.call import Attempt, Call
from .._engine.holds import PathState, Possession
from .._engine.session import Session
from .._errors import LockLostError, LossCause
from .._kazoo.link import KazooClient
from .._observe.event_listeners import Story
from .._protocol.blocking_rules import MUTEX
from .._protocol.node_names import as_detached
from .._recipes.detached import Detached, acquire, force_release, release
from .._runtime.interrupts import FRAMES, check_depth
from .._runtime.live_set import LiveSet
from .._runtime.this_process import new_uuid
from .._runtime.wait_loops import Steps
from .base.lock_base import Acquirable, QueuedPrimitive
from .base.node_data import node_data, waiter_data
from .base.primitive import kind_of

# Each node has the owner's name in its data.
LONGEST_OWNER = 1000  # characters


class DetachedState(PathState):
    """The state of a path.

    Attributes:
        stories: for each owner, the reports to listeners about holds that were acquired through this client. One hold
            has several stories if several threads have waited for it.
        releases: the releases that tasks have begun, and that `aio` runs in the background.
    """

    def __init__(self, session: Session, path: str, kind: str) -> None:
        super().__init__(session, path, kind)
        self.stories: defaultdict[str, list[Story]] = defaultdict(list)
        self.releases: LiveSet[object] = LiveSet()


class DetachedLock(QueuedPrimitive, Acquirable[None]):
    """A lock that a named owner holds until it is released, even if the process dies or loses its session.

    The program chooses the owner's name, such as a job's name. All threads and processes with that name are one owner:
    an `acquire` while the owner holds the lock returns True at once, and one `release` by any of them ends the hold. So
    a program that is started again continues with its hold. Two programs that must exclude each other need two names.

    Only a `release` by the owner, or a `force_release`, ends the hold. A process that is killed leaves the lock held:
    every other contender waits until the owner comes back.

    Layout:
        `<path>/_c_<uuid>-lock-<sequence>`, EPHEMERAL_SEQUENTIAL, one for each thread that waits: the znodes of a
        `Lock`. The holder's node is PERSISTENT, and has the number of the ephemeral node that queued for the lock. One
        `multi` creates the holder's node and deletes the ephemeral one. The path itself is a container.

    Invariant:
        As `Lock`. On one path, a `DetachedLock`, a `Lock`, an `RLock` and Curator's InterProcessMutex exclude each
        other.

    Cost:
        An uncontended `acquire` takes two writes and three reads, in three round trips. If the owner holds the lock, an
        `acquire` takes three reads in two round trips; if another object acquired the lock, also one write, in three
        round trips. A `release` takes one write; if another object acquired the lock, also three reads.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the lock's path; missing nodes are created as containers.
        owner: the owner's name, of 1 to 1,000 characters.

    Raises:
        TypeError: the path or the owner is not a string.
        ValueError: the owner is empty or too long; the path is invalid; or this client already uses it for another
            primitive.

    Source:
        The downgrade of Curator's `InterProcessReadWriteLock`, which puts one node in the place of another.
    """

    _kind = "DetachedLock"
    _rule = MUTEX
    _path_state: DetachedState

    def __init__(self, client: KazooClient, path: str, owner: str) -> None:
        if not isinstance(owner, str):
            raise TypeError(f"owner must be a string, not {type(owner).__name__}")
        if not 1 <= len(owner) <= LONGEST_OWNER:
            raise ValueError(f"owner must have 1 to {LONGEST_OWNER} characters, not {len(owner)}")
        self._owner = owner
        self._held: Detached | None = None
        self._releasing: Detached | None = None
        # The thread or task that acquired the lock for the owner, and the time.
        self._acquired = 0, 0.0
        super().__init__(client, path)
        self._path_state.keeping.add(self)

    def _new_state(self) -> DetachedState:
        return DetachedState(self._session, self._path, self._kind)

    @property
    def name(self) -> str:
        """The name of the owner for which this object acquires."""
        return self._owner

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock for the owner; wait for it in the order of arrival across all processes.

        If the owner holds the lock already, the call returns True at once. It checks this when it begins, and again
        when its node is next in the queue. If an interrupt strikes just as the call returns, the lock may stay held, as
        after a kill.

        Args:
            blocking: whether to wait. If False, the call makes one attempt.
            timeout: how long to wait, in seconds; -1 waits forever, 0 makes one attempt.

        Returns:
            Whether the owner holds the lock.

        Raises:
            ValueError: a timeout with `blocking=False`, or a negative one other than -1.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            ClientError: the client can't be used here.
            DeadlockError: the call, without a timeout, would wait for a re-entrant lock at this path that the caller
                holds through another client.
            ZkConcurrentError: the path can't be used as a lock.
        """
        # A release needs a few more frames than an acquire, and must not fail where the acquire did not.
        check_depth(FRAMES + 5)
        limit = self._deadline(blocking, timeout)
        wait = blocking and timeout != 0
        call = self._lock_core.call(cancellable=wait)
        attempt = self._lock_core.attempt(self._identity(), wait, limit)
        steps = self._acquire_steps(call, attempt)
        return self._await(call, self._lock_core.reported_steps(call, attempt, steps, self._begin_story))

    def _acquire_steps(self, call: Call, attempt: Attempt) -> Steps[bool]:
        core, me, wait, deadline = self._lock_core, attempt.owner, attempt.wait, attempt.deadline
        of_owner = b', "owner": %b' % json.dumps(self._owner).encode()
        data = b"%b%b}" % (node_data(me)[:-1], of_owner)
        queued = waiter_data(me, self._path_state, deadline, of_owner) if wait else data
        mine = None if self._held is None else self._held.name
        core.note_wait(call, attempt)
        unique = as_detached(new_uuid())
        check_wait = core.wait_check(call, attempt, queued)
        recipe = acquire(self._path, self._owner, unique, data, wait, mine, queued=queued, check_wait=check_wait)
        held = yield from call.run(recipe, deadline)
        core.observation.long_waits.note_end(call, acquired=held is not None)
        if held is None:
            return False
        self._acquired = me, self._session.now()
        self._held = held
        self._end_stories([story for story in self._stories() if story.token != held.token], lost=True)
        return True

    def _stories(self) -> list[Story]:
        return self._path_state.stories.get(self._owner, [])

    def _begin_story(self, story: Story) -> None:
        """Record for the listeners that an acquire has got the lock, unless the owner held it all along."""
        assert self._held is not None
        if story.waits or all(other.token != self._held.token for other in self._stories()):
            self._path_state.stories[self._owner].append(story)
            story.grant((), self._held.token)

    def _end_stories(self, stories: Sequence[Story], *, lost: bool) -> None:
        """Report to listeners that a hold was released, or lost."""
        for story in stories:
            story.record_end(LossCause.FORCED if lost else None, lost=lost)
        with self._session.lock:
            left = [story for story in self._stories() if story not in stories]
            if left:
                self._path_state.stories[self._owner] = left
            else:
                self._path_state.stories.pop(self._owner, None)
        for story in stories:
            story.emit()

    def release(self) -> None:
        """Release the owner's hold, whichever object has acquired it for the owner; wait until its node is gone.

        If ZooKeeper is out of reach, the call waits until it is back, as the end of a session would not release the
        lock. An interrupted call may or may not have released the lock. Call it again: if the first call has released
        the lock, the second one raises no error.

        Raises:
            LockLostError: another call has ended the hold that this object had acquired.
            RuntimeError: the owner does not hold the lock.
            ClientError: the client can't be used here.
        """
        held = self._held
        stories = [story for story in self._stories() if held is None or story.token == held.token]
        in_doubt = held is not None and held is self._releasing
        self._releasing = held

        def released(was_there: bool) -> None:
            if self._held is held:
                self._held = None
            self._end_stories(stories, lost=not was_there)
            if was_there:
                return
            if held is None:
                raise RuntimeError(f"release unlocked lock: {self._owner!r} does not hold {self._path}")
            raise LockLostError(
                self._path,
                f"{self._owner!r} did not hold it any more: another `release()` or `force_release()` has ended the "
                f"hold, or an operator has deleted the node {held.name}",
                LossCause.FORCED,
                held.token,
            )

        return self._run(release(self._path, self._owner, held, in_doubt), released)

    def force_release(self, token: int) -> bool:
        """End the hold that has this fencing token, whatever its owner; return whether there was one.

        Take the token from the result of `owner()`: then the call never ends a hold that has begun since. The owner
        learns that its hold has ended only at its `release`; until then, the next holder's fencing token stops the
        owner's writes. If the connection drops during the call, True may also mean that the owner has released the lock
        meanwhile.

        Raises:
            TypeError: the token is not an int.
            ValueError: a session holds the lock, not an owner; the end of that session releases the lock.
        """
        token = check_int("token", token)

        def forced(was_there: bool | None) -> bool:
            if was_there is None:
                raise ValueError(
                    f"{self._path} is not held by a DetachedLock, but by a process in its session: it goes when that "
                    "process releases it, or when its session ends"
                )
            return was_there

        return self._run(force_release(self._path, token), forced)

    @property
    def fencing_token(self) -> int:
        """A number that never decreases from holder to holder; the same for the owner's whole hold. Sends nothing.

        Raises:
            RuntimeError: this object has not acquired the lock, or has released it. After a restart, acquire it again.
        """
        held = self._mine()
        if held is None:
            raise RuntimeError(f"{self._path} is not held: acquire it first")
        return held.token

    def hold_count(self) -> int:
        """Return 1 between this object's `acquire` and its `release`, otherwise 0. Sends nothing."""
        return int(self._mine() is not None)

    def _mine(self) -> Detached | None:
        """Return the hold that this object has acquired; None in a forked child: the hold stays with the parent."""
        return None if self._session.forked else self._held

    def _kept(self) -> Iterable[Possession]:
        """Return the hold that this object has acquired, for `inspect()`."""
        if (held := self._mine()) is None:
            return ()
        by, since = self._acquired
        return (Possession("", held.token, by, self._session.now() - since),)

    def _handle(self) -> None:
        """Return nothing: the hold is the owner's, not this thread's."""

    def cancel_waits(self) -> int:
        """End the waits of all threads and tasks that use this client; see `Lock.cancel_waits`."""
        return self._lock_core.cancel_waits()

    def __repr__(self) -> str:
        state = "unlocked" if self._mine() is None else "locked"
        name = kind_of(self)
        return f"<{state} {name} object owner={self._owner!r} path={self._path!r} at {id(self):#x}>"
