"""Points: some work at one size, with all that the servers counted and computed meanwhile; and those that are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from benchmarks.meter import Cost
from zkconcurrent._protocol.session_lease import Lease

POINTS = Path(__file__).with_name("points.json")


class Point(NamedTuple):
    """Some work, at one size.

    Attributes:
        part: what was done.
        size: how many did it, or how much there was.
        who: did it: a contestant.
        how: more about it; of sessions, the query of their URL.
        servers: 1 or 3.
        sync: whether the servers wait for their disk.
        work: how many operations; or seconds, if nothing was done but to hold.
        seconds: how long it took; other work on the machine makes it longer.
        cost: what the servers counted and computed.
        heap: bytes that it added to what the leader's Java keeps; 0 if it was not measured.
    """

    part: str
    size: int
    who: str
    how: str
    servers: int
    sync: bool
    work: float
    seconds: float
    cost: Cost
    heap: float = 0.0

    @property
    def series(self) -> tuple[object, ...]:
        """All that a series has in common, which differs in sizes alone."""
        return (self.part, self.who, self.how, self.servers, self.sync)


class Run(NamedTuple):
    """The points that are kept, and the machine that they were measured on last."""

    machine: dict[str, str]
    points: list[Point]

    def write(self) -> None:
        """Keep them, one a line."""
        lines = ",\n".join(json.dumps({**each._asdict(), "cost": each.cost._asdict()}) for each in self.points)
        POINTS.write_text(f'{{"machine": {json.dumps(self.machine, indent=1)},\n"points": [\n{lines}\n]}}\n', "utf-8")

    @classmethod
    def read(cls) -> Run:
        """Return them."""
        kept = json.loads(POINTS.read_text("utf-8"))
        return cls(kept["machine"], [Point(**{**each, "cost": Cost(**each["cost"])}) for each in kept["points"]])


def lease_of(query: str) -> Lease:
    """Return the lease of a session by the options in its URL; it knows when the session sends what."""
    options = {name: float(value) for name, value in (each.split("=") for each in query.split("&"))}
    timeout = options.pop("timeout")
    lease = Lease(0, **options)
    lease.note_opened(0.0, timeout)
    return lease
