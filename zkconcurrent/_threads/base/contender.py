"""A contender: what a node in a queue shows about its creator, in this library's format or another's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import NamedTuple

from ..._protocol.blocking_rules import PERMIT, READ, WRITE
from ..._protocol.layout import role_of
from ..._protocol.node_info import NodeInfo, origin_of
from ..._protocol.operations import Node
from ..._protocol.ticket import REVOKED
from ..._recipes.detached import parse
from ..._runtime.clock import ago
from ..._runtime.public import public

_MODES = {READ.role: "read", WRITE.role: "write", PERMIT.role: "permit"}


@public
class Contender(NamedTuple):
    """One node in a queue, and the thread that created it. Fields that the node's data does not give are None.

    Attributes:
        host: the host's name; for a Curator client, the text that it left in the node, usually its address; for a
            candidate of an `Election` with an id of the program's own, that id.
        pid: the process id.
        thread: the thread's name; None for a candidate.
        session: the ZooKeeper session id, a signed number, as in kazoo's `client_id`; the servers' logs have it in
            hexadecimal, without a sign. 0 for the holder of a `DetachedLock`.
        queued: when the contender queued, by the server's clock.
        node: the node's path.
        token: the fencing token of its hold, which is the creation zxid of the node, or of the node that it replaced.
        position: a waiter's place in the queue, in order of arrival, from 1 for the next waiter; 0 for a holder.
        owner: the owner's name, if the contender holds or waits for a `DetachedLock`.
        by: a string that identifies the thread or task that created the node: no other thread or task of any process
            has it. With `fair=False`, that thread may have handed the node on to another thread of its process; the
            holder's own client then reports the other thread here and in `thread`.
        timeout: the most seconds that it waits; None if it waits forever, or the node's data do not give the number.
        holds: the holds that its thread had when it queued, except those that other threads can release; at most 16,
            each as a pair: the full path, and the unique part of the node's name.
        revoked: a client has asked it to let go. The request has replaced the node's data, so all fields that are read
            from the data are None.
        label: the `label` of its lock, if it has one.
        first_seen_holding: when this client first saw it hold, by this machine's clock; the client remembers this as
            long as it keeps an object of that path. The hold began then or earlier: the node does not show when. For a
            hold of this client, the time of its grant. None for a waiter.
        mode: "read", "write" or "permit"; at a `Queue`, "consumer", "producer" or "claim"; empty if the kind has one
            mode only.
        blocker: the name of the node that it waits for. None for a holder, and for a waiter that no other node blocks:
            it waits for a permit, an item, or room.
    """

    host: str | None
    pid: int | None
    thread: str | None
    session: int
    queued: datetime
    node: str
    token: int
    position: int = 0
    owner: str | None = None
    by: str | None = None
    timeout: float | None = None
    holds: tuple[tuple[str, str], ...] = ()
    revoked: bool = False
    label: str | None = None
    first_seen_holding: datetime | None = None
    mode: str = ""
    blocker: str | None = None

    def whole_name(self) -> str:
        """Return the contender's name for messages."""
        return NodeInfo(self.host, self.pid, self.thread, label=self.label).whole_name(self.node)

    @classmethod
    def of(cls, path: str, name: str, node: Node, position: int = 0, blocker: str | None = None) -> Contender:
        """Parse a node's name and data."""
        info = NodeInfo.parse(node.data)
        if info.pid is None and (origin := origin_of(node.data))[0]:
            info = info._replace(host=origin[0], pid=origin[1])
        held = parse(name, node)
        return cls(
            info.host,
            info.pid,
            info.thread,
            node.session,
            datetime.fromtimestamp(node.ctime, timezone.utc),
            f"{path}/{name}",
            node.czxid if held is None else held.token,
            position,
            info.owner,
            info.by,
            info.timeout,
            info.holds,
            node.data == REVOKED,
            info.label,
            mode=_MODES.get(role_of(name) or "", ""),
            blocker=blocker,
        )


def note_holders(
    contenders: Iterable[Contender], before: Iterable[Contender], granted: Mapping[str, datetime]
) -> list[Contender]:
    """Return the contenders of a listing; each holder gets the time at which an observer first saw it hold.

    Args:
        contenders: all contenders that the observer sees.
        before: what this returned for the previous listing.
        granted: the times of the grants that the observer knows, by node.
    """
    now = ago(0)
    since = {**granted, **{each.node: each.first_seen_holding for each in before}}
    return [
        each if each.position else each._replace(first_seen_holding=since.get(each.node) or now) for each in contenders
    ]
