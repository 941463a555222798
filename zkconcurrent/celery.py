"""Celery: `Beat`, a scheduler that may run on several machines, and `Once`, a task that runs once at a time.

`pip install 'zkconcurrent[celery]'`. The server's URL is the app's setting `zkconcurrent_url`, or otherwise the
environment variable ZKCONCURRENT_URL. Each process opens its client at first use, so a worker opens its own after its
fork.

In Celery's words, a beat sends the entries of a schedule when they are due. Whether an entry is due follows from its
`last_run_at`, the time when it was last sent. Celery's own scheduler keeps these times in a file of one machine, so two
beats would send everything twice. Here they are a `SharedValue`, which the leading beat writes before it sends an
entry.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import os
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

try:
    import celery
    from celery.beat import ScheduleEntry, Scheduler
    from celery.exceptions import Ignore, ImproperlyConfigured
    from celery.utils.time import maybe_make_aware
except ImportError as _missing:
    raise ImportError(
        "zkconcurrent.celery needs celery: pip install 'zkconcurrent[celery]'", name=_missing.name
    ) from _missing

from . import (
    JSON,
    Client,
    Election,
    LockLostError,
    Namespace,
    OutcomeUnknownError,
    SharedValue,
    Term,
    connect,
    namespace,
)
from ._arguments.template import Template
from ._client.url import VARIABLE
from ._threads.once_per import Job, check_period, taking_turn

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Beat", "Once"]

Runs: TypeAlias = dict[str, float]
"""When each entry of a schedule was last sent, in seconds since 1970."""

# By how many seconds the clocks of two beats may differ before the difference is logged.
_MOST_AHEAD = 60.0
_log = logging.getLogger(__name__)
# This process's clients, by URL.
_clients: dict[str, Client] = {}
# The parent's clients, in a forked child. They are kept, as garbage collection would close them and warn.
_inherited: list[dict[str, Client]] = []
# Re-entrant: a beat's SIGTERM handler asks for the scheduler, even while the scheduler is being made.
_opening = threading.RLock()


def _client(app: celery.Celery) -> Client:
    """Return this process's client."""
    url = app.conf.get("zkconcurrent_url") or os.environ.get(VARIABLE)
    if not url:
        raise ImproperlyConfigured(f"no ZooKeeper: set zkconcurrent_url in the app's configuration, or ${VARIABLE}")
    with _opening:
        if url not in _clients:
            _clients[url] = connect(url)
        return _clients[url]


def _leave_to_parent() -> None:
    _inherited.append(dict(_clients))
    _clients.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _root(app: celery.Celery) -> str:
    return Template("/celery/{name}").path({"name": app.main or "celery"})


class Beat(Scheduler):
    """A scheduler for `celery beat --scheduler zkconcurrent.celery:Beat` on several machines, only one of which sends.

    Layout:
        `/celery/<app>/beat` is the `Election` of the beats. `/celery/<app>/runs` is a `SharedValue`, as JSON: the
        fencing token of the term that wrote it, and the time when each entry was last sent.

    Invariant:
        An entry is sent at most once for each time that it is due. The leading beat writes the time before it sends the
        entry, and a beat of an older term can no longer write.

    Cost:
        For each entry that is sent, one change of a `SharedValue` that contains the times of all entries.
    """

    _term: Term | None = None
    # The leader that was logged last.
    _logged: str | None = None

    def setup_schedule(self) -> None:
        """Begin to stand for election."""
        super().setup_schedule()
        client, root = _client(self.app), _root(self.app)
        self._election = Election(client, f"{root}/beat")
        self._runs: SharedValue[dict[str, Any]] = SharedValue(
            client, f"{root}/runs", {"token": 0, "runs": {}}, codec=JSON
        )
        self._election.stand()

    @property
    def info(self) -> str:
        """A line of the banner of `celery beat`."""
        return f"    . election -> {_root(self.app)}/beat"

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send an entry that is due, if this beat leads; otherwise wait to lead.

        Returns:
            The number of seconds until there is something to do.
        """
        try:
            if self._leads():
                return super().tick(*args, **kwargs)  # type: ignore[no-any-return]
        except (LockLostError, OutcomeUnknownError) as error:
            # An entry that was due is still due, unless its time was written: then this beat may have sent it.
            _log.warning("leads no more: %s", error)
            self._term = None
        return 0.0

    def _leads(self) -> bool:
        if self._term is not None and not self._term.lost.is_set():
            return True
        self._term = None
        term = self._election.wait(0)
        if term is None:
            leader = self._election.leader()
            if leader is not None and leader.id not in (self._logged, self._election.id):
                _log.info("waiting to lead; %s leads", leader.id)
                self._logged = leader.id
            term = self._election.wait(self.max_interval)
        if term is None:
            return False
        self._take_over(term)
        return True

    def _take_over(self, term: Term) -> None:
        """Continue where the last leader stopped."""
        self._term, self._logged = term, None
        now = self.app.now().timestamp()
        runs = self._write(lambda runs: {name: runs.get(name, now) for name in self.schedule})
        for name, entry in self.schedule.items():
            entry.last_run_at = datetime.fromtimestamp(runs[name], timezone.utc).astimezone(self.app.timezone)
            if runs[name] > now + _MOST_AHEAD:
                _log.warning(
                    "%s was last sent at %s, which is still to come, and is not due before: the clock here is behind, "
                    "or the sender's was ahead; if it is to be sent before, stop the beats and delete %s",
                    name,
                    entry.last_run_at,
                    self._runs.path,
                )
        self._heap = None  # Celery makes it anew
        _log.info("leads, with token %s", term.fencing_token)

    def _write(self, change: Callable[[Runs], Runs]) -> Runs:
        """Write when entries were sent, if this beat still leads."""
        assert self._term is not None
        term = self._term

        def changed(found: dict[str, Any]) -> dict[str, Any]:
            # `fencing_token` raises the error itself if this beat knows that its term is over.
            if found["token"] > term.fencing_token:
                raise LockLostError(self._election.path, "another beat leads")
            return {"token": term.fencing_token, "runs": change(found["runs"])}

        runs: Runs = self._runs.update(changed)["runs"]
        return runs

    def reserve(self, entry: ScheduleEntry) -> ScheduleEntry:
        """Record, for all beats, that an entry is about to be sent."""
        coming = super().reserve(entry)
        # A schedule's own `nowfun` may return a naive time, which Celery takes for UTC, but Python for local time.
        sent = maybe_make_aware(coming.last_run_at).timestamp()
        self._write(lambda runs: {**runs, entry.name: sent})
        return coming

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send an entry, unless this beat has lost the lead since it recorded the entry."""
        assert self._term is not None
        _ = self._term.fencing_token  # raises if it is over
        super().apply_entry(entry, producer=producer)


def _labelled(client: Client, task_id: str | None) -> tuple[Namespace, str | None]:
    """Return a task's namespace, and its label: the task's id, or a hash of an id that is not a valid label."""
    label = task_id or None
    try:
        return namespace(client, label=label), label
    except ValueError:
        assert label is not None
        label = hashlib.sha256(label.encode(errors="surrogatepass")).hexdigest()[:32]
        return namespace(client, label=label), label


class Once(celery.Task):
    """The base of tasks that run once at a time: `@app.task(base=Once, path="/reports/{user_id}", once_per=3600)`.

    A task that finds an equal one running, on any worker, is skipped: it returns None, and the log shows which task
    is running. A task that has already run in the period is skipped, too. But a task that comes again, by a retry or
    because its worker has died, waits for its earlier run: a dead worker holds the lock until its session ends. If the
    earlier run still goes on after that wait, the later run is ignored, and the earlier run provides the result.

    A retry counts as another start, so a task that retries needs `until_success` together with `once_per`.

    Layout:
        An `RLock` at the path, labelled with the task's id, or with a hash of an id that is not a valid label. With
        `once_per`, also the mark of `once_per`.

    Attributes:
        path: the path of its lock, with fields for its arguments, as for `synchronized`. Unless given, it is
            `/celery/<app>/once/<name of the task>`, followed by each argument.
        once_per: the length of a period, in seconds, as for `zkconcurrent.once_per`; None sets no period.
        until_success: whether only a run that has succeeded uses up its period; otherwise each start does.
    """

    path: str | None = None
    once_per: float | None = None
    until_success: bool = False
    run: Callable[..., Any]

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Make a task that is skipped while an equal one runs."""
        # Not in `__init__`: a task class may define an `__init__` that calls no base's, as Celery's base has none.
        self: Self = super().__new__(cls)
        # Replace `run`, as Celery's own `autoretry_for` does: a `__call__` would hide the request from `run`.
        run = self._run_now = self.run

        @functools.wraps(run)
        def once(*args: Any, **kwargs: Any) -> Any:
            return self._run_once(*args, **kwargs)

        self.run = once
        if self.once_per is not None:
            check_period("once_per", self.once_per)
        if self.path is not None:
            # Check it now. The default path can't be made yet: it contains the task's name, which may still be missing.
            _ = self._template
        return self

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self._run_now)

    @functools.cached_property
    def _template(self) -> Template:
        names, path = self._signature.parameters, self.path
        if path is None:
            task = Template("/once/{task}").path({"task": self.name})
            fixed = f"{_root(self.app)}{task}".replace("{", "{{").replace("}", "}}")
            path = "/".join([fixed, *(f"{{{name}}}" for name in names)])
        template = Template(path)
        template.check(self.name, names)
        return template

    def _run_once(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task, or skip it."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        client = _client(self.app)
        where, mine = _labelled(client, self.request.id)
        lock = where.RLock(self._template.path(bound.arguments).removeprefix("/"))
        job = None if self.once_per is None else Job(self.once_per, self.until_success)
        patience = 0.0
        while True:
            entered = False
            try:
                with lock.hold(patience):
                    entered = True
                    if job is None:
                        return self._run_now(*args, **kwargs)
                    with taking_turn(job, lock) as turn:
                        return self._run_now(*args, **kwargs) if turn else self._skip(turn)
            except TimeoutError as busy:
                if entered:
                    raise
                if (owner := lock.owner()) is None:
                    continue
                if mine is None or owner.label != mine:
                    return self._skip(busy)
                if patience:
                    # The other run's worker lives, and the broker has delivered the task again. Skipping it would count
                    # as a success with the result None, and would start the next task of a chain before that run ends.
                    self._skip(busy)
                    raise Ignore(str(busy)) from None
                # A dead worker's session ends within its timeout plus one tick.
                assert client.session_timeout is not None
                patience = 2 * client.session_timeout

    def _skip(self, why: object) -> None:
        _log.info("%s[%s] is skipped: %s", self.name, self.request.id, why)
