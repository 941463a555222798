"""`Set`: a set of strings that all processes share; reads come from a local copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableSet
from typing import TypeVar

from .._protocol.operations import Recipe
from .._recipes.map import write
from .base.map_base import MapBase
from .base.primitive import discard_result

R = TypeVar("R")
T = TypeVar("T")


class Set(MapBase, MutableSet[str]):
    """A set of strings that all processes share. Reads come from a local copy, and send nothing; see `Dict`.

    Operators such as `|` and `-` return a `set`.

    Layout:
        As a `Dict`'s: an element is a key without data.

    Cost:
        As a `Dict`'s; `add`: one write, or two reads if the element is there and not ephemeral; `discard` and `remove`:
        one write.

    Args:
        client: see `Dict`.
        path: see `Dict`.
        ephemeral: whether an element ends with the session of the client that added it last.

    Source:
        `collections.abc.MutableSet`.
    """

    _kind = "Set"

    @classmethod
    def _from_iterable(cls, it: Iterable[T]) -> set[T]:
        return set(it)

    def add(self, value: str) -> None:
        """Add an element; if it is there already, change nothing.

        With `ephemeral`, the element then ends with this client's session, even if another client had added it.
        """
        key = self._check_key(value)
        add: Callable[..., Recipe[object]] = write.put if self._layout.ephemeral else write.put_if_absent
        return self._write(lambda map_write: add(map_write, key, b""), discard_result)

    def discard(self, value: str) -> None:
        """Remove an element, if it is there."""
        return self._discard(value, discard_result)

    def remove(self, value: str) -> None:
        """Remove an element.

        Raises:
            KeyError: the element is not there.
        """

        def removed(there: bool) -> None:
            if not there:
                raise KeyError(value)

        return self._discard(value, removed)

    def _discard(self, value: str, then: Callable[[bool], R]) -> R:
        return self._remove(value, write.delete, False, then)

    def pop(self) -> str:
        """Remove an arbitrary element and return it. Only one client gets it.

        Raises:
            KeyError: there are no elements.
        """
        while (key := self._any_key()) is not None:
            if self._discard(key, bool):
                return key
        raise KeyError(f"{self._path!r} has no elements")
