"""Claims: a client acknowledges a taken item or gives it back, even if the call was interrupted or cancelled."""

from __future__ import annotations

from contextlib import suppress

from ..._errors import ForeignNodeError
from ..._protocol.operations import BadVersion, Create, Delete, NoNode, Recipe, Requeue, SessionExpired, Set
from ..receipts import burn, moved, write
from .order import frame
from .put import put_when_first
from .state import Closed, Errand, Lost
from .take import identified, remove


def acknowledge(errand: Errand, *, doubt: bool = False) -> Recipe[None]:
    """End a claim, and take its item out of the queue.

    Raises:
        Lost: the claim is over: the item may be another consumer's, or the item was deleted or written meanwhile.
        ForeignNodeError: the item's node has children; the item is given back.
    """
    at, taken = errand.desk.at, errand.taken
    assert taken is not None
    parts = Delete(f"{at.claims}/{taken.name}"), remove(at, taken)
    try:
        yield from write(errand, parts, session=taken.session or -1, doubt=doubt)
    except (SessionExpired, NoNode, BadVersion) as failed:
        if failed.part:  # the item is gone, or was written, and the claim is ours: nobody else would end it
            errand.purpose = "give back"
            yield from give_back(errand)
        errand.over = True
        raise Lost from None
    except ForeignNodeError:
        errand.purpose = "give back"
        yield from give_back(errand)
        raise
    if len(taken.payloads) > 1:
        errand.desk.come_back_to(taken.name)


def give_back(errand: Errand, *, doubt: bool = False) -> Recipe[None]:
    """End a claim; the item is free again, in its place. A claim that is over is no error."""
    desk, taken = errand.desk, errand.taken
    assert taken is not None
    try:
        yield from write(errand, (Delete(f"{desk.at.claims}/{taken.name}"),), session=taken.session or -1, doubt=doubt)
    except (SessionExpired, NoNode):
        errand.over = True
        return
    desk.come_back_to(taken.name)


def settle(errand: Errand) -> Recipe[bool]:
    """Settle a change that a call has left under way, so that no item is lost and none stays claimed.

    An acknowledgement is brought to its end. An item that was claimed is given back, and one that was taken is put back
    in its place. A `put` was applied, or never will be.

    Raises:
        Unknown: the receipt is gone, so it is unknown whether the change was applied.
    """
    while errand.left:
        receipt = errand.receipt
        try:
            if errand.purpose == "acknowledge":
                with suppress(Lost):
                    yield from acknowledge(errand, doubt=errand.sent is not None)
            elif errand.purpose == "give back":
                yield from give_back(errand, doubt=errand.sent is not None)
            elif errand.purpose == "restore":
                yield from restore(errand)
            elif errand.sent and receipt is not None:
                if (yield from moved(errand, receipt)) is None and (yield from burn(receipt)):
                    errand.sent = None
            elif errand.purpose == "get":
                errand.purpose, errand.applied = "restore", False
            else:
                yield from _find_claim(errand)
                errand.purpose, errand.applied = "give back", False
        except Requeue:
            continue
    return True


def _find_claim(errand: Errand) -> Recipe[None]:
    """Find the claim that was made for a call that did not see it."""
    taken = errand.taken
    assert taken is not None
    if not taken.session:
        yield from identified(errand, taken)


def restore(errand: Errand) -> Recipe[None]:
    """Put an item back in its place: it was taken for a call that has ended meanwhile.

    If the queue has a maximal size, it waits for a free place, as a producer does.
    """
    desk, at, taken = errand.desk, errand.desk.at, errand.taken
    assert taken is not None
    item, data = f"{at.items}/{taken.name}", frame(taken.payloads[:1], taken.base - taken.version)
    count = -1 if errand.counts else 0
    receipt = errand.receipt
    while errand.sent and receipt is not None:
        landed = yield from moved(errand, receipt)
        if landed:
            return
        if landed is None and (yield from burn(receipt)):
            errand.sent = None
    if len(taken.payloads) > 1:
        with suppress(NoNode, BadVersion):  # else what was behind it in its node was taken, too
            whole = Set(item, frame(taken.payloads, taken.base + 2), taken.version + 1)
            yield from write(errand, (whole,), count=count)
            return
        create = Create(f"{at.items}/{taken.name[:-10]}", data, sequential=True)
    else:
        create = Create(item, data)
    if at.maxsize:
        with suppress(Closed):
            yield from put_when_first(errand, create, wait=True, count=count)
            return
    while not errand.applied:
        try:
            yield from write(errand, (create,), count=count)
        except NoNode:
            yield from desk.lay_out()
