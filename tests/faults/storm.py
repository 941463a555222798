"""A process in which something strikes at any moment: signal handlers, finalizers, log handlers, credentials, Ctrl-C.

    python -m tests.faults.storm HOSTS PATH JOB [ARGUMENTS]

A job prints one JSON object at its end: its counts, and under "wrong" everything that should not have happened. A job
that makes no progress for `STALL` seconds has its process end with the stacks of all threads: a deadlock may hold
every thread of it.
"""

from __future__ import annotations

import faulthandler
import functools
import gc
import json
import linecache
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionLoss
from kazoo.protocol.serialization import GetData

from tests.helpers.places import PLACES
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    AtomicLong,
    Barrier,
    ClientError,
    Condition,
    CountDownLatch,
    Dict,
    DoubleBarrier,
    Election,
    Empty,
    Event,
    Full,
    Group,
    Lock,
    LockLostError,
    MultiLock,
    OutcomeUnknownError,
    Queue,
    ReadWriteLock,
    RefusedError,
    RLock,
    Semaphore,
    Set,
    SharedValue,
    ZkConcurrentError,
)
from zkconcurrent.testing._service import Service

if TYPE_CHECKING:
    from typing_extensions import Self

HOSTS, PATH = sys.argv[1:3] if len(sys.argv) > 3 else ("", "")
SESSION = 60.0  # so long that a call that waits for a part of it is noticed
STALL = 90.0  # without progress for so long, it hangs; what a client left that was stopped goes with its session
PROMPT = 9.0  # for a call that is done, or refused, at once; a hang that some time-out ends takes longer: T / 6 or more
SIGNALS = 150
CYCLES = 50
SAMPLE = 12  # lines of an operation
ALTERNATE = ("release", "acquire", "try", "make", "queues", "same")
SIBLING = """
import os, random, signal, sys, time
process = int(sys.argv[1])
while os.getppid() == process:
    time.sleep(random.uniform(0.001, 0.02))
    os.kill(process, signal.SIGUSR1)
"""
AnyLock = Lock | RLock | Semaphore


def alive() -> None:
    """Note progress."""
    faulthandler.dump_traceback_later(STALL, exit=True)


def is_over(began: float, seconds: float, enough: bool) -> bool:
    """Return whether a job is over that lasts some seconds: on a busy machine it goes on until it has done enough."""
    passed = time.monotonic() - began
    return passed > seconds and (enough or passed > seconds + 25)


def tell(text: str) -> None:
    """Print a line, at any moment: in a signal handler, or in a finalizer."""
    os.write(1, f"{text}\n".encode())


def end(wrong: list[str], **figures: Any) -> None:
    """Print the job's outcome."""
    tell(json.dumps({"wrong": wrong[:5], **figures}))


def client(hosts: str = HOSTS, timeout: float = SESSION, **options: Any) -> KazooClient:
    """Return a started client."""
    opened = KazooClient(hosts, timeout=timeout, **options)
    opened.start()
    return opened


# -- what of the library's insides the jobs lean on ----------------------------------------------------------------


def is_clear(error: BaseException) -> bool:
    """Return whether an error says what is the matter: it is one of the library's own, and a RuntimeError."""
    return isinstance(error, ZkConcurrentError) and isinstance(error, RuntimeError)


def is_the_library_s(frame: FrameType | None) -> bool:
    """Return whether a stack has a function of the library."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("zkconcurrent."):
            return True
        frame = frame.f_back
    return False


def ask(zk: KazooClient, path: str, then: Callable[[Any], None]) -> None:
    """Read a node through the library's own link; `then` is called with the answer, on the thread that takes it."""
    from zkconcurrent._engine.session import Session
    from zkconcurrent._kazoo.replies import HandledReply

    Session.of(zk).link.transport.send(GetData(path, None), HandledReply(then))


def connection_thread(zk: KazooClient) -> Any:
    """Return kazoo's connection thread, None once it was stopped."""
    return zk._connection._connection_routine


# -- signals ---------------------------------------------------------------------------------------------------------


class Storm:
    """Signals within the block, 1 to 20 ms apart, to the main thread.

    Args:
        source: "timer", each set when the handler of the last one is done, or "sibling", another process, which does
            not wait for that: handlers are interrupted too, and then only count.
        action: called by the handler with the interrupted frame.

    Attributes:
        count: the signals so far.
        wrong: the stacks of the errors that the handler raised.
    """

    def __init__(self, source: str, action: Callable[[FrameType | None], None]) -> None:
        self.count = 0
        self.wrong: list[str] = []
        self._source, self._action, self._busy = source, action, False
        self._number = signal.SIGALRM if source == "timer" else signal.SIGUSR1
        self._sibling: subprocess.Popen[bytes] | None = None

    def _hear(self, _number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self._busy:
            return
        self._busy = True
        tell(f"signal {self.count}")
        try:
            self._action(frame)
        except BaseException:
            self.wrong.append(traceback.format_exc())
        finally:
            self._busy = False
            self._again()

    def _again(self) -> None:
        if self._source == "timer":
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.02))

    def __enter__(self) -> Self:
        signal.signal(self._number, self._hear)
        if self._source == "sibling":
            self._sibling = subprocess.Popen([sys.executable, "-S", "-c", SIBLING, str(os.getpid())])
        self._again()
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(self._number, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self._sibling is not None:
            self._sibling.kill()
            self._sibling.wait()


def cycled(zk: KazooClient) -> list[AnyLock]:
    """Return what the main thread acquires and releases."""
    return [Lock(zk, f"{PATH}/lock"), RLock(zk, f"{PATH}/rlock"), Semaphore(zk, f"{PATH}/semaphore", 1)]


def cycle(lock: AnyLock) -> None:
    """Acquire and release it."""
    assert lock.acquire(), "an acquire that may wait for ever returned False"
    lock.release()


def free(other: KazooClient, locks: list[AnyLock]) -> list[str]:
    """Return which of the locks another client does not get, at the latest when the session that held them is over."""
    wrong = []
    for lock in locks:
        theirs = type(lock)(other, lock.path)
        if theirs.acquire(timeout=1.2 * SESSION):
            theirs.release()
        else:
            wrong.append(f"{lock.path} is not free")
    return wrong


def stop(source: str) -> None:
    """Stop the client in a handler, again and again; the main thread is told, and the locks are free."""
    other, signals, wrong, rounds = client(), 0, [], 0
    began = time.monotonic()
    while not wrong and not is_over(began, 8, signals > 20):
        rounds += 1
        zk = client()
        locks, after, stopped = cycled(zk), random.randint(1, 12), []

        def action(
            _frame: FrameType | None, zk: KazooClient = zk, after: int = after, stopped: list[float] = stopped
        ) -> None:
            if storm.count >= after and not stopped:
                began = time.monotonic()
                stopped.append(0.0)
                zk.stop()
                stopped[0] = time.monotonic() - began

        with Storm(source, action) as storm:
            try:
                while True:
                    alive()
                    for lock in locks:
                        assert lock.acquire()
                        with suppress(LockLostError):
                            lock.release()
            except ClientError:
                alive()
        signals += storm.count
        wrong += storm.wrong
        if stopped and stopped[0] > PROMPT:
            wrong.append(f"stop() took {stopped[0]:.1f} s")
        wrong += free(other, locks)
        zk.close()
    other.stop()
    end(wrong, signals=signals, rounds=rounds)


class Deeds:
    """What a handler or a finalizer does, on top of the frame that it has interrupted.

    Attributes:
        aside: what the program holds elsewhere, if it is released in a handler, or what is free there.
        own: what the main thread acquires and releases.
        current: what it acquires or releases just now; None if that is always within the library.
        outcomes: how often each came of it.
    """

    def __init__(self, zk: KazooClient, what: str) -> None:
        self.aside: list[AnyLock] = [Lock(zk, f"{PATH}/a"), RLock(zk, f"{PATH}/b"), Semaphore(zk, f"{PATH}/c", 1)]
        self.own = cycled(zk)
        self.current: AnyLock | None = None
        self.outcomes: Counter[str] = Counter()
        self.do: Callable[[FrameType | None], None] = getattr(self, f"_{what}")
        self._zk, self._holds = zk, what == "release"
        self._queue = Queue[bytes](zk, f"{PATH}/aside-queue", 5)
        for lock in self.aside if self._holds else ():
            lock.acquire()

    def over(self, other: KazooClient) -> list[str]:
        """Release what is held; return which of the locks another client does not get."""
        for lock in self.aside if self._holds else ():
            lock.release()
        return free(other, [*self.aside, *self.own])

    def _release(self, _frame: FrameType | None) -> None:
        """Release what the program holds elsewhere, and acquire it again."""
        lock = random.choice(self.aside)
        lock.release()
        assert lock.acquire(timeout=SESSION), f"{lock!r} is not had again"

    def _acquire(self, _frame: FrameType | None) -> None:
        cycle(random.choice(self.aside))

    def _try(self, _frame: FrameType | None) -> None:
        lock = random.choice(self.aside)
        assert lock.acquire(blocking=False)
        lock.release()

    def _make(self, _frame: FrameType | None) -> None:
        """Make objects, of new paths and of new clients."""
        self.outcomes["made"] += 1
        name = time.monotonic_ns()
        Lock(self._zk, f"{PATH}/made/{name}")
        ReadWriteLock(self._zk, f"{PATH}/made-rw/{name}")
        Event(self._zk, f"{PATH}/made-event/{name}")
        Lock(KazooClient(HOSTS), f"{PATH}/made")  # the first of its client

    def _queues(self, _frame: FrameType | None) -> None:
        pass_on(self._queue)

    def _same(self, frame: FrameType | None) -> None:
        """Acquire what the main thread is acquiring or releasing: got, or refused, at once.

        Where the handler strikes the program's own frame, which may hold the lock, it only tries: to wait would be the
        program's own deadlock, as with `threading`.
        """
        inside = is_the_library_s(frame)
        how: dict[str, Any] = (
            random.choice([{}, {"timeout": 0.5}, {"blocking": False}]) if inside else {"blocking": False}
        )
        for lock in self.own if self.current is None else [self.current]:
            try:
                got = lock.acquire(**how)
                self.outcomes["got" if got else "not in time"] += 1
                if got:
                    lock.release()
                assert got or how, "an acquire that may wait for ever returned False"
            except RuntimeError as error:
                if not is_clear(error):
                    raise
                self.outcomes["refused"] += 1


@contextmanager
def prompt(wrong: list[str], what: str) -> Iterator[None]:
    """Note what a block raises, and whether it takes so long that a time-out may have ended a hang."""
    began = time.monotonic()
    try:
        yield
    except BaseException:
        wrong.append(traceback.format_exc())
    if time.monotonic() - began > PROMPT:
        wrong.append(f"{what} took {time.monotonic() - began:.1f} s")


def storm(what: str, source: str) -> None:
    """Do something in a handler, again and again, while the main thread cycles all kinds of lock, and makes some."""
    zk, other = client(), client()
    deeds, wrong = Deeds(zk, what), list[str]()

    def action(frame: FrameType | None) -> None:
        with prompt(wrong, what):
            deeds.do(frame)

    with Storm(source, action) as struck:
        while struck.count < SIGNALS and not wrong:
            alive()
            deeds._make(None)
            for lock in deeds.own:
                deeds.current = lock
                cycle(lock)
    wrong += struck.wrong
    wrong = wrong or deeds.over(other)
    zk.stop()
    other.stop()
    end(wrong, signals=struck.count, outcomes=deeds.outcomes)


# -- queues ----------------------------------------------------------------------------------------------------------


class Customer:
    """A handler that uses the queue whose call it has interrupted: an item in, an item out.

    Attributes:
        outcomes: the results of that.
        wrong: those that should not be.
    """

    def __init__(self, queue: Queue[bytes]) -> None:
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._queue = queue
        self._owes = 0  # items that were put and not taken yet; -1 if another's was taken

    def serve(self, _frame: FrameType | None = None) -> None:
        """Put, get and claim, no more out than in; each is done, or refused, at once."""
        for _ in range(2):
            do = self._put if self._owes < 0 else random.choice([self._put, self._get, self._claim][self._owes :])
            with prompt(self.wrong, do.__name__):
                try:
                    do()
                    self.outcomes[do.__name__] += 1
                except RuntimeError as error:
                    self.outcomes["refused"] += 1
                    if not is_clear(error):
                        raise

    def _put(self) -> None:
        with suppress(Full):  # which only the interrupted program may change
            self._queue.put(b"handler", timeout=0.3)
            self._owes += 1

    def _get(self) -> None:
        self._queue.get()
        self._owes -= 1

    def _claim(self) -> None:
        with self._queue.claim():
            self._owes -= 1


@contextmanager
def fed(queue: Queue[bytes], wrong: list[str]) -> Iterator[None]:
    """Have a thread put an item again and again where none is, within the block."""
    over = threading.Event()

    def feed() -> None:
        try:
            while not over.wait(0.03):
                if queue.empty():
                    queue.put(b"fed", timeout=SESSION)
        except BaseException:
            wrong.append(traceback.format_exc())

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


def drained(queue: Queue[bytes]) -> list[str]:
    """Return what is wrong with a queue that nobody uses any more: an item that stays claimed."""
    until = time.monotonic() + 5
    while queue.client.get_children(f"{queue.path}/items") and time.monotonic() < until:
        with suppress(Empty):
            queue.get(timeout=0.5)
    return [f"{name} stays" for name in queue.client.get_children(f"{queue.path}/items")]


def same_queue(source: str, size: str) -> None:
    """Put, get and claim in a handler where the main thread does so, and waits for items that another client puts."""
    zk, other = client(), client()
    queue = Queue[bytes](zk, f"{PATH}/same", int(size))
    customer = Customer(queue)
    pass_on(queue)
    theirs = Queue[bytes](other, f"{PATH}/same", int(size))
    with fed(theirs, customer.wrong), Storm(source, customer.serve) as storm:
        while storm.count < SIGNALS and not storm.wrong and not customer.wrong:
            alive()
            queue.get()
            with queue.claim():
                pass
            with suppress(Full):
                queue.put(b"main", timeout=0.5)
    wrong = customer.wrong + storm.wrong
    wrong = wrong or drained(theirs)
    zk.stop()
    other.stop()
    end(wrong, signals=storm.count, outcomes=customer.outcomes)


def sweep_queue(size: str) -> None:
    """Put, get and claim in a handler at any line of every call of the same queue, whether it waits or not."""
    zk, other = client(connection_retry={"max_tries": -1, "delay": 0.01, "max_delay": 0.05}), client()
    queue, theirs = Queue[bytes](zk, f"{PATH}/same", int(size)), Queue[bytes](other, f"{PATH}/same", int(size))
    customer, injected = Customer(queue), 0
    wrong = customer.wrong

    def claim() -> None:
        with queue.claim():
            pass

    def give_back() -> None:
        with suppress(KeyError), queue.claim():
            raise KeyError

    def put() -> None:
        with suppress(Full):
            queue.put(b"main", timeout=1.0)

    pass_on(queue)
    with fed(theirs, wrong):
        for each in (put, queue.get, claim, give_back, queue.qsize):
            with At(-1, customer.serve) as counter:
                each()
            lines = range(1, counter.passed + 1)
            for line in random.sample(lines, min(len(lines), 50 if PLACES <= 2 else 400)):
                alive()
                with At(line, customer.serve) as at:
                    each()
                injected += bool(at.where)
                with suppress(Empty):
                    while theirs.qsize() > 1:  # so that there is a place for the handler
                        theirs.get(timeout=1.0)
                if wrong:
                    wrong.insert(0, at.where)
                    break
            if wrong:
                break
    wrong = wrong or drained(theirs)
    end(wrong, injected=injected, outcomes=customer.outcomes)
    os._exit(0)


# -- at every line ---------------------------------------------------------------------------------------------------


class At:
    """Run a function at the n-th line of the library that the calling thread runs, as a handler or a finalizer may.

    Attributes:
        where: the line, once it has been reached.
        passed: how many lines were run, up to it.
    """

    def __init__(self, line: int, do: Callable[[], None]) -> None:
        self.where = ""
        self.passed = 0
        self._line, self._do = line, do

    def __enter__(self) -> Self:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "call" and not frame.f_globals.get("__name__", "").startswith("zkconcurrent."):
            return None  # nor is this called for its lines
        if event == "line" and not self.where and self._may_be_interrupted(frame.f_code.co_filename, frame.f_lineno):
            self.passed += 1
            if self.passed == self._line:
                sys.settrace(None)
                self.where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"
                tell(f"progress {self.where}")
                self._do()
        return self._trace

    @staticmethod
    @functools.cache
    def _may_be_interrupted(file: str, line: int) -> bool:
        """Return whether it is no line that CPython visits again where it runs no handler (bpo-29988)."""
        return not linecache.getline(file, line).lstrip().startswith(("with ", "try:"))


def operations(zk: KazooClient) -> list[Callable[[], object]]:
    """Return what is done while something strikes."""
    locks: list[Any] = [*cycled(zk), Lock(zk, f"{PATH}/unfair", fair=False)]
    event, condition = Event(zk, f"{PATH}/event"), Condition(zk, f"{PATH}/condition")

    def wait() -> None:
        with condition:
            condition.wait(0.01)
            condition.notify()

    def set_and_clear() -> None:
        event.set()
        event.clear()

    def make_some() -> None:
        Lock(zk, f"{PATH}/new/{time.monotonic_ns()}")
        Lock(KazooClient(HOSTS), f"{PATH}/new")

    queues = [Queue[bytes](zk, f"{PATH}/queue"), Queue[bytes](zk, f"{PATH}/queue-of-2", 2, max_attempts=9)]
    entries, elements = Dict[bytes](zk, f"{PATH}/dict"), Set(zk, f"{PATH}/set")

    def write() -> None:
        entries["key"] = b"1"
        assert entries["key"] == b"1"
        assert entries.pop("key") == b"1"

    def add() -> None:
        elements.add("one")
        assert "one" in elements
        elements.remove("one")

    return [
        *(lambda lock=lock: cycle(lock) for lock in locks),  # type: ignore[misc]
        set_and_clear,
        wait,
        make_some,
        write,
        add,
        *(lambda queue=queue: pass_on(queue) for queue in queues),  # type: ignore[misc]
    ]


def pass_on(queue: Queue[bytes]) -> None:
    """Put an item, claim it and give it back, claim it and acknowledge it; put another and get it."""
    queue.put(b"1")
    with suppress(KeyError), queue.claim():
        raise KeyError
    with queue.claim():
        pass
    queue.put(b"2")
    queue.get()
    queue.task_done()


def sweep(what: str) -> None:
    """Do something at every line of a lock's acquire and release, and at some of every other operation.

    Some uses strike odd lines of it, and some even ones; in `make soak` all strike all.
    """
    # Where a caller is interrupted as it sends, the connection is dropped: hundreds of times.
    zk, other = client(connection_retry={"max_tries": -1, "delay": 0.01, "max_delay": 0.05}), client()
    deeds, wrong, injected = Deeds(zk, what), list[str](), 0

    def do() -> None:
        with prompt(wrong, what):
            deeds.do(sys._getframe())

    for each in operations(zk):
        each()
        with At(-1, do) as counter:
            each()
        lines = range(1, counter.passed + 1)
        if injected:
            lines = random.sample(lines, min(len(lines), SAMPLE))
        elif what in ALTERNATE and PLACES <= 2:
            lines = lines[ALTERNATE.index(what) % 2 :: 2]
        for line in lines:
            alive()
            with At(line, do) as at:
                each()
            injected += bool(at.where)
            if wrong:
                wrong.insert(0, at.where)
                break
        if wrong:
            break
    wrong = wrong or deeds.over(other)
    end(wrong, injected=injected, outcomes=deeds.outcomes)
    os._exit(0)


def sweep_stop() -> None:
    """Stop the client at some of the lines of every operation, one client for each."""
    other, wrong, injected, rounds = client(), list[str](), 0, 0
    zk = client()
    began = time.monotonic()
    while not wrong and not is_over(began, 8, injected > 10):
        rounds += 1
        line, held = random.randint(1, 250), Lock(zk, f"{PATH}/held")
        took: list[float] = []

        def do(zk: KazooClient = zk, took: list[float] = took) -> None:
            began = time.monotonic()
            try:
                zk.stop()
            finally:
                took.append(time.monotonic() - began)

        alive()
        held.acquire()
        at = At(line, do)
        operation = random.choice(operations(zk))
        with suppress(ClientError, LockLostError), at:
            operation()
        if sum(took) > PROMPT:
            wrong.append(f"stop() took {took[0]:.1f} s")
        if at.where:
            injected += 1
            alive()
            try:
                held.release()
                wrong.append("a release after stop() was silent")
            except LockLostError:
                pass
            wrong += free(other, [held, *cycled(other)])
            zk.close()
            zk = client()
        else:
            held.release()
        if wrong:
            wrong.insert(0, at.where)
    end(wrong, injected=injected, rounds=rounds)
    os._exit(0)


# -- the garbage collector -------------------------------------------------------------------------------------------


class Litter:
    """Garbage that only the collector finds, and whose finalizer does something."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._self, self._then = self, then

    def __del__(self) -> None:
        self._then()


def collect(what: str) -> None:
    """Have the collector release, try or make locks wherever it runs, while threads cycle locks and leave litter."""
    zk, other, outcomes, wrong = client(), client(), Counter[str](), list[str]()
    held = {n: Lock(zk, f"{PATH}/held/{n}") for n in range(4)}
    tried = [Lock(zk, f"{PATH}/tried"), RLock(zk, f"{PATH}/tried-r"), Semaphore(zk, f"{PATH}/tried-s", 1)]
    numbers, kept, out = iter(range(10**9)), list[Any](), set[int]()

    def finalize(do: Callable[[], str]) -> None:
        outcomes["in the library"] += is_the_library_s(sys._getframe())
        with prompt(wrong, "a finalizer"):
            try:
                outcomes[do()] += 1
            except RuntimeError as error:
                outcomes["refused"] += 1
                if not is_clear(error):
                    raise

    def try_one() -> str:
        lock = random.choice(tried)
        if not lock.acquire(blocking=False):
            return "not free"
        lock.release()
        return "got"

    def make_one() -> str:
        Lock(zk, f"{PATH}/made/{next(numbers)}")
        if not next(numbers) % 5:
            Lock(KazooClient(HOSTS), PATH)
        return "made"

    def give_up(n: int) -> str:
        held[n].release()
        out.discard(n)
        return "released"

    def litter(n: int) -> None:
        gc.set_threshold(random.randint(20, 400), 3, 3)  # it is found at another point each time
        if what == "release":
            if n not in out and held[n].acquire(blocking=False):
                out.add(n)
                Litter(lambda: finalize(lambda: give_up(n)))
            return
        do = try_one if what == "try" else make_one
        Litter(lambda: finalize(do))
        subject = Litter(lambda: None)
        kept.append(weakref.ref(subject, lambda _: finalize(do)))  # a weak reference's callback runs there too
        del kept[:-50]

    done = [0] * 4

    def work(n: int) -> None:
        mine = [Lock(zk, f"{PATH}/lock/{n}"), RLock(zk, f"{PATH}/rlock/{n}"), Semaphore(zk, f"{PATH}/semaphore/{n}", 1)]
        try:
            while done[n] < CYCLES and not wrong:
                for lock in mine:
                    litter(n)
                    cycle(lock)
                done[n] += 1
        except BaseException:
            wrong.append(traceback.format_exc())

    alive()
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
    watch(threads, lambda: sum(done))
    gc.set_threshold(700, 10, 10)
    gc.collect()
    if not wrong:
        wrong += free(other, [Lock(other, f"{PATH}/{name}/0") for name in ("lock", "rlock", "held")][:1])
        wrong += free(other, list(held.values()))
    zk.stop()
    other.stop()
    end(wrong, cycles=sum(done), outcomes=outcomes)


def watch(threads: list[threading.Thread], progress: Callable[[], Any]) -> None:
    """Run threads to their end; the process ends if they make no progress."""
    alive()
    for thread in threads:
        thread.start()
    seen = None
    while any(thread.is_alive() for thread in threads):
        if (now := progress()) != seen:
            seen = now
            tell(f"progress {now}")
            alive()
        time.sleep(0.2)
    alive()


# -- log handlers ----------------------------------------------------------------------------------------------------


class Remote(Service):
    """The server that the job was told of."""

    hosts = HOSTS


class Formatting(logging.Handler):
    """Formats every kind of object with each record, holding its lock as handlers do."""

    def __init__(self, objects: list[Any]) -> None:
        super().__init__()
        self.objects, self.records = objects, 0

    def emit(self, record: logging.LogRecord) -> None:
        """Format."""
        self.records += 1
        str("%s: %r" % (record.getMessage(), self.objects))  # noqa: UP031 - as programs do


def every_kind(zk: KazooClient) -> list[Any]:
    """Return an object of every kind."""
    lock, rlock = Lock(zk, f"{PATH}/lock"), RLock(zk, f"{PATH}/rlock")
    readers = ReadWriteLock(zk, f"{PATH}/rw")
    return [
        *(lock, rlock, readers, readers.read_lock, readers.write_lock),
        Lock(zk, f"{PATH}/unfair", fair=False),
        Semaphore(zk, f"{PATH}/semaphore", 2),
        MultiLock([lock, rlock]),
        Condition(zk, f"{PATH}/condition"),
        Event(zk, f"{PATH}/event"),
        CountDownLatch(zk, f"{PATH}/latch", 3),
        Election(zk, f"{PATH}/election"),
        AtomicLong(zk, f"{PATH}/number"),
        SharedValue(zk, f"{PATH}/value", b""),
        Barrier(zk, f"{PATH}/barrier", 2),
        DoubleBarrier(zk, f"{PATH}/double", 1),
        Group(zk, f"{PATH}/group"),
        Queue(zk, f"{PATH}/queue"),
        Dict(zk, f"{PATH}/dict"),
        Set(zk, f"{PATH}/set"),
    ]


def use(every: list[Any], patience: float) -> None:
    """Use each of the objects; holds may be lost, and waits in vain."""
    for each in every:
        if isinstance(each, ReadWriteLock | Barrier):
            continue
        with suppress(LockLostError, RuntimeError, OutcomeUnknownError):
            if isinstance(each, Event):
                each.set()
                each.wait(patience)
                each.clear()
            elif isinstance(each, CountDownLatch):
                each.wait(0)
            elif isinstance(each, Election):
                with suppress(TimeoutError), each.lead(patience) as term:
                    term.publish(b"here")
            elif isinstance(each, AtomicLong):
                each.add()
            elif isinstance(each, SharedValue):
                each.wait_for(bool, 0)
            elif isinstance(each, DoubleBarrier):
                if each.enter(0):
                    each.leave(0)
            elif isinstance(each, Group):
                with each.join():
                    each.members()
            elif isinstance(each, Queue):
                each.put(b"1")
                with suppress(Empty):
                    each.get(timeout=patience)
            elif isinstance(each, Dict):
                each["key"] = each.get("key", b"") + b"1"
                each.pop("key", None)
            elif isinstance(each, Set):
                each.add("one")
                each.discard("one")
            elif isinstance(each, Condition):
                with each:
                    each.wait(0.01)
                    each.notify()
            elif each.acquire(timeout=patience):
                each.release()


@contextmanager
def logging_to(handler: logging.Handler) -> Iterator[None]:
    """Log all that the library and kazoo have to say."""
    loggers = [logging.getLogger(name) for name in ("zkconcurrent", "kazoo")]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
        logger.addHandler(handler)
        logger.propagate = False
    yield
    for logger in loggers:
        logger.removeHandler(handler)


def formatted() -> None:
    """Log handlers format all objects; threads cycle, the connection is cut, and sessions expire."""
    wrong: list[str] = []
    done = [0] * 4
    with Proxy(HOSTS) as proxy:
        zk = client(proxy.hosts, 6.0)
        every = every_kind(zk)
        handler = Formatting(every)
        began = time.monotonic()

        def enough() -> bool:
            return is_over(began, 8, sum(done) > 10 and handler.records > 1000)

        def work(n: int) -> None:
            try:
                while not enough():
                    use(every, 1.0)
                    done[n] += 1
            except BaseException:
                wrong.append(traceback.format_exc())

        def harm() -> None:
            while not enough():
                time.sleep(random.uniform(0.1, 0.5))
                proxy.cut()
                if random.random() < 0.3:
                    with suppress(ValueError):
                        Remote().expire(zk)
            tell("no more harm")

        with logging_to(handler):
            threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
            watch([*threads, threading.Thread(target=harm, daemon=True)], lambda: sum(done))
        zk.stop()
    end(wrong, cycles=sum(done), records=handler.records)


class Blocking(logging.Handler):
    """Blocks one thread for a while at a record of its own; takes no lock, as other threads' records pass meanwhile."""

    def __init__(self, blocks: Callable[[logging.LogRecord], bool]) -> None:
        super().__init__()
        self._blocks = blocks
        self.blocked = threading.Event()
        self.go = threading.Event()
        self.where = ""

    def createLock(self) -> None:  # noqa: N802 - as logging calls it
        """Have none."""
        self.lock = nullcontext()  # type: ignore[assignment]

    def acquire(self) -> None:
        """Wait for nobody."""

    def release(self) -> None:
        """Let nobody in."""

    def emit(self, record: logging.LogRecord) -> None:
        """Block once."""
        if not self.blocked.is_set() and self._blocks(record):
            self.where = record.getMessage()
            self.blocked.set()
            self.go.wait(10)


def blocked() -> None:
    """A log handler blocks one thread that cycles, at each record of a cycle; the others go on."""
    zk, wrong, rounds, records = client(timeout=6.0), list[str](), 0, []
    others, over = [0] * 3, False

    def work(n: int) -> None:
        mine = [Lock(zk, f"{PATH}/lock/{n}"), RLock(zk, f"{PATH}/rlock/{n}"), Semaphore(zk, f"{PATH}/semaphore/{n}", 1)]
        while not over:
            for lock in mine:
                cycle(lock)
            others[n] += 1

    mine = [Lock(zk, f"{PATH}/mine"), Lock(zk, f"{PATH}/my unfair", fair=False), Semaphore(zk, f"{PATH}/permits", 1)]
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    alive()
    main = threading.get_ident()
    for nth in range(1, 9):
        left = nth

        def blocks(record: logging.LogRecord) -> bool:
            nonlocal left
            left -= record.thread == main
            return record.thread == main and not left

        handler = Blocking(blocks)
        with logging_to(handler):
            cycling = threading.Thread(target=watch_blocked, args=(handler, others, wrong, alive))
            cycling.start()
            began = time.monotonic()
            while not handler.go.is_set() and time.monotonic() - began < 60:
                for lock in mine:
                    cycle(lock)
            cycling.join()
        records.append(handler.where)
        rounds += 1
        if wrong:
            break
    over = True
    end(wrong, rounds=rounds, records=records)
    os._exit(0)


def watch_blocked(handler: Blocking, others: list[int], wrong: list[str], alive: Callable[[], None]) -> None:
    """See that every other thread goes on while one is blocked."""
    alive()
    if not handler.blocked.wait(30):
        wrong.append("nothing was logged that could block")
    before, until = list(others), time.monotonic() + 20
    while time.monotonic() < until and not all(now >= then + 3 for now, then in zip(others, before, strict=True)):
        time.sleep(0.01)
    if not all(now >= then + 3 for now, then in zip(others, before, strict=True)):
        wrong.append(f"while a thread was blocked at {handler.where!r}, others went from {before} to {others}")
    handler.go.set()


# -- credentials -----------------------------------------------------------------------------------------------------


def add_auth(how: str) -> None:
    """Add credentials again and again, under traffic; every answer is its own request's, on one connection."""
    zk, wrong, over, done = client(timeout=4.0), list[str](), False, [0] * 4
    states: list[str] = []
    zk.add_listener(states.append)
    zk.ensure_path(f"{PATH}/data")

    def work(n: int) -> None:
        lock, permits = Lock(zk, f"{PATH}/lock"), Semaphore(zk, f"{PATH}/semaphore/{n}", 1)
        path, number = f"{PATH}/data/{n}", 0
        zk.create(path)
        try:
            while not over:
                with lock:
                    owner = lock.owner()
                    assert owner is not None
                    assert owner.token == lock.fencing_token, "another's answer"
                cycle(permits)
                number += 1
                zk.set_async(path, str(number).encode())
                data = zk.get_async(path).get(timeout=10)[0]
                assert data == str(number).encode(), f"read {data!r} for {number}"
                done[n] += 1
        except BaseException:
            wrong.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
    alive()
    for thread in threads:
        thread.start()
    added, began = 0, time.monotonic()
    try:
        while not wrong and not is_over(began, 4, added > 100 and sum(done) > 40):
            if how == "one by one":
                answers = [zk.add_auth_async("digest", "a:b")]
            else:
                answers = [zk.add_auth_async("digest", "a:b") for _ in range(20)]
            for answer in answers:
                assert answer.get(timeout=10) is True, "not accepted"
            added += len(answers)
            time.sleep(0.005)
    except BaseException:
        wrong.append(traceback.format_exc())
    over = True
    for thread in threads:
        thread.join(20)
        if thread.is_alive():
            wrong.append("a thread that cycles hangs")
    if states:
        wrong.append(f"states: {states}")
    routine = connection_thread(zk)
    if routine is None or not routine.is_alive():
        wrong.append("the connection's thread has ended")
    end(wrong, added=added, cycles=sum(done))
    os._exit(0)


def refused_auth() -> None:
    """Credentials that are refused, under traffic, of one client after the other: every call is told, stop() ends."""
    wrong, told, took, rounds = list[str](), Counter[str](), 0.0, 0

    def refuse() -> None:
        nonlocal took
        zk, done = client(timeout=6.0), [0] * 6

        def work(n: int) -> None:
            # Of its own: the node of a client that was turned away stays until its session is over.
            locks = [Lock(zk, f"{PATH}/{rounds}/lock"), Semaphore(zk, f"{PATH}/{rounds}/semaphore", 2)]
            while True:
                try:
                    for lock in locks:
                        assert lock.acquire()
                        with suppress(LockLostError):
                            lock.release()
                    done[n] += 1
                except (ClientError, RefusedError) as error:
                    told[type(error).__name__] += 1
                    return
                except BaseException:
                    wrong.append(traceback.format_exc())
                    return

        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(6)]
        alive()
        for thread in threads:
            thread.start()
        while not all(each > 2 for each in done) and not wrong:
            time.sleep(0.01)
        try:
            zk.add_auth_async("nonsense", "a:b").get(timeout=10)
            wrong.append("it was accepted")
        except (AuthFailedError, ConnectionLoss):  # lost, if the server hangs up before its answer is read
            pass
        except BaseException:
            wrong.append(traceback.format_exc())
        began = time.monotonic()
        for thread in threads:
            thread.join(max(0.0, began + 8 - time.monotonic()))
            if thread.is_alive():
                wrong.append("a call hangs")
        took = max(took, time.monotonic() - began)
        if str(zk._state) not in ("AUTH_FAILED", "CLOSED"):  # closed, once its thread has ended for that
            wrong.append(f"kazoo's state is {zk._state}")
        alive()
        began = time.monotonic()
        try:
            zk.stop()
        except BaseException:
            wrong.append(traceback.format_exc())
        if time.monotonic() - began > PROMPT:
            wrong.append(f"stop() took {time.monotonic() - began:.1f} s")

    while rounds < 8 and not wrong:
        refuse()
        rounds += 1
    end(wrong, rounds=rounds, told=told, took=round(took, 2))
    os._exit(0)


# -- interrupts ------------------------------------------------------------------------------------------------------


def interrupted() -> None:
    """Wait for a condition until Ctrl-C, which comes while no server answers; say how the block is left."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    zk = client(timeout=6.0, connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 0.5})
    condition = Condition(zk, PATH)
    try:
        with condition:
            alive()
            tell("waiting")
            try:
                condition.wait()
            except KeyboardInterrupt:
                alive()
                tell("interrupted")
                raise ValueError from None
    except LockLostError:
        tell("lost")
    except ValueError:
        tell("left")
    faulthandler.cancel_dump_traceback_later()  # the test takes its time
    sys.stdin.readline()
    alive()
    with condition:
        tell("held again")
    zk.stop()
    tell("stopped")


# -- no more threads -------------------------------------------------------------------------------------------------


def no_threads(how: str) -> None:
    """No thread can be started while many requests are made on a connection that is down; all are answered."""
    many, wrong, answers, raised = 1000, list[str](), list[Any](), Counter[str]()
    with Proxy(HOSTS) as proxy:
        zk = client(proxy.hosts, 10.0, connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 0.2})
        zk.ensure_path(PATH)
        lock = Lock(zk, f"{PATH}/lock")
        cycle(lock)
        routine, states = connection_thread(zk), list[str]()
        zk.add_listener(states.append)

        def request() -> None:
            try:
                if how == "kazoo's":
                    zk.get_async(PATH).rawlink(answers.append)
                else:
                    ask(zk, PATH, answers.append)
            except BaseException as error:
                raised[repr(error)] += 1

        def cannot_start(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        alive()
        lock.acquire()
        start, threading.Thread.start = threading.Thread.start, cannot_start  # type: ignore[method-assign]
        if how == "on kazoo's thread":
            proxy.stall(to_client=False)
            for _ in range(many):  # each is failed by the cut, on kazoo's thread, and makes another there
                ask(zk, PATH, lambda _: ask(zk, PATH, answers.append))
            proxy.refuse()
            proxy.cut()
        else:
            proxy.refuse()
            proxy.cut()
            while "SUSPENDED" not in states:
                time.sleep(0.01)
            for _ in range(many):
                request()
        proxy.resume()
        until = time.monotonic() + 12
        while len(answers) < many and time.monotonic() < until:
            time.sleep(0.05)
        threading.Thread.start = start  # type: ignore[method-assign]
        if len(answers) < many:
            wrong.append(f"{len(answers)} of {many} answered")
        if raised:
            wrong.append(f"raised: {raised}")
        if connection_thread(zk) is not routine or not routine.is_alive():
            wrong.append("the connection's thread has ended")
        if not wrong:
            lock.release()
            cycle(lock)
            zk.stop()
        end(wrong, answers=len(answers))
    os._exit(0)


if __name__ == "__main__":
    alive()
    globals()[sys.argv[3]](*sys.argv[4:])
