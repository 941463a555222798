"""Revocation: a client asks the holders of a lock to let go, as Curator's `Revoker` does.

The request is a write of ten bytes, `__REVOKE__`, into the holder's node. Curator's holder compares the whole data of
the node with these bytes, so the node can contain nothing else: what it said about its holder is gone. The node's name
and session, by which contenders exclude each other, stay as they are.

A write names the version that was read. So after a lost reply, another version with these data shows that the holder
was asked, and no call asks a holder twice.
"""

from __future__ import annotations

from .._protocol import operations as op
from .._protocol.blocking_rules import Rule, holders
from .._protocol.operations import Recipe
from .._protocol.ticket import REVOKED
from .lock import list_queue


def revoke(path: str, rule: Rule) -> Recipe[int | None]:
    """Ask the holders for whom a contender of this rule waits; return how many were asked.

    Return None if a holder's node belongs to no session: no client watches such a node, and its data name who may
    release it.
    """
    names = yield from list_queue(path, rule)
    left = [name for name in holders(names, rule) if rule.exclusive or rule.alone in name]
    seen: dict[str, int] = {}
    asked = 0
    while left:
        nodes: list[op.Node | None] = yield tuple(op.Get(f"{path}/{name}") for name in left)
        to_ask: list[tuple[str, op.Node]] = []
        for name, node in zip(left, nodes, strict=True):
            if node is None:
                continue
            if not node.session:
                return None
            if seen.setdefault(name, node.version) != node.version and node.data == REVOKED:
                asked += 1
            else:
                to_ask.append((name, node))
        left = [name for name, _ in to_ask]
        if not to_ask:
            break
        try:
            done = yield tuple(op.SetNode(f"{path}/{name}", REVOKED, node.version) for name, node in to_ask)
        except op.ConnectionLost:
            continue
        asked += sum(map(bool, done))
        left = [name for name, was_set in zip(left, done, strict=True) if not was_set]
    return asked
