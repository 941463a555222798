"""`zkconcurrent doctor`: each thing that would fail has its line, with the remedy, and nothing is written unasked."""

from __future__ import annotations

import re
import time
import uuid

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

import zkconcurrent
from tests.command.conftest import Call, End, document
from tests.helpers.proxy import Proxy
from tests.helpers.trickle import trickling
from zkconcurrent._command import doctor as doctor_module
from zkconcurrent.testing import Server


def levels(end: End, code: int = 0) -> dict[str, tuple[str, str]]:
    """Return the level and the text of each check by its name, but for `server`; of several, the worst."""
    found = document(end, code)
    assert found["schema"] == "zkconcurrent.doctor/1"
    order = ["ok", "warn", "fail"]
    checks = sorted(found["checks"], key=lambda each: order.index(each["level"]))
    return {each["name"].partition(" 127.")[0]: (each["level"], f"{each['text']}; {each['remedy']}") for each in checks}


@pytest.fixture
def root(zk: KazooClient, zk_path: str, url: str) -> str:
    """A URL whose root is the test's own path."""
    zk.ensure_path(zk_path)
    return url.replace("?", f"{zk_path}?")


def test_all_is_well(call: Call, root: str) -> None:
    """Without what is wrong, no line says fail, each warning has a remedy, and the code is 0."""
    found = levels(call("doctor", "--json", "--scratch", "/scratch/deep", url=root))
    assert found.pop("quorum")[0] == "warn"
    assert {name: level for name, (level, _) in found.items()} == dict.fromkeys(
        ["server", "session timeout", "reads", "writes", "leader's clock", "paths", "watches of trees"]
        + [name for name in found if name.startswith("access to ")],
        "ok",
    )
    assert "standalone" in found["server"][1]
    code, out, err = call("doctor", url=root)
    assert (code, err) == (0, "")
    for line in out.splitlines():
        assert line.startswith("ok    ") or (line.startswith("warn  ") and line.count(": ") >= 2)
    assert "warn  writes, clock, watches of trees: not looked at: give --scratch PATH" in out


def test_where_it_writes(call: Call, zk: KazooClient, zk_path: str, root: str, proxy: Proxy) -> None:
    """With --scratch, it writes below that path, and leaves nothing there."""
    behind = root.replace(root[5 : root.index("/", 5)], proxy.hosts)
    zk.create(f"{zk_path}/there")
    with proxy.counting() as count:
        assert levels(call("doctor", "--json", "--scratch", "/there/new", url=behind))["writes"][0] == "ok"
    names = {message.name for message in count.trace if message.kind == "request"}
    assert {"create2", "multi", "delete", "addWatch"} <= names
    assert (zk.get_children(zk_path), zk.get_children(f"{zk_path}/there")) == (["there"], [])


def test_paths_that_would_fail(call: Call, zk: KazooClient, zk_path: str, root: str) -> None:
    """Paths of two kinds, with kazoo's own nodes, or whose numbers run out fail; a hidden one is warned of."""
    mixed = [("a", f"_c_{uuid.uuid4()}-lock-"), ("a", f"_c_{uuid.uuid4()}-__READ__")]
    mixed += [("b", f"_c_{uuid.uuid4()}-lock-"), ("b", f"{uuid.uuid4().hex}__lock__")]
    for folder, name in mixed:
        zk.create(f"{zk_path}/{folder}/{name}", ephemeral=True, sequence=True, makepath=True)
    zk.create(f"{zk_path}/c/_c_{uuid.uuid4()}-lock-2147483647", ephemeral=True, makepath=True)
    zk.create(f"{zk_path}/hidden", acl=[make_acl("digest", "other:xyz", all=True)])
    code, out, _ = call("doctor", url=root)
    lines = [line for line in out.splitlines() if " paths: " in line]
    assert (code, [line[:4] for line in lines]) == (1, ["fail", "fail", "fail", "warn"])
    for line, path, words in zip(lines, ("/a", "/b", "/c"), ("two kinds", "kazoo's own", "sequence"), strict=False):
        assert path in line, line
        assert words in line, line
    assert "1 may not be read, such as /hidden" in lines[3]


def test_access(call: Call, zk: KazooClient, zk_path: str, url: str) -> None:
    """What this client may not do at the root, or below --scratch, is a failure; a missing root is a warning."""
    root = url.replace("?", f"{zk_path}?")
    found = levels(call("doctor", "--json", "--scratch", "/s", url=root))
    assert (found[f"access to {zk_path}"][0], found["writes"][0]) == ("warn", "warn")
    assert zk.exists(zk_path) is None
    zk.create(zk_path, acl=[make_acl("world", "anyone", read=True, admin=True)])
    found = levels(call("doctor", "--json", "--scratch", "/s", url=root), code=1)
    assert found[f"access to {zk_path}"] == (
        "fail",
        "world:anyone ra; a client needs the rights to read and to create (rc)",
    )
    assert found["writes"][0] == "fail"
    user = root.replace("zk://", "zk://me:word@")
    zk.set_acls(zk_path, [make_acl("digest", "me:Ck3GQRi7pxPZ6RHXqWZNH5HZ8Q8=", all=True)])
    assert levels(call("doctor", "--json", url=root), code=1)[f"access to {zk_path}"][0] == "fail"
    # Another user's; then its own.
    assert levels(call("doctor", "--json", url=user), code=1)["credentials"][0] == "warn"
    zk.delete(zk_path)
    with zkconcurrent.connect(user) as own:
        own.set_acls("/", [make_acl("auth", "", all=True)])
    found = levels(call("doctor", "--json", "--scratch", "/s", url=user))
    assert (found[f"access to {zk_path}"], found["writes"][0]) == (("ok", "digest:me cdrwa; "), "ok")


def test_a_service_that_is_set_up_badly(call: Call) -> None:
    """Timeouts below two ticks, and a tick that the URL has too small, make leases unsafe; what is off is told."""
    with Server(min_session_timeout=0.1, max_session_timeout=5) as server:
        url = f"zk://{server.hosts}?timeout=10&tick=0.05"
        code, out, _ = call("doctor", url=url)
        assert code == 1
        assert "fail  server 127.0.0.1:" in out
        assert "its tick is 0.2 s, that of the URL 0.05 s" in out
        assert "minSessionTimeout is less than 2 ticks" in out
        assert "warn  session timeout: 5 s, not the 10 s that were asked" in out


@pytest.mark.fault(331)
@pytest.mark.parametrize("byte", [b"x", b"x" * (1 << 20)], ids=["trickles", "floods"])
def test_hosts_that_are_none(call: Call, zookeeper: Server, root: str, byte: bytes) -> None:
    """A host that never ends its reply does not answer, nor does one whose name is a slip, and the doctor goes on."""
    with trickling(byte) as port:
        url = root.replace(zookeeper.hosts, f"{zookeeper.hosts},127.0.0.1:{port},zk2..example")
        code, out, err = call("doctor", url=f"{url}&start_timeout=60")
    assert (code, err) == (0, ""), out
    assert f"warn  server 127.0.0.1:{port}: does not answer (timed out): start it, or take it out of the URL" in out
    # Each version of Python says it in words of its own.
    assert re.search(r"warn  server zk2\.\.example:2181: does not answer \(.*label empty", out)
    assert "quorum: 1 of 3 servers" in out


def test_clocks(call: Call, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that differs from the leader's is a warning, with by how much."""
    now = time.time
    monkeypatch.setattr(doctor_module.time, "time", lambda: now() + 1000)
    checks = {each["name"]: each for each in document(call("doctor", "--json", "--scratch", "/s", url=root))["checks"]}
    assert checks["leader's clock"]["level"] == "warn"
    assert -1100 < checks["leader's clock"]["value"] < -900
