"""Dict and Set on a real ZooKeeper: reads send nothing, each write counts once, and reads see every write."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, PATIENCE, Connect, InThread
from tests.helpers.backups import back_up, restore
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    JSON,
    TEXT,
    Dict,
    ForeignNodeError,
    OutcomeUnknownError,
    Set,
)
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server


def text(client: KazooClient, path: str, **options: Any) -> Dict[str]:
    """Return a dictionary of strings."""
    return Dict(client, path, codec=TEXT, **options)


def test_a_dictionary(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Other clients see what is written; `tests/conformance` has all that a dict has."""
    d, other = text(zk, zk_path), text(connect(), zk_path)
    assert not d
    assert zk.exists(zk_path) is None  # a read makes no node
    d["a"] = "1"
    d.update(a="2", b="3", c="4")
    assert d == {"a": "2", "b": "3", "c": "4"}
    eventually(lambda: other == {"a": "2", "b": "3", "c": "4"})
    del d["a"]
    assert d.pop("b") == "3"
    assert d.popitem() == ("c", "4")
    eventually(lambda: not other)
    d["a"] = "x"
    other.clear()
    eventually(lambda: not d)


def test_a_set(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """It has what a set has."""
    s, other = Set(zk, zk_path), Set(connect(), zk_path)
    s.add("a")
    s.add("a")
    other.add("a")
    assert other == {"a"} == s
    s |= {"b", "c"}
    assert (s & {"a", "x"}, s - {"a"}, s | {"d"}) == ({"a"}, {"b", "c"}, {"a", "b", "c", "d"})
    with pytest.raises(KeyError, match="none"):
        s.remove("none")
    s.remove("b")
    eventually(lambda: other == {"a", "c"})
    assert {other.pop(), other.pop()} == {"a", "c"}
    with pytest.raises(KeyError, match="no elements"):
        other.pop()
    eventually(lambda: not s)


@pytest.mark.fault(364)
def test_keys_that_no_entry_can_have(zk: KazooClient, zk_path: str) -> None:
    """They are missing, as in a `dict` or `set`; only what would make an entry refuses them."""
    d, s = Dict[str](zk, f"{zk_path}/d", codec=TEXT), Set(zk, f"{zk_path}/s")
    d["a"] = "x"
    s |= {"a", "b"}
    for key in (5, None, "", "x" * 5000):
        odd: Any = key
        assert odd not in d
        assert d.pop(odd, "default") == "default"
        s.discard(odd)
        with pytest.raises(KeyError):
            del d[odd]
    mixed: Any = {5, "a", None}
    s -= mixed
    assert (d, s) == ({"a": "x"}, {"b"})


def test_any_text_is_a_key(zk: KazooClient, zk_path: str) -> None:
    """Slashes, dots, percent signs, other planes and control characters are escaped; a path can't be left."""
    d, keys = text(zk, zk_path), ["/", "..", "a/../b", "%", "%41", "A", "\0", "ü", "\U0001f600", "\udc80", "zookeeper"]
    for key in keys:
        d[key] = repr(key)
    assert {key: repr(key) for key in keys} == d
    assert text(zk, zk_path).copy() == {key: repr(key) for key in keys}
    assert len(zk.get_children(f"{zk_path}/entries")) == len(keys)


@pytest.mark.fault(175)
def test_codecs(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Values are bytes, or the codec's output; each read decodes anew."""
    plain = Dict[bytes](zk, zk_path)
    plain["x"] = b'{"a":[1,2]}'
    d = Dict[Any](connect(), zk_path, codec=JSON)
    d["x"]["a"].append(3)
    assert d["x"] == {"a": [1, 2]}
    assert d.replace("x", {"a": [1, 2]}, [4])
    assert d.pop("x") == [4]
    d["x"] = [float("nan")]
    assert not d.replace("x", object(), 5)
    assert d.replace("x", d["x"], 5)  # although what is read next is not equal to it


def test_what_does_not_match(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Another `ephemeral` at the path is an error that names it; nothing changes."""
    d = text(zk, zk_path)
    d["a"] = "1"
    with pytest.raises(ValueError, match="ephemeral=False, not True"):
        Dict(zk, zk_path, ephemeral=True)
    wrong = Dict[Any](connect(), zk_path, ephemeral=True)
    with pytest.raises(ValueError, match="dict persistent"):
        wrong["b"] = b"1"
    assert d == {"a": "1"}


def test_what_operators_make(zk: KazooClient, zk_path: str) -> None:
    """An entry that is made by hand is one; a child that is no key's is left alone; an entry's children are refused."""
    d = text(zk, zk_path)
    d["a"] = "1"
    zk.create(f"{zk_path}/entries/b", b"2")
    zk.create(f"{zk_path}/entries/%zz", b"3")
    eventually(lambda: d == {"a": "1", "b": "2"})
    zk.set(f"{zk_path}/entries/b", b"4")
    eventually(lambda: d["b"] == "4")
    zk.delete(f"{zk_path}/entries/b")
    eventually(lambda: "b" not in d)
    zk.create(f"{zk_path}/entries/a/child", b"")
    for call in (lambda: d.pop("a"), d.clear, d.destroy):
        with pytest.raises(ForeignNodeError, match=r"has children|a child 'entries/a/child'"):
            call()
    zk.delete(f"{zk_path}/entries/a/child")
    d.clear()
    assert zk.get_children(f"{zk_path}/entries") == ["%zz"]


@pytest.mark.fault(103)
def test_an_expired_session(zk: KazooClient, connect: Connect, zk_path: str, zookeeper: Server) -> None:
    """Its ephemeral entries go; the map goes on in the next session."""
    client = connect(**FAST)
    mine, other = text(client, zk_path, ephemeral=True), text(zk, zk_path, ephemeral=True)
    mine["a"] = "1"
    eventually(lambda: other == {"a": "1"})
    zookeeper.expire(client)
    eventually(lambda: not other)
    eventually(lambda: not mine)
    mine["a"] = "2"
    assert mine["a"] == "2"
    eventually(lambda: other == {"a": "2"})


@pytest.mark.fault(101)
def test_stale_while_disconnected(connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str) -> None:
    """Reads go on with what was known; once a server is in reach again, only the new listing is read."""
    theirs = text(zk, zk_path)
    theirs.update(a="1", b="1")
    d = text(connect(hosts=proxy.hosts, timeout=10.0, **FAST), zk_path)
    assert d == {"a": "1", "b": "1"}
    assert not d.stale
    proxy.refuse()
    proxy.cut()
    eventually(lambda: d.stale)
    theirs["a"] = "2"
    del theirs["b"]
    theirs["c"] = "2"
    assert d == {"a": "1", "b": "1"}
    assert "stale" in repr(d)
    proxy.resume()
    d.ready()
    assert d == {"a": "2", "c": "2"}
    assert not d.stale
    theirs["a"] = "3"
    eventually(lambda: d["a"] == "3")


def test_a_thread_for_each_copy(
    connect: Connect, zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 objects that are read have a thread each, which sees what others write, and ends with the object."""
    client, number, here = connect(), 60, threading.current_thread
    before = set(threading.enumerate())

    def threads() -> int:
        return len(set(threading.enumerate()) - before)

    for n in range(number):
        zk.ensure_path(f"{zk_path}/{n}/entries")
    maps, link, starters = [text(client, f"{zk_path}/{n}") for n in range(number)], Session.of(client).link, []
    spawn = link.spawn

    def note_and_spawn(*how: Any, **more: Any) -> None:
        starters.append(here())
        spawn(*how, **more)

    monkeypatch.setattr(link, "spawn", note_and_spawn)
    for each in maps:
        assert len(each) == 0
    assert here() not in starters  # an interrupt may strike a start
    assert threads() <= number + 1  # these, and the client's keeper
    for n in range(number):
        zk.create(f"{zk_path}/{n}/entries/k", b"v")
    for each in maps:
        eventually(lambda each=each: len(each) == 1)
    del each
    maps.clear()
    gc.collect()
    eventually(lambda: threads() <= 1, "the threads have ended")


def test_one_copy_that_fails_leaves_the_others(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Each copy has its own errors."""
    client = connect()
    zk.create(f"{zk_path}/foreign", b"something else", makepath=True)
    good, bad = text(client, f"{zk_path}/good"), text(client, f"{zk_path}/foreign")
    good["a"] = "1"
    assert good["a"] == "1"
    for _ in range(2):
        with pytest.raises(ForeignNodeError):
            len(bad)
    text(zk, f"{zk_path}/good")["a"] = "2"
    eventually(lambda: good["a"] == "2")


@pytest.mark.fault(151)
@pytest.mark.parametrize(("nth", "left"), [(1, 251), (2, 151)])
def test_destroy_stops_for_another_client(
    nth: int,
    left: int,
    zk: KazooClient,
    connect: Connect,
    proxy: Proxy,
    zk_path: str,
    in_thread: InThread,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Our writer goes first; of many entries, some do then. Once another client writes, no more go."""
    monkeypatch.setattr("zkconcurrent._recipes.destroy.most_together", lambda _: 100)
    mine, theirs = text(connect(proxy.hosts), zk_path), text(zk, zk_path)
    mine.update({str(n): "x" for n in range(250)})
    with proxy.hold("multi", nth=nth, where=lambda message: not message.heartbeat) as held:
        destroying = in_thread(mine.destroy)
        held.wait()
        theirs["new"] = "1"
    with pytest.raises(RuntimeError, match="in use"):
        destroying.result(30)
    assert len(theirs) == left


@pytest.mark.parametrize("how", ["get", "get_children"])
def test_watches_of_the_users_on_all_entries(how: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """They fire as ever, and replace the copy's own for a moment only."""
    client = connect()
    d, theirs, folder = text(client, zk_path), text(zk, zk_path), f"{zk_path}/entries"
    theirs["a"] = "0"
    assert len(d) == 1
    seen: list[Any] = []
    for n in range(1, 5):
        getattr(client, how)(folder, watch=seen.append)
        theirs["a"] = str(n)
        eventually(lambda n=n: d.get("a") == str(n))
        theirs[f"new {n}"] = "x"
        eventually(lambda n=n: f"new {n}" in d)
    if how == "get":
        zk.set(folder, b"")
    eventually(lambda: seen)


def test_a_map_that_another_kind_has_replaced(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A client that has read the map before writes nothing into what was made there after `destroy`."""
    d, theirs = text(connect(), zk_path), text(zk, zk_path)
    theirs["a"] = "1"
    assert d["a"] == "1"
    theirs.destroy()
    Set(connect(), zk_path).add("a")
    header = zk.get(zk_path)[0]
    for _ in range(2):
        with pytest.raises(ValueError, match=header.decode()):
            d["b"] = "2"
    assert zk.get_children(f"{zk_path}/entries") == ["a"]


@pytest.mark.fault(202)
def test_servers_restored_from_a_backup(tmp_path: Path) -> None:
    """A client that has seen what they have forgotten has what is there, once they let it in again."""
    with Server() as server, server.client(timeout=4, **FAST) as client:
        d = text(client, "/map")
        d["a"] = "1"
        back_up(server, tmp_path / "backup")
        for n in range(20):
            d["b"] = str(n)
        d["a"] = "forgotten"
        restore(server, tmp_path / "backup")
        with server.client() as another:
            theirs = text(another, "/map")
            theirs["a"] = "2"
            for n in range(60):  # until their zxids are those that the client has seen
                theirs["c"] = str(n)
            eventually(lambda: d == {"a": "2", "c": "59"})


@pytest.mark.fault(491)
def test_a_write_before_a_restore(tmp_path: Path, in_thread: InThread) -> None:
    """The reply to a write is lost, and the servers are restored from a backup that has the older writer."""
    with (
        Server() as server,
        Proxy(server.hosts) as proxy,
        server.client(hosts=proxy.hosts, timeout=4, **FAST) as client,
        server.client(timeout=4, **FAST) as other,
    ):
        d = text(client, "/map")
        d["a"] = "1"
        back_up(server, tmp_path / "backup")
        d["b"] = "2"
        proxy.refuse()
        with proxy.lose_answer("multi", where=lambda message: not message.heartbeat) as lost:
            writing = in_thread(d.__setitem__, "c", "3")
            lost.wait()
        restore(server, tmp_path / "backup")
        for n in range(60):  # until their zxids are those that the client has seen
            text(other, "/other")["a"] = str(n)
        proxy.resume()
        with pytest.raises(OutcomeUnknownError, match="restored"):
            writing.result(PATIENCE)
        d["d"] = "4"
        assert dict(d) == {"a": "1", "d": "4"}


@pytest.mark.fault(176)
def test_an_unreadable_value(zk: KazooClient, zk_path: str) -> None:
    """A value that the codec can't decode: the error names it, it stays, and disturbs no other."""
    d = Dict[Any](zk, zk_path, codec=JSON)
    d["good"] = 1
    zk.create(f"{zk_path}/entries/bad", b"{")
    eventually(lambda: "bad" in d)
    unreadable = rf"b'{{', which the codec zkconcurrent.JSON can't .*Expecting.*{zk_path}/entries/bad"
    for read in (
        lambda: d.get("bad", 1),
        lambda: list(d.items()),
        lambda: d.setdefault("bad", 1),
        lambda: d.replace("bad", 1, 2),
        lambda: d.pop("bad", 1),
    ):
        with pytest.raises(ForeignNodeError, match=unreadable):
            read()
    assert d["good"] == 1
    assert zk.get(f"{zk_path}/entries/bad")[0] == b"{"  # not lost
    d["bad"] = 2
    assert d == {"good": 1, "bad": 2}


def test_weak_iteration(zk: KazooClient, zk_path: str) -> None:
    """A change during an iteration never raises."""
    d = text(zk, zk_path)
    d.update({str(n): "x" for n in range(20)})
    seen = []
    for key in d:
        seen.append(key)
        del d[key]
        d[f"new {key}"] = "x"
    assert sorted(seen) == sorted(map(str, range(20)))
    for _, key in zip(d.items(), list(d), strict=True):
        d.pop(key)
    assert not d


@pytest.mark.fault(171)
def test_entries_that_others_have_taken(zk: KazooClient, zk_path: str) -> None:
    """An entry that another client has just removed, so that the copy still has it, is passed by."""
    d = text(zk, zk_path)
    d.ready()
    d._mirror.keep("gone", b"", 1)
    d["there"] = "1"
    assert list(d) == ["gone", "there"]
    assert d.popitem() == ("there", "1")
    with pytest.raises(KeyError, match="no entries"):
        d.popitem()
