"""Several ensembles as one: which of them has a path, and which processes may use their list.

Each ensemble has a record at the base path: the name that it was given once, and the lists that its users have agreed
on. So the order in which a program gives its clients, and how it spells their hosts, decide nothing. A name is hashed
with a path's first part, and the highest hash has the path (rendezvous hashing): one more ensemble takes its share
from each of the others, and no path moves between those.

A list grows by a *move*, which each of the old ensembles goes through by itself:

====================  =================  ===============================================
record                its list           processes that may use the ensemble
====================  =================  ===============================================
`lists` ends in old   old                those of the old list; those that move (take a moved path on both)
`next` is new         old, about to end  those that move, and no others
`lists` ends in new   new                those of the new list; those that move
====================  =================  ===============================================

A process is a *member* of the ensemble, by an ephemeral node, before it makes any other node there, in each session
anew; the server creates that node only if the record is still the one by which the process may. So who closes the old
list (`next`) and then finds no member of it knows that there is none, nor will there be.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from .._errors import ClientError
from .operations import MALFORMED

RECORD = "_ensembles"
"""The name of the record, below the base path."""
MEMBER = "member-"

List: TypeAlias = "tuple[str, ...]"
"""A list of ensembles, by their names, sorted."""


class Record(NamedTuple):
    """What an ensemble knows of its users.

    Attributes:
        name: the ensemble's name.
        lists: the lists that its users have agreed on, the present one last; none if it is about to join its first.
        next: the list that is about to follow; None if there is none.
    """

    name: str
    lists: tuple[List, ...] = ()
    next: List | None = None

    def dump(self) -> bytes:
        """Return the data of its node."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def load(cls, data: bytes) -> Record | None:
        """Return the record with these data; None if there is none."""
        try:
            said = json.loads(data)
            lists = tuple(map(_list, said["lists"]))
            return cls(_text(said["name"]), lists, None if said["next"] is None else _list(said["next"]))
        except MALFORMED:
            return None


class ListMember(NamedTuple):
    """What the node of a membership tells.

    Attributes:
        uses: the list that the process uses.
        ends: the list that it ends up with.
        by: the process, in words.
    """

    uses: List
    ends: List
    by: str

    def dump(self) -> bytes:
        """Return the data of its node."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def load(cls, data: bytes) -> ListMember:
        """Return the member with these data; of other data, one that uses no list."""
        try:
            said = json.loads(data)
            return cls(_list(said["uses"]), _list(said["ends"]), _text(said["by"]))
        except MALFORMED:
            return cls((), (), f"one whose node has the data {data[:100]!r}")


class Plan(NamedTuple):
    """The list that a process uses, and the one that it ends up with; the same unless it moves."""

    uses: List
    ends: List

    @property
    def moves(self) -> bool:
        """Whether the process takes part in a move."""
        return self.uses != self.ends

    def may_use(self, record: Record) -> bool:
        """Return whether a process with this plan may use an ensemble with that record."""
        *_, before, present = (None, None, *record.lists)
        if record.next is not None:
            return self.ends == record.next and (present is None or self.uses == present)
        if self.moves and self.ends == present:
            return self.uses == before
        return self.uses == present


def _list(said: object) -> List:
    if not isinstance(said, list):
        raise TypeError("no list")
    return tuple(map(_text, said))


def _text(said: object) -> str:
    if not isinstance(said, str):
        raise TypeError("no text")
    return said


def place(names: List, part: str) -> str:
    """Return the name of the ensemble that has the paths whose first part this is."""
    return max(names, key=lambda name: sha256(f"{name}/{part}".encode()).digest())


def first_part(base: str, path: str) -> str:
    """Return the first part of a path below the base: what decides its place."""
    return path[len(base.rstrip("/")) + 1 :].partition("/")[0]


def floor(lists: Sequence[List], part: str, marks: Callable[[int, str], int]) -> int:
    """Return what the fencing tokens of a path have in addition to the zxids of its present ensemble.

    The zxids of two ensembles do not compare. At the `n`th move, each old ensemble got a mark: a node, whose creation
    zxid is greater than those of all holders before. So the sum of the marks of a path's earlier places is above each
    token that these have given.

    Args:
        lists: the lists, up to the one that counts.
        part: the path's first part.
        marks: returns the creation zxid of the mark of the `n`th move on the ensemble of that name.
    """
    moves = enumerate(itertools.pairwise(lists), 1)
    return sum(marks(n, old) for n, (one, two) in moves if (old := place(one, part)) != place(two, part))


def refused(at: str, plan: Plan, record: Record) -> ClientError:
    """Return the error of a process whose list is not that of the other users."""
    agreed = record.next or (record.lists or ((),))[-1]
    return ClientError(
        at,
        f"this process gives the ensembles {_shown(plan.ends)}, but the users of {record.name} "
        f"{'are about to agree' if record.next else 'have agreed'} on {_shown(agreed)}: give all processes the same "
        "list; a list grows by joining=, in two steps",
    )


def gone(at: str) -> ClientError:
    """Return the error for a record that was deleted."""
    return ClientError(
        at,
        "the record of the ensemble's list was deleted: open new clients and make the namespace anew, in all processes",
    )


def _shown(names: List) -> str:
    return f"[{', '.join(names)}]"
