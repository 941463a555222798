"""`zkconcurrent ls` and `show`: who holds, who waits, behind whom; for people and as JSON; and nothing is written."""

from __future__ import annotations

import json
import os
import socket
import sys
import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.command.conftest import READS, Call, Run, document, end_of, words
from tests.conftest import Connect, InThread
from tests.helpers.contenders import children
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent._command.terminal import age

ODD_NAME = "_c_9e1d9d52-b8a8-4b62-bc3b-000000000001-lock-"


def brief(found: dict[str, Any], base: str) -> list[tuple[str, str, str | None, str]]:
    """Return path, type, mode and state of each contender."""
    return [
        (each["path"].removeprefix(f"{base}/"), each["type"], each["mode"], each["state"])
        for each in found["contenders"]
    ]


@pytest.fixture
def locks(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> Iterator[list[Any]]:
    """One lock of each kind is held, and waited for; beside them are primitives that are no locks."""
    other = connect()
    held = [
        zkconcurrent.Lock(zk, f"{zk_path}/a/lock-a"),
        zkconcurrent.ReadWriteLock(zk, f"{zk_path}/b").read_lock,
        zkconcurrent.Semaphore(zk, f"{zk_path}/c", 1, label="night run"),
        zkconcurrent.DetachedLock(zk, f"{zk_path}/d", "me"),
    ]
    waits = [
        zkconcurrent.Lock(other, f"{zk_path}/a/lock-a"),
        zkconcurrent.ReadWriteLock(other, f"{zk_path}/b").write_lock,
        zkconcurrent.Semaphore(other, f"{zk_path}/c", 1),
        zkconcurrent.Semaphore(connect(), f"{zk_path}/c", 1),
    ]
    zkconcurrent.Queue(zk, f"{zk_path}/queue").put(b"item")
    zkconcurrent.Event(zk, f"{zk_path}/event").set()
    for lock in held:
        lock.acquire()

    def use(lock: Any) -> None:
        with lock:
            pass

    uses = [in_thread(use, lock) for lock in waits]
    eventually(lambda: [len(lock.waiters()) for lock in held] == [1, 1, 2, 0])
    yield held
    for lock in held:
        lock.release()
    for each in uses:
        each.result()


def test_all_kinds(call: Call, zk: KazooClient, zk_path: str, locks: list[Any]) -> None:
    """Each kind of lock, in each mode: held and waited for; other primitives are no locks, and no error."""
    found = document(call("ls", "-r", zk_path, "--json"))
    assert found["schema"] == "zkconcurrent.ls/1"
    assert brief(found, zk_path) == [
        *(("a/lock-a", "Lock", None, "held"), ("a/lock-a", "Lock", None, "waits")),
        *(("b", "ReadWriteLock", "read", "held"), ("b", "ReadWriteLock", "write", "waits")),
        *(("c", "Semaphore", "permit", "held"), *[("c", "Semaphore", "permit", "waits")] * 2),
        ("d", "DetachedLock", None, "held"),
    ]
    held, waiting, *_ = found["contenders"]
    assert (held["host"], held["pid"], held["thread"]) == (socket.gethostname(), os.getpid(), "MainThread")
    assert held["token"] == str(locks[0].fencing_token)
    assert int(held["session"], 16) == zk.client_id[0] % 2**64
    assert waiting["blocker"] == held["node"].rpartition("/")[2]
    assert 0 <= held["queued_for"] < 600
    assert datetime.fromisoformat(held["queued_at"]) == locks[0].owner().queued
    # A single look tells nothing by that.
    assert held["first_seen_holding"] is None
    # One level: those of `a/lock-a` are further down.
    assert {path for path, *_ in brief(document(call("ls", zk_path, "--json")), zk_path)} == {"b", "c", "d"}
    more = "zkconcurrent: there are nodes further below: `ls -r {}` looks at all\n"
    assert call("ls", zk_path)[2] == more.format(zk_path)
    nothing = f"{zk_path}/a has no lock that anybody holds or waits for\n"
    assert call("show", f"{zk_path}/a")[1:] == (nothing, more.format(f"{zk_path}/a"))
    for path in ("a/lock-a", "b", "c", "d"):
        shown = document(call("show", f"{zk_path}/{path}", "--json"))
        assert shown["schema"] == "zkconcurrent.show/1"
        same = [each["node"] for each in found["contenders"] if each["path"] == f"{zk_path}/{path}"]
        assert [each["node"] for each in shown["contenders"]] == same


@pytest.mark.usefixtures("locks")
def test_the_table(call: Call, zk_path: str) -> None:
    """A line has a label in place of the thread; with `--wide` also the token, the session and the names of nodes.

    `--sort waiters`: a line for each path, the most awaited first, with how many wait there, and who holds.
    """
    found = document(call("ls", "-r", zk_path, "--json"))["contenders"]
    code, out, err = call("ls", "-r", zk_path)
    heads, *lines = out.splitlines()
    assert (code, err, "TOKEN" in heads) == (0, "", False)
    assert [line.split()[0] for line in lines] == [each["path"] for each in found]
    assert [each["label"] for each in found if each["label"]] == ["night run"]
    assert next(line[heads.index("WHO") :] for line in lines if " permit " in line) == "night run"
    assert "(label 'night run'), queued " in call("show", f"{zk_path}/c")[1]
    wide = [tuple(line.split()[-4:]) for line in call("ls", "-r", "--wide", zk_path)[1].splitlines()]
    cells = [
        (each["token"], each["session"], each["node"].rpartition("/")[2], each["blocker"] or "-") for each in found
    ]
    assert wide == [("TOKEN", "SESSION", "NODE", "BEHIND"), *cells]
    heads, *lines = call("ls", "-r", zk_path, "--sort", "waiters")[1].splitlines()
    counts = [(2, "c"), (1, "a/lock-a"), (1, "b"), (0, "d")]
    assert [line.split()[:2] for line in lines] == [[str(n), f"{zk_path}/{name}"] for n, name in counts]
    assert heads.split()[:2] == ["WAIT", "PATH"]


@pytest.mark.parametrize("layout", ["selector", "latch"])
def test_candidates(call: Call, zk: KazooClient, connect: Connect, zk_path: str, layout: str) -> None:
    """The columns of a candidate are those of a lock's contender: its host and process, and what it contends for."""
    first, second = (zkconcurrent.Election(client, f"{zk_path}/two", layout=layout) for client in (zk, connect()))
    with first.lead():
        second.stand()
        eventually(lambda: len(second.candidates()) == 2)
        found = document(call("ls", second.path, "--json"))
        assert brief(found, zk_path) == [("two", "Election", None, state) for state in ("held", "waits")]
        for each in found["contenders"]:
            assert (each["host"], each["pid"], each["thread"]) == (socket.gethostname(), os.getpid(), None)
        assert f"  held: process {os.getpid()} on host {socket.gethostname()!r}" in call("show", second.path)[1]
    second.withdraw()


def test_show_for_people(call: Call, run: Run, zk: KazooClient, zk_path: str, url: str) -> None:
    """`show` says in words who holds, who waits and until when, behind whom, and what it holds meanwhile.

    That is a path as `show` takes it, with a URL that has a chroot, too.
    """
    outer, inner = f"{zk_path}/outer", f"{zk_path}/inner"
    with zkconcurrent.RLock(zk, inner):
        process = run(outer, "--", *words("-w", 1000, inner, "--", "true"))
        eventually(lambda: len(children(zk, inner)) == 2)
        code, out, err = call("show", inner)
        below = call("show", "/inner", url=url.replace("?", f"{zk_path}?"))[1]
    assert (code, err) == (0, "")
    lines = [line.strip() for line in out.splitlines()]
    assert lines[0] == f"{inner}: Lock"
    assert lines[1].startswith(f"held: thread 'MainThread' of process {os.getpid()} on host ")
    assert lines[4].startswith("1. waiting: thread 'zkconcurrent run true' of process ")
    assert any(line.startswith("gives up after ") for line in lines)
    assert any(line.startswith("behind _c_") for line in lines)
    assert any(line.startswith(f"holds meanwhile {outer} ") for line in lines)
    assert "\n    holds meanwhile /outer (" in below
    assert end_of(process)[0] == 0


@pytest.mark.fault(427, 443, 444)
def test_a_queue(call: Call, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A consumer holds each item that it has taken; a consumer or producer that waits is shown as a waiter."""
    idle, full = zkconcurrent.Queue(zk, f"{zk_path}/idle"), zkconcurrent.Queue(connect(), f"{zk_path}/full", maxsize=1)
    full.put(b"first")
    waiting = [in_thread(idle.get), in_thread(full.put, b"second")]
    eventually(lambda: children(zk, f"{idle.path}/consumers") and children(zk, f"{full.path}/producers"))
    consumer, producer = ("idle", "Queue", "consumer", "waits"), ("full", "Queue", "producer", "waits")
    with full.claim():
        assert brief(document(call("ls", "-r", zk_path, "--json")), zk_path) == [
            ("full", "Queue", "claim", "held"),
            producer,
            consumer,
        ]
        lines = call("show", full.path)[1].splitlines()
        assert lines[1].startswith(f"  held (claim): thread 'MainThread' of process {os.getpid()} on host ")
        assert ", claimed " in lines[1]
    # Fault 444: a part of it, by its own path.
    assert brief(document(call("show", f"{zk_path}/idle/consumers", "--json")), zk_path) == [consumer]
    assert "1. waiting (consumer): thread " in call("show", idle.path)[1]
    idle.put(b"item")
    for each in waiting:
        each.result()


@pytest.mark.fault(311)
def test_the_root_of_a_chroot(call: Call, zk: KazooClient, zk_path: str, url: str) -> None:
    """With a chroot in the URL, / is that node, which another program, whose URL has none, may lock."""
    there = url.replace("?", f"{zk_path}?")
    with zkconcurrent.Lock(zk, f"{zk_path}/a"):
        for command in (("ls",), ("ls", "-r"), ("ls", "-r", "/")):
            (found,) = document(call(*command, "--json", url=there))["contenders"]
            assert found["path"] == "/a"
    zk.create(f"{zk_path}/_c_{uuid.uuid4()}-lock-", b"other", ephemeral=True, sequence=True)
    for command in (("ls",), ("show", "/")):
        (found,) = document(call(*command, "--json", url=there))["contenders"]
        assert (found["path"], found["host"]) == ("/", "other")


@pytest.mark.fault(408)
@pytest.mark.parametrize(
    ("text", "shown"), [("evil\x1b[2J\r\n\x07\u202e", "evil\\x1b[2J\\r\\n\\x07\\u202e"), (None, "Lock")]
)
def test_a_stranger_s_data(call: Call, zk: KazooClient, zk_path: str, text: str | None, shown: str) -> None:
    """What a stranger has written can't control the terminal or break the JSON; it may have written nothing."""
    zk.create(f"{zk_path}/{ODD_NAME}", text and text.encode(), sequence=True, makepath=True)
    for command in ("ls", "show"):
        code, out, err = call(command, zk_path)
        assert (code, err, shown in out) == (0, "", True)
        assert not set(out) & set("\x1b\r\x07\u202e")
    (found,) = document(call("ls", zk_path, "--json"))["contenders"]
    assert found["host"] == text


@pytest.mark.fault(303)
def test_a_stranger_s_megabyte(call: Call, zk: KazooClient, zk_path: str) -> None:
    """A text, name or number of any length leaves the lines readable; JSON has all of it that JSON can have."""
    text, us = "x" * 900_000, {"host": "h", "pid": 1, "thread": "t"}
    # Python reads no number of more digits, and writes none.
    digits = "9" * 4300
    for name, data in {
        "0": text,
        "1": json.dumps({**us, "holds": [[text[:800], "n"]] * 999}),
        "2": json.dumps(us)[:-1] + ', "timeout": 1e999}',
        "3": json.dumps({**us, "holds": [["/a", "n"]] * 17})[:-1] + f', "timeout": {digits}}}',
        "4": f'{{"host": "h", "pid": {digits}, "thread": "t"}}',
        "5": json.dumps({**us, "owner": "o"})[:-1] + f', "token": {digits}}}',
    }.items():
        zk.create(f"{zk_path}/{name}/{ODD_NAME}", data.encode(), sequence=True, makepath=True)
        code, out, err = call("show", f"{zk_path}/{name}")
        assert (code, err, len(out) < 10_000) == (0, "", True)
    zk.create(f"{zk_path}/{text[:100_000]}/{ODD_NAME}", b"h", sequence=True, makepath=True)
    code, out, err = call("ls", zk_path)
    assert (code, err, out.count(" held "), len(out) < 110_000) == (0, "", 7, True)
    found = document(call("ls", zk_path, "--json"))["contenders"]
    assert found[0]["host"] == text
    assert [each["timeout"] for each in found] == [None] * 7
    assert all(int(each["token"]) < 1 << 63 for each in found)


def test_durations() -> None:
    """A duration has its two largest units."""
    told = {0.9: "0s", 59.9: "59s", 60: "1m 0s", 3600: "1h 0m", 86399: "23h 59m", 3 * 86400 + 7300: "3d 2h"}
    assert {seconds: age(seconds) for seconds in told} == told


@pytest.mark.fault(303)
def test_two_kinds_on_one_path(call: Call, zk: KazooClient, zk_path: str) -> None:
    """They do not wait for each other, so both hold, each by the rules of its kind; and each may be broken."""
    for role in ("lock-", "__READ__", "__WRIT__"):
        zk.create(f"{zk_path}/_c_{uuid.uuid4()}-{role}", ephemeral=True, sequence=True, makepath=True)
    found = document(call("show", zk_path, "--json"))["contenders"]
    assert sorted((each["type"], each["mode"] or "", each["state"]) for each in found) == [
        ("Lock", "", "held"),
        ("ReadWriteLock", "read", "held"),
        ("ReadWriteLock", "write", "waits"),
    ]
    lines = call("show", zk_path)[1].splitlines()
    assert sum("held (Lock)" in line or "held (ReadWriteLock, read)" in line for line in lines) == 2
    (reader,) = (each["token"] for each in found if each["mode"] == "read")
    assert call("break", zk_path, "-y", "--holder", reader, "--grace", 0)[0] == 0


@pytest.mark.parametrize("words", ["ls", "show", "deadlocks", "doctor"])
def test_nothing_is_written(call: Call, zk: KazooClient, zk_path: str, proxy: Proxy, words: str) -> None:
    """The commands only read, also where the chroot is missing: they make no node."""
    with zkconcurrent.Lock(zk, f"{zk_path}/a"), proxy.counting() as count:
        for chroot in ("/a", "/missing"):
            call(words, *[] if words == "doctor" else ["/"], url=f"zk://{proxy.hosts}{zk_path}{chroot}")
    names = {message.name for message in count.trace if message.kind == "request"}
    assert names <= {*READS, "sync", *(["getACL"] if words == "doctor" else [])}, names
    assert zk.exists(f"{zk_path}/missing") is None


def test_where_it_writes(shell: Run, zk: KazooClient, zk_path: str) -> None:
    """What the locale has no character for is escaped; a full disk is 74, with the reason; a closed output is quiet.

    So is a reader that has seen enough.
    """
    command, path = f"{sys.executable} -m zkconcurrent", f"{zk_path}/\u65e5"
    with zkconcurrent.Lock(zk, path):
        full = (74, "", "zkconcurrent: standard output: No space left on device\n")
        assert end_of(shell(f"{command} ls $1 >/dev/full", path)) == full
        assert end_of(shell(f"{command} ls $1 >&-", path)) == (0, "", "")
        code, out, err = end_of(shell(f"PYTHONIOENCODING=ascii {command} ls $1", path))
        assert (code, "\\u65e5" in out, err) == (0, True, "")
    # More than a pipe has room for.
    zk.create(f"{zk_path}/{'x' * 100_000}/{ODD_NAME}", sequence=True, makepath=True)
    code, out, err = end_of(shell(f"{command} ls $1 | head -n 1", zk_path))
    assert (code, out.split()[0], err) == (0, "PATH", "")
