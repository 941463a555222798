"""Spare receipts: the nodes that a client's earlier objects have left for its later objects, until they are deleted.

A program that makes an object for each use needs one receipt for each path, not one for each use: see `settling.py`. A
receipt that no later object takes within a minute is deleted, and so is the oldest of more than a thousand. So a
program that uses each path once leaves no receipts behind, however many paths it uses.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress

from .._kazoo.failures import failure
from .._kazoo.reply import HandledReply
from .._protocol.operations import ConnectionLost
from .client_state import ClientState

SPARES = 1_000
SPARE_FOR = 60.0  # seconds
# The most deletes under way at a time. A heartbeat's reply comes behind the replies to these deletes, and the lease
# can't wait for long.
TOGETHER = 100

Spare = tuple[str, int]
"""The path of a receipt's node, and the version of the node, which the next `multi` there must name."""


class Spares:
    """The spare receipts of one client. All methods are called with the session's lock held.

    Attributes:
        left: the receipts that no object uses, in the order in which objects left them. Finalizers add to it, and
            objects take from it, at any time and without the lock, by single steps (R4).
        leaving: when this client sent the delete of each receipt that is to go; minus infinity before it is sent.
    """

    def __init__(self, client: ClientState) -> None:
        self._client = client
        self.left: deque[Spare] = deque()
        self.leaving: dict[Spare, float] = {}
        self._seen: set[Spare] = set()
        self._seen_at = -math.inf

    def delete_unused(self, now: float) -> None:
        """Delete the receipts that were left a while ago, and the oldest of too many. For the keeper."""
        there = list(self.left)
        too_many = there[: max(0, len(there) - SPARES)]
        old: list[Spare] = []
        if now >= self._seen_at + SPARE_FOR:
            old = [each for each in there if each in self._seen]
            if len(old) <= TOGETHER:
                self._seen, self._seen_at = set(there), now
        for spare in (*too_many, *old)[: max(0, TOGETHER - len(self.leaving))]:
            self._give_up(spare)
        self._send(now)

    def delete_all(self, now: float) -> None:
        """Delete all spare receipts: the client is about to end."""
        for spare in list(self.left):
            self._give_up(spare)
        self._send(now)

    def _give_up(self, spare: Spare) -> None:
        # R4: an object may have taken the receipt meanwhile, which `remove` reports.
        with suppress(ValueError):
            self.left.remove(spare)
            self.leaving[spare] = -math.inf

    def _send(self, now: float) -> None:
        """Send the deletes, and repeat each whose reply is overdue or was lost."""
        for spare, sent in list(self.leaving.items()):
            if now - sent >= self._client.longest_reply and self._client.link.connected:
                self.leaving[spare] = now
                self._delete(spare)

    def _delete(self, spare: Spare) -> None:
        path, version = spare

        def on_reply(reply: HandledReply) -> None:
            # A refused delete is not repeated: the receipt then counts as one that was left by a client that is gone.
            if reply.error is not None and isinstance(failure(reply.error, path), ConnectionLost):
                if spare in self.leaving:
                    self.leaving[spare] = -math.inf
                return
            self.leaving.pop(spare, None)
            if not self.leaving and len(self.left) > SPARES:
                self._client.wake_keeper()

        link = self._client.link
        link.send(link.delete(path, HandledReply(on_reply, self._client.post), version))
