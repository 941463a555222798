"""The reply to one request: a thread waits for it, or a function handles it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .._protocol import operations as op

log = logging.getLogger("zkconcurrent")


def no_wakeup() -> None:
    """Wake no thread."""


class Reply:
    """The reply to one request, for a waiting thread: the part of `AsyncResult` that kazoo uses.

    Attributes:
        on_success: a function that records what a success proves, before any thread learns of the success.
        sent: when the request was handed over to be sent.
        session: the only session in which the request may be sent; None if any session will do.
        wake: called once the reply is done. None if another request of the same step follows at once: this request goes
            out with that one, and gets its reply first.
    """

    __slots__ = ("done", "error", "on_success", "sent", "session", "value", "wake")

    def __init__(self, wake: Callable[[], None] | None) -> None:
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None
        self.on_success: Callable[[Reply], None] | None = None
        self.sent = 0.0
        self.session: int | None = None
        self.wake = wake

    def set(self, value: object = None) -> None:
        """Take the reply; on kazoo's connection thread."""
        self.value = value
        if self.on_success is not None:
            self.on_success(self)
        self._complete()

    def set_exception(self, error: Exception) -> None:
        """Take the failure; on kazoo's connection thread, or on the caller's if the request is not sent."""
        self.error = error
        self._complete()

    def _complete(self) -> None:
        self.done = True
        if self.wake is not None:
            self.wake()


class HandledReply(Reply):
    """The reply to one request, with a function to call. It is done once the function has returned, or failed for good.

    The reply must not be done earlier, as something else may wake the waiting thread, which then looks at it.

    Args:
        then: the function; it never raises into kazoo's thread.
        wake: as for any reply.
        post: has the function called with the session's lock held. If it is not given, the function is called at once.
    """

    __slots__ = ("_last_try", "_post", "_then")

    def __init__(
        self,
        then: Callable[[HandledReply], object],
        wake: Callable[[], None] | None = no_wakeup,
        post: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        super().__init__(wake)
        self._then = then
        self._post = post
        # Whether a failure is final: without `post`, nothing calls the function again.
        self._last_try = post is None

    def _complete(self) -> None:
        if self._post is not None:
            self._post(self._handle)
            return
        try:
            self._handle()
        except Exception:
            log.exception("a reply was not handled")

    def _handle(self) -> None:
        """Call the function. After a first failure, `post` has this called again."""
        try:
            self._then(self)
            self.done = True
        except BaseException:
            self.done, self._last_try = self._last_try, True
            raise
        finally:
            if self.wake is not None:
                self.wake()


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
