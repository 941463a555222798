"""The election: the candidate that has stood longest leads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.models.history import Call, Model, Outcome

Candidates = tuple[Any, ...]


class Election(Model):
    """Its state is the candidates, the leader first. One whose session ends stands again, as the last.

    A candidate that publishes is a pair, with its data.
    """

    initial: Candidates = ()
    events = ("expired", "gone")

    def apply(self, line: Candidates, call: Call) -> Iterator[tuple[Outcome, Candidates]]:
        """Stand or withdraw, publish (a candidate, data), ask for the leader, or what befalls a candidate.

        One that observes (the leader that it has seen last, in a tuple; None for none) sees another.
        """
        left = tuple(each for each in line if each != call.party)
        leader = line[0] if line else None
        if call.what == "leader":
            yield leader, line
        elif call.what == "observe":
            if call.args != ((leader,),):
                yield leader, line
        elif call.what == "publish":
            if any(each[0] == call.args[0] for each in line):
                yield None, tuple(call.args if each[0] == call.args[0] else each for each in line)
        elif call.what in ("withdraw", "gone"):
            yield None, left
        elif call.what == "stand":
            yield None, line if call.party in line else (*line, call.party)
        else:
            yield None, (*left, call.party) if call.party in line else line
