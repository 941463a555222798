"""The ways in which a client loses a hold."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from tests.helpers.lock_types import AnyLock, read_lock, unfair_lock, write_lock
from tests.helpers.proxy import Proxy
from zkconcurrent import Condition, Lock, RLock, Semaphore
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server


def expire(server: Server, lock: AnyLock | Semaphore) -> None:
    """Expire the session of the lock's client, and wait until the loss is told."""
    lost = lock.lost
    server.expire(lock.client)
    assert lost.wait(20)


def set_clock(session: Session, clock: Callable[[], float]) -> None:
    """Replace the clock of a client's leases."""
    session.clock = session.link.transport.opening.clock = clock


def run_out(_server: Server, lock: AnyLock | Semaphore) -> None:
    """Let the lease run out on our own clock, as if the machine had slept, while the session lives on.

    A hold survives that where the keeper was at work: a request that it sends right after the sleep is answered, which
    proves that the session lives, and renews the lease before anybody has looked. Then the machine sleeps again.
    """
    session, lost, awake, slept = lock._session, lock.lost, lock._session.clock, 0.0
    for _ in range(10):
        slept += session.timeout
        set_clock(session, lambda slept=slept: awake() + slept)
        session.wake_keeper()
        if lost.wait(2):
            return
    pytest.fail("the lease does not run out")


def operate(server: Server, lock: AnyLock | Semaphore) -> None:
    """Have an operator delete the holder's node."""
    lost, owner = lock.lost, lock.owner()
    assert owner is not None
    with server.client() as operator:
        operator.delete(owner.node)
    assert lost.wait(20)


def interrupted_out_of_reach(condition: Condition, proxy: Proxy) -> None:
    """Interrupt a wait on a condition while ZooKeeper is out of reach, so that it cannot have its lock again."""

    def strike() -> None:
        proxy.refuse()
        proxy.cut()
        os.kill(os.getpid(), signal.SIGINT)

    condition.acquire()
    timer = threading.Timer(1.0, strike)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        condition.wait(60)
    timer.join()


# Each kind and each way; the simulation has all pairs.
lost_kinds = pytest.mark.parametrize(
    ("kind", "lose"),
    [
        *((Lock, lose) for lose in (expire, run_out, operate)),
        *((RLock, expire), (read_lock, run_out), (write_lock, operate), (unfair_lock, run_out)),
    ],
)
