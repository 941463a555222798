"""Many reads at once, by a client that need not have a session of this library: nothing is written, no watch is set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._arguments.limits import check_seconds
from .._errors import ClientError
from .._kazoo.failures import failure, kazoo_errors
from .._kazoo.link import KazooClient, Link
from .._kazoo.reply import Reply, Request
from .._kazoo.requests import TooLarge
from .._protocol.operations import Busy, ConnectionLost, SessionExpired
from .._runtime.blocked_loop import check_may_block
from .._runtime.clock import monotonic
from .._runtime.serving import in_listener

_TOGETHER = 500
# The errors that concern a single node: it is gone, is not readable, or has a name that no node can have.
_OF_ONE_NODE = (kazoo_errors.NoNodeError, kazoo_errors.NoAuthError, kazoo_errors.BadArgumentsError, TooLarge)
_PAUSE = 0.1  # seconds


class Reads:
    """The reads of one client.

    Args:
        client: the client.
        path: the path that errors name.
        timeout: how long ZooKeeper may leave a request without a reply, in seconds.

    Raises:
        TypeError: the client is not a kazoo client, or the timeout is not a number.
        ClientError: the caller is on a thread of kazoo's, or is a listener.

    Attributes:
        link: a link of its own to the client.
    """

    def __init__(self, client: KazooClient, path: str, timeout: float) -> None:
        if not isinstance(client, KazooClient):
            raise TypeError(f"client must be a kazoo.client.KazooClient, not {type(client).__name__}")
        check_seconds("timeout", timeout)
        check_may_block(lambda: ())
        # Not the link of a session, which would create the chroot again if the servers have lost it.
        self.link = Link(client)
        self._path = path
        self._timeout = timeout
        if self.link.on_own_thread() or in_listener():
            why = "called from a listener, or one of kazoo's threads, which must not wait: hand the work to another one"
            raise ClientError(path, why)
        self.link.open_at_use()

    def ask(self, request: Callable[[str, Reply], Request], paths: Sequence[str]) -> list[Any]:
        """Send a request for each path, hundreds at a time; return the results, in order.

        If a node is gone, is not readable, or has a name that no node can have, kazoo's error stands in place of
        its result.

        Args:
            request: makes one request, as `Link.children` and `Link.get` do.
            paths: the paths.

        Raises:
            TimeoutError: ZooKeeper does not reply in time.
            ClientError: the client is not started, is stopped, or belongs to the parent of a forked process.
            RefusedError: ZooKeeper refuses the requests.
        """
        results: list[Any] = []
        until = monotonic() + self._timeout
        while len(results) < len(paths):
            replies = self._send(request, paths[len(results) : len(results) + _TOGETHER], until)
            failures = [failure(reply.error, self._path) for reply in replies if reply.error is not None]
            if any(isinstance(each, ConnectionLost | SessionExpired | Busy) for each in failures):
                # The client connects again by itself, and reads can be repeated.
                self._pause(until)
                continue
            for reply in replies:
                if reply.error is not None and not isinstance(reply.error, _OF_ONE_NODE):
                    raise failure(reply.error, self._path)
                results.append(reply.value if reply.error is None else reply.error)
            until = monotonic() + self._timeout
        return results

    def _send(self, request: Callable[[str, Reply], Request], paths: Sequence[str], until: float) -> list[Reply]:
        if self.link.stopped:
            raise ClientError(self._path, self.link.why_stopped())
        done = self.link.handler.event_object()
        replies = [Reply() for _ in paths]
        # Replies come in the order of their requests, so the last one ends the wait.
        replies[-1].wake = done.set
        self.link.send(*map(request, paths, replies))
        if not done.wait(max(0.0, until - monotonic())):
            raise self._late()
        return replies

    def _pause(self, until: float) -> None:
        if monotonic() + _PAUSE >= until:
            raise self._late()
        self.link.handler.sleep_func(_PAUSE)

    def _late(self) -> TimeoutError:
        return TimeoutError(f"ZooKeeper did not reply within {self._timeout:g} s [{self._path}]")
