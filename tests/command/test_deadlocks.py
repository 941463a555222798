"""`zkconcurrent deadlocks`: rings are found as their members find them, none is imagined, and doubts are told."""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

import zkconcurrent
from tests.command.conftest import Call, End, Run, end_of
from tests.conftest import Connect, InThread
from tests.helpers.contenders import children
from tests.helpers.eventually import eventually
from tests.helpers.kinds import KINDS, Kind
from tests.helpers.proxy import Proxy
from zkconcurrent._engine.session import Session
from zkconcurrent._protocol.node_names import unique

# It holds the first path, and then waits for the others, each within that before it.
MEMBER = """\
import contextlib, os, sys, zkconcurrent
with zkconcurrent.connect(os.environ["ZKCONCURRENT_URL"]) as zk, contextlib.ExitStack() as stack:
    for path in sys.argv[1:]:
        side, _, path = path.partition(":")
        if side == "lock":
            stack.enter_context(zkconcurrent.RLock(zk, path))
        else:
            stack.enter_context(getattr(zkconcurrent.ReadWriteLock(zk, path), side))
        os.write(1, b"held\\n")
        sys.stdin.readline()
"""


def found(end: End) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the document of a `deadlocks --json`."""
    code, out, err = end
    assert err == ""
    return code, json.loads(out)


def member(start: Run, *words: str) -> Any:
    """Start a program that holds the first path."""
    process = start(sys.executable, "-c", MEMBER, *words, stdin=-1)
    assert process.stdout.readline() == "held\n"
    return process


def go_on(process: Any) -> None:
    """Let it wait for its next path."""
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_ring(start: Run, call: Call, zk: KazooClient, zk_path: str) -> None:
    """Two programs that wait for each other: who holds what, waits for what, and how to end it; then it is over."""
    a, b = f"{zk_path}/a", f"{zk_path}/b"
    first, second = member(start, f"lock:{a}", f"lock:{b}"), member(start, f"lock:{b}", f"lock:{a}")
    assert call("deadlocks", zk_path) == (0, f"no deadlock at {zk_path} or below\n", "")
    go_on(first)
    eventually(lambda: len(children(zk, b)) == 2)
    assert found(call("deadlocks", zk_path, "--json"))[0] == 0
    go_on(second)
    eventually(lambda: len(children(zk, a)) == 2)
    code, document = found(call("deadlocks", zk_path, "--json"))
    assert (code, document["schema"], document["unjudged"]) == (1, "zkconcurrent.deadlocks/1", [])
    (ring,) = [each["members"] for each in document["rings"]]
    assert [(each["pid"], each["holds"]["path"], each["waits_for"], each["edge"]) for each in ring] == [
        (second.pid, b, a, "hard"),
        (first.pid, a, b, "hard"),
    ]
    code, out, err = call("deadlocks", zk_path)
    lines = [line.strip() for line in out.splitlines()]
    assert (code, err) == (1, "")
    assert lines[1].startswith(f"1. thread 'MainThread' of process {second.pid} on host ")
    assert lines[2] == f"holds {b}, token {ring[0]['holds']['token']}"
    assert re.fullmatch(rf"waits for {re.escape(a)} for \d+s, which 2 holds \(hard\)", lines[3])
    command = lines[-1].split()
    assert command[:2] == ["zkconcurrent", "break"]
    # The remedy that it names is one.
    assert call(*command[1:], "-y", "--grace", 0)[0] == 0
    assert found(call("deadlocks", zk_path, "--json"))[0] == 0


def test_behind_a_waiter(start: Run, call: Call, zk: KazooClient, zk_path: str) -> None:
    """A reader behind a waiting writer waits softly: the ring has three members, one of which holds nothing in it."""
    pair, other = f"{zk_path}/pair", f"{zk_path}/other"
    reader = member(start, f"read_lock:{pair}", f"lock:{other}")
    late = member(start, f"lock:{other}", f"read_lock:{pair}")
    writer = member(start, f"lock:{zk_path}/alone", f"write_lock:{pair}")
    for process, path, number in ((writer, pair, 2), (late, pair, 3), (reader, other, 2)):
        go_on(process)
        eventually(lambda path=path, number=number: len(children(zk, path)) == number)  # type: ignore[misc]
    code, document = found(call("deadlocks", zk_path, "--json"))
    assert code == 1
    (ring,) = [each["members"] for each in document["rings"]]
    assert [(each["pid"], each["edge"], (each["holds"] or {}).get("path")) for each in ring] == [
        (reader.pid, "hard", pair),
        (late.pid, "soft", other),
        (writer.pid, "hard", None),
    ]
    _, out, _ = call("deadlocks", zk_path)
    assert "behind 3, which waits itself (soft)" in out


class Nodes:
    """Nodes with data as a test wants them, in a session that lives."""

    def __init__(self, zk: KazooClient, path: str) -> None:
        self._zk, self._path = zk, path

    def add(self, name: str, owned: Sequence[str] = (), **said: object) -> str:
        """Add a contender whose owner holds some nodes; return its path."""
        mark = str(uuid.uuid4())
        prefix = f"_c_{mark[:24]}{'8' if owned else '0'}{mark[25:]}-lock-"
        held = [[path.rpartition("/")[0], unique(path.rpartition("/")[2])] for path in owned]
        data = {"host": "h", "pid": 1, "thread": "t", "by": "1-1", **({"holds": held} if held else {}), **said}
        made: str = self._zk.create(
            f"{self._path}/{name}/{prefix}", json.dumps(data).encode(), ephemeral=True, sequence=True, makepath=True
        )
        return made

    def ring(self, **said: object) -> list[str]:
        """Add two owners who wait for each other; return the nodes with which they wait."""
        a, b = self.add("a"), self.add("b")
        return [self.add("b", [a], **said), self.add("a", [b])]


def test_a_ring_that_leaves_the_path(call: Call, zk: KazooClient, zk_path: str, url: str) -> None:
    """It is found from any of its paths, also where the youngest wait is elsewhere, or outside of the URL's chroot."""
    there, paths = Nodes(zk, zk_path), [f"{name}/lock" for name in "abc"]
    held = [there.add(path) for path in paths]
    for n, each in enumerate(held):
        there.add(paths[n - 1], [each])
    for path in paths:
        assert found(call("deadlocks", f"{zk_path}/{path}", "--json"))[0] == 1
    code, out, _ = call("deadlocks", url=url.replace("?", f"{zk_path}/b?"))
    assert (code, "waits for /lock for " in out, f"waits for {zk_path}/a/lock for " in out) == (1, True, True)


def test_a_ring_that_ends_meanwhile(look: Run, zk: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """What ends before the second listing is no deadlock."""
    first, _ = Nodes(zk, zk_path).ring()
    with proxy.hold("sync") as fault:
        process = look("deadlocks", zk_path, "--json", url=f"zk://{proxy.hosts}")
        fault.wait()
        zk.delete(first)
    code, document = found(end_of(process))
    assert (code, document["rings"]) == (0, [])


@pytest.mark.parametrize("why", ["stranger", "timeout", "permits", "kazoo", "two kinds", "hidden", "elsewhere"])
def test_what_is_not_judged(call: Call, zk: KazooClient, zk_path: str, why: str) -> None:
    """What a ring may lead through that the search does not judge is named, in a line; the code is 0."""
    there = Nodes(zk, zk_path)
    held = there.add("a")
    path, node = f"{zk_path}/a", None
    hidden = [make_acl("digest", "other:xyz", all=True)]
    if why == "stranger":
        node = zk.create(f"{path}/_c_{uuid.uuid4()}-lock-", b"10.0.0.1", ephemeral=True, sequence=True)
    elif why == "timeout":
        node = there.add("a", [held], timeout=60.0)
    elif why == "permits":
        zk.create(f"{zk_path}/s/permits", b"0", makepath=True)
        path, node = f"{zk_path}/s/locks", there.add("s/locks", [held])
    elif why == "kazoo":
        zk.create(f"{path}/{uuid.uuid4().hex}__lock__", b"", ephemeral=True, sequence=True)
    elif why == "two kinds":
        zk.create(f"{path}/_c_{uuid.uuid4()}-__READ__", b"", ephemeral=True, sequence=True)
    elif why == "hidden":
        path = f"{zk_path}/hidden"
        zk.create(path, acl=hidden)
    else:
        path = f"{zk_path}-hidden"
        zk.create(path, acl=hidden)
        there.add("b")
        there.add("b", [held], holds=[[path, "0" * 32]])
    code, document = found(call("deadlocks", zk_path, "--json"))
    assert (code, document["rings"]) == (0, [])
    (each,) = document["unjudged"]
    assert (each["path"], each["node"]) == (path, node and node.rpartition("/")[2])
    code, out, _ = call("deadlocks", zk_path)
    lines = out.splitlines()
    assert (code, lines[0]) == (0, f"no deadlock at {zk_path} or below")
    assert [line.startswith(f"not judged: {path}") for line in lines[1:]] == [True]
    # A ring is told of all the same.
    Nodes(zk, f"{zk_path}/more").ring()
    assert found(call("deadlocks", zk_path, "--json"))[0] == 1


@pytest.mark.fault(427)
def test_kinds_in_use(call: Call, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Each kind of primitive is held or used, and waited for where it can be: a check by the code is quiet.

    The nodes of those that are no locks wait for none beside them, so nothing is told of them.
    """
    holding, waiting = connect(), connect()
    # Nobody holds against a reader; and beside the condition is a lock of a contender's name.
    odd = {"ReadLock", "Condition, with a lock"}
    waited = {name: kind for name, kind in KINDS.items() if (kind.ends or kind.excludes) and name not in odd}

    def wait(kind: Kind, name: str) -> None:
        # The end of the client ends it.
        with suppress(zkconcurrent.ZkConcurrentError):
            kind.wait(zkconcurrent, waiting, f"{zk_path}/{name}", 100.0)

    uses = [kind.use(zkconcurrent, holding, f"{zk_path}/{name}") for name, kind in KINDS.items() if kind.excludes]
    waits = [in_thread(wait, kind, name) for name, kind in waited.items()]
    eventually(lambda: {call.path.split("/")[2] for call in Session.of(waiting).calls if call.tickets} >= {*waited})
    code, out, err = call("deadlocks", zk_path)
    first, *facts = out.splitlines()
    assert (code, first, err) == (0, f"no deadlock at {zk_path} or below", "")
    # A candidate's data are its id.
    assert all(fact.startswith(f"not judged: {zk_path}/Election") for fact in facts)
    waiting.stop()
    for each in waits:
        each.result(30)
    for end in uses:
        assert end is not None
        end()


def test_strangers_text_in_a_ring(call: Call, zk: KazooClient, zk_path: str) -> None:
    """What the nodes say can neither control the terminal nor make a search fail."""
    there = Nodes(zk, zk_path)
    there.ring(thread="evil\x1b[2J" + "x" * 100_000)
    held = there.add("c")
    there.add("c", [held], holds=[["/a//b", "n"], ["relative", "n"], ["/\ud800", "n"], ["/nul\0", "n"], ["/", "n"]])
    # No request can have so long a path, though a node's data can.
    there.add("c", [held], holds=[["/" + "x" * 1_000_000, "n"]])
    code, out, err = call("deadlocks", zk_path)
    assert (code, err, "evil\\x1b[2J" in out, "\x1b" in out, len(out) < 3_000) == (1, "", True, False, True)


@pytest.mark.fault(303)
def test_how_to_break_it(call: Call, zk: KazooClient, zk_path: str, url: str) -> None:
    """It names a path that `break` takes with the same URL, and the whole of it; a lock may be at the chroot itself."""
    for n, (inside, path) in enumerate((("in/" + "y" * 400, "/" + "y" * 400), ("in", "/"))):
        there = Nodes(zk, f"{zk_path}/{n}")
        # The one that is searched for, and so told first, holds what is outside.
        a, b = there.add(inside), there.add("out")
        there.add("out", [a])
        there.add(inside, [b])
        code, out, err = call("deadlocks", url=url.replace("?", f"{zk_path}/{n}/in?"))
        assert (code, err) == (1, "")
        assert out.splitlines()[-1] == f"  zkconcurrent break {path} --holder {zk.exists(a).czxid}"
