"""`break`: ends one hold, which is named, and never whoever happens to be first.

The holder's process does not know at once: it goes on until its next heartbeat, while the next client holds. So the
command first asks it to release, in Curator's way, which overwrites the data of its node, and waits. Then it deletes
that very node, by its name, which no other node ever has. What was asked, and what is printed at the end, lets
resources refuse the late writes: all tokens up to that of the broken hold; where others hold beside it, that one only.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from argparse import Namespace
from contextlib import suppress
from typing import NoReturn

from .._kazoo.link import KazooClient, Link
from .._kazoo.replies import kazoo_errors
from .._threads.detached import DetachedLock
from .look import Scan, Standing, sentences
from .outcome import CommandError, Exit, escaped, say, write
from .server import link_of

_REVOKE = b"__REVOKE__"
"""What Curator's `Revoker` writes into the node of a holder, which listens if it was made revocable."""
_WARNING = "its process goes on until its next heartbeat, and others hold meanwhile: end that process first, if you can"
_GONE = "the hold was gone before: its holder has released it, its session has ended, or somebody else has broken it"


def break_hold(found: Namespace) -> int:
    """Break a hold; return the exit code."""
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    if not at_terminal and not (found.yes and found.holder is not None):
        raise CommandError(Exit.USAGE, "without a terminal, both -y and --holder are needed")
    with link_of(found) as link:
        scan = Scan(link)
        places = scan.queue(found.path)
        place = _holder(found, places, scan.kazoos(found.path))
        if not found.yes:
            _ask(place, places, link.client.chroot)
        for number in (signal.SIGHUP, signal.SIGTERM):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _give_up)
        broken = _end(link, place, found.grace, scan.nodes[place.contender.node].data)
    token = place.contender.token
    # Other readers, or holders of permits, may hold rightly with a lower one.
    late = f"with the token {token}" if place.mode in ("read", "permit") else f"whose token is below {token + 1}"
    # First: standard output may be full.
    say(f"{place.contender.whole_name()} may still be at work: end it, too" if broken else _GONE)
    write(f"{'broken' if broken else 'gone'}: {escaped(place.contender.node)}; refuse writes {late}\n")
    return 0


def _holder(found: Namespace, places: list[Standing], kazoos: int) -> Standing:
    """Return the hold to break.

    Raises:
        CommandError: there is none, or not that one, or it is not said which.
    """
    held = [place for place in places if place.holds]
    if kazoos and not held:
        raise CommandError(Exit.OTHER_KIND, f"kazoo's own recipes use {found.path}: end the process that holds there")
    if held and held[0].kind == "Queue":
        why = f"{held[0].path} is a Queue: end the process that has claimed an item, and another one gets that"
        raise CommandError(Exit.OTHER_KIND, why)
    if not held:
        raise CommandError(Exit.NOTHING_THERE, f"nobody holds {found.path}")
    if found.holder is not None:
        for place in held:
            if place.contender.token == found.holder:
                return place
        tokens = ", ".join(str(place.contender.token) for place in held)
        raise CommandError(
            Exit.NOT_ACQUIRED, f"no hold of {found.path} has the token {found.holder}: it is held with {tokens}"
        )
    if len(held) > 1:
        raise CommandError(Exit.USAGE, f"{found.path} has {len(held)} holders: say --holder TOKEN; see `show`")
    return held[0]


def _ask(place: Standing, places: list[Standing], chroot: str) -> None:
    """Ask whether to break a hold.

    Raises:
        CommandError: the answer is no.
    """
    waiting = sum(not each.holds for each in places)
    lines = [*sentences([place], chroot), f"  {waiting} wait", f"  {_WARNING}"]
    write("".join(f"{line}\n" for line in lines))
    write("Break this hold? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError(Exit.NOT_ACQUIRED, "nothing was broken")


def _give_up(number: int, _: object) -> NoReturn:
    """Do as at Ctrl-C where the terminal is closed, or the command is asked to end."""
    raise KeyboardInterrupt(number)


def _end(link: Link, place: Standing, grace: float, data: bytes) -> bool:
    """End a hold, whose node has these data; return False if it has ended before."""
    client, contender = link.client, place.contender
    if not contender.session:
        # A detached hold: only a call of its owner, or of an operator, ends it, and no process is notified.
        try:
            return DetachedLock(client, place.path, contender.owner or "-").force_release(contender.token)
        except ValueError:
            # It has ended, and a session holds now.
            return False
    what = "ask its holder to release"
    asked: int | None = None
    try:
        if place.kind != "Semaphore":
            changed = threading.Event()
            if contender.revoked:
                # The command that has asked gives back what the node told, if it is given up.
                say(f"its holder was asked to release before; waiting for {grace:g} s")
            else:
                asked = client.set(contender.node, _REVOKE).version
                # From here on the node does not tell who holds, unless this is given up.
                say(f"asked {contender.whole_name()} to release; waiting for {grace:g} s")
            until = time.monotonic() + grace
            # A write fires the watch, too, for example that of another client that asks.
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
    """Restore the data of a node, if this has asked its holder to release, and no client has written it since."""
    if asked is not None:
        with suppress(kazoo_errors.KazooException):
            client.set(node, data, asked)
            say("the hold goes on, and its holder is asked no longer")
