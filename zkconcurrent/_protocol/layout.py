"""The layout of the primitives' nodes: the roles in the names of contenders, and the folders below a path.

The names are Curator's. A path is for one kind of primitive; the nodes there show which.
"""

from __future__ import annotations

import re

# The nodes of kazoo's own locks, which wait by another rule and for none of our contenders.
_KAZOO_NODE = re.compile(r"[0-9a-f]{32}__r?lock__-?\d+\Z")

KINDS = {
    "lock-": "a Lock, RLock, DetachedLock or Election",
    "__READ__": "a ReadWriteLock",
    "__WRIT__": "a ReadWriteLock",
    "latch-": 'an Election with layout="latch"',
    "lease-": "a Semaphore",
    "waiter-": "a Condition",
    "party-": "a Barrier or DoubleBarrier",
    "count-": "a CountDownLatch",
    "member-": "a Queue",
    "writer-": "a Dict or Set",
    "queue-": "a Queue",
    "qn-": "Curator's SimpleDistributedQueue",
}
"""The kinds of primitives whose nodes have a role in their names, by that role."""

FOLDERS = {
    "Semaphore": ("locks", "leases", "permits"),
    "Condition": ("lock", "waiters"),
    "Queue": ("items", "claims", "consumers", "producers", "receipts", "dead", "members"),
    "Dict": ("entries", "writers"),
    "SharedValue": ("receipts", "lock"),
    "DoubleBarrier": ("ready",),
}
"""The children with fixed names, by the kind of primitive; all are persistent."""
# The names of these kinds in errors.
_FOLDERS_OF = {"Dict": "Dict or Set", "SharedValue": "number or SharedValue"}

# The names of nodes known by their role: ours and Curator's, and those that an old Curator or an operator has named.
# Each name ends in a number, so a path such as `/app/lock-a` is not a contender at `/app`.
_KNOWN = re.compile(
    r"_c_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-(?P<ours>[a-z]+-|__READ__|__WRIT__)-?[0-9]+\Z"
    r"|(?P<item>queue-|qn-)[0-9]+\Z"
    r"|.*(?P<other>(?<![a-z])(?:lock|latch)-|__READ__|__WRIT__)-?[0-9]{9,}\Z"
)


def role_of(name: str) -> str | None:
    """Return the role in a node's name, if it is one of `KINDS`."""
    found = _KNOWN.match(name)
    role = None if found is None else found["ours"] or found["item"] or found["other"]
    return role if role in KINDS else None


def is_of_kazoo(name: str) -> bool:
    """Return whether one of kazoo's own locks or semaphores made a node."""
    return _KAZOO_NODE.match(name) is not None


def other_kind(name: str, role: str) -> str:
    """Return the text of the error for a child that another kind of primitive made."""
    return (
        f"the child {name!r} is a node of {KINDS[role]}: two kinds of primitives do not exclude each other, so a path "
        "is for one kind; use another path for one of the two, in every process"
    )


def other_folder(name: str) -> str | None:
    """Return the text of the error for a child with the name of another kind's folder; None if it has no such name."""
    kinds = [_FOLDERS_OF.get(kind, kind) for kind, names in FOLDERS.items() if name in names]
    if not kinds:
        return None
    return (
        f"the child {name!r} is like that of a {' or '.join(kinds)}: a path is for one kind of primitive, and paths of "
        "primitives must not nest, not even across processes; use another path for one of the two, in every process"
    )


def has_data(length: int) -> str:
    """Return the text of the error for a node that has data, whereas a queue's node has none."""
    return (
        f"the node has {length:,} bytes of data, as that of an Event, a CountDownLatch, a Barrier, a number, a "
        "value, a Queue, a Dict or a Set has, so it is theirs: use another path; or, if nothing uses "
        'the data, remove them (zkCli: `set <path> ""`)'
    )
