"""To destroy what a primitive keeps in persistent nodes: all of it in one step, so that nobody ever sees a part."""

from __future__ import annotations

from .._ops import (
    Begin,
    Children,
    ConnectionLost,
    Delete,
    Discard,
    Get,
    Multi,
    Node,
    NoNode,
    NotEmpty,
    Recipe,
    StartAgain,
    Sync,
)
from .._registry import Ticket


def destroy(path: str, folders: tuple[str, ...] = ()) -> Recipe[None]:
    """Remove the node and its children in one `multi`; that it is gone already is success.

    Args:
        path: the node.
        folders: the names of those of its children whose own children mean that it is in use.

    Raises:
        RuntimeError: it is in use.
    """
    made: int | None = None
    while True:
        reads = (Children(f"{path}/{folder}") for folder in folders)
        _, node, names, *users = yield Sync(path), Get(path), Children(path), *reads
        if not _is_there(node, made):
            return
        made = node.czxid
        for folder, there in zip(folders, users, strict=True):
            if there:
                raise RuntimeError(f"cannot destroy {path!r}: it is in use, {folder} has {len(there)} node(s)")
        ticket: Ticket = yield Begin(path)
        try:
            yield Multi(ticket, (*(Delete(f"{path}/{name}") for name in names), Delete(path)))
        except (NoNode, NotEmpty, ConnectionLost, StartAgain):  # others changed it meanwhile, or nobody can know
            yield Discard(ticket)
        except GeneratorExit:
            raise  # dropped by its driver, which discards the ticket itself
        except BaseException:
            yield Discard(ticket)
            raise
        else:
            yield Discard(ticket)
            return


def _is_there(node: Node | None, made: int | None) -> bool:
    """Return whether the node to be destroyed is there still: one made anew since is not ours to destroy."""
    return node is not None and made in (None, node.czxid)
