"""Rules decide which contender waits for which, from the names of the children alone.

Every contender has a node in one queue. A rule answers, without I/O: given my node and the children, do I hold; and if
not, which nodes must I wait for? Two properties make it a lock:

* two contenders that exclude each other are never both unblocked;
* while every node that I watch exists, I am rightly blocked.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from .._errors import ForeignNodeError, SequenceExhaustedError
from .layout import has_data, is_of_kazoo, other_folder, other_kind, role_of
from .node_names import PREFIX_LENGTH

LAST_SEQUENCE = 2_147_483_647
LATE_SEQUENCE = 2_000_000_000

# The number that the server appends to a sequential node's name: `%010d` of an int, which may be negative.
_SEQUENCE = re.compile(r"([0-9]{10}|-[0-9]{9,10})\Z")

# The name of a party of Curator's double barrier. By chance, one name in a hundred ends like a sequential node's.
_PARTY = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


class Rule(NamedTuple):
    """The rule of one queue for the contenders of one role.

    The contender with the lower number is ahead. It blocks the other if either is exclusive. Two nodes share a number
    only after a downgrade (a writer and the read lock it took itself); these never block each other.

    Attributes:
        role: the part of our nodes' names between the unique prefix and the sequence number.
        roles: the roles of all contenders in the queue, in the order in which `key` cuts the names.
        alone: the part that only the names of exclusive contenders contain; "" makes all contenders exclusive.
        hands_over: whether a releasing thread may let the next thread of this process continue before the server has
            replied. This is safe only if all contenders are exclusive and no node can come between the two. If several
            contenders can hold together, others may still block the next thread; and a writer may leave a read lock
            behind.
    """

    role: str
    roles: tuple[str, ...]
    alone: str = ""
    hands_over: bool = False

    def key(self, name: str) -> str:
        """Return the sort key of `name`: the part after the last role, or the whole name if it has no role.

        Source: Curator's `StandardLockInternalsDriver.standardFixForSorting`; its `InterProcessReadWriteLock` applies
        that to one role after the other. Keys are compared as strings, as in Curator.
        """
        for role in self.roles:
            name = name.rpartition(role)[2]
        return name

    @property
    def exclusive(self) -> bool:
        """Whether its contenders exclude all others."""
        return self.alone in self.role

    def is_ours(self, name: str) -> bool:
        """Return whether `name` contends in this rule's role."""
        return (self.alone in name) == self.exclusive


MUTEX = Rule("lock-", ("lock-",), hands_over=True)
"""Curator's InterProcessMutex, and the candidates of its LeaderSelector: every child excludes every other."""

LATCH = Rule("latch-", ("latch-",), hands_over=True)
"""The candidates of Curator's LeaderLatch."""

PERMIT = Rule("lease-", ("lease-",))
"""The acquired permits of Curator's InterProcessSemaphoreV2; they have no order and block no contender."""

READ = Rule("__READ__", ("__READ__", "__WRIT__"), alone="__WRIT__")
"""The readers of Curator's InterProcessReadWriteLock: a reader waits for the writers ahead of it."""

WRITE = READ._replace(role="__WRIT__")
"""The writers of the same queue: a writer waits for every contender ahead of it."""


def line_up(queue: Sequence[str], rule: Rule) -> list[str]:
    """Return the children in the order of their turns."""
    return sorted(queue, key=rule.key)


def blocker(me: str, queue: Sequence[str], rule: Rule) -> str | None:
    """Return the node that `me` must wait for, the nearest ahead that excludes it; if there is none, `me` holds.

    Args:
        me: a name in `queue`.
        queue: the names of all children, in any order.
        rule: how the queue decides.
    """
    at = queue.index(me)
    if len(queue) == 1:
        return None
    # Not sorted: one pass over n names finds the nearest ahead. The listing's order breaks ties, as in a stable sort.
    key = rule.key
    mine = key(me)
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
    return nearest


def in_the_way(me: str | None, queue: Sequence[str], rule: Rule) -> list[str]:
    """Return all nodes ahead of `me` that exclude it; None stands for a contender that would come last."""
    line = line_up(queue, rule)
    ahead = line if me is None else line[: line.index(me)]
    alone = rule.exclusive if me is None else rule.alone in me
    return [name for name in ahead if alone or rule.alone in name]


def behind(me: str, queue: Sequence[str], rule: Rule) -> list[str]:
    """Return the nodes behind `me` that it excludes, in the order of their turns."""
    mine, alone = rule.key(me), rule.alone in me
    return line_up([name for name in queue if (alone or rule.alone in name) and rule.key(name) > mine], rule)


def nearest(queue: Sequence[str], rule: Rule) -> dict[str, str | None]:
    """Return, in the order of turns, the node that each contender waits for: its `blocker`.

    One pass finds them all, whereas calling `blocker` for each of n contenders takes n passes.
    """
    found: dict[str, str | None] = {}
    last = last_alone = last_key = None
    line = line_up(queue, rule)
    for name in line:
        key, alone = rule.key(name), rule.alone in name
        if key == last_key:
            # Only a downgrade's two nodes share a number.
            found[name] = blocker(name, line, rule)
        else:
            found[name] = last if alone else last_alone
        last, last_key, last_alone = name, key, name if alone else last_alone
    return found


def holders(queue: Sequence[str], rule: Rule) -> list[str]:
    """Return the nodes that hold, in any role, in the order of their turns."""
    found = nearest(queue, rule)
    return list(itertools.takewhile(lambda name: found[name] is None, found))


def check_queue(path: str, queue: Sequence[str], rule: Rule = MUTEX) -> None:
    """Refuse a queue that another kind of primitive also uses: its nodes wait by another rule, or not at all.

    Any other child whose name ends in a sequence number is a contender, whichever client made it.

    Args:
        path: the queue.
        queue: the names of its children, as listed.
        rule: the queue's rule.

    Raises:
        ForeignNodeError: a child belongs to a queue of another rule, or one of kazoo's own recipes made it; or it is
            not sequential, as when the path of another primitive lies below this one; or the path has data.
    """
    roles = rule.roles
    for name in queue:
        if name[:3] == "_c_" and name[PREFIX_LENGTH:-10] in roles and name[-10:].isdecimal():
            # Nearly all names take this fast path, without a regular expression: a wake-up checks the whole queue's
            # names.
            continue
        if (role := role_of(name)) is not None and role not in roles:
            layouts = {role, rule.role} == {MUTEX.role, LATCH.role}
            raise ForeignNodeError(
                path, other_kind(name, role) + layouts * "; of an Election, this is the other layout"
            )
        if not _SEQUENCE.search(name) or _PARTY.match(name):
            raise ForeignNodeError(
                path,
                other_folder(name)
                or f"the child {name!r} is no contender for a lock, as it does not end in a sequence number: paths of "
                "primitives must not nest, not even across processes; move one of the two, or delete the child if "
                "something else left it behind",
            )
        if is_of_kazoo(name):
            raise ForeignNodeError(
                path,
                f"kazoo's own recipes use this path (child {name!r}), and their locks and ours do not exclude each "
                "other: use another path for ours; while old processes may still run, take both locks, kazoo's first",
            )
    if length := getattr(queue, "data_length", 0):
        raise ForeignNodeError(path, has_data(length))


def check_sequence(path: str, name: str, rule: Rule) -> bool:
    """Refuse a number that no longer gives the order of arrival; return whether the numbers are running out.

    Raises:
        SequenceExhaustedError: the parent's counter is exhausted.
    """
    number = int(rule.key(name))
    if not 0 <= number < LAST_SEQUENCE:
        raise SequenceExhaustedError(
            path,
            f"ZooKeeper has no sequence numbers left here (it gave {number}); leave the path idle until its node is "
            "removed (the next use creates it anew and counts from 0), or use another path",
        )
    return number >= LATE_SEQUENCE
