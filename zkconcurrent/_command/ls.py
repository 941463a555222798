"""`ls` and `show`: who holds, who waits, when each queued, and behind whom; as tables, in words, and as JSON."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from typing import Any

from .. import Contender
from ..tree import PathReport, TreeReport, inspect
from .outcome import Exit, document, escaped, say, write
from .server import check_readable, check_there, connected, relative
from .terminal import RED, age, styled, table
from .watch import repeat

_LONG_WAIT = 60.0  # seconds
# The most characters of a node's text that a table shows, and that a sentence shows.
_WIDEST, _LONGEST = 60, 300
_MOST_HOLDS = 16
# In seconds. With --watch, a request that gets no reply for this long counts as an outage.
_WATCH_PATIENCE = 5.0
Lines = Callable[[TreeReport, float, str], list[str]]


def ls(found: Namespace) -> int:
    """List the contenders at a path and below it; return the exit code."""

    def text(report: TreeReport, now: float, _: str) -> list[str]:
        rows: list[dict[str, str]] = []
        late: list[bool] = []
        for primitive in _sorted(found, report):
            waits_long = [_waits_long(primitive, each, now) for each in primitive.contenders]
            lines = [_row(primitive, each, now, found.watch) for each in primitive.contenders]
            if found.sort == "waiters":
                # Show only the first contender of each path, which holds the lock if any does.
                lines = [{"WAIT": str(len(primitive.waiters)), **lines[0]}]
                waits_long = [any(waits_long)]
            rows += lines
            late += waits_long
        left_out = set() if found.wide else {"TOKEN", "SESSION", "NODE", "BEHIND"}
        rows = [{column: text for column, text in row.items() if column not in left_out} for row in rows]
        return [
            styled(RED, line) if each else line
            for each, line in zip([False, *late], table(rows, fits=not found.wide), strict=False)
        ]

    return _report(found, None if found.recursive else 1, text)


def show(found: Namespace) -> int:
    """Show one primitive; return the exit code."""

    def text(report: TreeReport, _: float, chroot: str) -> list[str]:
        if report.primitives:
            return list(sentences(report.primitives, chroot, watched=found.watch))
        path = escaped(found.path)
        if found.path in report.of_kazoo:
            return [
                f"{path}: kazoo's own recipes use it: {report.of_kazoo[found.path]} nodes, which do not tell who holds"
            ]
        return [f"{path} has no lock that anybody holds or waits for"]

    return _report(found, 0, text)


def _report(found: Namespace, depth: int | None, text: Lines) -> int:
    """Report once, or again and again; return the exit code."""

    def read(before: TreeReport | None) -> TreeReport:
        if found.watch:
            report = inspect(client, found.path, depth=depth, before=before, timeout=_WATCH_PATIENCE)
        else:
            report = inspect(client, found.path, depth=depth)
        # Only the first time: ZooKeeper removes an empty container, and the next contender makes it again.
        if before is None:
            check_there(client, report)
        if depth == 0:
            check_readable(report)
        for path in report.unreadable:
            if before is None or path not in before.unreadable:
                say(f"{path} may not be read by this client")
        return report

    def lines(report: TreeReport) -> list[str]:
        now = time.time()
        if not found.json:
            return text(report, now, client.chroot)
        contenders = [
            _as_json(primitive, each, now, found.watch)
            for primitive in _sorted(found, report)
            for each in primitive.contenders
        ]
        return [document(found.do, {"path": found.path}, contenders=contenders)]

    with connected(found) as client:
        if found.watch:
            title = f"zkconcurrent {found.do} {found.path}, every {found.interval:g} s"
            repeat(client, read, lines, found.interval, None if found.json else title)
        report = read(None)
    write("".join(f"{line}\n" for line in lines(report)))
    if found.do == "ls" and report.of_kazoo:
        first, *others = report.of_kazoo
        more = f" and {len(others)} more" if others else ""
        say(f"kazoo's own recipes use {first}{more}: their nodes do not tell who holds")
    if not (report.is_whole or found.json) and (found.do == "ls" or not report.primitives):
        say(f"there are nodes further below: `ls -r {found.path}` looks at all")
    elif found.do == "ls" and not (report.primitives or report.of_kazoo or found.json):
        say("nobody holds a lock there, or waits for one; events, items, values, maps and groups are not listed")
    return Exit.REFUSED if report.unreadable else 0


def _sorted(found: Namespace, report: TreeReport) -> Sequence[PathReport]:
    if found.do == "show" or found.sort == "path":
        return report.primitives
    return sorted(report.primitives, key=lambda each: -len(each.waiters))


def _as_json(primitive: PathReport, each: Contender, now: float, watched: bool) -> dict[str, Any]:
    """Return the JSON fields of a contender."""
    first_seen = each.first_seen_holding if watched else None
    return {
        "path": primitive.path,
        "type": primitive.kind,
        "mode": each.mode or None,
        "state": "waits" if each.position else "held",
        "host": each.host,
        "pid": each.pid,
        "thread": each.thread,
        "label": each.label,
        "by": each.by,
        "owner": each.owner,
        "queued_at": each.queued.isoformat(),
        "queued_for": round(_queued_for(each, now), 3),
        "first_seen_holding": first_seen and first_seen.isoformat(),
        "token": str(each.token),
        "session": _session(each),
        "node": each.node,
        "position": each.position,
        "blocker": each.blocker,
        "timeout": each.timeout,
        "revoked": each.revoked,
        "holds": [{"path": path, "node": node} for path, node in each.holds],
    }


def _queued_for(each: Contender, now: float) -> float:
    """Return how many seconds ago a contender queued; this machine's clock may differ from the server's."""
    return max(0.0, now - each.queued.timestamp())


def _waits_long(primitive: PathReport, each: Contender, now: float) -> bool:
    """Return whether a wait is unusually long; candidates, and consumers of an empty queue, often wait for days."""
    return each.position > 0 and primitive.kind not in ("Election", "Queue") and _queued_for(each, now) > _LONG_WAIT


def _row(primitive: PathReport, each: Contender, now: float, watched: bool) -> dict[str, str]:
    """Return the cells of a contender's line, by their columns."""
    # Other programs write their address into the node, as Curator does, or the id of a candidate.
    host, text = (each.host, None) if each.pid is not None or _is_address(each.host or "") else (None, each.host)
    first_seen = each.first_seen_holding if watched else None
    held = "held" if first_seen is None else f"held, seen {age(now - first_seen.timestamp())}"
    cells = {
        "PATH": primitive.path,
        "TYPE": each.mode or primitive.kind,
        "STATE": f"waits, {each.position}" if each.position else held,
        "QUEUED": age(_queued_for(each, now)),
        "HOST": _short(host or "-"),
        "PID": "-" if each.pid is None else _short(str(each.pid)),
        "WHO": _short(each.label or each.thread or each.owner or text or "-"),
        "TOKEN": str(each.token),
        "SESSION": _session(each),
        "NODE": each.node.rpartition("/")[2],
        "BEHIND": each.blocker or "-",
    }
    return {column: escaped(cell) for column, cell in cells.items()}


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _short(text: str, most: int = _WIDEST) -> str:
    """Shorten another program's text, which may have a million characters, for people; JSON has all of it."""
    return text if len(text) <= most else f"{text[:most]}..."


def _session(contender: Contender) -> str:
    """Return a session as the servers write it."""
    return f"{contender.session & (1 << 64) - 1:#x}"


def sentences(primitives: Sequence[PathReport], chroot: str, *, watched: bool = False) -> Iterator[str]:
    """Return the lines that describe the primitives at one path to people; other paths are relative to the chroot."""
    now = time.time()
    yield escaped(f"{primitives[0].path}: {' and '.join(each.kind for each in primitives)}")
    line = [(found, each) for found in primitives for each in found.holders]
    line += [(found, each) for found in primitives for each in found.waiters]
    for primitive, each in line:
        state = f"{each.position}. waiting" if each.position else "held"
        modes = [primitive.kind] if len(primitives) > 1 else []
        modes += [each.mode] if each.mode else []
        mode = f" ({', '.join(modes)})" if modes else ""
        first_seen = each.first_seen_holding if watched else None
        held = "" if first_seen is None else f", first seen to hold {age(now - first_seen.timestamp())} ago"
        came = "claimed" if each.mode == "claim" else "queued"
        yield escaped(f"  {state}{mode}: {each.whole_name()}{held}, {came} {age(_queued_for(each, now))} ago")
        yield f"    {came} at {each.queued:%F %T} UTC, token {each.token}, session {_session(each)}"
        yield escaped(f"    node {each.node.rpartition('/')[2]}")
        if each.owner is not None:
            until = ": until it is released, whatever becomes of the process" if not each.session else ""
            yield escaped(f"    owner {_short(each.owner)}{until}")
        if each.revoked:
            yield "    asked to release: the request has taken the place of what its node told of it"
        # The timeout limits the wait, which is over once the contender holds.
        if each.timeout is not None and each.position:
            yield f"    gives up after {each.timeout:.1f} s"
        if each.blocker is not None:
            yield escaped(f"    behind {each.blocker}")
        for path, node in each.holds[:_MOST_HOLDS]:
            yield escaped(f"    holds meanwhile {_short(relative(path, chroot), _LONGEST)} (node {_short(node)})")
        if more := len(each.holds[_MOST_HOLDS:]):
            yield f"    holds meanwhile {more} more"
