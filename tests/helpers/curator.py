"""A Java process on Apache Curator, controlled from here: Curator must understand our znodes.

`CuratorPeer` is the process; starting it takes a second, so tests share one. A `CuratorClient` is one session of it,
with Java threads that come into being when they are named. Commands, each answered by a string:

- `session`: the id in hexadecimal; `expire`: the server ends the session; `close`.
- `<kind>.acquire path [milliseconds]`: "true" or "false"; `<kind>.release path`; `<kind>.held path`: by any thread;
  `<kind>.increment path file cycles`: add one to the number in the file, holding the lock; how often.
  The kinds: `mutex` (InterProcessMutex), `read` and `write` (of one InterProcessReadWriteLock for each path), and
  `semaphoreMutex` (InterProcessSemaphoreMutex). Those but the last have `owned`: by the thread that asks;
  `participants`: the paths of the nodes in the queue, with tabs between; `makeRevocable path`, before it is acquired;
  `revoked path`: how often the holder was asked; and `revoke path`: asks the first in the queue (Revoker). One more
  kind is `multi` (InterProcessMultiLock): its path is the paths of its mutexes, with commas between.
- `queue.put path item`, `queue.putMulti path items` (with commas between), `queue.consume path failures`: take items,
  of which the first so many fail; `queue.taken path`: those taken, with tabs between (DistributedQueue with a lock
  path). `priorityQueue` has the same, and `priorityQueue.put path priority item` (DistributedPriorityQueue);
  `delayQueue` has `delayQueue.put path milliseconds item` (DistributedDelayQueue).
- `leaderSelector.stand path id`, `leaderSelector.withdraw path`; `leaderSelector.leads path`: "true" or "false";
  `leaderSelector.leader path`: its id; `leaderSelector.participants path`: their ids, of which one "leads", with tabs
  between (LeaderSelector). `leaderLatch` has the same (LeaderLatch).
- `long.get path`, `long.add path n times`, `long.set path n`, `long.compare path expected n` (DistributedAtomicLong,
  whose adds take a lock below the path after some conflicts); `integer` has the same (DistributedAtomicInteger).
- `value.get path`, `value.set path text`, `value.try path text` (SharedValue, whose seed is "seed"); `count.get path`,
  `count.set path n` (SharedCount, whose seed is 5).
- `doubleBarrier.enter path parties [milliseconds]`, `doubleBarrier.leave path parties [milliseconds]`: "true" or
  "false"; a party is a thread (DistributedDoubleBarrier).
- `group.join path id [data]`, `group.leave path id`, `group.set path id data`, `group.members path id`: those that the
  member sees, each as `id=data`, with tabs between (GroupMember).
- `semaphore.acquire path permits [quantity [milliseconds]]`, `semaphore.release path permits [quantity]`,
  `semaphore.participants path permits`, `semaphore.increment path permits file cycles` (InterProcessSemaphoreV2).
"""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import tempfile
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, final

from tests.helpers.installations import real_installation
from zkconcurrent.testing import Installation
from zkconcurrent.testing._java import find_java

__all__ = ["CuratorClient", "CuratorPeer", "JavaError"]

SOURCE = Path(__file__).with_name("CuratorPeer.java")
START_TIMEOUT = 60.0  # seconds for a Java to compile and start the peer on a busy machine

HOW_TO_GET_IT = """\
The tests against Java need a JDK 11 or newer and Apache Curator:
  Debian, Ubuntu: apt-get install default-jdk-headless libcurator-recipes-java
  elsewhere: a JDK in JAVA_HOME or on the PATH, and pip install pyspark, which has Curator's jars"""


class JavaError(Exception):
    """An error that a command threw in Java, or the end of the Java process."""


def compiled(class_path: str) -> Path:
    """Return the folder of the peer's classes; the first process that asks compiles them, for all runs to come."""
    java = find_java()
    version = hashlib.sha256(b"\0".join([SOURCE.read_bytes(), class_path.encode(), bytes(java)])).hexdigest()[:16]
    folder = Path(__file__).parent / "__pycache__" / f"{SOURCE.stem}-{version}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
            compiler = [java, *options, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
            done = subprocess.run(
                [*compiler, "-cp", class_path, "-d", made, SOURCE], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RuntimeError(f"{SOURCE.name} does not compile: {done.stderr}\n{HOW_TO_GET_IT}")
            with suppress(OSError):  # another process was faster
                os.rename(made, folder)
            Path(made).mkdir(exist_ok=True)  # to be removed
    return folder


@final
class CuratorPeer:
    """The Java process; a context manager that starts and ends it.

    Args:
        installation: the source of the jars of Curator and ZooKeeper; by default the first that is found.
    """

    def __init__(self, installation: Installation | None = None) -> None:
        self.installation = installation or real_installation()
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None
        self._reader = threading.Thread(target=self._read, name="curator-peer", daemon=True)
        self._names = itertools.count(1)
        self._lock = threading.Lock()
        self._pending: dict[str, Future[str]] = {}  # guarded by the lock, as is what follows
        self._ended = False
        self._ready = self._pending["ready"] = Future()

    def __enter__(self) -> CuratorPeer:
        if not self.installation.curator_class_path:
            raise RuntimeError(f"no Curator beside the ZooKeeper of {self.installation.kind}.\n{HOW_TO_GET_IT}")
        self._errors = tempfile.TemporaryFile("w+")
        class_path = os.pathsep.join(map(str, self.installation.curator_class_path))
        options = [
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
        ]
        self._process = subprocess.Popen(
            [find_java(), *options, "-cp", f"{compiled(class_path)}{os.pathsep}{class_path}", SOURCE.stem],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
        )
        self._reader.start()
        try:
            self._ready.result(START_TIMEOUT)
        except BaseException as error:
            self.__exit__(None, None, None)
            raise RuntimeError(f"the Java peer did not start: {error}\n{HOW_TO_GET_IT}") from error
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.kill()
        if self._errors is not None:
            self._errors.close()

    def kill(self) -> None:
        """End the process by SIGKILL: its sessions live on until they time out."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return
        process.kill()
        process.wait()
        self._reader.join()
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()

    def client(self, hosts: str, session_timeout: float = 10) -> CuratorClient:
        """Open a session, with the time-out in seconds, and wait until it is connected."""
        client = CuratorClient(self, f"client-{next(self._names)}")
        client.call("connect", hosts, round(session_timeout * 1000)).result(40)
        return client

    def send(self, client: str, thread: str, command: str, *arguments: object) -> Future[str]:
        """Send one command; the future gets its reply, or the JavaError that it ends with."""
        name = str(next(self._names))
        answer: Future[str] = Future()
        with self._lock:
            if self._process is None or self._process.stdin is None or self._ended:
                raise JavaError(f"the Java peer does not run\n{self._log()}")
            self._pending[name] = answer
            with suppress(BrokenPipeError):  # it is ending, and the reader tells
                self._process.stdin.write("\t".join([name, client, thread, command, *map(str, arguments)]) + "\n")
        return answer

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, *answer = line.rstrip("\n").split("\t", 2)
            with self._lock:
                future = self._pending.pop(name)
            if answer[:1] == ["error"]:
                future.set_exception(JavaError(answer[1]))
            else:
                future.set_result(answer[1] if answer else "")
        with self._lock:
            self._ended = True
        for future in self._pending.values():
            future.set_exception(JavaError(f"the Java peer has ended\n{self._log()}"))

    def _log(self) -> str:
        if self._errors is None or self._errors.closed:
            return ""
        self._errors.seek(0)
        return "".join(self._errors.readlines()[-30:])


@final
class CuratorClient:
    """One session in the Java process; a context manager that closes it."""

    def __init__(self, peer: CuratorPeer, name: str) -> None:
        self._peer = peer
        self._name = name

    def call(self, command: str, *arguments: object, thread: str = "main") -> Future[str]:
        """Run a command on the Java thread of this name, after what that was told before."""
        return self._peer.send(self._name, thread, command, *arguments)

    @property
    def session(self) -> int:
        """The session's id, as `ephemeralOwner` has it."""
        number = int(self.call("session", thread="session").result(20), 16)
        return number - (1 << 64) if number >> 63 else number

    def expire(self) -> None:
        """End the session at the server, while the client goes on and does not know yet."""
        self.call("expire", thread="session").result(20)

    def close(self) -> None:
        """Close the session, and interrupt its threads."""
        self.call("close").result(20)

    def __enter__(self) -> CuratorClient:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
