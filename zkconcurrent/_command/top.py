"""`top`: the busiest paths, how many wait there, and who holds.

ZooKeeper counts the changes of a node's children: `cversion` grows by one with each contender that comes or leaves. So
one small read tells how busy a path is, and only a path whose number has changed is listed. The requests are spread
over the time, at most 100 in any second, however many paths there are: those on the screen are asked each time, the
others by turns.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .._kazoo.link import Link
from .._kazoo.replies import Reply, kazoo_errors, node_of
from .._protocol.rules import PERMIT
from .look import RESERVED, QueueListing, Scan, Standing, standing, table
from .outcome import Exit, document, escaped, say
from .server import ask_all, link_of
from .watch import again, pause

# In any second at most 100 requests are sent: those of one batch, and as many more as the rate allows.
_BATCH = 10
_RATE = 90
_ROWS = 20
_HEADS = ("PATH", "TYPE", "CAME/S", "LEFT/S", "WAITS", "HOLD", "HOLDER", "AGE")


class _Known:
    """A node, as it was seen last.

    Attributes:
        polled: when.
        came: how many children were made a second, between the last two looks; None after the first.
        left: how many were deleted a second.
        queues: the queues of contenders among its children, now or before; each with those that hold.
    """

    def __init__(self) -> None:
        self.polled = 0.0
        self.came: float | None = None
        self.left: float | None = None
        self.queues: list[tuple[QueueListing, list[str]]] = []
        # The node that was seen, and how often its children had changed: a path may be deleted, and made again.
        self._node = self._changes = self.children = 0
        self._is_listed = False

    def see(self, stat: Any, now: float) -> bool:
        """Note what was seen; return whether the children have changed since they were listed."""
        is_new = stat.czxid != self._node
        changes = stat.cversion - self._changes
        # Each child that comes changes the number of children by one, and each that leaves, too.
        more = stat.numChildren - self.children
        if is_new:
            self.came = self.left = None
        else:
            seconds = now - self.polled
            self.came, self.left = (changes + more) / 2 / seconds, (changes - more) / 2 / seconds
        self.polled = now
        self._node, self._changes, self.children = stat.czxid, stat.cversion, stat.numChildren
        self._is_listed = self._is_listed and not (is_new or changes)
        return not self._is_listed

    def list(self, queues: list[QueueListing]) -> None:
        """Note the queues; one that is empty at the moment is remembered, as a lock is that nobody waits for."""
        self._is_listed = True
        found = [(queue, queue.holders()) for queue in queues]
        self.queues = found or [(queue._replace(names=[]), []) for queue, _ in self.queues]


class Row(NamedTuple):
    """The figures that are told of a primitive.

    Attributes:
        queue: its queue; of a semaphore, that of the permits.
        came: how many contenders came a second; None if that is not known yet.
        left: how many left a second: holders that released, and waiters that gave up.
        waits: how many wait.
        holding: the nodes of those that hold.
        holder: the first of them, once it was read.
        hidden: whether it may not be read by this client.
    """

    queue: QueueListing
    came: float | None
    left: float | None
    waits: int
    holding: list[str]
    holder: Standing | None = None
    hidden: bool = False

    @property
    def head(self) -> str:
        """The path of the first node that holds; empty if none does."""
        return f"{self.queue.folder}/{self.holding[0]}" if self.holding else ""

    def as_json(self, now: float) -> dict[str, Any]:
        """Return what a document of JSON tells of it."""
        return {
            "path": self.queue.path,
            "type": self.queue.kind,
            "came_per_s": None if self.came is None else round(self.came, 3),
            "left_per_s": None if self.left is None else round(self.left, 3),
            "waits": self.waits,
            "held": len(self.holding),
            "holder": None if self.holder is None else self.holder.as_json(now),
        }

    def cells(self, now: float) -> tuple[str, ...]:
        """Return what a line tells of it."""
        rates = ("-" if rate is None else f"{rate:.1f}" for rate in (self.came, self.left))
        holder, age = "may not be read" if self.hidden else "-", "-"
        if self.holder is not None:
            holder, age = " ".join(self.holder.whose()), f"{self.holder.age(now):.1f}s"
        counts = (str(self.waits), str(len(self.holding)))
        return tuple(map(escaped, (self.queue.path, self.queue.kind, *rates, *counts, holder, age)))


class Crawl:
    """All nodes at a path and below it, and what was seen of each.

    Attributes:
        known: the nodes.
        rows: the busiest primitives.
        refused: the paths that this client may not read.
        hidden: the nodes of holders that it may not read.
    """

    def __init__(self, link: Link, path: str) -> None:
        self.known = {path: _Known()}
        self.rows: list[Row] = []
        self.refused: set[str] = set()
        self.hidden: set[str] = set()
        self._link = link
        self._path = path
        self._scan = Scan(link)
        # The order in which they are asked; a path that goes and comes back keeps its one place.
        self._turns: OrderedDict[str, None] = OrderedDict([(path, None)])
        self._holders: dict[str, Standing] = {}
        self._next_batch = 0.0

    def unreadable(self) -> list[str]:
        """Return what this client may not read."""
        return sorted(self.refused | self.hidden)

    def look(self, seconds: float) -> None:
        """Ask the nodes on the screen, then each other one once, as far as the time allows; some of them always."""
        began = time.monotonic()
        self._scan.look_above([self._path])
        shown = dict.fromkeys(row.queue.folder or "/" for row in self.rows)
        self._poll([path for path in shown if path in self.known])
        while batch := self._turn(began):
            self._poll(batch)
            if time.monotonic() > began + seconds:
                break
        self.rows = self._busiest()

    def _turn(self, began: float) -> list[str]:
        """Return the next nodes that were not asked since."""
        batch: list[str] = []
        for _ in range(len(self._turns)):
            if len(batch) == _BATCH:
                break
            path, _ = self._turns.popitem(last=False)
            if path in self.known:
                self._turns[path] = None
                if self.known[path].polled < began:
                    batch.append(path)
        return batch

    def _poll(self, paths: list[str]) -> None:
        """Ask how often the children of nodes have changed; list those that have."""
        changed: list[str] = []
        for path, stat in zip(paths, self._ask(self._link.exists, paths), strict=True):
            known = self.known[path]
            if stat is None or isinstance(stat, Exception):
                self.refused.discard(path)
                if path != self._path:
                    del self.known[path]
                elif not known.polled:
                    raise kazoo_errors.NoNodeError
                else:
                    # It may come back.
                    self.known[path] = _Known()
                    self.known[path].polled = time.monotonic()
            elif known.see(stat, time.monotonic()):
                if known.children:
                    changed.append(path)
                else:
                    known.list([])
        for path, names in zip(changed, self._ask(self._link.children, changed), strict=True):
            if isinstance(names, kazoo_errors.NoAuthError):
                self.refused.add(path)
            elif not isinstance(names, Exception):
                self.refused.discard(path)
                queues, others = self._scan.sort(path, names)
                self.known[path].list(queues)
                for name in others:
                    self._meet(f"{'' if path == '/' else path}/{name}")

    def _meet(self, path: str) -> None:
        if path not in self.known and path != RESERVED:
            self.known[path] = _Known()
            self._turns[path] = None

    def _busiest(self) -> list[Row]:
        """Return the primitives that most contenders leave, then those for which most wait."""
        rows: dict[tuple[str, str], Row] = {}
        for known in self.known.values():
            for queue, holding in known.queues:
                row = Row(queue, known.came, known.left, len(queue.names) - len(holding), holding)
                other = rows.get((queue.path, queue.kind))
                if other is not None:
                    # Of a semaphore: those who wait, and the permits, which tell how busy it is.
                    row, other = (row, other) if queue.rule is PERMIT else (other, row)
                    row = row._replace(waits=row.waits + other.waits)
                rows[queue.path, queue.kind] = row
        busy = [row for row in rows.values() if row.waits or row.holding or row.came or row.left]
        busy.sort(key=lambda row: (-(row.left or 0), -row.waits, row.queue.path))
        return self._with_holders(busy[:_ROWS])

    def _with_holders(self, rows: list[Row]) -> list[Row]:
        """Read the first holder of each row, unless it is known."""
        heads = {row.head: row for row in rows if row.holding}
        self._holders = {path: self._holders[path] for path in heads if path in self._holders}
        self.hidden = set()
        missing = [path for path in heads if path not in self._holders]
        for path, got in zip(missing, self._ask(self._link.get, missing), strict=True):
            if isinstance(got, kazoo_errors.NoAuthError):
                self.hidden.add(path)
            elif not isinstance(got, Exception):
                self._holders[path] = standing(heads[path].queue, heads[path].holding[0], node_of(got))
        return [row._replace(holder=self._holders.get(row.head), hidden=row.head in self.hidden) for row in rows]

    def _ask(self, request: Callable[[str, Reply], None], paths: Sequence[str]) -> list[Any]:
        """Send a request for each path, and not too many at a time; return the results."""
        results: list[Any] = []
        for at in range(0, len(paths), _BATCH):
            batch = paths[at : at + _BATCH]
            pause(self._next_batch - time.monotonic())
            self._next_batch = time.monotonic() + len(batch) / _RATE
            results += ask_all(request, batch)
        return results


def top(found: Namespace) -> int:
    """Show the busiest paths, again and again; return the exit code."""

    def look(_: tuple[float, list[Row]] | None) -> tuple[float, list[Row]]:
        crawl.look(found.interval)
        return time.time(), crawl.rows

    def tell(seen: tuple[float, list[Row]]) -> list[str]:
        now, rows = seen
        first = min(known.polled for known in crawl.known.values())
        # Where there are many, some have not had their turn yet.
        oldest = time.monotonic() - first if first else None
        if found.json:
            more = {
                "rows": [row.as_json(now) for row in rows],
                "nodes": len(crawl.known),
                "oldest_look": None if oldest is None else round(oldest, 3),
                "unreadable": crawl.unreadable(),
            }
            return [document("top", {"path": found.path}, **more)]
        asked = "some not asked yet" if oldest is None else f"all asked within the last {oldest:.1f} s"
        return [f"nodes: {len(crawl.known)}, {asked}", *table([_HEADS, *(row.cells(now) for row in rows)])]

    with link_of(found) as link:
        crawl = Crawl(link, found.path)
        title = f"zkconcurrent top {found.path}, every {found.interval:g} s"
        again(link, look, tell, found.interval, None if found.json else title, found.count)
    for path in crawl.unreadable():
        say(f"{path} may not be read by this client")
    return Exit.REFUSED if crawl.unreadable() else 0
