"""The election: the candidate that has stood longest leads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.models.history import Call, Model, Outcome

Candidates = tuple[Any, ...]


class Election(Model):
    """Its state is the candidates, each with its data, the leader first."""

    initial: Candidates = ()

    def apply(self, line: Candidates, call: Call) -> Iterator[tuple[Outcome, Candidates]]:
        """Publish (a candidate, data), or ask for the leader.

        One that observes (the leader that it has seen last, in a tuple; None for none) sees another.
        """
        leader = line[0] if line else None
        if call.what == "leader":
            yield leader, line
        elif call.what == "observe":
            if call.args != ((leader,),):
                yield leader, line
        elif any(each[0] == call.args[0] for each in line):
            yield None, tuple(call.args if each[0] == call.args[0] else each for each in line)
