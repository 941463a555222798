"""The dictionary: the writes of all clients, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.models.history import Call, Model, Outcome


class Entry(NamedTuple):
    """An entry."""

    key: str
    value: object


Entries = frozenset[Entry]


class Dict(Model):
    """Keys and values."""

    initial: Entries = frozenset()

    def apply(self, entries: Entries, call: Call) -> Iterator[tuple[Outcome, Entries]]:
        """Set, setdefault, del, pop (a key, a value), replace, or remove (a key, old and new value)."""
        key, *values = call.args
        old = next((each.value for each in entries if each.key == key), None)
        others = frozenset(each for each in entries if each.key != key)
        written = others | {Entry(key, values[-1])} if values else others
        if call.what == "set":
            yield None, written
        elif call.what == "setdefault":
            yield (old, entries) if old is not None else (values[0], written)
        elif call.what == "pop":
            yield old, others
        elif call.what == "del":
            yield (KeyError if old is None else None), others
        elif old is None or old != values[0]:
            yield False, entries
        else:
            yield True, written if call.what == "replace" else others
