"""Rules: who must wait for whom, decided from the names of the children alone.

Every contender has a node in one queue. A rule answers, without I/O, "given my node and the children, do I hold it,
and if not, which nodes must I outwait?" Two properties are what makes a lock of it:

* two contenders that exclude each other are never both unblocked;
* while every node that I watch exists, I am rightly blocked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ._errors import ForeignNodeError, SequenceExhaustedError

LAST_SEQUENCE = 2_147_483_647
LATE_SEQUENCE = 2_000_000_000

# What kazoo's own locks leave: they wait by another rule, and for nobody of ours.
_KAZOO_NODE = re.compile(r"[0-9a-f]{32}__r?lock__-?\d+\Z")


class Rule(NamedTuple):
    """How one queue decides.

    Attributes:
        role: what stands between the unique prefix and the sequence number in the names that we make.
    """

    role: str

    def key(self, name: str) -> str:
        """Return what `name` sorts by: all after the last role, or the whole name where there is none.

        Source: Curator's `StandardLockInternalsDriver.standardFixForSorting`; compared as strings, as there.
        """
        return name.rpartition(self.role)[2]


MUTEX = Rule("lock-")
"""Curator's InterProcessMutex: every child excludes every other."""


def line_up(queue: Sequence[str], rule: Rule) -> list[str]:
    """Return the children in the order in which they hold."""
    return sorted(queue, key=rule.key)


def blockers(me: str | None, queue: Sequence[str], rule: Rule) -> list[str]:
    """Return the nodes that `me` must outwait, the nearest one first; an empty answer means that it holds.

    Args:
        me: a name in `queue`, or None for somebody who would come last.
        queue: the names of all children, in any order.
        rule: how the queue decides.
    """
    if me is None:
        return line_up(queue, rule)[::-1]
    # Not sorted: to find the nearest ahead takes one look at each of n names. Of equal keys the listing's order
    # decides, as in a stable sort.
    key = rule.key
    mine = key(me)
    at = queue.index(me)
    nearest: str | None = None
    nearest_key = ""
    for i, name in enumerate(queue):
        its = key(name)
        if (its < mine or (its == mine and i < at)) and (nearest is None or its >= nearest_key):
            nearest, nearest_key = name, its
    return [] if nearest is None else [nearest]


def check_queue(path: str, queue: Sequence[str]) -> None:
    """Refuse a queue in which somebody waits by another rule than ours.

    Raises:
        ForeignNodeError: a child was made by one of kazoo's own recipes.
    """
    for name in queue:
        if not name.startswith("_c_") and _KAZOO_NODE.match(name):
            raise ForeignNodeError(
                path,
                f"kazoo's own recipes use this path (child {name!r}), and their locks and ours do not exclude each "
                "other; move every process to one of the two, or use another path: see docs/how-to/migrate.md",
            )


def check_sequence(path: str, name: str, rule: Rule) -> bool:
    """Refuse a node whose number no longer says who came first; return whether the numbers are running out.

    Raises:
        SequenceExhaustedError: the parent's counter is at its end.
    """
    number = int(rule.key(name))
    if not 0 <= number < LAST_SEQUENCE:
        raise SequenceExhaustedError(
            path,
            f"ZooKeeper has no sequence numbers left here (it gave {number}); let the path fall idle until its node "
            "is removed (it is then made anew and counts from 0), or use another path",
        )
    return number >= LATE_SEQUENCE
