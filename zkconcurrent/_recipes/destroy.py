"""Destroy the persistent nodes of a primitive, and nothing else; list the clients that still use it, and name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .._arguments.limits import most_together
from .._errors import ForeignNodeError
from .._protocol import operations as op
from .._protocol.layout import has_data
from .._protocol.node_info import NodeInfo
from .._protocol.operations import Recipe
from .._protocol.ticket import Ticket
from .nodes import foreign_child

NAMED = 5
Users = list[tuple[str, op.Node]]  # nodes by their paths


def users(path: str, folders: Sequence[str]) -> Recipe[list[Users]]:
    """Return the nodes in each of the folders, read behind a `sync`, in no particular order."""
    _, *listings = yield (op.Sync(path), *map(op.Children, folders))
    found: list[Users] = []
    for folder, names in zip(folders, listings, strict=True):
        found.append((yield from existing([f"{folder}/{name}" for name in names])))
    return found


def existing(paths: Sequence[str]) -> Recipe[Users]:
    """Return the nodes that exist."""
    nodes = (yield tuple(map(op.Get, paths))) if paths else []
    return [(path, node) for path, node in zip(paths, nodes, strict=True) if node is not None]


def named(found: Users) -> str:
    """Return how an error message names the clients of these nodes: by thread, process and host."""
    words = [_name(path, node) for path, node in found[:NAMED]]
    more = len(found) - len(words)
    return ", ".join([*words, f"and {more:,} more"] if more else words)


def _name(path: str, node: op.Node) -> str:
    info = NodeInfo.parse(node.data)
    if info.pid is None:
        # Another program, such as one on Curator, has made the node.
        return f"session {node.session % 2**64:#x}, which says {node.data[:100]!r} ({path})"
    return f"thread {info.thread!r} of process {info.pid} on host {info.host!r} ({path})"


class Tree(NamedTuple):
    """The nodes of a primitive, as `destroy` sees them.

    Attributes:
        path: the node that has the primitive's state, and is deleted last. If it is itself a folder of users, it stays:
            it is a container, which the server removes.
        kind: the kind of primitive, for error messages.
        check: raises ForeignNodeError for a node of another kind.
        leaves: the folders, `path` itself or below it, whose children are the primitive's, each with a test of the
            children's names.
        users: the folders without data in which each client that uses the primitive has a node: `path` itself, below
            it, or beside it.
        mine: returns this client's own nodes in the folders of users, which do not count as users.
    """

    path: str
    kind: str
    check: Callable[[op.Node], object]
    leaves: Mapping[str, Callable[[str], object]] = {}
    users: Sequence[str] = ()
    mine: Callable[[], Iterable[str]] = tuple

    def is_leaf(self, folder: str, name: str) -> bool:
        """Return whether a child of a folder is a leaf of the primitive."""
        return folder in self.leaves and bool(self.leaves[folder](name))

    def check_all(self, node: op.Node, contents: Mapping[str, Sequence[str]]) -> None:
        """Refuse nodes that are not the primitive's.

        Args:
            node: the node at the path.
            contents: the names in each folder, and in the node.

        Raises:
            ForeignNodeError: there are such nodes.
        """
        self.check(node)
        if node.session:
            raise ForeignNodeError(
                self.path, "the node is not persistent, so it belongs to something else, and was not deleted"
            )
        for folder, names in contents.items():
            if folder in self.users:
                if length := getattr(names, "data_length", 0):
                    raise ForeignNodeError(folder, has_data(length))
                continue
            for name in names:
                if not self.is_leaf(folder, name) and (path := f"{folder}/{name}") not in contents:
                    raise self.foreign(path)

    def foreign(self, path: str) -> ForeignNodeError:
        """Return the error for a node below ours that is not ours."""
        return foreign_child(self.path, path[len(self.path) + 1 :], self.kind)


def destroy(tree: Tree) -> Recipe[Users]:
    """Remove the nodes of a primitive, unless clients use it; return the nodes of these clients.

    One `multi` deletes all nodes, the folders of users included. A folder can only be deleted while it is empty, so the
    `multi` fails if a client uses the primitive. If there are more nodes than one request can name, the first `multi`
    deletes the folders of users and some leaves; each later one fails if a client has made such a folder anew. Nothing
    changes if the node is gone already.

    Raises:
        ForeignNodeError: the path has other nodes; none of them was touched.
    """
    path, born = tree.path, 0
    folders = tuple(dict.fromkeys((path, *tree.leaves, *tree.users)))
    while True:
        _, node, *listings = yield op.Sync(path), op.Get(path), *map(op.Children, folders)
        # A node that was made since is not ours to destroy.
        if born and (node is None or node.czxid != born):
            return []
        contents = dict(zip(folders, listings, strict=True))
        if node is not None:
            tree.check_all(node, contents)
        present = {f"{at}/{name}" for at in tree.users for name in contents[at] if not tree.is_leaf(at, name)}
        mine = sorted(present.intersection(tree.mine()))
        if others := sorted(present.difference(mine)):
            if using := (yield from existing(others)):
                return using
            continue
        if node is None:
            return []
        born = node.czxid
        ticket: Ticket = yield op.NewTicket(path)
        parts: Sequence[op.Part] = ()
        try:
            for parts in _requests(tree, node, contents, mine):
                yield op.Multi(ticket, tuple(parts))
        except (op.NoNode, op.NodeExists, op.BadVersion, op.NotEmpty, op.ConnectionLost, op.Requeue) as error:
            # The nodes have changed meanwhile, or the outcome is unknown: read again.
            yield op.Discard(ticket)
            if isinstance(error, op.NotEmpty):
                leaves = [part.path for part in parts if isinstance(part, op.Delete) and part.path not in contents]
                if using := (yield from _below(tree, leaves)):
                    return using
        else:
            yield op.Discard(ticket)
            return []


def _requests(
    tree: Tree, node: op.Node, contents: Mapping[str, Sequence[str]], mine: Sequence[str]
) -> Iterator[Sequence[op.Part]]:
    """Yield the parts of each `multi`.

    Our own nodes in the folders of users go in a `multi` of their own, before the others. So calls of this client's
    other threads must make these nodes anew, and are too slow to change anything before the next `multi`.
    """
    path = tree.path
    left = [op.Delete(f"{at}/{name}") for at in tree.leaves for name in contents[at] if tree.is_leaf(at, name)]
    left += (op.Delete(at) for at in tree.leaves if at != path and contents[at] is not op.NOWHERE)
    # The version is the one that was checked: data that was written since may be of another kind. A node with folders
    # is surely the same while its folders are there, and a busy client may change its version again and again.
    version = node.version if set(contents) == {path} else -1
    last: op.Part = op.Delete(path, version=version)
    if path in tree.users:
        if not left:
            return
        last = op.SetNode(path, node.data, node.version)
    # A missing folder below the node needs no guard: if it is made now, the node can't be deleted.
    closed = [
        at for at in tree.users if at != path and (contents[at] is not op.NOWHERE or not at.startswith(f"{path}/"))
    ]
    made_anew: list[op.Part] = [part for at in closed for part in (op.Create(at, b""), op.Delete(at))]
    guards = [part for part in made_anew if isinstance(part, op.Delete) or contents[part.path] is op.NOWHERE]
    if mine:
        yield *map(op.Delete, mine), *guards
        guards = made_anew
    most = most_together(max((part.path for part in (*left, last)), key=len))
    while len(left) > most:
        yield op.Check(path, version), *left[:most], *guards
        guards = made_anew
        del left[:most]
    yield *left, *guards, last


def _below(tree: Tree, leaves: Sequence[str]) -> Recipe[Users]:
    """Return the clients' nodes below leaves that could not be deleted, such as the nodes of a barrier's parties.

    Raises:
        ForeignNodeError: a node there has no session.
    """
    listings = (yield tuple(map(op.Children, leaves))) if leaves else ()
    below = [f"{leaf}/{name}" for leaf, names in zip(leaves, listings, strict=True) for name in names]
    using = yield from existing(below)
    for path, node in using:
        if not node.session:
            raise tree.foreign(path)
    return using
