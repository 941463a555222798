"""Claims: a client acknowledges a taken item or gives it back, even if the call was interrupted or cancelled.

A call that is interrupted or cancelled leaves its change to a thread of the library, which settles it. The thread
completes an acknowledgement, and gives back an item that was claimed. If an item was taken, the thread creates it anew,
with its old name and so in its old place. The item's data then say how often it was claimed, as the version of its new
node does not. For a while, even past its deadline, a call waits for the reply to a `multi` that takes an item.
Otherwise each `get(timeout=...)` that meets an item at its deadline would take it and put it back.
"""

from __future__ import annotations

from contextlib import suppress

from ..._errors import ForeignNodeError, LossCause
from ..._protocol import operations as op
from ..._protocol.operations import Recipe
from ..receipts import settle as settle_write
from ..receipts import write
from .order import frame
from .put import put_when_first
from .state import ClaimLost, ItemCall, QueueClosed
from .take import identified, remove


def acknowledge(item_call: ItemCall) -> Recipe[None]:
    """End a claim, and take its item out of the queue.

    Raises:
        ClaimLost: the claim is over: the item may be another consumer's, or the item was deleted or written meanwhile.
        ForeignNodeError: the item's node has children; the item is given back.
    """
    at, taken = item_call.view.at, item_call.taken
    assert taken is not None
    parts = op.Delete(f"{at.claims}/{taken.name}"), remove(at, taken)
    try:
        yield from write(item_call, parts, session=taken.session or -1)
    except (op.SessionExpired, op.NoNode, op.BadVersion) as failed:
        if failed.part:
            # The item is gone, or was written, and the claim is still ours: no other client would end it.
            item_call.purpose = "give back"
            yield from give_back(item_call)
        item_call.over = True
        expired = isinstance(failed, op.SessionExpired)
        raise ClaimLost(LossCause.SESSION_EXPIRED if expired else LossCause.NODE_DELETED) from None
    except ForeignNodeError:
        item_call.purpose = "give back"
        yield from give_back(item_call)
        raise
    if len(taken.payloads) > 1:
        item_call.view.come_back_to(taken.name)


def give_back(item_call: ItemCall) -> Recipe[None]:
    """End a claim; the item is free again, in its place. If the claim is over, nothing changes."""
    view, taken = item_call.view, item_call.taken
    assert taken is not None
    try:
        yield from write(item_call, (op.Delete(f"{view.at.claims}/{taken.name}"),), session=taken.session or -1)
    except (op.SessionExpired, op.NoNode):
        item_call.over = True
        return
    view.come_back_to(taken.name)


def settle(item_call: ItemCall) -> Recipe[bool]:
    """Settle a change that a call has left under way, so that no item is lost and none stays claimed.

    It completes an acknowledgement, gives back an item that was claimed, and puts back an item that was taken, in its
    place. Once this recipe has ended, a `put` was applied, or never will be.

    Raises:
        OutcomeLost: the receipt is gone, so it is unknown whether the change was applied.
    """
    while item_call.left:
        with suppress(op.Requeue):
            if item_call.purpose == "acknowledge":
                with suppress(ClaimLost):
                    yield from acknowledge(item_call)
            elif item_call.purpose == "give back":
                yield from give_back(item_call)
            elif item_call.purpose == "restore":
                yield from restore(item_call)
            elif item_call.sent:
                yield from settle_write(item_call)
            elif item_call.purpose == "get":
                item_call.purpose, item_call.applied = "restore", False
            else:
                taken = item_call.taken
                assert taken is not None
                if not taken.session:
                    yield from identified(item_call, taken)
                item_call.purpose, item_call.applied = "give back", False
    return True


def restore(item_call: ItemCall) -> Recipe[None]:
    """Put an item back in its place, as the call that took it has ended early.

    If the queue has a maximal size, the recipe waits for a free place, as a producer does.
    """
    view, at, taken = item_call.view, item_call.view.at, item_call.taken
    assert taken is not None
    item, data = f"{at.items}/{taken.name}", frame(taken.payloads[:1], taken.base - taken.version)
    count = -1 if item_call.counts else 0
    if (yield from settle_write(item_call)):
        return
    if len(taken.payloads) > 1:
        # If this fails, a consumer has also taken the items behind this one in its node. Then the item gets a node of
        # its own.
        with suppress(op.NoNode, op.BadVersion):
            whole = op.SetNode(item, frame(taken.payloads, taken.base + 2), taken.version + 1)
            yield from write(item_call, (whole,), count=count)
            return
        create = op.Create(f"{at.items}/{taken.name[:-10]}", data, sequential=True)
    else:
        create = op.Create(item, data)
    if at.maxsize:
        with suppress(QueueClosed):
            yield from put_when_first(item_call, create, wait=True, count=count)
            return
    while not item_call.applied:
        try:
            yield from write(item_call, (create,), count=count)
        except op.NoNode:
            yield from view.lay_out()
