"""The lock and the reentrant lock: one is inside, the others come in in the order in which they came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from tests.models.history import OPEN, QUEUES, Call, Model, Outcome
from zkconcurrent import LockLostError


class Place(NamedTuple):
    """A place in the line.

    Attributes:
        actor, party: whose it is.
        wants: in which role, or how many permits.
        call: the acquire, of a place in the queue.
        levels: how many releases it owes.
        gone: its actor has left it while cut off from the service, which does not know yet.
    """

    actor: str
    party: str
    wants: Any = None
    call: Call | None = None
    levels: int = 1
    gone: bool = False


class Line(NamedTuple):
    """The state of a lock.

    Attributes:
        inside: the places that hold.
        queue: those that wait, in their order.
        lost: holds that have ended with their session, until a release settles that.
        cut: the parties that are cut off from the service.
        known: the calls that have queued, maybe in a session that is over.
        size: how many permits there are.
    """

    inside: tuple[Place, ...] = ()
    queue: tuple[Place, ...] = ()
    lost: tuple[Place, ...] = ()
    cut: frozenset[str] = frozenset()
    known: frozenset[Call] = frozenset()
    size: int = 1


class Lock(Model):
    """One holds. Any thread of its process may release it. Acquires come in in the order in which they queued.

    A session that ends takes its holds away: each next call of the holder says so, until a release has settled it. Its
    acquires queue again.
    """

    initial: Line = Line()
    events = ("cut", "restored", "expired", "gone")
    nothing_held: ClassVar[type[Exception]] = RuntimeError

    def together(self, places: Sequence[Place], size: int) -> bool:
        """Return whether these may be inside at once, with so many permits."""
        return len(places) <= 1

    def orders(self, before: Place, after: Place) -> bool:
        """Return whether the later hold has the higher fencing token: it does if they can't be inside at once."""
        return not self.together((before, after), self.initial.size)

    def admits(self, line: Line, place: Place, ahead: tuple[Place, ...]) -> bool:
        """Return whether a place may come in beside those inside, with these ahead of it in the queue."""
        return self.together((*line.inside, *ahead, place), line.size)

    def enter(self, line: Line, place: Place) -> Line:
        """Return the line with a place inside."""
        return line._replace(inside=(*line.inside, place._replace(call=None)))

    def reenter(self, line: Line, place: Place) -> tuple[Outcome, Line] | None:
        """Return what comes of an acquire by an actor that holds, if it needs no place."""
        return None

    def to_release(self, line: Line, call: Call) -> Place | None:
        """Return the place that a release ends, alive or lost: its actor's, else the newest of its process."""
        held = _held(line, actor=call.actor) or _held(line, party=call.party)
        return held[-1] if held else None

    def apply(self, line: Line, call: Call) -> Iterator[tuple[Outcome, Line]]:
        """Acquire (wants), release (wants), or what befalls a party."""
        if call.what == "acquire":
            yield from self._acquire(line, call)
        elif call.what == "release":
            yield from self._release(line, call)
        else:
            yield None, self._befalls(line, call.what, call.party)

    def _acquire(self, line: Line, call: Call) -> Iterator[tuple[Outcome, Line]]:
        place = Place(call.actor, call.party, *call.args, call=call)
        has_lost = any(each.actor == call.actor for each in line.lost)
        came = call in line.known
        queued = place in line.queue
        ahead = line.queue[: line.queue.index(place)] if queued else line.queue
        after = line._replace(known=line.known - {call}, queue=_without(line.queue, place))
        if call.given_up is not OPEN:
            if queued and call.party in line.cut:
                after = after._replace(queue=_changed(line.queue, place, place._replace(call=None, gone=True)))
            yield call.given_up, after
        elif has_lost and not came:
            yield LockLostError, after
        elif not came and (again := self.reenter(line, place)) is not None:
            yield again
        elif call.party in line.cut:
            if call.timeout is not None:
                yield False, after
            elif not came:
                yield QUEUES, line._replace(known=line.known | {call})
        elif self.admits(line, place, ahead):
            yield (LockLostError, after) if has_lost else (True, self.enter(after, place))
        else:
            if call.timeout is not None:
                yield False, after
            if not queued:
                yield QUEUES, line._replace(known=line.known | {call}, queue=(*line.queue, place))

    def _release(self, line: Line, call: Call) -> Iterator[tuple[Outcome, Line]]:
        place = self.to_release(line, call)
        if place is None:
            yield self.nothing_held, line
            return
        left: Place | None = place._replace(levels=place.levels - 1) if place.levels > 1 else None
        if place in line.lost:
            yield LockLostError, line._replace(lost=_changed(line.lost, place, left))
            return
        if left is None and place.party in line.cut:
            left = place._replace(gone=True)
        yield None, line._replace(inside=_changed(line.inside, place, left))

    def _befalls(self, line: Line, what: str, party: str) -> Line:
        theirs = [each for each in line.inside if each.party == party]
        if what == "cut":
            return line._replace(cut=line.cut | {party})
        if what == "restored":
            inside, queue = (
                tuple(each for each in places if not (each.gone and each.party == party))
                for places in (line.inside, line.queue)
            )
            return line._replace(cut=line.cut - {party}, inside=inside, queue=queue)
        lost = (*line.lost, *(each for each in theirs if not each.gone))
        inside, queue = (tuple(each for each in places if each.party != party) for places in (line.inside, line.queue))
        if what == "gone":
            lost = tuple(each for each in lost if each.party != party)
            known = frozenset(each for each in line.known if each.party != party)
            line = line._replace(cut=line.cut - {party}, known=known)
        return line._replace(inside=inside, queue=queue, lost=lost)


class UnfairLock(Lock):
    """A lock that the threads of a process hand to each other, with one fencing token, whoever else waits."""

    def admits(self, line: Line, place: Place, ahead: tuple[Place, ...]) -> bool:
        return super().admits(line, place, ())

    def orders(self, before: Place, after: Place) -> bool:
        return before.party != after.party


class RLock(Lock):
    """A lock that its holder acquires again; each level is released by the holder."""

    def reenter(self, line: Line, place: Place) -> tuple[Outcome, Line] | None:
        held = next((each for each in _held(line, actor=place.actor) if each.wants == place.wants), None)
        if held is None:
            return None
        return True, line._replace(inside=_changed(line.inside, held, held._replace(levels=held.levels + 1)))

    def to_release(self, line: Line, call: Call) -> Place | None:
        return next((each for each in _held(line, actor=call.actor) if [each.wants] == [*call.args]), None)


def _held(line: Line, **whose: str) -> list[Place]:
    """Return the places with which an actor or a party holds, or whose loss is to be settled; the newest last."""
    ((field, name),) = whose.items()
    return [each for each in line.lost + line.inside if getattr(each, field) == name and not each.gone]


def _changed(places: tuple[Place, ...], old: Place, new: Place | None) -> tuple[Place, ...]:
    at = places.index(old)
    return (*places[:at], *([] if new is None else [new]), *places[at + 1 :])


def _without(places: tuple[Place, ...], place: Place) -> tuple[Place, ...]:
    return tuple(each for each in places if each != place)
