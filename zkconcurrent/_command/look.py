"""`ls` and `show`: who holds, who waits, when each queued, and behind whom.

A listing alone tells which children of a node are contenders, of which kind, and who holds: by the rules of the locks
themselves. The nodes' data and times are read for these alone. Nothing is written.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple

from .._kazoo.link import Link
from .._kazoo.replies import kazoo_errors, node_of
from .._protocol.node_info import origin_of
from .._protocol.operations import Node
from .._protocol.rules import LATCH, MUTEX, PERMIT, READ, WRITE, Rule, holders, is_of_kazoo, line_up, nearest, role_of
from .._recipes.queue.order import is_item
from .._threads.base.contender import Contender, note_holders
from .._threads.base.node_data import MOST_HOLDS
from .outcome import CommandError, Exit, document, escaped, say, write
from .server import ask_all, link_of, relative
from .terminal import RED, age, styled, table
from .watch import again

RULES = {rule.role: rule for rule in (MUTEX, LATCH, READ, WRITE, PERMIT)}
_TYPES = {MUTEX: "Lock", LATCH: "Election", READ: "ReadWriteLock", WRITE: "ReadWriteLock", PERMIT: "Semaphore"}
_MODES = {READ.role: "read", WRITE.role: "write", PERMIT.role: "permit"}
_LEASES, _QUEUE = "leases", "locks"
# Where the clients of a `Queue` wait, for an item or for room. No client holds there.
_LINES = {"consumers": "consumer", "producers": "producer"}
# A client that has taken an item of a `Queue`, and not acknowledged it, has a node of the item's name there.
_CLAIMS = "claims"
# The children that a `Queue` has wherever a client waits.
_OF_QUEUES = {_CLAIMS, "items", "members", "receipts"}
# What belongs to the node above, whose listing tells its kind.
_PARTS = {_LEASES, _QUEUE, _CLAIMS, *_LINES}
_RESERVED = "/zookeeper"
_LONG_WAIT = 60.0  # seconds
# What a table shows of a text in a node, and what a sentence does; in characters.
_WIDEST, _LONGEST = 60, 300


class Standing(NamedTuple):
    """A contender, and where it stands.

    Attributes:
        path: the primitive's path.
        kind: its class, as far as the nodes tell.
        mode: "read", "write", "permit", "consumer", "producer" or "claim"; empty if the kind has one mode only.
        blocker: the name of the node that it waits for; None if it holds, or waits for permits.
        contender: the contender; with `--watch`, a holder tells when it was first seen to hold.
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

    @property
    def folder(self) -> str:
        """The node below which its own node is."""
        return _above(self.contender.node)

    def as_json(self, now: float) -> dict[str, Any]:
        """Return its fields for a document of JSON."""
        each = self.contender
        return {
            "path": self.path,
            "type": self.kind,
            "mode": self.mode or None,
            "state": "held" if self.holds else "waits",
            "host": each.host,
            "pid": each.pid,
            "thread": each.thread,
            "label": each.label,
            "by": each.by,
            "owner": each.owner,
            "queued_at": each.queued.isoformat(),
            "queued_for": round(self.queued_for(now), 3),
            "first_seen_holding": each.first_seen_holding and each.first_seen_holding.isoformat(),
            "token": str(each.token),
            "session": _session(each),
            "node": each.node,
            "position": each.position,
            "blocker": self.blocker,
            "timeout": each.timeout,
            "revoked": each.revoked,
            "holds": [{"path": path, "node": node} for path, node in each.holds],
        }

    def queued_for(self, now: float) -> float:
        """Return how many seconds ago it queued; this machine's clock may differ from the server's."""
        return max(0.0, now - self.contender.queued.timestamp())

    def waits_long(self, now: float) -> bool:
        """Return whether it waits for longer than most; candidates, and consumers of an empty queue, wait for days."""
        return not self.holds and self.kind not in ("Election", "Queue") and self.queued_for(now) > _LONG_WAIT

    def row(self, now: float) -> dict[str, str]:
        """Return the cells of its line in `ls`, by their columns."""
        each = self.contender
        # The text of another program is its address, as Curator writes it, or the id of a candidate.
        host, text = (each.host, None) if each.pid is not None or _is_address(each.host or "") else (None, each.host)
        seen = each.first_seen_holding
        held = "held" if seen is None else f"held, seen {age(now - seen.timestamp())}"
        cells = {
            "PATH": self.path,
            "TYPE": self.mode or self.kind,
            "STATE": held if self.holds else f"waits, {each.position}",
            "QUEUED": age(self.queued_for(now)),
            "HOST": _short(host or "-"),
            "PID": "-" if each.pid is None else _short(str(each.pid)),
            "WHO": _short(each.label or each.thread or each.owner or text or "-"),
            "TOKEN": str(each.token),
            "SESSION": _session(each),
            "NODE": each.node.rpartition("/")[2],
            "BEHIND": self.blocker or "-",
        }
        return {column: escaped(text) for column, text in cells.items()}


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _short(text: str, most: int = _WIDEST) -> str:
    """Return a stranger's text, which may have a million characters, as people can read it; JSON has the whole."""
    return text if len(text) <= most else f"{text[:most]}..."


def _session(contender: Contender) -> str:
    """Return a session as the servers write it."""
    return f"{contender.session & (1 << 64) - 1:#x}"


class QueueListing(NamedTuple):
    """The contenders in one listing.

    Attributes:
        path: the primitive's path, and
        folder: the node that was listed; empty if it is the root, so that a child is folder/name everywhere.
        kind: the primitive's class, as far as the names tell.
        rule: the rule of the queue.
        names: the contenders.
    """

    path: str
    folder: str
    kind: str
    rule: Rule
    names: list[str]

    def holders(self) -> list[str]:
        """Return those that hold, in the order of their turns."""
        # Claims have no order either, and block no client.
        if self.rule is PERMIT:
            return line_up(self.names, PERMIT)
        # Where a semaphore's clients queue, the first, too, waits: for permits. So does that of a `Queue`, for an item.
        return [] if self.kind in ("Semaphore", "Queue") else holders(self.names, self.rule)


class Scan:
    """All contenders at a path and below it.

    Args:
        link: the client's.

    Attributes:
        listings: the children of each node, by its path; contenders have none.
        nodes: the contenders' nodes, by their paths.
        goes_on: whether there are nodes below those levels.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._semaphores: set[str] = set()
        self._queues: set[str] = set()
        # A `Queue` that no client uses has only these children left. Curator's queue has only these in any case.
        self._with_items: set[str] = set()
        self._errors: dict[str, Exception] = {}
        self.listings: dict[str, list[str]] = {}
        self.nodes: dict[str, Node] = {}
        self.goes_on = False

    @property
    def unreadable(self) -> list[str]:
        """The paths that this client may not read."""
        return [path for path, error in self._errors.items() if isinstance(error, kazoo_errors.NoAuthError)]

    def places(self, path: str, depth: int | None) -> list[Standing]:
        """Return the contenders at a path, and at `depth` levels below it; None stands for all levels.

        Raises:
            KazooException: the path is not there, or may not be read.
        """
        queues = self._list(path, depth)
        if path in self._errors:
            raise self._errors[path]
        return self._read(queues)

    def queue(self, path: str) -> list[Standing]:
        """Return the contenders of one primitive.

        Raises:
            KazooException: the path is not there, or may not be read.
            CommandError: a part of it may not be read, so it is not known who is there.
        """
        places = [place for place in self.places(path, 0) if path in (place.path, place.folder)]
        if self.unreadable:
            raise CommandError(Exit.REFUSED, f"{self.unreadable[0]} may not be read by this client")
        return places

    def kazoos(self, path: str) -> int:
        """Return how many nodes of kazoo's own locks and semaphores are at a path that was listed."""
        return sum(map(is_of_kazoo, self.listings.get(path, ())))

    def _list(self, path: str, depth: int | None) -> list[QueueListing]:
        """Return the queues at a path, and at `depth` levels below it, as far as these exist."""
        queues: list[QueueListing] = []
        if path.rpartition("/")[2] in _PARTS:
            # The children of a part do not show the kind of the node above.
            (names,) = ask_all(self._link.children, [_above(path)])
            if not isinstance(names, Exception):
                self._note_kind(_above(path), names)
        level = [path]
        while level:
            below: list[str] = []
            for node, names in zip(level, ask_all(self._link.children, level), strict=True):
                if isinstance(names, Exception):
                    self._errors[node] = names
                    continue
                self.listings[node] = names
                found, others = self._sort(node, names)
                queues += found
                # The parts of a semaphore, or of a `Queue`, belong to it, and do not count as a level.
                parts = {_LEASES, _QUEUE} & set(others) if node in self._semaphores else set()
                parts |= _LINES.keys() & set(others) if node in self._queues else set()
                parts |= {_CLAIMS} & set(others) if node in self._with_items else set()
                deeper = others if depth is None or depth > 0 else parts
                self.goes_on = self.goes_on or len(deeper) < len(others)
                below += [f"{'' if node == '/' else node}/{name}" for name in sorted(deeper)]
            depth = None if depth is None else max(depth - 1, 0)
            level = [each for each in below if each != _RESERVED]
        return queues

    def _note_kind(self, node: str, names: Sequence[str]) -> None:
        if {_LEASES, "permits"} & set(names):
            self._semaphores.add(node)
        if set(names) >= _OF_QUEUES:
            self._queues.add(node)
        if {_CLAIMS, "items"} <= set(names):
            self._with_items.add(node)

    def _sort(self, node: str, names: Sequence[str]) -> tuple[list[QueueListing], list[str]]:
        """Return the queues of a node's contenders, and the other children. What is above it must come first.

        Two kinds on one path, which our library refuses and others do not, do not wait for each other: they are two
        queues.
        """
        above, last = _above(node), node.rpartition("/")[2]
        folder = "" if node == "/" else node
        kinds: dict[str, list[str]] = {}
        others: list[str] = []
        # These, and their claims, have nothing below them.
        items = [name for name in names if is_item(name)] if above in self._with_items else []
        for name in set(names).difference(items) if items else names:
            role = role_of(name)
            # Those of kazoo's contenders, too, have nothing below them.
            if role is None and not is_of_kazoo(name):
                others.append(name)
            elif role in RULES:
                kinds.setdefault(_TYPES[RULES[role]], []).append(name)
        self._note_kind(node, others)
        queues: list[QueueListing] = []
        if items and last == _CLAIMS:
            queues.append(QueueListing(above, folder, "Queue", PERMIT, items))
        for kind, contenders in kinds.items():
            rule = RULES[role_of(contenders[0]) or ""]
            if last == _QUEUE and above in self._semaphores:
                queues.append(QueueListing(above, folder, "Semaphore", rule, contenders))
            elif last in _LINES and above in self._queues:
                queues.append(QueueListing(above, folder, "Queue", rule, contenders))
            else:
                path = above if rule is PERMIT and last == _LEASES else node
                queues.append(QueueListing(path, folder, kind, rule, contenders))
        return queues, others

    def _read(self, queues: list[QueueListing]) -> list[Standing]:
        """Read the nodes of all queues."""
        paths = [f"{queue.folder}/{name}" for queue in queues for name in queue.names]
        found = dict(zip(paths, ask_all(self._link.get, paths), strict=True))
        places: list[Standing] = []
        for queue in sorted(queues):
            there: dict[str, Node] = {}
            for name in queue.names:
                got = found[f"{queue.folder}/{name}"]
                if isinstance(got, Exception):
                    self._errors[f"{queue.folder}/{name}"] = got
                else:
                    there[name] = self.nodes[f"{queue.folder}/{name}"] = node_of(got)
            if queue.kind == "Lock" and any(origin_of(each.data)[0] for each in there.values()):
                queue = queue._replace(kind="Election")
            places += _in_line(queue, there)
        # Those who hold permits come before those who wait for them.
        return sorted(places, key=lambda place: (place.path, place.contender.position))


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _in_line(queue: QueueListing, there: dict[str, Node]) -> Iterator[Standing]:
    """Return the contenders of a queue that are there, the holders first."""
    holding = set(queue.holders())
    position = 0
    for name, blocker in nearest(queue.names, queue.rule).items():
        if name not in holding:
            position += 1
        if name in there:
            yield _standing(queue, name, there[name], 0 if name in holding else position, blocker)


def _standing(queue: QueueListing, name: str, node: Node, position: int, blocker: str | None) -> Standing:
    """Return a contender, by its queue, its node and its place; 0: it holds."""
    contender = Contender.of(queue.folder, name, node, position)
    detached = queue.kind == "Lock" and contender.owner is not None
    mode = "permit" if queue.kind == "Semaphore" else _MODES.get(role_of(name) or "", "")
    if queue.kind == "Queue":
        mode = _LINES.get(queue.folder.rpartition("/")[2], "claim")
    return Standing(
        queue.path, "DetachedLock" if detached else queue.kind, mode, blocker if position else None, contender
    )


class _Look(NamedTuple):
    """What a look has shown.

    Attributes:
        places: the contenders.
        unreadable: the paths that may not be read.
        kazoos: how many nodes of kazoo's recipes are at which paths.
        goes_on: whether there is more below.
    """

    places: list[Standing]
    unreadable: list[str]
    kazoos: dict[str, int]
    goes_on: bool


def ls(found: Namespace) -> int:
    """List the contenders at a path and below it; return the exit code."""
    by_path = found.sort == "waiters"
    line_of: Callable[[Standing], object] = _queue if by_path else lambda place: place.contender.node

    def tell(seen: _Look, now: float, _: str) -> list[str]:
        waiting = _waiters(seen.places)
        late = {line_of(place) for place in seen.places if place.waits_long(now)}
        # The first contender of each path, which holds if any does; or each contender.
        shown: dict[object, Standing] = {}
        for place in seen.places:
            shown.setdefault(line_of(place), place)
        left_out = set() if found.wide else {"TOKEN", "SESSION", "NODE", "BEHIND"}
        left_out |= set() if by_path else {"WAIT"}
        rows = [{"WAIT": str(waiting[_queue(place)]), **place.row(now)} for place in shown.values()]
        rows = [{column: text for column, text in row.items() if column not in left_out} for row in rows]
        lines = table(rows, fits=not found.wide)
        return [styled(RED, line) if each in late else line for each, line in zip([None, *shown], lines, strict=False)]

    return _look(found, None if found.recursive else 1, tell)


def _queue(place: Standing) -> tuple[str, str]:
    return place.path, place.kind


def _waiters(places: Iterable[Standing]) -> Counter[tuple[str, str]]:
    """Return how many wait in each queue."""
    return Counter(_queue(place) for place in places if not place.holds)


def show(found: Namespace) -> int:
    """Show one queue; return the exit code."""

    def tell(seen: _Look, _: float, chroot: str) -> list[str]:
        if seen.places:
            return list(sentences(seen.places, chroot))
        path = escaped(found.path)
        if found.path in seen.kazoos:
            return [f"{path}: kazoo's own recipes use it: {seen.kazoos[found.path]} nodes, which do not tell who holds"]
        return [f"{path} has no lock that anybody holds or waits for"]

    return _look(found, 0, tell)


def _look(found: Namespace, depth: int | None, tell: Callable[[_Look, float, str], list[str]]) -> int:
    """Look once, or again and again; return the exit code."""

    def look(before: _Look | None) -> _Look:
        scan = Scan(link)
        try:
            places = scan.queue(found.path) if depth == 0 else scan.places(found.path, depth)
        except kazoo_errors.NoNodeError:
            if before is None:
                raise
            # An empty container goes by itself, and the next contender makes it again.
            places = []
        for path in scan.unreadable:
            if before is None or path not in before.unreadable:
                say(f"{path} may not be read by this client")
        if found.do == "ls" and found.sort == "waiters":
            waiting = _waiters(places)
            places = sorted(places, key=lambda place: (-waiting[_queue(place)], _queue(place)))
        kazoos = {path: count for path in scan.listings if (count := scan.kazoos(path))}
        if found.watch:
            earlier = [place.contender for place in before.places] if before is not None else ()
            noted = note_holders([place.contender for place in places], earlier, {})
            places = [place._replace(contender=each) for place, each in zip(places, noted, strict=True)]
        return _Look(places, scan.unreadable, kazoos, scan.goes_on)

    def lines(seen: _Look) -> list[str]:
        now = time.time()
        if found.json:
            contenders = [place.as_json(now) for place in seen.places]
            return [document(found.do, {"path": found.path}, contenders=contenders)]
        return tell(seen, now, link.client.chroot)

    with link_of(found) as link:
        if found.watch:
            title = f"zkconcurrent {found.do} {found.path}, every {found.interval:g} s"
            again(link, look, lines, found.interval, None if found.json else title)
        seen = look(None)
    write("".join(f"{line}\n" for line in lines(seen)))
    if found.do == "ls" and seen.kazoos:
        first, *others = seen.kazoos
        more = f" and {len(others)} more" if others else ""
        say(f"kazoo's own recipes use {first}{more}: their nodes do not tell who holds")
    if seen.goes_on and not found.json and (found.do == "ls" or not seen.places):
        say(f"there are nodes further below: `ls -r {found.path}` looks at all")
    elif found.do == "ls" and not (seen.places or seen.kazoos or found.json):
        say("nobody holds a lock there, or waits for one; events, items, values, maps and groups are not listed")
    return Exit.REFUSED if seen.unreadable else 0


def sentences(places: list[Standing], chroot: str) -> Iterator[str]:
    """Return what people read of the contenders of one path; other paths as they are below the chroot."""
    kinds, now = list(dict.fromkeys(place.kind for place in places)), time.time()
    yield escaped(f"{places[0].path}: {' and '.join(kinds)}")
    for place in places:
        each = place.contender
        state = "held" if place.holds else f"{each.position}. waiting"
        modes = [place.kind] if len(kinds) > 1 else []
        modes += [place.mode] if place.mode else []
        mode = f" ({', '.join(modes)})" if modes else ""
        seen = each.first_seen_holding
        held = "" if seen is None else f", first seen to hold {age(now - seen.timestamp())} ago"
        came = "claimed" if place.mode == "claim" else "queued"
        who = f"{each.whole_name()}{held}"
        yield escaped(f"  {state}{mode}: {who}, {came} {age(place.queued_for(now))} ago")
        yield f"    {came} at {each.queued:%F %T} UTC, token {each.token}, session {_session(each)}"
        yield escaped(f"    node {each.node.rpartition('/')[2]}")
        if each.owner is not None:
            until = ": until it is released, whatever becomes of the process" if not each.session else ""
            yield escaped(f"    owner {_short(each.owner)}{until}")
        if each.revoked:
            yield "    asked to release: the request has taken the place of what its node told of it"
        # A limit of its wait, which is over once it holds.
        if each.timeout is not None and not place.holds:
            yield f"    gives up after {each.timeout:.1f} s"
        if place.blocker is not None:
            yield escaped(f"    behind {place.blocker}")
        for path, node in each.holds[:MOST_HOLDS]:
            yield escaped(f"    holds meanwhile {_short(relative(path, chroot), _LONGEST)} (node {_short(node)})")
        if more := len(each.holds[MOST_HOLDS:]):
            yield f"    holds meanwhile {more} more"
