"""Rules: who must wait for whom, decided from the names of the children alone.

Every contender has a node in one queue. A rule answers, without I/O, "given my node and the children, do I hold it,
and if not, which nodes must I outwait?" Two properties are what makes a lock of it:

* two contenders that exclude each other are never both unblocked;
* while every node that I watch exists, I am rightly blocked.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from .._errors import ForeignNodeError, SequenceExhaustedError

LAST_SEQUENCE = 2_147_483_647
LATE_SEQUENCE = 2_000_000_000

# What kazoo's own locks leave: they wait by another rule, and for nobody of ours.
_KAZOO_NODE = re.compile(r"[0-9a-f]{32}__r?lock__-?\d+\Z")
# What the server adds to the name of a sequential node, whoever makes it: `%010d` of an int, which may be negative.
_SEQUENCE = re.compile(r"([0-9]{10}|-[0-9]{9,10})\Z")


class Rule(NamedTuple):
    """How one queue decides, for those who come to it in one role.

    Of two contenders, the one with the lower number is ahead. It is in the other's way if either of them wants to be
    alone. Of one number are only a writer and the read lock that it took itself: they never wait for each other.

    Attributes:
        role: what stands between the unique prefix and the sequence number in the names that we make.
        roles: the roles of all who share the queue, in the order in which names are cut.
        alone: what marks the names of those who want to hold alone; all names have "" in them.
        hands_over: whether a thread that gives up its hold may let the next of this process go on before the server
            has answered. Only where all want to be alone and nobody can come to stand between the two: where several
            hold, the one that goes need not have been the last in the way; and a writer leaves a read lock behind.
    """

    role: str
    roles: tuple[str, ...]
    alone: str = ""
    hands_over: bool = False

    def key(self, name: str) -> str:
        """Return what `name` sorts by: all after the last role, or the whole name where there is none.

        Source: Curator's `StandardLockInternalsDriver.standardFixForSorting` and, of two roles, one after the other,
        its `InterProcessReadWriteLock`; compared as strings, as there.
        """
        for role in self.roles:
            name = name.rpartition(role)[2]
        return name

    def is_ours(self, name: str) -> bool:
        """Whether `name` holds, once it does, in this rule's role."""
        return (self.alone in name) == (self.alone in self.role)


MUTEX = Rule("lock-", ("lock-",), hands_over=True)
"""Curator's InterProcessMutex: every child excludes every other."""

LEASE = Rule("lease-", ("lease-",))
"""The permits of Curator's InterProcessSemaphoreV2 that are out; they are in no order, and in nobody's way."""

READ = Rule("__READ__", ("__READ__", "__WRIT__"), alone="__WRIT__")
"""The readers of Curator's InterProcessReadWriteLock: they wait for the writers ahead of them."""

WRITE = READ._replace(role="__WRIT__")
"""The writers of the same queue: they wait for everybody ahead of them."""


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
        alone = rule.alone in rule.role
        return [name for name in line_up(queue, rule)[::-1] if alone or rule.alone in name]
    # Not sorted: to find the nearest ahead takes one look at each of n names. Of equal keys the listing's order
    # decides, as in a stable sort.
    key = rule.key
    mine = key(me)
    at = queue.index(me)
    alone = rule.alone in me
    nearest: str | None = None
    nearest_key = ""
    for i, name in enumerate(queue):
        its = key(name)
        if its < mine:
            in_the_way = alone or rule.alone in name
        else:
            in_the_way = its == mine and i < at and alone and rule.alone in name
        if in_the_way and (nearest is None or its >= nearest_key):
            nearest, nearest_key = name, its
    return [] if nearest is None else [nearest]


def holders(queue: Sequence[str], rule: Rule) -> list[str]:
    """Return the nodes that hold, in any role, the first in line first."""
    line = line_up(queue, rule)
    return list(itertools.takewhile(lambda name: not blockers(name, line, rule), line))


def check_queue(path: str, queue: Sequence[str]) -> None:
    """Refuse a queue in which somebody waits by another rule than ours, or does not wait at all.

    Any child that ends in a sequence number is a contender, in whatever language it was made: see wire.md.

    Raises:
        ForeignNodeError: a child was made by one of kazoo's own recipes; or it is not sequential, as where the path
            of another primitive lies below this one.
    """
    for name in queue:
        if name[:3] == "_c_" and name[-10:].isdecimal():
            continue  # first, and without a pattern, what nearly all are: a wake-up has a look at each of a crowd
        if not _SEQUENCE.search(name):
            raise ForeignNodeError(
                path,
                f"the child {name!r} is no contender for a lock, as it does not end in a sequence number: paths of "
                "primitives must not nest, in other processes neither; put one of the two elsewhere, or delete the "
                "child if it is left from something else",
            )
        if _KAZOO_NODE.match(name):
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
