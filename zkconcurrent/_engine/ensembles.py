"""The ensembles of a namespace as one process uses them; see `_protocol/ensembles.py`.

A `Spread` tells where a path is. On each of its ensembles the process has an `Admission`, by which every new ticket
below the base path finds, or makes, the node of the process's membership in the ticket's own session. So a process that
comes back with an old list, after its session was over, gets an error and not a lock.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from .._arguments.paths import ancestors
from .._errors import ForeignNodeError
from .._protocol import operations as op
from .._protocol.ensembles import (
    MEMBER,
    RECORD,
    List,
    ListMember,
    Plan,
    Record,
    first_part,
    floor,
    gone,
    place,
    refused,
)
from .._protocol.ticket import Ticket
from .._runtime.identity import HOST
from .._runtime.waiting import Steps
from .session import Session

T = TypeVar("T")
# Of so many paths a process remembers that it need not look there again.
_MOST_CLEARED = 1000


class Spread:
    """The ensembles of a namespace.

    Attributes:
        base: the base path.
        at: the path of the record.
        plan: the list of this process.
        sessions: the session of each ensemble, by its name.
        lists: the lists up to that of the plan's `uses`.
        marks: the creation zxids of the marks of moves, by their number and the name of the ensemble.
    """

    def __init__(self, base: str, plan: Plan, sessions: Mapping[str, Session], lists: Sequence[List]) -> None:
        self.base = base
        self.at = record_path(base)
        self.plan = plan
        self.sessions = sessions
        self.lists = lists
        self.marks: dict[tuple[int, str], int] = {}

    def places(self, path: str) -> tuple[str, ...]:
        """Return the name of the ensemble that has a path; of a path that moves, those of both: the old one first."""
        part = first_part(self.base, path)
        return tuple(dict.fromkeys((place(self.plan.uses, part), place(self.plan.ends, part))))

    def floor(self, path: str) -> int:
        """Return what a token has in addition to the zxid, as long as the path is where `uses` has it."""
        return floor(self.lists, first_part(self.base, path), lambda *of: self.marks[of])


class Admission:
    """The membership of this process on one ensemble of a namespace.

    Attributes:
        spread: the namespace's ensembles.
        name: the ensemble's.
        version: the version of the record by which this process may use the ensemble.
        session: the session in which the process is a member; 0 before the first.
        cleared: paths below the base at which no other namespace begins, nor can begin now.
    """

    def __init__(self, spread: Spread, name: str, version: int) -> None:
        self.spread = spread
        self.name = name
        self.version = version
        self.session = 0
        self.cleared: set[str] = set()
        self._unique = uuid.uuid4().hex

    def covers(self, path: str) -> bool:
        """Return whether a path lies below the base; the record itself does not."""
        return path.startswith(f"{self.spread.base.rstrip('/')}/") and first_part(self.spread.base, path) != RECORD

    def read(self, node: op.Node | None, joined: bool = False) -> None:
        """Read the record, which another process has written.

        Args:
            node: the record's node.
            joined: whether this process is a member. Then a list that is about to follow does not concern it: the
                process that closes this one finds the member, and opens it again.

        Raises:
            ClientError: this process may not use the ensemble any more.
        """
        record = None if node is None else Record.load(node.data)
        if node is None or record is None:
            raise gone(self.spread.at)
        may_use = self.spread.plan.may_use
        if not (may_use(record) or (joined and may_use(record._replace(next=None)))):
            raise refused(self.spread.at, self.spread.plan, record)
        self.version = node.version

    def uncleared(self, path: str) -> list[str]:
        """Return the paths between the base and a path at which another namespace may begin."""
        if len(self.cleared) > _MOST_CLEARED:
            self.cleared.clear()
        return [each for each in ancestors(path) if self.covers(each) and each not in self.cleared]

    def node(self, session: int) -> str:
        """Return the node of the membership in a session."""
        return f"{self.spread.at}/{MEMBER}{self._unique}-{session:x}"

    def data(self) -> bytes:
        """Return the data of that node."""
        by = f"{HOST} pid {os.getpid()}"
        return ListMember(*self.spread.plan, by).dump()


def record_path(base: str) -> str:
    """Return the path of the record for a base path."""
    return f"{base.rstrip('/')}/{RECORD}"


def admission(session: Session, path: str) -> Admission | None:
    """Return the admission for a path; that of a process which does not move, if there are two."""
    found = [each for each in session.admissions if each.covers(path)]
    return min(found, key=lambda each: each.spread.plan.moves, default=None)


def arrival(session: Session, path: str) -> Admission | None:
    """Return the admission by which a path moves to a session's ensemble, if it does."""
    for each in session.admissions:
        if each.covers(path) and each.spread.places(path)[1:] == (each.name,):
            return each  # type: ignore[no-any-return]
    return None


def has_name(session: Session, at: str, name: str) -> bool:
    """Return whether a session's ensemble has that name, in the lists of a record's path."""
    return any((each.spread.at, each.name) == (at, name) for each in session.admissions)


def token_of(session: Session, ticket: Ticket) -> int:
    """Return the fencing token of a hold.

    Raises:
        RuntimeError: the path is moving, and the hold is on one of its two ensembles alone.
    """
    return raised(session, ticket.path, ticket.token) if ticket.fence is None else ticket.fence


def raised(session: Session, path: str, zxid: int) -> int:
    """Return the fencing token of a creation zxid at a path: it is above those of the ensembles that had the path.

    Raises:
        RuntimeError: the path is moving.
    """
    if not session.admissions or (by := admission(session, path)) is None:
        return zxid
    if len(by.spread.places(path)) > 1:
        raise RuntimeError(f"{path} is moving to another ensemble: ask the lock that the namespace has returned")
    return zxid + by.spread.floor(path)


def attend(path: str) -> op.Recipe[None]:
    """Become a member in the present session, as each new ticket below the base path sees to."""
    ticket: Ticket = yield op.NewTicket(path)
    yield op.Discard(ticket)


def attended(path: str, recipe: op.Recipe[T]) -> op.Recipe[T]:
    """Become a member, and then go on with a recipe: one that needs no ticket is refused, too, if the list is old."""
    yield from attend(path)
    return (yield from recipe)


def admit(session: Session, ticket: Ticket, perform: Callable[[Sequence[op.Operation]], Steps[Any]]) -> Steps[None]:
    """Become a member of each list of ensembles to which a ticket's path belongs, in the ticket's session.

    Args:
        session: the client's session.
        ticket: the ticket, which has no node yet.
        perform: performs operations of the call that has the ticket.

    Raises:
        SessionExpired: the session is over; the ticket is discarded.
        ClientError: the others have agreed on another list.
        ForeignNodeError: another namespace of several ensembles begins between the base and the path: it would have the
            path in another place. From now on none can begin there, as it finds this one above.
    """
    for each in list(session.admissions):
        at = each.spread.at
        while each.covers(ticket.path) and each.session != ticket.session:
            join = op.Create(each.node(ticket.session), each.data(), ephemeral=True)
            try:
                # If it is there, another thread has made it, or an earlier request whose reply was lost.
                with suppress(op.NodeExists):
                    yield from perform((op.Multi(ticket, (op.Check(at, each.version), join)),))
                # A record that was deleted and made anew may have come to the same version.
                (node,) = yield from perform((op.Get(at, ticket),))
                each.read(node, joined=True)
                each.session = ticket.session
            except (op.BadVersion, op.NoNode):
                _, node = yield from perform((op.Sync(at), op.Get(at)))
                each.read(node)
            except op.SessionExpired:
                session.discard(ticket)
                raise
            except op.ConnectionLost:
                pass
        if each.covers(ticket.path) and (between := each.uncleared(ticket.path)):
            records = [record_path(path) for path in between]
            found = yield from perform(tuple(map(op.Exists, records)))
            for path, record, there in zip(between, records, found, strict=True):
                if there:
                    raise ForeignNodeError(
                        record,
                        f"another namespace has {path!r} on other ensembles than the one of {each.spread.base!r} has: "
                        "make the namespace of the former for the names below it",
                    )
            each.cleared.update(between)
