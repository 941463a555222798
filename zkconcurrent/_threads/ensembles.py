"""A namespace of several ensembles begins: it reads their records, and writes what they have yet to agree on.

A list that the others do not have is an error here, as two processes with different lists would not exclude each other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from .._engine.driver import Call
from .._engine.ensembles import Admission, Spread, attend, record_path
from .._engine.session import Session
from .._kazoo.link import KazooClient
from .._protocol.ensembles import List, Plan, Record, gone, place, refused
from .._protocol.operations import Recipe
from .._recipes.ensembles import agree, close, mark, marked, move, named, read, reopen

T = TypeVar("T")


def spread_over(clients: Sequence[KazooClient], joining: Sequence[KazooClient], base: str) -> Spread:
    """Return the ensembles of a namespace, of which this process is a member from now on.

    Args:
        clients: a client of each.
        joining: a client of each that the list is about to grow by.
        base: the base path.

    Raises:
        ValueError: two clients are of one ensemble.
        ClientError: the users of an ensemble have agreed on another list; or the list can't grow yet.
        ForeignNodeError: the record's node has other data.
    """
    at = record_path(base)
    sessions = [Session.of(client) for client in (*clients, *joining)]
    records = [_run(session, at, named(at, _new_name(session))) for session in sessions]
    of = {record.name: session for record, session in zip(records, sessions, strict=True)}
    if len(of) < len(records):
        raise ValueError(f"two of the clients are of one ensemble: {[record.name for record in records]}")
    names = list(of)
    plan = Plan(tuple(sorted(names[: len(clients)])), tuple(sorted(names)))
    lists = max((record.lists for record in records), key=len) or (plan.uses,)
    for record in records:
        if record.lists != lists[: len(record.lists)] or record.next not in (None, plan.ends):
            raise refused(at, plan, record)
    if not plan.moves and set(lists[-1]) < set(plan.ends):
        lists = (*lists, plan.ends)
    present = lists[-1]
    if plan.uses not in lists or present not in (plan.uses, plan.ends):
        raise refused(at, plan, max(records, key=lambda record: len(record.lists)))
    if not plan.moves:
        old = {each.name: each.lists[-1] for each in records if each.lists and each.lists[-1] != present}
        leaves = {name: partial(_leaves, name, old[name], present) for name in old}
        _move(at, plan, {of[name]: partial(close, at, plan, old[name], leaves[name]) for name in old})
    for record in records:
        if not record.lists:
            wanted = Record(record.name, lists) if record.name in present else Record(record.name, (), plan.ends)
            _run(of[record.name], at, agree(at, plan, wanted))
    spread = Spread(base, plan, of, lists[: lists.index(plan.uses) + 1])
    for n, left in enumerate(spread.lists[:-1], 1):
        for name in left:
            spread.marks[n, name] = _run(of[name], at, marked(mark(at, n)))
    for name, session in of.items():
        _admit(session, spread, name)
    return spread


def _move(at: str, plan: Plan, closes: Mapping[Session, Callable[[], Recipe[int]]]) -> None:
    """Move the old ensembles to the new list: all of them, or none if one of them can't."""
    while True:
        try:
            versions = {session: _run(session, at, each()) for session, each in closes.items()}
        except BaseException:
            for session in closes:
                _run(session, at, reopen(at, plan))
            raise
        # Another process, which found that one can't, may have opened the old list again.
        if all(_run(session, at, move(at, plan, version)) for session, version in versions.items()):
            return


def _leaves(name: str, old: List, new: List, part: str) -> bool:
    return place(old, part) == name != place(new, part)


def _admit(session: Session, spread: Spread, name: str) -> None:
    """Make this process a member; once, if it makes several such namespaces."""
    at = spread.at
    record, version = _run(session, at, read(at))
    if record is None:
        raise gone(at)
    if not spread.plan.may_use(record):
        raise refused(at, spread.plan, record)
    ours = [each for each in session.admissions if (each.spread.at, each.spread.plan) == (at, spread.plan)]
    if not ours:
        ours = [Admission(spread, name, version)]
        session.admissions += ours
    try:
        _run(session, at, attend(f"{spread.base.rstrip('/')}/{name}"))
    except BaseException:
        for each in ours:
            if not each.session:
                session.admissions.remove(each)
        raise


def _run(session: Session, path: str, recipe: Recipe[T]) -> T:
    call = Call(session, path)
    return call.wait(call.run(recipe))  # type: ignore[return-value]


def _new_name(session: Session) -> str:
    """Return a name for an ensemble: nobody else gives it, and an operator knows the ensemble by it."""
    host, port = min(session.link.client.hosts)
    return f"{host}:{port}#{uuid.uuid4().hex[:12]}"
