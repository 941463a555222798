"""Several locks as one: the base of `MultiLock` and `QuorumLock`."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NoReturn, TypeAlias, TypeVar

from .._engine.calls import Calls
from .._engine.driver import Call
from .._engine.holds import Hold
from .._errors import LockLostError, ZkConcurrentError
from .._protocol.ticket import State
from .._runtime.interrupts import insist
from .._runtime.public import Named
from .._runtime.waiting import Steps
from .base.callbacks import Callbacks
from .base.cancel import cancel_waits
from .base.lock_base import Acquirable, LockBase, core_of
from .base.lock_core import LockCore
from .base.primitive import OnLost, OnSuspect, check_callbacks, kind_of
from .base.side_by_side import Branch, together
from .lock import Lock
from .rlock import RLock

T = TypeVar("T")
HoldDepths: TypeAlias = "list[tuple[LockCore, Hold, int]]"
"""Holds of locks, and the depth of each: what an acquire or a release changes."""

EndingHolds: TypeAlias = "list[tuple[LockCore, Hold, Call]]"
"""Holds that are being released, and the calls that wait until their nodes are gone."""

BegunRelease: TypeAlias = "tuple[EndingHolds, list[BaseException], int]"
"""The holds that are being released, the errors, and how many more may turn out to have been lost."""


class CompositeLock(Named, Acquirable, Callbacks):
    """A lock that consists of several locks, of any clients.

    Args:
        locks: at least one lock.
        on_lost: called with this object, on a thread of its own, once for each time that it was acquired and lost.
        on_suspect: called with this object, and for how many seconds it surely lasts, each time that it gets suspect.

    Attributes:
        _cores: the machinery of each lock.
    """

    _kind: str

    def __init__(self, locks: Sequence[LockBase], on_lost: OnLost | None, on_suspect: OnSuspect | None) -> None:
        check_callbacks(on_lost=on_lost, on_suspect=on_suspect)
        if not locks:
            raise ValueError(f"a {self._kind} needs at least one lock")
        self._cores = tuple(map(core_of, locks))
        if len({type(core.session.link.handler) for core in self._cores}) > 1:
            raise ValueError(
                f"the clients of a {self._kind}'s locks must have the same kind of handler: one call waits for all"
            )
        self._locks = tuple(locks)
        self._on_lost, self._on_suspect = on_lost, on_suspect
        self._session = self._cores[0].session
        self._watch(core.session for core in self._cores)

    @classmethod
    def _checked(cls, lock: object) -> LockBase:
        if not isinstance(lock, Lock | RLock):
            raise TypeError(
                f"a {cls._kind} takes locks of zkconcurrent (of a ReadWriteLock, its read_lock or write_lock), not "
                f"{kind_of(lock)}"
            )
        return lock

    @property
    def locks(self) -> tuple[LockBase, ...]:
        """The locks; those of a `MultiLock` in the order in which it acquires them."""
        return self._locks

    def _levels(self) -> HoldDepths:
        """Return the caller's holds, for `restore`."""
        return levels((core, hold) for core in self._cores if (hold := core.mine()) is not None)

    def release(self) -> None:
        """Release the locks that the caller's last `acquire` has acquired, all at once.

        An error of one lock does not keep the call from releasing the others.

        Raises:
            LockLostError: a hold was lost; for a `QuorumLock`, so many holds that no quorum was left. The call does
                nothing else to a lock whose hold is lost.
            RuntimeError: the caller does not hold this object; for a `MultiLock`, the caller does not hold one of its
                locks.
            RefusedError: a client may not delete its node; the library keeps trying.
            ClientError: the process was forked; the hold belongs to its parent.
        """
        calls = Calls(self._session)
        calls.settled = True
        return self._await(calls, self._released_all(calls, *self._begin_release()))

    @abstractmethod
    def _begin_release(self) -> BegunRelease:
        """Release a level of each lock, without waiting."""

    def _released_all(
        self, calls: Calls, given_up: EndingHolds, errors: list[BaseException], spare: int
    ) -> Steps[None]:
        """Wait until all nodes are gone; raise the first error, with the others as its notes."""
        waits = [Branch(core.released(calls.add(call), hold)) for core, hold, call in given_up]
        yield from together(waits, self._session.now)
        found = [each.error for each in waits if each.error is not None]
        late = [error for error in found if isinstance(error, LockLostError)]
        errors += [error for error in found if error not in late]
        if len(late) > spare:
            errors += late
        if errors:
            raise first_error(errors)

    def cancel_waits(self) -> int:
        """End the waits of all threads or tasks for this object: each gives back the locks that it has acquired.

        `cancel_waits()` of one of the locks also ends the waits of a `MultiLock` for that lock, but no wait of a
        `QuorumLock`. In all other respects see `Lock.cancel_waits`.

        Returns:
            How many waits it has ended.

        Raises:
            ClientError: the process was forked; the waits belong to its parent.
        """
        self._session.check_not_forked(self._locks[0].path)
        sessions = {id(core.session): core.session for core in self._cores}.values()
        return cancel_waits((call for session in sessions for call in session.calls), self)

    def _options(self) -> dict[str, int]:
        """Return the arguments of the constructor but for the locks and the callbacks."""
        return {}

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle this object by name, like its locks.

        Raises:
            TypeError: this object has a callback, or one of its locks can't be pickled.
        """
        for callback in ("on_lost", "on_suspect"):
            if getattr(self, f"_{callback}") is not None:
                raise TypeError(
                    f"cannot pickle {self!r}: it has {callback}, which is called in this process; make the object in "
                    "the other process, of its locks"
                )
        make: Callable[..., object] = type(self)
        return partial(make, self._locks, **self._options()), ()

    def __deepcopy__(self, memo: object = None) -> NoReturn:
        raise TypeError(f"cannot copy {self!r}: make another object, of the same locks")

    __copy__ = __deepcopy__

    @abstractmethod
    def remaining(self) -> float:
        """Return for how many seconds it is surely held, even if no reply of ZooKeeper comes any more; see `Lock`."""

    @abstractmethod
    def _is_held(self) -> bool:
        """Return whether this process holds it."""

    def __repr__(self) -> str:
        state = "locked" if self._is_held() else "unlocked"
        options = "".join(f" {name}={value}" for name, value in self._options().items())
        paths = [lock.path for lock in self._locks]
        return f"<{state} {kind_of(self)} object{options} paths={paths} at {id(self):#x}>"


def listed(locks: Iterable[T], kind: str) -> list[T]:
    """Return the locks as a list.

    Raises:
        TypeError: it is no collection of locks, but one lock or a client.
    """
    try:
        return list(locks)
    except TypeError:
        if hasattr(locks, "__iter__"):
            raise
        raise TypeError(f"a {kind} takes a list of locks, such as [one, other], not {kind_of(locks)}") from None


def levels(holds: Iterable[tuple[LockCore, Hold]]) -> HoldDepths:
    """Return the present depth of each hold."""
    return [(core, hold, hold.depth) for core, hold in holds]


def restore(before: HoldDepths) -> None:
    """Undo re-entrant acquires."""
    for _, hold, depth in before:
        hold.depth = depth


def give_up(left: HoldDepths, errors: list[BaseException]) -> EndingHolds:
    """Release a level of each hold, without waiting, and take it off the list; return the calls that wait for it.

    Errors of signal handlers do not end this call, however many come: no later call could release the rest as a part of
    the whole.
    """
    calls: EndingHolds = []
    insist(lambda: _give_up_each(left, calls, errors))
    return calls


def _give_up_each(left: HoldDepths, calls: EndingHolds, errors: list[BaseException]) -> None:
    """Release a level of each hold that is still at its recorded level."""
    while left:
        core, hold, depth = left[0]
        try:
            there = hold.ticket.state is not State.DISCARDED and core.path_state.has(hold)
            if there and hold.depth == depth and (call := core.begin_release(hold)) is not None:
                calls.append((core, hold, call))
        except ZkConcurrentError as error:
            # Not `Exception`: a signal handler may raise any error, and `insist` must see it.
            errors.append(error)
        except RuntimeError as error:
            if hold.claimant in (None, core.identity()):
                # No other thread is releasing the hold: the error is a signal handler's, or that of too deep a
                # recursion.
                raise
            errors.append(error)
        left.pop(0)


def first_error(errors: list[BaseException]) -> BaseException:
    """Return the error to raise: an interrupt if there is one, else the first error. The others become its notes."""
    first = next((error for error in errors if not isinstance(error, Exception)), errors[0])
    for error in errors:
        if error is not first:
            note = f"also: {type(error).__name__}: {error}"
            if sys.version_info >= (3, 11):
                first.add_note(note)
            else:
                vars(first).setdefault("__notes__", []).append(note)
    return first
