"""Exactly once: a `multi` that changes a queue or a value is applied once, even if its reply is lost.

Every `multi` ends with a write of our receipt, a persistent node that no other client writes. The write names the
version that we know. If the reply to a `multi` was lost, the receipt settles the outcome. If the receipt's version has
moved, the whole `multi` was applied. If not, the client sends the same `multi` again; only one of the two can be
applied, as both name the same version.

A queue's `multi` also begins with a check of our member, a node of our session. So a `multi` that slips into a later
session fails at its first part. A value's `multi` needs no such check, as it depends on no node of a session.

A map's receipt is its member: an ephemeral node, so that nothing has to be swept, and a `multi` that slips into a later
session fails. Pools, receipts and the making of their nodes are the same for all. A map has its own `write`
(`map/write.py`), whose first part is the write of the receipt. Once the session is over, the receipt is gone and
settles nothing, so there is nothing to burn.

A lock's node is its own proof: it has a unique name, and a lost create is settled by finding it. An item's changes have
no such node. A `put` leaves a node whose name the server has chosen, and which may be gone a moment later; a `get`
leaves nothing.

* To give up, the client writes the receipt itself, with other data. If that succeeds, the `multi` can't be applied any
  more. If it fails, or its reply is lost, the data of the receipt show which of the two came first.
* A receipt is for one call at a time. A client has as many as it has calls in flight, and reuses the one that was used
  last. So its threads need no lock and no turn, and their requests share the connection. The alternative, one receipt
  and several threads' changes in one `multi`, fails as a whole if one of the changes fails.
* A receipt outlives its session, because a `multi` may still be in doubt when the session ends. It is removed when no
  client has written it for a day.
* A receipt outlives its object. A program may make an object for each use, and would leave a receipt each time. So when
  the last object of a path is garbage, its idle receipts' names and versions stay with the client, and the next object
  at the path takes them. A later object takes neither the count of unfinished items of an earlier object, nor the value
  that was last seen. A receipt in doubt is never idle. The client deletes a receipt that no object takes within a
  minute, and the oldest ones if there are more than 1,000. At the interpreter's exit, and at the `stop()` of a client
  that `connect` opened, it deletes all of them. Deleting each at once would be as safe, as a `multi` that names a
  missing node fails. But each use would then cost two more writes: the delete, and the next receipt.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from .._arguments.limits import most_together
from .._errors import ForeignNodeError, RefusedError
from .._protocol import operations as op
from .._protocol.operations import Recipe
from .._protocol.ticket import State, Ticket
from .destroy import Tree, Users
from .destroy import destroy as remove
from .lock import create

# The data of a receipt whose version was used up, so that the `multi` in doubt can't be applied.
BURNT = b"burnt"
FEW = 500
# A receipt that was not written for this many seconds belongs to a client that is gone.
UNTOUCHED = 86_400.0


class OutcomeLost(Exception):
    """It is unknown whether a `multi` was applied: its reply was lost, and so was the node that would settle it."""


class Receipt:
    """A receipt: one `multi` at a time uses it, to be applied exactly once.

    Attributes:
        path: the receipt's node; empty until the node is made.
        version: the node's version, as far as is known; the next `multi` names it.
        member: the ticket of the receipt's member, in the session in which the member was made.
        unfinished: in a queue, how many items were taken with the receipt, less the items that were marked done with
            it.
        before: the value of `unfinished` when the session of the member began; the member counts the items since.
        session: the session of the member.
        seen: for a value, its data and version as last seen since the receipt was made.
    """

    __slots__ = ("before", "member", "path", "seen", "session", "unfinished", "version")

    def __init__(self) -> None:
        self.path = ""
        self.version = 0
        self.member: Ticket | None = None
        self.unfinished = 0
        self.before = 0
        self.session = 0
        self.seen: Any = None

    @property
    def usable(self) -> bool:
        """Whether its member is of the present session and, as far as is known, still exists."""
        return self.member is not None and self.member.state is State.QUEUED and not self.member.changed

    def note_session(self, session: int) -> None:
        """Note the session of the next member. Other clients count the items taken until then as done."""
        if session != self.session:
            self.before = self.unfinished
            # The session is noted last, so that a call that was interrupted in between notes both again (R3).
            self.session = session


class ReceiptPool:
    """The receipts of one client at one primitive. Its containers change in single steps, so no lock guards it.

    Attributes:
        folder: the parent of the receipts.
        members: the parent of the members; empty if there are none.
        ephemeral: a receipt is its member's node, and ends with the session.
        idle: the receipts that no call uses.
        receipts: all receipts.
        spares: the nodes and versions of receipts that this client's earlier objects have left, at any queue or value.
        laid_out: the nodes that all clients share exist, as far as is known.
    """

    ephemeral = False

    def __init__(self, folder: str, members: str = "") -> None:
        self.folder = folder
        self.members = members
        self.idle: deque[Receipt] = deque()
        self.receipts: list[Receipt] = []
        self.spares: deque[tuple[str, int]] = deque()
        self.laid_out = False

    def take_receipt(self) -> Receipt:
        """Return a receipt for one call: the one that was used last, as its member exists."""
        try:
            return self.idle.pop()
        except IndexError:
            receipt = Receipt()
            self.receipts.append(receipt)
            return receipt

    def take_spare(self) -> tuple[str, int]:
        """Take the node and version of the receipt that an earlier object left last; an empty path if there is none."""
        for spare in reversed(list(self.spares)):
            if spare[0].startswith(f"{self.folder}/"):
                # If the spare is missing, another thread has just taken it.
                with suppress(ValueError):
                    self.spares.remove(spare)
                    return spare
        return "", 0

    @property
    @abstractmethod
    def tree(self) -> Tree:
        """The nodes that `destroy` removes."""

    @abstractmethod
    def lay_out(self) -> Recipe[None]:
        """Make the nodes that all clients share."""

    def enter(self, ticket: Ticket, receipt: Receipt, label: bytes) -> Recipe[None]:
        """Make the node of a member; errors as `create`, and `NoNode` if the path is not ours any more."""
        yield from create(ticket, "member-", member_data(label, receipt.unfinished - receipt.before))

    def forget(self) -> None:
        """Forget all that was seen of the primitive: it was destroyed, or may have been, as a receipt is gone."""
        self.laid_out = False


class InDoubt(NamedTuple):
    """A `multi` for which it is unknown whether it was applied.

    Attributes:
        version: the receipt's version before the `multi`; a later version, unless burnt, shows that it was applied.
        unfinished: the receipt's number of unfinished items after the `multi`.
        session: the session of the receipt's member.
    """

    version: int
    unfinished: int
    session: int


class PendingWrite:
    """The changes that one call has under way, so that they can be settled if the call ends early.

    Attributes:
        view: the receipts of this client.
        label: the data of this client's nodes: a JSON object.
        receipt: the receipt in use.
        sent: the `multi` for which it is unknown whether it was applied; cleared last, once the outcome is noted.
        applied: the last `multi` was applied.
        session: the session in which it was applied.
        over: nothing is left to be done.
        unknown: it will stay unknown whether the last `multi` was applied.
        refused: ZooKeeper has refused to settle it, and this was logged.
        decides_anew: the call decides by what was read since its receipt was made. So with another receipt it must
            decide anew.
    """

    decides_anew = False

    def __init__(self, view: ReceiptPool, label: bytes) -> None:
        self.view = view
        self.label = label
        self.receipt: Receipt | None = None
        self.sent: InDoubt | None = None
        self.applied = False
        self.session = 0
        self.over = False
        self.unknown = False
        self.refused = False

    def note_applied(self, receipt: Receipt, sent: InDoubt) -> None:
        """Note that a `multi` was applied. An interrupted call does this again (R3)."""
        # `applied` is set first, and `sent` cleared last (R2): without both, an interrupted `task_done` would count its
        # item twice.
        self.applied = True
        self.session = sent.session
        receipt.unfinished = sent.unfinished
        if sent.session != receipt.session:
            receipt.before = sent.unfinished
        receipt.version = op.next_version(sent.version)
        self.sent = None

    def finish(self) -> None:
        """Give the receipt back. A second call changes nothing."""
        self.over = True
        self.put_down()

    def put_down(self) -> None:
        """Give the receipt back, and continue without one.

        An interrupt in between leaves the receipt unused for good: two calls with one receipt would be worse.
        """
        receipt, self.receipt = self.receipt, None
        if receipt is not None:
            self.view.idle.append(receipt)


def write(
    pending_write: PendingWrite, parts: tuple[op.Part, ...], *, count: int = 0, session: int = 0
) -> Recipe[Sequence[Any] | None]:
    """Apply operations together, exactly once; return their results, or None if these were lost with the reply.

    Args:
        pending_write: the changes of the call. If a `multi` of the call is in doubt, it has the same operations.
        parts: the operations.
        count: what to add to the number of unfinished items.
        session: the session in which the operations must be applied; 0 for any.

    Raises:
        Failure: nothing was applied, as the operation with the number in `part` failed.
        SessionExpired: nothing was applied, and that session is over.
        ForeignNodeError: nothing was applied, as a node to be deleted has children.
        OutcomeLost: it is unknown whether the operations were applied.
    """
    # The error is kept in a list, as a variable and the error's traceback would keep each other alive.
    why: list[Exception] = []
    doubt = pending_write.sent is not None
    while True:
        receipt = yield from ready(pending_write)
        member = receipt.member
        assert member is not None
        if session not in (0, member.session):
            why = [op.SessionExpired()]
        if doubt:
            landed = yield from find_whether_applied(pending_write, receipt)
            if landed:
                return None
            doubt = landed is None
        if why:
            if doubt and not (yield from burn(receipt)):
                continue
            pending_write.sent = None
            raise why.pop()
        mine: tuple[op.Part, ...] = (op.Check(member.node),) if pending_write.view.members else ()
        if count:
            data = member_data(pending_write.label, receipt.unfinished - receipt.before + count)
            mine = (op.SetNode(member.node, data, -1),)
        step = op.Multi(
            member, (*mine, *parts, op.SetNode(receipt.path, b"", receipt.version)), awaits_reply_past_deadline=True
        )
        pending_write.sent = sent = InDoubt(receipt.version, receipt.unfinished + count, member.session)
        try:
            results = yield step
        except op.DeadlinePassed as passed:
            if passed.unsent and not doubt:
                pending_write.sent = None
            raise
        except (op.ConnectionLost, op.Requeue):
            doubt = True
        except op.Failure as failed:
            if not doubt:
                pending_write.sent = None
            part = failed.part - len(mine)
            if part < 0:
                # Our member is gone: its session is over, or an operator has deleted it.
                yield op.Discard(member)
                receipt.member = None
            elif part < len(parts) and isinstance(failed, op.NotEmpty):
                why = [ForeignNodeError(parts[part].path, "an item's node has children; delete them")]
            elif part < len(parts):
                failed.part = part
                why = [failed.with_traceback(None)]
            elif not doubt:
                # Our receipt is gone.
                receipt.path = ""
                pending_write.view.forget()
                if pending_write.decides_anew:
                    failed.part = part
                    why = [failed.with_traceback(None)]
        except RefusedError:
            # Only a refusal by the server shows that this attempt was not applied; an earlier one may be in doubt. A
            # signal handler may raise any other exception while the request is under way.
            if not doubt:
                pending_write.sent = None
            raise
        else:
            pending_write.note_applied(receipt, sent)
            return results[len(mine) : -1]  # type: ignore[no-any-return]


def find_whether_applied(pending_write: PendingWrite, receipt: Receipt) -> Recipe[bool | None]:
    """Return whether the `multi` in doubt was applied: False if it no longer can be, None if it still may be.

    Raises:
        OutcomeLost: the receipt is gone; or it is older, as the servers were restored from a backup.
    """
    _, node = yield op.Sync(receipt.path), op.Get(receipt.path)
    sent = pending_write.sent
    assert sent is not None
    if node is None or node.version not in (sent.version, op.next_version(sent.version)):
        receipt.path = ""
        pending_write.view.forget()
        pending_write.unknown, pending_write.sent = True, None
        raise OutcomeLost
    if node.version == sent.version:
        return None
    if node.data != BURNT:
        pending_write.note_applied(receipt, sent)
        return True
    receipt.version = node.version
    pending_write.sent = None
    return False


def burn(receipt: Receipt) -> Recipe[bool]:
    """Use up the receipt's version, so that the `multi` in doubt can't be applied any more; False if it may have been.

    If the reply to this write is lost, the data show whether this write or the `multi` was applied.
    """
    with suppress(op.ConnectionLost):
        if (yield op.SetNode(receipt.path, BURNT, receipt.version)):
            receipt.version = op.next_version(receipt.version)
            return True
    return False


def settle(pending_write: PendingWrite) -> Recipe[bool]:
    """Return whether the `multi` in doubt was applied; if not, it never will be. Errors as `find_whether_applied`."""
    receipt = pending_write.receipt
    while pending_write.sent is not None and receipt is not None:
        if (yield from find_whether_applied(pending_write, receipt)) is None and (yield from burn(receipt)):
            pending_write.sent = None
    return pending_write.applied


def ready(pending_write: PendingWrite) -> Recipe[Receipt]:
    """Return a receipt whose member, as far as is known, is of the present session."""
    view = pending_write.view
    if not view.laid_out:
        yield from view.lay_out()
    if pending_write.receipt is None:
        pending_write.receipt = view.take_receipt()
    receipt = pending_write.receipt
    if not (receipt.path or view.ephemeral):
        yield from _make(view, receipt)
    while not receipt.usable:
        if receipt.member is not None:
            yield op.Discard(receipt.member)
            receipt.member = None
        ticket: Ticket = yield op.NewTicket(view.members or view.folder)
        receipt.note_session(ticket.session)
        try:
            if view.members:
                yield from view.enter(ticket, receipt, pending_write.label)
        except (op.NoNode, op.Requeue) as failed:
            yield op.Discard(ticket)
            if isinstance(failed, op.NoNode):
                yield from view.lay_out()
            continue
        if view.ephemeral:
            receipt.path, receipt.version = ticket.node, 0
        # R1: the member is recorded before its ticket is detached. Until then, the ticket is the call's, which discards
        # it.
        receipt.member = ticket
        yield op.DetachTicket(ticket)
    return receipt


def _make(view: ReceiptPool, receipt: Receipt) -> Recipe[None]:
    """Give a receipt its persistent node: one that an earlier object has left, or a new one."""
    # The path is set last, so that an interrupt in between never leaves it with another node's version.
    path, receipt.version = view.take_spare()
    receipt.seen, receipt.path = None, path
    while not receipt.path:
        ticket: Ticket = yield op.NewTicket(view.folder)
        # Only the ticket's unique name is needed: a receipt belongs to no session.
        yield op.Discard(ticket)
        path = f"{view.folder}/{ticket.prefix[len('_c_') : -1]}"
        try:
            _, folder, node = yield op.CreatePersistent(path, b""), op.Get(view.folder), op.Get(path)
        except op.NoNode:
            yield from view.lay_out()
            continue
        receipt.version, receipt.seen, receipt.path = 0, None, path
        if len(view.receipts) == 1 and folder is not None and node is not None:
            yield from sweep(path, folder, node)


def sweep(mine: str, folder: op.Node, node: op.Node) -> Recipe[None]:
    """Remove the receipts that were not written for a day, by the servers' clock: their clients are gone.

    A call checks a part of them, which begins at its own receipt's name. Names are random, so each client checks a
    different part. Listing very many receipts is slow. So the more there are, the fewer new clients list them: on
    average, a new client lists, reads and deletes about `FEW` at most, however many there are.

    Args:
        mine: the path of a receipt that was just made.
        folder: the parent's node.
        node: the receipt's node.
    """
    if node.czxid % max(1, folder.children // FEW):
        return
    above = mine.rpartition("/")[0]
    names = yield op.Children(above)
    paths = sorted(f"{above}/{name}" for name in names)
    at = bisect(paths, mine)
    paths = [path for path in (paths[at:] + paths[:at])[: most_together(above)] if path != mine]
    nodes: Sequence[op.Node | None] = (yield tuple(map(op.Get, paths))) if paths else ()
    old = [
        op.Delete(path, version=each.version)
        for path, each in zip(paths, nodes, strict=True)
        if each is not None and each.mtime < node.ctime - UNTOUCHED
    ]
    # A failure means that one of these receipts is in use; the others are deleted.
    with suppress(op.BadVersion, op.NotEmpty):
        if old:
            yield tuple(old)


def destroy(view: ReceiptPool) -> Recipe[Users]:
    """Remove the primitive's nodes, unless other clients use it; return these clients' nodes. Errors as `remove`."""
    using = yield from remove(view.tree)
    if not using:
        yield from _forget_idle(view)
        # The view is cleared last, as another thread may have listed items meanwhile.
        view.forget()
    return using


def _forget_idle(view: ReceiptPool) -> Recipe[None]:
    """Forget the receipts that no call uses. A call of another thread finds out by itself that its receipt is gone."""
    while view.take_spare()[0]:
        pass
    members: list[Ticket | None] = []
    with suppress(IndexError):
        for _ in range(len(view.idle)):
            # While the path changes, the receipt is out of `idle`, so no call takes it.
            receipt = view.idle.popleft()
            receipt.path = ""
            members.append(receipt.member)
            view.idle.append(receipt)
    for member in members:
        if member is not None:
            yield op.Discard(member)


def member_data(label: bytes, count: int) -> bytes:
    """Return the data of a client's node: a JSON object that describes the client and has the count."""
    return b'%b, "unfinished": %d}' % (label[:-1], count)
