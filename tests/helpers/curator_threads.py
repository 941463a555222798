"""Two threads that a test treats alike, one of this process and one of Java."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from tests.helpers.curator import CuratorClient
from zkconcurrent import RLock

SHORT = 0.3  # seconds for an acquire that is to fail
LONG = 30.0  # seconds for one that is to succeed, on a busy machine
CYCLES = 50


class Thread:
    """A thread of this process that takes the lock when told to, and releases it when told to."""

    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        self._go = threading.Event()
        self._granted: Future[str] = Future()
        self._thread = threading.Thread(target=self._run)

    def acquire(self) -> Future[str]:
        """Begin to acquire."""
        self._thread.start()
        return self._granted

    def release(self) -> None:
        """Release, and wait until that is done."""
        self._go.set()
        self._thread.join(LONG)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._lock.acquire()
        except BaseException as error:
            self._granted.set_exception(error)
            return
        self._granted.set_result("true")
        self._go.wait(LONG)
        self._lock.release()


class JavaThread:
    """A Java thread that does the same."""

    def __init__(self, java: CuratorClient, path: str, name: str, kind: str = "mutex") -> None:
        self._java, self._path, self._name, self._kind = java, path, name, kind

    def acquire(self) -> Future[str]:
        """Begin to acquire."""
        return self._java.call(f"{self._kind}.acquire", self._path, thread=self._name)

    def release(self) -> None:
        """Release, and wait until that is done."""
        self._java.call(f"{self._kind}.release", self._path, thread=self._name).result(LONG)


Contender = Thread | JavaThread
