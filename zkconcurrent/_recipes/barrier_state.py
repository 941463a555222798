"""The nodes of a `Barrier`, and the state that a client and each of its parties keep about these nodes.

The state's node has a `BarrierContent`, a generation's node its `ArrivalIndexes`; `_recipes/barrier.py` describes how
they change. A `BarrierView` is the barrier as a client last saw it; a `Party` is what one call of `wait` knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

from .._arguments.limits import CHECK_BYTES
from .._protocol import operations as op
from .._protocol.node_names import PREFIX_LENGTH
from .._protocol.ticket import Ticket
from .destroy import Tree
from .nodes import foreign_data

ROLE = "party-"
REMEMBERED = 100
MOST = 10_000  # parties
# The checks in a trip take at most this many bytes, so the whole request stays below `Client.max_request`.
LARGEST = 990_000
_GENERATION = re.compile(r"\d{10}")
_FIELDS = ("parties", "generation", "failed", "acting")


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
    def parse(cls, path: str, node: op.Node) -> BarrierContent:
        """Parse the node.

        Raises:
            ForeignNodeError: the data is not a barrier's.
        """
        try:
            fields = json.loads(node.data)
            state = cls(**{**fields, "failed": tuple(fields["failed"])}, version=node.version, born=node.czxid)
            numbers = (state.parties, state.generation, *state.failed)
            if {*fields} != {*_FIELDS} or {type(each) for each in numbers} != {int} or type(state.acting) is not bool:
                raise ValueError
        except op.MALFORMED:
            raise foreign_data(path, node.data, "it is not a barrier's") from None
        return state

    @property
    def data(self) -> bytes:
        """The data to write to the node."""
        return json.dumps({name: getattr(self, name) for name in _FIELDS}).encode()

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
        return self._replace(acting=True, version=op.next_version(self.version))

    def trip(self) -> BarrierContent:
        """Return the next state when the barrier trips."""
        return self._replace(generation=self.generation + 1, acting=False, version=op.next_version(self.version))

    def fail(self) -> BarrierContent:
        """Return the next state when the current generation breaks."""
        failed = self.failed if self.broken else (*self.failed, self.generation)[-REMEMBERED:]
        return self._replace(failed=failed, acting=False, version=op.next_version(self.version))

    def reset(self) -> BarrierContent:
        """Return the next state of a reset: the current generation fails, and the next begins."""
        return self.fail()._replace(generation=self.generation + 1)


class ArrivalIndexes(NamedTuple):
    """The parties that complete a generation, by arrival index: the content of the generation's node.

    The party with the number n has seat n. If a party withdraws, its seat goes to the party with the lowest number that
    had no seat; that party may arrive later. So a party keeps its seat until it withdraws: content that is out of date
    may lack a party's seat, but never shows a different seat. A party without a seat waits for the next generation.

    Attributes:
        parties: the number of seats.
        passed: the seats that were passed on, keyed by the number of the party now in each.
        gone: the parties that have withdrawn without passing on a seat: parties without a seat, and parties that
            withdrew during the action, which stay counted.
        version: the node's version.
    """

    parties: int
    passed: Mapping[int, int] = {}
    gone: Collection[int] = frozenset()
    version: int = 0

    @classmethod
    def parse(cls, path: str, parties: int, node: op.Node) -> ArrivalIndexes:
        """Parse the node.

        Raises:
            ForeignNodeError: the data is not a generation's.
        """
        if not node.data:
            return cls(parties, version=node.version)
        try:
            fields = json.loads(node.data)
            if fields.keys() != {"seats", "gone"}:
                raise ValueError
            passed = {int(number): int(seat) for number, seat in fields["seats"].items()}
            return cls(parties, passed, frozenset(map(int, fields["gone"])), node.version)
        except op.MALFORMED:
            raise foreign_data(path, node.data, "it is not a barrier's") from None

    @property
    def data(self) -> bytes:
        """The data to write to the node."""
        return json.dumps({"seats": self.passed, "gone": sorted(self.gone)}).encode()

    @property
    def top(self) -> int:
        """The highest number that has a seat: the generation is complete once that party has arrived."""
        return max([self.parties - 1, *self.passed])

    def seat(self, number: int) -> int | None:
        """Return the party's seat; None if the party has no seat."""
        keeps = number < self.parties and number not in self.passed.values()
        return number if keeps else self.passed.get(number)

    def counted(self) -> list[int]:
        """Return the parties whose nodes must exist at the trip."""
        holders = {seat: number for number, seat in (*enumerate(range(self.parties)), *self.passed.items())}
        return [number for number in holders.values() if number not in self.gone]

    def withdraw(self, number: int, *, acting: bool) -> ArrivalIndexes:
        """Return the seats once the party has withdrawn.

        Args:
            number: the party's number.
            acting: the generation is complete and its action runs, so the party stays counted.
        """
        seat = self.seat(number)
        if seat is None or acting:
            return self._replace(gone={*self.gone, number})
        heir = self.top + 1
        while heir in self.gone:
            heir += 1
        passed = {each: its for each, its in self.passed.items() if each != number}
        return self._replace(passed={**passed, heir: seat}, gone={each for each in self.gone if each >= heir})


class BarrierView:
    """A barrier as one process last saw it.

    Attributes:
        state: the state as last read; before the first read, the state of a new barrier.
        waiting: how many parties waited in that state's generation.
    """

    def __init__(self, path: str, parties: int) -> None:
        self.path = path
        self.parties = parties
        self.state = BarrierContent(parties)
        self.waiting = 0

    @property
    def tree(self) -> Tree:
        """What `destroy` removes: the generations are leaves, unless parties are in them."""
        return Tree(self.path, "Barrier", partial(BarrierContent.parse, self.path), {self.path: _GENERATION.fullmatch})

    def note_read(self, node: op.Node | None) -> BarrierContent | None:
        """Record the state that was read from its node, and return it; None without a node. Errors as `parse`."""
        if node is None:
            return None
        state = self.parse(node)
        self.note(state)
        return state

    def parse(self, node: op.Node) -> BarrierContent:
        """Return what was read of the state's node.

        Raises:
            ForeignNodeError: the node is not a barrier's.
            ValueError: the barrier is for another number of parties.
        """
        state = BarrierContent.parse(self.path, node)
        if state.parties != self.parties:
            raise ValueError(
                f"the barrier {self.path!r} is for {state.parties} parties, not for {self.parties}: all clients must "
                "give the same; destroy() it if no client uses it any more"
            )
        return state

    def note(self, state: BarrierContent, line: Collection[int] | None = None) -> None:
        """Record the state, and the line of the parties if that is known."""
        seen, self.state = self.state, state
        if line is not None:
            self.waiting = min(len(line), self.parties)
        elif (seen.generation, seen.born) != (state.generation, state.born) or seen.broken or state.broken:
            self.waiting = 0

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

    def __init__(self, view: BarrierView, state: BarrierContent, ticket: Ticket, acts: bool) -> None:
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
        """Whether it watches all parties' nodes: it is the first, the last, or may yet get a seat."""
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
        """Return whether its generation is complete and another party, the last, acts or is about to trip."""
        came_too_late = self.ticket.name is not None and self.seat is None
        return came_too_late or (self.state.acting and not self.is_last)

    @property
    def counts(self) -> bool:
        """Whether it may belong to its generation. A party that arrives after the last waits for the next one."""
        return self.ticket.sent and (self.ticket.name is None or self.seat is not None)

    def note_read(self, node: op.Node | None) -> bool:
        """Record what was read of the state's node; return whether the party's generation is still open.

        The barrier may have been destroyed, and made anew with the same generation and version. The party belongs to
        the barrier in which its node was made, which may be newer than the barrier that it had read.
        """
        state = self.view.note_read(node)
        came = self.ticket.name is not None
        if state is None or (state.born > self.ticket.token if came else state.born != self.state.born):
            self.state = self.state.fail()
        else:
            self.state = state
        return self.goes_on

    def see_seats(self, node: op.Node | None) -> None:
        """Record what was read of the generation's node."""
        if node is not None:
            self.seats = ArrivalIndexes.parse(self.ticket.path, self.view.parties, node)

    def note_line(self, names: Iterable[str], created: int = 0) -> None:
        """Record the parties that are there, and how many have arrived."""
        self.line, self.trusts_first = line_of(names), False
        self.highest = max([self.highest, self.number, created - 1, *self.line])

    def misses_none(self) -> bool:
        """Return whether every party that has arrived is still there, or has withdrawn."""
        there = (number in self.line for number in self.seats.counted() if number <= self.highest)
        return self.trusts_first or all(there)

    def trust_first(self) -> str:
        """Rely on the first party to watch all nodes; return its name. Otherwise n parties would keep n full lists."""
        first = min(self.line)
        self.line, self.trusts_first = {first: self.line[first]}, True
        return self.line[first]

    def watch_all(self) -> None:
        """Watch all parties' nodes again, as the first party may be gone."""
        self.line, self.trusts_first = {}, False


Outcome: TypeAlias = int | Party | None
"""How a party's wait ends: see the result of `wait`."""


def most_parties(path: str) -> int:
    """Return how many parties a barrier can have: one request trips it, and checks each party's node.

    Args:
        path: the barrier's full path on the server, chroot included.
    """
    node = f"{path}/{'0' * 10}/{'_' * PREFIX_LENGTH}{ROLE}{'0' * 10}"
    return min(MOST, LARGEST // (CHECK_BYTES + len(node.encode())))


def _number(name: str) -> int:
    return int(name.rpartition(ROLE)[2])


def line_of(names: Iterable[str]) -> dict[int, str]:
    """Return the names of the parties' nodes, by number."""
    return {_number(name): name for name in names if name.rpartition(ROLE)[2].isdecimal() and ROLE in name}
