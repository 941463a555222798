"""The barrier: to wait until as many have come as were agreed on, again and again.

What all must agree on is the state, one node, changed only by writes that fail if it was changed meanwhile. Who comes
makes a node in the present generation. The last trips the barrier, in one `multi` that fails unless the nodes of all
are there: so either every living party of a generation passes or none does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from .._errors import ForeignNodeError
from .._paths import ancestors
from .operations import (
    BadVersion,
    Check,
    Children,
    ConnectionLost,
    CreateEphemeral,
    CreatePersistent,
    DeadlinePassed,
    Delete,
    Discard,
    EnsureContainer,
    Get,
    MarkDeleted,
    Multi,
    NewTicket,
    Node,
    NoNode,
    NotEmpty,
    Recipe,
    Requeue,
    SessionExpired,
    Set,
    Sync,
    Wait,
    Watch,
)
from .queue import find
from .ticket import PREFIX_LENGTH, Ticket

ROLE = "party-"
REMEMBERED = 100
BATCH = 1000  # deletes sent together
MOST = 10_000  # parties
LARGEST = 990_000  # bytes of the checks in one request, which has some more; below `Client.max_request`
CHECK = 17  # bytes of one, besides its path
_GENERATION = re.compile(r"\d{10}")
_FIELDS = {"parties", "generation", "failed", "acting"}


class State(NamedTuple):
    """What the state's node says, and which writing of it.

    Attributes:
        parties: how many must come.
        generation: how often the barrier has tripped or was reset.
        failed: the last generations that were broken or reset; older ones than the list reaches back to count as such.
        acting: all have come, and the last of them runs its action.
        version: of the node.
        born: of the node, its creation zxid.
    """

    parties: int
    generation: int = 0
    failed: tuple[int, ...] = ()
    acting: bool = False
    version: int = 0
    born: int = 0

    @classmethod
    def read(cls, path: str, node: Node) -> State:
        """Read the node.

        Raises:
            ForeignNodeError: that is no barrier's data.
        """
        try:
            said = json.loads(node.data)
            state = cls(**{**said, "failed": tuple(said["failed"])}, version=node.version, born=node.czxid)
            numbers = (state.parties, state.generation, *state.failed)
            if said.keys() != _FIELDS or {type(each) for each in numbers} != {int} or type(state.acting) is not bool:
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ForeignNodeError(path, f"this is no barrier's data: {node.data!r}; use another path") from None
        return state

    @property
    def data(self) -> bytes:
        """What the node says of it."""
        said = {"parties": self.parties, "generation": self.generation}
        return json.dumps({**said, "failed": self.failed, "acting": self.acting}).encode()

    @property
    def broken(self) -> bool:
        """Whether the present generation is."""
        return self.generation in self.failed

    def has_tripped(self, generation: int) -> bool:
        """Whether that generation did."""
        forgotten = len(self.failed) == REMEMBERED and generation < self.failed[0]
        return generation < self.generation and generation not in self.failed and not forgotten

    def act(self) -> State:
        """Return what it becomes when all have come, and the last has an action to run first."""
        return self._replace(acting=True, version=self.version + 1)

    def trip(self) -> State:
        """Return what it becomes when all have come."""
        return self._replace(generation=self.generation + 1, acting=False, version=self.version + 1)

    def fail(self) -> State:
        """Return what it becomes when the present generation breaks."""
        failed = self.failed if self.broken else (*self.failed, self.generation)[-REMEMBERED:]
        return self._replace(failed=failed, acting=False, version=self.version + 1)

    def reset(self) -> State:
        """Return what it becomes when who waits is sent away, and a generation begins."""
        return self.fail()._replace(generation=self.generation + 1)


class View:
    """A barrier as one process last saw it.

    Attributes:
        state: None before it was seen.
        waiting: how many waited in the state's generation.
    """

    def __init__(self, path: str, parties: int) -> None:
        self.path = path
        self.parties = parties
        self.state: State | None = None
        self.waiting = 0

    def see(self, node: Node | None) -> State | None:
        """Take note of the state's node; return what it says.

        Raises:
            ForeignNodeError: it is no barrier's.
            ValueError: it is one for another number of parties.
        """
        if node is None:
            return None
        state = State.read(self.path, node)
        if state.parties != self.parties:
            raise ValueError(f"the barrier {self.path!r} is for {state.parties} parties, not for {self.parties}")
        self.note(state)
        return state

    def note(self, state: State) -> None:
        """Take note of the state."""
        before, self.state = self.state, state
        if before is None or (before.generation, before.born) != (state.generation, state.born) or state.broken:
            self.waiting = 0

    def generation(self, number: int) -> str:
        """Return where the parties of a generation have their nodes."""
        return f"{self.path}/{number:010d}"


class Party:
    """One that has come, or is about to.

    Attributes:
        state: the newest that it knows.
        acts: it has an action to run, should it be the last.
        late: its time is up.
        line: the nodes of its generation, by number, as far as it looks after them.
        highest: the highest number that it has seen.
    """

    def __init__(self, view: View, state: State, ticket: Ticket, acts: bool) -> None:
        self.view = view
        self.state = state
        self.generation = state.generation
        self.ticket = ticket
        self.acts = acts
        self.late = False
        self.line: dict[int, str] = {}
        self.highest = 0

    @property
    def number(self) -> int:
        """How many came before it; numbers have no gaps, unless somebody has left."""
        assert self.ticket.name is not None
        return _number(self.ticket.name)

    @property
    def is_last(self) -> bool:
        """Whether the generation is complete with it."""
        return self.ticket.name is not None and self.number == self.view.parties - 1

    @property
    def goes_on(self) -> bool:
        """Whether its generation does, as far as it knows."""
        return self.state.generation == self.generation and not self.state.broken

    @property
    def is_to_act(self) -> bool:
        """Whether all have come, and it is for this one to run its action."""
        return self.acts and self.is_last and self.goes_on and self.state.acting

    def others_decide(self) -> bool:
        """Return whether its generation is complete, and another party, the last, acts or is about to trip."""
        came_too_late = self.ticket.name is not None and self.number >= self.view.parties
        return came_too_late or (self.state.acting and not self.is_last)

    @property
    def counts(self) -> bool:
        """Whether it is of its generation, or may be: who comes when all are there waits for the next."""
        return self.ticket.sent and (self.ticket.name is None or self.number < self.view.parties)

    def see(self, node: Node | None) -> bool:
        """Take note of the state's node; return whether the party's generation goes on."""
        state = self.view.see(node)
        if state is None or state.born != self.state.born:  # removed, and made anew perhaps, by an operator
            self.state = self.state.fail()
        else:
            self.state = state
        return self.goes_on

    def look_after(self, names: Iterable[str], created: int = 0) -> None:
        """Take note of who is there, and of how many came."""
        self.line = _line(names)
        self.highest = max([self.highest, self.number, created - 1, *self.line])

    def misses_nobody(self) -> bool:
        """Whether all are there still that have come."""
        return all(number in self.line for number in range(min(self.highest + 1, self.view.parties)))

    def outcome(self) -> int | None:
        """Return the arrival index if the generation that is over has tripped.

        Raises:
            StartAgain: the party was not of that generation.
        """
        if not self.counts:
            raise Requeue
        return self.number if self.ticket.name is not None and self.state.has_tripped(self.generation) else None


def wait(view: View, data: bytes, *, acts: bool) -> Recipe[int | Party | None]:
    """Come, and wait until the barrier trips.

    Returns:
        The arrival index; None if the barrier is broken, or was while we waited; the party itself if it is to act now,
        and then to `finish`, or if its time is up, so that it is to `leave`.
    """
    party: Party | None = None
    while True:
        try:
            state = yield from look(view)
            if state.broken:
                return None
            party = Party(view, state, (yield NewTicket(view.generation(state.generation))), acts)
        except DeadlinePassed:
            if party is None:
                raise  # nobody has answered
            party.late = True
            return party
        try:
            return (yield from _to_the_end(party, _arrive(party, data)))
        except Requeue:
            party.ticket.sent = False  # whatever was sent, it counts for nothing


def finish(party: Party) -> Recipe[int | Party | None]:
    """Trip the barrier when the action has run; answers as `wait`."""
    party.acts = False
    return (yield from _to_the_end(party, _stand(party)))


def leave(party: Party) -> Recipe[int | Party | None]:
    """Tell how the party's generation ended; if it goes on, end it, as the party's time is up or its action failed.

    Returns:
        As `wait`; the party itself if it is to `outlast` what another party does.
    """
    return (yield from _to_the_end(party, _end(party, patient=True)))


def outlast(party: Party) -> Recipe[int | Party | None]:
    """Wait beyond the party's time: its generation is complete, and the last party decides; answers as `leave`."""
    return (yield from _to_the_end(party, _look_on(party)))


def _to_the_end(party: Party, waiting: Recipe[int | Party | None]) -> Recipe[int | Party | None]:
    """Wait to whatever end; nothing is left of the party, unless it goes on."""
    try:
        try:
            outcome = yield from waiting
        except SessionExpired:
            if not party.counts:
                raise
            outcome = yield from _end(party)
        if outcome is not party:
            yield Discard(party.ticket)
        return outcome
    except DeadlinePassed:
        if party.late:
            yield Discard(party.ticket)
            raise
        party.late = True
        return party
    except Exception:
        yield Discard(party.ticket)
        raise


def _arrive(party: Party, data: bytes) -> Recipe[int | Party | None]:
    """Make the party's node, if its generation is still the present one, and wait."""
    ticket, state = party.ticket, party.state
    try:
        unchanged = Check(party.view.path, state.version)
        _, names = yield Multi(ticket, (unchanged, CreateEphemeral(ticket, ROLE, data))), Children(ticket.path, ticket)
    except (NoNode, BadVersion) as refusal:
        yield MarkDeleted(ticket)
        if isinstance(refusal, NoNode):  # the first of its generation
            with suppress(NoNode):  # of the barrier itself, it seems
                yield CreatePersistent(ticket.path, b"")
        raise Requeue from None
    except ConnectionLost:
        names = yield from find(ticket)
    party.look_after(names)
    if party.number == 0:
        yield from _tidy_up(party)
    return (yield from _stand(party))


def _tidy_up(party: Party) -> Recipe[None]:
    """Remove what generations that are over have left; where somebody is still on the way out, the next will do it.

    They are no containers, which would go whenever they are empty: their numbers would start anew, and nobody would
    miss those who came and went before.
    """
    path = party.view.path
    names = yield Children(path, party.ticket)
    old = [name for name in names if name.isdecimal() and int(name) < party.generation]
    if old:
        with suppress(NotEmpty):
            yield tuple(Delete(f"{path}/{name}") for name in old)


def _stand(party: Party) -> Recipe[int | Party | None]:
    """Wait among the others; the last trips the barrier.

    The first watches over all nodes, the others over the first one's: whoever goes is missed, and each that comes
    wakes only the first.
    """
    view, ticket = party.view, party.ticket
    watching = False
    while party.misses_nobody():
        if party.is_last:
            outcome = yield from _lead(party)
            if outcome is not None:
                return outcome
        elif watching:
            yield Wait(ticket)
        others: tuple[Get | Children, ...] = (Get(ticket.path, ticket), Children(ticket.path, ticket))
        if not (party.number == 0 or party.is_last):
            others = (Get(f"{ticket.path}/{party.line[0]}", ticket),)
        node, there, *names = yield Watch(ticket, (Get(view.path, ticket), *others))
        watching = True
        if not party.see(node):
            return party.outcome()
        if names:
            party.look_after(names[0], 0 if there is None else there.created)
            view.waiting = len(party.line)
        elif there is None:
            del party.line[0]
    return (yield from _end(party))  # somebody came and went


def _lead(party: Party) -> Recipe[int | Party | None]:
    """Trip the barrier, or mark that the action begins, all being there; None if it did not come to that."""
    view, ticket = party.view, party.ticket
    if party.acts and party.state.acting:
        return party  # the answer was lost
    changed = party.state.act() if party.acts else party.state.trip()
    there = (Check(f"{ticket.path}/{party.line[number]}") for number in range(view.parties))
    try:
        yield (
            Multi(ticket, (*there, Set(view.path, changed.data, party.state.version))),
            CreatePersistent(view.generation(party.generation + 1), b""),  # spares the next to come two round trips
        )
    except (NoNode, BadVersion, ConnectionLost):
        yield Sync(view.path, ticket)  # the next read tells why, or whether it was done
        return None
    party.state = changed
    view.note(changed)
    return party if party.acts else party.number


def _end(party: Party, *, patient: bool = False) -> Recipe[int | Party | None]:
    """Tell how the party's generation ended; if it goes on, end it, as somebody of it is missing, or goes.

    One round trip decides: the write fails if the state has changed, and the read behind it tells what has changed it.

    Args:
        party: the one that asks; its session may be over.
        patient: the party itself is the answer if another one is about to decide.
    """
    view, ticket = party.view, party.ticket
    if ticket.sent and ticket.name is None:
        with suppress(Requeue):  # it was not made, or went with its session
            yield from find(ticket)
    while party.goes_on:
        if patient and party.others_decide():
            return party
        try:
            _, node = yield Set(view.path, party.state.fail().data, party.state.version), Get(view.path)
        except ConnectionLost:
            _, node = yield Sync(view.path), Get(view.path)
        party.see(node)
    if party.late and not party.counts:  # it would have come to the next
        yield from abort(view, late=True)
        return None
    return party.outcome()


def _look_on(party: Party) -> Recipe[int | Party | None]:
    """Wait once for something to change, as long as the last party is there; then the party itself is the answer."""
    node, names = yield Watch(party.ticket, (Get(party.view.path), Children(party.ticket.path)))
    if party.see(node) and party.view.parties - 1 in _line(names):
        with suppress(DeadlinePassed):
            yield Wait(party.ticket)
        return party
    return (yield from _end(party))


def look(view: View) -> Recipe[State]:
    """Return the state as the leader has it; make it if there is none."""
    while True:
        _, node = yield Sync(view.path), Get(view.path)
        state = view.see(node)
        if state is not None:
            return state
        try:
            yield CreatePersistent(view.path, State(view.parties).data)
        except NoNode:
            yield tuple(EnsureContainer(above) for above in ancestors(view.path))


def glance(view: View) -> Recipe[State]:
    """Return the state as the leader has it, and what it would be if there is none."""
    _, node = yield Sync(view.path), Get(view.path)
    return view.see(node) or State(view.parties)


def count(view: View) -> Recipe[int]:
    """Return how many wait."""
    state = yield from glance(view)
    if not state.broken:
        names = yield Children(view.generation(state.generation))
        view.waiting = sum(number < view.parties for number in _line(names))
    return view.waiting


def abort(view: View, late: bool = False) -> Recipe[None]:
    """Break the barrier; if only because somebody's time is up, not while an action runs."""
    begun: State | None = None
    while True:
        state = yield from look(view)
        begun = begun or state
        # That it was broken, and reset since, may have been our own write, or one that makes it moot.
        if state.broken or begun.generation in state.failed or (late and state.acting):
            return
        begun = state
        if (yield from _write(view, state, state.fail())):
            return


def reset(view: View) -> Recipe[None]:
    """Send away who waits, and begin a generation."""
    begun = state = yield from look(view)
    # Once that generation is over, whoever waited has gone: by our own write, or by one that makes it moot.
    while (state.generation, state.born) == (begun.generation, begun.born):
        if (yield from _write(view, state, state.reset())):
            return
        state = yield from look(view)


def _write(view: View, state: State, changed: State) -> Recipe[bool]:
    """Change the state, if it is as it was; if that was not done, or may not have been, the next look tells."""
    with suppress(ConnectionLost):
        if (yield Set(view.path, changed.data, state.version)):
            view.note(changed)
            return True
    return False


def destroy(view: View) -> Recipe[bool]:
    """Remove the barrier; return whether it is gone: not if somebody is there.

    Raises:
        ForeignNodeError: the path has something else; that is left alone.
    """
    while True:
        _, node, names = yield Sync(view.path), Get(view.path), Children(view.path)
        if node is None:
            return True
        State.read(view.path, node)
        foreign = [name for name in names if not _GENERATION.fullmatch(name)]
        if foreign:
            raise ForeignNodeError(view.path, f"there are children that are no barrier's: {foreign[:3]}; see whose")
        try:
            for some in range(0, len(names), BATCH):
                yield tuple(Delete(f"{view.path}/{name}") for name in names[some : some + BATCH])
            yield Delete(view.path, version=node.version)
            return True
        except NotEmpty:
            return False
        except BadVersion:
            pass  # somebody has used it meanwhile


def most_parties(path: str) -> int:
    """Return how many parties a barrier can have: to trip is one request, with a check of each party's node.

    Args:
        path: the barrier's, as the server knows it.
    """
    node = f"{path}/{'0' * 10}/{'_' * PREFIX_LENGTH}{ROLE}{'0' * 10}"
    return min(MOST, LARGEST // (CHECK + len(node.encode())))


def _number(name: str) -> int:
    return int(name.rpartition(ROLE)[2])


def _line(names: Iterable[str]) -> dict[int, str]:
    """Return the parties' nodes, by number."""
    return {_number(name): name for name in names if name.rpartition(ROLE)[2].isdecimal() and ROLE in name}
