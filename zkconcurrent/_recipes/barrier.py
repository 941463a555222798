"""The cyclic barrier: each party waits until all parties have arrived; then the next generation begins.

All parties agree by one node, the state. A party changes it by a write that fails if the state has changed since it was
read. Each party creates a node in the current generation, in one `multi` that fails if the state is not the one it has
read, so no party can join a generation that is over or broken. The node's number is the arrival index. The party with
the last number trips the barrier, in one `multi` that checks the node of every party and writes the next generation
into the state: a party that died just before fails it for all; one that dies just after has passed. A second write,
sent with it, creates the next generation's node; it decides nothing, and saves the next party two round trips. A later
read, after a lost reply or in another session, finds the outcome in the state: a generation that is over has tripped
unless it is in the list of failed ones.

Numbers without a gap make departures visible. The first party watches the children of its generation, and reads how
many were ever created there, so it also notices a party that came and went between two reads. Every other party watches
the first party's node and the state. So an arrival wakes one, and any other departure than a cancelled task's breaks
the barrier. A generation's node is therefore no container: one that the server reaped while empty would begin its
numbers anew.

A cancelled task leaves, and the barrier keeps filling. One `multi` deletes the party's node and writes into the
generation's node that it has withdrawn; it fails if the state has changed. So a leave and a trip exclude each other:
after the trip the leave fails, and the party was counted; after the leave the trip fails, as a node that it checks is
gone. A party that misses another reads the generation's node once more before it breaks the barrier. It reads the names
first and that node after them, as both change at once: in the other order, a leave between the two reads would look
like a death.

The place of a party that leaves, its *seat*, goes to the next number that has none. So every party keeps its arrival
index until it leaves, and needs no newer list to know it. A party without a seat arrived when all seats were taken; it
watches the generation's node, in case it gets one. A leave does not begin another generation, in which the others would
have to arrive anew: so a party that is out of reach just then, and dies, is still missed. While the action runs, a
party that leaves stays counted: the trip no longer checks its node.

The leave runs in the background, so that the cancel need not wait. It has no deadline while a server is in reach: a
deadline would break the barrier where many tasks leave at once, or over slow links. Once no server has been in reach
for a session timeout, it ends: the session is over and the party's node is gone, which breaks the barrier as any death
does.

The action runs outside any recipe, between two such writes. The first marks the state as acting. From then on the other
parties do not break the barrier at their deadlines, unless the acting party is gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from .._arguments.limits import CHECK_BYTES
from .._errors import RefusedError, ZkConcurrentError
from .._protocol.operations import (
    MALFORMED,
    BadVersion,
    Check,
    CheckChroot,
    Children,
    ConnectionLost,
    CreateEphemeral,
    CreatePersistent,
    DeadlinePassed,
    Delete,
    Discard,
    Failure,
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
    SetNode,
    Sync,
    Wait,
    Watch,
    next_version,
)
from .._protocol.ticket import PREFIX_LENGTH, Ticket
from .destroy import Tree
from .lock import find
from .nodes import foreign_data, make

ROLE = "party-"
REMEMBERED = 100
MOST = 10_000  # parties
# The checks in a trip take at most this many bytes, so the whole request stays below `Client.max_request`.
LARGEST = 990_000
_GENERATION = re.compile(r"\d{10}")
_FIELDS = {"parties", "generation", "failed", "acting"}
_SEATS_FIELDS = {"seats", "gone"}


class BarrierContent(NamedTuple):
    """The content of the state's node, with the node's version.

    Attributes:
        parties: the number of parties that must arrive.
        generation: how many times the barrier has tripped or was reset.
        failed: the most recent generations that were broken or reset. Once the list is full, a generation older than
            its first entry counts as failed.
        acting: all parties have arrived, and the last one runs its action.
        version: the node's version.
        born: the node's creation zxid.
    """

    parties: int
    generation: int = 0
    failed: tuple[int, ...] = ()
    acting: bool = False
    version: int = 0
    born: int = 0

    @classmethod
    def read(cls, path: str, node: Node) -> BarrierContent:
        """Parse the node.

        Raises:
            ForeignNodeError: the data is not a barrier's.
        """
        try:
            said = json.loads(node.data)
            state = cls(**{**said, "failed": tuple(said["failed"])}, version=node.version, born=node.czxid)
            numbers = (state.parties, state.generation, *state.failed)
            if said.keys() != _FIELDS or {type(each) for each in numbers} != {int} or type(state.acting) is not bool:
                raise ValueError
        except MALFORMED:
            raise foreign_data(path, node.data, "it is not a barrier's") from None
        return state

    @property
    def data(self) -> bytes:
        """The data to write to the node."""
        said = {"parties": self.parties, "generation": self.generation}
        return json.dumps({**said, "failed": self.failed, "acting": self.acting}).encode()

    @property
    def broken(self) -> bool:
        """Whether the current generation is broken."""
        return self.generation in self.failed

    def has_tripped(self, generation: int) -> bool:
        """Return whether that generation tripped."""
        forgotten = len(self.failed) == REMEMBERED and generation < self.failed[0]
        return generation < self.generation and generation not in self.failed and not forgotten

    def act(self) -> BarrierContent:
        """Return the next state once all parties have arrived and the last must run its action first."""
        return self._replace(acting=True, version=next_version(self.version))

    def trip(self) -> BarrierContent:
        """Return the next state when the barrier trips."""
        return self._replace(generation=self.generation + 1, acting=False, version=next_version(self.version))

    def fail(self) -> BarrierContent:
        """Return the next state when the current generation breaks."""
        failed = self.failed if self.broken else (*self.failed, self.generation)[-REMEMBERED:]
        return self._replace(failed=failed, acting=False, version=next_version(self.version))

    def reset(self) -> BarrierContent:
        """Return the next state of a reset: the current generation fails, and the next begins."""
        return self.fail()._replace(generation=self.generation + 1)


class ArrivalIndexes:
    """The parties that complete a generation, by arrival index: the content of the generation's node.

    The party with the number n has seat n. If a party withdraws, its seat goes to the party with the lowest number that
    had no seat; that party may arrive later. So a party keeps its seat until it withdraws: content that is out of date
    may lack a party's seat, but never shows another one. A party without a seat waits for the next generation.

    Attributes:
        parties: the number of seats.
        passed: for each seat that was passed on, the number that now has it.
        gone: the parties that have withdrawn without passing on a seat: parties without a seat, and parties that
            withdrew during the action, which stay counted.
        version: the node's version.
    """

    def __init__(
        self, parties: int, passed: Mapping[int, int] | None = None, gone: Collection[int] = (), version: int = 0
    ) -> None:
        self.parties = parties
        self.passed = dict(passed or {})
        self.gone = frozenset(gone)
        self.version = version
        self._seats = {number: seat for seat, number in self.passed.items()}
        # The generation is complete once the party with this number has arrived.
        self.top = max([parties - 1, *self._seats])

    @classmethod
    def read(cls, path: str, parties: int, node: Node) -> ArrivalIndexes:
        """Parse the node.

        Raises:
            ForeignNodeError: the data is not a generation's.
        """
        if not node.data:
            return cls(parties, version=node.version)
        try:
            said = json.loads(node.data)
            if said.keys() != _SEATS_FIELDS:
                raise ValueError
            passed = {int(seat): int(number) for seat, number in said["seats"].items()}
            return cls(parties, passed, [int(number) for number in said["gone"]], node.version)
        except MALFORMED:
            raise foreign_data(path, node.data, "it is not a barrier's") from None

    @property
    def data(self) -> bytes:
        """The data to write to the node."""
        return json.dumps({"seats": self.passed, "gone": sorted(self.gone)}).encode()

    def seat(self, number: int) -> int | None:
        """Return the party's seat; None if it has none."""
        if number < self.parties:
            return None if number in self.passed else number
        return self._seats.get(number)

    def counted(self) -> list[int]:
        """Return the parties whose nodes must exist at the trip."""
        numbers = (self.passed.get(seat, seat) for seat in range(self.parties))
        return [number for number in numbers if number not in self.gone]

    def withdraw(self, number: int, *, acting: bool) -> ArrivalIndexes:
        """Return the seats once the party has withdrawn.

        Args:
            number: the party's number.
            acting: the generation is complete and its action runs, so the party stays counted.
        """
        seat = self.seat(number)
        if seat is None or acting:
            return ArrivalIndexes(self.parties, self.passed, self.gone | {number})
        heir = self.top + 1
        while heir in self.gone:
            heir += 1
        gone = (each for each in self.gone if not self.top < each < heir)
        return ArrivalIndexes(self.parties, {**self.passed, seat: heir}, frozenset(gone))


class View:
    """A barrier as one process last saw it.

    Attributes:
        state: the last state read; None before the first read.
        waiting: how many parties waited in that state's generation.
        highest: the highest number of a party that was seen in that generation; -1 if none was. It tells which of two
            looks at the parties is the later one.
        notes: how often a call other than a query has recorded a state.
    """

    def __init__(self, path: str, parties: int) -> None:
        self.path = path
        self.parties = parties
        self.state: BarrierContent | None = None
        self.waiting = 0
        self.highest = -1
        self.notes = 0

    @property
    def tree(self) -> Tree:
        """What `destroy` removes: the generations are leaves, unless parties are in them."""
        return Tree(self.path, "Barrier", partial(BarrierContent.read, self.path), {self.path: _GENERATION.fullmatch})

    def see(self, node: Node | None) -> BarrierContent | None:
        """Record what was read of the state's node; return the state. Errors as `read`."""
        if node is None:
            return None
        state = self.read(node)
        self.note(state)
        return state

    def read(self, node: Node) -> BarrierContent:
        """Return what was read of the state's node.

        Raises:
            ForeignNodeError: the node is not a barrier's.
            ValueError: the barrier is for another number of parties.
        """
        state = BarrierContent.read(self.path, node)
        if state.parties != self.parties:
            raise ValueError(
                f"the barrier {self.path!r} is for {state.parties} parties, not for {self.parties}: all clients must "
                "give the same; destroy() it if no client uses it any more"
            )
        return state

    def note(self, state: BarrierContent, line: Collection[int] = (), highest: int = -1) -> None:
        """Record the state, and the line of the parties if that is known, with the highest number seen so far."""
        self.notes += 1
        self._show(state)
        # A lower number means that a query has looked at the parties later.
        if line and highest >= self.highest:
            self.waiting, self.highest = min(len(line), self.parties), highest

    def keep(self, state: BarrierContent, line: Collection[int] | None, notes: int) -> None:
        """Record what a query has read, unless it may be older than what other calls have recorded since `notes`."""
        highest = max(line or (), default=-1)
        if self.notes == notes:
            self._show(state)
        elif not self._is_of(state) or highest <= self.highest:
            return
        if line is not None:
            self.waiting, self.highest = min(len(line), self.parties), max(self.highest, highest)

    def _show(self, state: BarrierContent) -> None:
        if not self._is_of(state):
            self.waiting, self.highest = 0, -1
        self.state = state

    def _is_of(self, state: BarrierContent) -> bool:
        """Return whether a state is of the generation that was last seen, and neither state is broken."""
        seen = self.state
        return (
            seen is not None
            and (seen.generation, seen.born) == (state.generation, state.born)
            and not (seen.broken or state.broken)
        )

    def generation(self, number: int) -> str:
        """Return the parent of the parties' nodes in a generation."""
        return f"{self.path}/{number:010d}"


class Party:
    """A party that has arrived, or is about to.

    Attributes:
        state: the newest state that the party knows.
        acts: the party has an action to run if it arrives last.
        late: its deadline has passed.
        struck: the error that has interrupted or cancelled its wait.
        line: the nodes of its generation that the party watches, by number.
        trusts_first: it has seen the nodes of all parties before it, and relies on the first party to watch them;
            `line` then has the first party only.
        highest: the highest number that the party has seen.
        seats: the seats of its generation, as the party last read them.
    """

    def __init__(self, view: View, state: BarrierContent, ticket: Ticket, acts: bool) -> None:
        self.view = view
        self.state = state
        self.generation = state.generation
        self.ticket = ticket
        self.acts = acts
        self.late = False
        self.struck: BaseException | None = None
        self.line: dict[int, str] = {}
        self.trusts_first = False
        self.highest = 0
        self.seats = ArrivalIndexes(view.parties)

    @property
    def number(self) -> int:
        """How many parties arrived before it. Numbers have a gap only if a party has left."""
        assert self.ticket.name is not None
        return _number(self.ticket.name)

    @property
    def seat(self) -> int | None:
        """Its arrival index; None if it has no seat, as far as it knows."""
        return None if self.ticket.name is None else self.seats.seat(self.number)

    @property
    def is_last(self) -> bool:
        """Whether its arrival completes the generation."""
        return self.seat is not None and self.number == self.seats.top

    @property
    def watches_all(self) -> bool:
        """Whether it watches the nodes of all: it is the first, the last, or may yet get a seat."""
        return self.seat is None or self.is_last or self.number == min(self.line)

    @property
    def goes_on(self) -> bool:
        """Whether its generation is still open, as far as it knows."""
        return self.state.generation == self.generation and not self.state.broken

    @property
    def is_to_act(self) -> bool:
        """Whether all parties have arrived and this one must run its action."""
        return self.acts and self.is_last and self.goes_on and self.state.acting

    def others_decide(self) -> bool:
        """Return whether its generation is complete, and the last party, which is another, acts or is about to trip."""
        came_too_late = self.ticket.name is not None and self.seat is None
        return came_too_late or (self.state.acting and not self.is_last)

    @property
    def counts(self) -> bool:
        """Whether it may belong to its generation. A party that arrives after the last waits for the next."""
        return self.ticket.sent and (self.ticket.name is None or self.seat is not None)

    def see(self, node: Node | None) -> bool:
        """Record what was read of the state's node; return whether the party's generation is still open.

        The barrier may have been destroyed, and made anew with the same generation and version. The party belongs to
        the barrier in which its node was made, which may be newer than the barrier that it had read.
        """
        state = self.view.see(node)
        came = self.ticket.name is not None
        if state is None or (state.born > self.ticket.token if came else state.born != self.state.born):
            self.state = self.state.fail()
        else:
            self.state = state
        return self.goes_on

    def see_seats(self, node: Node | None) -> None:
        """Record what was read of the generation's node."""
        if node is not None:
            self.seats = ArrivalIndexes.read(self.ticket.path, self.view.parties, node)

    def note_line(self, names: Iterable[str], created: int = 0) -> None:
        """Record the parties that are there, and how many have arrived."""
        self.line, self.trusts_first = _line(names), False
        self.highest = max([self.highest, self.number, created - 1, *self.line])

    def misses_nobody(self) -> bool:
        """Return whether every party that has arrived is still there, or has withdrawn."""
        there = (number in self.line for number in self.seats.counted() if number <= self.highest)
        return self.trusts_first or all(there)

    def trust_first(self) -> str:
        """Rely on the first party to watch all nodes; return its name. Otherwise n parties would keep n lists of n."""
        first = min(self.line)
        self.line, self.trusts_first = {first: self.line[first]}, True
        return self.line[first]

    def look_at_all(self) -> None:
        """Look at the nodes of all again, as the first party may be gone."""
        self.line, self.trusts_first = {}, False

    def outcome(self) -> int | None:
        """Return the arrival index if the party's generation, which is over, has tripped; None if it failed.

        Raises:
            Requeue: the party did not belong to that generation.
        """
        if not self.counts:
            raise Requeue
        return self.seat if self.state.has_tripped(self.generation) else None


def wait(view: View, data: bytes, *, acts: bool) -> Recipe[int | Party | None]:
    """Arrive, and wait until the barrier trips.

    Args:
        view: the barrier.
        data: the content of the party's node.
        acts: the party has an action to run if it arrives last.

    Returns:
        The arrival index. None if the barrier is broken, or was broken during the wait. The party itself if it must
        run its action now and then `finish`, if its deadline has passed and it must `leave`, or if it was `struck` and
        must `leave` or `withdraw`.
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
                # No server has answered, so there is no party yet.
                raise
            party.late = True
            return party
        try:
            return (yield from _to_the_end(party, _enter(party, data)))
        except Requeue:
            # This attempt has put the party into no generation. If the deadline passes before the next attempt, `leave`
            # must not count the party as one that may have arrived.
            party.ticket.sent = False


def finish(party: Party) -> Recipe[int | Party | None]:
    """Trip the barrier after the action has run; returns as `wait`."""
    party.acts = False
    return (yield from _to_the_end(party, _wait(party)))


def leave(party: Party) -> Recipe[int | Party | None]:
    """Return how the party's generation ended. If it is open, break it: the deadline passed, or the action failed.

    Returns:
        As `wait`; the party itself if another party decides and this one must `outlast` it.
    """
    return (yield from _to_the_end(party, _break(party, patient=True)))


def outlast(party: Party) -> Recipe[int | Party | None]:
    """Wait past the party's deadline, as its generation is complete and the last party decides; returns as `leave`."""
    return (yield from _to_the_end(party, _look_on(party)))


def withdraw(party: Party) -> Recipe[None]:
    """Leave the barrier, which keeps filling: the party's wait was cancelled.

    If the generation is over, or its action runs, the party stays counted. A party that died before it could withdraw
    breaks the barrier, as any missing party does.
    """
    view, ticket = party.view, party.ticket
    try:
        if ticket.name is None:
            yield from find(ticket)
        while True:
            _, node, there, own = yield (
                Sync(view.path, ticket),
                Get(view.path, ticket),
                Get(ticket.path, ticket),
                Get(ticket.node, ticket),
            )
            if own is None or not party.see(node):
                break
            party.see_seats(there)
            seats = party.seats.withdraw(party.number, acting=party.state.acting)
            # If this fails, the next read shows whether the party has withdrawn, or why not.
            with suppress(NoNode, BadVersion, ConnectionLost):
                yield Multi(
                    ticket,
                    (
                        Check(view.path, party.state.version),
                        SetNode(ticket.path, seats.data, party.seats.version),
                        Delete(ticket.node),
                    ),
                )
                yield MarkDeleted(ticket)
                break
    except Requeue:
        pass
    yield Discard(ticket)


def _to_the_end(party: Party, waiting: Recipe[int | Party | None]) -> Recipe[int | Party | None]:
    """Run a wait to its end, and discard the party's node unless the party continues."""
    try:
        try:
            outcome = yield from waiting
        except SessionExpired:
            if party.counts:
                outcome = yield from _break(party, lost=True)
            elif party.ticket.sent:
                outcome = yield from _come_too_late(party)
            else:
                raise
        if outcome is not party:
            yield Discard(party.ticket)
        return outcome
    except DeadlinePassed:
        if party.late:
            yield Discard(party.ticket)
            raise
        party.late = True
        return party
    except (Failure, ZkConcurrentError, ValueError):
        yield Discard(party.ticket)
        raise
    except GeneratorExit:
        raise
    except BaseException as error:
        if not party.ticket.sent:
            raise
        # Other parties may have counted this one, and a mere delete of its node could come after their trip. So the
        # caller must `leave` or `withdraw`.
        party.struck = error
        return party


def _enter(party: Party, data: bytes) -> Recipe[int | Party | None]:
    """Make the party's node if its generation is still the current one, and wait."""
    ticket, state = party.ticket, party.state
    try:
        unchanged = Check(party.view.path, state.version)
        _, names = yield Multi(ticket, (unchanged, CreateEphemeral(ticket, ROLE, data))), Children(ticket.path, ticket)
    except (NoNode, BadVersion) as refusal:
        yield MarkDeleted(ticket)
        # A missing parent means that this party is the first of its generation, and makes the generation's node.
        if isinstance(refusal, NoNode):
            # If the node's parent is missing, too, the barrier itself is gone: the next attempt makes it.
            with suppress(NoNode):
                yield CreatePersistent(ticket.path, b"")
        raise Requeue from None
    except ConnectionLost:
        names = yield from find(ticket)
    party.note_line(names)
    del names  # as in `lock.acquire`
    if party.number == 0:
        yield from _tidy_up(party)
    return (yield from _wait(party))


def _tidy_up(party: Party) -> Recipe[None]:
    """Remove the nodes of generations that are over. One that still has a party stays for a later call.

    They can't be containers: the server could reap an empty one, its numbers would start again at 0, and no party would
    notice another that had arrived and left.
    """
    path = party.view.path
    names = yield Children(path, party.ticket)
    old = [name for name in names if name.isdecimal() and int(name) < party.generation]
    if old:
        with suppress(NotEmpty):
            yield tuple(Delete(f"{path}/{name}") for name in old)


def _wait(party: Party) -> Recipe[int | Party | None]:
    """Wait with the other parties; the last trips the barrier.

    The first party watches all nodes, each other party the first one's. So a departure never goes unnoticed, and an
    arrival wakes only the first party. A party without a seat watches all nodes too, as it gets one if another party
    withdraws.
    """
    view, ticket = party.view, party.ticket
    watching = False
    while True:
        if not party.misses_nobody():
            yield from _look_around(party)
            if not party.misses_nobody():
                # A party has arrived, and has left without withdrawing.
                return (yield from _break(party))
            # Another party may be the first now, so the watch may be on a node that is gone.
            watching = False
        if party.is_last:
            outcome = yield from _release(party)
            if outcome is not None:
                return outcome
        elif watching:
            yield Wait(ticket)
        others: tuple[Get | Children, ...] = (Get(ticket.path, ticket), Children(ticket.path, ticket))
        if not party.watches_all:
            others = (Get(f"{ticket.path}/{party.trust_first()}", ticket),)
        node, there, *names = yield Watch(ticket, (Get(view.path, ticket), *others))
        watching = True
        if not party.see(node):
            return (yield from _outcome(party))
        if names:
            party.see_seats(there)
            party.note_line(names[0], 0 if there is None else there.created)
            view.note(party.state, party.line, party.highest)
            names.clear()
        elif there is None:
            party.look_at_all()


def _look_around(party: Party) -> Recipe[None]:
    """Read which parties are there and, only then, which have withdrawn.

    The `multi` that deletes a party's node also notes the withdrawal. So if the first read misses a party that has
    withdrawn, the second read shows that.
    """
    ticket = party.ticket
    names, there = yield Children(ticket.path, ticket), Get(ticket.path, ticket)
    party.note_line(names)
    party.see_seats(there)


def _outcome(party: Party) -> Recipe[int | None]:
    """Return `Party.outcome()`. A party without a seat first looks whether it got one before the generation ended."""
    if party.ticket.sent and not party.counts:
        there = yield Get(party.ticket.path)
        if there is None:
            # Another client has deleted the generation's node, which our own node no longer keeps there. So the outcome
            # is unknown.
            return None
        party.see_seats(there)
    return party.outcome()


def _come_too_late(party: Party) -> Recipe[int | None]:
    """Return the outcome for a party whose session is over, and which had no seat, as far as it knew."""
    _, node = yield Sync(party.view.path), Get(party.view.path)
    if party.see(node):
        raise Requeue
    return (yield from _outcome(party))


def _release(party: Party) -> Recipe[int | Party | None]:
    """Trip the barrier, or mark it as acting, while all parties are there; None if that was not done."""
    view, ticket = party.view, party.ticket
    if party.acts and party.state.acting:
        # The reply to our own write was lost: the party must run its action now.
        return party
    changed = party.state.act() if party.acts else party.state.trip()
    there = (Check(f"{ticket.path}/{party.line[number]}") for number in party.seats.counted())
    try:
        yield (
            Multi(ticket, (*there, SetNode(view.path, changed.data, party.state.version))),
            # This saves the next generation's first party two round trips.
            CreatePersistent(view.generation(party.generation + 1), b""),
        )
    except (NoNode, BadVersion, ConnectionLost):
        # The caller's next read shows whether the write was done, or why not.
        yield Sync(view.path, ticket)
        return None
    except RefusedError:
        _, node = yield Sync(view.path, ticket), Get(view.path, ticket)
        if party.see(node) and not party.is_to_act:
            raise
        # The trip was done; the server has refused the next generation's node only.
        return None
    party.state = changed
    view.note(changed)
    return party if party.acts else party.seat


def _break(party: Party, *, patient: bool = False, lost: bool = False) -> Recipe[int | Party | None]:
    """Return how the party's generation ended. If it is open, break it, as one of its parties is missing or leaves.

    One round trip decides: the write fails if the state has changed, and the read behind it shows the change. A party
    whose node may be gone looks first, as another client may have destroyed the barrier meanwhile and made it anew.

    Args:
        party: the party that asks; its session may be over.
        patient: its time is up; return the party itself if another party is about to decide.
        lost: its session is over.
    """
    view, ticket = party.view, party.ticket
    if ticket.sent and ticket.name is None:
        # If the node is not found, it was not created, or is gone with its session.
        with suppress(Requeue):
            yield from find(ticket)
    if patient or lost:
        _, node = yield Sync(view.path), Get(view.path)
        party.see(node)
    while party.goes_on:
        if patient and party.others_decide():
            return party
        try:
            _, node = yield SetNode(view.path, party.state.fail().data, party.state.version), Get(view.path)
        except ConnectionLost:
            _, node = yield Sync(view.path), Get(view.path)
        party.see(node)
    try:
        return (yield from _outcome(party))
    except Requeue:
        if not party.late:
            raise
        # The party would have joined the next generation, but its deadline has passed. So it breaks that one.
        yield from abort(view, late=True)
        return None


def _look_on(party: Party) -> Recipe[int | Party | None]:
    """Wait for one change while the last party is there, and return the party itself; otherwise return as `leave`."""
    path = party.ticket.path
    node, there, names = yield Watch(party.ticket, (Get(party.view.path), Get(path), Children(path)))
    if party.see(node):
        party.see_seats(there)
        if not party.others_decide():
            return party
        decides = party.seats.top in _line(names)
        del names  # as in `lock.acquire`
        if decides:
            with suppress(DeadlinePassed):
                yield Wait(party.ticket)
            return party
        again = yield Get(path)
        if again is not None and again.version != party.seats.version:
            # The seats have changed, so the last party may have withdrawn.
            return party
    return (yield from _break(party))


def look(view: View) -> Recipe[BarrierContent]:
    """Return the state, read behind a `sync`; create it if there is none."""
    while True:
        _, node = yield Sync(view.path), Get(view.path)
        state = view.see(node)
        if state is not None:
            return state
        yield from make(view.path, BarrierContent(view.parties).data)


def read_state(view: View, counts: bool = False) -> Recipe[tuple[BarrierContent, int]]:
    """Return the state, read behind a `sync`, and how many parties wait if it `counts` them.

    The view keeps what was recorded meanwhile, which may be newer.
    """
    notes = view.notes
    _, node = yield Sync(view.path), Get(view.path)
    if node is None:
        yield CheckChroot(view.path)
    state: BarrierContent = BarrierContent(view.parties) if node is None else view.read(node)
    line: Collection[int] | None = () if node is None else None
    if counts and node is not None and not state.broken:
        line = _line((yield Children(view.generation(state.generation))))
    view.keep(state, line, notes)
    return state, min(len(line or ()), view.parties)


def abort(view: View, late: bool = False) -> Recipe[None]:
    """Break the barrier. If `late`, because of a deadline alone, leave it alone while an action runs."""
    begun: BarrierContent | None = None
    while True:
        state = yield from look(view)
        begun = begun or state
        # The generation is broken, and perhaps the barrier was reset since. Our own write did that, or another
        # client's, which leaves ours nothing to do.
        if state.broken or begun.generation in state.failed or (late and state.acting):
            return
        begun = state
        if (yield from _write(view, state, state.fail())):
            return


def reset(view: View) -> Recipe[None]:
    """Fail the current generation, whose waiting parties leave, and begin the next."""
    begun = state = yield from look(view)
    # Once that generation is over, its waiters leave. Our own write ended it, or another client's, which leaves ours
    # nothing to do.
    while (state.generation, state.born) == (begun.generation, begun.born):
        if (yield from _write(view, state, state.reset())):
            return
        state = yield from look(view)


def _write(view: View, state: BarrierContent, changed: BarrierContent) -> Recipe[bool]:
    """Write the state unless another party has; False if that is so, or unknown: the caller reads the state again."""
    with suppress(ConnectionLost):
        if (yield SetNode(view.path, changed.data, state.version)):
            view.note(changed)
            return True
    return False


def most_parties(path: str) -> int:
    """Return how many parties a barrier can have, as one request trips it, with a check of each party's node.

    Args:
        path: the barrier's full path on the server, chroot included.
    """
    node = f"{path}/{'0' * 10}/{'_' * PREFIX_LENGTH}{ROLE}{'0' * 10}"
    return min(MOST, LARGEST // (CHECK_BYTES + len(node.encode())))


def _number(name: str) -> int:
    return int(name.rpartition(ROLE)[2])


def _line(names: Iterable[str]) -> dict[int, str]:
    """Return the names of the parties' nodes, by number."""
    return {_number(name): name for name in names if name.rpartition(ROLE)[2].isdecimal() and ROLE in name}
