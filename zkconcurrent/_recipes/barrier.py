"""The cyclic barrier: each party waits until all parties have arrived; then the next generation begins.

All parties agree through one node, the state. A party changes it by a write that fails if the state has changed since
it was read. Each party creates a node in the current generation, in one `multi` that fails if the state is not the one
it has read, so no party can join a generation that is over or broken. The node's number is the arrival index. The party
with the last number trips the barrier, in one `multi` that checks the node of every party and writes the next
generation into the state: a party that died just before makes it fail for all; a party that dies just after has passed.
A second write, sent with it, creates the next generation's node; it decides nothing, and saves the next party two round
trips. A later read, after a lost reply or in another session, finds the outcome in the state: a generation that is over
has tripped unless it is in the list of failed ones.

Numbers without a gap make departures visible. The first party watches the children of its generation, and reads how
many were ever created there, so it also notices a party that came and went between two reads. Every other party watches
the first party's node and the state. So an arrival wakes one party, and every departure breaks the barrier, except a
cancelled task's. A generation's node is therefore not a container: if the server removed an empty one, its numbers
would begin anew.

A cancelled task leaves, and the barrier keeps filling. One `multi` deletes the party's node and writes into the
generation's node that the party has withdrawn; the `multi` fails if the state has changed. So a leave and a trip
exclude each other: after the trip the leave fails, and the party was counted; after the leave the trip fails, as a node
that it checks is gone. A party that finds another party gone reads the generation's node again before it breaks the
barrier. It reads the names first and that node after them, as both change at once: in the other order, a leave between
the two reads would look like a death.

The place of a party that leaves, its *seat*, goes to the next number that has none. So every party keeps its arrival
index until it leaves, and needs no newer list to know it. A party without a seat arrived when all seats were taken; it
watches the generation's node, in case it gets one. A leave does not begin another generation, as the others would have
to arrive in it anew. So if a party that is out of reach at that moment dies, the others still notice. While the action
runs, a party that leaves stays counted: the trip no longer checks its node.

Seats are passed on, although the trip could instead write a list of the parties that pass, from which each would learn
its index. But a party whose session ends after the trip could miss such a list: the next generation removes the node of
the party's generation, and later trips fill the state. A party that has a seat only needs to learn that its generation
has tripped, which the state still shows then. In the simulation, such a list failed in either of these two nodes.

The leave runs in the background, so that the cancel need not wait. It has no deadline while a server is in reach: a
deadline would break the barrier when many tasks leave at once, or over slow links. Once no server has been in reach for
a session timeout, the leave ends: the session is over and the party's node is gone, which breaks the barrier as any
death does.

The action runs outside any recipe, between two writes of the state. The first marks it acting. From then on the other
parties do not break the barrier at their deadlines, unless the acting party is gone.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from .._errors import ClientError, RefusedError, ZkConcurrentError
from .._protocol import operations as op
from .._protocol.operations import Recipe
from .barrier_state import ROLE, BarrierContent, BarrierView, Outcome, Party, line_of
from .lock import find
from .nodes import make


def wait(view: BarrierView, data: bytes, *, acts: bool, acting: Collection[str | None] = ()) -> Recipe[Outcome]:
    """Arrive, and wait until the barrier trips.

    Args:
        view: the barrier.
        data: the content of the party's node.
        acts: the party has an action to run if it arrives last.
        acting: the nodes of the parties, at any barrier, whose actions make this call.

    Returns:
        The arrival index. None if the barrier is broken, or was broken during the wait. The party itself if it must
        run its action now and then `finish`, if its deadline has passed and it must `give_up`, or if it was `struck`
        and must `give_up` or `withdraw`.

    Raises:
        ClientError: the barrier waits for the action that makes this call.
    """
    party: Party | None = None
    while True:
        try:
            state = yield from read_or_make(view)
            if state.broken:
                return None
            party = Party(view, state, (yield op.NewTicket(view.generation(state.generation))), acts)
        except op.DeadlinePassed:
            if party is None:
                # No server has answered, so there is no party yet.
                raise
            party.late = True
            return party
        try:
            return (yield from _to_the_end(party, _enter(party, data, acting)))
        except op.Requeue:
            # This attempt has put the party into no generation. If the deadline passes before the next attempt,
            # `give_up` must not count the party as one that may have arrived.
            party.ticket.sent = False


def finish(party: Party) -> Recipe[Outcome]:
    """Trip the barrier after the action has run; returns as `wait`."""
    party.acts = False
    return (yield from _to_the_end(party, _wait(party)))


def give_up(party: Party, *, struck: bool = False) -> Recipe[Outcome]:
    """Return how the party's generation ended. If it is open, break it: the deadline passed, or the action failed.

    Args:
        party: the party.
        struck: the party was interrupted. Another interrupt is raised, and the party has then not left.

    Returns:
        As `wait`; the party itself if another party decides and this one must `outlast` it.
    """
    return (yield from _to_the_end(party, _break(party, patient=True), struck))


def outlast(party: Party) -> Recipe[Outcome]:
    """Wait past the deadline, as the party's generation is complete and the last party decides; return as `give_up`."""
    return (yield from _to_the_end(party, _await_last(party)))


def withdraw(party: Party) -> Recipe[None]:
    """Leave the barrier, which keeps filling: the party's wait was cancelled.

    If the generation is over, or its action runs, the party stays counted. A party that died before it could withdraw
    breaks the barrier, as any missing party does.
    """
    view, ticket = party.view, party.ticket
    with suppress(op.Requeue):
        if ticket.name is None:
            yield from find(ticket)
        while True:
            _, node, there, own = yield (
                op.Sync(view.path, ticket),
                op.Get(view.path, ticket),
                op.Get(ticket.path, ticket),
                op.Get(ticket.node, ticket),
            )
            if own is None or not party.note_read(node):
                break
            party.see_seats(there)
            seats = party.seats.withdraw(party.number, acting=party.state.acting)
            # If this fails, the next read shows whether the party has withdrawn, or why not.
            with suppress(op.NoNode, op.BadVersion, op.ConnectionLost):
                yield op.Multi(
                    ticket,
                    (
                        op.Check(view.path, party.state.version),
                        op.SetNode(ticket.path, seats.data, party.seats.version),
                        op.Delete(ticket.node),
                    ),
                )
                yield op.MarkDeleted(ticket)
                break
    yield op.Discard(ticket)


def _to_the_end(party: Party, waiting: Recipe[Outcome], struck: bool = False) -> Recipe[Outcome]:
    """Run a wait to its end, and discard the party's node unless the party continues."""
    try:
        try:
            outcome = yield from waiting
        except op.SessionExpired:
            if not party.ticket.sent:
                raise
            outcome = yield from _break(party, lost=True)
        if outcome is not party:
            yield op.Discard(party.ticket)
        return outcome
    except op.DeadlinePassed:
        if party.late:
            yield op.Discard(party.ticket)
            raise
        party.late = True
        return party
    except (op.Failure, ZkConcurrentError, ValueError):
        yield op.Discard(party.ticket)
        raise
    except GeneratorExit:
        raise
    except BaseException as error:
        if struck or not party.ticket.sent:
            raise
        # Other parties may have counted this one, and a mere delete of its node could come after their trip. So the
        # caller must `give_up` or `withdraw`.
        party.struck = error
        return party


def _enter(party: Party, data: bytes, acting: Collection[str | None]) -> Recipe[Outcome]:
    """Make the party's node if its generation is still the current one, and wait."""
    ticket, state = party.ticket, party.state
    try:
        unchanged = op.Check(party.view.path, state.version)
        _, names = yield (
            op.Multi(ticket, (unchanged, op.CreateEphemeral(ticket, ROLE, data))),
            op.Children(ticket.path, ticket),
        )
    except (op.NoNode, op.BadVersion) as refusal:
        yield op.MarkDeleted(ticket)
        # A missing parent means that this party is the first of its generation, and makes the generation's node.
        if isinstance(refusal, op.NoNode):
            # If the node's parent is missing, too, the barrier itself is gone: the next attempt makes it.
            with suppress(op.NoNode):
                yield op.CreatePersistent(ticket.path, b"")
        raise op.Requeue from None
    except op.ConnectionLost:
        names = yield from find(ticket)
    if any(name in acting for name in names):
        # The names show this whichever client the action uses, and however it spells the servers.
        why = "the barrier's action would wait for its own end: the barrier trips only when that has returned"
        raise ClientError(party.view.path, why)
    party.note_line(names)
    del names  # as in `lock.acquire`
    if party.number == 0:
        yield from _tidy_up(party)
    return (yield from _wait(party))


def _tidy_up(party: Party) -> Recipe[None]:
    """Remove the nodes of generations that are over. A node that still has a party stays for a later call.

    These nodes can't be containers: the server could reap an empty one, its numbers would start again at 0, and no
    party would notice another that had arrived and left.
    """
    path = party.view.path
    names = yield op.Children(path, party.ticket)
    with suppress(op.NotEmpty):
        yield tuple(op.Delete(f"{path}/{name}") for name in names if name.isdecimal() and int(name) < party.generation)


def _wait(party: Party) -> Recipe[Outcome]:
    """Wait with the other parties; the last trips the barrier.

    The first party watches all nodes, and every other party watches the first party's node. So a departure never goes
    unnoticed, and an arrival wakes only the first party. A party without a seat watches all nodes too, as it gets one
    if another party withdraws.
    """
    view, ticket = party.view, party.ticket
    watching = False
    while True:
        if not party.misses_none():
            yield from _read_parties(party)
            if not party.misses_none():
                # A party has arrived, and has left without withdrawing.
                return (yield from _break(party))
            # Another party may be the first now, so the watch may be on a node that is gone.
            watching = False
        if party.is_last:
            outcome = yield from _trip(party)
            if outcome is not None:
                return outcome
        elif watching:
            yield op.Wait(ticket)
        others: tuple[op.Get | op.Children, ...] = (op.Get(ticket.path, ticket), op.Children(ticket.path, ticket))
        if not party.watches_all:
            others = (op.Get(f"{ticket.path}/{party.trust_first()}", ticket),)
        node, there, *names = yield op.Watch(ticket, (op.Get(view.path, ticket), *others))
        watching = True
        if not party.note_read(node):
            return (yield from _outcome(party))
        if names:
            party.see_seats(there)
            party.note_line(names[0], 0 if there is None else there.created)
            view.note(party.state, party.line)
            names.clear()
        elif there is None:
            party.watch_all()


def _read_parties(party: Party) -> Recipe[None]:
    """Read which parties are there and, only then, which have withdrawn.

    The `multi` that deletes a party's node also notes the withdrawal. So if the first read misses a party that has
    withdrawn, the second read shows that.
    """
    ticket = party.ticket
    names, there = yield op.Children(ticket.path, ticket), op.Get(ticket.path, ticket)
    party.note_line(names)
    party.see_seats(there)


def _outcome(party: Party) -> Recipe[int | None]:
    """Return the arrival index if the party's generation, which is over, has tripped; None if it failed.

    A party without a seat first reads whether it got one before the generation ended.

    Raises:
        Requeue: the party did not belong to that generation.
    """
    if party.ticket.sent and not party.counts:
        there = yield op.Get(party.ticket.path)
        if there is None:
            # Our own node is gone, so another client could delete the generation's node, and did. The outcome is
            # unknown.
            return None
        party.see_seats(there)
    if not party.counts:
        raise op.Requeue
    return party.seat if party.state.has_tripped(party.generation) else None


def _trip(party: Party) -> Recipe[Outcome]:
    """Trip the barrier, or mark it as acting, while all parties are there; None if neither was done."""
    view, ticket = party.view, party.ticket
    if party.acts and party.state.acting:
        # The reply to our own write was lost: the party must run its action now.
        return party
    changed = party.state.act() if party.acts else party.state.trip()
    there = (op.Check(f"{ticket.path}/{party.line[number]}") for number in party.seats.counted())
    try:
        yield (
            op.Multi(ticket, (*there, op.SetNode(view.path, changed.data, party.state.version))),
            # This saves the next generation's first party two round trips.
            op.CreatePersistent(view.generation(party.generation + 1), b""),
        )
    except (op.NoNode, op.BadVersion, op.ConnectionLost):
        # The caller's next read shows whether the write was done, or why not.
        yield op.Sync(view.path, ticket)
        return None
    except RefusedError:
        _, node = yield op.Sync(view.path, ticket), op.Get(view.path, ticket)
        if party.note_read(node) and not party.is_to_act:
            raise
        # The trip was done; the server has refused the next generation's node only.
        return None
    party.state = changed
    view.note(changed)
    return party if party.acts else party.seat


def _break(party: Party, *, patient: bool = False, lost: bool = False) -> Recipe[Outcome]:
    """Return how the party's generation ended. If it is open, break it, as one of its parties is missing or leaves.

    One round trip decides: the write fails if the state has changed, and the read behind it shows the change. A party
    whose node may be gone reads first, as another client may have destroyed the barrier meanwhile and made it anew.

    Args:
        party: the party that asks; its session may be over.
        patient: its time is up; return the party itself if another party is about to decide.
        lost: its session is over.

    Raises:
        Requeue: the party is `lost`, and must arrive again. Its generation is open, and may not have counted the party.
    """
    view, ticket = party.view, party.ticket
    if ticket.sent and ticket.name is None:
        # If the node is not found, it was not created, or is gone with its session.
        with suppress(op.Requeue):
            yield from find(ticket)
    if patient or lost:
        _, node = yield op.Sync(view.path), op.Get(view.path)
        party.note_read(node)
    while party.goes_on:
        if lost and party.seat is None:
            # The party came too late, or does not know whether it came. Parties that count it will miss its node.
            raise op.Requeue
        if patient and party.others_decide():
            return party
        try:
            _, node = yield op.SetNode(view.path, party.state.fail().data, party.state.version), op.Get(view.path)
        except op.ConnectionLost:
            _, node = yield op.Sync(view.path), op.Get(view.path)
        party.note_read(node)
    try:
        return (yield from _outcome(party))
    except op.Requeue:
        if not party.late:
            raise
        # The party would have joined the next generation, but its deadline has passed. So it breaks the next
        # generation.
        yield from abort(view, late=True)
        return None


def _await_last(party: Party) -> Recipe[Outcome]:
    """Wait for one change while the last party is there, and return the party itself; otherwise return as `give_up`."""
    path = party.ticket.path
    # The seats are read after the names, as in `_read_parties`: so the party that they show as the last is there, or
    # has died.
    node, names, there = yield op.Watch(party.ticket, (op.Get(party.view.path), op.Children(path), op.Get(path)))
    if party.note_read(node):
        party.see_seats(there)
        if not party.others_decide():
            return party
        decides = party.seats.top in line_of(names)
        del names  # as in `lock.acquire`
        if decides:
            with suppress(op.DeadlinePassed):
                yield op.Wait(party.ticket)
            return party
    return (yield from _break(party))


def read_or_make(view: BarrierView) -> Recipe[BarrierContent]:
    """Return the state, read behind a `sync`; create it if there is none."""
    while True:
        _, node = yield op.Sync(view.path), op.Get(view.path)
        state = view.note_read(node)
        if state is not None:
            return state
        yield from make(view.path, BarrierContent(view.parties).data)


def read_state(view: BarrierView, counts: bool = False) -> Recipe[tuple[BarrierContent, int]]:
    """Return the state, read behind a `sync`, and how many parties wait; without `counts`, that number is 0."""
    _, node = yield op.Sync(view.path), op.Get(view.path)
    state: BarrierContent = BarrierContent(view.parties) if node is None else view.parse(node)
    # Recorded before the line is read, as anything that is recorded meanwhile is newer.
    view.note(state)
    line: Collection[int] = ()
    if counts and node is not None and not state.broken:
        line = line_of((yield op.Children(view.generation(state.generation))))
        if view.state == state:
            view.note(state, line)
    return state, min(len(line), view.parties)


def abort(view: BarrierView, late: bool = False) -> Recipe[None]:
    """Break the barrier. If a deadline is the only reason (`late`), a barrier whose action runs is left alone."""
    begun = state = yield from read_or_make(view)
    # Once the generation is broken, nothing is left to do, whether our own write did that or another client's. The
    # barrier may have been reset since.
    while not (state.broken or begun.generation in state.failed or (late and state.acting)):
        if (yield from _write(view, state, state.fail())):
            return
        begun, state = state, (yield from read_or_make(view))


def reset(view: BarrierView) -> Recipe[None]:
    """Fail the current generation, whose waiting parties leave, and begin the next."""
    begun = state = yield from read_or_make(view)
    # Once that generation is over, its waiters leave and nothing is left to do, whether our own write ended it or
    # another client's.
    while (state.generation, state.born) == (begun.generation, begun.born):
        if (yield from _write(view, state, state.reset())):
            return
        state = yield from read_or_make(view)


def _write(view: BarrierView, state: BarrierContent, changed: BarrierContent) -> Recipe[bool]:
    """Write the state unless another party has; False if it has, or may have: the caller then rereads the state."""
    with suppress(op.ConnectionLost):
        if (yield op.SetNode(view.path, changed.data, state.version)):
            view.note(changed)
            return True
    return False
