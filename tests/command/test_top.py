"""`zkconcurrent top`: the busiest paths first; few requests, whatever there is; hardly any processor time."""

from __future__ import annotations

import bisect
import json
import os
import socket
import subprocess
import sys
import threading
import uuid
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

import zkconcurrent
from tests.command.conftest import Run, end_of
from tests.command.test_look import look
from tests.command.test_watch import Screen, Told, interrupt, screen
from tests.conftest import Connect, InThread
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent._command.server import link_of
from zkconcurrent._command.top import Crawl
from zkconcurrent._kazoo.replies import Reply

__all__ = ["look", "screen"]

CROWD = """
import sys, threading, time, zkconcurrent

def work(lock):
    while True:
        with lock:
            time.sleep(0.2)

with zkconcurrent.connect(sys.argv[1]) as zk:
    for n in range(int(sys.argv[3])):
        lock = zkconcurrent.Lock(zk, f"{sys.argv[2]}/{n % 20}")
        threading.Thread(target=work, args=(lock,), daemon=True).start()
    sys.stdin.read()
"""


def rows(line: str, base: str) -> dict[str, dict[str, Any]]:
    """Return the rows of a line of JSON by their paths, in order."""
    return {row["path"].removeprefix(f"{base}/"): row for row in json.loads(line)["rows"]}


def seconds_of(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_busiest_are_first(look: Run, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A path that contenders leave stands before one where they wait; each row has who holds, since when."""
    stop = threading.Event()
    still = zkconcurrent.Lock(zk, f"{zk_path}/deep/still")
    permits = zkconcurrent.Semaphore(zk, f"{zk_path}/permits", 2)
    zkconcurrent.Queue(zk, f"{zk_path}/queue").put(b"item")
    still.acquire()
    permits.acquire(permits=2)

    def wait(lock: Any) -> None:
        with lock:
            pass

    def be_busy(lock: Any) -> None:
        while not stop.is_set():
            with lock:
                stop.wait(0.01)

    others = [
        *(zkconcurrent.Lock(connect(), still.path), zkconcurrent.Lock(connect(), still.path)),
        zkconcurrent.Semaphore(connect(), permits.path, 2),
    ]
    used = [in_thread(wait, lock) for lock in others]
    used.append(in_thread(be_busy, zkconcurrent.Lock(connect(), f"{zk_path}/busy")))
    eventually(lambda: len(still.waiters()) == 2 and len(permits.waiters()) == 1)
    process = look("top", zk_path, "--json", "--interval", 0.5)
    told = Told(process)
    eventually(lambda: told.lines and list(rows(told.lines[-1], zk_path)) == ["busy", "deep/still", "permits"])
    # Rates are known from the second look on.
    eventually(lambda: (rows(told.lines[-1], zk_path)["busy"]["left_per_s"] or 0) > 0.5)
    found = rows(told.lines[-1], zk_path)
    document = json.loads(told.lines[-1])
    assert (document["schema"], document["path"], document["unreadable"]) == ("zkconcurrent.top/1", zk_path, [])
    assert document["nodes"] > 5
    assert (found["deep/still"]["type"], found["deep/still"]["waits"], found["deep/still"]["held"]) == ("Lock", 2, 1)
    assert found["deep/still"]["left_per_s"] == 0
    holder = found["deep/still"]["holder"]
    assert (holder["host"], holder["pid"], holder["thread"]) == (socket.gethostname(), os.getpid(), "MainThread")
    assert (holder["token"], holder["state"]) == (str(still.fencing_token), "held")
    assert (found["permits"]["type"], found["permits"]["waits"], found["permits"]["held"]) == ("Semaphore", 1, 2)
    stop.set()
    # Once nobody comes or leaves any more, the other two are left.
    eventually(lambda: list(rows(told.lines[-1], zk_path)) == ["deep/still", "permits"])
    still.release()
    permits.release(2)
    eventually(lambda: not rows(told.lines[-1], zk_path))
    for each in used:
        each.result()
    interrupt(process)


def test_few_requests(look: Run, zk: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """In no second are there more than 100; a path that has not changed is not listed again; all are reads."""
    for n in range(150):
        name = f"{zk_path}/{n:03}/_c_9e1d9d52-b8a8-4b62-bc3b-{n:012}-lock-"
        zk.create(name, b"", sequence=True, makepath=True)
    with proxy.counting() as count:
        process = look("top", zk_path, "--json", "--interval", 0.2, url=f"zk://{proxy.hosts}")
        told = Told(process)
        eventually(lambda: told.lines and json.loads(told.lines[-1])["oldest_look"] is not None)
        first = len(told.lines)
        assert len(json.loads(told.lines[-1])["rows"]) == 20
        eventually(lambda: len(told.lines) > first + 20)
        changed = f"{zk_path}/149/_c_{'0' * 8}-b8a8-4b62-bc3b-000000000000-lock-"
        zk.create(changed, b"", sequence=True)
        eventually(lambda: rows(told.lines[-1], zk_path).get("149", {}).get("waits") == 1)
        interrupt(process)
    sent = [each for each in count.trace if each.kind == "request" and each.name not in ("connect", "closeSession")]
    assert {each.name for each in sent} <= {"exists", "getChildren", "getChildren2", "getData", "ping"}
    listed = [each.path for each in sent if each.name.startswith("getChildren")]
    assert sorted(listed) == sorted([zk_path, *(f"{zk_path}/{n:03}" for n in range(150)), f"{zk_path}/149"])
    times = [each.time for each in sent]
    # As they passed the proxy, which a busy machine may have kept waiting.
    assert max(bisect.bisect_left(times, at + 0.9) - n for n, at in enumerate(times)) <= 110
    assert len(times) / (times[-1] - times[0]) <= 100


def test_a_terminal(look: Run, zk: KazooClient, zk_path: str, screen: Screen) -> None:
    """People get a table, with the text of strangers escaped."""
    name = f"{zk_path}/_c_9e1d9d52-b8a8-4b62-bc3b-000000000001-lock-"
    zk.create(name, b"evil\x1b[2J\r", sequence=True, makepath=True)
    options = {"stdout": screen.slave, "env": {"TERM": "xterm", "NO_COLOR": "1"}}
    process = look("top", zk_path, "--interval", 0.1, **options)
    frame = eventually(lambda: screen.frames() and screen.frames()[-1])
    assert frame[0] == f"zkconcurrent top {zk_path}, every 0.1 s"
    assert frame[1].startswith("nodes: 1, all asked within the last ")
    assert frame[2].split() == ["PATH", "TYPE", "CAME/S", "LEFT/S", "WAITS", "HOLD", "HOLDER", "AGE"]
    assert frame[3].split()[:2] == [zk_path, "Lock"]
    assert "evil\\x1b[2J\\r - -" in frame[3]
    interrupt(process)


def test_its_end(look: Run, zk: KazooClient, zk_path: str) -> None:
    """-n ends it; what may not be read is told, 77; a missing path is 66; a path that is made again has no rate."""
    assert end_of(look("top", zk_path)) == (
        66,
        "",
        "zkconcurrent: there is no such path; `ls -r` lists what is there\n",
    )
    zk.ensure_path(zk_path)
    code, out, err = end_of(look("top", zk_path, "--json", "-n", 2, "--interval", 0.1))
    assert (code, len(out.splitlines()), err) == (0, 2, "")
    zk.create(f"{zk_path}/secret", acl=[make_acl("digest", "other:xyz", all=True)])
    # Of a node without children there is nothing to list.
    assert end_of(look("top", zk_path, "-n", 1))[0] == 0
    secret = f"{zk_path}/secret/child"
    with zkconcurrent.Lock(zk, f"{zk_path}/open"):
        client = KazooClient(",".join(f"{host}:{port}" for host, port in zk.hosts))
        client.start()
        client.add_auth("digest", "other:x")
        zk.delete(f"{zk_path}/secret")
        client.create(f"{zk_path}/secret", acl=[make_acl("auth", "", all=True)])
        client.create(secret)
        client.stop()
        client.close()
        code, out, err = end_of(look("top", zk_path, "--json", "-n", 1))
    assert (code, err) == (77, f"zkconcurrent: {zk_path}/secret may not be read by this client\n")
    assert list(rows(out, zk_path)) == ["open"]


def test_a_holder_that_may_not_be_read(look: Run, zk: KazooClient, zk_path: str) -> None:
    """It is told as such, and not as if nobody held; the code is 77."""
    hidden = [make_acl("digest", "other:xyz", all=True)]
    zk.ensure_path(zk_path)
    node = zk.create(f"{zk_path}/_c_{uuid.uuid4()}-lock-", acl=hidden, ephemeral=True, sequence=True)
    code, out, err = end_of(look("top", zk_path, "-n", 2, "--interval", 0.1))
    assert (code, err) == (77, f"zkconcurrent: {node} may not be read by this client\n")
    assert out.splitlines()[2].split(maxsplit=6)[6] == "may not be read  -"
    (_, last) = end_of(look("top", zk_path, "--json", "-n", 2, "--interval", 0.1))[1].splitlines()
    assert json.loads(last)["unreadable"] == [node]
    assert (rows(last, zk_path)[zk_path]["held"], rows(last, zk_path)[zk_path]["holder"]) == (1, None)


def test_an_outage(look: Run, zk: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """After an outage it lists what it could not; also where the path has gone, and come back, meanwhile."""
    zk.ensure_path(zk_path)
    lock = zkconcurrent.Lock(zk, f"{zk_path}/lock")
    lock.acquire()
    # Of the reads, the second lists the lock's own node.
    with proxy.lose_answer("getChildren", nth=2):
        process = look("top", zk_path, "--json", "--interval", 0.1, url=f"zk://{proxy.hosts}")
        told = Told(process)
        assert process.stderr.readline().endswith("; it is asked again and again\n")
        eventually(lambda: told.lines and list(rows(told.lines[-1], zk_path)) == ["lock"])
    proxy.refuse()
    proxy.cut()
    assert process.stderr.readline().endswith("; it is asked again and again\n")
    lock.release()
    zk.delete(zk_path, recursive=True)
    proxy.resume()
    eventually(lambda: not rows(told.lines[-1], zk_path))
    with lock:
        eventually(lambda: list(rows(told.lines[-1], zk_path)) == ["lock"])
        eventually(queued(zk, lock.path, 1))
    interrupt(process)


def test_paths_that_come_back(zk: KazooClient, zk_path: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 357. A path that goes and comes back between the batches is asked once in its turn, and may go again."""
    found = Namespace(do="top", url=url, url_file=None)
    for n in range(12):
        zk.create(f"{zk_path}/{n:02}", makepath=True)
    asked: list[str] = []
    with link_of(found) as link:
        crawl = Crawl(link, zk_path)
        send = link.exists

        def ask(path: str, reply: Reply) -> None:
            asked.append(path)
            send(path, reply)

        monkeypatch.setattr(link, "exists", ask)
        for turn in range(12):
            if turn in (3, 6):
                zk.delete(f"{zk_path}/00")
            elif turn == 4:
                zk.create(f"{zk_path}/00")
            # One batch.
            crawl.look(0)
            assert sorted(set(asked)) == sorted(asked)
            asked.clear()
    assert sorted(crawl.known) == [zk_path, *(f"{zk_path}/{n:02}" for n in range(1, 12))]


@pytest.mark.long
def test_beside_a_thousand_threads(look: Run, start: Run, zk: KazooClient, zk_path: str, url: str) -> None:
    """Beside 1,000 waiting threads, on 20 busy locks, it takes less than 5 % of a core."""
    crowd = start(
        sys.executable, "-c", CROWD, url.replace("timeout=6", "timeout=60"), zk_path, "1000", stdin=subprocess.PIPE
    )
    eventually(lambda: zk.exists(zk_path) and len(zk.get_children(zk_path)) == 20, patience=120)
    eventually(lambda: sum(len(zk.get_children(f"{zk_path}/{n}")) for n in range(20)) > 900, patience=120)
    process = look("top", zk_path, "--json")
    told = Told(process)
    eventually(lambda: len(told.lines) == 2, patience=120)
    before = seconds_of(process.pid)
    eventually(lambda: len(told.lines) == 8, patience=120)
    waiting = [sum(row["waits"] for row in rows(line, zk_path).values()) for line in told.lines]
    # Six times two seconds.
    assert (seconds_of(process.pid) - before) / 12 < 0.05
    assert max(waiting) > 800
    interrupt(process)
    crowd.kill()
