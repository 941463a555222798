"""The way to a grant: a waiter with one contender in its way may hold once that contender is gone, without a listing.

A waiter lists its queue again when the node that it watched is gone. It need not do so if its last listing had exactly
one contender in its way, P. As long as the waiter's own node exists, so does the queue, and the numbers that the server
gives only grow. So a node can get in front of the waiter only if its client chooses the number: in the downgrade of a
writer ahead, or if a `DetachedLock` puts a persistent node in the place of its own. The names show both cases
(`Way.of`). In all other cases, once P is gone, the waiter is first, if its own node still exists at that moment.

It remains to find out whether the waiter's own node still exists then. A server applies changes in one order, and a
connection brings its replies and its events in that order. So, on the connection of the listing, the waiter reads its
own node, with a watch, and behind it P, with a watch. If the event of P's deletion comes, and no event of the waiter's
node came earlier, that node existed when P was deleted, and no contender was in front. A later deletion of that node
deletes a holder's node, which may happen at any time. If P is gone when it is read, the
waiter's node existed at P's deletion, too, as it was read before P.

In any other case the waiter lists again: after a change of P, an event of its own node, or a lost or refused reply, and
on another connection.

The way must get the replies and events in the order in which they were read. So kazoo's connection thread passes them
on at once: posted work may wait, and other events may overtake it. No lock is needed, as only that thread writes here.
The exception is the note that a reply never came, which only closes the way.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from .blocking_rules import LATE_SEQUENCE, MUTEX, WRITE, Rule
from .node_names import is_detached


class Stage(enum.Enum):
    """What a waiter knows of its way."""

    BEGUN = "begun"
    EXISTS = "the own node exists, and is watched"
    BLOCKED = "so does the node ahead"
    CLEAR = "no contender is in the way"
    UNKNOWN = "only a listing can tell"


class Way:
    """The way of one waiter to its grant.

    Attributes:
        stage: what is known of the way. Once `UNKNOWN`, it stays `UNKNOWN`.
    """

    __slots__ = ("_connection", "_session", "stage")

    def __init__(self, session: int, connection: object) -> None:
        self._session: int = session
        self._connection: object = connection
        self.stage: Stage = Stage.BEGUN

    @classmethod
    def of(cls, me: str, names: Sequence[str], rule: Rule, session: int, connection: object) -> Way | None:
        """Return the way of a waiter; None if only another listing can show when it is the waiter's turn.

        Args:
            me: the waiter's node.
            names: the listing that shows that node.
            rule: how the queue decides.
            session: the session of the node.
            connection: the connection on which the listing was answered.
        """
        key, alone = rule.key, rule.alone in me
        mine = key(me)
        if int(mine) >= LATE_SEQUENCE:
            return None
        ahead: str | None = None
        for name in names:
            its = key(name)
            if its > mine or name == me or not (alone or rule.alone in name):
                continue
            if its == mine or ahead is not None:
                return None
            ahead = name
        if ahead is None or (rule == WRITE and rule.alone in ahead) or (rule == MUTEX and is_detached(ahead)):
            return None
        return cls(session, connection)

    @property
    def is_clear(self) -> bool:
        """Whether the waiter's node was first in its queue, and no event of it has come since."""
        return self.stage is Stage.CLEAR

    def read_own(self, connection: object, session: int | None) -> None:
        """Note the reply about the waiter's node: its session, or None if the node is missing or this is unknown."""
        exists = self.stage is Stage.BEGUN and connection is self._connection and session == self._session
        self.stage = Stage.EXISTS if exists else Stage.UNKNOWN

    def read_ahead(self, connection: object, *, gone: bool | None) -> None:
        """Note the reply about the node ahead; `gone` is None if that is unknown."""
        if self.stage is not Stage.EXISTS or connection is not self._connection or gone is None:
            self.stage = Stage.UNKNOWN
        else:
            self.stage = Stage.CLEAR if gone else Stage.BLOCKED

    def change_own(self) -> None:
        """Note an event of the waiter's own node."""
        self.stage = Stage.UNKNOWN

    def change_ahead(self, connection: object, *, deleted: bool) -> None:
        """Note an event of the node ahead."""
        if self.stage is not Stage.CLEAR:
            first = self.stage is Stage.BLOCKED and deleted and connection is self._connection
            self.stage = Stage.CLEAR if first else Stage.UNKNOWN
