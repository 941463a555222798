"""The self-made troubles of a process: signal handlers that use the library, and arguments that ask for too much."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from tests.soak.callers.caller import Caller
from tests.soak.events import Log, What, clock
from zkconcurrent import Barrier, ClientError, CountDownLatch, Lock, RLock, Semaphore, ZkConcurrentError

SIGNALS, PAUSE = 200, 0.01  # how many in a row, and seconds from one to the next
TRADES = 3  # paths that one handler uses
REFUSALS = (ValueError, TypeError, OverflowError, ZkConcurrentError)
HUGE = 1_100_000  # characters; a server takes no request of more than 1,048,575 bytes


class Signals:
    """Handles signals in the main thread, which meanwhile uses the same client and its paths.

    A handler acquires, releases what an earlier one acquired, makes objects, at times stops a client that holds, and
    uses queues and values where the main thread does.

    Args:
        log: where failures are written down.
        client: the main thread's.
        process: the name of the process.
        spare: returns one more client, started.
        thread: the main thread's number.
        callers: those of the main thread's paths.
    """

    def __init__(
        self,
        log: Log,
        client: KazooClient,
        process: str,
        spare: Callable[[], KazooClient],
        thread: int,
        callers: Sequence[Caller],
    ) -> None:
        self._thread, self._random = thread, Random(process)
        self._callers = [caller for caller in callers if type(caller).trade is not Caller.trade]
        for caller in callers:
            caller.refusals = (ClientError,)
        self._log, self._client, self._process, self._make_spare = log, client, process, spare
        self._lock = Lock(client, f"/soak-signals/{process}")
        self._spare: KazooClient | None = None
        self._count = 0
        self._handling = self._held = self._over = False
        signal.signal(signal.SIGUSR2, self._handle)

    def send(self) -> None:
        """Send this process signals, on any thread but the main one."""
        try:
            spare = self._make_spare()
            Lock(spare, f"/soak-signals/{self._process}-spare").acquire(timeout=1)
            self._spare = spare
            if self._over:
                self._stop()
        except (ZkConcurrentError, KazooTimeoutError):
            pass  # no server is in reach; there are other handlers
        for _ in range(SIGNALS):
            os.kill(os.getpid(), signal.SIGUSR2)
            time.sleep(PAUSE)

    def end(self) -> None:
        """Handle no more signals, and leave nothing; in the main thread."""
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        self._over = True
        with contextlib.suppress(ZkConcurrentError):
            self._release()
        self._stop()

    def _handle(self, *_: object) -> None:
        if self._handling:
            return  # one within another
        self._handling = True
        began = clock()
        try:
            self._count += 1
            acts = self._acquire, self._release, self._construct, self._trade, self._acquire, self._release, self._stop
            acts[self._count % len(acts)]()
        except ZkConcurrentError:
            pass  # refused where it could only wait for ever, or lost
        except Exception as error:
            self._log.add(0, What.FAILED, note=f"in a signal handler: {type(error).__name__}: {error}")
        finally:
            self._log.add(0, What.HANDLED, limit=clock() - began, note=str(self._thread))
            self._handling = False

    def _acquire(self) -> None:
        if not self._held:
            self._held = self._lock.acquire(timeout=0.05)

    def _release(self) -> None:
        if self._held:
            self._held = False
            self._lock.release()

    def _construct(self) -> None:
        repr(RLock(self._client, f"/soak-signals/{self._process}-{self._count}"))

    def _trade(self) -> None:
        for caller in self._random.sample(self._callers, min(TRADES, len(self._callers))):
            caller.trade()

    def _stop(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.stop()
            spare.close()


def attack(log: Log, client: KazooClient, process: str) -> None:
    """Ask for too much, or for things that are not there: each is refused, and leaves the client's holds alone."""
    path = f"/soak-hostile/{process}"
    attempts: list[tuple[str, Callable[[], Any]]] = [
        ("a path of a megabyte", lambda: Lock(client, f"{path}/{'x' * HUGE}").acquire(timeout=3)),
        ("a path of 1,000,000 levels", lambda: Lock(client, path + "/x" * (HUGE // 2)).acquire(timeout=3)),
        ("6,000 permits", lambda: Semaphore(client, f"{path}-6000", 10_000).acquire(timeout=3, permits=6_000)),
        ("permits that are no number", lambda: Semaphore(client, f"{path}-float", 2.0)),  # type: ignore[arg-type]
        ("parties that are a fraction", lambda: Barrier(client, f"{path}-fraction", 1.5)),  # type: ignore[arg-type]
        ("a count that is no number", lambda: CountDownLatch(client, f"{path}-nan", float("nan"))),  # type: ignore[arg-type]
        ("a path that leaves itself", lambda: Lock(client, f"{path}/../other")),
    ]
    held = Lock(client, f"{path}-held")
    try:
        if not held.acquire(timeout=3):
            return  # there is another fault at work
    except ZkConcurrentError:
        return
    for what, attempt in attempts:
        try:
            outcome = attempt()
        except REFUSALS:
            continue
        except Exception as error:
            log.add(0, What.FAILED, note=f"{what}: {type(error).__name__}: {error}")
        else:
            log.add(0, What.FAILED, note=f"{what} was not refused: {outcome!r}")
    with contextlib.suppress(ZkConcurrentError):  # by another fault, or by these: the history shows what others lost
        held.release()


def spawn(target: Callable[..., None], *arguments: Any) -> None:
    """Run it on a thread of its own."""
    threading.Thread(target=target, args=arguments, daemon=True).start()
