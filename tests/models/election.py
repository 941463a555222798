"""The election: the candidate that has stood longest leads."""

from __future__ import annotations

from collections.abc import Iterator

from tests.models.history import Call, Model, Outcome

Candidates = tuple[str, ...]


class Election(Model):
    """Its state is the candidates, the leader first. One whose session ends stands again, as the last."""

    initial: Candidates = ()
    events = ("expired", "gone")

    def apply(self, line: Candidates, call: Call) -> Iterator[tuple[Outcome, Candidates]]:
        """Stand or withdraw, or what befalls a candidate."""
        left = tuple(each for each in line if each != call.party)
        if call.what in ("withdraw", "gone"):
            yield None, left
        elif call.what == "stand":
            yield None, line if call.party in line else (*line, call.party)
        else:
            yield None, (*left, call.party) if call.party in line else line
