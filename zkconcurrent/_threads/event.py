"""`Event`: `threading.Event` for every process that opens the same path."""

from __future__ import annotations

import warnings
from functools import partial

from .._recipes.destroy import Tree, destroy
from .._recipes.event import Flag, read_flag, set_flag, wait
from .base.primitive import Primitive, discard_result, kind_of


class Event(Primitive):
    """A flag that all processes see. It outlives the process that set it.

    Layout:
        `<path>`, PERSISTENT, with the data `<epoch> set` or `<epoch> clear`; the epoch counts how often the flag went
        from clear to set. The nodes above are containers.

    Invariant:
        Every write is conditional on the version of the node that it is based on. So the epoch counts each set
        once, even if replies are lost, and a waiter learns of every set since its wait began, even if the flag is clear
        again.

    Cost:
        `is_set`: 2 reads in one round trip. `set`, `clear`: the same, then a write if the flag changes. `wait`: 2 reads
        if the flag is set; otherwise 3 reads in 2 round trips, before it sleeps. A set wakes all waiters; each reads
        once.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the event's path; its node is created by the first `set`, or by a `wait` that has to wait.

    Raises:
        TypeError: the path is not a string.
        ValueError: the path is invalid, or this client already uses it for another primitive.

    Source:
        `threading.Event`.
    """

    _kind = "Event"

    def is_set(self) -> bool:
        """Return whether the flag is set; asks the leader, and waits for the reply.

        Raises:
            ClientError: the client can't be used here.
            ForeignNodeError: the node at the path is not an event's.
        """
        return self._run_query(read_flag(self._path), _is_set)

    def isSet(self) -> bool:  # noqa: N802 - as threading calls it
        """Return whether the flag is set: the old name of `is_set`."""
        warnings.warn("isSet() is deprecated, use is_set() instead", DeprecationWarning, stacklevel=2)
        return self.is_set()

    def set(self) -> None:
        """Set the flag and wake all waiters; wait for ZooKeeper's reply. Errors as `is_set`."""
        return self._run_and_note(set_flag(self._path, True), discard_result)

    def clear(self) -> None:
        """Clear the flag; wait for ZooKeeper's reply. Errors as `is_set`."""
        return self._run_and_note(set_flag(self._path, False), discard_result)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set.

        Args:
            timeout: how long to wait, in seconds; None waits forever, zero or less reads the flag once.

        Returns:
            True if the flag is set, or was set at any time since the wait began; False at the deadline.

        Raises:
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            ClientError: the client can't be used here.
            ForeignNodeError: the node at the path is not an event's.
        """
        deadline = self._until(timeout)
        if timeout is not None and timeout <= 0:
            return self._run_query(read_flag(self._path), _is_set, deadline)
        return self._run_and_note(wait(self._path), lambda _: True, deadline)

    def destroy(self) -> None:
        """Remove the event's node.

        Waiters have no node, so the call does not see them. A waiter creates the event again and continues to wait.

        Raises:
            ClientError: the client can't be used here.
            ForeignNodeError: the node at the path is not an event's, or has children; nothing is deleted.
        """
        tree = Tree(self._path, "Event", partial(Flag.of, self._path))
        return self._run(destroy(tree), self._destroyed)

    def _seen(self) -> bool:
        """Return whether the flag is set, as last seen."""
        known: Flag | None = self._path_state.last_seen
        return known is not None and known.is_set

    def __repr__(self) -> str:
        return f"<{kind_of(self)} at {id(self):#x}: {'set' if self._seen() else 'unset'}>"


def _is_set(flag: Flag) -> bool:
    return flag.is_set
