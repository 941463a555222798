"""Semaphores: never more permits out than there are, in the order of arrival."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.models.history import Call, Outcome
from tests.models.lock import Line, Lock, Place


class Semaphore(Lock):
    """Wants are numbers of permits; each permit that is out is a place of its own. A release of more adds one."""

    def __init__(self, size: int) -> None:
        self.initial = Line(size=size)

    def together(self, places: Sequence[Place], size: int) -> bool:
        return sum(each.wants for each in places) <= size

    def admits(self, line: Line, place: Place, ahead: tuple[Place, ...]) -> bool:
        return not ahead and super().admits(line, place, ahead)

    def enter(self, line: Line, place: Place) -> Line:
        permit = place._replace(wants=1, call=None)
        return line._replace(inside=(*line.inside, *[permit] * place.wants))

    def to_release(self, line: Line, call: Call) -> Place | None:
        """A lost one of its own; else one that it holds, or its process; else a lost one of its process."""
        theirs = [each for each in line.lost + line.inside if each.party == call.party and not each.gone]
        theirs.sort(key=lambda each: each.actor == call.actor)
        mine = [each for each in theirs if each.actor == call.actor and each in line.lost]
        alive = [each for each in theirs if each not in line.lost]
        return next(iter((mine or alive or theirs)[::-1]), None)

    def _release(self, line: Line, call: Call) -> Iterator[tuple[Outcome, Line]]:
        if self.to_release(line, call) is None and self.nothing_held is RuntimeError:
            yield None, line._replace(size=line.size + 1)
        else:
            yield from super()._release(line, call)


class BoundedSemaphore(Semaphore):
    """A release of more is refused."""

    nothing_held = ValueError
