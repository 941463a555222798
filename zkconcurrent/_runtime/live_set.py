"""`LiveSet`: a set of weak references, in the order of arrival; a member that is garbage collected leaves the set.

Threads, signal handlers and finalizers use the set without a lock, as each change is one atomic operation (R4). The
standard library's weak collections have no order, or are four times slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class _Ref(ref[T]):
    """A weak reference to a member, which knows the member's `id()`."""

    __slots__ = ("key",)

    key: int


class LiveSet(Generic[T]):
    """A weak set that compares its members by identity, whatever their `==` and `hash()`.

    A program may define `__eq__` and `__hash__` in a subclass of a lock.
    """

    __slots__ = ("_forget", "_refs")

    def __init__(self) -> None:
        # The members by their `id()`. Another object gets the same `id()` only after the reference has been forgotten.
        refs: dict[int, _Ref[T]] = {}

        def forget(gone: ref[T]) -> None:
            assert isinstance(gone, _Ref)
            refs.pop(gone.key, None)

        self._refs = refs
        # `forget` refers to the dictionary alone, so no member keeps the set alive.
        self._forget = forget

    def add(self, member: T) -> None:
        """Add a member at the end; a member that is there already keeps its place."""
        made = _Ref(member, self._forget)
        made.key = id(member)
        self._refs[made.key] = made

    def discard(self, member: T) -> None:
        """Remove a member, if it is there."""
        self._refs.pop(id(member), None)

    def clear(self) -> None:
        """Remove all members."""
        self._refs.clear()

    def __contains__(self, member: T) -> bool:
        return id(member) in self._refs

    def __len__(self) -> int:
        return len(self._refs)

    def __iter__(self) -> Iterator[T]:
        # R4: the copy is made in one step.
        for each in list(self._refs.values()):
            if (member := each()) is not None:
                yield member
