"""The parts of the engine on a link that does as it is told: what hardly any random run brings about."""

from __future__ import annotations

import itertools
import math
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import MarshallingError, NoAuthError, NoNodeError, ThrottledOpError, UnimplementedError

from zkconcurrent import RefusedError
from zkconcurrent._engine import operation_requests
from zkconcurrent._engine.call import Call
from zkconcurrent._engine.deletes import Deletes
from zkconcurrent._engine.heartbeat import Heartbeat
from zkconcurrent._engine.loss_signal import JointLoss, Loss
from zkconcurrent._engine.patience import CLEAN_UP_PATIENCE, Patience
from zkconcurrent._engine.ticket_registry import Registry
from zkconcurrent._engine.watch_removals import LINGER, TOGETHER, Watches
from zkconcurrent._protocol import operations as op
from zkconcurrent._protocol.operations import Node
from zkconcurrent._protocol.session_lease import Lease
from zkconcurrent._protocol.ticket import State, Ticket
from zkconcurrent._protocol.way_to_grant import Way

TIMEOUT = 6.0


class Bench:
    """A client whose link notes its requests; those that it leaves unanswered are in `replies`.

    Attributes:
        now: its clock.
        sent: what was requested, and of which node.
        error: how each delete is refused; None if it is not answered.
        kinds, tree_kinds: the kinds of watches of a wait, and of a tree.
        warnings: what was logged.
    """

    connected = was_connected = True
    stopped = on_own_thread = exiting = False
    max_request = 1 << 20
    user_event = threading.Event

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: list[tuple[str, str]] = []
        self.replies: list[Any] = []
        self.error: Exception | None = None
        self.kinds, self.tree_kinds = [1], ()
        self.warnings: list[str] = []
        self.awaited_xid: int | None = None
        self.dropped = 0
        self.transport, self.large, self.connection = self, self, object()
        lease = Lease(1)
        lease.note_opened(0.0, TIMEOUT)
        self.registry = Registry("00000000-0000-0000-0000")
        self.registry.begin_session(lease)
        self.session: Any = SimpleNamespace(
            link=self,
            lock=threading.RLock(),
            dropped=deque(),
            registry=self.registry,
            timeout=TIMEOUT,
            now=lambda: self.now,
            clock=lambda: self.now,
            post=lambda act: act(),
            wake_keeper=lambda: None,
            negotiated=lambda _: None,
            warn_later=lambda text, *_, **__: self.warnings.append(text),
        )

    def ticket(self, path: str, *, named: bool = True) -> Ticket:
        """Return a ticket whose create was sent; its name is known once that was answered."""
        ticket = self.registry.new_ticket(path, [])
        ticket.sent = True
        if named:
            ticket.queued_as(f"{ticket.prefix}lock-0000000000", 1)
        return ticket

    def send(self, *_: object) -> None:
        """Each request was noted as it was made."""

    def delete(self, node: str, reply: Any) -> None:
        """Note a delete."""
        self._note("delete", node, reply)
        if self.error is not None:
            reply.set_exception(self.error)

    def sync(self, path: str, reply: Any) -> None:
        """Note a `sync`."""
        self._note("sync", path, reply)

    def children(self, path: str, reply: Any) -> None:
        """Note a listing."""
        self._note("children", path, reply)

    def check(self, nodes: list[str], reply: Any) -> None:
        """Note a check of so many nodes, or of the root."""
        self._note("check", str(len(nodes) or "/"), reply)

    def get(self, node: str, reply: Any, _watcher: Any = None) -> None:
        """Note a read."""
        self._note("get", node, reply)

    def full(self, path: str) -> str:
        """Return the path."""
        return path

    def answer(self, value: object = None, what: str = "") -> None:
        """Answer all that was not, one kind of requests by this value."""
        waiting, self.replies = self.replies, []
        for (kind, node), reply in zip(self.sent[len(self.sent) - len(waiting) :], waiting, strict=True):
            if kind != what:
                reply.set([None] * int(node) if kind == "check" and node != "/" else None)
            elif isinstance(value, Exception):
                reply.set_exception(value)
            else:
                reply.set(value)

    def remove_watch(self, path: str, kind: int, reply: Any, _watcher: Any = None) -> None:
        """Note the removal of a watch."""
        self._note("remove" if kind == 1 else f"remove {kind}", path, reply)

    def watches(self, _path: str, _watcher: Any) -> list[int]:
        """Return the kinds of watches."""
        return self.kinds

    def kinds_of_trees(self) -> tuple[int, ...]:
        """Return the kinds of the watch of a tree."""
        return self.tree_kinds

    def _note(self, what: str, node: str, reply: Any) -> None:
        self.sent.append((what, node))
        self.replies.append(reply)

    def passed(self) -> bool:
        """Return whether a part of a large reply has come."""
        return False

    def drop(self) -> None:
        """Note that the connection was cut."""
        self.dropped += 1


def test_a_call_first_deletes_what_is_left_at_its_path() -> None:
    """It sends the deletes at its path and below it, once on each connection, and no others."""
    bench = Bench()
    deletes = Deletes(bench.session)
    tickets = [bench.ticket(path) for path in ("/path", "/path/below", "/path2", "/other")]
    for ticket in tickets:
        bench.registry.discard(ticket)
    for _ in range(2):
        assert not deletes.send_all("/path")
        assert bench.sent == [("delete", each.node) for each in tickets[:2]]
    deletes.forget_sends()
    deletes.send_all("/path")
    assert bench.sent == [("delete", each.node) for each in tickets[:2]] * 2


def test_a_delete_that_is_refused_is_logged_once() -> None:
    """The keeper tries it for ever; the log tells of it at the first refusal, and the ticket keeps that error."""
    bench = Bench()
    deletes, ticket, bench.error = Deletes(bench.session), bench.ticket("/path"), NoAuthError()
    bench.registry.discard(ticket)
    deletes.send(ticket)
    refusal = ticket.refusal
    assert isinstance(refusal, RefusedError)
    assert "DELETE (d) on /path" in str(refusal)
    bench.now = TIMEOUT
    deletes.repeat(bench.now)
    assert len(bench.sent) == 2
    assert ticket.refusal is refusal
    assert bench.warnings == ["not deleted: %s"]


def test_watches_that_nobody_needs_are_removed() -> None:
    """A watch goes after it has lingered; of very many, some at a time, and the next ones once these are answered."""
    bench, paths = Bench(), [f"/path/{n}" for n in range(2 * TOGETHER)]
    watches = Watches(bench.session, lambda _: None)
    bench.registry.left = dict.fromkeys(paths, False)
    for _ in range(2):
        assert not bench.sent
        assert watches.pause == LINGER
        watches.remove_idle(bench.now)
        bench.now += LINGER
    assert watches.pause == math.inf
    for rounds in (1, 2):
        assert bench.sent == [("remove", path) for path in paths[: rounds * TOGETHER]]
        watches.remove_idle(bench.now)
        assert len(bench.sent) == rounds * TOGETHER
        for reply in bench.replies[-TOGETHER:]:
            reply.set()
        watches.remove_idle(bench.now)


@pytest.mark.parametrize("late", [False, True])
def test_a_reply_that_does_not_come(late: bool) -> None:
    """A link without any reply for a third of the session timeout is cut; one that is slow is asked again."""
    bench = Bench()
    heartbeat = Heartbeat(bench.session, print, bool)
    bench.awaited_xid = 1
    heartbeat.beat(bench.now)
    bench.awaited_xid = 2  # the reply to an earlier request
    assert not heartbeat.overdue(TIMEOUT / 6)
    assert heartbeat.overdue(TIMEOUT / 6 + 0.1)
    bench.now += TIMEOUT + 0.1 if late else TIMEOUT / 3
    heartbeat.beat(bench.now)
    assert (bench.sent, bench.dropped) == ([("sync", "/")], 0)
    bench.now += TIMEOUT / 3
    heartbeat.beat(bench.now)
    bench.now += 0.1
    heartbeat.beat(bench.now)
    assert (len(bench.sent), bench.dropped) == ((2, 0) if late else (1, 1))


def test_one_loss_is_no_loss_of_others() -> None:
    """While the lease runs, what makes the client look at it ends no hold."""
    bench = Bench()
    ticket = bench.ticket("/path")
    ticket.become(State.HELD)
    bench.registry.lease.note_answered(1.0, 2.0, write=True)
    end = bench.registry.lease.end
    for now, state in ((end - 0.1, State.HELD), (end, State.LOST)):
        bench.registry.expire_lease(now, None)  # type: ignore[arg-type]
        assert ticket.state is state


@pytest.mark.parametrize("failed", [0, 1])
def test_the_chroot_that_is_missing(failed: int) -> None:
    """Of nodes made together, only the lack of a parent at the top shows that."""
    call: Any = SimpleNamespace(path="/a", session=SimpleNamespace(link=SimpleNamespace(full=lambda path: path)))
    step, failure = op.CreateTogether((op.Container("/a"), op.Container("/a/b"))), op.NoNode()
    failure.part = failed
    found = operation_requests.together_failure(call, step, NoNodeError(), failure)
    assert isinstance(found, op.NoNode if failed else RefusedError)


def test_a_delete_without_a_reply_is_logged() -> None:
    """It is sent again each session timeout, and the log tells of it once it takes long."""
    bench = Bench()
    deletes, ticket = Deletes(bench.session), bench.ticket("/path")
    bench.registry.discard(ticket)
    for tries in range(1, 4):
        deletes.repeat(bench.now)
        assert len(bench.sent) == tries
        assert len(bench.warnings) == tries - 1
        bench.now += TIMEOUT


@pytest.mark.parametrize(("spent", "left"), [(False, {"/path": False}), (True, {})])
def test_a_wait_that_ends_without_its_event_leaves_a_watch(spent: bool, left: dict[str, bool]) -> None:
    """The watch is to be removed, unless it has fired."""
    registry = Bench().registry
    ticket = registry.new_ticket("/path", [])
    registry.start_waiting(ticket, "/path")
    if spent:
        registry.note_change("/path")
    registry.stop_waiting(ticket)
    assert registry.left == left


def test_a_ticket_between_two_sessions() -> None:
    """There is none: its node would be made in a session that is over."""
    with pytest.raises(op.SessionExpired):
        Registry("seed").new_ticket("/path", [])


def test_a_waiter_whose_own_node_is_deleted() -> None:
    """It looks again at once: no event of the node ahead makes it hold any more."""
    bench = Bench()
    ticket = bench.ticket("/path")
    ticket.way = Way(1, 1)
    Heartbeat(bench.session, print, bool).own_changed(ticket, deleted=True)
    assert ticket.changed


def test_the_node_of_a_hold_is_watched() -> None:
    """With the next beat, once on each connection; a server that was too busy is asked again."""
    bench = Bench()
    ticket, heartbeat = bench.ticket("/path"), Heartbeat(bench.session, print, bool)
    ticket.become(State.HELD)
    reads = 0
    for answer, more in ((ThrottledOpError(), 1), ((b"", Node(b"", 1, 0.0, 1)), 1), (None, 0)):
        heartbeat.beat(bench.now)
        reads += more
        assert bench.sent.count(("get", ticket.node)) == reads
        bench.answer(answer, "get")
        bench.now += TIMEOUT


@pytest.mark.parametrize(("error", "missing"), [(NoNodeError(), True), (NoAuthError(), False)])
def test_a_node_that_a_proof_misses(error: Exception, missing: bool) -> None:
    """The proof has failed as a whole: another write proves the lease, and the next leaves out what can't be read."""
    bench = Bench()
    heartbeat, tickets = Heartbeat(bench.session, print, bool), [bench.ticket("/path") for _ in range(3)]
    for each in tickets:
        bench.registry.start_waiting(each, "/path/x")
    heartbeat.beat(bench.now)
    bench.answer([None, error, None], "check")
    assert [each.changed for each in tickets] == [False, missing, False]
    assert bench.sent[1:] == [("check", "/"), ("sync", "/"), ("get", tickets[2].node)]
    bench.answer()
    bench.now += TIMEOUT
    heartbeat.beat(bench.now)
    assert bench.sent[4] == ("check", "2")
    bench.registry.lease.note_answered(bench.now, bench.now + 0.1, write=True)
    bench.registry.lease.heard = bench.now
    bench.registry.lease._set_end()
    assert bench.registry.grant(tickets[1], bench.now + 0.2)
    assert not tickets[1].unreadable


def test_a_joint_hold_of_which_a_part_is_lost_already() -> None:
    """Its event is set from the begin."""

    class Holder:
        """A holder."""

    holder: Any = Holder()
    session: Any = SimpleNamespace(lock=threading.RLock(), link=SimpleNamespace(user_event=threading.Event))
    losses = [(session, Loss(threading.Event)) for _ in range(2)]
    losses[1][1].set()
    assert JointLoss.of(holder, losses).event.is_set()


@pytest.mark.parametrize("error", [UnimplementedError(), MarshallingError(), NoNodeError()])
def test_a_server_that_watches_no_tree(error: Exception) -> None:
    """The error says what the server lacks; any other is left as it is."""
    failed = op.NoNode()
    found = operation_requests.tree_failure(SimpleNamespace(path="/d"), op.WatchRecursive, error, failed)  # type: ignore[arg-type]
    assert found is failed if isinstance(error, NoNodeError) else isinstance(found, RefusedError)


def test_how_long_a_recipe_waits() -> None:
    """Until the deadline, once it waits; before that, for the replies; after it, for a moment to clean up."""
    patience = Patience(10.0, replies_by=20.0)
    assert patience.limit() == 20.0
    patience.begin_wait(9.9)
    assert patience.limit() == 10.0
    with pytest.raises(op.DeadlinePassed):
        patience.begin_wait(10.0)
    patience = Patience(10.0, replies_by=20.0)
    patience.begin_clean_up(11.0)
    assert patience.limit() == 11.0 + CLEAN_UP_PATIENCE


def test_how_long_a_recipe_waits_for_a_server() -> None:
    """An outage counts from when the connection was lost, each anew."""
    patience = Patience()
    assert patience.reachable_by(10.0, True, 5.0) == math.inf
    for began in (20.0, 30.0):
        assert patience.reachable_by(began, False, 5.0) == patience.reachable_by(began + 5.0, False, 5.0)
        assert patience.reachable_by(began + 5.0, True, 5.0) == math.inf
    patience.reachable_by(40.0, False, 5.0)
    with pytest.raises(op.OutOfReach):
        patience.reachable_by(45.1, False, 5.0)


def test_the_nodes_are_checked_also_while_other_writes_prove_the_lease() -> None:
    """A busy holder sends a proof every other spacing."""
    bench = Bench()
    ticket, lease, heartbeat = bench.ticket("/path"), bench.registry.lease, Heartbeat(bench.session, print, bool)
    ticket.become(State.HELD)
    proofs: list[float] = []
    while bench.now < 10 * TIMEOUT:
        before = bench.sent.count(("check", "1"))
        lease.note_answered(bench.now - 0.02, bench.now - 0.01, write=True)
        heartbeat.beat(bench.now)
        bench.answer((b"", Node(b"", 1, 0.0, 1)), "get")
        if bench.sent.count(("check", "1")) > before:
            proofs.append(bench.now)
        bench.now += 0.05
    for earlier, later in itertools.pairwise([each for each in proofs if each > 2 * TIMEOUT]):
        assert 1.5 * lease.spacing < later - earlier < 2.5 * lease.spacing
    assert len(bench.sent) > 0.8 * bench.now / lease.beat


def test_a_create_is_for_one_session() -> None:
    """Sent in the next one, it would make a node that no ticket has."""
    ticket, link = Ticket("/path", "_c_x-", Lease(7)), SimpleNamespace(create=lambda *made: made)
    call: Any = SimpleNamespace(session=SimpleNamespace(link=link, post=print))
    made = operation_requests.create(call, op.CreateEphemeral(ticket, "lock-", b""), None)
    assert made[-1].session == 7


@pytest.mark.parametrize("reason", [None, "exiting", "on_own_thread"])
def test_who_waits_until_a_node_is_gone(reason: str | None) -> None:
    """Nobody at the exit, and none of kazoo's threads, as others wait for them."""
    bench = Bench()
    ticket = bench.ticket("/path")
    bench.registry.discard(ticket)
    vars(bench.session).update(exiting=reason == "exiting", is_gone=lambda _: False)
    vars(bench).update(on_own_thread=lambda: reason == "on_own_thread")
    pause = next(Call(bench.session, "/path").wait_until_gone(ticket), None)
    assert pause == (None if reason else TIMEOUT / 6)
