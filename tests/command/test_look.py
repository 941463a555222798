"""`zkconcurrent ls` and `show`: who holds, who waits, behind whom; for people and as JSON; and nothing is written."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import uuid
from datetime import datetime
from pathlib import Path
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


def brief(found: dict[str, Any], base: str) -> list[tuple[str, str, str | None, str]]:
    """Return path, type, mode and state of each contender."""
    return [
        (each["path"].removeprefix(f"{base}/"), each["type"], each["mode"], each["state"])
        for each in found["contenders"]
    ]


def test_all_kinds(call: Call, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Each kind of lock, in each mode: held and waited for; other primitives are no locks, and no error."""
    other = connect()
    locks = [
        *(zkconcurrent.Lock(zk, f"{zk_path}/a/lock"), zkconcurrent.ReadWriteLock(zk, f"{zk_path}/b").read_lock),
        *(zkconcurrent.Semaphore(zk, f"{zk_path}/c", 1), zkconcurrent.DetachedLock(zk, f"{zk_path}/d", "me")),
    ]
    waits = [
        *(zkconcurrent.Lock(other, f"{zk_path}/a/lock"), zkconcurrent.ReadWriteLock(other, f"{zk_path}/b").write_lock),
        zkconcurrent.Semaphore(other, f"{zk_path}/c", 1),
    ]
    zkconcurrent.Queue(zk, f"{zk_path}/queue").put(b"item")
    zkconcurrent.Event(zk, f"{zk_path}/event").set()
    for lock in locks:
        lock.acquire()

    def use(lock: Any) -> None:
        with lock:
            pass

    uses = [in_thread(use, lock) for lock in waits]
    eventually(lambda: all(lock.waiters() for lock in waits))
    found = document(call("ls", "-r", zk_path, "--json"))
    assert found["schema"] == "zkconcurrent.ls/1"
    assert brief(found, zk_path) == [
        *(("a/lock", "Lock", None, "held"), ("a/lock", "Lock", None, "waits")),
        *(("b", "ReadWriteLock", "read", "held"), ("b", "ReadWriteLock", "write", "waits")),
        *(("c", "Semaphore", "permit", "held"), ("c", "Semaphore", "permit", "waits")),
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
    # One level: those of `a/lock` are further down.
    assert {path for path, *_ in brief(document(call("ls", zk_path, "--json")), zk_path)} == {"b", "c", "d"}
    more = "zkconcurrent: there are nodes further below: `ls -r {}` looks at all\n"
    assert call("ls", zk_path)[2] == more.format(zk_path)
    assert call("ls", f"{zk_path}/a")[2] == ""
    assert call("show", f"{zk_path}/a")[1:] == (
        f"{zk_path}/a has no lock that anybody holds or waits for\n",
        more.format(f"{zk_path}/a"),
    )
    for path in ("a/lock", "b", "c", "d"):
        shown = document(call("show", f"{zk_path}/{path}", "--json"))
        assert shown["schema"] == "zkconcurrent.show/1"
        same = [each["node"] for each in found["contenders"] if each["path"] == f"{zk_path}/{path}"]
        assert [each["node"] for each in shown["contenders"]] == same
    code, out, err = call("ls", "-r", zk_path)
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:]] == [each["path"] for each in found["contenders"]]
    for lock in locks:
        lock.release()
    for each in uses:
        each.result()


@pytest.mark.parametrize("layout", ["selector", "latch"])
def test_candidates(call: Call, zk: KazooClient, connect: Connect, zk_path: str, layout: str) -> None:
    """The columns of a candidate are those of a lock's contender: its host and process, and what it contends for.

    The text of an id is no host; an address is one, as Curator writes it.
    """
    zk.create(f"{zk_path}/ids/java/_c_{uuid.uuid4()}-lock-", b"192.0.2.7", sequence=True, makepath=True)
    with zkconcurrent.Election(zk, f"{zk_path}/ids/own", id="eu-1", layout=layout).lead():
        _, java, own = call("ls", f"{zk_path}/ids")[1].splitlines()
    assert (java.split()[-3:], own.split()[-3:]) == (["192.0.2.7", "-", "-"], ["-", "-", "eu-1"])
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


@pytest.mark.fault(427)
def test_an_idle_worker(
    call: Call, zk: KazooClient, connect: Connect, zk_path: str, url: str, in_thread: InThread
) -> None:
    """`show` and `ls` name a consumer or producer that waits as a waiter, not as the holder of a lock.

    Folders of such names that hold locks are no `Queue`.
    """
    idle, full = zkconcurrent.Queue(zk, f"{zk_path}/idle"), zkconcurrent.Queue(connect(), f"{zk_path}/full", maxsize=1)
    full.put(b"first")
    waiting = [in_thread(idle.get), in_thread(idle.get), in_thread(full.put, b"second")]
    eventually(
        lambda: len(children(zk, f"{idle.path}/consumers")) == 2 and children(zk, f"{full.path}/producers") != []
    )
    there = url.replace("?", f"{zk_path}?")
    zk.ensure_path(f"{zk_path}/shop/items")
    lock = zkconcurrent.Lock(zk, f"{zk_path}/shop/consumers")
    with lock:
        found = brief(document(call("ls", "-r", zk_path, "--json")), zk_path)
        checks = document(call("doctor", "--json", url=there))["checks"]
    assert found == [
        ("full", "Queue", "producer", "waits"),
        *[("idle", "Queue", "consumer", "waits")] * 2,
        ("shop/consumers", "Lock", None, "held"),
    ]
    assert [each["value"] for each in checks if each["name"] == "paths"] == [1]
    _, out, _ = call("show", idle.path)
    assert [line.split(": ")[0].strip() for line in out.splitlines() if ": thread " in line] == [
        "1. waiting (consumer)",
        "2. waiting (consumer)",
    ]
    for item in (b"1", b"2"):
        idle.put(item)
    full.get()
    for each in waiting:
        each.result()


def test_a_holder_does_not_give_up(call: Call, run: Run, zk: KazooClient, zk_path: str) -> None:
    """A holder that had waited with a limit keeps its hold beyond that, and `show` does not end it there."""
    with zkconcurrent.Lock(zk, zk_path):
        process = run("-w", 60, zk_path, "--", "sh", "-c", "echo ready; exec sleep 600")
        eventually(lambda: len(children(zk, zk_path)) == 2)
        assert call("show", zk_path)[1].count("gives up after ") == 1
    assert process.stdout.readline() == "ready\n"
    assert "gives up" not in call("show", zk_path)[1]
    process.terminate()
    assert end_of(process)[0] == 128 + signal.SIGTERM


@pytest.mark.fault(443)
@pytest.mark.parametrize("kind", [zkconcurrent.Queue, zkconcurrent.LifoQueue, zkconcurrent.PriorityQueue])
def test_who_works_on_an_item(call: Call, zk: KazooClient, zk_path: str, kind: type[zkconcurrent.Queue[Any]]) -> None:
    """`show` and `ls` tell who has taken an item of a queue, and not acknowledged it."""
    queue = kind(zk, zk_path, codec=zkconcurrent.JSON)
    for item in ("1", "2"):
        queue.put((1, item) if kind is zkconcurrent.PriorityQueue else item)
    with queue.claim():
        (name,) = children(zk, f"{zk_path}/claims")
        told = document(call("show", zk_path, "--json"))
        assert brief(told, zk_path) == [(zk_path, "Queue", "claim", "held")]
        assert (told["contenders"][0]["pid"], told["contenders"][0]["thread"]) == (os.getpid(), "MainThread")
        assert told["contenders"][0]["node"] == f"{zk_path}/claims/{name}"
        lines = call("show", zk_path)[1].splitlines()
        assert lines[1].startswith(f"  held (claim): thread 'MainThread' of process {os.getpid()} on host ")
        assert ", claimed " in lines[1]
        assert lines[3] == f"    node {name}"
        assert brief(document(call("ls", "-r", zk_path, "--json")), zk_path) == [(zk_path, "Queue", "claim", "held")]
    assert call("show", zk_path)[1] == f"{zk_path} has no lock that anybody holds or waits for\n"


@pytest.mark.fault(450)
def test_what_is_below_no_item(call: Call, zk: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """Nobody lists an item of a queue, whatever its order; folders of a queue's names may hold locks."""
    delay = zkconcurrent.DelayQueue(zk, f"{zk_path}/delay")
    ranked = zkconcurrent.PriorityQueue(zk, f"{zk_path}/ranked", codec=zkconcurrent.JSON)
    for _ in range(3):
        delay.put(b"later", delay=3600)
        ranked.put((-1, "first"))
    for name in ("claims", "items", "members", "receipts"):
        zk.create(f"{zk_path}/shop/{name}", makepath=True)
    with zkconcurrent.Lock(zk, f"{zk_path}/shop/claims/7"), proxy.counting() as count:
        found = brief(document(call("ls", "-r", zk_path, "--json", url=f"zk://{proxy.hosts}")), zk_path)
    assert found == [("shop/claims/7", "Lock", None, "held")]
    listed = {each.path for each in count.trace if each.kind == "request" and each.name.startswith("getChildren")}
    assert f"{delay.path}/items" in listed
    assert [path for path in listed if "/queue-" in path] == []
    # Curator's queues, and those that no client uses, have fewer folders.
    zk.ensure_path(f"{zk_path}/java/items")
    for n, data in enumerate((b"192.0.2.7", b"192.0.2.8")):
        zk.create(f"{zk_path}/java/claims/queue-{n:010}", data, ephemeral=True, makepath=True)
    shown = document(call("show", f"{zk_path}/java", "--json"))
    assert brief(shown, zk_path) == [("java", "Queue", "claim", "held")] * 2
    assert [each["host"] for each in shown["contenders"]] == ["192.0.2.7", "192.0.2.8"]


@pytest.mark.fault(444)
def test_a_part_by_its_path(
    call: Call, zk: KazooClient, connect: Connect, zk_path: str, url: str, in_thread: InThread
) -> None:
    """A part of a queue, or of a semaphore, is told as such where it is named, or at the chroot, too."""
    queue, permits = zkconcurrent.Queue(zk, f"{zk_path}/q"), zkconcurrent.Semaphore(zk, f"{zk_path}/s", 1)
    permits.acquire()
    other = zkconcurrent.Semaphore(connect(), permits.path, 1)
    others = [in_thread(queue.get), in_thread(other.acquire)]
    eventually(lambda: children(zk, f"{queue.path}/consumers") != [] and permits.waiters() != [])
    told = {
        "q/consumers": [(queue.path, "Queue", "consumer", "waits")],
        "s/locks": [(permits.path, "Semaphore", "permit", "waits")],
        "s/leases": [(permits.path, "Semaphore", "permit", "held")],
    }
    for part, expected in told.items():
        for command in ("show", "ls"):
            assert brief(document(call(command, f"{zk_path}/{part}", "--json")), "-") == expected
    roots = {queue.path: ("/", "Queue", "consumer", "waits"), permits.path: ("/", "Semaphore", "permit", "held")}
    for path, first in roots.items():
        here = document(call("show", "/", "--json", url=url.replace("?", f"{path}?")))
        assert brief(here, "-")[0] == first
    queue.put(b"item")
    permits.release()
    for each in others:
        each.result()
    other.release()


@pytest.mark.fault(428)
@pytest.mark.parametrize("when", ["it loads", "its client starts"])
def test_an_interrupt_at_the_begin(start: Run, when: str) -> None:
    """Ctrl-C as the command begins ends it at once, and it writes nothing."""
    script = (
        "import builtins, sys\n"
        "import kazoo.client\n"
        "from zkconcurrent._command.main import main\n"
        "load = builtins.__import__\n"
        "def interrupted(name, *args):\n"
        "    if name == 'arguments': raise KeyboardInterrupt\n"
        "    return load(name, *args)\n"
        "def start(client):\n"
        # As at the end of the `clear` of this event.
        "    client._stopped.clear()\n"
        "    client._stopped._cond.acquire()\n"
        "    raise KeyboardInterrupt\n"
        "if sys.argv.pop(1) == 'it loads': builtins.__import__ = interrupted\n"
        "else: kazoo.client.KazooClient.start_async = start\n"
        "sys.exit(main())\n"
    )
    assert end_of(start(sys.executable, "-c", script, when, "ls"), timeout=20) == (-signal.SIGINT, "", "")


def test_labels(call: Call, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The table has a label in place of the thread; JSON has both, and so have the words of `show`.

    With `--wide`, a line has the token, the session and the names of nodes, too.
    """
    plain, named = f"{zk_path}/plain", f"{zk_path}/named"
    with zkconcurrent.Lock(zk, plain), zkconcurrent.Semaphore(connect(), named, label="night run"):
        code, out, _ = call("ls", zk_path)
        found = document(call("ls", zk_path, "--json"))
        shown = call("show", named)[1]
        wide = [line.split()[-4:] for line in call("ls", "--wide", zk_path)[1].splitlines()]
    assert code == 0
    nodes_of = [(each["token"], each["session"], each["node"].rpartition("/")[2], "-") for each in found["contenders"]]
    assert [*map(tuple, wide)] == [("TOKEN", "SESSION", "NODE", "BEHIND"), *nodes_of]
    assert "TOKEN" not in out
    heads, *lines = out.splitlines()
    assert [line[heads.index("WHO") :] for line in lines] == ["night run", "MainThread"]
    assert [each["label"] for each in found["contenders"]] == ["night run", None]
    assert "(label 'night run'), queued " in shown


def test_the_most_awaited_first(
    call: Call, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """`--sort waiters`: a line for each path, with how many wait there, and who holds; JSON has all, in that order."""
    makes = [
        lambda client: zkconcurrent.Lock(client, f"{zk_path}/a"),
        lambda client: zkconcurrent.Lock(client, f"{zk_path}/b"),
        lambda client: zkconcurrent.Semaphore(client, f"{zk_path}/c", 1),
    ]
    locks = [make(zk) for make in makes]
    for lock in locks:
        lock.acquire()

    def use(lock: Any) -> None:
        with lock:
            pass

    uses = [in_thread(use, makes[n](connect())) for n in (1, 2, 2)]
    eventually(lambda: [len(lock.waiters()) for lock in locks] == [0, 1, 2])
    code, out, err = call("ls", "-r", zk_path, "--sort", "waiters")
    assert (code, err) == (0, "")
    heads, *lines = out.splitlines()
    assert heads.split()[:2] == ["WAIT", "PATH"]
    assert [line.split()[:2] for line in lines] == [
        [str(n), f"{zk_path}/{name}"] for n, name in ((2, "c"), (1, "b"), (0, "a"))
    ]
    assert all({"held", socket.gethostname()} <= {*line.split()} for line in lines)
    found = brief(document(call("ls", zk_path, "--sort", "waiters", "--json")), zk_path)
    assert [(path, state) for path, _, _, state in found] == [
        *(("c", "held"), ("c", "waits"), ("c", "waits")),
        *(("b", "held"), ("b", "waits"), ("a", "held")),
    ]
    for lock in locks:
        lock.release()
    for each in uses:
        each.result()


@pytest.mark.fault(312)
def test_kazoos_own_locks(call: Call, zk: KazooClient, zk_path: str) -> None:
    """Their nodes do not tell who holds, so no command shows the path as if it were free, or breaks a hold there."""
    for name in "abc":
        assert zk.Lock(f"{zk_path}/{name}").acquire()
    told = f"zkconcurrent: kazoo's own recipes use {zk_path}/a and 2 more: their nodes do not tell who holds\n"
    assert call("ls", "-r", zk_path) == (0, "", told)
    code, out, err = call("show", f"{zk_path}/a")
    assert (code, "kazoo's own recipes use it" in out, err) == (0, True, "")
    code, _, err = call("break", f"{zk_path}/a", "-y", "--holder", 1)
    assert (code, "kazoo's own recipes use" in err) == (78, True)


@pytest.mark.fault(311)
def test_the_root_of_a_chroot(call: Call, zk: KazooClient, zk_path: str, url: str) -> None:
    """With a chroot in the URL, / is that node."""
    with zkconcurrent.Lock(zk, f"{zk_path}/a"):
        there = url.replace("?", f"{zk_path}?")
        for command in (("ls",), ("ls", "-r"), ("ls", "-r", "/")):
            (found,) = document(call(*command, "--json", url=there))["contenders"]
            assert found["path"] == "/a"
    # `/a` is empty, and goes at some time; until then a line says that there is more.
    assert call("show", "/", url=there)[:2] == (0, "/ has no lock that anybody holds or waits for\n")
    # Another program, whose URL has no chroot, may lock that very node.
    zk.create(f"{zk_path}/_c_{uuid.uuid4()}-lock-", b"other", ephemeral=True, sequence=True)
    for command in (("ls",), ("ls", "-r", "/"), ("show", "/")):
        (found,) = document(call(*command, "--json", url=there))["contenders"]
        assert (found["path"], found["host"]) == ("/", "other")


@pytest.mark.fault(429)
def test_a_path_beside_the_chroot(call: Call, zk: KazooClient, zk_path: str, url: str) -> None:
    """The message of a path that is not there names the chroot, or says that this is what is missing."""
    zk.ensure_path(zk_path)
    there, missing = (url.replace("?", f"{zk_path}{more}?") for more in ("", "/missing"))
    for command in ("show", "ls", "break"):
        more = ["-y", "--holder", 1] if command == "break" else []
        code, _, err = call(command, f"{zk_path}/a", *more, url=there)
        assert (code, f"no such path below {zk_path}, the chroot of the URL; `ls -r`" in err) == (66, True)
        code, _, err = call(command, "/a", *more, url=missing)
        assert (code, f"there is no {zk_path}/missing, the chroot of the URL" in err) == (66, True)


def test_where_the_url_is(call: Call, look: Run, zk: KazooClient, zk_path: str, url: str, tmp_path: Path) -> None:
    """`--url` and `--url-file` are before the command's word or behind it; a file may begin with an editor's mark.

    A newline at the end is ignored. A password on the command line is warned of, in a file or a variable it is not.
    """
    zk.ensure_path(zk_path)
    free = (0, f"{zk_path} has no lock that anybody holds or waits for\n", "")
    secret = url.replace("zk://", "zk://user:secret@")
    file = tmp_path / "url"
    for text in (f"{secret}\n", f"\ufeff{secret}\n"):
        file.write_text(text)
        assert call("show", zk_path, "--url-file", file, url="") == free
    for given in (("--url", url), (f"--url={url}",), ("--url", f"{url}\n"), ("--url-file", file)):
        for line in ((*given, "show", zk_path), ("show", zk_path, *given)):
            assert call(*line, url="") == free
    assert call("show", zk_path, url=f"{secret}\n") == free
    code, _, err = call("--url", secret, "show", zk_path)
    assert (code, "shows in `ps`" in err, "secret" in err) == (0, True, False)
    command = ("run", f"{zk_path}/b", "--", "echo", "--", "run")
    assert end_of(look("--url-file", file, *command, url="")) == (0, "-- run\n", "")


@pytest.mark.fault(408)
@pytest.mark.parametrize(
    ("text", "shown"), [("evil\x1b[2J\r\n\x07\u202e", "evil\\x1b[2J\\r\\n\\x07\\u202e"), (None, "Lock")]
)
def test_a_stranger_s_data(call: Call, zk: KazooClient, zk_path: str, text: str | None, shown: str) -> None:
    """What a stranger has written can't control the terminal or break the JSON; it may have written nothing."""
    name = f"{zk_path}/_c_9e1d9d52-b8a8-4b62-bc3b-000000000001-lock-"
    zk.create(name, text and text.encode(), sequence=True, makepath=True)
    for command in ("ls", "show"):
        code, out, err = call(command, zk_path)
        assert (code, err, shown in out) == (0, "", True)
        assert not set(out) & set("\x1b\r\x07\u202e")
    (found,) = document(call("ls", zk_path, "--json"))["contenders"]
    assert found["host"] == text


def test_a_stranger_s_megabyte(call: Call, zk: KazooClient, zk_path: str) -> None:
    """A text of any length leaves the lines readable; JSON has all of it, and no number that JSON does not know."""
    text = "x" * 900_000
    for i, data in enumerate(
        (
            text,
            json.dumps({"host": "h", "pid": 1, "thread": "t", "holds": [[text[:800], "n"]] * 999}),
            *(f'{{"host": "h", "pid": 1, "thread": "t", "timeout": {odd}}}' for odd in ("1e999", "NaN", "9" * 999)),
            # Python reads no number of more digits, and writes none.
            json.dumps({"host": "h", "pid": 1, "thread": "t", "holds": [["/a", "n"]] * 17})[:-1]
            + f', "timeout": {"9" * 4300}}}',
            f'{{"host": "h", "pid": {"9" * 4300}, "thread": "t"}}',
            f'{{"host": "h", "pid": 1, "thread": "t", "owner": "o", "token": {"9" * 4300}}}',
        )
    ):
        zk.create(f"{zk_path}/{i}/_c_{uuid.uuid4()}-lock-", data.encode(), sequence=True, makepath=True)
        code, out, err = call("show", f"{zk_path}/{i}")
        assert (code, err) == (0, "")
        assert len(out) < 10_000
    code, out, err = call("ls", zk_path)
    assert (code, err) == (0, "")
    assert len(out) < 6_000
    found = document(call("ls", zk_path, "--json"))["contenders"]
    assert found[0]["host"] == text
    assert [each["timeout"] for each in found] == [None] * 8
    assert all(int(each["token"]) < 1 << 63 for each in found)


@pytest.mark.fault(303)
def test_a_stranger_s_name(call: Call, zk: KazooClient, zk_path: str) -> None:
    """A long name takes its own line only, however many lines there are."""
    for name in ("x" * 100_000, *map(str, range(20))):
        zk.create(f"{zk_path}/{name}/_c_{uuid.uuid4()}-lock-", sequence=True, makepath=True)
    code, out, err = call("ls", zk_path)
    assert (code, err, out.count(" held "), len(out) < 120_000) == (0, "", 21, True)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        *((0.9, "0s"), (59.9, "59s"), (60, "1m 0s"), (200, "3m 20s"), (3600, "1h 0m"), (86399, "23h 59m")),
        *((86400, "1d 0h"), (3 * 86400 + 7300, "3d 2h"), (400 * 86400, "400d 0h")),
    ],
)
def test_durations(seconds: float, told: str) -> None:
    """A duration has its two largest units."""
    assert age(seconds) == told


@pytest.mark.fault(303)
@pytest.mark.parametrize("first", ["lock-", "__READ__"])
def test_two_kinds_on_one_path(call: Call, zk: KazooClient, zk_path: str, first: str) -> None:
    """They do not wait for each other, so both hold, each by the rules of its kind; and each may be broken."""
    for role in (first, *{"lock-", "__READ__"} - {first}, "__WRIT__"):
        zk.create(f"{zk_path}/_c_{uuid.uuid4()}-{role}", ephemeral=True, sequence=True, makepath=True)
    found = document(call("show", zk_path, "--json"))["contenders"]
    assert sorted((each["type"], each["mode"] or "", each["state"]) for each in found) == [
        ("Lock", "", "held"),
        ("ReadWriteLock", "read", "held"),
        ("ReadWriteLock", "write", "waits"),
    ]
    _, out, _ = call("show", zk_path)
    heads = [line for line in out.splitlines() if not line.startswith("    ")]
    assert {heads[0].partition(": ")[2]} <= {"Lock and ReadWriteLock", "ReadWriteLock and Lock"}
    assert sum("held (Lock)" in line or "held (ReadWriteLock, read)" in line for line in heads) == 2
    (reader,) = (each["token"] for each in found if each["mode"] == "read")
    assert call("break", zk_path, "-y", "--holder", reader, "--grace", 0)[0] == 0


def test_a_closed_pipe(shell: Run, zk: KazooClient, zk_path: str) -> None:
    """A reader that has seen enough ends the command quietly, as it does other programs."""
    for n in range(300):
        name = f"{zk_path}/{n}/_c_9e1d9d52-b8a8-4b62-bc3b-{n:012}-lock-"
        zk.create(name, b"x" * 500, sequence=True, makepath=True)
    process = shell(f"{sys.executable} -m zkconcurrent ls $1 | head -n 1", zk_path)
    code, out, err = end_of(process)
    assert (code, out.split()[0], err) == (0, "PATH", "")


def test_nothing_is_written(call: Call, zk: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """The commands only read, also where the chroot is missing: they make no node."""
    with zkconcurrent.Lock(zk, f"{zk_path}/a"), proxy.counting() as count:
        assert len(document(call("ls", zk_path, "--json", url=f"zk://{proxy.hosts}"))["contenders"]) == 1
        assert call("ls", url=f"zk://{proxy.hosts}{zk_path}/missing")[0] == 66
    names = {message.name for message in count.trace if message.kind == "request"}
    assert names <= READS, names
    assert zk.exists(f"{zk_path}/missing") is None


@pytest.mark.long
@pytest.mark.parametrize("crowd", [False, True], ids=["many paths", "one path"])
def test_thousands(look: Run, zk: KazooClient, zk_path: str, crowd: bool) -> None:
    """Ten thousand contenders are listed in less than 3 s of the processor's time, on paths of their own or on one."""
    zk.ensure_path(zk_path)
    data = json.dumps({"host": "h", "pid": 1, "thread": "t", "by": "01234567-1"}).encode()
    for group in range(100):
        transaction = zk.transaction()
        for n in range(100):
            path = zk_path if crowd else f"{zk_path}/{group:02}-{n:02}"
            if not crowd:
                transaction.create(path)
            transaction.create(f"{path}/_c_{uuid.uuid4()}-lock-", data, ephemeral=True, sequence=True)
        transaction.commit()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = document(end_of(look("show" if crowd else "ls", zk_path, "--json")))["contenders"]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert [each["position"] for each in found] == (list(range(10_000)) if crowd else [0] * 10_000)
    names = [each["node"].rpartition("/")[2] for each in found]
    assert [each["blocker"] for each in found] == ([None, *names[:-1]] if crowd else [None] * 10_000)
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < 3


def test_where_it_writes(shell: Run, zk: KazooClient, zk_path: str) -> None:
    """What the locale has no character for is escaped; a full disk is 74, with the reason; a closed output is quiet."""
    command, path = f"{sys.executable} -m zkconcurrent", f"{zk_path}/\u65e5"
    full = (74, "", "zkconcurrent: standard output: No space left on device\n")
    with zkconcurrent.Lock(zk, path):
        for option in ("ls", "show --json"):
            assert end_of(shell(f"{command} {option} $1 >/dev/full", path)) == full
            assert end_of(shell(f"{command} {option} $1 >&-", path)) == (0, "", "")
        code, out, err = end_of(shell(f"PYTHONIOENCODING=ascii {command} ls $1", path))
    assert (code, "\\u65e5" in out, err) == (0, True, "")
