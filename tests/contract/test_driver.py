"""The promises of the blocking driver, on a real ZooKeeper and on the simulated one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
from kazoo.exceptions import SessionExpiredError

from tests.helpers.bench import Bench, Real, ask, perform, wait
from zkconcurrent._engine import patience
from zkconcurrent._engine.driver import Call
from zkconcurrent._protocol.lease import NEVER
from zkconcurrent._protocol.operations import (
    Check,
    Children,
    ConnectionLost,
    CreateEphemeral,
    CreatePersistent,
    DeadlinePassed,
    Delete,
    DetachTicket,
    Discard,
    EnsureContainer,
    Get,
    Grant,
    MarkDeleted,
    Multi,
    NewTicket,
    NoNode,
    ProveLease,
    SessionExpired,
    SetNode,
    SuspendHold,
    Sync,
    Wait,
    WaitGone,
    Watch,
)
from zkconcurrent._protocol.ticket import State
from zkconcurrent._runtime.waiting import LONGEST_SLEEP

Steps = Generator[Any, Any, Any]
ROLE = "lock-"


def drive(bench: Bench, path: str, recipe: Callable[..., Steps], *, sessions: int = 1) -> Any:
    """Run a recipe, which is given the sessions; the first one is its driver's."""
    opened = [bench.session() for _ in range(sessions)]
    return perform(opened[0], path, recipe(*opened))


def test_a_grant_needs_a_running_lease(bench: Bench, path: str) -> None:
    """Before any write was answered there is no lease; a sync proves none; once one is proved, there is a hold."""

    def recipe(session: Any) -> Steps:
        yield EnsureContainer(path)
        ticket = yield NewTicket(path)
        yield CreateEphemeral(ticket, ROLE, b"")
        lease = ticket.lease
        session.heartbeat.beat = lambda _: 1.0  # no heartbeat is sent meanwhile
        yield Sync(path, ticket)  # an earlier one is answered before
        lease.heard = lease.end = NEVER
        assert not (yield Grant(ticket))
        yield Sync(path, ticket)
        assert not (yield Grant(ticket))
        del session.heartbeat.beat
        assert ticket.state is State.QUEUED
        yield ProveLease(ticket)
        assert lease.believed(session.clock())
        assert (yield Grant(ticket))
        assert ticket.state is State.HELD
        yield Discard(ticket)
        assert ticket.state is State.DISCARDED

    drive(bench, path, recipe)


@pytest.mark.fault(84)
@pytest.mark.long
def test_a_hold_on_a_connection_of_any_age_stays(bench: Bench, path: str) -> None:
    """Where nothing fails, no hold is lost, not even the first on a connection opened long before."""
    timeout, connections = 4.0, 15

    def recipe() -> Steps:
        yield EnsureContainer(path)
        ticket = yield NewTicket(path)
        yield CreateEphemeral(ticket, ROLE, b"")
        yield DetachTicket(ticket)
        while not (yield Grant(ticket)):
            yield ProveLease(ticket)
        return ticket

    held = []
    for n in range(connections):
        # Where the rest of the first lease is about as long as its renewal takes.
        age, session = (0.4 + 0.3 * n / connections) * timeout, bench.session(timeout=timeout)
        with session.lock:  # as if the library had not used it before
            session.registry.lease.opened(session.clock() - age, timeout)
        held.append((age, perform(session, path, recipe())))
    session.link.handler.sleep_func(2 * timeout)
    assert [age for age, ticket in held if ticket.state is not State.HELD] == []


@pytest.mark.fault(13)
def test_an_operation_of_a_session_that_is_over(bench: Bench, path: str) -> None:
    """It fails with SessionExpired, read or write; one that is bound to no session goes on in the next."""

    def recipe(session: Any) -> Steps:
        yield EnsureContainer(path)
        ticket = yield NewTicket(path)
        bench.expire(session)
        for step in (
            Children(path, ticket),
            CreateEphemeral(ticket, ROLE, b""),
            Multi(ticket, (Check(path), CreateEphemeral(ticket, ROLE, b""))),
            Grant(ticket),
            WaitGone(ticket, "x", (Children(path, ticket),)),
        ):
            with pytest.raises(SessionExpired):
                yield step
        yield Discard(ticket)
        assert not (yield Children(path))
        return (yield NewTicket(path)).session != ticket.session

    assert drive(bench, path, recipe)


def test_a_request_that_is_never_answered(bench: Bench, path: str) -> None:
    """The wait for an answer has a bound, the session's timeout; then a read is sent again."""

    def recipe(session: Any) -> Steps:
        children = session.link.children
        lost: list[Any] = []

        def swallowed_once(*arguments: Any) -> None:
            if lost:
                children(*arguments)
            else:
                lost.append(arguments)

        session.link.children = swallowed_once
        session.negotiated(0.5)
        assert not (yield Sync(path), Children(path))[1]
        return lost

    assert drive(bench, path, recipe)


@pytest.mark.fault(233)
@pytest.mark.parametrize("timeout", [None, 3600.0])
@pytest.mark.parametrize("kind", [Wait, WaitGone])
def test_an_interrupt_on_the_way_into_a_wait(
    bench: Bench, path: str, kind: type[Wait | WaitGone], timeout: float | None
) -> None:
    """CPython sees it when the system call that waits ends: so that one ends, long before a far deadline."""

    class Late:  # an event whose wait was just about to begin, when it is interrupted; the bound is not sat out
        def __init__(self, event: Any) -> None:
            self.set, self.clear, self._event = event.set, event.clear, event

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None, "a wait without a bound"
            assert timeout <= LONGEST_SLEEP
            woken = self._event.wait(min(timeout, 0.5) if interrupted else timeout)
            if not woken and interrupted:
                raise KeyboardInterrupt
            return bool(woken)

    opened, interrupted = bench.session(), False

    def recipe() -> Steps:
        nonlocal interrupted
        yield EnsureContainer(path)
        ahead, me = (yield NewTicket(path)), (yield NewTicket(path))
        yield CreateEphemeral(ahead, ROLE, b""), CreateEphemeral(me, ROLE, b"")
        watched = yield Watch(me, (Children(path, me),))
        interrupted = True
        with pytest.raises(KeyboardInterrupt):
            yield Wait(me) if kind is Wait else WaitGone(me, ahead.name, (Children(path, me),))
        interrupted = False
        yield Discard(me)
        yield Discard(ahead)
        return watched

    made = opened.link.sleep_event
    opened.link.sleep_event = lambda: Late(made())
    assert len(perform(opened, path, recipe(), None if timeout is None else opened.now() + timeout)[0]) == 2


@pytest.mark.parametrize("whole", [False, True], ids=["create", "multi"])
def test_a_thread_that_looks_before_its_node_is_known(
    bench: Bench, path: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Woken by something else while its answer is being taken, it goes on only when the node has its name."""
    park = Call.park
    parked: list[Call] = []

    def note(self: Call, bound: float) -> bool:
        parked.append(self)
        return park(self, bound)

    monkeypatch.setattr(Call, "park", note)

    def recipe(session: Any) -> Steps:
        yield EnsureContainer(path)
        ticket = yield NewTicket(path)
        post, known = session.post, list[str]()

        def has_looked() -> bool:
            session.wake_calls()
            return len(parked) > 1 or bool(known)

        def slowly(act: Callable[[], None]) -> None:
            if isinstance(bench, Real):  # in the simulation nobody looks meanwhile
                parked.clear()
                wait(session, has_looked)
            post(act)

        session.post = slowly
        create = CreateEphemeral(ticket, ROLE, b"")
        yield Multi(ticket, (create,)) if whole else create
        known.append(ticket.name)
        assert (yield Children(path)) == known

    drive(bench, path, recipe)


def test_a_multi_that_a_former_leader_has_refused(bench: Bench, path: str) -> None:
    """It is sent again if the session lives: that leader was about to end it, and another one has been elected."""

    def recipe(session: Any) -> Steps:
        yield EnsureContainer(path)
        ticket = yield NewTicket(path)
        multi = session.link.multi

        def refused(_: Any, reply: Any) -> None:
            session.link.multi = multi
            bench.cut(session)
            error = SessionExpiredError()
            error.part = 0  # type: ignore[attr-defined]
            reply.set_exception(error)

        session.link.multi = refused
        yield Multi(ticket, (CreateEphemeral(ticket, ROLE, b""),))
        return (yield Children(path)) == [ticket.name]

    assert drive(bench, path, recipe)


def test_a_firm_multi_gets_its_reply(bench: Bench, path: str) -> None:
    """The deadline, which counts since the first wait, does not end the wait for its reply."""

    def recipe(session: Any, deadline: float) -> Steps:
        yield CreatePersistent(path, b"")
        ticket = yield NewTicket(path)
        yield Watch(ticket, (Get(path, ticket),))
        try:
            while session.now() < deadline:
                session.link.handler.sleep_func(0.05)  # the deadline passes while the recipe is busy
            return (yield Multi(ticket, (SetNode(path, b"new", 0),), awaits_reply_past_deadline=True))
        finally:
            session.discard(ticket)

    session = bench.session()
    deadline = session.now() + 1.0
    assert type(perform(session, path, recipe(session, deadline), deadline)) is list
    assert ask(session, ("get", path))[0][0] == b"new"


@pytest.mark.parametrize("applied", [True, False])
def test_a_lost_multi_is_told(bench: Bench, path: str, applied: bool) -> None:
    """It is not sent again; all of it was applied, or nothing."""

    def recipe(session: Any) -> Steps:
        yield EnsureContainer(path)
        old, new = (yield NewTicket(path)), (yield NewTicket(path))
        yield CreateEphemeral(old, ROLE, b"")
        bench.lose(session, "multi", applied=applied)
        with pytest.raises(ConnectionLost):
            yield Multi(new, (Delete(old.node, old), CreateEphemeral(new, ROLE, b"")))
        _, names = yield Sync(path, new), Children(path, new)
        assert [name.startswith(new.prefix if applied else old.prefix) for name in names] == [True]
        yield Discard(new)
        yield Discard(old)
        wait(session, lambda: session.is_discarded(new))  # by the keeper, which has to find it
        return (yield Children(path))

    assert drive(bench, path, recipe) == []


def test_a_ticket_whose_node_a_multi_deletes(bench: Bench, path: str) -> None:
    """It is done with when that succeeds, and not before; nothing is sent to give up an unsent one."""

    def recipe() -> Steps:
        yield EnsureContainer(path)
        old, new, idle = (yield NewTicket(path)), (yield NewTicket(path)), (yield NewTicket(path))
        yield CreateEphemeral(old, ROLE, b"")
        assert (yield Grant(old))
        assert (yield SuspendHold(old))
        assert not (yield SuspendHold(old))  # a hold no more
        with pytest.raises(NoNode):
            yield Multi(new, (Delete(old.node, old), CreateEphemeral(new, ROLE, b""), Check(f"{path}/none")))
        assert (yield Grant(old))
        assert (yield SuspendHold(old))
        yield Multi(new, (Delete(old.node, old), CreateEphemeral(new, ROLE, b"")))
        assert (old.state, new.state) == (State.DISCARDED, State.QUEUED)
        assert (yield Delete(new.node, new)) is True
        assert new.state is State.DISCARDED
        yield Discard(idle)
        yield MarkDeleted(old)
        return (yield Children(path))

    session = bench.session()
    left = perform(session, path, recipe())
    assert (left, session.registry.tickets, session.registry.deletes) == ([], {}, {})


def test_watching_what_changes(bench: Bench, path: str) -> None:
    """A wait ends when anything that was read with the ticket's last watch changes, in data or in children."""
    done: list[Any] = []

    def recipe(session: Any, other: Any) -> Steps:
        def in_background(fault: Any) -> None:
            session.link.handler.spawn(lambda: (fault(session), done.append(fault)))

        yield CreatePersistent(path, b"")
        yield CreatePersistent(f"{path}/x", b"")
        me = yield NewTicket(path)
        reads = (Get(path, me), Children(f"{path}/x", me))
        node, names = yield Watch(me, reads)
        assert (node.data, names) == (b"", [])
        other.link.handler.spawn(ask, other, ("set_data", path, b"new", 0))
        yield Wait(me)
        assert (yield Watch(me, reads))[0].data == b"new"
        other.link.handler.spawn(ask, other, ("create_persistent", f"{path}/x/y", b""))
        yield Wait(me)
        assert (yield Watch(me, reads))[1] == ["y"]
        other.link.handler.spawn(ask, other, ("delete", f"{path}/x/y"), ("delete", f"{path}/x"))
        while (yield Watch(me, reads))[1] != ():
            yield Wait(me)
        in_background(bench.cut)
        yield Wait(me)  # watches are dropped with the connection
        assert (yield Watch(me, reads))[0].data == b"new"
        wait(session, lambda: done == [bench.cut])
        in_background(bench.expire)
        with pytest.raises(SessionExpired):
            while True:  # a wait may end early
                yield Wait(me)
                yield Watch(me, reads)
        yield Discard(me)
        wait(session, lambda: done == [bench.cut, bench.expire])
        return session.registry._awaiting

    assert drive(bench, path, recipe, sessions=2) == {}


def test_what_is_not_there_is_not_watched(bench: Bench, path: str) -> None:
    """A read of a missing node answers None, or no names, and leaves no watch."""

    def recipe(session: Any) -> Steps:
        ticket = yield NewTicket(path)
        assert (yield Watch(ticket, (Get(path, ticket), Children(path, ticket)))) == [None, ()]
        yield Discard(ticket)
        yield EnsureContainer(path)
        client = session.link.client
        return [*filter(None, client._data_watchers.values()), *filter(None, client._child_watchers.values())]

    session = bench.session()
    assert perform(session, path, recipe(session)) == []


def test_a_wait_by_a_clock_that_is_set(bench: Bench, path: str) -> None:
    """A wait with `left` ends when that is 0, or at a change; `left` is asked again, as its clock may be set."""
    ahead: list[float] = []

    def recipe(session: Any, other: Any) -> Steps:
        def until(seconds: float) -> Callable[[], float]:
            at = session.now() + seconds
            return lambda: float(at - session.now() - sum(ahead))

        yield CreatePersistent(path, b"")
        me = yield NewTicket(path)
        began = session.now()
        yield Watch(me, (Get(path, me),))
        yield Wait(me, until(0.3))
        assert session.now() >= began + 0.3
        yield Watch(me, (Get(path, me),))
        other.link.handler.spawn(ask, other, ("set_data", path, b"new", 0))
        yield Wait(me, until(3600.0))
        assert (yield Watch(me, (Get(path, me),)))[0].data == b"new"
        asked = until(3600.0)

        def left() -> float:
            seconds = asked()
            ahead.append(3600.0)
            return seconds

        yield Wait(me, left)
        yield Discard(me)
        return session.now() - began

    assert drive(bench, path, recipe, sessions=2) < 60


def test_a_moment_after_the_deadline(bench: Bench, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its time is up, a recipe may ask what it needs to know, for a moment; then it is told again."""
    monkeypatch.setattr(patience, "CLEAN_UP_PATIENCE", 5.0)  # long enough for a machine that is busy

    def begin() -> Steps:
        yield CreatePersistent(path, b"")
        return (yield NewTicket(path))

    def recipe(me: Any) -> Steps:
        with pytest.raises(DeadlinePassed):
            yield Watch(me, (Get(path, me),))
            yield Wait(me)
        found = yield Get(path)
        yield Watch(me, (Get(path, me),))
        with pytest.raises(DeadlinePassed):
            yield Wait(me)
        yield Discard(me)
        return found.data

    session = bench.session()
    me = perform(session, path, begin())
    began = session.now()
    assert perform(session, path, recipe(me), began + 1.0) == b""
    assert session.now() - began >= 1.0 + 5.0


def test_a_call_that_is_closed_while_its_recipe_cleans_up(bench: Bench, path: str) -> None:
    """The call closes its recipe at once, and leaves none of its generators to the garbage collector."""
    cleaning, closed = [], []

    def clean_up(me: Any) -> Steps:
        cleaning.append(me)
        try:
            yield Wait(me)
        finally:
            closed.append(me)

    def recipe() -> Steps:
        yield CreatePersistent(path, b"")
        me = yield NewTicket(path)
        try:
            yield Watch(me, (Get(path, me),))
            yield Wait(me)
        except DeadlinePassed:
            yield from clean_up(me)

    session = bench.session()
    call = Call(session, path)
    steps = call.run(recipe(), session.now() + 0.5)
    call.begin(session.link.handler.event_object().set)
    next(steps)
    until = session.now() + 20
    while not cleaning:
        assert session.now() < until
        session.link.handler.sleep_func(0.005)
        steps.send(False)
    steps.close()
    assert closed == cleaning
    call.abandon()


def test_the_exit_and_a_thread_that_releases(bench: Bench, path: str) -> None:
    """The interpreter's exit waits for the delete, and no longer, also where the thread is the one that is woken."""

    def recipe(session: Any) -> Steps:
        yield EnsureContainer(path)
        ticket = yield NewTicket(path)
        yield CreateEphemeral(ticket, ROLE, b"")
        until_done = session.abandon_all()
        ticket.on_change = int  # as the thread sets, between its delete and waiting for that
        until = session.now() + 60
        until_done(until)
        assert session.now() < until
        return session.is_discarded(ticket)

    assert drive(bench, path, recipe)
