"""`--once-per`: one start in each period, on all machines together, whatever dies."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress

import pytest
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import ConnectionLoss, NoNodeError

import zkconcurrent
from tests.command.conftest import SESSION, Run, end_of
from tests.conftest import Connect, InThread
from tests.helpers.contenders import children
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import LockLostError
from zkconcurrent._command.holder import _as_command_error
from zkconcurrent._command.once import Mark
from zkconcurrent.testing import Server

HOUR = 3300


def mark(zk: KazooClient, path: str) -> bool:
    """Return whether the mark is there."""
    return zk.exists(f"{path}.once") is not None


def test_of_three_machines_one_runs(run: Run, zk: KazooClient, zk_path: str) -> None:
    """Three machines start the job in the same minute, also while the first one's job takes longer than the period."""
    with zkconcurrent.Lock(zk, zk_path):
        three = [run("--once-per", 1, zk_path, "--", "sh", "-c", "echo ran; sleep 1.5") for _ in range(3)]
        eventually(lambda: len(children(zk, zk_path)) == 4)
    found = sorted(end_of(each) for each in three)
    assert found == [(0, "", ""), (0, "", ""), (0, "ran\n", "")]


def test_the_next_period(run: Run, zk: KazooClient, zk_path: str) -> None:
    """Once the mark is as old as the period, the job runs again; until then a skip has the code that was asked for.

    Also if that is the code of a lock that was not got, for which `-E` asked for another one.
    """
    assert end_of(run("--once-per", HOUR, zk_path, "--", "echo", "ran"))[1] == "ran\n"
    assert end_of(run("--once-per", HOUR, "--skip-code", 9, zk_path, "--", "echo", "ran")) == (9, "", "")
    assert end_of(run("--once-per", HOUR, "--skip-code", 75, "-E", 3, zk_path, "--", "true")) == (75, "", "")
    assert end_of(run("--once-per", 0, zk_path, "--", "echo", "ran"))[1] == "ran\n"
    assert children(zk, zk_path) == []


@pytest.mark.parametrize("until_success", [False, True], ids=["at most once", "until success"])
@pytest.mark.parametrize("killed", [False, True], ids=["fails", "killed"])
def test_a_job_that_fails(run: Run, zk: KazooClient, zk_path: str, killed: bool, until_success: bool) -> None:
    """With --until-success it runs again until one run has ended with 0; else it is not made up for."""
    options = ["--once-per", HOUR, *["--until-success"] * until_success, zk_path, "--"]
    process = run(*options, "sh", "-c", "echo ready; read line; exit 3", stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    if killed:
        process.kill()
    assert end_of(process)[0] == (-signal.SIGKILL if killed else 3)
    assert mark(zk, zk_path) is not until_success
    for is_next in (True, False) if until_success else (False,):
        assert end_of(run(*options, "echo", "ran")) == (0, "ran\n" if is_next else "", "")
        assert mark(zk, zk_path)


@pytest.mark.parametrize("back", [False, True], ids=["out of reach", "an outage"])
def test_a_success_out_of_reach(run: Run, zk: KazooClient, zk_path: str, proxy: Proxy, back: bool) -> None:
    """The mark of a success waits for ZooKeeper as long as the hold lasts; if that was too short, a line says so."""
    far = f"zk://{proxy.hosts}?timeout={SESSION:g}"
    options = ["--on-lost", "ignore", "--once-per", HOUR, "--until-success", zk_path, "--"]
    process = run(*options, "sh", "-c", "echo ready; read line", stdin=subprocess.PIPE, url=far)
    assert process.stdout.readline() == "ready\n"
    proxy.refuse()
    proxy.cut()
    process.stdin.write("\n")
    process.stdin.flush()
    if back:
        # Longer than a release is waited for.
        time.sleep(1.3)
        proxy.resume()
    code, _, err = end_of(process)
    if back:
        assert (code, err) == (0, "")
    else:
        assert (code, "another run may not learn that the command has succeeded" in err) == (0, True)
    assert bool(mark(zk, zk_path)) == back


@pytest.mark.fault(330)
def test_a_late_start(connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A run that waited behind a dead machine does not cost the next period its own; older ones skip."""
    zk, *others = (connect() for _ in range(4))
    dies, late, behind, following = (zkconcurrent.Lock(client, zk_path) for client in (zk, *others))
    dies.acquire()
    queued = in_thread(late.acquire)
    eventually(lambda: len(children(zk, zk_path)) == 2)
    passed = time.monotonic() + 0.6
    eventually(lambda: time.monotonic() > passed)
    older = in_thread(behind.acquire)
    eventually(lambda: len(children(zk, zk_path)) == 3)
    dies.release()
    queued.result()
    assert Mark(late.client, zk_path, 0.5, until_success=False).allows(late)
    late.release()
    older.result()
    assert not Mark(behind.client, zk_path, 0.5, until_success=False).allows(behind)
    behind.release()
    with following:
        assert Mark(following.client, zk_path, 0.5, until_success=False).allows(following)


@pytest.mark.fault(330)
def test_a_long_job(connect: Connect, zk_path: str) -> None:
    """A job that takes most of the period, and then succeeds, runs again in the next period."""
    first, second = zkconcurrent.Lock(connect(), zk_path), zkconcurrent.Lock(connect(), zk_path)
    with first:
        mark = Mark(first.client, zk_path, 0.5, until_success=True)
        assert mark.allows(first)
        passed = time.monotonic() + 0.6
        eventually(lambda: time.monotonic() > passed)
        mark.succeeded(first)
    with second:
        assert Mark(second.client, zk_path, 0.5, until_success=True).allows(second)


@pytest.mark.fault(430)
@pytest.mark.parametrize("late", [False, True], ids=["behind the job", "behind a late job"])
def test_a_run_that_queues_again(
    connect: Connect, zookeeper: Server, zk_path: str, late: bool, in_thread: InThread
) -> None:
    """A run whose session expires while it waits skips, as if it had stayed in its place."""
    first, second = zkconcurrent.Lock(connect(), zk_path), zkconcurrent.Lock(connect(), zk_path)
    period = 0.4
    first.acquire()
    began = time.monotonic()
    ran = Mark(first.client, zk_path, period, until_success=False)
    if late:
        eventually(lambda: time.monotonic() > began + period)
    mark = Mark(second.client, zk_path, period, until_success=False)
    queued = in_thread(second.acquire)
    eventually(lambda: len(children(first.client, zk_path)) == 2)
    before = children(first.client, zk_path)
    assert ran.allows(first)
    if not late:
        eventually(lambda: time.monotonic() > began + period)
    zookeeper.expire(second.client)
    eventually(lambda: len(now := children(first.client, zk_path)) == 2 and now != before)
    first.release()
    queued.result()
    assert not mark.allows(second)
    second.release()
    with first:
        runs = Mark(first.client, zk_path, period, until_success=False)
        assert runs.allows(first)


@pytest.mark.parametrize(
    ("data", "runs"),
    [
        (f'{{"queued": {int(1000 * (time.time() + ahead))}}}', runs)
        for ahead, runs in ((2 * HOUR, True), (HOUR / 2, False))
    ]
    + [(text, False) for text in ("", "{", "[]", '{"queued": "x"}', "[" * 100_000)],
    ids=["far ahead", "ahead", "empty", "cut", "list", "text", "deep"],
)
def test_a_mark_of_another_clock(zk: KazooClient, zk_path: str, data: str, runs: bool) -> None:
    """A mark that is later by more than the period is of a clock that was set back; one made by hand counts as new."""
    zk.create(f"{zk_path}.once", data.encode(), makepath=True)
    with (lock := zkconcurrent.Lock(zk, zk_path)):
        assert Mark(zk, zk_path, HOUR, until_success=False).allows(lock) is runs


@pytest.mark.parametrize("lost", ["lose_answer", "lose_request"])
def test_the_reply_to_the_mark_is_lost(run: Run, zk: KazooClient, zk_path: str, proxy: Proxy, lost: str) -> None:
    """If the connection drops as the mark is written, it is written once, and the job runs once."""
    far = f"zk://{proxy.hosts}?timeout={SESSION:g}"
    # So that the lock's node is made by a request of its own.
    with zkconcurrent.Lock(zk, zk_path):
        pass
    fault = getattr(proxy, lost)("multi")
    process = run("--once-per", HOUR, zk_path, "--", "echo", "ran", url=far)
    fault.wait()
    assert end_of(process) == (0, "ran\n", "")
    _, stat = zk.get(f"{zk_path}.once")
    assert stat.version == 0
    assert end_of(run("--once-per", HOUR, zk_path, "--", "echo", "ran")) == (0, "", "")


@pytest.mark.fault(430)
def test_a_mark_that_takes_long(run: Run, zk: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """-w is for the lock: a run that has it in time starts its job, however long it takes to write the mark.

    No other run would: the mark says that the job of this period has started.
    """
    with zkconcurrent.Lock(zk, zk_path):
        pass
    written = proxy.hold("multi")
    process = run("--once-per", HOUR, "-w", 5, zk_path, "--", "echo", "ran", url=f"zk://{proxy.hosts}?timeout=20")
    written.wait()
    assert process.poll() is None
    # What waits for this test alone ends within the hold.
    with suppress(subprocess.TimeoutExpired):
        process.wait(6.2)
    written.release()
    assert end_of(process) == (0, "ran\n", "")


@pytest.mark.fault(304)
def test_a_follower_that_lags(zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the reply is lost, and the next server does not show the mark yet, the write counts all the same."""
    mark = Mark(zk, zk_path, HOUR, until_success=False)
    commit, shown = TransactionRequest.commit, iter([False])

    def lose_the_reply(transaction: TransactionRequest) -> list[object]:
        results = commit(transaction)
        if transaction.operations[-1].path.endswith(".once") and not isinstance(results[-1], Exception):
            raise ConnectionLoss
        return results

    is_written = mark._is_written
    monkeypatch.setattr(TransactionRequest, "commit", lose_the_reply)
    monkeypatch.setattr(mark, "_is_written", lambda data: next(shown, is_written(data)))
    # The next attempt sees no mark either, and so tries to create it.
    exists, seen = zk.exists, iter([None, None])
    monkeypatch.setattr(zk, "exists", lambda path: next(seen, None) if path.endswith(".once") else exists(path))
    with (lock := zkconcurrent.Lock(zk, zk_path)):
        assert mark.allows(lock)
    assert zk.get(f"{zk_path}.once")[1].version == 0


def test_a_lost_lock_marks_nothing(run: Run, zk: KazooClient, zk_path: str) -> None:
    """A success after the lock was lost does not count: 76, and no mark."""
    options = ["--once-per", HOUR, "--until-success", zk_path, "--"]
    process = run(*options, "sh", "-c", "echo ready; read line", stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    zk.delete(f"{zk_path}/{children(zk, zk_path)[0]}")
    assert process.communicate("\n")[1] != ""
    assert process.returncode == 76
    with pytest.raises(NoNodeError):
        zk.get(f"{zk_path}.once")


def test_a_loss_noticed_at_the_mark(zk: KazooClient, zk_path: str) -> None:
    """If the thread that writes the mark is the first to notice the loss, the end is 76, as for any other loss."""
    lock = zkconcurrent.Lock(zk, zk_path)
    lock.acquire()
    lost = lock.lost
    zk.delete(f"{zk_path}/{children(zk, zk_path)[0]}")
    eventually(lost.is_set)
    with pytest.raises(LockLostError) as noticed:
        Mark(zk, zk_path, HOUR, until_success=True).succeeded(lock)
    ends = _as_command_error(noticed.value)
    assert ends.code == 76
    with pytest.raises(LockLostError):
        lock.release()
