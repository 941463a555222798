"""The parts of the engine on a link that does as it is told: what hardly any random run brings about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError, NoNodeError

from zkconcurrent import RefusedError
from zkconcurrent._engine import requests
from zkconcurrent._engine.deletes import Deletes
from zkconcurrent._engine.heartbeat import Heartbeat
from zkconcurrent._engine.listener import Listener
from zkconcurrent._engine.registry import Registry
from zkconcurrent._engine.watches import LINGER, TOGETHER, Watches
from zkconcurrent._protocol import operations as op
from zkconcurrent._protocol.lease import Lease
from zkconcurrent._protocol.ticket import State, Ticket

TIMEOUT = 6.0


class Bench:
    """A client whose link notes its requests; those that it leaves unanswered are in `replies`.

    Attributes:
        now: its clock.
        sent: what was requested, and of which node.
        error: how each delete is refused; None if it is not answered.
        warnings: what was logged.
    """

    connected = was_connected = True
    stopped = False

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: list[tuple[str, str]] = []
        self.replies: list[Any] = []
        self.error: Exception | None = None
        self.warnings: list[str] = []
        self.awaited_xid: int | None = None
        self.dropped = 0
        self.transport, self.large, self.connection = self, self, object()
        lease = Lease(1)
        lease.opened(0.0, TIMEOUT)
        self.registry = Registry("00000000-0000-0000-0000")
        self.registry.opened(lease)
        self.session: Any = SimpleNamespace(
            link=self,
            registry=self.registry,
            timeout=TIMEOUT,
            now=lambda: self.now,
            time=lambda: self.now,
            clock=lambda: self.now,
            post=lambda act: act(),
            wake_keeper=lambda: None,
            negotiated=lambda _: None,
            warn_later=lambda text, *_, **__: self.warnings.append(text),
        )

    def ticket(self, path: str, *, named: bool = True) -> Ticket:
        """Return a ticket whose create was sent; its name is known once that was answered."""
        ticket = self.registry.begin(path, [])
        ticket.sent = True
        if named:
            ticket.queued_as(f"{ticket.prefix}lock-0000000000", 1)
        return ticket

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

    def remove_watch(self, path: str, _kind: int, reply: Any, _watcher: Any) -> None:
        """Note the removal of a watch."""
        self._note("remove", path, reply)

    def watches(self, _path: str, _watcher: Any) -> list[int]:
        """Return the kinds of watches."""
        return [1]

    def _note(self, what: str, node: str, reply: Any) -> None:
        self.sent.append((what, node))
        self.replies.append(reply)

    def passed(self) -> bool:
        """Return whether a part of a large reply has come."""
        return False

    def drop(self) -> None:
        """Note that the connection was cut."""
        self.dropped += 1

    def make_chroot(self) -> None:
        """Note it."""
        self.sent.append(("create", "chroot"))


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
    deletes.begin_anew()
    deletes.send_all("/path")
    assert bench.sent == [("delete", each.node) for each in tickets[:2]] * 2


def test_a_node_whose_name_is_not_known_is_found_and_deleted() -> None:
    """A listing behind a `sync` shows the node whose create got no reply, and then it is deleted."""
    bench = Bench()
    deletes, ticket = Deletes(bench.session), bench.ticket("/path", named=False)
    bench.registry.discard(ticket)
    assert deletes.send_all("/path")
    assert [what for what, _ in bench.sent] == ["sync", "children"]
    bench.replies[0].set()
    bench.replies[1].set([f"{ticket.prefix}lock-0000000007"])
    assert bench.sent[2:] == [("delete", f"/path/{ticket.prefix}lock-0000000007")]
    bench.replies[2].set()
    assert not bench.registry.deletes


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
        watches.remove_idle(bench.now)
        bench.now += LINGER
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
    bench.now += TIMEOUT + 0.1 if late else TIMEOUT / 3
    heartbeat.beat(bench.now)
    assert (bench.sent, bench.dropped) == ([("sync", "/")], 0)
    bench.now += TIMEOUT / 3
    heartbeat.beat(bench.now)
    bench.now += 0.1
    heartbeat.beat(bench.now)
    assert (len(bench.sent), bench.dropped) == ((2, 0) if late else (1, 1))


def test_the_chroot_is_made_again_for_the_next_session() -> None:
    """The servers may have been set up anew; the first session's was made as the client was opened."""
    bench = Bench()
    listener = Listener(bench.session, lambda _: None, lambda _: None)
    first, second = Lease(1), Lease(2)
    bench.registry.lease = Lease(0)
    listener._opened(first)
    bench.registry.opened(first)
    listener._opened(first)
    assert not bench.sent
    listener._opened(second)
    assert bench.sent == [("create", "chroot")]


@pytest.mark.parametrize(("refused", "outcome"), [("/app", RefusedError), (None, op.NodeExists), ("/", op.NodeExists)])
def test_a_container_whose_parent_is_missing(refused: str | None, outcome: type[Exception]) -> None:
    """It is refused if its parent was; otherwise that was reaped just now, and the recipe makes it again."""
    call: Any = SimpleNamespace(path="/app/lock", refused=None)
    if refused is not None:
        refusal = requests.container_failure(call, op.EnsureContainer(refused), NoAuthError(), RefusedError("/", ""))
        assert isinstance(refusal, op.NodeExists)
    failed = requests.container_failure(call, op.EnsureContainer("/app/lock"), NoNodeError(), op.NoNode())
    assert type(failed) is outcome


def test_one_loss_is_no_loss_of_others() -> None:
    """While the lease runs, what makes the client look at it ends no hold."""
    bench = Bench()
    ticket = bench.ticket("/path")
    ticket.become(State.HELD)
    bench.registry.lease.answered(1.0, 2.0, write=True)
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
    found = requests.together_failure(call, step, NoNodeError(), failure)
    assert isinstance(found, op.NoNode if failed else RefusedError)
