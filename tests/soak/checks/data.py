"""The checker of numbers, values and maps: the model of each path judges the history of its calls.

There are two excuses. A change whose process was killed, or whose outcome is unknown, may have been made, soon. And a
leader that has lost its followers answers reads with an old state, until it resigns.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tests.models import history as judge
from tests.models.history import OPEN
from tests.soak.checks.history import SLOW, Call, History, Violation
from tests.soak.events import What

READS = ("get", "setdefault")


@dataclass
class Record:
    """The calls of one path, in the order in which they began."""

    history: History
    path: str

    @cached_property
    def calls(self) -> list[Call]:
        """Every call, also the keeper's."""
        found: dict[tuple[str, int], list[Call]] = defaultdict(list)
        for event in (event for event in self.history.events if event.path == self.path):
            calls = found[event.process, event.thread]
            if event.what is What.ASKS:
                calls.append(Call(event, None))
            elif calls:
                calls[-1] = Call(calls[-1].asked, event)
        return sorted((call for calls in found.values() for call in calls), key=lambda call: call.asked.at)

    def judged(self, call: Call) -> judge.Call | None:
        """Return the call as the model sees it; None if it shows nothing."""
        asked, outcome = call
        what, *args = json.loads(asked.note)
        if outcome is not None and outcome.what is What.ANSWERED:
            value, ended = json.loads(outcome.note), outcome.at
        else:
            value = OPEN
            since = self.history.kills.get(asked.process, math.inf) if outcome is None else outcome.at
            ended = since + SLOW
        if what in READS and (value is OPEN or self._stale(call)):
            return None
        # A change that is refused, as another came first, changes nothing.
        if value is False:
            return None
        actor = f"{asked.process}/{asked.thread} at {asked.at:.4f}"
        return judge.Call(actor, what, tuple(args), begun=asked.at, ended=ended, outcome=value)

    def _stale(self, call: Call) -> bool:
        """Whether a leader without followers may have answered."""
        ended = math.inf if call.outcome is None else call.outcome.at
        return any(
            fault.kind.startswith("leader") and fault.at < ended and call.asked.at < fault.until + self.history.timeout
            for fault in self.history.faults
        )


def check_data(history: History) -> Iterator[Violation]:
    """Yield each path, or key, whose calls no order explains."""
    for path, model in history.data.items():
        record, roles = Record(history, path), defaultdict(list)
        for call in record.calls:
            if (judged := record.judged(call)) is not None:
                roles[call.asked.role].append(judged)
        for role, calls in roles.items():
            try:
                judge.check(model, calls)
            except judge.Violation as error:
                yield Violation("order", calls[-1].begun, f"{path}, {role}: {error}", path)
