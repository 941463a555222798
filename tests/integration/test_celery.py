"""Beats and workers of Celery's as real processes, which are killed, stopped and cut off; a folder is their broker."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import ImproperlyConfigured
from celery.schedules import schedule
from kazoo.client import KazooClient

from tests.helpers.eventually import eventually
from tests.helpers.folder_broker import put_whole_messages
from tests.helpers.processes import ROOT, line_from, state_of, tell
from tests.helpers.proxy import Proxy
from zkconcurrent import JSON, Election, RLock, SharedValue, namespace
from zkconcurrent.celery import Beat, Once, _clients
from zkconcurrent.testing import Server

SESSION = 4.0
PATIENCE = 60.0

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, zookeeper: Server, zk_path: str) -> Iterator[Start]:
    """Start a process with the app, in a group of its own, of which nothing is left after the test."""
    for name in ("queue", "control", "results", "processed"):
        (tmp_path / name).mkdir()
    with ExitStack() as running:

        def start(*command: str, hosts: str = zookeeper.hosts, **options: Any) -> subprocess.Popen[str]:
            more = {"CELERY_FOLDER": str(tmp_path), "ZKCONCURRENT_URL": f"zk://{hosts}{zk_path}?timeout={SESSION}"}
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", *command],
                cwd=ROOT,
                env={**os.environ, **more},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                **options,
            )
            running.enter_context(process)  # closes its pipes and waits for it
            running.callback(os.killpg, process.pid, signal.SIGKILL)
            return process

        yield start


@pytest.mark.long
@pytest.mark.fault(545)
@pytest.mark.parametrize(("stage", "how"), [("noting", "stopped"), ("sending", "cut off")])
def test_no_entry_is_sent_twice(
    start: Start, tmp_path: Path, zk: KazooClient, zk_path: str, proxy: Proxy, stage: str, how: str
) -> None:
    """A beat that no longer leads sends nothing, wherever it was stopped; the next sends what is still due, once.

    What the last one had noted is not due any more, whether it was sent or not.
    """
    runs = SharedValue(zk, f"{zk_path}/celery/app/runs", {"token": 0, "runs": {}}, codec=JSON)
    runs.set({"token": 0, "runs": {"hourly": time.time() - 7200}})
    victim = start("tests.integration.celery_app", stage, hosts=proxy.hosts)
    assert [line_from(victim), line_from(victim)] == ["leads", stage]
    other = start("tests.integration.celery_app", "-")
    election = Election(zk, f"{zk_path}/celery/app/beat")
    eventually(lambda: len(election.candidates()) == 2, patience=PATIENCE)
    before = sent(tmp_path)
    assert "hourly" not in before
    if how == "cut off":
        proxy.refuse()
        proxy.cut()
    else:
        victim.send_signal(signal.SIGSTOP)
        eventually(lambda: state_of(victim.pid) == "T")
    assert line_from(other) == "leads"
    often = before.count("often")
    proxy.resume()
    victim.send_signal(signal.SIGCONT)
    tell(victim)
    eventually(lambda: len(election.candidates()) == 2, patience=PATIENCE)
    eventually(lambda: sent(tmp_path).count("often") > often + 2, patience=PATIENCE)
    assert sent(tmp_path).count("hourly") == (stage == "noting")


def celery_app(folder: Path) -> Any:
    """Return an app with the settings of those processes, to send tasks and get their results."""
    put_whole_messages()
    app = Celery("app", set_as_current=False)
    queue, control = f"{folder}/queue", f"{folder}/control"
    folders = {"data_folder_in": queue, "data_folder_out": queue, "control_folder": control}
    app.conf.update(
        broker_url="filesystem://", broker_transport_options=folders, result_backend=f"file://{folder}/results"
    )
    return app


def sent(folder: Path) -> list[str]:
    """Return the tasks that were sent, and that no worker has taken."""
    found = []
    for each in (folder / "queue").glob("*.msg"):
        found.append(json.loads(each.read_text())["headers"]["task"])
    return found


@pytest.mark.long
@pytest.mark.fault(546)
def test_equal_tasks_run_once_at_a_time(start: Start, tmp_path: Path) -> None:
    """Of two workers, one runs a task, and the other skips an equal one. A killed worker's task runs once more.

    It waits for the session of the dead one to end. A task that nothing brings again is lost, and holds nothing up.
    """
    for n in range(2):
        start("celery", "--app", "tests.integration.celery_app", "worker", "--concurrency", "2", "--hostname", f"{n}@h")
    app = celery_app(tmp_path)

    def send(what: str) -> Any:
        return app.send_task("slow", [what], expires=PATIENCE)

    def runs(what: str) -> list[int]:
        file = tmp_path / f"{what}.runs"
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    first = send("a")
    [pid] = eventually(lambda: runs("a"), patience=PATIENCE)
    assert send("a").get(PATIENCE) is None
    other = send("b")
    eventually(lambda: runs("b"), patience=PATIENCE)
    assert len(runs("a")) == 1
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(runs("a")) == 2, patience=PATIENCE)
    (tmp_path / "a").touch()
    assert first.get(PATIENCE) == "a is done"
    [pid] = runs("b")
    os.killpg(os.getpgid(pid), signal.SIGKILL)
    (tmp_path / "b").touch()
    assert eventually(lambda: send("b").get(PATIENCE), patience=PATIENCE) == "b is done"
    assert len(runs("b")) == 2
    assert not other.ready()


@pytest.fixture
def app(zookeeper: Server, zk_path: str) -> Iterator[Celery]:
    """An app whose tasks run where they are called."""
    app = Celery("app", set_as_current=False)
    app.conf.zkconcurrent_url = f"zk://{zookeeper.hosts}{zk_path}"
    yield app
    for client in [client for url, client in _clients.items() if url == app.conf.zkconcurrent_url]:
        client.stop()
        client.close()


def reports() -> str:
    """Report."""
    return "reported"


def test_which_tasks_are_equal(app: Celery, zk: KazooClient, zk_path: str, caplog: pytest.LogCaptureFixture) -> None:
    """Those of one path: by default, of one name and the same arguments. One that is skipped returns None."""

    @app.task(base=Once, name="report")
    def report(user: int, text: str = "all") -> str:
        if text == "late":
            raise TimeoutError(text)
        return f"{text} of {user}"

    with RLock(zk, f"{zk_path}/celery/app/once/report/7/all"), caplog.at_level(logging.INFO):
        assert report.apply([7]).get() is None
        assert report(user=7) is None
        assert report.apply([7, "some"]).get() == "some of 7"
    skipped = [each.message for each in caplog.records if each.name == "zkconcurrent.celery"]
    assert len(skipped) == 2
    assert all("is skipped: not acquired" in each and f"process {os.getpid()}" in each for each in skipped)
    assert report.apply([7]).get() == "all of 7"
    with pytest.raises(TimeoutError, match="late"):
        report.apply([7, "late"]).get()
    with pytest.raises(ValueError, match="report has no argument 'nobody'"):
        app.task(report.__wrapped__, base=Once, name="other.report", path="/reports/{nobody}", shared=False).apply([7])
    app.conf.zkconcurrent_url = None
    with pytest.raises(ImproperlyConfigured, match="set zkconcurrent_url"):
        report.apply([7]).get()


def test_any_class_and_any_id(app: Celery, zk: KazooClient, zk_path: str) -> None:
    """A class of tasks with an `__init__` of its own, which calls no other, and ids that are no labels of locks."""

    class Report(Once):
        name, path = "own.report", "/report"

        def __init__(self) -> None:
            self.greeting = "hello"

        def run(self) -> str:
            return f"{self.greeting}: {RLock(zk, f'{zk_path}/report').owner()}"

    report = app.register_task(Report())
    with RLock(zk, f"{zk_path}/report"):
        assert report.apply().get() is None
    for task_id in ("a", "nightly-report-of-all-orders/" * 5, "two\nlines"):
        assert report.apply(task_id=task_id).get().startswith("hello: ")


def test_a_task_that_is_given_out_again(app: Celery, zk: KazooClient, zk_path: str) -> None:
    """While its first run goes on, the second one ends without a result, which would take the place of that one's."""
    app.conf.zkconcurrent_url += "?timeout=3"
    report = app.task(reports, base=Once, name="again", path="/again", shared=False)
    with namespace(zk, zk_path, label="the id").RLock("again"):
        assert report.apply(task_id="the id").state == "IGNORED"
        assert report.apply(task_id="another").state == "SUCCESS"
    assert report.apply(task_id="the id").get() == "reported"


def test_once_in_a_period(app: Celery, caplog: pytest.LogCaptureFixture) -> None:
    """A task that has run in the period is skipped, and the log says when it ran; a retry runs `until_success`."""
    runs: list[str] = []

    @app.task(base=Once, name="report", path="/reports/{user}", once_per=3600, until_success=True, bind=True)
    def report(self: Any, user: str) -> str:
        runs.append(user)
        if len(runs) == 1:
            raise self.retry(countdown=0)
        return "reported"

    assert report.apply(["{a}"]).get() == "reported"
    with caplog.at_level(logging.INFO):
        assert report.apply(["{a}"]).get() is None
    assert "it last ran at" in caplog.text
    assert report.apply(["b"]).get() == "reported"
    assert runs == ["{a}", "{a}", "b"]


def test_times_of_other_clocks(
    app: Celery, zk: KazooClient, zk_path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of an entry whose clock has no zone is UTC. Of one that was sent in days to come, the log warns."""
    naive = schedule(0.01, nowfun=lambda: datetime.now(timezone.utc).replace(tzinfo=None))
    entries = {"naive": {"task": "naive", "schedule": naive}, "wrong": {"task": "wrong", "schedule": 0.01}}
    app.conf.update(broker_url="memory://", beat_schedule=entries)
    runs = SharedValue(zk, f"{zk_path}/celery/app/runs", {"token": 0, "runs": {}}, codec=JSON)
    runs.set({"token": 0, "runs": {"wrong": time.time() + 1e6}})
    beat, tasks = Beat(app), list[str]()
    beat.send_task = lambda name, *_, **__: tasks.append(name)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        eventually(lambda: beat.tick() >= 0 and len(tasks) > 2)
    time.tzset()
    assert {*tasks} == {"naive"}
    assert abs(runs.get().value["runs"]["naive"] - time.time()) < PATIENCE
    assert f"wrong was last sent at {datetime.now(timezone.utc) + timedelta(seconds=1e6):%Y-%m-%d}" in caplog.text
    assert f"delete {runs.path.removeprefix(zk_path)}" in caplog.text
    beat.close()
