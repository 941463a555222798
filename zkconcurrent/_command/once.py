"""`--once-per`: a mark on the servers says when the command was last started, or last succeeded.

The mark is `PATH.once`: not below PATH, where each child is a contender, and not PATH's own data, as an idle container
goes. It tells when the run that wrote it had queued, by the leader's clock, and that is compared with when we queued. A
run may have queued long before it starts: behind a machine that died, or a job that took long. Counted from its start,
the next period's runs would come too early, and none would do the work of that period. A run that queued before the
mark was written is one of the same period, or of one that is over: it skips, whatever the clock says. If the session of
a run that waits expires, as on a machine that was asleep, it queues again, with a new node: that tells no more when it
had queued, so its own clock does, and the leader's of that moment.

The mark is read and written under the lock, in one transaction with a check that our node is there. If the reply is
lost, the mark itself shows whether the write was applied: its data name the node of the run that wrote it.
"""

from __future__ import annotations

import json
import os

from .._client.connect import Client
from .._engine.session import Session
from .._kazoo.replies import kazoo_errors
from .._runtime.clock import boot_clock
from .._runtime.identity import HOST
from .._threads.base.lock_base import LockBase, core_of
from .outcome import CommandError, Exit

_ATTEMPTS = 5


class Mark:
    """The mark of a path.

    Args:
        client: the client of the lock.
        path: the path of the lock.
        seconds: how old the mark must be, for the command to run.
        until_success: the mark tells of the last run that has succeeded; else of the last start.
    """

    def __init__(self, client: Client, path: str, seconds: float, until_success: bool) -> None:
        self._client = client
        self._path = f"{path}.once"
        self._seconds = seconds
        self._until_success = until_success
        self._queued = 0
        # From here on the run queues.
        self._session, self._came = Session.of(client).registry.lease.session, boot_clock()

    def allows(self, lock: LockBase) -> bool:
        """Return whether the command is to run; write the mark of its start."""
        ticket = core_of(lock).must_hold().ticket
        node = ticket.node
        stat = self._client.retry(self._client.exists, node)
        try:
            data, mark = self._client.retry(self._client.get, self._path)
        except kazoo_errors.NoNodeError:
            data, mark = b"", None
        except kazoo_errors.NoAuthError:
            raise self._refused() from None
        if stat is None:
            raise self._lost(lock)
        self._queued = stat.ctime
        is_old = mark is not None and stat.czxid < mark.mzxid
        if mark is not None and ticket.session != self._session:
            try:
                self._queued = min(stat.ctime, self._now(node) - int(1000 * (boot_clock() - self._came)))
            except kazoo_errors.NoNodeError:
                raise self._lost(lock) from None
            is_old = is_old or self._queued < mark.mtime
        if mark is not None:
            # A mark of a later time than that was written before the leader's clock was set back.
            is_young = abs(self._queued - _queued(data, mark.mtime)) < 1000 * self._seconds
            if is_young or is_old:
                return False
        if not self._until_success:
            self._write(lock, node)
        return True

    def _now(self, node: str) -> int:
        """Return the time by the leader's clock, in milliseconds: only a write tells it, here that of the same data."""
        data, _ = self._client.retry(self._client.get, node)
        written: int = self._client.retry(self._client.set, node, data).mtime
        return written

    def succeeded(self, lock: LockBase) -> None:
        """Write the mark of a success, if that is what counts."""
        if self._until_success:
            self._write(lock, core_of(lock).must_hold().ticket.node)

    def _write(self, lock: LockBase, node: str) -> None:
        """Write the mark, only while the lock is held."""
        name = node.rpartition("/")[2]
        data = json.dumps({"node": name, "queued": self._queued, "host": HOST, "pid": os.getpid()}).encode()
        for _ in range(_ATTEMPTS):
            there = self._client.retry(self._client.exists, self._path)
            transaction = lock.guard(self._client.transaction())
            if there is None:
                transaction.create(self._path, data)
            else:
                transaction.set_data(self._path, data, there.version)
            try:
                results = transaction.commit()
            except (kazoo_errors.ConnectionLoss, kazoo_errors.SessionExpiredError):
                if self._is_written(data):
                    return
                continue
            errors = [each for each in results if isinstance(each, Exception)]
            # After a lost reply, a follower that lags may still have shown the mark as unwritten.
            if not errors or self._is_written(data):
                return
            if any(isinstance(each, kazoo_errors.NoAuthError) for each in errors):
                raise self._refused()
            break
        raise CommandError(Exit.LOST, f"the lock at {lock.path} was lost before the mark {self._path} was written")

    def _is_written(self, data: bytes) -> bool:
        try:
            found: bytes = self._client.retry(self._client.get, self._path)[0]
        except kazoo_errors.NoNodeError:
            return False
        return found == data

    def _lost(self, lock: LockBase) -> CommandError:
        return CommandError(Exit.LOST, f"the lock at {lock.path} was lost before the command began")

    def _refused(self) -> CommandError:
        return CommandError(Exit.REFUSED, f"ZooKeeper refuses the mark {self._path} to this client")


def _queued(data: bytes, written: int) -> int:
    """Return when the run that wrote a mark had queued, in milliseconds; of a mark by hand, when it was written."""
    try:
        queued = json.loads(data)["queued"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return written
    return queued if isinstance(queued, int) else written
