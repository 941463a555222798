"""The data of this process's nodes: the thread that made the node and, for a waiter, its holds and its timeout.

Other processes read the data in `owner()` and `waiters()`, and can follow from node to node which thread waits for
which. A blocked thread acquires nothing, so it never holds more than it held when it queued.
"""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import chain, islice

from ..._engine.holds import PathState, owned_by
from ..._protocol.node_names import unique
from ..._protocol.ticket import HOLDS
from ..._runtime.clock import wall_clock
from ..._runtime.identity import HOST, holds_of, name
from ..._runtime.identity import label as owner_label
from ..._runtime.this_process import getpid

MOST_BYTES = 1000
"""The most bytes that a waiter's data take, so that the data of a thousand waiters fit into one reply."""
MOST_NAME = 240
"""The most bytes of JSON that a thread's name takes, as one request may create a thousand nodes with the name."""
MOST_HOLDS = 16
# How many holds are considered. Some of these may be on other servers, or have paths that are too long.
MOST_LOOKS = 4 * MOST_HOLDS
# The most bytes that the fields after the origin take, not counting the holds.
_REST = 135
# The fewest bytes that a hold takes, not counting its path.
_PAIR = len('["", ""], ') + 32
inherited: list[tuple[str, str]] = []
"""Holds of other processes that outlast this process: the full path, and the unique part of the node's name.

In `zkconcurrent run`, these are the holds of the runs around it. They are on the servers of its only client."""


def node_data(owner: int, label: str | None = None) -> bytes:
    """Return the data of a node: the host, process and owner that create it, the label of the lock, and the time."""
    return b'%b, "time": %.6f}' % (_origin(getpid(), name(owner)[:60], owner, label), wall_clock())


def waiter_data(
    owner: int,
    path_state: PathState,
    deadline: float | None,
    more: bytes = b"",
    *,
    label: str | None = None,
    ends: bool = False,
) -> bytes:
    """Return the data of a node that waits: those of `node_data`, `more` fields, and the following, where they apply.

    * `holds`: the first few holds on the same servers that only this owner can end, as pairs of the path and the unique
      part of the node's name;
    * `ends`: 1, only together with `holds`, if a deadlock ends the wait;
    * `timeout`: the most seconds that it waits.
    """
    origin = _origin(getpid(), name(owner)[:60], owner, label) + more
    held = holds_of(owner)
    if deadline is None and not held and not inherited:
        # This is the most frequent case, and part of each acquire.
        return b'%b, "time": %.6f}' % (origin, wall_clock())
    said: list[bytes] = [origin]
    if deadline is not None:
        # The deadline may have passed: a free lock is acquired even then.
        said.append(b'"timeout": %.3f' % max(0.0, deadline - path_state.session.now()))
    if held or inherited:
        servers = path_state.location[1]
        room = MOST_BYTES - _REST - len(origin)
        own = (
            (each.location[0], unique(each.ticket.prefix))
            # A thread may hold thousands of locks, and considering all of them would take longer than an acquire.
            for each in islice(owned_by(owner), MOST_LOOKS)
            if each.location is not None and each.location[1] == servers
        )
        named: list[str] = []
        for hold in chain(inherited, own):
            if len(named) == MOST_HOLDS:
                break
            if len(hold[0]) + _PAIR <= room and len(pair := json.dumps(hold)) + 2 <= room:
                room -= len(pair) + 2
                named.append(pair)
        if named:
            said.append(b"%b[%b]" % (HOLDS, ", ".join(named).encode()))
            if ends:
                said.append(b'"ends": 1')
    return b'%b, "time": %.6f}' % (b", ".join(said), wall_clock())


@lru_cache
def _origin(pid: int, thread: str, owner: int, label: str | None) -> bytes:
    """Return the constant part of a node's data, as JSON without its closing brace."""
    # Cut the thread's name: a name that is long, or has many escapes, must not make the request too large.
    while len(json.dumps(thread)) > MOST_NAME:
        thread = thread[:-1]
    origin = json.dumps({"host": HOST, "pid": pid, "thread": thread, "by": owner_label(owner)})[:-1]
    # The label is written without escapes: its limit counts bytes, and an escape takes six for one character.
    return (origin if label is None else f'{origin}, "label": {json.dumps(label, ensure_ascii=False)}').encode()
