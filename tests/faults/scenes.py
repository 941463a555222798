"""The calls that `test_interrupts.py` strikes: how each is prepared, and what is so after it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import zkconcurrent
from tests.helpers.contenders import barrier_state, queued
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import against, read_lock, unfair_lock
from zkconcurrent import Condition, DetachedLock, Election, Lock, MultiLock, Queue, ReadWriteLock, RLock, Semaphore

# All other lines of these calls are lines of Lock's calls, which are struck at every line.
LOCKS = (
    "_threads/base/lock_base.py",
    "_threads/base/lock_core.py",
    "_threads/rlock.py",
    "_threads/rwlock.py",
    "_recipes/lock.py",
    "rules.py",
    "holds.py",
    "local_handoff.py",
)
BLOCKS = (*LOCKS, "_threads/multilock.py", "_threads/semaphore.py", "_threads/detached.py")
ELECTION = ("election.py", "_threads/base/candidacy.py", *LOCKS[:2], "holds.py")
VALUES = ("_threads/atomic.py", "_threads/base/value_base.py", "_recipes/value.py", "receipts.py", "settling.py")
QUEUES = (
    "_threads/queue.py",
    "_threads/base/queue_base.py",
    "receipts.py",
    "queue/state.py",
    "queue/put.py",
    "queue/take.py",
    "queue/claim.py",
    "settling.py",
)
MAPS = ("_threads/dict.py", "_threads/base/map_base.py", "map/mirror.py", "map/write.py", "receipts.py")
SESSION = 4.0  # short, as heartbeats find the leftovers of an interrupt; but no lease ends although the machine is busy

Used: TypeAlias = Any
"""What a scene uses: `client`, whose calls are struck; `zk`, another client; `path`; and attributes of its own."""


@dataclass
class Scene:
    """A call that is struck.

    Attributes:
        make: makes what is used, and uses it once, as the lines that make its nodes are not struck here.
        call: the call; it sees that it does what it is to do.
        free: whether nothing is left of it.
        begin: what comes before each call.
        end: what comes after each; it is told whether the call was struck.
        over: what comes at the end: others can go on.
        files: whose lines are struck; none means all.
    """

    make: Callable[[Used], object]
    call: Callable[[Used], object]
    free: Callable[[Used], bool] = lambda _: True
    begin: Callable[[Used], object] = lambda _: None
    end: Callable[[Used, bool], object] = lambda *_: None
    over: Callable[[Used], object] = lambda _: None
    files: tuple[str, ...] = ()


def expect(done: object) -> None:
    """See that a call did what it was to do."""
    assert done


def nodes(used: Used, path: str = "") -> int:
    """Return how many nodes of contenders there are at the path and below it; those idle for long may be reaped."""
    try:
        names = used.zk.get_children(used.path + path)
    except NoNodeError:
        return 0
    return sum(name.startswith("_c_") or nodes(used, f"{path}/{name}") for name in names)


def no_tickets(used: Used) -> bool:
    """Return whether the client has begun nothing that is not settled."""
    registry = used.it._session.registry
    return not registry.tickets and not registry._awaiting and not used.it._session.calls


def exclusive(name: str, kind: Any, rival: Any, files: tuple[str, ...], **permits: int) -> dict[str, Scene]:
    """Return an acquire of what is free, one that waits in vain, and a release: all or nothing."""

    def make(used: Used) -> None:
        used.it, used.other = kind(used.client, used.path), rival(used.zk, used.path)
        used.it.acquire(**permits)
        used.it.release(*permits.values())
        used.before = nodes(used)

    def make_held(used: Used) -> None:
        make(used)
        used.other.acquire(**permits)
        used.before = nodes(used)

    def acquired(used: Used, struck: bool) -> None:
        assert used.it.hold_count() == (0 if struck else sum(permits.values()) or 1)
        if not struck:
            used.it.release(*permits.values())

    def released(used: Used, _: bool) -> None:
        assert used.it.hold_count() in (0, sum(permits.values()) or 1)
        if used.it.hold_count():
            used.it.release(*permits.values())

    def others_acquire(used: Used) -> None:
        for each in (used.it, used.other):
            assert each.acquire(**permits, timeout=20)
            each.release(*permits.values())

    def free(used: Used) -> bool:
        return nodes(used) == used.before

    def call(used: Used) -> None:
        assert used.it.acquire(**permits)

    def wait(used: Used) -> None:
        assert used.it.acquire(**permits, timeout=0.02) is False

    def over(used: Used) -> None:
        used.other.release(*permits.values())
        others_acquire(used)

    def release(used: Used) -> None:
        used.it.release(*permits.values())

    return {
        f"{name}, acquire": Scene(make, call, free, end=acquired, over=others_acquire, files=files),
        f"{name}, wait": Scene(make_held, wait, free, over=over, files=files),
        f"{name}, release": Scene(make, release, free, call, released, others_acquire, files),
    }


def downgrade() -> Scene:
    """A read lock taken while writing: an interrupt leaves no read node, and the write lock as it was."""

    def make(used: Used) -> None:
        used.it = ReadWriteLock(used.client, used.path)
        used.it.write_lock.acquire()
        used.before = used.it.write_lock.fencing_token

    def end(used: Used, struck: bool) -> None:
        if struck:
            assert not used.it.read_lock._is_owned()
        else:
            used.it.read_lock.release()

    def over(used: Used) -> None:
        assert used.it.write_lock.fencing_token == used.before
        used.it.write_lock.release()
        with ReadWriteLock(used.zk, used.path).write_lock:
            pass

    def call(used: Used) -> None:
        expect(used.it.read_lock.acquire())

    return Scene(make, call, lambda used: queued(used.zk, used.path, 1)(), end=end, over=over, files=LOCKS)


def condition_wait() -> Scene:
    """The lock is held with all its levels when the interrupt is raised, and no waiter is left.

    The time is up at once, so that all of a wait is run: giving the lock up, waiting, withdrawing, taking it again.
    """

    def make(used: Used) -> None:
        used.other = RLock(used.client, f"{used.path}/lock")
        used.other.acquire()
        used.other.acquire()
        used.it = Condition(used.client, f"{used.path}/condition", used.other)
        used.it.wait(0.002)

    def end(used: Used, _: bool) -> None:
        hold = used.other._lock_core.mine()
        assert hold.alive
        assert hold.depth == 2
        assert queued(used.zk, f"{used.it.path}/waiters", 0)()

    def over(used: Used) -> None:
        used.it.release()
        used.it.release()

    def free(used: Used) -> bool:
        return queued(used.zk, used.other.path, 1)()

    files = (*LOCKS, "condition.py", "condition_wait.py")
    return Scene(make, lambda used: used.it.wait(0.002), free, end=end, over=over, files=files)


def event_wait() -> Scene:
    """Nothing of a wait is left, and the event goes on as it was."""

    def make(used: Used) -> None:
        used.it = zkconcurrent.Event(used.client, used.path)
        used.it.set()
        used.it.clear()

    def over(used: Used) -> None:
        assert not used.it.is_set()

    return Scene(make, lambda used: expect(not used.it.wait(0.02)), no_tickets, over=over, files=("/event.py",))


def event_change(what: str, back: str) -> Scene:
    """The flag is as it was or as it shall be, the epoch fits, and the change can be made again."""

    def state(used: Used) -> tuple[int, str]:
        epoch, flag = used.zk.get(used.path)[0].decode().split()
        return int(epoch), flag

    def make(used: Used) -> None:
        used.it = zkconcurrent.Event(used.client, used.path)
        used.it.set()

    def begin(used: Used) -> None:
        getattr(used.it, back)()
        used.before = state(used)[0]

    def end(used: Used, struck: bool) -> None:
        if struck:
            getattr(used.it, what)()
        assert state(used) == (used.before + (what == "set"), what)

    return Scene(make, lambda used: getattr(used.it, what)(), no_tickets, begin, end, files=("/event.py",))


def count() -> Scene:
    """An interrupted count has counted once or not at all."""

    def make(used: Used) -> None:
        used.it = zkconcurrent.CountDownLatch(used.client, used.path, 1_000_000)
        used.it.count_down()

    def begin(used: Used) -> None:
        used.before = used.it.count

    def end(used: Used, struck: bool) -> None:
        assert used.it.count in ((used.before, used.before - 3) if struck else (used.before - 3,))

    return Scene(make, lambda used: used.it.count_down(3), no_tickets, begin, end, files=("/latch.py",))


def membership(leaves: bool) -> Scene:
    """An interrupted join leaves no node, and an interrupted leave none; the id can be used again."""

    def make(used: Used) -> None:
        used.it = zkconcurrent.Group(used.client, used.path)
        used.it.join(b"", "id").leave()
        used.other = None

    def join(used: Used) -> None:
        used.other = used.it.join(b"", "id")

    def end(used: Used, struck: bool) -> None:
        member, used.other = used.other, None
        if member is not None and (struck or not leaves):
            member.leave()

    def free(used: Used) -> bool:
        return not used.it._path_state.members and used.zk.get_children(used.path) == [] and no_tickets(used)

    files = ("/group.py",)
    if leaves:
        return Scene(make, lambda used: used.other.leave(), free, join, end, files=files)
    return Scene(make, join, free, end=end, files=files)


def double_barrier(method: str) -> Scene:
    """An interrupted enter leaves no node, nor does a leave; the leftovers of the round let nobody in."""

    def make(used: Used) -> None:
        used.it = zkconcurrent.DoubleBarrier(used.client, used.path, 1)
        used.it.enter()
        used.it.leave()

    def begin(used: Used) -> object:
        return method == "leave" and used.it.enter()

    def end(used: Used, _: bool) -> None:
        if used.it._path_state.inside:
            with contextlib.suppress(RuntimeError):  # it has left: its node is gone
                used.it.leave()

    def free(used: Used) -> bool:
        names = used.zk.get_children(used.path)
        return all(name == "ready" for name in names) and not used.it._session.registry.tickets

    def over(used: Used) -> None:
        assert not zkconcurrent.DoubleBarrier(used.zk, used.path, 2).enter(0)
        assert used.zk.get_children(used.path) == []

    return Scene(make, lambda used: getattr(used.it, method)(), free, begin, end, over, ("double_barrier.py",))


def barrier_wait(parties: int) -> Scene:
    """Alone at a barrier, the wait leaves nothing, or has passed, if it is for one; a reset makes all good."""

    def make(used: Used) -> None:
        used.before = list[int]()
        used.it = zkconcurrent.Barrier(used.client, used.path, parties, lambda: used.before.append(1))
        used.other = zkconcurrent.Barrier(used.zk, used.path, parties)
        with contextlib.suppress(threading.BrokenBarrierError):
            used.it.wait(0.02)

    def begin(used: Used) -> None:
        used.other.reset()
        used.before.clear()

    def call(used: Used) -> None:
        # kazoo takes what is raised as it sends for a closed connection.
        with contextlib.suppress(threading.BrokenBarrierError):
            assert used.it.wait(0.02 if parties > 1 else None) == 0
            assert parties == 1

    def free(used: Used) -> bool:
        where = f"{used.path}/{int(str(barrier_state(used.zk, used.path)['generation'])):010d}"
        return (not used.zk.exists(where) or not used.zk.get_children(where)) and no_tickets(used)

    def end(used: Used, _: bool) -> None:
        assert len(used.before) <= 1

    return Scene(make, call, free, begin, end, files=("/barrier.py", "barrier_state.py"))


def detached_acquire() -> Scene:
    """An interrupted acquire leaves no waiter; it may leave the owner's hold, which a release ends."""

    def make(used: Used) -> None:
        used.it = DetachedLock(used.client, used.path, "job")
        with used.it:
            pass

    def end(used: Used, struck: bool) -> None:
        assert not struck or used.it.acquire(timeout=20)
        used.it.release()
        assert not used.zk.get_children(used.path)

    return Scene(make, lambda used: expect(used.it.acquire(timeout=5)), end=end, files=("detached.py",))


def detached_wait() -> Scene:
    """An acquire that would wait is interrupted, or out of time: it leaves no node, and the hold as it was."""

    def make(used: Used) -> None:
        used.it = DetachedLock(used.client, used.path, "job")
        used.other = DetachedLock(used.zk, used.path, "holder")

    def begin(used: Used) -> None:
        used.other.acquire(timeout=20)

    def end(used: Used, _: bool) -> None:
        used.other.release()
        with used.it:  # behind what the interrupted call may have left
            assert len(used.zk.get_children(used.path)) == 1

    def call(used: Used) -> None:
        assert not used.it.acquire(timeout=0.02)

    return Scene(make, call, begin=begin, end=end, files=("detached.py",))


def detached_end(by_force: bool) -> Scene:
    """The hold has ended or goes on; called again, the release ends it, and blames no other for having ended it."""

    def begin(used: Used) -> None:
        used.it, used.other = (DetachedLock(used.client, used.path, "job") for _ in range(2))
        assert used.it.acquire(timeout=20)
        used.before = used.it.fencing_token

    def call(used: Used) -> None:
        if by_force:
            assert used.other.force_release(used.before)
        else:
            used.it.release()

    def end(used: Used, struck: bool) -> None:
        if struck and by_force:
            used.other.force_release(used.before)
        elif struck and used.it.hold_count():
            used.it.release()
        assert not used.zk.get_children(used.path)

    return Scene(lambda _: None, call, begin=begin, end=end, files=("detached.py",))


def election_scene(what: str) -> Scene:
    """Wherever the calls of a candidate are interrupted, no node is left and another candidate can lead."""

    def make(used: Used) -> None:
        used.it = Election(used.client, used.path)
        with used.it.lead() as term:
            term.publish(b"")

    def begin(used: Used) -> None:
        used.other = used.it.lead()
        if what == "end of a block":
            used.other.__enter__()
        elif what == "withdraw":
            used.it.stand()
            assert used.it.wait(20) is not None

    def call(used: Used) -> None:
        if what == "lead":
            used.other.__enter__().publish(b"published")
        elif what == "end of a block":
            used.other.__exit__(None, None, None)
        else:
            getattr(used.it, what)()

    def end(used: Used, struck: bool) -> None:
        if what == "lead" and (not struck or used.it.is_leader()):  # struck in `publish`, it is in the block
            used.other.__exit__(KeyboardInterrupt if struck else None, None, None)
        elif what in ("stand", "withdraw"):
            used.it.withdraw()
        assert not used.it.is_leader()

    def over(used: Used) -> None:
        with Election(used.zk, used.path).lead(timeout=20):
            pass

    return Scene(make, call, lambda used: queued(used.zk, used.path, 0)(), begin, end, over, ELECTION)


def block_in_time(is_free: bool) -> Scene:
    """The start of a `hold()` block either is interrupted and leaves nothing, or holds, or has met its deadline."""

    def make(used: Used) -> None:
        used.it, used.other = Lock(used.client, used.path), Lock(used.zk, used.path)
        with used.it:
            pass
        if not is_free:
            used.other.acquire()

    def call(used: Used) -> None:
        used.before = used.it.hold(20 if is_free else 0.02)
        try:
            used.before.__enter__()
        except TimeoutError:
            assert not is_free

    def end(used: Used, struck: bool) -> None:
        if is_free and not struck:
            used.before.__exit__(None, None, None)
        assert used.it.hold_count() == 0

    def over(used: Used) -> None:
        if not is_free:
            used.other.release()
        assert used.it.acquire(timeout=20)
        used.it.release()

    files = (*LOCKS[:2], "_threads/lock.py", "_threads/base/primitive.py")
    return Scene(make, call, end=end, over=over, files=files)


def release_by_handle(what: str) -> Scene:
    """Wherever it is interrupted, the block has released its one level at its end, and no other."""

    def make(used: Used) -> None:
        used.it = {"RLock": RLock, "Semaphore": Semaphore}[what](used.client, used.path)

    def begin(used: Used) -> None:
        if what == "RLock":
            used.it.acquire()
        used.before = used.it.hold()
        used.other = used.before.__enter__()

    def end(used: Used, _: bool) -> None:
        used.before.__exit__(None, None, None)
        if what == "RLock":
            assert used.it.hold_count() == 1
            used.it.release()
        else:
            assert used.it.hold_count() == 0
            assert used.it.available() == 1

    files = ("/held.py", "_threads/base/lock_core.py", "holds.py")
    return Scene(make, lambda used: used.other.release(), begin=begin, end=end, files=files)


def value_change() -> Scene:
    """An interrupted change was made once or not at all, and those that come after it are made."""

    def make(used: Used) -> None:
        used.it, used.other = (zkconcurrent.AtomicLong(each, used.path) for each in (used.client, used.zk))
        used.it.add()

    def begin(used: Used) -> None:
        used.before = used.other.add(10)

    def end(used: Used, struck: bool) -> None:
        eventually(lambda: not used.it._path_state._left)
        now = used.other.get()
        assert now - used.before in ((0, 1) if struck else (1,))
        assert used.it.add(100) == now + 100

    return Scene(make, lambda used: used.it.add(), begin=begin, end=end, files=VALUES)


def queue_call(what: str, kind: Any = Queue) -> Scene:
    """An interrupted call puts or takes an item once or not at all, and no item stays claimed."""

    def make(used: Used) -> None:
        used.it, used.other = kind(used.client, used.path), kind(used.zk, used.path)
        used.it.put(b"0")

    def begin(used: Used) -> None:
        while not used.other.empty():
            used.other.get()
        used.other.put(b"0")
        used.other.put(b"1")
        used.claim, used.taken = used.it.claim(), []
        if what in ("acknowledge", "give back"):
            used.claim.__enter__()

    def call(used: Used) -> None:
        if what == "put":
            used.it.put(b"new")
        elif what == "get":
            used.taken = [used.it.get()]
        elif what == "claim":
            used.claim.__enter__()
        else:
            used.claim.__exit__(KeyError if what == "give back" else None, None, None)

    def end(used: Used, _: bool) -> None:
        if used.claim._taken is not None:  # its end is struck in vain
            assert what == "claim"
            used.claim.__exit__(KeyError, None, None)
        eventually(lambda: not used.it._path_state._left and not used.zk.get_children(f"{used.path}/claims"))
        there = [used.other.get_nowait() for _ in range(used.other.qsize())]
        if what == "put":
            assert there in ([b"0", b"1"], [b"0", b"1", b"new"])
        elif what == "acknowledge":
            assert there in ([b"1"], [b"0", b"1"])
        else:
            assert used.taken + there == [b"0", b"1"]

    return Scene(make, call, begin=begin, end=end, files=QUEUES)


def map_call(what: str) -> Scene:
    """An interrupted call writes once or not at all; the copy goes on, and no writer is left in doubt."""

    def make(used: Used) -> None:
        used.it, used.reads = zkconcurrent.Dict[bytes](used.client, used.path), 0

    def begin(used: Used) -> None:
        used.it["k"] = b"old"
        assert used.it["k"] == b"old"
        used.before = used.zk.get(f"{used.path}/entries/k")[1].version
        used.reads += 1
        used.other = zkconcurrent.Dict[bytes](used.client, f"{used.path}-{used.reads}")

    def call(used: Used) -> None:
        if what == "put":
            used.it["k"] = b"new"
        elif what == "pop":
            used.it.pop("k")
        else:
            assert not used.other

    def end(used: Used, _: bool) -> None:
        used.it["after"] = b"%d" % used.reads
        assert used.it["after"] == b"%d" % used.reads
        there = used.zk.exists(f"{used.path}/entries/k")
        assert what == "pop" if there is None else there.version - used.before in (0, 1)
        eventually(lambda: ("k" in used.it) == (there is not None))
        assert what != "read" or not used.other  # by a thread that has begun anew, perhaps

    def over(used: Used) -> None:
        eventually(lambda: not used.it._mirror.under_way)
        # An interrupt just as a writer changes hands leaves it to nobody, until the session ends.
        eventually(lambda: len(used.zk.get_children(f"{used.path}/writers")) <= 8)

    return Scene(make, call, begin=begin, end=end, over=over, files=MAPS)


def two_permits(client: KazooClient, path: str) -> Semaphore:
    """Make a semaphore."""
    return Semaphore(client, path, 2)


def multilock(client: KazooClient, path: str) -> MultiLock:
    """Make a lock of two."""
    return MultiLock([Lock(client, f"{path}/{name}") for name in "ab"])


GRANTS: dict[str, Callable[[KazooClient, str], tuple[Any, Any]]] = {  # a block, and the primitive whose call it makes
    "Lock": lambda client, path: (lock := Lock(client, path), lock),
    "read lock": lambda client, path: (lock := ReadWriteLock(client, path).read_lock, lock),
    "Semaphore": lambda client, path: (semaphore := Semaphore(client, path, 1), semaphore),
    "Condition": lambda client, path: (Condition(client, f"{path}-condition", lock := Lock(client, path)), lock),
    "MultiLock": lambda client, path: (lock := MultiLock([Lock(client, path)]), lock),
    "DetachedLock": lambda client, path: (lock := DetachedLock(client, path, str(client.client_id)), lock),
    "hold": lambda client, path: ((lock := Lock(client, path)).hold(SESSION), lock),
    "lead": lambda client, path: (block := Election(client, path).lead(), block._leader_lock),
    "claim": lambda client, path: ((queue := Queue[bytes](client, path)).claim(timeout=SESSION), queue),
}


def block_end(what: str, levels: int = 0) -> Scene:
    """Wherever the end of a block is interrupted, it releases its one level."""

    def make(used: Used) -> None:
        used.other, used.it = GRANTS[what](used.client, used.path)
        with used.other:
            pass

    def begin(used: Used) -> None:
        for _ in range(levels):
            assert used.it.acquire()
        used.other = GRANTS[what](used.client, used.path)[0]
        used.other.__enter__()

    def end(used: Used, _: bool) -> None:
        assert used.it.hold_count() == levels
        for _ in range(levels):
            used.it.release()

    def free(used: Used) -> bool:
        return not used.it._session.registry.tickets

    return Scene(make, lambda used: used.other.__exit__(None, None, None), free, begin, end, files=BLOCKS)


SCENES: dict[str, Scene] = {
    **exclusive("Lock", Lock, Lock, ()),
    **{
        name: scene
        for kind in (RLock, read_lock, unfair_lock)
        for name, scene in exclusive(kind.__name__, kind, against(kind), LOCKS).items()
    },
    **exclusive("Semaphore", two_permits, two_permits, (*LOCKS[:2], "/semaphore.py", "holds.py"), permits=2),
    **exclusive("MultiLock", multilock, lambda zk, path: Lock(zk, f"{path}/b"), (*LOCKS[:2], "/multilock.py")),
    "downgrade": downgrade(),
    "Condition, wait": condition_wait(),
    "Event, wait": event_wait(),
    "Event, set": event_change("set", "clear"),
    "Event, clear": event_change("clear", "set"),
    "CountDownLatch, count down": count(),
    "Group, join": membership(False),
    "Group, leave": membership(True),
    "DoubleBarrier, enter": double_barrier("enter"),
    "DoubleBarrier, leave": double_barrier("leave"),
    "Barrier for one": barrier_wait(1),
    "Barrier for two": barrier_wait(2),
    "DetachedLock, acquire": detached_acquire(),
    "DetachedLock, wait": detached_wait(),
    "DetachedLock, release": detached_end(False),
    "DetachedLock, force_release": detached_end(True),
    **{f"Election, {what}": election_scene(what) for what in ("lead", "end of a block", "stand", "withdraw")},
    "hold() of a Lock": block_in_time(True),
    "hold() of a held Lock": block_in_time(False),
    **{f"end of a block by its handle, {what}": release_by_handle(what) for what in ("RLock", "Semaphore")},
    "AtomicLong, add": value_change(),
    **{f"Queue, {what}": queue_call(what) for what in ("put", "get", "claim", "acknowledge", "give back")},
    "DelayQueue, get": queue_call("get", zkconcurrent.DelayQueue),
    **{f"Dict, {what}": map_call(what) for what in ("put", "pop", "read")},
    **{f"end of a block, {what}": block_end(what) for what in GRANTS if what not in ("lead", "claim")},
    "end of an inner block, read lock": block_end("read lock", 1),
}
