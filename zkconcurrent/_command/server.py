"""A connection for commands that read: its client creates nothing, and its errors end the command."""

from __future__ import annotations

import logging
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient

from .. import ClientError, RefusedError
from .._client.connect import PATIENCE, RETRY, discard, failures, is_refused, prepare
from .._client.url import parse
from ..tree import TreeReport
from .arguments import server_url
from .outcome import CommandError, Exit

_PATIENCE = 30.0  # seconds
_POLL = 0.1  # seconds


@contextmanager
def connected(found: Namespace) -> Iterator[KazooClient]:
    """Connect a client that creates no node, not even its chroot; close it at the end.

    Returns:
        A context manager that gives its block the client. `found.settings` then has the parts of the URL.

    Raises:
        CommandError: the server is out of reach, or refuses.
    """
    url = server_url(found)
    settings = found.settings = parse(url)
    logger = logging.getLogger("kazoo")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    patience = settings.get("start_timeout", PATIENCE)
    # kazoo's requests have no timeout: without a connection, they wait until the client gives up.
    retry = RETRY if getattr(found, "watch", False) else {**RETRY, "deadline": max(_PATIENCE, patience)}
    client, _ = prepare(url, connection_retry=retry)
    client.chroot = settings["chroot"]
    started = False
    try:
        with command_errors(client):
            live = client.start_async()
            started = True
            until = time.monotonic() + patience
            while not live.is_set() and not is_refused(client) and (left := until - time.monotonic()) > 0:
                live.wait(min(left, _POLL))
            check_connected(client)
            yield client
    except CommandError:
        # kazoo may report CONNECTED before the server has checked the credentials.
        _check_accepted(client)
        raise
    finally:
        # A client that was interrupted as it started may never stop. The process ends here anyway.
        if started:
            discard(client)


def check_connected(client: KazooClient) -> None:
    """Check that the client is connected.

    Raises:
        CommandError: it is not connected, or the server refuses the credentials.
    """
    _check_accepted(client)
    if not client.connected:
        raise CommandError(Exit.UNREACHABLE, f"ZooKeeper did not answer in time: {failures(client)}")


def _check_accepted(client: KazooClient) -> None:
    if is_refused(client):
        raise CommandError(Exit.REFUSED, "ZooKeeper refuses the credentials") from None


@contextmanager
def command_errors(client: KazooClient) -> Iterator[None]:
    """Make a context manager that turns an error of ZooKeeper into a CommandError.

    Raises:
        CommandError: its block has raised an error of ZooKeeper.
    """
    try:
        yield
    except kazoo_errors.NoAuthError:
        raise CommandError(Exit.REFUSED, "ZooKeeper refuses: this client may not read here") from None
    except RefusedError as error:
        raise CommandError(Exit.REFUSED, str(error)) from None
    except kazoo_errors.NoNodeError:
        raise _nothing_there(client) from None
    except ValueError as error:
        # A path that ZooKeeper does not accept.
        raise CommandError(Exit.USAGE, str(error)) from None
    except (kazoo_errors.KazooException, ClientError, TimeoutError) as error:
        raise CommandError(Exit.UNREACHABLE, f"the connection was lost ({type(error).__name__})") from None


def check_there(client: KazooClient, report: TreeReport) -> None:
    """Check that the path of a report exists and can be read.

    Raises:
        CommandError: it does not exist, or can't be read.
    """
    if report.path in report.unreadable:
        raise CommandError(Exit.REFUSED, "ZooKeeper refuses: this client may not read here")
    if not report.exists:
        raise _nothing_there(client)


def check_readable(report: TreeReport) -> None:
    """Check that the whole primitive of a report could be read.

    Raises:
        CommandError: a part could not be read, so it is unknown who else is there.
    """
    if report.unreadable:
        raise CommandError(Exit.REFUSED, f"{report.unreadable[0]} may not be read by this client")


def _nothing_there(client: KazooClient) -> CommandError:
    """Return the error for a missing path; the chroot of the URL, below which it lies, may be wrong."""
    chroot = client.chroot
    with command_errors(client):
        if chroot and client.exists("/") is None:
            why = f"there is no {chroot}, the chroot of the URL: it is wrong, or no client has used it yet"
            return CommandError(Exit.NOTHING_THERE, why)
    below = f" below {chroot}, the chroot of the URL" if chroot else ""
    return CommandError(Exit.NOTHING_THERE, f"there is no such path{below}; `ls -r` lists what is there")


def relative(path: str, chroot: str) -> str:
    """Return a full path as the commands take it, relative to the chroot; unchanged if it is not below the chroot."""
    return (path.removeprefix(chroot) or "/") if is_below(path, chroot) else path


def is_below(path: str, chroot: str) -> bool:
    """Return whether a full path is at the chroot or below it."""
    return f"{path}/".startswith(f"{chroot}/")
