"""The calls that `test_interrupts.py` interrupts at every line: how each is prepared, and what is so after it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import zkconcurrent
from tests.helpers.contenders import barrier_state, queued
from tests.helpers.lock_types import Kind, against, read_lock, unfair_lock, write_lock
from tests.helpers.places import PLACES
from zkconcurrent import Condition, DetachedLock, Election, Lock, MultiLock, ReadWriteLock, RLock, Semaphore

# Where the types of locks differ. All others of their lines are the same ones: Lock has them interrupted.
OWN = (
    "_threads/base/lock_base.py",
    "_threads/base/lock_core.py",
    "_threads/rlock.py",
    "_threads/rwlock.py",
    "_recipes/lock.py",
    "rules.py",
    "holds.py",
    "local_handoff.py",
)
BLOCKS = (*OWN, "_threads/multilock.py", "_threads/semaphore.py", "_threads/detached.py")
ELECTION = (
    "_threads/election.py",
    "_threads/base/candidacy.py",
    "election.py",
    "_threads/base/lock_base.py",
    "_threads/base/lock_core.py",
    "holds.py",
)
DEADLINES = (
    "_threads/base/lock_base.py",
    "_threads/base/lock_core.py",
    "_threads/lock.py",
    "_threads/semaphore.py",
    "_threads/base/primitive.py",
)
SESSION = 4.0  # short, as heartbeats find the leftovers of an interrupt; but no lease ends although the machine is busy


def files_of(kind: Kind) -> tuple[str, ...]:
    """Return the files whose lines are interrupted; none means all."""
    return () if kind is Lock or PLACES > 2 else OWN


def expect(done: object) -> None:
    """See that a call did what it was to do."""
    assert done


class Used:
    """What a scene uses at a path, by attributes of its own.

    Attributes:
        client: the client whose calls are interrupted.
        zk: another client.
        path: the path.
    """

    def __init__(self, client: KazooClient, zk: KazooClient, path: str) -> None:
        self.client, self.zk, self.path = client, zk, path

    it: Any
    other: Any
    before: Any


@dataclass
class Scene:
    """A call that is interrupted.

    Attributes:
        make: makes what is used, and uses it once, as the lines that make its nodes are not interrupted here.
        call: the call; it sees that it does what it is to do.
        free: whether nothing is left of it.
        begin: what comes before each call.
        end: what comes after each; it is told whether an interrupt has struck.
        over: what comes at the end: others can go on.
        files: whose lines are interrupted; none means all.
        least: the call has more lines than that.
    """

    make: Callable[[Used], object]
    call: Callable[[Used], object]
    free: Callable[[Used], bool]
    begin: Callable[[Used], object] = lambda _: None
    end: Callable[[Used, bool], object] = lambda *_: None
    over: Callable[[Used], object] = lambda _: None
    files: tuple[str, ...] = ()
    least: int = 5


def exclusive(name: str, kind: Any, rival: Any, files: tuple[str, ...] = (), **permits: int) -> dict[str, Scene]:
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
        f"{name}, acquire": Scene(make, call, free, end=acquired, over=others_acquire, files=files, least=30),
        f"{name}, wait": Scene(make_held, wait, free, over=over, files=files),
        f"{name}, release": Scene(make, release, free, call, released, others_acquire, files, 20),
    }


def nodes(used: Used, path: str = "") -> int:
    """Return how many nodes of contenders there are at the path and below it; those idle for long may be reaped."""
    try:
        names = used.zk.get_children(used.path + path)
    except NoNodeError:
        return 0
    return sum(name.startswith("_c_") or nodes(used, f"{path}/{name}") for name in names)


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

    def call(used: Used) -> Any:
        return expect(used.it.read_lock.acquire())

    return Scene(make, call, lambda used: queued(used.zk, used.path, 1)(), end=end, over=over, least=80)


def condition_wait(kind: Kind) -> Scene:
    """The lock is held with all its levels when the interrupt is raised, and no waiter is left.

    The time is up at once, so that all of a wait is run: giving the lock up, waiting, withdrawing, taking it again.
    """
    levels = 2 if kind is RLock else 1
    files = (*files_of(kind), "condition.py") if files_of(kind) else ()

    def make(used: Used) -> None:
        used.other = kind(used.client, f"{used.path}/lock")
        for _ in range(levels):
            used.other.acquire()
        used.it = Condition(used.client, f"{used.path}/condition", used.other)
        used.it.wait(0.002)

    def end(used: Used, _: bool) -> None:
        hold = used.other._lock_core.mine()
        assert hold is not None
        assert hold.alive
        assert hold.depth == levels
        assert queued(used.zk, f"{used.it.path}/waiters", 0)()

    def over(used: Used) -> None:
        for _ in range(levels):
            used.it.release()

    def free(used: Used) -> Any:
        return queued(used.zk, used.other.path, 1)()

    least = 50 if files else 200
    return Scene(make, lambda used: used.it.wait(0.002), free, end=end, over=over, files=files, least=least)


def no_tickets(used: Used) -> bool:
    """Return whether the client has begun nothing that is not settled."""
    registry = used.it._session.registry
    return not registry.tickets and not registry._awaiting and not used.it._session.calls


def event_wait(is_set: bool) -> Scene:
    """Nothing of a wait is left, and the event goes on as it was."""

    def make(used: Used) -> None:
        used.it = zkconcurrent.Event(used.client, used.path)
        used.it.set()
        if not is_set:
            used.it.clear()

    def call(used: Used) -> Any:
        return expect(used.it.wait(5 if is_set else 0.02) is is_set)

    return Scene(make, call, no_tickets, over=lambda used: expect(used.it.is_set() is is_set), least=40)


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

    return Scene(make, lambda used: getattr(used.it, what)(), no_tickets, begin=begin, end=end, least=40)


def count() -> Scene:
    """An interrupted count has counted once or not at all."""

    def make(used: Used) -> None:
        used.it = zkconcurrent.CountDownLatch(used.client, used.path, 1_000_000)
        used.it.count_down()

    def end(used: Used, struck: bool) -> None:
        assert used.it.count in ((used.before, used.before - 3) if struck else (used.before - 3,))

    def begin(used: Used) -> Any:
        return setattr(used, "before", used.it.count)

    return Scene(make, lambda used: used.it.count_down(3), no_tickets, begin=begin, end=end, least=40)


def latch_wait() -> Scene:
    """Nothing of a wait is left."""

    def make(used: Used) -> None:
        used.it = zkconcurrent.CountDownLatch(used.client, used.path, 2)
        used.it.count_down()

    return Scene(make, lambda used: expect(used.it.wait(0.02) is False), no_tickets, least=40)


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

    if leaves:
        return Scene(make, lambda used: used.other.leave(), free, begin=join, end=end, least=10)
    return Scene(make, join, free, end=end, least=40)


def double_barrier(method: str) -> Scene:
    """An interrupted enter leaves no node, nor does a leave; the leftovers of the round let nobody in."""

    def make(used: Used) -> None:
        used.it = zkconcurrent.DoubleBarrier(used.client, used.path, 1)
        used.it.enter()
        used.it.leave()

    def end(used: Used, _: bool) -> None:
        if used.it._path_state.inside:
            with contextlib.suppress(RuntimeError):  # it has left: its node is gone
                used.it.leave()

    def free(used: Used) -> bool:
        return (
            all(name == "ready" for name in used.zk.get_children(used.path)) and not used.it._session.registry.tickets
        )

    def over(used: Used) -> None:
        assert not zkconcurrent.DoubleBarrier(used.zk, used.path, 2).enter(0)
        assert used.zk.get_children(used.path) == []

    def begin(used: Used) -> Any:
        return method == "leave" and used.it.enter()

    return Scene(make, lambda used: getattr(used.it, method)(), free, begin=begin, end=end, over=over, least=40)


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

    return Scene(make, call, free, begin=begin, end=lambda used, _: expect(len(used.before) <= 1), least=100)


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

    def call(used: Used) -> Any:
        return expect(used.it.acquire(timeout=5))

    return Scene(make, call, lambda _: True, end=end, files=("detached.py",), least=30)


def detached_wait() -> Scene:
    """An acquire that would wait is interrupted, or out of time: it leaves no node, and the hold as it was."""

    def make(used: Used) -> None:
        used.it = DetachedLock(used.client, used.path, "job")
        used.other = DetachedLock(used.zk, used.path, "holder")

    def end(used: Used, _: bool) -> None:
        used.other.release()
        with used.it:  # behind what the interrupted call may have left
            assert len(used.zk.get_children(used.path)) == 1

    def call(used: Used) -> Any:
        return expect(not used.it.acquire(timeout=0.02))

    begin = lambda used: used.other.acquire(timeout=20)  # noqa: E731
    return Scene(make, call, lambda _: True, begin=begin, end=end, files=("detached.py",), least=20)


def detached_end(what: str) -> Scene:
    """The hold has ended or goes on; called again, the release ends it, and blames no other for having ended it."""

    def begin(used: Used) -> None:
        used.it, used.other = (DetachedLock(used.client, used.path, "job") for _ in range(2))
        assert used.it.acquire(timeout=20)
        used.before = used.it.fencing_token

    def call(used: Used) -> None:
        if what == "release":
            used.it.release()
        elif what == "release by another":
            used.other.release()
        elif what == "with":
            used.it.__exit__(None, None, None)
        else:
            assert used.other.force_release(used.before)

    def end(used: Used, struck: bool) -> None:
        if struck and what == "release by another":
            with contextlib.suppress(RuntimeError):
                used.other.release()
        elif struck and what == "force_release":
            used.other.force_release(used.before)
        elif struck and used.it.hold_count():
            used.it.release()
        assert not used.zk.get_children(used.path)

    files = ("detached.py",)
    return Scene(lambda _: None, call, lambda _: True, begin=begin, end=end, files=files, least=10)


def two_permits(client: KazooClient, path: str) -> Semaphore:
    """Make a semaphore."""
    return Semaphore(client, path, 2)


def multilock(client: KazooClient, path: str) -> MultiLock:
    """Make a lock of two."""
    return MultiLock([Lock(client, f"{path}/{name}") for name in "ab"])


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
        elif what in ("wait", "withdraw"):
            used.it.stand()
            assert used.it.wait(20) is not None

    def call(used: Used) -> None:
        if what == "lead":
            used.other.__enter__().publish(b"published")
        elif what == "end of a block":
            used.other.__exit__(None, None, None)
        elif what == "wait":
            assert used.it.wait(20) is not None
        else:
            getattr(used.it, what)()

    def end(used: Used, struck: bool) -> None:
        if what == "lead" and (not struck or used.it.is_leader()):  # struck in `publish`, it is in the block
            used.other.__exit__(KeyboardInterrupt if struck else None, None, None)
        elif what in ("stand", "wait", "withdraw"):
            used.it.withdraw()
        assert not used.it.is_leader()

    def over(used: Used) -> None:
        with Election(used.zk, used.path).lead(timeout=20):
            pass

    least = {"lead": 50, "end of a block": 15}.get(what, 5)
    return Scene(make, call, lambda used: queued(used.zk, used.path, 0)(), begin, end, over, ELECTION, least)


def block_in_time(kind: Any, is_free: bool) -> Scene:
    """The start of a `hold()` block either is interrupted and leaves nothing, or holds, or has met its deadline."""

    def make(used: Used) -> None:
        used.it, used.other = kind(used.client, used.path), kind(used.zk, used.path)
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

    return Scene(make, call, lambda _: True, end=end, over=over, files=DEADLINES, least=10)


GRANTS: dict[str, Callable[[KazooClient, str], tuple[Any, Any]]] = {  # a block, and the primitive whose call it makes
    "Lock": lambda client, path: (lock := Lock(client, path), lock),
    "RLock": lambda client, path: (lock := RLock(client, path), lock),
    "read lock": lambda client, path: (lock := ReadWriteLock(client, path).read_lock, lock),
    "Semaphore": lambda client, path: (semaphore := Semaphore(client, path, 1), semaphore),
    "Condition": lambda client, path: (Condition(client, f"{path}-condition", lock := Lock(client, path)), lock),
    "MultiLock": lambda client, path: (lock := MultiLock([Lock(client, path)]), lock),
    "DetachedLock": lambda client, path: (lock := DetachedLock(client, path, str(client.client_id)), lock),
    "hold": lambda client, path: ((lock := Lock(client, path)).hold(), lock),
    "hold in time": lambda client, path: ((lock := Lock(client, path)).hold(SESSION), lock),
    "lead": lambda client, path: (block := Election(client, path).lead(), block._leader_lock),
    "claim": lambda client, path: ((queue := zkconcurrent.Queue[bytes](client, path)).claim(timeout=SESSION), queue),
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
        used.other.__enter__()

    def end(used: Used, _: bool) -> None:
        assert used.it.hold_count() == levels
        for _ in range(levels):
            used.it.release()

    def free(used: Used) -> bool:
        return not used.it._session.registry.tickets

    least = 4 if levels else 5

    def call(used: Used) -> Any:
        return used.other.__exit__(None, None, None)

    return Scene(make, call, free, begin=begin, end=end, files=BLOCKS, least=least)


SCENES: dict[str, Scene] = {
    **{
        name: scene
        for kind in (Lock, RLock, read_lock, write_lock, unfair_lock)
        for name, scene in exclusive(kind.__name__, kind, against(kind), files_of(kind)).items()
    },
    **exclusive("Semaphore", two_permits, two_permits, permits=2),
    **exclusive("MultiLock", multilock, lambda client, path: Lock(client, f"{path}/b")),
    "downgrade": downgrade(),
    "Condition of a Lock, wait": condition_wait(Lock),
    "Condition of an RLock, wait": condition_wait(RLock),
    "Event, wait for a flag that is set": event_wait(True),
    "Event, wait": event_wait(False),
    "Event, set": event_change("set", "clear"),
    "Event, clear": event_change("clear", "set"),
    "CountDownLatch, count down": count(),
    "CountDownLatch, wait": latch_wait(),
    "Group, join": membership(False),
    "Group, leave": membership(True),
    "DoubleBarrier, enter": double_barrier("enter"),
    "DoubleBarrier, leave": double_barrier("leave"),
    "Barrier for one": barrier_wait(1),
    "Barrier for two": barrier_wait(2),
    "DetachedLock, acquire": detached_acquire(),
    "DetachedLock, wait": detached_wait(),
    **{
        f"DetachedLock, {what}": detached_end(what)
        for what in ("release", "release by another", "force_release", "with")
    },
    **{f"Election, {what}": election_scene(what) for what in ("lead", "end of a block", "stand", "wait", "withdraw")},
    "hold() of a Lock in time": block_in_time(Lock, True),
    "hold() of a held Lock": block_in_time(Lock, False),
    "hold() of permits in time": block_in_time(lambda client, path: Semaphore(client, path, 1), True),
    "hold() of held permits": block_in_time(lambda client, path: Semaphore(client, path, 1), False),
    **{f"end of a block, {what}": block_end(what) for what in GRANTS if what not in ("lead", "claim")},
    "end of an inner block, RLock": block_end("RLock", 1),
    "end of an inner block, read lock": block_end("read lock", 1),
}
