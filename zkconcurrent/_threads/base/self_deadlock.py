"""Owners that wait for themselves: they wait for a hold that only they can end, for example through another client.

Through one client a re-entrant lock lets its owner in again. Each client has a session of its own, so to ZooKeeper two
clients of one thread are two contenders. The listing that an acquire reads anyway shows who is ahead, so the check
costs no request.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..._errors import DeadlockError
from ..._protocol.node_names import PREFIX_LENGTH
from ..._runtime.identity import holds_of, label, name

log = logging.getLogger("zkconcurrent.deadlocks")
WAITS_FOR_ITSELF = (
    "%r holds %r, and would wait for itself: a Lock is not re-entrant, and an RLock only through one client; use an "
    "RLock, and the same client"
)


def refuse_own_hold(path: str, owner: int, deadline: float | None, ahead: Sequence[str]) -> None:
    """Refuse to wait for a hold that only the waiting owner could end; if there is a deadline, only log the wait.

    Args:
        path: the path at which the owner waits.
        owner: the thread or task that waits.
        deadline: when the owner gives up; None if it waits forever.
        ahead: the nodes ahead in the queue that block the owner's node.

    Raises:
        DeadlockError: there is no deadline.
    """
    holds = holds_of(owner)
    for node in ahead:
        each = holds.get(node[:PREFIX_LENGTH])
        if each is not None and each.alive:
            if deadline is None:
                raise DeadlockError(path, WAITS_FOR_ITSELF % (name(owner), node))
            fields = {"zk_path": path, "zk_by": label(owner)}
            log.warning(f"{WAITS_FOR_ITSELF} [%s]", name(owner), node, path, extra=fields)
