"""A user's program, for the type checker alone: it uses every public name as it is meant, and says what it gets."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import prometheus_client
from opentelemetry import metrics, trace

import zkconcurrent
import zkconcurrent.aio
import zkconcurrent.metrics
import zkconcurrent.otel
import zkconcurrent.prometheus
import zkconcurrent.tree
from zkconcurrent import LockLike, Namespace, synchronized

VERSION: str = zkconcurrent.__version__


def told(lock: object) -> None:
    """Hear of a loss."""


def warned(lock: object, left: float) -> None:
    """Hear that a hold is suspect."""


def with_any(lock: LockLike) -> bool:
    """Take any object that can be held, shared or not."""
    with lock as got:
        got_by_with: bool = got
    if lock.acquire(blocking=False):
        lock.release()
    return got_by_with and lock.acquire() and is_like(lock)


def is_like(lock: object) -> bool:
    """Find out whether an object can be held."""
    return isinstance(lock, LockLike)


def locks(zk: zkconcurrent.Client) -> None:
    """Use all that can be held."""
    lock: zkconcurrent.Lock = zkconcurrent.Lock(zk, "/app/lock", fair=False, on_lost=told, on_revoke=told)
    rlock: zkconcurrent.RLock = zkconcurrent.RLock(zk, "/app/rlock", on_suspect=warned, on_deadlock="raise")
    pair: zkconcurrent.ReadWriteLock = zkconcurrent.ReadWriteLock(
        zk, "/app/pair", on_lost=told, hold_limit=30.0, on_hold_limit="lose", label="import"
    )
    read: zkconcurrent.ReadLock = pair.read_lock
    write: zkconcurrent.WriteLock = pair.write_lock
    semaphore: zkconcurrent.Semaphore = zkconcurrent.Semaphore(zk, "/app/api", 5, on_lost=told, on_suspect=warned)
    bounded: zkconcurrent.BoundedSemaphore = zkconcurrent.BoundedSemaphore(zk, "/app/bounded")
    several: zkconcurrent.MultiLock = zkconcurrent.MultiLock(
        [lock, rlock, read, write], on_lost=told, on_suspect=warned
    )
    detached: zkconcurrent.DetachedLock = zkconcurrent.DetachedLock(zk, "/app/detached", "job")
    with detached, detached.hold(2.5):
        number: tuple[int, int, str] = detached.fencing_token, detached.hold_count(), detached.name
    holder: zkconcurrent.Contender | None = detached.owner()
    forced: bool = holder is not None and detached.force_release(holder.token)
    last: float = lock.remaining() + several.remaining()
    condition: zkconcurrent.Condition = zkconcurrent.Condition(zk, "/app/condition", lock=rlock)
    for each in (lock, rlock, read, write, several):
        with_any(each)
        acquired: bool = each.acquire(timeout=2.5)
        held: bool = each.locked()
    all_held: tuple[threading.Event, bool, zkconcurrent.Contender | None] = (
        several.lost,
        several.suspect,
        several.owner(),
    )
    for any_held in (lock, rlock, read, write, several, semaphore, bounded):
        with any_held.hold(2.5), any_held.hold(timeout=None, blocking=False):
            pass
        count: int = any_held.hold_count() + any_held.cancel_waits()
    for own in (lock, rlock, read, write):
        asked: int = own.revoke()
    for one in (lock, rlock, read, write, semaphore, bounded):
        token: int = one.fencing_token
        lost: threading.Event = one.lost
        suspect: bool = one.suspect
        remaining: float = one.remaining()
        path: str = one.path
        owner: zkconcurrent.Contender | None = one.owner()
        waiters: list[zkconcurrent.Contender] = one.waiters()
        with_any(one)
        with one.hold(2.5) as handle:
            its: zkconcurrent.Held = handle
            began: tuple[int, datetime.datetime, str] = (handle.fencing_token, handle.since, handle.node)
            over: bool = handle.lost.is_set() or not handle.remaining()
            fenced = handle.guard(zk.transaction())
            handle.release()
    with several.hold() as handles:
        tokens: list[int] = [each.fencing_token for each in handles]
    if owner is not None:
        said: tuple[str | None, int | None, str | None] = (owner.host, owner.pid, owner.thread)
        queued: datetime.datetime = owner.queued
        numbers: tuple[int, str, int, int] = (owner.session, owner.node, owner.token, owner.position)
    semaphore.acquire(timeout=None, permits=2)
    semaphore.release(2)
    bounded.destroy()
    free: int = zkconcurrent.Semaphore(zk, "/app/api", None).available()
    semaphore.resize(free)
    guarded = lock.guard(zk.transaction())
    with condition as entered:
        woken: bool = entered and condition.wait(1.0)
        found: list[int] = condition.wait_for(lambda: [1])
        condition.notify(2)
        condition.notify_all()
    with_any(condition)
    with_any(threading.Lock())
    with_any(threading.RLock())
    with_any(threading.Semaphore(1))
    with_any(threading.BoundedSemaphore(1))
    with_any(threading.Condition())
    threading.Condition(threading.RLock())


def waits(zk: zkconcurrent.Client) -> None:
    """Use all that can be waited for."""
    event: zkconcurrent.Event = zkconcurrent.Event(zk, "/app/event")
    event.set()
    happened: bool = event.wait(1.0) and event.is_set()
    event.clear()
    barrier: zkconcurrent.Barrier = zkconcurrent.Barrier(zk, "/app/barrier", 3, action=lambda: 1, timeout=5.0)
    index: int = barrier.wait(timeout=None) + barrier.parties + barrier.n_waiting
    broken: bool = barrier.broken
    latch: zkconcurrent.CountDownLatch = zkconcurrent.CountDownLatch(zk, "/app/latch", 3)
    latch.count_down(2)
    left: int = latch.count
    opened: bool = latch.wait()
    double: zkconcurrent.DoubleBarrier = zkconcurrent.DoubleBarrier(zk, "/app/double", 3)
    entered: bool = double.enter(timeout=1.0) and double.leave() and double.parties > 1
    with double as inside:
        same: bool = inside
    for each in (event, barrier, latch, double):
        each.destroy()


def elections(zk: zkconcurrent.Client) -> None:
    """Lead, stand and look."""
    election: zkconcurrent.Election = zkconcurrent.Election(zk, "/app/leader", id="one", layout="latch")
    with election.lead(timeout=5.0) as term:
        led: zkconcurrent.Term = term
        token: int = term.fencing_token
        lost: threading.Event = term.lost
        lasts: float = term.remaining()
        term.publish(b"address")
        guarded = term.guard(zk.transaction())
    length: int = election.run(len, [1])
    election.stand()
    leads: bool = election.is_leader()
    job: int | None = election.leader_only(len)([1])
    won: zkconcurrent.Term | None = election.wait(1.0)
    election.withdraw()
    leader: zkconcurrent.Candidate | None = election.leader()
    line: list[zkconcurrent.Candidate] = election.candidates()
    for each in election.observe():
        if each is not None:
            said: tuple[str, bytes, int, int, str] = (each.id, each.data, each.session, each.token, each.node)
    name: str = election.id


def values(zk: zkconcurrent.Client) -> None:
    """Count, compare and watch."""
    number: zkconcurrent.AtomicLong = zkconcurrent.AtomicLong(zk, "/app/number")
    small: zkconcurrent.AtomicInteger = zkconcurrent.AtomicInteger(zk, "/app/small")
    total: int = number.get() + number.add() + number.get_and_add(-3) + small.update(lambda old: old * 2)
    number.set(5)
    done: bool = number.compare_and_set(5, 6)
    shared: zkconcurrent.SharedValue[str] = zkconcurrent.SharedValue(zk, "/app/value", "", codec=zkconcurrent.TEXT)
    other: zkconcurrent.AtomicReference[bytes] = zkconcurrent.AtomicReference(zk, "/app/other", b"")
    seen: zkconcurrent.VersionedValue[str] = shared.get()
    version: int = seen.version
    done = shared.compare_and_set(seen, "a") and shared.compare_and_set(("a", 1), "b")
    shared.set("c")
    word: str = shared.update(str.upper)
    found: bool = shared.wait_for(lambda text: text == "D", timeout=1.0)
    for each in shared.watch(timeout=1.0):
        seen = each
    for every in (number, small, shared, other):
        every.destroy()


def maps(zk: zkconcurrent.Client) -> None:
    """Use a dictionary and a set."""
    config: zkconcurrent.Dict[dict[str, int]] = zkconcurrent.Dict(zk, "/app/config", codec=zkconcurrent.JSON)
    config["one"] = {"a": 1}
    one: dict[str, int] = config["one"]
    maybe: dict[str, int] | None = config.get("one")
    other: dict[str, int] | int = config.get("one", 5)
    done: bool = config.replace("one", {"a": 2}) and config.replace("one", {"a": 2}, {}) and config.remove("one", {})
    there: tuple[bool, bool, int] = (config.stale, "one" in config, len(config))
    pairs: list[tuple[str, dict[str, int]]] = list(config.items())
    copied: dict[str, dict[str, int]] = config.copy()
    hosts: zkconcurrent.Set = zkconcurrent.Set(zk, "/app/hosts", ephemeral=True)
    hosts.add("here")
    both: set[str] = set(hosts) | {"there"}
    for each in (config, hosts):
        each.ready()
        each.clear()
        each.destroy()


def groups(zk: zkconcurrent.Client) -> None:
    """Join a group, and see its members."""
    group: zkconcurrent.Group = zkconcurrent.Group(zk, "/app/workers")
    with group.join(b"10.0.0.7:8000", id="worker-1", wait=30) as member:
        joined: zkconcurrent.Membership = member
        name: str = member.id + member.path
        active: bool = member.active and not member.lost.is_set() and member.data == b""
    joined.leave()
    for members in group.observe(timeout=5):
        data: bytes = members[name] or group.members()[name]


def queues(zk: zkconcurrent.Client) -> None:
    """Put, get and claim."""
    codec: zkconcurrent.Codec[bytes] = zkconcurrent.BYTES
    text: zkconcurrent.SimpleQueue[str] = zkconcurrent.SimpleQueue(zk, "/app/text", codec=zkconcurrent.TEXT)
    text.put("one")
    word: str = text.get(timeout=1.0)
    jobs: zkconcurrent.Queue[bytes] = zkconcurrent.Queue(zk, "/app/jobs", 100, codec=codec, max_attempts=3)
    last: zkconcurrent.LifoQueue[list[int]] = zkconcurrent.LifoQueue(zk, "/app/last", codec=zkconcurrent.MSGPACK)
    first: zkconcurrent.PriorityQueue[dict[str, int]] = zkconcurrent.PriorityQueue(
        zk, "/app/first", codec=zkconcurrent.JSON, priority=lambda item: item["priority"]
    )
    later: zkconcurrent.DelayQueue[bytes] = zkconcurrent.DelayQueue(zk, "/app/later", 100, max_attempts=3)
    later.put(b"one", delay=1.5)
    later.put_nowait(b"two", delay=2)
    try:
        jobs.put(b"one", block=False)
        jobs.put_nowait(b"two")
        with jobs.claim(timeout=5.0) as claim:
            claimed: zkconcurrent.Claim[bytes] = claim
            said: tuple[bytes, int, int] = (claim.item, claim.attempts, claim.fencing_token)
        item: bytes = jobs.get() + jobs.get_nowait()
        jobs.task_done()
        jobs.join()
    except (zkconcurrent.Empty, zkconcurrent.Full, zkconcurrent.ShutDown):
        jobs.shutdown(immediate=True)
    sizes: tuple[int, int, bool, bool] = (jobs.maxsize, jobs.qsize(), jobs.empty(), jobs.full())
    buried: list[bytes] = jobs.dead()
    numbers: list[int] = last.get()
    best: dict[str, int] = first.get()
    jobs.destroy()


def program(threads: Namespace) -> None:
    """Do the same on either namespace."""
    with threads.Lock("lock") as got, threads.RLock("cart"), threads.ReadWriteLock("pair").read_lock:
        first: bool = got
    with_any(threads.RLock("cart"))
    with_any(threads.MultiLock(["cart", "stock"]))
    with_any(threads.ReadWriteLock("pair").write_lock)
    with threads.Semaphore("api", 5), threads.BoundedSemaphore("bounded", value=5), threads.Condition("condition"):
        threads.Event("go").set()
    index: int = threads.Barrier("all", 2).wait()
    latch = threads.CountDownLatch("latch", 2)
    latch.count_down()
    left: int = latch.count
    total: int = threads.AtomicLong("number").add() + threads.AtomicInteger("small").get()
    done: bool = threads.SharedValue("value", b"").compare_and_set((b"", 0), b"x")
    with threads.DoubleBarrier("double", 1), threads.Group("group").join(b"", id="me") as member:
        name: str = member.id
    base: str = threads.path


def namespaces(zk: zkconcurrent.Client, config: dict[str, str]) -> Namespace:
    """Pick one by configuration."""
    shared: zkconcurrent.Namespace = zkconcurrent.namespace(zk, "/app")
    local: zkconcurrent.Namespace = zkconcurrent.namespace("local")
    several: zkconcurrent.Namespace = zkconcurrent.namespace({"one": zk}, "/app")
    assert several.clients == (zk,)
    token: int = local.RLock("cart", on_lost=told).fencing_token
    return shared if config["locks"] == "zookeeper" else local


def decorated(zk: zkconcurrent.Client, threads: Namespace) -> None:
    """Use `synchronized` on what it is for; the types of the decorated functions stay."""

    @synchronized(zk, "/users/{user}")
    def pay(user: int, amount: float = 1.0) -> str:
        return f"{user} {amount}"

    @synchronized(threads, "rows/{name}")
    def rows(name: str) -> Iterator[int]:
        yield len(name)

    @contextmanager
    @synchronized(lambda: zk, "/blocks/{name}")
    def block(name: str) -> Generator[int, None, None]:
        yield len(name)

    @synchronized(threading.Lock())
    def alone() -> None: ...

    class Account:
        @synchronized(zkconcurrent.RLock(zk, "/app/lock"))
        def method(self, amount: int) -> int:
            return amount

        @classmethod
        @synchronized(zk, "/classes/{cls}")
        def of(cls, number: int) -> Account:
            return cls()

        @staticmethod
        @synchronized(zk, "/numbers/{number}")
        def static(number: int) -> int:
            return number

    said: str = pay(7, amount=2.0)
    kept: Callable[[int, float], str] = pay
    total: int = sum(rows("x")) + Account().method(1) + Account.static(2) + Account.of(1).method(1)
    with block("x") as length, synchronized(zk, "/app/report") as got:
        both: tuple[int, bool] = (length, got)
    alone()


def jobs(zk: zkconcurrent.Client, threads: Namespace) -> None:
    """Use `once_per`: a call that skips returns None."""

    @zkconcurrent.once_per(zk, "/jobs/{city}", 3300)
    def report(city: str, n: int = 1) -> str:
        return city * n

    class Account:
        @zkconcurrent.once_per(lambda: threads, "accounts", float("inf"), until_success=True)
        def method(self, amount: int) -> int:
            return amount

    said: str | None = report("Graz", n=2)
    number: int | None = Account().method(1)
    with zkconcurrent.once_per(threads, "jobs/daily", 86000.0) as turn:
        taken: zkconcurrent.Turn = turn
        if not turn and turn.last:
            last: zkconcurrent.LastRun = turn.last
            told: tuple[str, datetime.datetime] = (last.by, last.at)


def errors(zk: zkconcurrent.Client) -> str:
    """Handle each error."""
    try:
        locks(zk)
    except zkconcurrent.LockLostError as error:
        runtime: RuntimeError = error
        cause: zkconcurrent.LossCause | None = error.cause
        token: int = error.token
        return error.path
    except (zkconcurrent.ClientError, zkconcurrent.RefusedError, zkconcurrent.ForeignNodeError) as refused:
        return refused.path
    except zkconcurrent.OutcomeUnknownError as unknown:
        return unknown.path
    except zkconcurrent.WaitCancelledError as ended:
        return ended.path
    except zkconcurrent.DeadlockError as itself:
        return itself.path
    except zkconcurrent.SequenceExhaustedError as end:
        return end.path
    except zkconcurrent.ZkConcurrentError as any_of_them:
        return any_of_them.path
    return ""


def inspects() -> str:
    """Look at what this process holds and waits for."""
    zkconcurrent.dump_on_signal(10)
    found: zkconcurrent.Inspection = zkconcurrent.inspect()
    client: zkconcurrent.ClientReport = found.clients[0]
    hold: zkconcurrent.HoldReport = found.holds[0]
    wait: zkconcurrent.WaitReport = found.waits[0]
    owner: zkconcurrent.OwnerReport = wait.owner
    cause: zkconcurrent.LossCause | None = hold.cause
    return f"{client.state} {hold.token + 1} {owner.name}"


def listens(zk: zkconcurrent.Client) -> None:
    """Hear of all that happens."""

    def hear(event: zkconcurrent.LockEvent) -> None:
        told: tuple[str, str, str, str, int, str, float, int] = (
            event.primitive,
            event.path,
            event.name,
            event.mode,
            event.token,
            event.by,
            event.at,
            event.seq,
        )
        of_mine: bool = event.client is zk
        seconds: float
        match event:
            case zkconcurrent.Acquired(waited=seconds, contended=contended):
                waited_for: bool = contended
            case zkconcurrent.Lost(cause=cause, held=seconds):
                why: zkconcurrent.LossCause | None = cause
            case zkconcurrent.TimedOut(waited=seconds) | zkconcurrent.Cancelled(waited=seconds):
                pass
            case zkconcurrent.WouldBlock(waited=seconds):
                pass
            case zkconcurrent.DeadlockFound(cycle=cycle):
                edges: tuple[zkconcurrent.DeadlockEdge, ...] = cycle
            case zkconcurrent.Failed(error=error) | zkconcurrent.DeadlockVictim(error=error):
                raised: BaseException = error
            case zkconcurrent.Released(held=seconds) | zkconcurrent.Suspect(remaining=seconds):
                pass
            case zkconcurrent.HoldLimit(held=seconds):
                pass
            case zkconcurrent.Waiting() | zkconcurrent.Recovered():
                pass
            case _:
                pass

    queued = zkconcurrent.QueueListener(hear, maxsize=100)
    removes: list[Callable[[], None]] = [
        zkconcurrent.add_listener(hear),
        zkconcurrent.add_listener(queued, zk),
        zkconcurrent.namespace(zk, "/app").add_listener(hear),
    ]
    for remove in removes:
        remove()
    told_all: bool = queued.flush(timeout=1)
    registry = prometheus_client.CollectorRegistry()
    for scope in (None, zk, zkconcurrent.namespace(zk, "/app"), zkconcurrent.aio.namespace(zk, "/app")):
        exported: Callable[[], None] = zkconcurrent.prometheus.instrument(scope, registry=registry)
        exported()
        measured: Callable[[], None] = zkconcurrent.otel.instrument(
            scope, meter_provider=metrics.get_meter_provider(), tracer_provider=trace.get_tracer_provider()
        )
        measured()
    dropped: int = queued.dropped

    amounts: dict[str, list[float]] = {}

    def bind(instrument: zkconcurrent.metrics.Instrument, values: tuple[str, ...]) -> Callable[[float], None]:
        attributes: dict[str, str] = instrument.attributes_of(values)
        amounts[instrument.name] = added = [float(len(attributes))]
        return added.append

    recorder = zkconcurrent.metrics.Recorder(bind, zkconcurrent.namespace(zk, "/app"))
    current: dict[zkconcurrent.metrics.Instrument, dict[tuple[str, ...], float]] = recorder.observe()
    names: list[str] = [each.prometheus_name for each in zkconcurrent.metrics.INSTRUMENTS if each in current]
    recorder.remove()


def operate(zk: zkconcurrent.Client) -> None:
    """Read who holds, who waits, and who waits in a ring."""
    timeout: float | None = zk.session_timeout
    report: zkconcurrent.tree.TreeReport = zkconcurrent.tree.inspect(zk, "/app", depth=2)
    report = zkconcurrent.tree.inspect(zk, "/app", before=report, timeout=5)
    primitives: tuple[zkconcurrent.tree.PathReport, ...] = report.primitives
    for each in primitives:
        held: tuple[zkconcurrent.Contender, ...] = each.holders + each.waiters
        shown: list[tuple[str, str | None, int]] = [(one.mode, one.blocker, one.token) for one in held]
    reasons: list[str] = [*report.unusable.values(), *report.unreadable]
    found: zkconcurrent.tree.DeadlockReport = zkconcurrent.tree.find_deadlocks(zk, "/app")
    rings: list[list[tuple[zkconcurrent.DeadlockEdge, int]]] = [
        [(member.edge, member.token) for member in deadlock.members] for deadlock in found.deadlocks
    ]
    unjudged: list[str] = [each.why for each in found.unjudged]


def main() -> None:
    """Open a client and do it all."""
    with zkconcurrent.connect("zk://host1,host2/app?timeout=10", start_timeout=5.0, read_only=False) as zk:
        client: zkconcurrent.Client = zk
        program(namespaces(client, {"locks": "zookeeper"}))
        locks(zk)
        waits(zk)
        queues(zk)
        decorated(zk, zkconcurrent.namespace(zk))
        errors(zk)
        inspects()
        operate(client)
