"""A call of the library that is interrupted leaves no node, no hold and nobody stuck.

The calls are those of `scenes.py`. A trace function raises KeyboardInterrupt at the n-th line that the library runs in
a call, for every n there is; or it is raised at each sleep of the call from the k-th on, so that it strikes what the
first one has to do, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.loops import nodes, remains
from tests.conftest import FAST, Connect, InThread
from tests.faults.scenes import GRANTS, SCENES, SESSION, Scene, Used
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import at_every_line
from tests.helpers.losses import set_clock
from tests.helpers.places import PLACES
from tests.helpers.proxy import Proxy
from zkconcurrent import Condition, Lock, LockLostError, MultiLock
from zkconcurrent._engine.session import Session
from zkconcurrent._protocol.ticket import State
from zkconcurrent._runtime import wait_loops
from zkconcurrent._runtime.wait_loops import wait

pytestmark = [pytest.mark.fault(16), pytest.mark.long]

SOON = 0.1  # the leftovers of an interrupt are gone after so long, as a rule


class Places:
    """Where a scene is struck: at one path, until a strike leaves a lasting trace; then at the next.

    The leftovers of a few lines go with a heartbeat, or with a delete that is repeated. That takes seconds, in which
    all of it is waited for together.

    Attributes:
        here: what is used now.
    """

    def __init__(self, path: str, scene: Scene, client: KazooClient, zk: KazooClient) -> None:
        self._path, self._scene, self._client, self._zk = path, scene, client, zk
        self._left: list[tuple[Used, str]] = []
        self.here = self._next()

    def _next(self) -> Used:
        used = SimpleNamespace(client=self._client, zk=self._zk, path=f"{self._path}/{len(self._left)}")
        self._scene.make(used)
        return used

    def struck(self, where: str) -> None:
        """Go to the next place, unless the strike has left nothing here."""
        until = time.monotonic() + SOON
        while not self._scene.free(self.here):
            if time.monotonic() > until:
                self._left.append((self.here, where))
                self.here = self._next()
                break
            time.sleep(0.005)

    def check(self) -> None:
        """See that all leftovers are gone after a while, and that others can go on."""
        for each, where in self._left:
            eventually(lambda: self._scene.free(each), f"struck at {where}")  # noqa: B023
        for each in [*(each for each, _ in self._left), self.here]:
            self._scene.over(each)


class AtEachSleep:
    """Raise KeyboardInterrupt as a sleep of this thread begins, from the k-th on, at each until the end of the block.

    Attributes:
        where: which sleep was struck first.
    """

    def __init__(self, k: int) -> None:
        self.where, self.line = "", k
        self._left = k
        self._thread = threading.get_ident()
        self._sleep = wait_loops._sleep

    def __enter__(self) -> None:
        wait_loops._sleep = self._struck

    def __exit__(self, *_: object) -> None:
        wait_loops._sleep = self._sleep

    def _struck(self, call: Any, event: Any, pause: float) -> bool:
        if threading.get_ident() == self._thread:
            self._left -= 1
            if self._left < 0:
                event.wait(min(pause, 0.001))  # a little, or the replies would come no sooner
            if self._left <= 0:
                self.where = f"sleep {self.line} and all after it"
                raise KeyboardInterrupt
        return self._sleep(call, event, pause)


def at_each_sleep() -> Iterator[AtEachSleep]:
    """Yield strikes from each sleep of a call on, until a call sleeps no more often."""
    for k in itertools.count(1):
        for _ in range(5):  # on a busy machine a reply may be there before its thread would sleep
            hook = AtEachSleep(k)
            yield hook
            if hook.where:
                break
        else:
            return


@pytest.mark.fault(82, 92, 102, 131, 155, 220)
@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    ("scene", "strikes"),
    [
        *((name, "at a line") for name in SCENES),
        # What ends a block is proved against one strike.
        *((name, "at each sleep") for name in SCENES if not name.startswith("end of")),
    ],
)
def test_a_struck_call(scene: str, strikes: str, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """Either the call is interrupted and leaves nothing, or it has done its work; others can go on."""
    it = SCENES[scene]
    if strikes == "at a line":
        client, hooks = connect(timeout=SESSION), at_every_line(*(it.files if PLACES <= 2 else ()))
    else:
        client, hooks = connect(proxy.hosts, timeout=SESSION), at_each_sleep()
        proxy.delay(0.004)  # as otherwise each reply might be there before its thread would sleep
    places = Places(zk_path, it, client, zk)
    for hook in hooks:
        used, struck = places.here, True
        it.begin(used)
        with contextlib.suppress(KeyboardInterrupt), hook:
            it.call(used)
            struck = False
        try:
            it.end(used, struck)
        except Exception as error:
            raise AssertionError(f"struck at {hook.where}") from error
        places.struck(hook.where)
    assert hook.line > 1
    places.check()


@pytest.mark.fault(164)
def test_a_loss_by_the_clock_interrupted_at_every_line(connect: Connect, zk: KazooClient, zk_path: str) -> None:
    """The thread that notes the loss is interrupted: it is told all the same, once; the nodes go."""
    session = Session.of(connect(timeout=SESSION))
    real, told = session.clock, Counter[Any]()
    for hook in at_every_line():
        lock = Lock(session.link.client, f"{zk_path}/{hook.line}", on_lost=lambda lock: told.update([lock]))
        lock.acquire()
        lost = lock.lost
        with session.lock:  # kept, so that the keeper does nothing of it, but start the threads that it is to start
            set_clock(session, lambda: real() + 1000)
            with contextlib.suppress(KeyboardInterrupt), hook:
                lock.hold_count()
            set_clock(session, real)
            eventually(lambda: not session.keeper.to_start, hook.where)
        try:
            lock.release()
        except LockLostError:
            assert lost.is_set(), hook.where
        eventually(queued(zk, lock.path, 0))
        eventually(lambda: not session.registry.lost)
        eventually(lambda: told[lock] == lost.is_set(), hook.where)  # noqa: B023
        assert lock.hold_count() == 0
    assert set(told.values()) == {1}
    assert hook.line > 30


@pytest.mark.fault(164)
def test_a_release_that_finds_a_loss_interrupted_at_every_line(connect: Connect, zk: KazooClient, zk_path: str) -> None:
    """`on_lost` is called, once, if `lost` is set."""
    session, told = Session.of(connect(timeout=SESSION)), Counter[Any]()
    session.heartbeat.beat = lambda _: 1.0  # type: ignore[method-assign] # it would find the loss before the release
    for hook in at_every_line():
        locks = [Lock(session.link.client, f"{zk_path}/{hook.line}/{name}") for name in "ab"]
        lock = MultiLock(locks, on_lost=lambda lock: told.update([lock]))
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
        set_clock(session, lambda: real() + 1000)
        with contextlib.suppress(KeyboardInterrupt):
            lock.hold_count()
        set_clock(session, real)
    assert in_thread(lost.wait, 10).result(20)
    with pytest.raises(LockLostError):
        in_thread(lock.release).result(20)


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


@pytest.mark.fault(56, 220)
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
