"""The reply to one request: a thread waits for it, or a function handles it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from .._protocol import operations as op

log = logging.getLogger("zkconcurrent")


class Reply:
    """The reply to one request, for a waiting thread: the part of `AsyncResult` that kazoo uses.

    Attributes:
        wake: called once the reply is done; None if no call waits for it, or a call waits for a later reply.
        on_reply: a function that records what the reply proves, and may change its value or error; called before any
            thread learns of the reply.
        sent: when the request was made, to be sent at once.
        session: the only session in which the request may be sent; None if any session will do.
    """

    __slots__ = ("done", "error", "on_reply", "sent", "session", "value", "wake")

    def __init__(
        self, wake: Callable[[], None] | None = None, on_reply: Callable[[Reply], object] | None = None
    ) -> None:
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None
        self.wake = wake
        self.on_reply = on_reply
        self.sent = 0.0
        self.session: int | None = None

    def set(self, value: object = None) -> None:
        """Take the reply; on kazoo's connection thread."""
        self.value = value
        try:
            if self.on_reply is not None:
                self.on_reply(self)
        except Exception as error:
            # This thread would drop the connection, and the reply would never be done.
            log.exception("a reply was not handled")
            self.error = error
        self._complete()

    def set_exception(self, error: Exception) -> None:
        """Take the failure; on kazoo's connection thread, or on the caller's if the request is not sent."""
        self.error = error
        if self.on_reply is not None:
            self.on_reply(self)
        self._complete()

    def _complete(self) -> None:
        self.done = True
        if self.wake is not None:
            self.wake()


class HandledReply(Reply):
    """The reply to one request, with a function to call with the session's lock held.

    It is done once the function has returned. It must not be done earlier, as something else may wake the waiting
    thread, which then looks at it.

    Args:
        then: the function.
        post: has the function called with the session's lock held.
        wake: as for any reply.
    """

    __slots__ = ("_post", "_then")

    def __init__(
        self,
        then: Callable[[HandledReply], object],
        post: Callable[[Callable[[], None]], None],
        wake: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(wake)
        self._then = then
        self._post = post

    def _complete(self) -> None:
        self._post(self._handle)

    def _handle(self) -> None:
        """Call the function. After a first failure, `post` has this called again; after another, the reply is lost."""
        try:
            self._then(self)
            self.done = True
        finally:
            if self.wake is not None:
                self.wake()


Request: TypeAlias = "tuple[Any, Reply]"
"""A request of kazoo's, and the reply that it is to get."""


def node_of(read: tuple[bytes | None, Any]) -> op.Node:
    """Return a node from its data and kazoo's stat."""
    data, stat = read
    # `cversion` counts the creates and the deletes of children.
    created = (stat.cversion + stat.numChildren) // 2
    times = stat.ctime / 1000.0, stat.mtime / 1000.0
    return op.Node(
        data or b"",
        stat.czxid,
        times[0],
        stat.ephemeralOwner,
        stat.version,
        created,
        times[1],
        stat.mzxid,
        stat.numChildren,
    )
