"""The thread that holds the lock: it connects, acquires, waits for the main thread's order, and releases.

A lock belongs to the thread that acquired it, and each of these calls may wait. So one thread makes all of them. The
main thread, which handles the signals and watches the clock, only gets their results.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Any, TypeAlias

from kazoo import exceptions as kazoo_errors

import zkconcurrent

from .._client.connect import failures, prepare
from .._client.url import parse
from .._threads.base.node_data import inherited
from .._threads.once_per import Job, decide_run, succeed
from .outcome import CommandError, Exit, lacks_threads
from .processes import boot_clock

HELD = "ZKCONCURRENT_HELD"
TIMEOUT = 30.0  # seconds
# The hold survives an outage of SURVIVED session timeouts; the URL may lower that to LEAST_SURVIVED. The outage that
# the command survives is shorter by up to a quarter of the timeout, plus a second.
SURVIVED, LEAST_SURVIVED = 0.5, 0.4
# How long after the deadline `run` still waits for the thread.
_LATE = 1.0  # seconds

_Part: TypeAlias = "zkconcurrent.RLock | zkconcurrent.ReadLock | zkconcurrent.WriteLock | zkconcurrent.Semaphore"


class Holder:
    """A hold of one or several locks, on a thread of its own.

    Args:
        found: the command line.
        url: the server's URL.
        deadline: when to give up, by `boot_clock`.
        post: called on any thread as `post(event, *values)`.
    """

    def __init__(self, found: Namespace, url: str, deadline: float, post: Callable[..., None]) -> None:
        self._found = found
        self._url = url
        self._deadline = deadline
        self._post = post
        self._given_up = False
        self._client: zkconcurrent.Client | None = None
        self._orders: SimpleQueue[bool] = SimpleQueue()
        # The lock to acquire, and its parts.
        self._lock: _Part | zkconcurrent.MultiLock | None = None
        self._parts: list[_Part] = []
        # The handles of the holds, in the order of the paths.
        self._held: list[zkconcurrent.Held] = []
        # A run with `--once-per` counts as called when this program began.
        self._job = None if found.once_per is None else Job(found.once_per, found.until_success, found.began)
        for name in ("zkconcurrent", "kazoo"):
            # The command itself says what matters: cron would send anything more by mail.
            logger = logging.getLogger(name)
            logger.propagate = False
            logger.addHandler(logging.NullHandler())

    def start(self) -> None:
        """Start the thread.

        Raises:
            CommandError: the system can't start a thread.
        """
        name = f"zkconcurrent run {os.path.basename(self._found.command[0])}"
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except RuntimeError as error:
            raise _as_command_error(error) from None

    # -- for the main thread, which never waits -------------------------------------------------------------------

    def give_up(self) -> None:
        """End the wait for ZooKeeper, or for the lock; call it again until the thread has finished."""
        self._given_up = True
        if self._lock is not None:
            self._lock.cancel_waits()
        self.finish(success=False)

    def failures(self) -> str:
        """Return why the last attempts to connect failed, as the end of a message."""
        return "" if self._client is None else f": {failures(self._client)}"

    def finish(self, *, success: bool) -> None:
        """End the hold; `success` is whether the command has succeeded."""
        self._orders.put(success)

    def lease(self) -> tuple[float, float]:
        """Return the seconds that the hold has left, and the granted or the requested timeout, whichever is shorter."""
        assert self._client is not None
        # `survive` is a part of the requested timeout, so the hold lasts no longer if the server grants a longer one.
        timeout = min(self._client.session_timeout or self._timeout, self._timeout)
        return min((held.remaining() for held in self._held), default=0.0), timeout

    # -- the thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._hold()
        except BaseException as error:
            self._post("failed", _as_command_error(error))

    def _hold(self) -> None:
        client = self._connect()
        try:
            self._post("connected")
            try:
                lock = self._lock = self._make(client)
            except ValueError as error:
                # One path lies below another, or there are too many permits.
                raise CommandError(Exit.USAGE, str(error)) from None
            holding = self._holding(lock)
            try:
                if self._given_up:
                    raise TimeoutError
                held = holding.__enter__()
            except TimeoutError:
                raise CommandError(Exit.NOT_ACQUIRED, "not acquired in time") from None
            try:
                if boot_clock() > self._deadline + _LATE:
                    # The machine was asleep, and the lock came before `run` had checked the clock.
                    raise CommandError(Exit.NOT_ACQUIRED, "not acquired in time")
                self._post("granted")
                if self._job is not None and not decide_run(self._job, self._parts[0]):
                    self._post("skipped")
                else:
                    self._post("acquired", *self._describe(held if isinstance(held, tuple) else (held,)))
                    if self._orders.get() and self._job is not None:
                        succeed(self._job, self._parts[0])
            finally:
                cause = self._release(holding)
        finally:
            client.stop()
            client.close()
        self._post("finished", cause)

    def _connect(self) -> zkconcurrent.Client:
        settings = parse(self._url)
        options: dict[str, Any] = {} if "timeout" in settings else {"timeout": TIMEOUT}
        if "start_timeout" not in settings:
            options["start_timeout"] = math.inf
        timeout = self._timeout = settings.get("timeout", TIMEOUT)
        if "survive" not in settings:
            options["survive"] = SURVIVED * timeout
        elif settings["survive"] < LEAST_SURVIVED * timeout:
            # The guard would end the command between two heartbeats.
            raise CommandError(Exit.USAGE, f"survive must be {LEAST_SURVIVED:.0%} of the timeout or more for a run")
        try:
            client, start = prepare(self._url, **options)
        except (ValueError, TypeError, RuntimeError) as error:
            raise CommandError(Exit.USAGE, str(error)) from None
        self._client = client
        start(lambda: self._given_up)
        return client

    def _on_lost(self, _: object) -> None:
        for held in self._held:
            try:
                _ = held.fencing_token
            except zkconcurrent.LockLostError as error:
                self._post("lost", _word(error.cause))
            except RuntimeError:
                # The hold was released.
                pass

    def _make(self, client: zkconcurrent.Client) -> _Part | zkconcurrent.MultiLock:
        found = self._found
        self._servers = ",".join(sorted(f"{host}:{port}" for host, port in client.hosts))
        self._outer = _held_outside()
        for path in found.paths:
            for held, _, node in self._outer:
                # A run with `-o` may have ended, and have left this process behind. So look for the run's node itself:
                # no two ensembles have a node of that name, whereas a server may have several names.
                if held == f"{client.chroot}{path}" and client.exists(f"{path}/{node}"):
                    raise CommandError(Exit.USAGE, f"{path} is held by a `run` around this one, which waits for it")
        # Permits are left out: they are never certain edges of a deadlock, and their nodes lie elsewhere.
        inherited[:] = [
            (path, node[3:39].replace("-", ""))
            for path, servers, node in self._outer
            if servers == self._servers and "/" not in node
        ]
        locks: list[zkconcurrent.RLock | zkconcurrent.ReadLock | zkconcurrent.WriteLock]
        if found.permits is not None:
            self._parts = [
                semaphore := zkconcurrent.Semaphore(client, found.paths[0], found.permits, on_lost=self._on_lost)
            ]
            return semaphore
        if found.shared or found.exclusive:
            pairs = [zkconcurrent.ReadWriteLock(client, path, on_lost=self._on_lost) for path in found.paths]
            locks = [pair.read_lock if found.shared else pair.write_lock for pair in pairs]
        else:
            # Like a `Lock`, but the library knows that only this thread will release it.
            locks = [zkconcurrent.RLock(client, path, on_lost=self._on_lost) for path in found.paths]
        self._parts = [*locks]
        return locks[0] if len(locks) == 1 else zkconcurrent.MultiLock(locks)

    def _holding(
        self, lock: _Part | zkconcurrent.MultiLock
    ) -> AbstractContextManager[zkconcurrent.Held | tuple[zkconcurrent.Held, ...]]:
        """Return the context manager that holds the lock."""
        if self._found.nonblock:
            return lock.hold(blocking=False)
        # Try even if the deadline has passed: the connection was made in time.
        return lock.hold(None if self._deadline == math.inf else max(0.0, self._deadline - boot_clock()))

    def _describe(self, held: tuple[zkconcurrent.Held, ...]) -> tuple[dict[str, int], dict[str, str]]:
        """Return the tokens, and the variables for the environment of the command."""
        assert self._client is not None
        tokens: dict[str, int] = {}
        entries = list(self._outer)
        # A MultiLock returns its holds in an order of its own.
        self._held = sorted(held, key=lambda each: self._found.paths.index(self._path_of(each)))
        for path, each in zip(self._found.paths, self._held, strict=True):
            tokens[path] = each.fencing_token
            entries.append((f"{self._client.chroot}{path}", self._servers, each.node.removeprefix(f"{path}/")))
        return tokens, {
            "ZKCONCURRENT_PATH": " ".join(self._found.paths),
            "ZKCONCURRENT_TOKEN": " ".join(map(str, tokens.values())),
            HELD: json.dumps(entries),
        }

    def _path_of(self, held: zkconcurrent.Held) -> str:
        """Return the path of the lock that is held."""
        if self._found.permits is not None:
            path: str = self._found.paths[0]
            return path
        return held.node.rpartition("/")[0]

    def _release(self, holding: AbstractContextManager[object]) -> str | None:
        """Release the lock; return the cause if the hold turns out to have been lost."""
        try:
            holding.__exit__(None, None, None)
        except zkconcurrent.LockLostError as error:
            return _word(error.cause)
        return None


def _word(cause: zkconcurrent.LossCause | None) -> str:
    return "unknown" if cause is None else cause.value


def _held_outside() -> list[tuple[str, str, str]]:
    """Return the holds of outer runs, which may have ended: the path with its chroot, the servers, and the node."""
    try:
        return [(str(path), str(servers), str(node)) for path, servers, node in json.loads(os.environ.get(HELD, ""))]
    except (ValueError, TypeError, RecursionError):
        # The variable is missing, as there is no outer run; or another program has set or shortened it.
        return []


# The exit code for each kind of error; the first match is used. A loss may be noticed just before the mark of
# `--once-per` is written, or before the command begins.
_ENDS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Exit], ...] = (
    (zkconcurrent.WaitCancelledError, Exit.NOT_ACQUIRED),
    (zkconcurrent.LockLostError, Exit.LOST),
    ((TimeoutError, zkconcurrent.ClientError, kazoo_errors.KazooException), Exit.UNREACHABLE),
    (zkconcurrent.RefusedError, Exit.REFUSED),
    (zkconcurrent.DeadlockError, Exit.USAGE),
    ((zkconcurrent.ZkConcurrentError, ValueError), Exit.OTHER_KIND),
)


def _as_command_error(error: BaseException) -> CommandError:
    """Return the CommandError that reports an error."""
    if isinstance(error, CommandError):
        return error
    if lacks_threads(error):
        return CommandError(Exit.NO_PROCESS, "no thread can be started")
    for kinds, code in _ENDS:
        if isinstance(error, kinds):
            return CommandError(code, str(error) or type(error).__name__)
    return CommandError(Exit.BUG, f"{type(error).__name__}: {error}")
