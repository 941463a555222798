"""A process in which something strikes at any moment: signal handlers, finalizers, log handlers, credentials.

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
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient
from kazoo.protocol.serialization import GetData

import zkconcurrent
from tests.helpers.kinds import KINDS, make
from tests.helpers.places import PLACES
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    ClientError,
    Condition,
    Dict,
    Empty,
    Event,
    Full,
    Lock,
    LockLostError,
    Queue,
    RLock,
    Semaphore,
    ZkConcurrentError,
)
from zkconcurrent._engine.session import Session
from zkconcurrent.testing._service import Service

if TYPE_CHECKING:
    from typing_extensions import Self

HOSTS, PATH = sys.argv[1:3] if len(sys.argv) > 3 else ("", "")
SESSION = 60.0  # so long that a call that waits for a part of it is noticed
STALL = 90.0  # without progress for so long, it hangs; what a client left that was stopped goes with its session
PROMPT = 9.0  # for a call that is done, or refused, at once; a hang that some time-out ends takes longer: T / 6 or more
SIGNALS = 150
CYCLES = 50
SAMPLE = 8  # lines of an operation
STOPS = 12
HASTY = {"connection_retry": {"max_tries": -1, "delay": 0.01, "max_delay": 0.05}}
AnyLock = Lock | RLock | Semaphore


def alive() -> None:
    """Note progress."""
    faulthandler.dump_traceback_later(STALL, exit=True)


def tell(text: str) -> None:
    """Print a line, at any moment: in a signal handler, or in a finalizer."""
    os.write(1, f"{text}\n".encode())


def end(wrong: list[str], **figures: Any) -> None:
    """Print the job's outcome, and end without what the process would do then."""
    tell(json.dumps({"wrong": wrong[:5], **figures}))
    os._exit(0)


def client(hosts: str = HOSTS, timeout: float = SESSION, **options: Any) -> KazooClient:
    """Return a started client."""
    opened = KazooClient(hosts, timeout=timeout, **options)
    opened.start()
    return opened


def is_the_library_s(frame: FrameType | None) -> bool:
    """Return whether a stack has a function of the library."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("zkconcurrent."):
            return True
        frame = frame.f_back
    return False


# -- what strikes ----------------------------------------------------------------------------------------------------


class Signals:
    """Signals within the block, 1 to 20 ms apart, to the main thread; each is set when the last one's handler is done.

    Args:
        action: called by the handler with the interrupted frame.

    Attributes:
        count: the signals so far.
    """

    def __init__(self, action: Callable[[FrameType | None], None]) -> None:
        self.count = 0
        self._action = action

    def _hear(self, _number: int, frame: FrameType | None) -> None:
        self.count += 1
        tell(f"signal {self.count}")
        self._action(frame)
        self._again()

    @staticmethod
    def _again() -> None:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.02))

    def __enter__(self) -> Self:
        signal.signal(signal.SIGALRM, self._hear)
        self._again()
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)


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


def lines_of(call: Callable[[], object]) -> range:
    """Return the numbers of the lines that a call runs."""
    with At(-1, lambda: None) as counter:
        call()
    return range(1, counter.passed + 1)


class Litter:
    """Garbage that only the collector finds, and whose finalizer does something."""

    def __init__(self, then: Callable[[], object]) -> None:
        self._self, self._then = self, then

    def __del__(self) -> None:
        self._then()


# -- what a handler does ---------------------------------------------------------------------------------------------


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


@contextmanager
def refusals(outcomes: Counter[str]) -> Iterator[None]:
    """Count an error that says what is the matter: it is one of the library's own, and a RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        outcomes["refused"] += 1
        if not isinstance(error, ZkConcurrentError):
            raise


class Deeds:
    """What a handler does, on top of the frame that it has interrupted.

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

    def _make(self, _frame: FrameType | None) -> None:
        """Make objects, of new paths and of new clients."""
        Lock(self._zk, f"{PATH}/made/{time.monotonic_ns()}")
        Event(self._zk, f"{PATH}/made-event/{time.monotonic_ns()}")
        Lock(KazooClient(HOSTS), f"{PATH}/made")  # the first of its client

    def _same(self, frame: FrameType | None) -> None:
        """Acquire what the main thread is acquiring or releasing: got, or refused, at once.

        Where the handler strikes the program's own frame, which may hold the lock, it only tries: to wait would be the
        program's own deadlock, as with `threading`.
        """
        how: dict[str, Any] = {"blocking": False}
        if is_the_library_s(frame):
            how = random.choice([{}, {"timeout": 0.5}, how])
        for lock in self.own if self.current is None else [self.current]:
            with refusals(self.outcomes):
                got = lock.acquire(**how)
                self.outcomes["got" if got else "not in time"] += 1
                if got:
                    lock.release()
                assert got or how, "an acquire that may wait for ever returned False"


def at_signals(what: str) -> None:
    """Do something in a handler, again and again, while the main thread cycles all kinds of lock, and makes some."""
    zk, other = client(), client()
    deeds, wrong = Deeds(zk, what), list[str]()

    def action(frame: FrameType | None) -> None:
        with prompt(wrong, what):
            deeds.do(frame)

    with Signals(action) as struck:
        while struck.count < SIGNALS and not wrong:
            alive()
            deeds._make(None)
            for lock in deeds.own:
                deeds.current = lock
                cycle(lock)
    wrong = wrong or deeds.over(other)
    end(wrong, struck=struck.count, outcomes=deeds.outcomes)


def operations(zk: KazooClient) -> list[Callable[[], object]]:
    """Return what is done while something strikes."""
    locks: list[Any] = [*cycled(zk), Lock(zk, f"{PATH}/unfair", fair=False)]
    event, condition = Event(zk, f"{PATH}/event"), Condition(zk, f"{PATH}/condition")
    queue, entries = Queue[bytes](zk, f"{PATH}/queue", 2, max_attempts=9), Dict[bytes](zk, f"{PATH}/dict")

    def wait() -> None:
        with condition:
            condition.wait(0.01)
            condition.notify()

    def set_and_clear() -> None:
        event.set()
        event.clear()

    def write() -> None:
        entries["key"] = b"1"
        assert entries["key"] == b"1"
        assert entries.pop("key") == b"1"

    return [
        *(lambda lock=lock: cycle(lock) for lock in locks),  # type: ignore[misc]
        set_and_clear,
        wait,
        write,
        lambda: pass_on(queue),
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


def at_lines(what: str) -> None:
    """Do something at every third line of a lock's acquire and release, and at some of every other operation."""
    # Where a caller is interrupted as it sends, the connection is dropped: hundreds of times.
    zk, other = client(**HASTY), client()
    deeds, wrong, struck = Deeds(zk, what), list[str](), 0

    def do() -> None:
        with prompt(wrong, what):
            deeds.do(sys._getframe())

    for each in operations(zk):
        each()
        lines = lines_of(each)
        step = 1 if PLACES > 2 else 3
        for line in random.sample(lines, min(len(lines), SAMPLE)) if struck else lines[random.randrange(step) :: step]:
            alive()
            with At(line, do) as at:
                each()
            struck += bool(at.where)
            if wrong:
                end([at.where, *wrong])
    end(deeds.over(other), struck=struck, outcomes=deeds.outcomes)


def stop(zk: KazooClient, wrong: list[str]) -> None:
    """Stop the client."""
    with prompt(wrong, "stop()"):
        zk.stop()


def stop_at_lines() -> None:
    """Stop the client at some of the lines of every operation, one client for each."""
    other, wrong, struck = client(), list[str](), 0
    zk = client()
    while not wrong and struck < STOPS:
        held = Lock(zk, f"{PATH}/held")

        alive()
        held.acquire()
        at = At(random.randint(1, 250), functools.partial(stop, zk, wrong))
        operation = random.choice(operations(zk))
        with suppress(ClientError, LockLostError), at:
            operation()
        if not at.where:
            held.release()
            continue
        struck += 1
        alive()
        try:
            held.release()
            wrong.append("a release after stop() was silent")
        except LockLostError:
            pass
        wrong += free(other, [held, *cycled(other)])
        zk.close()
        zk = client()
        if wrong:
            wrong.insert(0, at.where)
    end(wrong, struck=struck)


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

    def serve(self) -> None:
        """Put, get and claim, no more out than in; each is done, or refused, at once."""
        for _ in range(2):
            do = self._put if self._owes < 0 else random.choice([self._put, self._get, self._claim][self._owes :])
            with prompt(self.wrong, do.__name__), refusals(self.outcomes):
                do()
                self.outcomes[do.__name__] += 1

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


def at_lines_of_a_queue() -> None:
    """Put, get and claim in a handler at any line of every call of the same queue, whether it waits or not."""
    queue, theirs = (Queue[bytes](each, f"{PATH}/same", 3) for each in (client(**HASTY), client()))
    customer, struck = Customer(queue), 0
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
        for each in (put, queue.get, claim, give_back):
            lines = lines_of(each)
            for line in random.sample(lines, min(len(lines), 40 if PLACES <= 2 else 400)):
                alive()
                with At(line, customer.serve) as at:
                    each()
                struck += bool(at.where)
                with suppress(Empty):
                    while theirs.qsize() > 1:  # so that there is a place for the handler
                        theirs.get(timeout=1.0)
                if wrong:
                    end([at.where, *wrong])
    end(wrong or drained(theirs), struck=struck, outcomes=customer.outcomes)


def at_collections(what: str) -> None:
    """Have the collector release or try locks wherever it runs, while threads cycle locks and leave litter."""
    zk, other, outcomes, wrong = client(), client(), Counter[str](), list[str]()
    held = {n: Lock(zk, f"{PATH}/held/{n}") for n in range(4)}
    tried = [Lock(zk, f"{PATH}/tried"), RLock(zk, f"{PATH}/tried-r"), Semaphore(zk, f"{PATH}/tried-s", 1)]
    out, done = set[int](), [0] * 4

    def finalize(do: Callable[[], str]) -> None:
        with prompt(wrong, "a finalizer"), refusals(outcomes):
            outcomes[do()] += 1

    def try_one() -> str:
        lock = random.choice(tried)
        if not lock.acquire(blocking=False):
            return "not free"
        lock.release()
        return "got"

    def give_up(n: int) -> str:
        held[n].release()
        out.discard(n)
        return "released"

    def litter(n: int) -> None:
        gc.set_threshold(random.randint(20, 400), 3, 3)  # it is found at another point each time
        if what == "try":
            Litter(lambda: finalize(try_one))
        elif n not in out and held[n].acquire(blocking=False):
            out.add(n)
            Litter(lambda: finalize(lambda: give_up(n)))

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

    watch([threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)], lambda: sum(done))
    gc.set_threshold(700, 10, 10)
    gc.collect()
    wrong = wrong or free(other, list(held.values()))
    end(wrong, struck=sum(outcomes.values()), outcomes=outcomes)


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

    def __init__(self, zk: KazooClient, objects: list[Any], wrong: list[str]) -> None:
        super().__init__()
        self.records = 0
        self._session, self._objects, self._wrong = Session.of(zk), objects, wrong

    def emit(self, record: logging.LogRecord) -> None:
        """Format."""
        self.records += 1
        str("%s: %r" % (record.getMessage(), self._objects))  # noqa: UP031 - as programs do
        if self._session.has_lock():
            self._wrong.append(f"logged with the session's lock held: {record.getMessage()}")


def formatted() -> None:
    """Log handlers format all objects; threads use them, the connection is cut, and sessions expire."""
    wrong, done, over = list[str](), [0] * 4, threading.Event()
    with Proxy(HOSTS) as proxy:
        zk = client(proxy.hosts, 6.0)
        every = [make(zkconcurrent, name, zk, f"{PATH}/{name}") for name in KINDS if "," not in name]
        handler = Formatting(zk, every, wrong)
        for name in ("zkconcurrent", "kazoo"):
            logging.getLogger(name).setLevel(logging.DEBUG)
            logging.getLogger(name).addHandler(handler)
            logging.getLogger(name).propagate = False

        def work(n: int) -> None:
            try:
                while not over.is_set():
                    for name, kind in KINDS.items():
                        # Holds may be lost, outcomes unknown, and barriers broken.
                        with suppress(ZkConcurrentError, RuntimeError, Empty):
                            if ends := kind.use(zkconcurrent, zk, f"{PATH}/{name}-{n}"):
                                ends()
                    done[n] += 1
            except BaseException:
                wrong.append(traceback.format_exc())

        def harm() -> None:
            while not wrong and (sum(done) < 3 or handler.records < 300):
                time.sleep(random.uniform(0.1, 0.5))
                proxy.cut()
                if random.random() < 0.3:
                    with suppress(ValueError):
                        Remote().expire(zk)
            over.set()
            tell("no more harm")

        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
        watch([*threads, threading.Thread(target=harm, daemon=True)], lambda: sum(done))
    end(wrong, struck=handler.records)


# -- credentials -----------------------------------------------------------------------------------------------------


def add_auth() -> None:
    """Add credentials again and again, under traffic; every answer is its own request's, on one connection."""
    zk, wrong, over, done = client(timeout=30.0), list[str](), threading.Event(), [0] * 4
    states: list[str] = []
    zk.add_listener(states.append)

    def work(n: int) -> None:
        lock, path, number = Lock(zk, f"{PATH}/lock"), f"{PATH}/data/{n}", 0
        zk.ensure_path(path)
        try:
            while not over.is_set():
                with lock:
                    owner = lock.owner()
                    assert owner is not None
                    assert owner.token == lock.fencing_token, "another's answer"
                number += 1
                zk.set_async(path, str(number).encode())
                data = zk.get_async(path).get(timeout=10)[0]
                assert data == str(number).encode(), f"read {data!r} for {number}"
                done[n] += 1
        except BaseException:
            wrong.append(traceback.format_exc())

    def add() -> None:
        added = 0
        try:
            while not wrong and (added < 100 or sum(done) < 40):
                for answer in [zk.add_auth_async("digest", "a:b") for _ in range(20)]:
                    assert answer.get(timeout=10) is True, "not accepted"
                    added += 1
        except BaseException:
            wrong.append(traceback.format_exc())
        over.set()

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
    watch([*threads, threading.Thread(target=add, daemon=True)], lambda: sum(done))
    if states:
        wrong.append(f"states: {states}")
    end(wrong, struck=sum(done))


# -- no more threads -------------------------------------------------------------------------------------------------


def no_threads() -> None:
    """No thread can be started while many requests are made on a connection that is down; all are answered."""
    from zkconcurrent._kazoo.reply import Reply

    many, wrong, answers, states = 1000, list[str](), list[Any](), list[str]()

    def cannot_start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Proxy(HOSTS) as proxy:
        zk = client(proxy.hosts, 30.0, **HASTY)
        zk.ensure_path(PATH)
        lock = Lock(zk, f"{PATH}/lock")
        zk.add_listener(states.append)
        with lock:
            start, threading.Thread.start = threading.Thread.start, cannot_start  # type: ignore[method-assign]
            proxy.refuse()
            proxy.cut()
            while "SUSPENDED" not in states:
                time.sleep(0.01)
            for _ in range(many):
                Session.of(zk).link.transport.send((GetData(PATH, None), Reply(None, answers.append)))
            proxy.resume()
            alive()
            while len(answers) < many:
                time.sleep(0.05)
            threading.Thread.start = start  # type: ignore[method-assign]
        cycle(lock)
    end(wrong, struck=len(answers))


if __name__ == "__main__":
    alive()
    globals()[sys.argv[3]](*sys.argv[4:])
