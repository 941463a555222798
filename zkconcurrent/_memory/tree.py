"""ZooKeeper's tree: nodes and sessions, as plain data.

A request takes effect in two steps, as in ZooKeeper. `Tree.plan` checks operations against the tree and returns the
change that they would make; it alters nothing. `Tree.apply` makes the change, under a zxid. So several trees that apply
the same changes in the same order are equal, and a tree can be restored from a log of its changes.

Nothing here reads a clock, counts zxids or numbers sessions: the caller gives times, zxids and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from typing import ClassVar, NamedTuple

from . import changes
from .rights import demand, resolve

# The flags of nodes with a time to live, which a server refuses by default.
TTL_FLAGS = (5, 6)
SPECIAL = ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota")  # these can't be deleted
# No element is empty, "." or "..", or contains a control character, a surrogate, a private character, or one from
# U+FFF0 on.
_PATH = re.compile("(?:/(?!\\.\\.?(?:/|\\Z))[^/\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]+)+|/")


class Applied(NamedTuple):
    """The results of a change.

    Attributes:
        stats: for each step, the stat of its node after the step; None for a step without a stat.
        events: what happened to which nodes, in order.
    """

    stats: list[changes.Stat | None]
    events: list[changes.Event]


class Node:
    """A node, with the names of its children.

    Attributes:
        creates: how many children have ever been made, up to the largest number of 32 bits.
        size: how many children there are.
        owner: the session of an ephemeral node, `CONTAINER`, or 0.
    """

    def __init__(self, data: bytes | None, acl: changes.Acl, owner: int, zxid: int, time: int) -> None:
        self.data = data
        self.acl = acl
        self.owner = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = time
        self.version = self.acl_version = self.creates = self.size = 0
        self.children: dict[str, None] = {}

    def stat(self) -> changes.Stat:
        """Return the node's stat."""
        return (
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            # How often a child was made or deleted.
            _signed(2 * self.creates - self.size),
            self.acl_version,
            0 if self.owner == changes.CONTAINER else self.owner,
            len(self.data or b""),
            self.size,
            self.pzxid,
        )


class Session:
    """A session: its timeout, and the paths of its nodes in the order of their creation."""

    def __init__(self, timeout: int) -> None:
        self.timeout = timeout
        self.paths: dict[str, None] = {}


class Tree:
    """A service's nodes and sessions.

    Attributes:
        nodes: the nodes, by path; the root is both "/" and "", which is the parent of "/a".
        sessions: the living sessions, by number.
        containers: the paths of the containers.
        zxid: the zxid of the last change.
    """

    def __init__(self) -> None:
        root = Node(b"", changes.OPEN, 0, 0, 0)
        self.nodes = {"": root, "/": root}
        self.sessions: dict[int, Session] = {}
        self.containers: dict[str, None] = {}
        self.zxid = 0
        for path in SPECIAL[1:]:
            acl: changes.Acl = ((changes.READ, "world", "anyone"),) if path == "/zookeeper/config" else changes.OPEN
            self.nodes[path] = Node(b"", acl, 0, 0, 0)
            above, name = changes.split(path)
            self.nodes[above].children[name] = None
            self.nodes[above].size += 1
        self.nodes["/zookeeper/config"].acl_version = -1

    def find(self, path: str, ids: changes.Ids | None = None, permission: int = changes.READ) -> Node:
        """Return a node.

        Args:
            path: its path.
            ids: what the connection has authenticated as; None is allowed everything.
            permission: the permissions that are asked for, of which one is enough.

        Raises:
            Refused: there is no such node, or these ids lack the permission.
        """
        node = self.nodes.get(path)
        if node is None:
            raise changes.Refused(changes.Code.NO_NODE)
        demand(node.acl, ids, permission)
        return node

    def plan(
        self, session: int, operations: Sequence[changes.Operation], time: int, ids: changes.Ids | None = None
    ) -> changes.Change:
        """Check operations, each as if the earlier ones had been done.

        Args:
            session: the session that asks; 0 is the service itself.
            operations: what is asked for.
            time: the time of the change, in milliseconds since 1970.
            ids: what the connection has authenticated as; None is allowed everything.

        Returns:
            The change: a step for each operation.

        Raises:
            Refused: one of the operations can't be done.
        """
        draft = _Draft(self, session, time, ids, single=len(operations) == 1)
        steps = []
        for index, operation in enumerate(operations):
            try:
                steps.append(draft.add(operation))
            except changes.Refused as refusal:
                refusal.index = index
                raise
        return tuple(steps)

    def plan_end(self, session: int) -> changes.Change:
        """Return the change that ends a session; an empty change if the session has ended already."""
        return (changes.Closed(session, tuple(self.sessions[session].paths)),) if session in self.sessions else ()

    def apply(self, change: changes.Change, zxid: int) -> Applied:
        """Apply a planned change."""
        self.zxid = zxid
        applied = Applied([], [])
        for step in change:
            applied.stats.append(self.appliers[type(step)](self, step, zxid, applied.events))
        return applied

    def _make(self, step: changes.Made, zxid: int, events: list[changes.Event]) -> changes.Stat:
        path = step.path
        above, name = changes.split(path)
        parent = self.nodes[above]
        parent.children[name] = None
        parent.size += 1
        # Beyond the largest number, the count no longer grows.
        if step.creates > parent.creates:
            parent.creates, parent.pzxid = step.creates, zxid
        node = self.nodes[path] = Node(step.data, step.acl, step.owner, zxid, step.time)
        if step.owner == changes.CONTAINER:
            self.containers[path] = None
        elif step.owner in self.sessions:
            self.sessions[step.owner].paths[path] = None
        events.append(changes.Event(changes.CREATED, path, node.acl, parent.acl))
        return node.stat()

    def _remove(self, step: changes.Removed, zxid: int, events: list[changes.Event]) -> None:
        path = step.path
        node = self.nodes.pop(path, None)
        if node is None:
            return
        above, name = changes.split(path)
        parent = self.nodes[above]
        del parent.children[name]
        parent.size -= 1
        parent.pzxid = zxid
        if node.owner == changes.CONTAINER:
            del self.containers[path]
        elif node.owner in self.sessions:
            del self.sessions[node.owner].paths[path]
        events.append(changes.Event(changes.DELETED, path, node.acl, parent.acl))

    def _write(self, step: changes.Written, zxid: int, events: list[changes.Event]) -> changes.Stat:
        node = self.nodes[step.path]
        node.data, node.version, node.mtime, node.mzxid = step.data, step.version, step.time, zxid
        events.append(changes.Event(changes.CHANGED, step.path, node.acl))
        return node.stat()

    def _guard(self, step: changes.Guarded, _zxid: int, _events: list[changes.Event]) -> changes.Stat:
        node = self.nodes[step.path]
        node.acl, node.acl_version = step.acl, step.version
        return node.stat()

    def _open(self, step: changes.Opened, _zxid: int, _events: list[changes.Event]) -> None:
        self.sessions[step.session] = Session(step.timeout)

    def _close(self, step: changes.Closed, zxid: int, events: list[changes.Event]) -> None:
        for path in step.paths:
            self._remove(changes.Removed(path), zxid, events)
        session = self.sessions.pop(step.session, None)
        # A tree that has missed a delete has more nodes of the session than the tree that planned the change.
        for path in session.paths if session is not None else ():
            self._remove(changes.Removed(path), zxid, events)

    # Keep the order of the steps: a journal identifies each by its place here.
    appliers: ClassVar[dict[type, Callable[..., changes.Stat | None]]] = {
        changes.Made: _make,
        changes.Removed: _remove,
        changes.Written: _write,
        changes.Guarded: _guard,
        changes.Checked: lambda *_: None,
        changes.Opened: _open,
        changes.Closed: _close,
    }


class _Draft:
    """A change in the making."""

    def __init__(self, tree: Tree, session: int, time: int, ids: changes.Ids | None, *, single: bool) -> None:
        self._tree = tree
        self._session = session
        self._time = time
        self._ids = ids
        # Whether there is a single operation, so that no later one must see the altered nodes.
        self._single = single
        # Copies of the nodes that were altered; None for a node that is deleted.
        self._altered: dict[str, Node | None] = {}

    def add(self, operation: changes.Operation) -> changes.Step:
        """Check one more operation; return the step that it makes."""
        if self._session and self._session not in self._tree.sessions:
            raise changes.Refused(changes.Code.SESSION_EXPIRED)
        return self._planners[type(operation)](self, operation)

    def _find(self, path: str) -> Node:
        node = self._altered[path] if path in self._altered else self._tree.nodes.get(path)
        if node is None:
            raise changes.Refused(changes.Code.NO_NODE)
        return node

    def _alter(self, path: str, node: Node) -> Node:
        """Return a copy that now stands for the node. The copy has the same set of children: change only numbers."""
        altered = self._altered[path] = copy(node)
        return altered

    def _create(self, operation: changes.Create) -> changes.Made:
        path, flags = operation.path, operation.flags
        if flags in TTL_FLAGS:
            raise changes.Refused(changes.Code.UNIMPLEMENTED)
        if not 0 <= flags <= changes.CONTAINER_FLAG or "/" not in path or "\0" in path:
            raise changes.Refused(changes.Code.BAD_ARGUMENTS)
        acl = resolve(operation.acl, self._ids)
        above = changes.split(path)[0]
        parent = self._find(above)
        demand(parent.acl, self._ids, changes.CREATE)
        if flags & changes.SEQUENTIAL:
            path += f"{parent.creates:010d}"
        _validate(path)
        if (self._altered[path] if path in self._altered else self._tree.nodes.get(path)) is not None:
            raise changes.Refused(changes.Code.NODE_EXISTS)
        if parent.owner not in (0, changes.CONTAINER):
            raise changes.Refused(changes.Code.NO_CHILDREN_FOR_EPHEMERALS)
        creates = _signed(parent.creates + 1)
        owner = changes.CONTAINER if operation.container else self._session if flags & changes.EPHEMERAL else 0
        if not self._single:
            parent = self._alter(above, parent)
            parent.creates = creates
            parent.size += 1
            self._altered[path] = Node(b"", acl, owner, 0, 0)
        return changes.Made(path, operation.data, acl, owner, creates, self._time)

    def _delete(self, operation: changes.Delete) -> changes.Removed:
        path = operation.path
        if "/" not in path or "\0" in path or path in SPECIAL:
            raise changes.Refused(changes.Code.BAD_ARGUMENTS)
        above = changes.split(path)[0]
        parent = self._find(above)
        demand(parent.acl, self._ids, changes.DELETE)
        node = self._find(path)
        _agree(operation.version, node.version)
        if node.size:
            raise changes.Refused(changes.Code.NOT_EMPTY)
        if not self._single:
            self._alter(above, parent).size -= 1
            self._altered[path] = None
        return changes.Removed(path)

    def _set_data(self, operation: changes.SetData) -> changes.Written:
        node = self._checked(operation.path, changes.WRITE)
        _agree(operation.version, node.version)
        version = _signed(node.version + 1)
        if not self._single:
            self._alter(operation.path, node).version = version
        return changes.Written(operation.path, operation.data, version, self._time)

    def _set_acl(self, operation: changes.SetAcl) -> changes.Guarded:
        _validate(operation.path)
        acl = resolve(operation.acl, self._ids)
        node = self._checked(operation.path, changes.ADMIN)
        _agree(operation.version, node.acl_version)
        return changes.Guarded(operation.path, acl, _signed(node.acl_version + 1))

    def _check(self, operation: changes.Check) -> changes.Checked:
        _agree(operation.version, self._checked(operation.path, changes.READ).version)
        return changes.Checked(operation.path)

    def _checked(self, path: str, permission: int) -> Node:
        _validate(path)
        node = self._find(path)
        demand(node.acl, self._ids, permission)
        return node

    _planners: ClassVar[dict[type, Callable[..., changes.Step]]] = {
        changes.Create: _create,
        changes.Delete: _delete,
        changes.SetData: _set_data,
        changes.SetAcl: _set_acl,
        changes.Check: _check,
    }


def _validate(path: str) -> None:
    if _PATH.fullmatch(path) is None:
        raise changes.Refused(changes.Code.BAD_ARGUMENTS)


def _agree(wanted: int, version: int) -> None:
    if wanted not in (changes.ANY_VERSION, version):
        raise changes.Refused(changes.Code.BAD_VERSION)


def _signed(number: int) -> int:
    """Return a number as Java keeps it in 32 bits."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)
