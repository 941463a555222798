"""`break`: ends one identified hold, never whichever hold happens to be first.

The holder's process does not notice at once: it goes on until its next heartbeat, while the next client already holds
the lock. So the command first asks the holder to release, as Curator does, by overwriting the data of its node, and
waits. Then it deletes that very node, by its name, which no other node ever has. The question and the last line show
the token, so that resources can refuse late writes: those with this token or a lower one or, if other clients may hold
at the same time, only those with this token.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from argparse import Namespace
from contextlib import suppress
from typing import NoReturn

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient

from .. import Contender, DetachedLock
from ..tree import PathReport, TreeReport, inspect
from .ls import sentences
from .outcome import CommandError, Exit, escaped, say, write
from .server import check_readable, check_there, connected

_REVOKE = b"__REVOKE__"
"""Curator's `Revoker` writes this into a holder's node; a holder whose lock was made revocable reacts to it."""
_WARNING = "its process goes on until its next heartbeat, and others hold meanwhile: end that process first, if you can"
_GONE = "the hold was gone before: its holder has released it, its session has ended, or somebody else has broken it"


def break_hold(found: Namespace) -> int:
    """Break a hold; return the exit code."""
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    if not at_terminal and not (found.yes and found.holder is not None):
        raise CommandError(Exit.USAGE, "without a terminal, both -y and --holder are needed")
    with connected(found) as client:
        report = inspect(client, found.path, depth=0)
        check_there(client, report)
        check_readable(report)
        primitive, holder = _holder(found, report)
        if not found.yes:
            _ask(primitive, holder, report, client.chroot)
        for number in (signal.SIGHUP, signal.SIGTERM):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _give_up)
        broken = _end_hold(client, primitive, holder, found.grace)
    # Other readers, or holders of other permits, may rightly hold with a lower token.
    beside = holder.mode in ("read", "permit")
    late = f"with the token {holder.token}" if beside else f"whose token is below {holder.token + 1}"
    # Write this message first: the write to standard output may fail.
    say(f"{holder.whole_name()} may still be at work: end it, too" if broken else _GONE)
    write(f"{'broken' if broken else 'gone'}: {escaped(holder.node)}; refuse writes {late}\n")
    return 0


def _holder(found: Namespace, report: TreeReport) -> tuple[PathReport, Contender]:
    """Return the primitive, and its hold to break.

    Raises:
        CommandError: there is no hold to break, or none with that token; or the command line does not say which hold.
    """
    held = [(primitive, each) for primitive in report.primitives for each in primitive.holders]
    if not held and report.of_kazoo:
        raise CommandError(Exit.OTHER_KIND, f"kazoo's own recipes use {found.path}: end the process that holds there")
    if not held:
        raise CommandError(Exit.NOTHING_THERE, f"nobody holds {found.path}")
    if held[0][0].kind == "Queue":
        why = f"{held[0][0].path} is a Queue: end the process that has claimed an item, and another one gets that"
        raise CommandError(Exit.OTHER_KIND, why)
    if found.holder is not None:
        for primitive, each in held:
            if each.token == found.holder:
                return primitive, each
        tokens = ", ".join(str(each.token) for _, each in held)
        raise CommandError(
            Exit.NOT_ACQUIRED, f"no hold of {found.path} has the token {found.holder}: it is held with {tokens}"
        )
    if len(held) > 1:
        raise CommandError(Exit.USAGE, f"{found.path} has {len(held)} holders: say --holder TOKEN; see `show`")
    return held[0]


def _ask(primitive: PathReport, holder: Contender, report: TreeReport, chroot: str) -> None:
    """Ask whether to break a hold.

    Raises:
        CommandError: the answer is no.
    """
    waiting = sum(len(each.waiters) for each in report.primitives)
    shown = PathReport(primitive.path, primitive.kind, (holder,), ())
    lines = [*sentences([shown], chroot), f"  {waiting} wait", f"  {_WARNING}"]
    write("".join(f"{line}\n" for line in lines))
    write("Break this hold? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError(Exit.NOT_ACQUIRED, "nothing was broken")


def _give_up(number: int, _: object) -> NoReturn:
    """Act as on Ctrl-C: the terminal was closed, or the command was asked to end."""
    raise KeyboardInterrupt(number)


def _end_hold(client: KazooClient, primitive: PathReport, contender: Contender, grace: float) -> bool:
    """End a hold; return False if it had already ended."""
    if not contender.session:
        # Only a call by its owner or an operator ends a detached hold, and no process is notified.
        try:
            return DetachedLock(client, primitive.path, contender.owner or "-").force_release(contender.token)
        except ValueError:
            # The detached hold has ended, and a session holds the lock now.
            return False
    data = b""
    what = "ask its holder to release"
    asked: int | None = None
    try:
        if primitive.kind != "Semaphore":
            changed = threading.Event()
            if contender.revoked:
                # If the `break` that asked gives up, it restores the node's data.
                say(f"its holder was asked to release before; waiting for {grace:g} s")
            else:
                data, _ = client.get(contender.node)
                asked = client.set(contender.node, _REVOKE).version
                # From here on the node does not show who holds, unless this command gives up and restores its data.
                say(f"asked {contender.whole_name()} to release; waiting for {grace:g} s")
            until = time.monotonic() + grace
            # A write also fires the watch, for example when another client asks.
            watch = lambda _: changed.set()  # noqa: E731
            while client.exists(contender.node, watch=watch) and changed.wait(until - time.monotonic()):
                changed.clear()
        what = "delete it"
        client.delete(contender.node)
    except kazoo_errors.NoNodeError:
        return False
    except KeyboardInterrupt:
        _take_back(client, contender.node, data, asked)
        raise
    except kazoo_errors.NoAuthError:
        _take_back(client, contender.node, data, asked)
        why = f"ZooKeeper refuses: the hold of {contender.node} goes on, as this client may not {what}"
        raise CommandError(Exit.REFUSED, why) from None
    return True


def _take_back(client: KazooClient, node: str, data: bytes, asked: int | None) -> None:
    """Restore a node's data if this command asked its holder to release, and no client has written the node since."""
    if asked is not None:
        with suppress(kazoo_errors.KazooException):
            client.set(node, data, asked)
            say("the hold goes on, and its holder is asked no longer")
