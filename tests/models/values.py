"""Atomic numbers: each change is made once, on the number that the change before has made."""

from __future__ import annotations

from collections.abc import Iterator

from tests.models.history import Call, Model, Outcome


class AtomicLong(Model):
    """A number."""

    initial = 0
    reads = ("get", "wait")

    def apply(self, number: int, call: Call) -> Iterator[tuple[Outcome, int]]:
        """Add (a number), get, or wait (for so many bits); compare (with a number) and set (to another), or set.

        A comparison may go by the version, and then fail where the number is the same.
        """
        if call.what == "wait":
            if number.bit_count() >= call.args[0]:
                yield True, number
        elif call.what == "compare":
            expected, new, by_version = call.args
            if by_version or number != expected:
                yield False, number
            if number == expected:
                yield True, new
        elif call.what == "set":
            yield None, call.args[0]
        else:
            total = number + (call.args[0] if call.what == "add" else 0)
            yield total, total
