"""Atomic numbers and shared values: each change is made once, on the value that the change before has made."""

from __future__ import annotations

from collections.abc import Iterator

from tests.models.history import Call, Model, Outcome


class AtomicLong(Model):
    """A number."""

    initial = 0
    reads = ("get",)

    def apply(self, number: int, call: Call) -> Iterator[tuple[Outcome, int]]:
        """Add (a number), or get."""
        total = number + (call.args[0] if call.what == "add" else 0)
        yield total, total


class SharedValue(Model):
    """A value, here a tuple of words."""

    initial: tuple[object, ...] = ()
    reads = ("get",)

    def apply(self, words: tuple[object, ...], call: Call) -> Iterator[tuple[Outcome, tuple[object, ...]]]:
        """Append (a word), or get."""
        value = (*words, *call.args)
        yield value, value
