"""Uses that a type checker must refuse, for it alone: each line that ends with `# wrong` is wrong, and no other."""

from __future__ import annotations

import threading

import zkconcurrent
from zkconcurrent import LockLike, Namespace, aio, synchronized

zk = zkconcurrent.connect("zk://host")
mutex = zkconcurrent.Mutex  # wrong
zkconcurrent.connect(b"zk://host")  # wrong
zkconcurrent.connect("zk://host", start_timeout="5")  # wrong
zkconcurrent.Lock(zk)  # wrong
zkconcurrent.Lock(zk, 1)  # wrong
zkconcurrent.Lock(zk, "/app/lock", told=print)  # wrong
zkconcurrent.RLock(zk, "/app/lock", on_lost=1)  # wrong
zkconcurrent.Semaphore(zk, "/app/api", "5")  # wrong
zkconcurrent.Barrier(zk, "/app/barrier")  # wrong
zkconcurrent.CountDownLatch(zk, "/app/latch", None)  # wrong
zkconcurrent.DoubleBarrier(zk, "/app/double")  # wrong
zkconcurrent.Group(zk, "/app/group").join("text")  # wrong
zkconcurrent.MultiLock(zkconcurrent.Lock(zk, "/app/lock"))  # wrong
zkconcurrent.MultiLock([threading.Lock()])  # wrong
zkconcurrent.QuorumLock([threading.Lock()])  # wrong
zkconcurrent.DetachedLock(zk, "/app/detached")  # wrong
zkconcurrent.DetachedLock(zk, "/app/detached", "job").lost  # wrong
zkconcurrent.QuorumLock([zkconcurrent.Lock(zk, "/app/lock")]).fencing_token  # wrong
zkconcurrent.MultiLock([zkconcurrent.Semaphore(zk, "/app/api")])  # wrong
zkconcurrent.Condition(zk, "/app/condition", threading.RLock())  # wrong
token: str = zkconcurrent.RLock(zk, "/app/lock").fencing_token  # wrong
zkconcurrent.RLock(zk, "/app/lock").fencing_token = 1  # wrong
zkconcurrent.RLock(zk, "/app/lock").acquire(timeout="1")  # wrong
zkconcurrent.RLock(zk, "/app/lock").hold(2.5, False)  # wrong
zkconcurrent.RLock(zk, "/app/lock").lock()  # wrong
zkconcurrent.Event(zk, "/app/event").notify()  # wrong
zkconcurrent.AtomicLong(zk, "/app/number").add("1")  # wrong
zkconcurrent.AtomicLong(zk, "/app/number", 5)  # wrong
zkconcurrent.SharedValue(zk, "/app/value")  # wrong
zkconcurrent.SharedValue(zk, "/app/value", b"").compare_and_set(b"", b"x")  # wrong
zkconcurrent.Queue(zk, "/app/jobs", "5")  # wrong
zkconcurrent.Dict(zk, "/app/config")[5]  # wrong
zkconcurrent.Set(zk, "/app/hosts").add(5)  # wrong
zkconcurrent.Queue(zk, "/app/jobs", codec=str)  # wrong
zkconcurrent.Queue(zk, "/app/jobs").claim().item
zkconcurrent.SimpleQueue(zk, "/app/jobs").join()  # wrong
zkconcurrent.DelayQueue(zk, "/app/jobs").put(b"one", delay="1")  # wrong
zkconcurrent.Queue(zk, "/app/jobs").put(b"one", delay=1)  # wrong
zkconcurrent.Election(zk, "/app/leader", id=1)  # wrong
zkconcurrent.Election(zk, "/app/leader").lead().token  # wrong
zkconcurrent.Election(zk, "/app/leader").run(len, 1)  # wrong

threads: Namespace = zkconcurrent.namespace("local")
threads.RLock()  # wrong
threads.Mutex("cart")  # wrong
threads.RLock("cart").unlock()  # wrong
threads.Semaphore("api", "5")  # wrong
threads.MultiLock([1])  # wrong
local = zkconcurrent.namespace("local")
local.RLock("cart").fencing_token  # wrong
zkconcurrent.namespace(zk, 1)  # wrong

held: LockLike = zkconcurrent.RLock(zk, "/app/lock")
held = threading.Lock()
held = threading.Event()  # wrong
held = zkconcurrent.ReadWriteLock(zk, "/app/pair")  # wrong
held = zkconcurrent.Barrier(zk, "/app/barrier", 2)  # wrong
held.fencing_token  # wrong


@synchronized(zk, "/users/{user}")
def pay(user: int) -> str:
    """Pay."""
    return str(user)


pay("x")  # wrong
number: int = pay(1)  # wrong
synchronized(zk, 1)  # wrong
synchronized(zk, "/app/lock")(7)  # wrong

with aio.Lock(zk, "/app/lock"):  # wrong
    pass
aio.Lock(zk)  # wrong
aio.Mutex  # wrong
aio.Barrier(zk, "/app/barrier", "2")  # wrong
aio.Barrier(zk, "/app/barrier", 2).n_waiting()  # wrong
aio.AtomicLong(zk, "/app/number").add("1")  # wrong
aio.CountDownLatch(zk, "/app/latch", 2).count_down(m=1)  # wrong
aio.CountDownLatch(zk, "/app/latch", 2).count_down().wait()  # wrong
jobs: aio.Queue[int] = aio.Queue(zk, "/app/jobs")
jobs.put_nowait("x")  # wrong
jobs.get_nowait() + 1  # wrong
shared = zkconcurrent.namespace(zk, "/app")
shared.Lock("cart", fare=False)  # wrong
shared.Lock(name="cart")  # wrong
shared.Semaphore("api", "5")  # wrong
shared.Queue("jobs").unput()  # wrong
aio.namespace(zk, "/app").Barrier("barrier")  # wrong
tasks: aio.Namespace = aio.namespace("local")
tasks.RLock()  # wrong
tasks.ReadWriteLock("pair")  # wrong
tasks = threads  # wrong
aio.connect(1)  # wrong


@aio.synchronized(zk, "/users/{user}")
async def pay_later(user: int) -> str:
    """Pay."""
    return str(user)


pay_later("x")  # wrong
number = pay_later(1)  # wrong
