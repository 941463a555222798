"""`label=`: what a lock is for, or what the program does with it, wherever people look for who holds it."""

from __future__ import annotations

import threading
from typing import Any

import prometheus_client
import pytest
from kazoo.client import KazooClient

import zkconcurrent.prometheus
from tests.conftest import Connect, InThread
from tests.helpers.contenders import at_the_handoff
from tests.helpers.eventually import eventually
from zkconcurrent import (
    DetachedLock,
    Election,
    Event,
    Lock,
    LockEvent,
    ReadWriteLock,
    Semaphore,
    add_listener,
    aio,
    inspect,
)
from zkconcurrent._engine import local_handoff
from zkconcurrent._observe.event_types import fold

KINDS: dict[str, Any] = {
    "Lock": Lock,
    "read lock": lambda client, path, **label: ReadWriteLock(client, path, **label).read_lock,
    "write lock": lambda client, path, **label: ReadWriteLock(client, path, **label).write_lock,
    "Semaphore": Semaphore,
}


@pytest.mark.parametrize("kind", KINDS)
def test_contenders_tell(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, kind: str) -> None:
    """Any client reads the label of the holder, and of each waiter, beside whom its words name it; of others, None."""
    lock = KINDS[kind](zk, zk_path, label="import")
    other = KINDS["write lock" if kind == "read lock" else kind](connect(), zk_path)
    with lock:
        holder = other.owner()
        uses = [in_thread(lambda: other.acquire() and other.release())]
        eventually(lambda: len(other.waiters()) == 1)
        labels = [each.label for each in other.waiters()]
    uses[0].result(20)
    assert holder.label == "import"
    assert holder.whole_name().endswith(" (label 'import')")
    assert labels == [None]


@pytest.mark.fault(276)
def test_a_lock_that_is_handed_on(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node tells of the thread that made it; the client that holds tells of the present one, and of its label."""
    monkeypatch.setattr(local_handoff, "LONGEST_TURN", 1000.0)
    first, second = (Lock(zk, zk_path, fair=False, label=label) for label in ("import", "export"))
    over = Event(zk, f"{zk_path}-over")

    def use() -> None:
        with second:
            over.wait()

    with first:
        using = in_thread(use)
        eventually(at_the_handoff(first, 1))
    eventually(lambda: second._lock_core.all() != [])
    holder, former = second.owner(), Lock(connect(), zk_path, fair=False).owner()
    assert holder is not None
    assert former is not None
    assert (holder.node, holder.label, former.label) == (former.node, "export", "import")
    assert holder.thread != former.thread == threading.current_thread().name
    assert [hold.label for hold in inspect().holds if hold.path == zk_path] == ["export"]
    over.set()
    using.result(20)


def test_inspect_tells(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Holds and waits have their labels, also those of elections, whose nodes have none; the text has them."""
    made: list[Any] = [Lock, Semaphore]
    mine = [make(zk, f"{zk_path}/{make.__name__}", label="import") for make in made]
    theirs = [make(zk, f"{zk_path}/{make.__name__}", label="export") for make in made]
    elections = [Election(zk, f"{zk_path}/Election", label=label) for label in ("import", "export")]

    def use(lock: Any) -> None:
        with lock:
            pass

    with mine[0], mine[1], elections[0].lead():
        uses = [in_thread(use, each) for each in (*theirs, elections[1].lead())]
        eventually(lambda: sum(wait.path.startswith(zk_path) and bool(wait.awaits) for wait in inspect().waits) == 3)
        found = inspect()
    for each in uses:
        each.result(20)
    assert {hold.label for hold in found.holds if hold.path.startswith(zk_path)} == {"import"}
    assert {wait.label for wait in found.waits if wait.path.startswith(zk_path)} == {"export"}
    assert f"holds {zk_path}/Lock (Lock, label 'import'), token " in str(found)
    assert f"waits at {zk_path}/Semaphore (Semaphore, label 'export'), since " in str(found)


def test_events_and_metrics_tell(zk: KazooClient, zk_path: str) -> None:
    """Events have the label, and it is the name of the lock, in metrics, too; a candidate's term has both."""
    told: list[LockEvent] = []
    remove = add_listener(told.append, zk)
    registry = prometheus_client.CollectorRegistry()
    end = zkconcurrent.prometheus.instrument(zk, registry=registry)
    with Election(zk, f"{zk_path}/18", label="chief").lead(), Lock(zk, f"{zk_path}/a"):
        pass
    of = {"zkconcurrent_name": "order", "zkconcurrent_primitive": "Lock", "zkconcurrent_mode": "exclusive"}
    with Lock(zk, f"{zk_path}/17", label="order"):
        assert registry.get_sample_value("zkconcurrent_lock_hold_active", of) == 1
    remove()
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    end()
    named = {
        each.labels["zkconcurrent_name"] for each in samples if each.name == "zkconcurrent_lock_acquisitions_total"
    }
    assert named == {"order", "chief", fold(f"{zk_path}/a")}
    assert {(event.path, event.label, event.name) for event in told} == {
        (f"{zk_path}/17", "order", "order"),
        (f"{zk_path}/18", "chief", "chief"),
        (f"{zk_path}/a", None, fold(f"{zk_path}/a")),
    }


def test_a_namespace_gives_it(zk: KazooClient, zk_path: str) -> None:
    """Its locks, semaphores and elections have its label, also in a MultiLock, unless they are given one."""
    names, tasks = (package.namespace(zk, zk_path, label="billing") for package in (zkconcurrent, aio))
    made = [names.Lock("a"), names.Semaphore("b"), names.Election("c")._leader_lock, names.MultiLock(["d"]).locks[0]]
    made += [each._core for each in (tasks.RLock("e"), tasks.BoundedSemaphore("f"))]
    assert {each._lock_core.label for each in made} == {"billing"}
    assert names.Lock("a", label="audit")._lock_core.label == "audit"


@pytest.mark.parametrize("label", ["", "two\nlines", "\ud800", "x" * 61, "\N{LOCK}" * 16])
def test_what_is_no_label(zk: KazooClient, zk_path: str, label: str) -> None:
    """An empty label, one that is too long in UTF-8, or that can't be printed, is refused and leaves nothing."""
    for make in (Lock, Semaphore, Election, aio.RLock, zkconcurrent.namespace):
        with pytest.raises(ValueError, match="label must have 1 to 60 bytes, all printable"):
            make(zk, zk_path, label=label)
    # The path is still free for another kind.
    assert not DetachedLock(zk, zk_path, "me").locked()
