"""Primitives are pickled by name: their class, path and arguments, and the URL of a client that `connect` opened."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import InThread
from tests.helpers.kinds import make, primitives
from tests.helpers.processes import run_python
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    JSON,
    AtomicLong,
    Barrier,
    Client,
    Condition,
    CountDownLatch,
    Dict,
    Election,
    Event,
    Group,
    Lock,
    MultiLock,
    PriorityQueue,
    Queue,
    ReadWriteLock,
    RLock,
    Semaphore,
    Set,
    SharedValue,
)
from zkconcurrent._client.connect import _by_name
from zkconcurrent.testing import Server


class Own(Lock):
    """A lock with an argument that it does not keep."""

    def __init__(self, client: KazooClient, path: str, why: str) -> None:
        super().__init__(client, path)
        self.reason = why


class Named(Lock):
    """A lock with an argument that it keeps."""

    def __init__(self, client: KazooClient, path: str, why: str) -> None:
        super().__init__(client, path)
        self.why = why


class Elsewhere(Lock):
    """A lock at another path than the one that it is given."""

    def __init__(self, client: KazooClient, path: str) -> None:
        super().__init__(client, f"/prod{path}")


MAKE: dict[str, Callable[[Client, str], Any]] = {
    **{name: partial(make, zkconcurrent, name) for name in primitives()},
    # With more than they must have.
    "Barrier": lambda zk, path: Barrier(zk, path, 3, print, 5),
    "Condition of a lock": lambda zk, path: Condition(zk, f"{path}/c", Lock(zk, f"{path}/lock", fair=False)),
    "Dict": lambda zk, path: Dict(zk, path, codec=JSON, ephemeral=True),
    "Election": lambda zk, path: Election(zk, path, id="me", layout="latch", label="import"),
    "Lock": lambda zk, path: Lock(zk, path, fair=False, label="import"),
    "Named": lambda zk, path: Named(zk, path, "so"),
    "PriorityQueue": lambda zk, path: PriorityQueue(zk, path, 7, codec=JSON, priority=len, floats=True),
    "Queue": lambda zk, path: Queue(zk, path, 7, codec=JSON, max_attempts=3),
    "RLock": lambda zk, path: RLock(zk, path, on_deadlock="raise"),
    "ReadWriteLock": lambda zk, path: ReadWriteLock(zk, path, on_deadlock="raise", label="import"),
    "Semaphore": lambda zk, path: Semaphore(zk, path, None, label="import"),
    "Set": lambda zk, path: Set(zk, path, ephemeral=True),
    "SharedValue": lambda zk, path: SharedValue(zk, path, [1], codec=JSON),
}


@pytest.fixture
def opened(zookeeper: Server, zk_path: str) -> Iterator[Client]:
    """A client that `connect` opened; those of unpickled objects are closed after the test."""
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}{zk_path}?timeout=6") as client:
        yield client
    forget()


def forget() -> None:
    """Close the clients of unpickled objects."""
    for name in [name for name in _by_name if name[0] != "local"]:
        client = _by_name.pop(name)
        client.stop()
        client.close()


def again(what: Any) -> Any:
    """Return an object as another process would have it."""
    return pickle.loads(pickle.dumps(what))


@pytest.mark.parametrize("kind", MAKE)
def test_every_kind(opened: Client, kind: str) -> None:
    """The class and the arguments are the same; the client is the process's, and nothing is sent for it."""
    one = MAKE[kind](opened, "/one")
    other = again(one)
    assert type(other) is type(one)
    assert other.path == one.path
    assert other.client is not opened
    assert other.client is again(one).client
    assert not other.client.connected
    assert other.client.client_id is None
    assert pickle.dumps(other) == pickle.dumps(one)
    # Another version may keep its classes in other modules.
    assert b"zkconcurrent._" not in pickle.dumps(one)


@pytest.mark.fault(118)
def test_it_is_not_held(opened: Client) -> None:
    """A lock that is pickled while it is held is not held by its copy, which waits for it."""
    lock = RLock(opened, "/lock")
    with lock:
        other = again(lock)
        assert other.hold_count() == 0
        assert not other.acquire(blocking=False)
        assert other.client.chroot == opened.chroot
        owner = other.owner()
        assert owner is not None
        assert owner.token == lock.fencing_token
    assert other.acquire(timeout=20)
    assert not lock.acquire(blocking=False)
    other.release()


@pytest.mark.fault(383)
def test_a_class_that_makes_another_path(opened: Client) -> None:
    """An object of a program's class is never made at another path, where it would exclude nobody."""
    text = pickle.dumps(Elsewhere(opened, "/lock"))
    with pytest.raises(TypeError, match=r"cannot unpickle .*Elsewhere.* was at '/prod/lock'.* at '/prod/prod/lock'"):
        pickle.loads(text)


@pytest.mark.fault(384)
def test_a_latch_out_of_reach(zookeeper: Server, zk_path: str) -> None:
    """To pickle an object asks no server, and so waits for none: here the client is stopped."""
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}{zk_path}?timeout=6") as client:
        latch = CountDownLatch(client, "/latch", 3)
    assert b"/latch" in pickle.dumps(latch)


def test_several_as_one(opened: Client) -> None:
    """A MultiLock is pickled with its locks; one with `on_lost` is refused."""
    both = again(MultiLock([Lock(opened, "/a"), RLock(opened, "/b")]))
    assert [type(lock) for lock in both.locks] == [Lock, RLock]
    with both:
        assert not Lock(opened, "/a").acquire(blocking=False)
    with pytest.raises(TypeError, match=r"cannot pickle .*/a.* on_lost"):
        pickle.dumps(MultiLock([Lock(opened, "/a")], on_lost=print))


def test_the_lock_of_a_condition(opened: Client, in_thread: InThread) -> None:
    """A condition and its lock that are pickled together are of one client, and notify across processes."""
    lock = Lock(opened, "/lock")
    condition = Condition(opened, "/condition", lock)
    other, its = again((condition, lock))
    ready = threading.Event()

    def wait() -> bool:
        with other:
            ready.set()
            return bool(other.wait(20))

    waiting = in_thread(wait)
    assert ready.wait(20)
    with condition:
        condition.notify()
    assert waiting.result(20)
    assert its.client is other.client


def refused(what: Any, why: str) -> None:
    """It can't be pickled, and the error names the path."""
    with pytest.raises(TypeError, match=rf"cannot pickle .*{what.path}.*{why}.*open a client in the other process"):
        pickle.dumps(what)


def test_what_is_refused(opened: Client, zk: KazooClient, zookeeper: Server, zk_path: str) -> None:
    """An object that another process could not make again, or whose pickle would show a password."""
    refused(Lock(zk, f"{zk_path}/lock"), "not opened by connect")
    refused(Client(hosts=zookeeper.hosts) and Lock(Client(hosts=zookeeper.hosts), "/lock"), r"connect\(\)")
    for kind in (Lock, ReadWriteLock, Semaphore):
        refused(kind(opened, f"/{kind.__name__}", on_lost=print), "on_lost")
    refused(Own(opened, "/own", "so"), "'why'")
    with zkconcurrent.connect(f"zk://me:secret@{zookeeper.hosts}") as client:
        refused(Lock(client, f"{zk_path}/lock"), "credentials")
        with pytest.raises(TypeError) as error:
            pickle.dumps(Lock(client, f"{zk_path}/lock"))
        assert "secret" not in str(error.value)
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}", auth_data=[("digest", "me:secret")]) as client:
        refused(Event(client, f"{zk_path}/event"), "credentials")
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}", connection_retry={"max_tries": 3}) as client:
        refused(Event(client, f"{zk_path}/event"), "connection_retry=")
    opened.add_auth("digest", "me:secret")
    refused(Election(opened, "/election"), "credentials")


def test_options_go_along(zookeeper: Server, zk_path: str) -> None:
    """The arguments of `connect` beside the URL are the other client's too, if they are text or numbers."""
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}", timeout=7.0, tick=0.5, start_timeout=30) as client:
        other = again(Lock(client, f"{zk_path}/lock")).client
        assert (other.tick, other._session_timeout) == (client.tick, client._session_timeout)
    forget()


def test_what_is_held_is_refused(opened: Client) -> None:
    """A claim, a term and a membership belong to their process."""
    queue: Queue[bytes] = Queue(opened, "/queue")
    queue.put(b"one")
    election = Election(opened, "/election")
    with queue.claim() as claim, election.lead() as term, Group(opened, "/group").join() as member:
        for what in (claim, term, member):
            with pytest.raises(TypeError, match="cannot pickle"):
                pickle.dumps(what)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_are_refused(opened: Client, copied: Callable[[Any], Any]) -> None:
    """A copy in the same process would be on another client, so that a thread would wait for itself."""
    for kind in ("RLock", "ReadWriteLock", "Dict"):
        with pytest.raises(TypeError, match=rf"cannot copy .*/{kind}"):
            copied(MAKE[kind](opened, f"/{kind}"))


def test_a_candidate_without_an_id(opened: Client) -> None:
    """Each process has the name that it would have given to itself."""
    text = pickle.dumps(Election(opened, "/election"))
    assert str(pickle.loads(text).id).encode() not in text


@pytest.mark.fault(119)
def test_a_first_use_that_is_out_of_reach(zookeeper: Server, zk_path: str) -> None:
    """The first call returns in time if no server is in reach, and a later one gets in."""
    with Proxy(zookeeper.hosts) as proxy:
        with zkconcurrent.connect(f"zk://{proxy.hosts}{zk_path}?timeout=6") as client:
            text = pickle.dumps(Lock(client, "/lock"))
        proxy.refuse()
        lock = pickle.loads(text)
        assert not lock.acquire(timeout=0.2)
        proxy.resume()
        assert lock.acquire(timeout=20)
        lock.release()
    forget()


@pytest.mark.fault(119)
def test_threads_that_use_it_first_together(opened: Client, in_thread: InThread) -> None:
    """Of many threads, one opens the client, and all go on."""
    lock, number = again((Lock(opened, "/lock"), AtomicLong(opened, "/number")))
    begin = threading.Barrier(8)

    def work() -> None:
        begin.wait()
        with lock:
            number.set(number.get() + 1)

    for each in [in_thread(work) for _ in range(8)]:
        each.result(60)
    assert number.get() == 8


def test_after_the_client_was_stopped(opened: Client) -> None:
    """A client that the program has stopped stays stopped; an object that is unpickled then gets another."""
    lock = Lock(opened, "/lock")
    other = again(lock)
    with other:
        pass
    other.client.stop()
    with pytest.raises(zkconcurrent.ClientError):
        other.acquire()
    other.client.close()
    third = again(lock)
    with third:
        assert third.client is not other.client


@pytest.mark.fault(118)
@pytest.mark.parametrize(
    ("job", "method"),
    [("pool", "fork"), ("executor", "spawn"), ("fork", "fork")],
)
def test_processes(zookeeper: Server, zk_path: str, job: str, method: str) -> None:
    """Pools and executors take the objects as arguments; a process's end gives back what it holds."""
    url = f"zk://{zookeeper.hosts}?timeout=20"
    program = "tests.integration.pickling_party"
    done = run_python("-W", "ignore::DeprecationWarning", "-m", program, url, zk_path, job, method, timeout=120)
    assert done.stdout.endswith("done\n"), done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
