"""`AtomicLong` and `AtomicInteger`: numbers that all processes share and change, each change exactly once."""

from __future__ import annotations

import operator
from collections.abc import Callable

from .._arguments.functions import check_callable
from .._arguments.paths import check_path
from .._kazoo.link import KazooClient
from .._recipes.value import ValueLayout, read_value
from .base.primitive import kind_of
from .base.value_base import BaseValue


class AtomicLong(BaseValue):
    """A number of 64 bits that all processes share. Every change is applied exactly once, even if replies are lost.

    A number that was never set is 0. It outlives the processes that changed it. If a process dies during a change, the
    change may or may not be applied.

    Layout:
        `<path>`, PERSISTENT, with the number in eight bytes, as Curator's DistributedAtomicLong stores it;
        `<path>/receipts/<uuid>`, PERSISTENT, one for each concurrent change of a client: its threads share one, and so
        do the tasks of an event loop; `<path>/lock`, the queue of clients that have met conflicts, laid out as a
        `Lock`. The nodes above are containers.

    Invariant:
        Every change is one request, which is conditional on the versions of the number and of the client's receipt. So
        each change is applied once, to the number that it is based on.

    Cost:
        `get`: 2 reads in one round trip. A change: one write, in one round trip; after a conflict with another client,
        and once in eight changes, also 3 reads in a second round trip. Threads of one process that change the number at
        the same time share these requests.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the number's path; its node is created by the first change.

    Raises:
        TypeError: the path is not a string.
        ValueError: the path is invalid, or this client already uses it for another primitive.

    Source:
        java.util.concurrent.atomic's `AtomicLong`; Curator's `DistributedAtomicLong`.
    """

    _kind = "AtomicLong"
    _size = 8

    def __init__(self, client: KazooClient, path: str) -> None:
        self._at = ValueLayout(check_path(path), self._kind, bytes(self._size), self._size)
        super().__init__(client, path)

    def get(self) -> int:
        """Return the number; asks the leader, and waits for the reply.

        Raises:
            ClientError: the client can't be used here.
            ForeignNodeError: the node at the path has other data.
        """
        return self._run_query(read_value(self._at), _number)

    def set(self, value: int) -> None:
        """Set the number.

        Raises:
            TypeError: the value is not an int.
            OverflowError: the value needs more bits than the number has.
            OutcomeUnknownError: the reply was lost, and so was the receipt that shows whether the change was applied;
                or the client was stopped before it could read the receipt.
            ClientError: the client can't be used here.
            ForeignNodeError: the node at the path has other data, or other children.
        """
        data = self._bytes(value)
        return self._change(lambda *_: (data, None))

    def add(self, n: int = 1) -> int:
        """Add to the number; return the new one. Errors as `set`; if the sum has too many bits, nothing changes."""
        n = operator.index(n)

        def decide(data: bytes, _: int) -> tuple[bytes, int]:
            new = _number(data) + n
            return self._bytes(new), new

        return self._change(decide)

    def get_and_add(self, n: int = 1) -> int:
        """Add to the number; return the old one. Errors as `add`."""
        n = operator.index(n)

        def decide(data: bytes, _: int) -> tuple[bytes, int]:
            old = _number(data)
            return self._bytes(old + n), old

        return self._change(decide)

    def compare_and_set(self, expected: int, value: int) -> bool:
        """Set the number if it is the expected one; return whether it was set. Errors as `set`."""
        expected, new = operator.index(expected), self._bytes(value)

        def decide(data: bytes, _: int) -> tuple[bytes | None, bool]:
            return (new, True) if _number(data) == expected else (None, False)

        return self._change(decide)

    def update(self, func: Callable[[int], int]) -> int:
        """Replace the number with a function's result; return the new number.

        Args:
            func: takes the current number and returns the new one. It is called again after a conflict. It must not
                change this number by other calls.

        Raises:
            TypeError: `func` is not callable, or is a coroutine function.
            RuntimeError: `func` changes this number by another call.
            Exception: what `set` or `func` raises.
        """
        check_callable("func", func)
        return self._update(lambda number: operator.index(func(number)), _number, self._bytes)

    def _bytes(self, value: int) -> bytes:
        number = operator.index(value)
        try:
            return number.to_bytes(self._size, "big", signed=True)
        except OverflowError:
            raise OverflowError(
                f"the number at {self._path!r} has {8 * self._size} bits, and the value needs {number.bit_length() + 1}"
            ) from None

    def __repr__(self) -> str:
        known = self._path_state.last_seen
        value = "unknown" if known is None else _number(known)
        return f"<{kind_of(self)} at {id(self):#x} path={self._path!r}: value={value}>"


class AtomicInteger(AtomicLong):
    """An `AtomicLong` of 32 bits, stored in the same bytes as Curator's DistributedAtomicInteger and SharedCount.

    Args:
        client: see `AtomicLong`.
        path: see `AtomicLong`.

    Source:
        java.util.concurrent.atomic's `AtomicInteger`; Curator's `DistributedAtomicInteger`.
    """

    _kind = "AtomicInteger"
    _size = 4


def _number(data: bytes) -> int:
    # Empty data means 0.
    return int.from_bytes(data, "big", signed=True)
