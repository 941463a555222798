"""`deadlocks`: the rings of waits that `find_deadlocks` finds, each member with its hold and its wait."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from ..tree import Deadlock, DeadlockMember, find_deadlocks
from .outcome import document, escaped, write
from .server import check_there, connected, is_below, relative
from .terminal import age

FOUND = 1
# The most characters that a line shows of another program's text; JSON has all of it.
_LONGEST = 300


def deadlocks(found: Namespace) -> int:
    """Report the deadlocks at a path and below it; return the exit code."""
    with connected(found) as client:
        report = find_deadlocks(client, found.path)
        check_there(client, report.tree)
        chroot = client.chroot
    if found.json:
        rings = [{"members": list(map(_as_json, each.members))} for each in report.deadlocks]
        unjudged = [vars(each) for each in report.unjudged]
        write(f"{document('deadlocks', {'path': found.path}, rings=rings, unjudged=unjudged)}\n")
    else:
        lines = [line for each in report.deadlocks for line in _sentences(each, chroot)]
        if not lines:
            lines = [f"no deadlock at {found.path} or below"]
        lines += [
            f"not judged: {_shown(each.path, chroot)}{'' if each.node is None else f', node {each.node}'}: {each.why}"
            for each in report.unjudged
        ]
        write("".join(f"{escaped(line)}\n" for line in lines))
    return FOUND if report.deadlocks else 0


def _as_json(member: DeadlockMember) -> dict[str, Any]:
    """Return the JSON fields of a member."""
    edge = member.edge
    held = {"path": member.held_path, "node": member.held_node, "token": str(member.token)}
    return {
        "host": edge.host,
        "pid": edge.pid,
        "thread": edge.thread,
        "by": member.by,
        "session": f"{member.session & (1 << 64) - 1:#x}",
        "holds": None if member.held_path is None else held,
        "waits_for": edge.path,
        "node": edge.waiter,
        "blocker": edge.blocker,
        "edge": "hard" if edge.hard else "soft",
        "age": round(edge.age, 3),
    }


def _sentences(deadlock: Deadlock, chroot: str) -> Iterator[str]:
    """Return the lines that describe a deadlock to people."""
    members = deadlock.members
    yield f"a deadlock of {len(members)} waits: each waits for the next, the last for the first"
    for number, member in enumerate(members, 1):
        edge, next_one = member.edge, number % len(members) + 1
        yield f"  {number}. {member.whole_name()}"
        if member.held_path is not None:
            yield f"     holds {_shown(member.held_path, chroot)}, token {member.token}"
        blocked = f"which {next_one} holds (hard)" if edge.hard else f"behind {next_one}, which waits itself (soft)"
        yield f"     waits for {_shown(edge.path, chroot)} for {age(edge.age)}, {blocked}"
    yield "  They will wait for ever: end one of these processes."
    yield "  If none can be reached, break a hold:"
    held = [(each.held_path, each.token) for each in members if each.held_path is not None]
    # `break` takes only paths below its URL's chroot. The path is shown whole: a shortened one would be another path.
    path, token = next((each for each in held if is_below(each[0], chroot)), held[0])
    yield f"  zkconcurrent break {shlex.quote(relative(path, chroot))} --holder {token}"


def _shown(path: str, chroot: str) -> str:
    return relative(path, chroot)[:_LONGEST]
