"""One program, written against `threading`'s names, runs on clients of ZooKeeper and on one process alike."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.kinds import make, make_named, named, primitives
from zkconcurrent import LockLike, Namespace

PARTIES, ROUNDS = 6, 5


@pytest.fixture(params=["zookeeper", "local"])
def threads(request: pytest.FixtureRequest) -> Namespace:
    """Each namespace in turn."""
    if request.param == "local":
        return zkconcurrent.namespace("local", "/app")
    return zkconcurrent.namespace(request.getfixturevalue("zk"), request.getfixturevalue("zk_path"))


def add(lock: LockLike, file: Path) -> None:
    """Count one more, in a way that loses some unless the lock keeps others out."""
    with lock:
        before = int(file.read_text() or 0) if file.exists() else 0
        time.sleep(0.002)
        file.write_text(str(before + 1))


@contextmanager
def present(folder: Path) -> Iterator[int]:
    """Be seen in a folder, and see how many others are."""
    mine = folder / f"{threading.get_ident()}-{time.monotonic_ns()}"
    mine.touch()
    yield len(list(folder.iterdir()))
    mine.unlink()


def party(threads: Namespace, number: int, folder: Path) -> int:
    """Do what each party does; return the most that were in the semaphore together."""
    pair, condition = threads.ReadWriteLock("pair"), threads.Condition("condition")
    semaphore, bounded = threads.Semaphore("semaphore", 2), threads.BoundedSemaphore("bounded", 1)
    start, latch = threads.Event("start"), threads.CountDownLatch("latch", PARTIES)
    barrier = threads.Barrier("barrier", PARTIES)
    most = 0
    threads.MultiLock(["locks/x", "locks/y"])
    latch.count_down()
    if number == 0:
        assert latch.wait(60)
        start.set()
    assert start.wait(60)
    assert latch.count == 0
    for _ in range(ROUNDS):
        add(threads.Lock("lock"), folder / "lock")
        add(threads.RLock("rlock"), folder / "rlock")
        add(pair.write_lock, folder / "pair")
        add(bounded, folder / "bounded")
        add(threads.MultiLock(["locks/x", "locks/y"]), folder / "multi")
        with pair.read_lock:
            assert (folder / "pair").exists()
        with semaphore, present(folder / "in") as together:
            most = max(most, together)
    barrier.wait(60)
    with condition:  # each in turn, by number
        turn = folder / "turn"
        assert condition.wait_for(lambda: int(turn.read_text()) == number, 60)
        turn.write_text(str(number + 1))
        condition.notify_all()
    return most


def test_one_program(
    request: pytest.FixtureRequest, threads: Namespace, connect: Connect, in_thread: InThread, tmp_path: Path
) -> None:
    """Threads of two clients, or of one process's service, lose no count, take turns, and wait for each other."""
    (tmp_path / "in").mkdir()
    (tmp_path / "turn").write_text("0")
    on_server = request.node.callspec.params["threads"] == "zookeeper"
    spaces = [threads, zkconcurrent.namespace(connect(), threads.path) if on_server else threads]
    running = [in_thread(party, spaces[number % 2], number, tmp_path) for number in range(PARTIES)]
    assert max(each.result(100) for each in running) <= 2
    for name in ("lock", "rlock", "pair", "bounded", "multi"):
        assert (tmp_path / name).read_text() == str(PARTIES * ROUNDS)
    assert (tmp_path / "turn").read_text() == str(PARTIES)


every = pytest.mark.parametrize("kind", named(Namespace))


@every
def test_no_name_leaves_the_base(kind: str) -> None:
    """A name that is empty, absolute, or would lead out of the base is a ValueError that shows it."""
    threads = zkconcurrent.namespace(KazooClient(), "/app")
    for name in ("", "/", "/etc", "..", "../x", "a/../../x", "a/..", ".", "a//b", "a/", "a\0", "\ud800"):
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            pytest.fail(f"{name!r} is allowed: {make_named(threads, kind, name)}")
        assert repr(name) in str(raised.value)
    with pytest.raises(TypeError, match="name must be a str"):
        make_named(threads, kind, 1)


@every
def test_a_name_is_one_kind(kind: str) -> None:
    """A name is of one kind of object, and of no other; a name below that of another is refused."""
    threads = zkconcurrent.namespace(KazooClient(), "/app")
    kept = [threads.Lock("lock"), threads.RLock("some/where/below")]
    if kind == "Lock":
        with pytest.raises(ValueError, match=r"/lock' for Lock already; use another path for Lock\(fair=False\)"):
            threads.Lock("lock", fair=False)
    else:
        with pytest.raises(ValueError, match="/lock' for Lock already"):
            make_named(threads, kind, "lock")
    for name in ("lock/below", "some", "some/where"):
        with pytest.raises(ValueError, match="nest"):
            make_named(threads, kind, name)
    assert kept


def test_one_name_is_one_lock(threads: Namespace, in_thread: InThread) -> None:
    """Two objects of one name are one lock: re-entrant for its thread, and held against others."""
    with threads.RLock("cart"):
        assert threads.RLock("cart").acquire(blocking=False)
        threads.RLock("cart").release()
        assert not in_thread(lambda: threads.RLock("cart").acquire(blocking=False)).result(20)
        assert threads.MultiLock(["cart"]).acquire(blocking=False)
        threads.RLock("cart").release()


def test_what_a_multilock_is_of() -> None:
    """It is of several names; one string is not several."""
    with pytest.raises(TypeError, match="several names"):
        zkconcurrent.namespace(KazooClient(), "/app").MultiLock("cart")


def test_the_paths(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A name's path lies below the base, the root too; a client that makes the same path elsewhere shares it."""
    threads = zkconcurrent.namespace(zk, zk_path)
    assert threads.RLock("cart").path == f"{zk_path}/cart"
    assert threads.Semaphore("deep/api", 5).path == f"{zk_path}/deep/api"
    assert zkconcurrent.namespace(zk).Event("event").path == "/event"
    assert (threads.client, threads.path) == (zk, zk_path)
    assert repr(threads) == f"<zkconcurrent.Namespace path={zk_path!r}>"
    with threads.RLock("cart"):
        assert not zkconcurrent.RLock(connect(), f"{zk_path}/cart").acquire(blocking=False)


@pytest.mark.parametrize("path", ["", "app", "/app/", "/a/../b", "//"])
def test_a_bad_base(path: str) -> None:
    """A base that is no path is a ValueError, of both kinds alike."""
    for client in ("local", KazooClient()):
        with pytest.raises(ValueError, match="path"):
            zkconcurrent.namespace(client, path)


def test_what_is_no_client() -> None:
    """Anything but a client or "local" is refused; text is not shown, for it may be a URL with a password."""
    with pytest.raises(ValueError, match="'local'") as raised:
        zkconcurrent.namespace("zk://u:secret@a", "/app")
    assert "secret" not in str(raised.value)
    with pytest.raises(TypeError, match="KazooClient"):
        zkconcurrent.namespace(None, "/app")


@pytest.mark.fault(161)
@pytest.mark.parametrize("kind", primitives())
def test_a_path_of_a_subclass_of_str(kind: str, zk: KazooClient, zk_path: str) -> None:
    """A path that is an enum's member counts as the text that it equals, whatever an f-string shows."""
    member: str = enum.Enum("Paths", {"HERE": f"{zk_path}/here"}, type=str).HERE  # type: ignore[misc, attr-defined]
    assert repr(make(zkconcurrent, kind, zk, member).path) == repr(f"{zk_path}/here")
