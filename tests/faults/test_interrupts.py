"""An interrupt at any line of the library leaves no node, no hold and nobody stuck.

A trace function raises KeyboardInterrupt at the n-th line that the library runs in a call, for every n there is.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, Generic, TypeVar

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.loops import Counts, counting, nodes, remains
from tests.conftest import FAST, Connect, InThread
from tests.faults.scenes import GRANTS, SCENES, SESSION, Scene, Used, files_of
from tests.helpers.contenders import at_the_handoff, queued
from tests.helpers.eventually import PATIENCE, eventually
from tests.helpers.interrupts import PACKAGE, InterruptAt, at_every_line
from tests.helpers.lock_types import AnyLock, Kind, against, every
from tests.helpers.places import PLACES
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    Condition,
    Election,
    Lock,
    LockLostError,
    MultiLock,
    ReadWriteLock,
    Semaphore,
)
from zkconcurrent._engine.session import Session
from zkconcurrent._protocol.ticket import State
from zkconcurrent._runtime import waiting
from zkconcurrent._runtime.waiting import wait

pytestmark = [pytest.mark.fault(16), pytest.mark.long]

T = TypeVar("T")
SOON = 0.1  # the leftovers of an interrupt are gone after so long, as a rule


class InterruptAgainAt(InterruptAt):
    """Raise it at the n-th line of the library that is run once Ctrl-C has raised it.

    Attributes:
        leaves: whether the steps that leave had begun by then.
    """

    counts_from_here = leaves = False

    def __enter__(self) -> None:
        self._handler = signal.signal(signal.SIGINT, self._interrupt)
        super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        signal.signal(signal.SIGINT, self._handler)
        super().__exit__(kind, *rest)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is InterruptAgainAt._trace.__code__:  # an error raised there ends the tracing
                threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, number)).start()
                return
            frame = frame.f_back
        raise KeyboardInterrupt

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        self.counts_from_here = self.counts_from_here or (event == "exception" and arg[0] is KeyboardInterrupt)
        if self.counts_from_here:
            self.leaves = self.leaves or frame.f_code.co_name == "_break"
            return super()._trace(frame, event, arg)
        return self._trace if frame.f_code.co_filename.startswith(PACKAGE) else None


class Places(Generic[T]):
    """Where the lines are interrupted: at one path, until one of them leaves a lasting trace; then at the next.

    The leftovers of a few lines go with a heartbeat, or with a delete that is repeated. That takes seconds, in which
    all of it is waited for together.

    Args:
        path: below which they are.
        make: makes the object that is used at one of them, and uses it once: the lines that make its nodes are not told
            here.
        free: whether nothing is left of it.

    Attributes:
        here: the object that is used now.
    """

    def __init__(self, path: str, make: Callable[[str], T], free: Callable[[T], bool]) -> None:
        self._path, self._make, self._free = path, make, free
        self._left: list[tuple[T, str]] = []
        self.here = self._next()

    def _next(self) -> T:
        return self._make(f"{self._path}/{len(self._left)}")

    def interrupted(self, where: str) -> None:
        """Go to the next place, unless the interrupt has left nothing here."""
        until = time.monotonic() + SOON
        while not self._free(self.here):
            if time.monotonic() > until:
                self._left.append((self.here, where))
                self.here = self._next()
                break
            time.sleep(0.005)

    def check(self) -> list[T]:
        """See that all leftovers are gone after a while; return the used objects, to be used once more."""
        for each, where in self._left:
            eventually(lambda: self._free(each), f"interrupted at {where}")  # noqa: B023
        return [*(each for each, _ in self._left), self.here]


@pytest.mark.fault(131, 155)
@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_at_every_line(scene: Scene, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Either the call is interrupted and leaves nothing, or it has done its work; others can go on."""
    client = connect(timeout=SESSION)

    def make(path: str) -> Used:
        used = Used(client, zk, path)
        scene.make(used)
        return used

    places = Places(zk_path, make, scene.free)
    for hook in at_every_line(*scene.files):
        used, struck = places.here, True
        scene.begin(used)
        with contextlib.suppress(KeyboardInterrupt), hook:
            scene.call(used)
            struck = False
        try:
            scene.end(used, struck)
        except Exception as error:
            raise AssertionError(f"interrupted at {hook.where}") from error
        places.interrupted(hook.where)
    assert hook.line > scene.least
    for used in places.check():
        scene.over(used)


@every
def test_a_waiter_interrupted_twice(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """Ctrl-C, and again at every line of what the first one has to do: nothing of the waiter is left for anybody."""
    client = connect(timeout=SESSION)

    def make(path: str) -> AnyLock:
        lock = kind(client, path)
        with lock:
            return lock

    places = Places(zk_path, make, lambda lock: queued(zk, lock.path, 0)())

    def hold(path: str, until: threading.Event) -> None:
        with against(kind)(client, path):
            assert until.wait(20)

    def interrupt(lock: AnyLock, begun: threading.Event) -> None:
        assert begun.wait(20)
        eventually(lambda: at_the_handoff(lock, 1)() or queued(zk, lock.path, 2)())
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    line = 1
    while True:
        until, begun, lock = threading.Event(), threading.Event(), places.here
        holding = in_thread(hold, lock.path, until)
        eventually(queued(zk, lock.path, 1))
        interrupting = in_thread(interrupt, lock, begun)
        hook = InterruptAgainAt(line, *files_of(kind))
        with pytest.raises(KeyboardInterrupt), hook:
            begun.set()
            lock.acquire()
        until.set()
        holding.result(20)
        interrupting.result(20)
        places.interrupted(f"line {line} of the second time: {hook.where}")
        if not hook.counts_from_here:  # the first came too early: a node of the last time was taken for this waiter's
            continue
        if not hook.where:
            break
        line += 1
    assert line > (3 if files_of(kind) else 10)
    for lock in places.check():
        with against(kind)(client, lock.path):
            pass


@pytest.mark.fault(254)
def test_a_party_interrupted_twice(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Ctrl-C, and again at every line of what a party does to leave: the barrier is broken once its call raises."""
    # A party tries to leave for a third of it; a machine may stand still for so long.
    client = connect(timeout=60)
    barrier, other = zkconcurrent.Barrier(client, zk_path, 2), zkconcurrent.Barrier(zk, zk_path, 2)
    other.reset()

    def interrupt(begun: threading.Event) -> None:
        assert begun.wait(20)
        eventually(lambda: any(ticket.awaits for ticket in list(barrier._session.registry.tickets.values())))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    states: list[str] = []
    client.add_listener(states.append)
    line, leaves = 1, False
    while True:
        begun = threading.Event()
        states.clear()
        interrupting = in_thread(interrupt, begun)
        hook = InterruptAgainAt(line, "barrier.py", "driver.py", "barrier_state.py")
        with pytest.raises(KeyboardInterrupt), hook:
            begun.set()
            barrier.wait()
        interrupting.result(20)
        # Before they begin, at a few lines, the first interrupt is on its way to the steps that leave.
        leaves = leaves or hook.leaves
        # A strike amid a send costs the connection: while ZooKeeper is out of reach, the others may count the party.
        assert other.broken or not hook.leaves or states, hook.where
        other.reset()
        if hook.counts_from_here:
            line += 3 if PLACES <= 2 else 1
            if not hook.where:
                break
    assert leaves


def one_lock(locks: list[Lock], on_lost: Callable[[Any], None]) -> Any:
    """Return a lock that is told of its loss."""
    return Lock(locks[0].client, locks[0].path, on_lost=on_lost)


def all_locks(locks: list[Lock], on_lost: Callable[[Any], None]) -> Any:
    """Return a lock of all locks."""
    return MultiLock(locks, on_lost=on_lost)


makes = pytest.mark.parametrize("make", [one_lock, all_locks])


@pytest.mark.fault(164)
@makes
def test_a_loss_by_the_clock_interrupted_at_every_line(
    make: Callable[..., Any], connect: Connect, zk: KazooClient, zk_path: str
) -> None:
    """The thread that notes the loss is interrupted: it is told all the same, once; the nodes go."""
    session = Session.of(connect(timeout=SESSION))
    real, told = session.clock, Counter[Any]()

    def contenders(lock: Lock) -> int:
        stat = zk.exists(lock.path)
        return 0 if stat is None else stat.numChildren

    for hook in at_every_line():
        locks = [Lock(session.link.client, f"{zk_path}/{hook.line}/{name}") for name in "ab"]
        lock = make(locks, lambda lock: told.update([lock]))
        lock.acquire()
        lost = lock.lost
        with session.lock:  # kept, so that the keeper does nothing of it, but start the threads that it is to start
            session.clock = lambda: real() + 1000
            with contextlib.suppress(KeyboardInterrupt), hook:
                lock.hold_count()
            session.clock = real
            eventually(lambda: not session.keeper.to_start, hook.where)
        try:
            lock.release()
        except LockLostError:
            assert lost.is_set(), hook.where
        eventually(lambda: not any(map(contenders, locks)), hook.where)  # noqa: B023
        eventually(lambda: not session.registry.lost)
        eventually(lambda: told[lock] == lost.is_set(), hook.where)  # noqa: B023
        assert lock.hold_count() == 0
    assert set(told.values()) == {1}
    assert hook.line > 30


@pytest.mark.fault(164)
@makes
def test_a_release_that_finds_a_loss_interrupted_at_every_line(
    make: Callable[..., Any], connect: Connect, zk: KazooClient, zk_path: str
) -> None:
    """`on_lost` is called, once, if `lost` is set."""
    session, told = Session.of(connect(timeout=SESSION)), Counter[Any]()
    session.heartbeat.beat = lambda _: 1.0  # type: ignore[method-assign] # it would find the loss before the release
    for hook in at_every_line():
        locks = [Lock(session.link.client, f"{zk_path}/{hook.line}/{name}") for name in "ab"]
        lock = make(locks, lambda lock: told.update([lock]))
        lock.acquire()
        lost = lock.lost
        for ticket in list(session.registry.tickets.values()):
            if ticket.state is State.HELD:
                zk.delete(ticket.node)
        with contextlib.suppress(KeyboardInterrupt, LockLostError), hook:
            lock.release()
        with contextlib.suppress(LockLostError, RuntimeError):
            lock.release()
        eventually(lambda: told[lock] == lost.is_set(), hook.where)  # noqa: B023
        if hook.where == "":
            assert lost.is_set()
    assert set(told.values()) == {1}
    assert hook.line > 100


@pytest.mark.fault(195)
def test_an_interrupt_within_the_event_of_a_loss(
    connect: Connect, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is told all the same, and the client goes on."""
    session = Session.of(connect(timeout=SESSION))
    real, lock = session.clock, Lock(session.link.client, zk_path)
    lock.acquire()
    lost, enter, strikes = lock.lost, threading.Condition.__enter__, [KeyboardInterrupt]

    def struck(condition: Any) -> bool:
        entered = enter(condition)
        if condition is lost._cond and strikes and threading.current_thread() is threading.main_thread():
            raise strikes.pop()  # its lock is taken, and nobody will release it
        return entered

    monkeypatch.setattr(threading.Condition, "__enter__", struck)
    with session.lock:  # kept, so that the keeper does nothing of it
        session.clock = lambda: real() + 1000
        with contextlib.suppress(KeyboardInterrupt):
            lock.hold_count()
        session.clock = real
    assert in_thread(lost.wait, 10).result(20)
    with pytest.raises(LockLostError):
        in_thread(lock.release).result(20)


@pytest.mark.usefixtures("uncollected")
def test_an_interrupted_waiter_holds_nobody_up(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """After Ctrl-C in the main thread during its wait, its node goes, and the waiter behind it gets the lock."""
    held, behind = Lock(zk, zk_path), Lock(connect(), zk_path)
    me = Lock(connect(), zk_path)
    held.acquire()

    def interrupt() -> bool:
        eventually(queued(zk, zk_path, 2))
        waiting = in_thread(behind.acquire)
        eventually(queued(zk, zk_path, 3))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        eventually(queued(zk, zk_path, 2))
        held.release()
        return bool(waiting.result(10))

    interrupting = in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        me.acquire()
    assert interrupting.result(20)
    behind.release()


@pytest.mark.fault(92)
@pytest.mark.parametrize("what", ["add", "update", "get", "wait_for"])
def test_a_value(what: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """An interrupted change was made once or not at all, and those that come after it are made."""
    value: Any = zkconcurrent.AtomicLong(connect(timeout=SESSION), zk_path)
    other = zkconcurrent.AtomicLong(zk, zk_path)
    if what == "wait_for":
        value = zkconcurrent.SharedValue(value.client, f"{zk_path}-s", b"x")
    for hook in at_every_line():
        before = other.add(10)
        with contextlib.suppress(KeyboardInterrupt), hook:
            if what == "add":
                assert value.add() == before + 1
            elif what == "update":
                assert value.update(lambda old: old + 1) == before + 1
            elif what == "get":
                assert value.get() == before
            else:
                assert not value.wait_for(lambda data: data != b"x", 0.02)
        state = value._path_state
        eventually(lambda state=state: not state._left, hook.where)
        assert other.get() in (before, before + 1), hook.where
        assert state.turn.batch is None, hook.where
        if what == "add":
            after = other.get()
            assert value.add(100) == after + 100, hook.where
        assert not state.turn.pending, hook.where
    assert hook.line > 40


# A put and a claim are interrupted at all lines, the others at those that are the queues' own.
QUEUES = ("_threads/queue.py", "_recipes/lock.py", "receipts.py", "queue/state.py", "queue/put.py", "queue/take.py")
QUEUES += ("queue/claim.py", "queue/manage.py", "queue/order.py", "rules.py", "base/settling.py", "worker.py")


@pytest.mark.fault(82, 155)
@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    ("kind", "what"),
    [
        *((zkconcurrent.Queue, what) for what in ("put", "get", "claim", "acknowledge", "give back")),
        *((zkconcurrent.DelayQueue, what) for what in ("put", "get")),
    ],
)
def test_a_queue(kind: Any, what: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """An interrupted call puts or takes an item once or not at all, and no item stays claimed."""
    queue = kind(connect(timeout=SESSION), zk_path)
    other = kind(zk, zk_path)

    def call() -> list[bytes]:
        if what == "put":
            queue.put(b"new")
            return []
        if what == "get":
            return [queue.get()]
        claim.__exit__(KeyError if what == "give back" else None, None, None)
        return []

    def settled() -> bool:
        return not queue._path_state._left and not zk.get_children(f"{zk_path}/claims")

    other.put(b"0")
    queue.put(b"1")
    every = PLACES > 2 or (kind is zkconcurrent.Queue and what in ("put", "claim"))
    for hook in at_every_line(*(() if every else QUEUES)):
        while not other.empty():
            other.get()
        other.put(b"0")
        other.put(b"1")
        taken = list[bytes]()
        claim = queue.claim()
        if what in ("acknowledge", "give back"):
            claim.__enter__()
        with contextlib.suppress(KeyboardInterrupt), hook:
            if what == "claim":
                claim.__enter__()
            else:
                taken = call()
        if claim._taken is not None:  # fault 155: at no line of its end
            assert what == "claim", hook.where
            claim.__exit__(KeyError, None, None)
        eventually(settled, hook.where)
        there = [other.get_nowait() for _ in range(other.qsize())]
        if what == "put":
            assert there in ([b"0", b"1"], [b"0", b"1", b"new"]), hook.where
        elif what == "acknowledge":
            assert there in ([b"1"], [b"0", b"1"]), hook.where
        else:
            assert taken + there == [b"0", b"1"], hook.where


@pytest.mark.fault(248)
@pytest.mark.usefixtures("uncollected")
def test_the_first_read_of_a_dict(connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Wherever it is interrupted, the next read starts the thread of the copy, if none runs."""
    client = connect(timeout=SESSION)
    for hook in at_every_line("_threads/dict.py", "_threads/base/map_base.py"):
        d = zkconcurrent.Dict[bytes](client, f"{zk_path}/{hook.line}")
        with contextlib.suppress(KeyboardInterrupt), hook:
            len(d)
        assert in_thread(len, d).result(PATIENCE) == 0, hook.where
    assert hook.line > 20


MAP = ("_threads/dict.py", "_threads/base/map_base.py", "map/mirror.py", "map/write.py", "_recipes/receipts.py")


@pytest.mark.fault(102)
@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("what", ["put", "replace", "pop", "read"])
def test_a_dict(what: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """An interrupted call writes once or not at all; the copy goes on, and no writer is left in doubt."""
    client = connect(timeout=SESSION)
    d = zkconcurrent.Dict[bytes](client, zk_path)
    calls: dict[str, Callable[[], Any]] = {
        "put": lambda: d.__setitem__("k", b"new"),
        "replace": lambda: d.replace("k", b"old", b"new"),
        "pop": lambda: d.pop("k"),
        "read": lambda: zkconcurrent.Dict[bytes](client, zk_path)["k"],
    }
    for hook in at_every_line(*MAP):
        d["k"] = b"old"
        assert d["k"] == b"old"
        before = zk.get(f"{zk_path}/entries/k")[1].version
        with contextlib.suppress(KeyboardInterrupt), hook:
            calls[what]()
        d["after"] = b"%d" % hook.line
        assert d["after"] == b"%d" % hook.line, hook.where
        there = zk.exists(f"{zk_path}/entries/k")
        assert there is None if what == "pop" and there is None else there.version - before in (0, 1), hook.where
        eventually(lambda there=there: ("k" in d) == (there is not None), hook.where)
    assert hook.line > (4 if what == "read" else 40)
    eventually(lambda: not d._mirror.under_way)
    # An interrupt just as a writer changes hands leaves it to nobody, until the session ends.
    eventually(lambda: len(zk.get_children(f"{zk_path}/writers")) <= 8)
    assert len(d._mirror.idle) == 1


@pytest.mark.fault(155)
def test_a_release_struck_as_it_notes_its_delete(connect: Connect, zk: KazooClient, zk_path: str) -> None:
    """Struck again until nobody goes on with it, the hold is over before its node is deleted."""
    lock = Lock(connect(), zk_path)
    lock.acquire()
    session = lock._session
    with session.lock:
        for ticket in session.registry.tickets.values():
            session.registry.deletes[ticket.prefix] = ticket
        session.wake_keeper()
    eventually(queued(zk, zk_path, 0))
    assert lock.hold_count() == 0
    with lock:
        pass


def _signalled_as_granted(primitive: Any, number: int) -> None:
    """Have the next call of the primitive return with a signal that Python has not handled yet.

    C code sends it as the call ends, and none of the instructions up to the return handles signals.
    """
    kill = ctypes.CDLL(None).pthread_kill
    kill.argtypes = [ctypes.c_ulong, ctypes.c_int]
    here = threading.get_ident()

    def run(call: Any, steps: Any) -> Any:
        del primitive._await
        result = wait(call, steps)
        for _ in map(kill, (here,), (number,)):
            return result
        raise AssertionError("no signal was sent")

    primitive._await = run


@pytest.mark.fault(149)
@pytest.mark.skipif(sys.version_info < (3, 11), reason="CPython 3.10 handles signals after each call, also after this")
@pytest.mark.parametrize("what", GRANTS)
def test_a_signal_just_after_the_grant(what: str, connect: Connect, zk: KazooClient, zk_path: str) -> None:
    """The block has begun, so it ends, and nothing stays held."""
    if what == "claim":
        zkconcurrent.Queue[bytes](zk, zk_path).put(b"item")
    heard: list[int] = []

    def handler(_number: int, _frame: FrameType | None) -> None:
        heard.append(1)
        raise KeyboardInterrupt

    block, primitive = GRANTS[what](connect(), zk_path)
    before = signal.signal(signal.SIGUSR1, handler)
    _signalled_as_granted(primitive, signal.SIGUSR1)
    try:
        with pytest.raises(KeyboardInterrupt), block:
            time.sleep(0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [1]
    block, primitive = GRANTS[what](zk, zk_path)
    if what == "claim":
        with block as claimed:
            assert claimed.item == b"item"
    else:
        assert primitive.acquire(timeout=SESSION)
        primitive.release()


@pytest.mark.fault(156)
def test_an_interrupt_in_a_look_at_kazoos_thread(connect: Connect, zk_path: str) -> None:
    """Struck within `Thread.is_alive()`, CPython takes a living thread for dead; the client is used on."""
    lock = Lock(connect(), zk_path)
    lines = 0

    def strike(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_name not in ("is_alive", "_wait_for_tstate_lock"):
            return strike
        if event == "line":
            lines += 1
            if lines == line:
                raise KeyboardInterrupt
        return strike

    for line in range(1, 12):  # noqa: B007 - `strike` has it
        lines = 0
        before = sys.gettrace()  # that of coverage
        sys.settrace(strike)
        with contextlib.suppress(KeyboardInterrupt):
            try:
                assert lock.acquire(timeout=SESSION)
            finally:
                sys.settrace(before)
        if lock.locked():
            lock.release()
        with lock:
            pass


class AtEachSleep:
    """Raise KeyboardInterrupt as a sleep of this thread begins, from the k-th on, at each until the end of the block.

    Attributes:
        struck: how often.
    """

    def __init__(self, k: int) -> None:
        self.struck = 0
        self._left = k
        self._thread = threading.get_ident()
        self._sleep = waiting._sleep

    def __enter__(self) -> None:
        waiting._sleep = self._struck

    def __exit__(self, *_: object) -> None:
        waiting._sleep = self._sleep

    def _struck(self, call: Any, event: Any, pause: float) -> bool:
        if threading.get_ident() == self._thread:
            self._left -= 1
            if self._left <= 0:
                self.struck += 1
                if self.struck > 1:
                    event.wait(min(pause, 0.001))  # a little, or the replies would come no sooner
                raise KeyboardInterrupt
        return self._sleep(call, event, pause)


def within(block: Any, do: Callable[[], object] = lambda: None) -> None:
    """Do something in a block."""
    with block:
        do()


def taken(queue: zkconcurrent.Queue[bytes]) -> None:
    """Put an item and take one: one that an interrupted call has left, perhaps."""
    queue.put(b"item")
    queue.get()


def claimed(queue: zkconcurrent.Queue[bytes]) -> None:
    """Put an item and claim one."""
    queue.put(b"item")
    with queue.claim():
        pass


def entered(barrier: zkconcurrent.DoubleBarrier) -> None:
    """Enter and leave, alone."""
    barrier.enter()
    barrier.leave()


def waited(condition: Condition) -> None:
    """Wait at two levels of the lock, which is held after that as before."""
    with condition, condition:
        try:
            condition.wait(0.01)
        finally:
            assert condition._lock.hold_count() == 2


CALLS: dict[str, Callable[[KazooClient, str], object]] = {
    "Lock": lambda client, path: within(Lock(client, path)),
    "unfair Lock": lambda client, path: within(Lock(client, path, fair=False)),
    "write lock": lambda client, path: within(ReadWriteLock(client, path).write_lock),
    "permits": lambda client, path: (each := Semaphore(client, path, 3)).acquire(permits=3) and each.release(3),
    "MultiLock": lambda client, path: within(MultiLock([Lock(client, f"{path}/{name}") for name in "ab"])),
    "Condition": lambda client, path: waited(Condition(client, path)),
    "Event": lambda client, path: zkconcurrent.Event(client, path).wait(0.01),
    "CountDownLatch": lambda client, path: zkconcurrent.CountDownLatch(client, path, 2).wait(0.01),
    "Barrier": lambda client, path: zkconcurrent.Barrier(client, path, 2).wait(0.01),
    "DoubleBarrier": lambda client, path: entered(zkconcurrent.DoubleBarrier(client, path, 1)),
    "Queue": lambda client, path: taken(zkconcurrent.Queue(client, path)),
    "claim": lambda client, path: claimed(zkconcurrent.Queue(client, path)),
    "AtomicLong": lambda client, path: zkconcurrent.AtomicLong(client, path).add(),
    "Dict": lambda client, path: zkconcurrent.Dict[bytes](client, path).update(k=b"v"),
    "lead": lambda client, path: within(Election(client, path).lead()),
    "Group": lambda client, path: within(zkconcurrent.Group(client, path).join(b"", "id", wait=20)),
}


@pytest.mark.fault(220)
@pytest.mark.parametrize("what", CALLS)
def test_interrupted_at_each_sleep_until_the_end(
    what: str, connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str
) -> None:
    """Struck from any of its sleeps on at each, a call ends, with no more nodes and few more requests."""
    client = connect(proxy.hosts, timeout=SESSION)
    counts: list[Counts] = []
    CALLS["Lock"](client, f"{zk_path}-first")  # the library asks what the server can do
    with contextlib.suppress(threading.BrokenBarrierError):
        CALLS[what](client, zk_path)
    # Otherwise a reply may be there before its thread would sleep; on a busy machine, each reply of 20 calls.
    proxy.delay(0.004)

    def strikes(k: int) -> bool:
        if what == "Barrier":
            zkconcurrent.Barrier(client, zk_path, 2).reset()
        hook = AtEachSleep(k)
        with contextlib.suppress(KeyboardInterrupt, threading.BrokenBarrierError), counting(client) as counted, hook:
            CALLS[what](client, zk_path)
        counts.append(counted)
        eventually(lambda: not remains(client), f"struck from sleep {k} on")
        eventually(lambda: nodes(zk, zk_path) == [] or what == "Dict", f"struck from sleep {k} on")
        return hook.struck > 0

    k = 1
    while any(strikes(k) for _ in range(5)):
        k += 1
    counted = counts[-1]
    most = max(each.tickets for each in counts)
    assert most <= counted.tickets, counts
    assert max(each.requests for each in counts) <= counted.requests + 30, counts
    assert k > 1


@pytest.mark.fault(220)
def test_a_condition_interrupted_again_and_again_out_of_reach(
    connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str
) -> None:
    """A handler that raises a thousand times a second neither ends the wait early nor makes it endless."""
    client = connect(proxy.hosts, timeout=SESSION, **FAST)
    condition, session = Condition(client, zk_path), Session.of(client)
    main, over = threading.main_thread().ident, threading.Event()
    strikes = 0

    def struck(*_: object) -> None:
        nonlocal strikes
        strikes += 1
        raise KeyboardInterrupt

    def strike() -> None:
        eventually(queued(zk, f"{zk_path}/waiters", 1))
        proxy.refuse()
        proxy.cut()
        eventually(lambda: not session.link.connected)
        while not over.wait(0.001):
            signal.pthread_kill(main, signal.SIGINT)

    handler = signal.signal(signal.SIGINT, lambda *_: None if over.is_set() else struck())
    striking = threading.Thread(target=strike)
    began, ended = 0.0, False
    try:
        striking.start()
        while not ended:
            try:
                with condition:
                    began = session.now()
                    try:
                        condition.wait()
                    finally:
                        over.set()
            except (KeyboardInterrupt, LockLostError):
                ended = True
    finally:
        over.set()
        striking.join()
        signal.signal(signal.SIGINT, handler)
        proxy.resume()
    assert strikes > 1
    assert session.now() - began >= session.timeout / 3
    eventually(lambda: not remains(client))
    eventually(lambda: not nodes(zk, zk_path))
