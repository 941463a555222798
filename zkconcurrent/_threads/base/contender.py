"""A contender: what a node in a queue tells of the thread that created it, in our words or in a stranger's."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any, NamedTuple

from ..._protocol.operations import MALFORMED, Node
from ..._protocol.ticket import REVOKED
from ..._runtime.public import public


@public
class Contender(NamedTuple):
    """One node in a queue, and the thread that created it. Fields that the node's data does not give are None.

    Attributes:
        host: the host's name; for a Curator client, the text that it left in the node, usually its address.
        pid: the process id.
        thread: the thread's name.
        session: the ZooKeeper session id, a signed number, as in kazoo's `client_id`; the servers' logs have it in
            hexadecimal, without a sign. 0 for the holder of a `DetachedLock`.
        since: when the contender queued, by the server's clock.
        node: the node's path.
        token: the fencing token of its hold: the creation zxid of the node, or of the node that it replaced.
        position: a waiter's place in the queue, by arrival: 1 for the next, 2 for the one behind it; 0 for a holder.
        owner: the owner's name, if it holds or waits for a `DetachedLock`.
        by: the thread or task that created the node, in letters that no other one of any process has. With
            `fair=False`, it may have handed the node on to another one of its process; the client that holds tells of
            that one, in `thread`, too.
        timeout: for how many seconds it waits at most; None: for ever, or the node's data do not tell.
        holds: what its thread held when it queued, as far as no other thread can release it: the full paths, with the
            unique part of each node's name.
        more: how many such holds `holds` leaves out.
        revoked: somebody has asked it to let go. The request has taken the place of the node's data, so the other
            fields that are read from these are None.
    """

    host: str | None
    pid: int | None
    thread: str | None
    session: int
    since: datetime
    node: str
    token: int
    position: int = 0
    owner: str | None = None
    by: str | None = None
    timeout: float | None = None
    holds: tuple[tuple[str, str], ...] = ()
    more: int = 0
    revoked: bool = False

    def whole_name(self) -> str:
        """Return the words by which messages name it."""
        if self.pid is None:
            return repr(self.host or self.node)
        return f"thread {self.thread!r} of process {self.pid} on host {self.host!r}"

    @classmethod
    def of(cls, path: str, name: str, node: Node, position: int = 0) -> Contender:
        """Parse a node's data."""
        # Programs that ask for no contender never import this module.
        from ..._recipes.detached import read

        try:
            said = json.loads(node.data)
            host, pid, thread = _typed(said["host"], str), _typed(said["pid"], int), _typed(said["thread"], str)
            owner, by = (_typed(said.get(key), str) for key in ("owner", "by"))
            timeout, more = _typed(said.get("timeout"), float, int), _typed(said.get("more"), int)
            holds = tuple((str(path), str(node)) for path, node in said.get("holds", ()))
        except MALFORMED:
            host = None if node.data == REVOKED else node.data.decode("utf-8", "replace") or None
            pid, thread, owner = None, None, None
            by, timeout, holds, more = None, None, (), 0
        held = read(name, node)
        token = node.czxid if held is None else held.token
        since = datetime.fromtimestamp(node.ctime, timezone.utc)
        return cls(
            host,
            pid,
            thread,
            node.session,
            since,
            f"{path}/{name}",
            token,
            position,
            owner,
            by,
            timeout,
            holds,
            max(0, more or 0),
            node.data == REVOKED,
        )


def _typed(said: object, *kinds: type) -> Any:
    """Return what a node's data say, if it is of one of these types; else None: any program may have written it."""
    return said if type(said) in kinds else None
