"""A thousand cycles leave nothing behind, at the client and at the server."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.contenders import held_elsewhere
from tests.helpers.eventually import eventually
from tests.helpers.kinds import KINDS, make
from tests.helpers.lock_types import write_lock
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    Election,
    Lock,
    Queue,
    ReadWriteLock,
    SharedValue,
)
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

pytestmark = pytest.mark.fault(34)

CYCLES = 1_000
USED = int(os.environ.get("LEAK_USES", "60"))  # of each of the other kinds
SOME = 300


def left(client: KazooClient, server: Server) -> dict[str, int]:
    """Return how much there is of what might leak."""
    gc.collect()
    told = server.mntr()
    return {
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
        "listeners": len(client.state_listeners),
        "watchers": sum(map(len, [*client._data_watchers.values(), *client._child_watchers.values()])),
        "watched paths": len(client._data_watchers) + len(client._child_watchers),
        **{
            name: int(told[f"zk_{name}"])
            for name in ("watch_count", "ephemerals_count", "znode_count", "num_alive_connections")
        },
    }


def more(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """Return of what there is more; less may be: an earlier test's connections end late."""
    return {what: now[what] - before[what] for what in now if now[what] > before[what]}


def test_cycles(zk: KazooClient, zookeeper: Server, zk_path: str) -> None:
    """Acquire and release, each time with an object of its own: all counts and the memory stay as they were."""
    lock = write_lock(zk, zk_path)

    def cycles(n: int) -> None:
        for _ in range(n):
            with write_lock(zk, zk_path):
                pass

    def look() -> dict[str, int]:
        with lock:  # else the server might reap the path between two cycles, and the next would make more nodes
            return left(zk, zookeeper)

    cycles(SOME)
    before, blocks = look(), sys.getallocatedblocks()
    cycles(CYCLES)
    eventually(lambda: not more(look(), before) and sys.getallocatedblocks() - blocks < SOME, str(before))
    session = lock._session
    eventually(lambda: not any((session.registry.tickets, session.registry.deletes, session.deletes.last_tried)))


def claim(_of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    """Put an item, and claim it."""
    queue = Queue[bytes](client, path)
    queue.put(b"1")
    (block := queue.claim(timeout=20)).__enter__()
    return lambda: block.__exit__(None, None, None)


def stand(_of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    """Stand and lead; then withdraw."""
    election = Election(client, path)
    election.stand()
    assert election.wait(20)
    return election.withdraw


def change(_of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    """Set a value; then set it back."""
    value = SharedValue(client, path, b"")
    value.set(b"1")
    return lambda: value.set(b"")


# One kind of each family, and other ways of use. Locks have their own test, and the counts of a latch stay.
FAMILIES = {kind.family: (name, kind.use) for name, kind in reversed(KINDS.items())}
OTHERS = {"lock", "latch", "latch that counts", "condition with a lock", "value"}
USES = {name: use for family, (name, use) in FAMILIES.items() if family not in OTHERS}
USES |= {name: KINDS[name].use for name in ("DetachedLock", "Set")}
USES |= {"Queue, claimed": claim, "Election": stand, "SharedValue": change}


@pytest.mark.parametrize("kind", USES)
def test_uses(kind: str, zk: KazooClient, zookeeper: Server, zk_path: str) -> None:
    """Uses of a path, each with an object of its own while another one of the path is there: nothing is added."""
    kept = make(zkconcurrent, kind.partition(",")[0], zk, zk_path)

    def uses(n: int) -> None:
        for _ in range(n):
            end = USES[kind](zkconcurrent, zk, zk_path)
            assert end is not None
            end()

    def added() -> dict[str, int]:
        grown = more(left(zk, zookeeper), before)
        allocated = sys.getallocatedblocks() - blocks
        if allocated >= 2 * USED and sys.gettrace() is None:  # coverage keeps something of each thread
            grown["blocks"] = allocated
        return grown

    uses(20)
    # A leak adds in each round. Once, something else of this process may: a test before, the interpreter, pytest.
    for last in (False, False, True):
        before, blocks = left(zk, zookeeper), sys.getallocatedblocks()
        uses(USED)
        try:
            # Nodes that are removed in the background, and containers that the server reaps, go a little later.
            eventually(lambda: not added(), f"more than {before}")
        except AssertionError:
            if last:
                raise AssertionError(f"{kept} leaks {added()}") from None
        else:
            break


SHORT = 0.05


def wait_in_vain(kind: str, zk: KazooClient, other: KazooClient, path: str, ends: ExitStack) -> None:
    """Wait for what does not come; for what excludes, while another client has it."""
    rival = "WriteLock" if kind == "ReadLock" else kind
    if KINDS[rival].excludes or kind == "Group":
        end = KINDS[rival].use(zkconcurrent, other, path)
        assert end is not None
        ends.callback(end)
    KINDS[kind].wait(zkconcurrent, zk, path, SHORT)


@pytest.mark.fault(240)
@pytest.mark.long
def test_paths_used_once(zk: KazooClient, zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """Each wait that ends without its event takes its watch along, at the server and in kazoo."""
    session, other = Session.of(zk), connect()

    def at_server() -> int:
        """Return how many watches there are, but for those that the other client has on what it holds."""
        return int(zookeeper.mntr()["zk_watch_count"]) - len(other._data_watchers) - len(other._child_watchers)

    with ExitStack() as ends:
        for kind in KINDS:
            wait_in_vain(kind, zk, other, f"{zk_path}/warm/{kind}", ends)
        eventually(lambda: gc.collect() >= 0 and not watched(session), patience=25)
        before, threads = at_server(), threading.active_count()
        for n in range(USED // 10):
            for kind in KINDS:
                wait_in_vain(kind, zk, other, f"{zk_path}/{n}/{kind}", ends)
        assert watched(session)
        assert at_server() > before
        eventually(lambda: gc.collect() >= 0 and not watched(session), patience=25)
        eventually(lambda: at_server() <= before, patience=20)
    eventually(lambda: threading.active_count() <= threads)


def watched(session: Session) -> list[str]:
    """Return the paths on which a watch may be that nobody needs."""
    client, registry = session.link.client, session.registry
    return [*client._data_watchers, *client._child_watchers, *registry.trees, *registry.left, *session.watches._idle]


def test_cycles_of_those_who_wait(
    zk: KazooClient, zookeeper: Server, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """Waiters that time out, that are handed the lock, and readers behind writers: nothing of them is left."""
    other = connect()
    held, waits = Lock(other, zk_path), Lock(zk, zk_path)
    pair = ReadWriteLock(zk, f"{zk_path}-pair")

    def cycles(n: int) -> None:
        with held_elsewhere(held):  # a wait for one's own hold is logged
            for _ in range(n):
                assert not waits.acquire(timeout=0.001)
        for _ in range(n):
            with pair.write_lock:
                reading = in_thread(lambda: pair.read_lock.acquire() and pair.read_lock.release())
            reading.result(10)

    def look() -> dict[str, int]:
        with held, pair.write_lock:  # as above
            return left(zk, zookeeper)

    cycles(20)
    before, blocks = look(), sys.getallocatedblocks()
    cycles(SOME)
    # A watcher on a node stays until it goes, however many waited for it.
    # This test itself keeps a future and a thread for each.
    eventually(lambda: not more(look(), before) and sys.getallocatedblocks() - blocks < 40 * SOME, str(before))


def test_connections_that_come_and_go(zookeeper: Server, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A hold, and a wait, over many lost connections: no listener, watcher, thread or descriptor is added by one."""
    client = connect(
        hosts=proxy.hosts, timeout=10, connection_retry={"max_tries": -1, "delay": 0.01, "max_delay": 0.05}
    )
    lock = Lock(client, zk_path)

    def drops(n: int) -> None:
        for _ in range(n):
            proxy.cut()
            assert lock.locked()  # waits until it is connected

    with lock:
        drops(3)
        # The next beat watches the node of the hold.
        eventually(lambda: left(client, zookeeper)["watch_count"])
        before = left(client, zookeeper)
        drops(30)
        eventually(lambda: not more(left(client, zookeeper), before), str(before))
        assert not lock.lost.is_set()


def keepers() -> int:
    """Return how many clients have their thread."""
    return sum(each.name.startswith("zkconcurrent keeper") for each in threading.enumerate())


@pytest.mark.fault(464)
@pytest.mark.usefixtures("uncollected")
def test_clients_that_come_and_go(zookeeper: Server, zk_path: str) -> None:
    """Once a client is stopped, or could not start, its thread ends, also if no garbage is collected."""
    before = keepers()
    url = f"zk://{zookeeper.hosts}{zk_path}?timeout=2"
    clients = []
    for _ in range(5):
        with zkconcurrent.connect(url) as client, Lock(client, "/lock"):
            clients.append(client)
    plain = KazooClient(zookeeper.hosts)
    Lock(plain, zk_path)
    with pytest.raises(TimeoutError):
        zkconcurrent.connect("zk://127.0.0.1:1", start_timeout=0.1)
    eventually(lambda: keepers() <= before)


@pytest.mark.fault(464)
def test_a_client_that_is_started_again(zookeeper: Server, zk_path: str) -> None:
    """A client whose thread has ended has one again, which renews the lease of its next hold."""
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}{zk_path}?timeout=4") as client:
        with Lock(client, "/lock"):
            pass
        session = Session.of(client)
        client.stop()
        eventually(lambda: not session.keeper.begun)
        client.start()
        with Lock(client, "/lock"):
            first = session.registry.lease.end
            eventually(lambda: session.registry.lease.end > first)
