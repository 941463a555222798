"""The server, for commands that look: a client that creates nothing, and many reads at once."""

from __future__ import annotations

import logging
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .._client.connect import PATIENCE, RETRY, discard, prepare
from .._client.url import parse
from .._errors import ClientError, RefusedError
from .._kazoo.link import Link
from .._kazoo.replies import Reply, kazoo_errors, no_wakeup
from .._kazoo.requests import TooLarge
from .arguments import server_url
from .outcome import CommandError, Exit

_TOGETHER = 500
_OF_ONE_NODE = (kazoo_errors.NoNodeError, kazoo_errors.NoAuthError, kazoo_errors.BadArgumentsError, TooLarge)
_PATIENCE = 30.0  # seconds
_POLL = 0.1  # seconds


@contextmanager
def link_of(found: Namespace) -> Iterator[Link]:
    """Connect a client that creates no node, not even its chroot; close it at the end.

    Returns:
        A context manager, whose block has the client's link.

    Raises:
        CommandError: the server is out of reach, or refuses.
    """
    url = server_url(found)
    settings = parse(url)
    logger = logging.getLogger("kazoo")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    patience = settings.get("start_timeout", PATIENCE)
    # A request of kazoo's has no timeout: without a connection it waits until the client gives up.
    retry = RETRY if getattr(found, "watch", False) else {**RETRY, "deadline": max(_PATIENCE, patience)}
    client, _ = prepare(url, connection_retry=retry)
    client.chroot = settings["chroot"]
    # Not a session's, which would ask the server for a container.
    link = Link(client)
    started = False
    try:
        with told(link):
            live = client.start_async()
            started = True
            until = time.monotonic() + patience
            # The link is stopped if the credentials are refused.
            while not live.is_set() and not link.stopped and (left := until - time.monotonic()) > 0:
                live.wait(min(left, _POLL))
            check_connected(link)
            yield link
    except CommandError:
        # kazoo may say CONNECTED before the server has looked at the credentials.
        check_accepted(link)
        raise
    finally:
        # A client that was interrupted as it started may never stop. The process ends here anyway.
        if started:
            discard(client)


def check_connected(link: Link) -> None:
    """Return if there is a connection.

    Raises:
        CommandError: there is none.
    """
    check_accepted(link)
    if not link.client.connected:
        raise CommandError(Exit.UNREACHABLE, f"ZooKeeper did not answer in time: {link.failures()}")


def check_accepted(link: Link) -> None:
    """Raise the error of refused credentials, if there was one.

    Raises:
        CommandError: the servers do not accept the client's credentials.
    """
    if link.transport.opening.refusal is not None:
        raise CommandError(Exit.REFUSED, "ZooKeeper refuses the credentials") from None


@contextmanager
def told(link: Link) -> Iterator[None]:
    """Make a context manager that turns an error of ZooKeeper into the end of the command.

    Args:
        link: the client's.

    Raises:
        CommandError: its block has raised such an error.
    """
    try:
        yield
    except kazoo_errors.NoAuthError:
        raise CommandError(Exit.REFUSED, "ZooKeeper refuses: this client may not read here") from None
    except RefusedError as error:
        raise CommandError(Exit.REFUSED, str(error)) from None
    except kazoo_errors.NoNodeError:
        with told(link):
            why = _nothing_there(link)
        raise CommandError(Exit.NOTHING_THERE, why) from None
    except (kazoo_errors.KazooException, ClientError) as error:
        raise CommandError(Exit.UNREACHABLE, f"the connection was lost ({type(error).__name__})") from None


def _nothing_there(link: Link) -> str:
    """Return what to say of a path that is not there: paths begin below the chroot of the URL, which may be wrong."""
    chroot = link.client.chroot
    if chroot and isinstance(ask_all(link.children, ["/"])[0], kazoo_errors.NoNodeError):
        return f"there is no {chroot}, the chroot of the URL: it is wrong, or no client has used it yet"
    below = f" below {chroot}, the chroot of the URL" if chroot else ""
    return f"there is no such path{below}; `ls -r` lists what is there"


def relative(path: str, chroot: str) -> str:
    """Return a full path as the commands take it; one that is not below the chroot, as it is."""
    return (path.removeprefix(chroot) or "/") if is_below(path, chroot) else path


def is_below(path: str, chroot: str) -> bool:
    """Return whether a full path is at the chroot or below it."""
    return f"{path}/".startswith(f"{chroot}/")


def ask_all(request: Callable[[str, Reply], None], paths: Sequence[str]) -> list[Any]:
    """Send a request for each path, hundreds at a time; return the results, in order.

    Where a node is gone, may not be read, or has a name that no node can have, the error stands in the place of its
    result.

    Args:
        request: as `children` or `get` of a client's `Link`, which sends on this thread; kazoo's own takes twice as
            long.
        paths: the paths.
    """
    results: list[Any] = []
    for at in range(0, len(paths), _TOGETHER):
        done = threading.Event()
        replies = [Reply(no_wakeup) for _ in paths[at : at + _TOGETHER]]
        # Replies come in the order of their requests.
        replies[-1].wake = done.set
        for path, reply in zip(paths[at : at + _TOGETHER], replies, strict=True):
            request(path, reply)
        if not done.wait(_PATIENCE):
            raise CommandError(Exit.UNREACHABLE, "ZooKeeper does not answer")
        for reply in replies:
            if isinstance(reply.error, _OF_ONE_NODE):
                results.append(reply.error)
            elif reply.error is not None:
                raise reply.error
            else:
                results.append(reply.value)
    return results
