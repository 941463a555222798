"""Background removals: a wait that ends without its event leaves a watch, which the server and kazoo would keep.

A watch that no wait has needed for `LINGER` seconds is removed. So a loop that waits at one path again and again sends
no extra request. The keeper sends the removals of many watches together.

The registry notes the paths, and knows who waits: a wait registers, with the session's lock held, before it sends the
request that sets its watch. So a removal that is sent with the lock held, while no call waits, comes before that
request on the connection, and removes no watch of a later wait. Whether the program has a watcher of its own at the
path is decided as the removal goes out: see `_kazoo/watches.py`.

A lost connection ends all watches, so nothing is left to be removed.
"""

from __future__ import annotations

import math
from itertools import islice

from .._kazoo.reply import HandledReply
from .._kazoo.watches import RemovalWithdrawn, Watcher
from .client_state import ClientState

LINGER = 0.25  # seconds, at least
# A watch that could not be removed, as it is still needed or a server is busy, is looked at again after this time.
AGAIN = 2.0  # seconds
# If more than this number of paths are left, no path lingers.
MOST_LINGERING = 1_000
TOGETHER = 100  # paths


class Watches:
    """The removals of one session. All methods are called with its lock held.

    Args:
        client: the session.
        watcher: the one watcher of all its waits.
    """

    def __init__(self, client: ClientState, watcher: Watcher) -> None:
        self._client = client
        self._watcher = watcher
        # The paths that linger, with values as in `Registry.left`.
        self._idle: dict[str, bool] = {}
        # The paths whose watches are to be removed; values as in `Registry.left`.
        self._due: dict[str, bool] = {}
        # The paths to look at again later; values as in `Registry.left`.
        self._later: dict[str, bool] = {}
        self._looked_at = self._later_at = self._sent_at = -math.inf
        self._unanswered: set[HandledReply] = set()

    def forget_all(self) -> None:
        """Forget all watches: they ended with the old connection."""
        self._idle, self._due, self._later, self._unanswered = {}, {}, {}, set()

    @property
    def pause(self) -> float:
        """In how many seconds to look again; infinite if no watch lingers."""
        return LINGER if self._client.registry.left or self._idle else math.inf

    def remove_idle(self, now: float) -> None:
        """Remove the watches that no wait has needed for a while. For the keeper."""
        link, registry = self._client.link, self._client.registry
        if not link.connected:
            registry.left.clear()
            self.forget_all()
            return
        if self._later and now >= self._later_at:
            for path, tree in self._later.items():
                registry.left[path] = tree or registry.left.get(path, False)
            self._later = {}
        if now >= self._looked_at + LINGER or len(registry.left) > MOST_LINGERING:
            self._looked_at = now
            self._due.update(self._idle)
            self._idle, registry.left = registry.left, {}
        if self._unanswered and now < self._sent_at + self._client.timeout:
            return
        # The replies to these removals were lost inside kazoo.
        self._unanswered.clear()
        self._sent_at = now
        for path in list(islice(self._due, MOST_LINGERING)):
            if len(self._unanswered) >= TOGETHER:
                # The last reply wakes the keeper, which sends the next ones.
                return
            self._send_removals(path, tree=self._due.pop(path))
        # None of these paths had a watch any more, so no reply will wake the keeper for the others.
        if self._due and not self._unanswered:
            self._client.wake_keeper()

    def _send_removals(self, path: str, *, tree: bool) -> None:
        link, registry = self._client.link, self._client.registry
        tree = tree and path not in registry.trees
        for later in (registry.left, self._idle):
            if path in later:
                # A call has used the path since; the watch is removed after it has lingered again.
                later[path] = tree or later[path]
                return
        if registry.is_awaited(path):
            self._postpone(path, tree)
            return
        for kind in link.watches(path, self._watcher):
            link.remove_watch(path, kind, self._expected(path, False), self._watcher)
        kinds = link.kinds_of_trees() if tree else ()
        for kind in kinds:
            link.remove_watch(path, kind, self._expected(path, True))
        if not tree or kinds:
            return
        if self._unanswered:
            # The reply that shows the kinds is among the unanswered ones, and wakes the keeper.
            self._due[path] = True
        else:
            self._postpone(path, True)

    def _expected(self, path: str, tree: bool) -> HandledReply:
        def on_reply(reply: HandledReply) -> None:
            if isinstance(reply.error, RemovalWithdrawn):
                self._postpone(path, tree)
            self._unanswered.discard(reply)
            if self._due and not self._unanswered:
                self._client.wake_keeper()

        reply = HandledReply(on_reply, self._client.post)
        self._unanswered.add(reply)
        return reply

    def _postpone(self, path: str, tree: bool) -> None:
        """Leave a watch for now, and look at its path again later."""
        if not self._later:
            self._later_at = self._client.clock() + AGAIN
        self._later[path] = tree or self._later.get(path, False)
