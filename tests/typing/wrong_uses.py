"""Uses that a type checker must refuse, for it alone: both checkers report an `ignore` that ignores nothing, too."""

from __future__ import annotations

import threading

import zkconcurrent
from zkconcurrent import LockLike, Namespace, aio, synchronized

zk = zkconcurrent.connect("zk://host")
mutex = zkconcurrent.Mutex  # type: ignore[attr-defined]
zkconcurrent.connect(b"zk://host")  # type: ignore[arg-type]
zkconcurrent.connect("zk://host", start_timeout="5")  # type: ignore[arg-type]
zkconcurrent.Lock(zk)  # type: ignore[call-arg]
zkconcurrent.Lock(zk, 1)  # type: ignore[arg-type]
zkconcurrent.Lock(zk, "/app/lock", told=print)  # type: ignore[call-arg]
zkconcurrent.RLock(zk, "/app/lock", on_lost=1)  # type: ignore[arg-type]
zkconcurrent.Lock(zk, "/app/lock", label=1)  # type: ignore[arg-type]
zkconcurrent.Lock(zk, "/app/lock", hold_limit=1, on_hold_limit="end")  # type: ignore[arg-type]
zkconcurrent.Semaphore(zk, "/app/api", "5")  # type: ignore[arg-type]
zkconcurrent.Barrier(zk, "/app/barrier")  # type: ignore[call-arg]
zkconcurrent.CountDownLatch(zk, "/app/latch", None)  # type: ignore[arg-type]
zkconcurrent.DoubleBarrier(zk, "/app/double")  # type: ignore[call-arg]
zkconcurrent.Group(zk, "/app/group").join("text")  # type: ignore[arg-type]
zkconcurrent.MultiLock(zkconcurrent.Lock(zk, "/app/lock"))  # type: ignore[arg-type]
zkconcurrent.MultiLock([threading.Lock()])  # type: ignore[list-item]
zkconcurrent.DetachedLock(zk, "/app/detached")  # type: ignore[call-arg]
zkconcurrent.DetachedLock(zk, "/app/detached", "job").lost  # type: ignore[attr-defined]
zkconcurrent.MultiLock([zkconcurrent.Lock(zk, "/app/lock")]).fencing_token  # type: ignore[attr-defined]
zkconcurrent.MultiLock([zkconcurrent.Semaphore(zk, "/app/api")])  # type: ignore[list-item]
zkconcurrent.Condition(zk, "/app/condition", threading.RLock())  # type: ignore[arg-type]
token: str = zkconcurrent.RLock(zk, "/app/lock").fencing_token  # type: ignore[assignment]
zkconcurrent.RLock(zk, "/app/lock").fencing_token = 1  # type: ignore[misc]
zkconcurrent.RLock(zk, "/app/lock").acquire(timeout="1")  # type: ignore[arg-type]
zkconcurrent.RLock(zk, "/app/lock").hold(2.5, False)  # type: ignore[call-arg]
zkconcurrent.RLock(zk, "/app/lock").lock()  # type: ignore[attr-defined]
zkconcurrent.Event(zk, "/app/event").notify()  # type: ignore[attr-defined]
zkconcurrent.AtomicLong(zk, "/app/number").add("1")  # type: ignore[arg-type]
zkconcurrent.AtomicLong(zk, "/app/number", 5)  # type: ignore[call-arg]
zkconcurrent.SharedValue(zk, "/app/value")  # type: ignore[call-overload]
zkconcurrent.SharedValue(zk, "/app/value", b"").compare_and_set(b"", b"x")  # type: ignore[arg-type]
zkconcurrent.Queue(zk, "/app/jobs", "5")  # type: ignore[call-overload]
zkconcurrent.Dict(zk, "/app/config")[5]  # type: ignore[index]
zkconcurrent.Set(zk, "/app/hosts").add(5)  # type: ignore[arg-type]
zkconcurrent.Queue(zk, "/app/jobs", codec=str)  # type: ignore[call-overload]
zkconcurrent.Queue(zk, "/app/jobs").claim().item
zkconcurrent.SimpleQueue(zk, "/app/jobs").join()  # type: ignore[attr-defined]
zkconcurrent.DelayQueue(zk, "/app/jobs").put(b"one", delay="1")  # type: ignore[arg-type]
zkconcurrent.Queue(zk, "/app/jobs").put(b"one", delay=1)  # type: ignore[call-arg]
jobs: zkconcurrent.Queue[int] = zkconcurrent.Queue(zk, "/app/jobs")  # type: ignore[assignment]
jobs = zkconcurrent.Queue(zk, "/app/jobs", codec=zkconcurrent.TEXT)  # type: ignore[arg-type]
last: zkconcurrent.LifoQueue[int] = zkconcurrent.LifoQueue(zk, "/app/jobs")  # type: ignore[assignment]
first: zkconcurrent.PriorityQueue[int] = zkconcurrent.PriorityQueue(zk, "/app/jobs", priority=len)  # type: ignore[assignment]
later: zkconcurrent.DelayQueue[int] = zkconcurrent.DelayQueue(zk, "/app/jobs")  # type: ignore[assignment]
simple: zkconcurrent.SimpleQueue[int] = zkconcurrent.SimpleQueue(zk, "/app/jobs")  # type: ignore[assignment]
config: zkconcurrent.Dict[int] = zkconcurrent.Dict(zk, "/app/config")  # type: ignore[assignment]
value: zkconcurrent.SharedValue[int] = zkconcurrent.SharedValue(zk, "/app/value", 5)  # type: ignore[call-overload]
zkconcurrent.SharedValue(zk, "/app/value", 5, codec=zkconcurrent.TEXT)  # type: ignore[misc]
zkconcurrent.PriorityQueue(zk, "/app/jobs")  # type: ignore[call-overload]
zkconcurrent.Queue(zk, "/app/jobs").put("text")  # type: ignore[arg-type]
zkconcurrent.Queue(zk, "/app/jobs", codec=zkconcurrent.TEXT).put(b"one")  # type: ignore[arg-type]
zkconcurrent.Dict(zk, "/app/config", codec=zkconcurrent.TEXT)["color"] = 5  # type: ignore[assignment]
zkconcurrent.Election(zk, "/app/leader", id=1)  # type: ignore[arg-type]
zkconcurrent.Election(zk, "/app/leader").lead().token  # type: ignore[attr-defined]
zkconcurrent.Election(zk, "/app/leader").run(len, 1)  # type: ignore[arg-type]

threads: Namespace = zkconcurrent.namespace("local")
threads.RLock()  # type: ignore[call-arg]
threads.Mutex("cart")  # type: ignore[attr-defined]
threads.RLock("cart").unlock()  # type: ignore[attr-defined]
threads.Semaphore("api", "5")  # type: ignore[arg-type]
threads.MultiLock([1])  # type: ignore[list-item]
zkconcurrent.namespace(zk, 1)  # type: ignore[arg-type]

held: LockLike = zkconcurrent.RLock(zk, "/app/lock")
held = threading.Lock()
held = threading.Event()  # type: ignore[assignment]
held = zkconcurrent.ReadWriteLock(zk, "/app/pair")  # type: ignore[assignment]
held = zkconcurrent.Barrier(zk, "/app/barrier", 2)  # type: ignore[assignment]
held.fencing_token  # type: ignore[attr-defined]


@synchronized(zk, "/users/{user}")
def pay(user: int) -> str:
    """Pay."""
    return str(user)


pay("x")  # type: ignore[arg-type]
number: int = pay(1)  # type: ignore[assignment]
synchronized(zk, 1)  # type: ignore[arg-type]
synchronized(zk, "/app/lock")(7)  # type: ignore[type-var]


@zkconcurrent.once_per(zk, "/jobs/{user}", 3300)
def settle(user: int) -> str:
    """Settle."""
    return str(user)


settle("x")  # type: ignore[arg-type]
settled: str = settle(1)  # type: ignore[assignment]
zkconcurrent.once_per(zk, "/jobs/daily")  # type: ignore[call-arg]
aio.once_per(zk, "/jobs/daily", 3300)(settle)  # type: ignore[arg-type]

with aio.Lock(zk, "/app/lock"):  # type: ignore[attr-defined]
    pass
aio.Lock(zk)  # type: ignore[call-arg]
aio.Mutex  # type: ignore[attr-defined]
aio.Barrier(zk, "/app/barrier", "2")  # type: ignore[arg-type]
aio.Barrier(zk, "/app/barrier", 2).n_waiting()  # type: ignore[operator]
aio.AtomicLong(zk, "/app/number").add("1")  # type: ignore[arg-type, unused-coroutine]
aio.CountDownLatch(zk, "/app/latch", 2).count_down(m=1)  # type: ignore[call-arg]
aio.CountDownLatch(zk, "/app/latch", 2).count_down().wait()  # type: ignore[attr-defined]
aio_jobs: aio.Queue[int] = aio.Queue(zk, "/app/jobs")  # type: ignore[assignment]
aio_last: aio.LifoQueue[int] = aio.LifoQueue(zk, "/app/jobs")  # type: ignore[assignment]
aio_first: aio.PriorityQueue[int] = aio.PriorityQueue(zk, "/app/jobs", priority=len)  # type: ignore[assignment]
aio_later: aio.DelayQueue[int] = aio.DelayQueue(zk, "/app/jobs")  # type: ignore[assignment]
aio_config: aio.Dict[int] = aio.Dict(zk, "/app/config")  # type: ignore[assignment]
aio_value: aio.SharedValue[int] = aio.SharedValue(zk, "/app/value", 5)  # type: ignore[call-overload]
numbers: aio.Queue[int] = aio.Queue(zk, "/app/numbers", codec=zkconcurrent.JSON)
numbers.put_nowait("x")  # type: ignore[arg-type, unused-coroutine]
numbers.get_nowait() + 1  # type: ignore[operator]
shared = zkconcurrent.namespace(zk, "/app")
shared.Lock("cart", fare=False)  # type: ignore[call-arg]
shared.Lock(name="cart")  # type: ignore[call-arg]
shared.Semaphore("api", "5")  # type: ignore[arg-type]
shared.Queue("jobs").unput()  # type: ignore[attr-defined]
named: zkconcurrent.Queue[int] = shared.Queue("jobs")  # type: ignore[assignment]
aio.namespace(zk, "/app").Barrier("barrier")  # type: ignore[call-arg]
tasks: aio.Namespace = aio.namespace("local")
tasks.RLock()  # type: ignore[call-arg]
tasks.SimpleQueue("jobs")  # type: ignore[attr-defined]
tasks = threads  # type: ignore[assignment]
aio.connect(1)  # type: ignore[arg-type]


@aio.synchronized(zk, "/users/{user}")
async def pay_later(user: int) -> str:
    """Pay."""
    return str(user)


pay_later("x")  # type: ignore[arg-type, unused-coroutine]
number = pay_later(1)  # type: ignore[assignment]
