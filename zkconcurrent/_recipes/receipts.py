"""Exactly once: a `multi` that changes a queue is applied once, also if its reply is lost.

Every `multi` begins with a check of our member, a node of our session, and ends with a write of our receipt, a
persistent node that no other client writes, in the version that we know. So a `multi` that slips into a later session
fails by its first part. One whose reply was lost is settled by the receipt: if it has moved, all was applied. If not,
the same `multi` is sent again, and only one of the two can be applied, as both name the same version.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .._errors import ForeignNodeError
from .._limits import most_together
from .._paths import ancestors
from .desk import Desk, Errand, Layout, Receipt, Sent, Unknown, not_ours
from .operations import (
    BadVersion,
    Check,
    Children,
    ConnectionLost,
    CreateEphemeral,
    CreatePersistent,
    Delete,
    Discard,
    EnsureContainer,
    Failure,
    Get,
    Keep,
    Multi,
    NewTicket,
    Node,
    NoNode,
    NotEmpty,
    Part,
    Recipe,
    Requeue,
    SessionExpired,
    Set,
    Sync,
)
from .orders import Header, member_data
from .queue import find
from .ticket import State, Ticket

BURNT = b"burnt"  # a receipt that was used up so that no `multi` can use it
UNTOUCHED = 86_400.0  # seconds after which a receipt is of a client that is gone


def write(
    errand: Errand, parts: tuple[Part, ...], *, count: int = 0, session: int = 0, doubt: bool = False
) -> Recipe[Sequence[Any] | None]:
    """Apply operations together, exactly once; return their results, or None if these were lost with the reply.

    Args:
        errand: the call.
        parts: the operations.
        count: what to add to the number of unfinished items.
        session: the session in which it must be applied; 0 for any.
        doubt: the same was sent before.

    Raises:
        Failure: nothing was applied, as the operation with the number in `part` failed.
        SessionExpired: nothing was applied, and that session is over.
        Unknown: it is unknown whether it was applied.
    """
    why: Exception | None = None
    while True:
        receipt = yield from ready(errand)
        member = receipt.member
        assert member is not None
        if session not in (0, member.session):
            why = SessionExpired()
        if doubt:
            landed = yield from moved(errand, receipt)
            if landed:
                return None
            doubt = landed is None
        if why is not None:
            if doubt and not (yield from burn(receipt)):
                continue
            errand.sent = None
            try:
                raise why
            finally:
                del (
                    why
                )  # otherwise the traceback and this frame keep each other alive, and the caller's queue with them
        mine: Part = Check(member.node)
        if count:
            mine = Set(member.node, member_data(errand.who, receipt.unfinished + count), -1)
        step = Multi(member, (mine, *parts, Set(receipt.path, b"", receipt.version)), firm=True)
        errand.sent = sent = Sent(receipt.version, receipt.unfinished + count)
        try:
            results = yield step
        except (ConnectionLost, Requeue):
            doubt = True
        except Failure as failed:
            if not doubt:
                errand.sent = None
            part = failed.part or 0
            if part == 0:  # our member is gone: its session is over, or an operator deleted it
                yield Discard(member)
                receipt.member = None
            elif part <= len(parts) and isinstance(failed, NotEmpty):
                why = ForeignNodeError(parts[part - 1].path, "an item's node has children; delete them")
            elif part <= len(parts):
                failed.part = part - 1
                why = failed.with_traceback(None)
            elif not doubt:  # our receipt is gone
                receipt.path = ""
        except Exception:
            if not doubt:  # it was refused: nothing was applied, unless an earlier attempt was
                errand.sent = None
            raise
        else:
            errand.note_applied(receipt, sent)
            return results[1:-1]  # type: ignore[no-any-return]


def moved(errand: Errand, receipt: Receipt) -> Recipe[bool | None]:
    """Return whether the `multi` in doubt was applied: False if it can't be any more, None if it may be still.

    Raises:
        Unknown: the receipt is gone.
    """
    _, node = yield Sync(receipt.path), Get(receipt.path)
    sent = errand.sent
    assert sent is not None
    if node is None:
        receipt.path = ""
        errand.sent = None
        raise Unknown
    if node.version == sent.version:
        return None
    if node.data != BURNT:
        errand.note_applied(receipt, sent)
        return True
    receipt.version = node.version
    errand.sent = None
    return False


def burn(receipt: Receipt) -> Recipe[bool]:
    """Use up the receipt's version, so that the `multi` in doubt can't be applied any more; False: it may have been.

    The data tells this write from that of the `multi`, if its own reply is lost.
    """
    try:
        if (yield Set(receipt.path, BURNT, receipt.version)):
            receipt.version += 1
            return True
    except ConnectionLost:
        pass
    return False


def ready(errand: Errand) -> Recipe[Receipt]:
    """Return a receipt, whose member is of the present session as far as is known."""
    desk, at = errand.desk, errand.desk.at
    if not desk.laid_out:
        yield from lay_out(desk)
    if errand.receipt is None:
        errand.receipt = desk.take_receipt()
    receipt = errand.receipt
    while not receipt.path:
        ticket: Ticket = yield NewTicket(at.receipts)
        yield Discard(ticket)  # only its unique name is needed: a receipt belongs to no session
        path = f"{at.receipts}/{ticket.prefix[len('_c_') : -1]}"
        try:
            yield CreatePersistent(path, b"")
        except NoNode:
            yield from lay_out(desk)
            continue
        receipt.path, receipt.version = path, 0
        if len(desk.receipts) == 1:
            yield from sweep(path)
    while receipt.member is None or receipt.member.changed or receipt.member.state is not State.QUEUED:
        if receipt.member is not None:
            yield Discard(receipt.member)
            receipt.member = None
        ticket = yield NewTicket(at.members)
        try:
            try:
                yield CreateEphemeral(ticket, "member-", member_data(errand.who, receipt.unfinished))
            except ConnectionLost:
                yield from find(ticket)
        except NoNode:
            yield Discard(ticket)
            yield from lay_out(desk)
        except Requeue:
            yield Discard(ticket)
        else:
            yield Keep(ticket)
            receipt.member = ticket
    return receipt


def sweep(mine: str) -> Recipe[None]:
    """Remove the receipts that were not written for a day, by the servers' clock: their clients are gone."""
    above = mine.rpartition("/")[0]
    names, mine_is = yield Children(above), Get(mine)
    paths = sorted(f"{above}/{name}" for name in names)
    at = bisect(paths, mine)  # names are random, so each client looks at others
    paths = [path for path in (paths[at:] + paths[:at])[: most_together(above)] if path != mine]
    nodes: Sequence[Node | None] = (yield tuple(map(Get, paths))) if paths and mine_is is not None else ()
    for path, node in zip(paths, nodes, strict=False):
        if node is not None and node.mtime < mine_is.ctime - UNTOUCHED:
            try:
                yield Delete(path, version=node.version)
            except (BadVersion, NotEmpty):
                continue  # it is in use


def lay_out(desk: Desk) -> Recipe[None]:
    """Make the nodes that every client shares.

    Raises:
        ForeignNodeError: the path is something else's.
        ValueError: the queue was made with another order or size.
    """
    at = desk.at
    while True:
        try:
            *_, node, inside = yield (
                *map(EnsureContainer, ancestors(at.path)),
                CreatePersistent(at.path, at.header.data),
                Get(at.path),
                Children(at.path),
            )
            if node is None:
                continue
            header = Header.of(at.path, node)
            if header is None:  # a program on Curator made it, as the parent of its items; or it is a lock's
                check_folders(at, inside)
                with suppress(ConnectionLost):
                    yield Set(at.path, at.header.data, node.version)
                continue
            header.check(at.path, at.header)
            yield (
                CreatePersistent(at.items, b""),
                CreatePersistent(at.claims, b""),
                EnsureContainer(at.members),
                EnsureContainer(at.receipts),
            )
        except NoNode:
            continue  # a parent was just reaped, or the queue destroyed
        desk.laid_out = True
        return


def check_folders(at: Layout, inside: Sequence[str]) -> None:
    """Refuse a path that has a child which is no queue's.

    Raises:
        ForeignNodeError: it has one.
    """
    for name in inside:
        if f"{at.path}/{name}" not in at.folders:
            raise not_ours(at.path, name)
