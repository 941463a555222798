"""Seeded bugs: small changes to the real code, which the simulation must find.

Each is told as the lines that it changes, so that it reads as a diff, and fails loudly when those lines are no more.
"""

from __future__ import annotations
import __future__

import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.simulation.checks import found
from tests.simulation.world.run import Run
from tests.simulation.world.world import Violation

FURTHEST = 8000  # seeds; the rarest bug is found by one of some 5,000


class Edit(NamedTuple):
    """One change: in a function, named from its module on, `old` becomes `new`."""

    where: str
    old: str
    new: str


class Mutant(NamedTuple):
    """A bug, by what it does wrong."""

    name: str
    edits: tuple[Edit, ...]


@contextmanager
def seeded(mutant: Mutant) -> Iterator[None]:
    """Have the bug in the library while the block runs."""
    edits: dict[str, list[Edit]] = {}
    for edit in mutant.edits:
        edits.setdefault(edit.where, []).append(edit)
    with ExitStack() as patches:
        for where, changes in edits.items():
            patches.enter_context(_changed(where, changes))
        yield


def find(mutant: Mutant, run: Callable[[int], Run]) -> None:
    """Find a bug by random runs: by the first seed whose run it fails; the library as it is passes that one.

    Which seed that is changes with the code, as any change of it gives others their turn; that there is one does not.

    Raises:
        AssertionError: no run finds it.
    """
    bug = f"{run.__module__.rpartition('.')[2]}: {mutant.name}"
    noted = found.noted(bug)
    with seeded(mutant):
        for seed in (*([] if noted is None else [int(noted)]), *range(FURTHEST)):
            try:
                run(seed).to_the_end()
            except Violation:
                break
        else:
            raise AssertionError(f"{FURTHEST} runs do not find it")
    run(seed).to_the_end()
    if noted is not None and seed != int(noted):
        found.stale.append(bug)
    found.note(bug, seed)


@contextmanager
def _changed(where: str, edits: list[Edit]) -> Iterator[None]:
    """Have one function changed while the block runs."""
    module_name, _, qualified = where.partition(":")
    module = importlib.import_module(f"zkconcurrent.{module_name}")
    *classes, name = qualified.split(".")
    owner: Any = module
    for each in classes:
        owner = getattr(owner, each)
    original = inspect.getattr_static(owner, name)
    source = textwrap.dedent(inspect.getsource(getattr(original, "fget", original)))  # a property's is its getter's
    for edit in edits:
        if source.count(edit.old) != 1:
            raise LookupError(f"{where} must have this once, to be changed:\n{edit.old}\nIt reads:\n{source}")
        source = source.replace(edit.old, edit.new)
    made: dict[str, Any] = {}
    exec(compile(source, f"<mutant of {where}>", "exec", __future__.annotations.compiler_flag), vars(module), made)
    if inspect.isfunction(original) and not original.__closure__:
        # So the function changes wherever it is known: by a name in another module, or as an entry of a table.
        code, original.__code__ = original.__code__, made[name].__code__
        try:
            yield
        finally:
            original.__code__ = code
    else:
        with patch.object(owner, name, made[name]):
            yield


def bug(name: str, where: str, old: str, new: str, *more: tuple[str, str, str]) -> Mutant:
    """Return a seeded bug: one edit of the text of a function, or several."""
    return Mutant(name, (Edit(where, old, new), *(Edit(*each) for each in more)))


MUTANTS = [
    # Queueing and its lost answers.
    bug(
        "blind retry of create",
        "_engine.operations:_request",
        "if not POLICIES[type(operations[i])].repeats:",
        "if False:",
    ),
    # Each of these lines alone keeps a node of an older session, seen at a server that lags, from being adopted.
    bug(
        "a node of an older session is adopted: no ephemeralOwner check",
        "_recipes.lock:find",
        " or node.session != ticket.session",
        "",
        (
            "_recipes.lock:find",
            "_, names = yield op.Sync(ticket.path, ticket), op.Children",
            "names = yield op.Children",
        ),
        (
            "_engine.driver:Call.await_session",
            "if ticket is not None and (ticket.session != present or ticket.state is State.DISCARDED):\n"
            "            raise SessionExpired",
            "if ticket is not None and present is not None:\n            ticket.session = present",
        ),
        ("_engine.registry:Registry.grant", "if not ticket.lease.believed(now, ticket.doubted):", "if False:"),
    ),
    bug(
        "a create is sent in the session after its own",
        "_kazoo.requests:refuse_of_other_sessions",
        "while queue and",
        "while False and",
    ),
    bug(
        "no clean-up on timeout",
        "_engine.driver:Call.run",
        "yield from self.discard(self.tickets[begun:])",
        "pass",
    ),
    bug(
        "no clean-up on an interrupt",
        "_engine.driver:Call.run",
        "yield from self.discard(self.tickets[begun:])",
        "pass",
        ("_runtime.waiting:_end", "call.abandon()", "pass"),
    ),
    bug(
        "a node whose name was never learned is not looked for",
        "_engine.deletes:Deletes._find",
        "client.link.sync(ticket.path, synced)",
        "return self._deleted(ticket)",
    ),
    bug(
        "a container and its first child are made in two requests",
        "_recipes.lock:create",
        "create = op.Multi(ticket, (*lacking, own)) if lacking else own",
        "for each in lacking or ():\n                yield op.EnsureContainer(each.path)",
    ),
    # Waiting.
    bug(
        "the end of the node ahead is taken for a grant, without a new listing",
        "_engine.listener:Listener.on_event",
        "self._client.post(partial(self._client.registry.note_change, event.path))",
        "for waiter in self._client.registry._awaiting.get(event.path, ()):\n"
        "        waiter.handed_over = True\n"
        "    self._client.post(partial(self._client.registry.note_change, event.path))",
    ),
    bug(
        "any wake-up is taken for a grant",
        "_engine.operations:_wait_gone",
        "if ticket.handed_over:",
        "if True:",
    ),
    bug(
        "no wake-up after the watches were dropped",
        "_engine.registry:Registry.note_change",
        "list(self._awaiting) if node is None",
        "[] if node is None",
    ),
    bug(
        "the first in the queue is watched, not the nearest ahead",
        "_protocol.rules:blocker",
        "its >= nearest_key",
        "its < nearest_key",
    ),
    bug(
        "the answer to a watching read is not looked at: the node ahead may be gone already",
        "_engine.operations:_wait_gone",
        "if reply.error is not None:",
        "if False:",
    ),
    bug(
        "the timer starts anew at each wake-up",
        "_engine.driver:Call.park",
        "woken = yield None if until == math.inf else max(0.0, until - now)",
        "woken = yield None if until == math.inf else max(0.0, until - now)\n"
        "    if woken and patience.cutoff is not None:\n"
        "        patience.cutoff += session.now() - now",
    ),
    bug(
        "a queued node that is deleted is not missed",
        "_engine.registry:Registry.mark_missing",
        "ticket.note_change()",
        "pass",
    ),
    # Local hand-over, without each of its conditions.
    bug(
        "local hand-over: for any session of the waiter",
        "_engine.registry:Registry.grant",
        "ticket.session != self.session or ",
        "",
        (
            "_engine.registry:Registry.grant",
            "ticket.lease.believed(now, ticket.doubted)",
            "self.lease.believed(now, ticket.doubted)",
        ),
        ("_engine.registry:Registry.hand_over", "if waiter.session == ticket.session == self.session:", "if True:"),
    ),
    bug(
        "local hand-over: although the releaser's hold was lost",
        "_threads.base.lock_core:LockCore.begin_release",
        "except LockLostError:\n",
        "except LockLostError:\n        self.session.registry.hand_over(hold.ticket)\n",
        ("_engine.registry:Registry.hand_over", "== self.session:", "== ticket.session:"),
        (
            "_engine.registry:Registry.grant",
            "if not ticket.lease.believed(now, ticket.doubted):",
            "if not (ticket.lease.believed(now, ticket.doubted) or ticket.handed_over):",
        ),
    ),
    bug(
        "local hand-over: the lease is not checked",
        "_engine.registry:Registry.grant",
        "if not ticket.lease.believed(now, ticket.doubted):",
        "if not (ticket.lease.believed(now, ticket.doubted) or ticket.handed_over):",
    ),
    bug(
        "local hand-over: to whoever of ours waits, not only to the next",
        "_engine.registry:Registry.hand_over",
        "list(self._awaiting.get(ticket.node, ()))",
        "[one for some in self._awaiting.values() for one in some if one.path == ticket.path]",
    ),
    # Losses.
    bug(
        "a release after a loss frees a newer hold",
        "_threads.base.lock_core:LockCore.releasable",
        "self.mine() or self.newest()",
        "self.newest()",
    ),
    bug(
        "a release does not look at the clock",
        "_threads.base.lock_core:LockCore.check",
        "self.session.check_lease()",
        "pass",
    ),
    bug(
        "a hold lost by our clock leaves its node",
        "_engine.registry:Registry.finish_loss",
        "self.deletes[ticket.prefix] = ticket",
        "pass",
    ),
    bug(
        "a held node that is deleted is not missed",
        "_engine.registry:Registry.mark_missing",
        "self._lose(ticket, LossRecord(LossCause.NODE_DELETED))",
        "pass",
    ),
    bug(
        "holds survive their session",
        "_engine.registry:Registry.ended",
        "self._lose(ticket, loss)",
        "pass",
        ("_protocol.lease:Lease.ended", "self.over = True", "pass"),
        # Any of the three loses them.
        (
            "_engine.registry:Registry.expire_lease",
            "if ticket.state is State.HELD:",
            "if ticket.state is State.HELD and ticket.lease is self.lease:",
        ),
    ),
    bug(
        "nobody is told of a loss",
        "_engine.holds:PathState._tell",
        "hold.loss.tell()",
        "pass",
    ),
    bug(
        "a session that is over is kept as long as its connection",
        "_kazoo.link:Link._leave_if_over",
        "self.transport.drop()",
        "pass",
    ),
    # Deletes.
    bug(
        "a delete whose answer was lost is forgotten",
        "_engine.deletes:Deletes._try_again",
        "self.in_flight.pop(ticket.prefix, None)",
        "self._deleted(ticket)",
    ),
    bug(
        "a delete is sent once",
        "_engine.deletes:Deletes.repeat",
        "self._delete_or_find(ticket)",
        "if ticket.name is None:\n                self._find(ticket)",
    ),
    bug(
        "a release while disconnected is forgotten",
        "_engine.deletes:Deletes.send",
        "self._client.wake_keeper()",
        "self._client.registry.mark_deleted(ticket)",
    ),
    # Bugs that this simulation has found.
    bug(
        "found: an interrupted release forgets the hold",
        "_threads.base.lock_core:LockCore.end_hold",
        "self.drop(hold)",
        "self.path_state.drop(hold)",
    ),
    bug(
        "found: a session that ends just before NewTicket",
        "_engine.operations:_new_ticket",
        "except op.SessionExpired:",
        "except ZeroDivisionError:",
    ),
    bug(
        "found: an interrupted settling is counted twice",
        "_threads.base.lock_core:LockCore.begin_release",
        "if hold.depth > 1:\n            hold.depth -= 1\n        else:\n            self.path_state.drop(hold)",
        "hold.depth -= 1\n        if hold.depth == 0:\n            self.path_state.drop(hold)",
    ),
]
