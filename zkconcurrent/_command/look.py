"""`ls` and `show`: who holds, who waits, since when, and behind whom.

A listing alone tells which children of a node are contenders, of which kind, and who holds: by the rules of the locks
themselves. The nodes' data and times are read for these alone. Nothing is written.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, NamedTuple

from .._kazoo.link import Link
from .._kazoo.replies import kazoo_errors
from .._protocol.operations import Node
from .._protocol.rules import LATCH, MUTEX, PERMIT, READ, WRITE, Rule, blockers, holders, line_up, role_of
from .._threads.base.contender import Contender
from .._threads.base.node_data import MOST_HOLDS
from .outcome import REFUSED, CommandError, escaped, say, write
from .server import ask_all, link_of

_RULES = {rule.role: rule for rule in (MUTEX, LATCH, READ, WRITE, PERMIT)}
_TYPES = {MUTEX: "Lock", LATCH: "Election", READ: "ReadWriteLock", WRITE: "ReadWriteLock", PERMIT: "Semaphore"}
_MODES = {READ.role: "read", WRITE.role: "write", PERMIT.role: "permit"}
_LEASES, _QUEUE = "leases", "locks"
_RESERVED = "/zookeeper"
# What a table shows of a text in a node, and what a sentence does; in characters.
_WIDEST, _LONGEST = 60, 300
_HEADS = ("PATH", "TYPE", "STATE", "HOST", "PID", "THREAD", "AGE", "TOKEN", "SESSION", "BEHIND")


class Standing(NamedTuple):
    """A contender, and where it stands.

    Attributes:
        path: the primitive's path.
        kind: its class, as far as the nodes tell.
        mode: "read", "write" or "permit"; empty if the kind has one mode only.
        blocker: the name of the node that it waits for; None if it holds, or waits for permits.
        contender: the contender.
    """

    path: str
    kind: str
    mode: str
    blocker: str | None
    contender: Contender

    @property
    def holds(self) -> bool:
        """Whether it holds."""
        return not self.contender.position

    def as_json(self, now: float) -> dict[str, Any]:
        """Return what a document of JSON tells of it."""
        each = self.contender
        return {
            "path": self.path,
            "type": self.kind,
            "mode": self.mode or None,
            "state": "held" if self.holds else "waits",
            "host": each.host,
            "pid": each.pid,
            "thread": each.thread,
            "by": each.by,
            "owner": each.owner,
            "since": each.since.isoformat(),
            "age": self.age(now),
            "token": str(each.token),
            "session": _session(each),
            "node": each.node,
            "position": each.position,
            "blocker": self.blocker,
            "timeout": each.timeout,
            "holds": [{"path": path, "node": node} for path, node in each.holds],
            "more_holds": each.more,
        }

    def age(self, now: float) -> float:
        """Return for how many seconds its node has been there; this machine's clock may differ from the server's."""
        return round(max(0.0, now - self.contender.since.timestamp()), 3)

    def row(self, now: float) -> tuple[str, ...]:
        """Return what a line of `ls` tells of it."""
        each = self.contender
        state = "held" if self.holds else f"waits, {each.position}"
        whose = (
            _short(each.host or "?"),
            "-" if each.pid is None else str(each.pid),
            _short(each.thread or each.owner or "-"),
        )
        kind = " ".join(filter(None, (self.kind, self.mode)))
        rest = (f"{self.age(now):.1f}s", str(each.token), _session(each), self.blocker or "-")
        return tuple(map(escaped, (self.path, kind, state, *whose, *rest)))


def _short(text: str, most: int = _WIDEST) -> str:
    """Return a stranger's text, which may have a million characters, as people can read it; JSON has the whole."""
    return text if len(text) <= most else f"{text[:most]}..."


def _session(contender: Contender) -> str:
    """Return a session as the servers write it."""
    return f"{contender.session & (1 << 64) - 1:#x}"


class _Listed(NamedTuple):
    """The contenders in one listing.

    Attributes:
        path: the primitive's path, and
        folder: the node that was listed.
        rule: the rule of the queue.
        names: the contenders.
    """

    path: str
    folder: str
    rule: Rule
    names: list[str]


class Scan:
    """All contenders at a path and below it.

    Attributes:
        unreadable: the paths that could not be read.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._semaphores: set[str] = set()
        self.unreadable: list[str] = []

    def places(self, path: str, depth: int | None) -> list[Standing]:
        """Return the contenders at a path, and at so many levels below it; None: at all of them."""
        queues: list[_Listed] = []
        level = [path]
        while level:
            listings = ask_all(self._link.children, level)
            if level == [path] and isinstance(listings[0], Exception):
                raise listings[0]
            below: list[str] = []
            for node, names in zip(level, listings, strict=True):
                if isinstance(names, Exception):
                    self._note(node, names)
                    continue
                found, others = _sort(node, names)
                queues += found
                parts: set[str] = set()
                if _LEASES in others or "permits" in others:
                    self._semaphores.add(node)
                    parts = {_LEASES, _QUEUE} & set(others)
                deeper = others if depth is None or depth > 0 else parts
                below += [f"{'' if node == '/' else node}/{name}" for name in sorted(deeper)]
            # The parts of a semaphore belong to it: they are no level of their own.
            depth = None if depth is None else max(depth - 1, 0)
            level = [each for each in below if each != _RESERVED]
        return self._read(queues)

    def _note(self, path: str, error: Exception) -> None:
        if isinstance(error, kazoo_errors.NoAuthError):
            self.unreadable.append(path)

    def _read(self, queues: list[_Listed]) -> list[Standing]:
        """Read the nodes of all queues."""
        paths = [f"{queue.folder}/{name}" for queue in queues for name in queue.names]
        found = dict(zip(paths, ask_all(self._link.get, paths), strict=True))
        places: list[Standing] = []
        for queue in sorted(queues):
            there: dict[str, Node] = {}
            for name in queue.names:
                got = found[f"{queue.folder}/{name}"]
                if isinstance(got, Exception):
                    self._note(f"{queue.folder}/{name}", got)
                else:
                    data, stat = got
                    there[name] = Node(data, stat.czxid, stat.ctime / 1000, stat.ephemeralOwner)
            places += _in_line(queue, there)
        # Those who hold permits come before those who wait for them.
        return sorted(map(self._of_semaphore, places), key=lambda place: (place.path, place.contender.position))

    def _of_semaphore(self, place: Standing) -> Standing:
        """Return a contender in the queue of a semaphore as one that waits there, also the first."""
        above, _, last = place.path.rpartition("/")
        if last != _QUEUE or above not in self._semaphores:
            return place
        waits = place.contender._replace(position=place.contender.position + 1)
        return Standing(above, "Semaphore", "permit", place.blocker, waits)


def _sort(node: str, names: list[str]) -> tuple[list[_Listed], list[str]]:
    """Return the queues of a node's contenders, and the other children.

    Two kinds on one path, which our library refuses and others do not, do not wait for each other: they are two queues.
    """
    kinds: dict[str, list[str]] = {}
    others: list[str] = []
    for name in names:
        role = role_of(name)
        if role is None:
            others.append(name)
        elif role in _RULES:
            kinds.setdefault(_TYPES[_RULES[role]], []).append(name)
    above, _, last = node.rpartition("/")
    queues: list[_Listed] = []
    for contenders in kinds.values():
        rule = _RULES[role_of(contenders[0]) or ""]
        queues.append(_Listed(above if rule is PERMIT and last == _LEASES else node, node, rule, contenders))
    return queues, others


def _in_line(queue: _Listed, there: dict[str, Node]) -> Iterator[Standing]:
    """Return the contenders of a queue that are there, the holders first."""
    rule, line = queue.rule, line_up(queue.names, queue.rule)
    permits = rule is PERMIT
    holding = set(line if permits else holders(line, rule))
    position = 0
    for name in line:
        if name not in holding:
            position += 1
        if name in there:
            contender = Contender.of(queue.folder, name, there[name], 0 if name in holding else position)
            kind = "DetachedLock" if rule is MUTEX and contender.owner is not None else _TYPES[rule]
            blocker = None if name in holding else next(iter(blockers(name, line, rule)), None)
            yield Standing(queue.path, kind, _MODES.get(role_of(name) or "", ""), blocker, contender)


def ls(found: Namespace) -> int:
    """List the contenders at a path and below it; return the exit code."""
    with link_of(found) as link:
        scan = Scan(link)
        places = scan.places(found.path, None if found.recursive else 1)
        now = time.time()
    if found.json:
        _write_json("ls", found.path, now, places)
    elif places:
        _write_table([_HEADS, *(place.row(now) for place in places)])
    for path in scan.unreadable:
        say(f"{path} may not be read by this client")
    return REFUSED if scan.unreadable else 0


def show(found: Namespace) -> int:
    """Show one queue; return the exit code."""
    with link_of(found) as link:
        scan = Scan(link)
        places = [place for place in scan.places(found.path, 0) if place.path == found.path]
        now = time.time()
    if scan.unreadable:
        raise CommandError(REFUSED, "refused", f"{scan.unreadable[0]} may not be read by this client")
    if found.json:
        _write_json("show", found.path, now, places)
    elif places:
        _write_text(sentences(places))
    else:
        _write_text([f"{escaped(found.path)} is free: nobody holds it, and nobody waits"])
    return 0


def sentences(places: list[Standing]) -> Iterator[str]:
    """Return what people read of the contenders of one path."""
    kinds, now = list(dict.fromkeys(place.kind for place in places)), time.time()
    yield escaped(f"{places[0].path}: {' and '.join(kinds)}")
    for place in places:
        each = place.contender
        state = "held" if place.holds else f"{each.position}. waits"
        modes = [place.kind] if len(kinds) > 1 else []
        modes += [place.mode] if place.mode else []
        mode = f" ({', '.join(modes)})" if modes else ""
        # How long a holder had waited before is not known.
        since = f"queued {place.age(now):.1f} s ago, at {each.since:%F %T} UTC"
        yield escaped(f"  {state}{mode} by {_short(each.whole_name(), _LONGEST)}, {since}")
        yield escaped(f"    token {each.token}, session {_session(each)}, node {each.node.rpartition('/')[2]}")
        if each.owner is not None:
            until = ": until it is released, whatever becomes of the process" if not each.session else ""
            yield escaped(f"    owner {_short(each.owner)}{until}")
        if each.timeout is not None:
            yield f"    gives up after {each.timeout:.1f} s"
        if place.blocker is not None:
            yield escaped(f"    behind {place.blocker}")
        for path, node in each.holds[:MOST_HOLDS]:
            yield escaped(f"    holds meanwhile {_short(path, _LONGEST)} (node {_short(node)})")
        if more := each.more + len(each.holds[MOST_HOLDS:]):
            yield f"    holds meanwhile {more} more"


def _write_json(command: str, path: str, now: float, places: list[Standing]) -> None:
    document = {
        "schema": f"zkconcurrent.{command}/1",
        "path": path,
        "at": datetime.fromtimestamp(now, timezone.utc).isoformat(),
        "contenders": [place.as_json(now) for place in places],
    }
    _write_text([json.dumps(document)])


def _write_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    _write_text("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _write_text(lines: Iterator[str] | list[str]) -> None:
    write("".join(f"{line}\n" for line in lines))
