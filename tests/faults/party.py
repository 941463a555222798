"""A process that does one job with a lock, to be killed, stopped or forked by a test.

    python -m tests.faults.party HOSTS SESSION_TIMEOUT PATH JOB

It prints a word at each step and reads a line where it waits to be told to go on.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError

from tests.helpers.party import say, started
from zkconcurrent import Barrier, CountDownLatch, Lock, LockLostError, RLock, aio

HOSTS, SESSION, PATH = sys.argv[1:4] if len(sys.argv) > 4 else ("", "6", "")
PATIENCE = 60.0  # a machine that is busy takes its time to start a process


def client() -> KazooClient:
    """Return a started client."""
    return started(HOSTS, SESSION)


def write(zk: KazooClient, path: str, token: int) -> bool:
    """Write to a resource that refuses a token lower than the highest it has seen; return whether it took it."""
    zk.retry(zk.ensure_path, path)
    while True:
        seen, stat = zk.retry(zk.get, path)
        if token < int(seen or 0):
            return False
        try:
            zk.retry(zk.set, path, str(token).encode(), version=stat.version)
        except BadVersionError:
            continue
        return True


def hold() -> None:
    """Hold until told, then write with the token, and release."""
    zk = client()
    lock = RLock(zk, PATH)
    lock.acquire()
    token = lock.fencing_token
    say(token)
    sys.stdin.readline()
    say("written" if write(zk, f"{PATH}-resource", token) else "refused")
    try:
        lock.release()
        say("released")
    except LockLostError:
        say("lost")
    sys.stdin.readline()
    zk.stop()


def wait() -> None:
    """Wait for the lock, and say when it came."""
    zk = client()
    lock = Lock(zk, PATH)
    say("waiting")
    with lock:
        say("held")
        sys.stdin.readline()
    zk.stop()


def meet(parties: str) -> None:
    """Come to a barrier when told."""
    barrier = Barrier(client(), PATH, int(parties))
    sys.stdin.readline()
    barrier.wait()


def leave(waiters: str = "0", stop: str = "") -> None:
    """End while holding, with daemon threads that wait; never released."""
    # An interpreter that ends while a daemon thread writes of its error may abort, as 3.10 did.
    threading.excepthook = lambda _: None
    zk = client()
    lock = Lock(zk, PATH)
    lock.acquire()
    for _ in range(int(waiters)):
        threading.Thread(target=lock.acquire, daemon=True).start()
    while len(zk.get_children(PATH)) <= int(waiters):
        time.sleep(0.01)
    say("held")
    sys.stdin.readline()
    if stop:
        zk.stop()


def starve(seconds: str) -> None:
    """Hold the lock while one thread keeps all others from running, past the session's end."""
    lock = Lock(client(), PATH)
    lock.acquire()
    say("held")
    sys.stdin.readline()
    sys.setswitchinterval(1000)  # nobody else gets a turn while this thread has something to do
    began = time.monotonic()
    while time.monotonic() - began < float(seconds):
        pass
    try:
        lock.release()
    except LockLostError:
        say("lost")
    sys.setswitchinterval(0.005)
    with lock:
        say("held again")


def forgetful_job(hosts: str, path: str) -> None:
    """Acquire the lock, and leave with it."""
    zk = KazooClient(hosts, timeout=60)
    zk.start()
    global kept
    kept = Lock(zk, path)
    kept.acquire()


def forget(method: str) -> None:
    """A child of multiprocessing leaves without a word; say how long the next waits."""
    zk = client()
    lock = Lock(zk, PATH)
    child = multiprocessing.get_context(method).Process(target=forgetful_job, args=(HOSTS, PATH))
    child.start()
    child.join(PATIENCE)
    began = time.monotonic()
    with lock:
        say(child.exitcode)
        say(time.monotonic() - began)
    zk.stop()


def job_of_threads(hosts: str, path: str) -> None:
    """Leave with a thread that holds a lock, a call in the background, and an executor that was not shut down."""
    zk = KazooClient(hosts, timeout=60)
    zk.start()
    executor = ThreadPoolExecutor(1)
    executor.submit(int).result()
    held = threading.Event()

    def hold() -> None:
        with Lock(zk, f"{path}/lock"):
            held.set()
            threading.main_thread().join()
            say(len(zk.get_children(f"{path}/lock")))

    threading.Thread(target=hold).start()
    held.wait()
    asyncio.run(count_down_without_waiting(zk, path))


async def count_down_without_waiting(zk: KazooClient, path: str) -> None:
    """Count down in the background."""
    for _ in range(20):
        aio.CountDownLatch(zk, f"{path}/latch", 20).count_down()


def leave_threads(method: str) -> None:
    """A child of multiprocessing leaves threads; say its exit code, and what is left to count down."""
    zk = client()
    latch = CountDownLatch(zk, f"{PATH}/latch", 20)
    child = multiprocessing.get_context(method).Process(target=job_of_threads, args=(HOSTS, PATH))
    child.start()
    child.join(PATIENCE)
    say(child.exitcode)
    say(latch.count)
    say(len(zk.get_children(f"{PATH}/lock")))
    zk.stop()


def leave_in_an_outage() -> None:
    """Leave with calls of tasks in the background: a query and two changes, begun while ZooKeeper is out of reach."""
    zk = client()
    ready, latch = aio.Event(zk, f"{PATH}/event"), aio.CountDownLatch(zk, f"{PATH}/latch", 2)

    async def main() -> None:
        await ready.set()
        await latch.count_down()
        say("in reach")
        sys.stdin.readline()
        while zk.connected:
            await asyncio.sleep(0.01)
        say(ready.is_set())
        ready.clear()
        latch.count_down()

    asyncio.run(main())
    say("over")


def job_of_a_child(hosts: str, path: str) -> None:
    """Open a client of its own, and use the lock."""
    zk = KazooClient(hosts)
    zk.start()
    with Lock(zk, path) as held:
        assert held
    zk.stop()


def spawn(method: str) -> None:
    """A child of multiprocessing uses the lock through its own client; a lock cannot be sent to it."""
    zk = client()
    lock = Lock(zk, PATH)
    with lock:
        context = multiprocessing.get_context(method)
        child = context.Process(target=job_of_a_child, args=(HOSTS, PATH))
        child.start()
        child.join(0.5)
        assert child.is_alive()
    child.join(PATIENCE)
    say(child.exitcode)
    if method != "fork":
        try:
            context.Process(target=job_of_a_child, args=(lock, PATH)).start()
        except TypeError as error:
            say("refused" if "open a client" in str(error) else error)
    else:
        say("refused")
    zk.stop()


if __name__ == "__main__":
    globals()[sys.argv[4]](*sys.argv[5:])
