"""Dict and Set on a real ZooKeeper: reads send nothing, each write counts once, and reads see every write."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.security import make_digest_acl

from tests.conftest import FAST, PATIENCE, Connect, InThread
from tests.helpers.backups import back_up, restore
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import finalizing
from tests.helpers.processes import in_forked_child
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    JSON,
    TEXT,
    ClientError,
    Dict,
    ForeignNodeError,
    OutcomeUnknownError,
    RefusedError,
    Set,
    SharedValue,
)
from zkconcurrent._engine.operations import POLICIES
from zkconcurrent._protocol.operations import WaitRecursive
from zkconcurrent.testing import Server


def text(client: KazooClient, path: str, **options: Any) -> Dict[str]:
    """Return a dictionary of strings."""
    return Dict(client, path, codec=TEXT, **options)


def _has(d: Dict[str], value: str) -> bool:
    return d["a"] == value


def test_a_dictionary(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Other clients see what is written; `tests/conformance` has all that a dict has."""
    d, other = text(zk, zk_path), text(connect(), zk_path)
    assert not d
    assert zk.exists(zk_path) is None  # a read makes no node
    d["a"] = "1"
    d.update(a="2", b="3", c="4")
    assert d == {"a": "2", "b": "3", "c": "4"} == dict(d) == d.copy()
    eventually(lambda: other == {"a": "2", "b": "3", "c": "4"})
    assert ("a" in d, "x" in d, 5 in d, len(d)) == (True, False, False, 3)
    for missing in (lambda: d["x"], lambda: d.pop("x"), lambda: d.__delitem__("x"), lambda: d[5]):  # type: ignore[index]
        with pytest.raises(KeyError):
            missing()
    del d["a"]
    assert d.pop("b") == "3"
    assert d.popitem() == ("c", "4")
    with pytest.raises(KeyError, match="no entries"):
        d.popitem()
    eventually(lambda: not other)
    d["a"] = "x"
    other.clear()
    assert not other
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
    assert isinstance(s | {"d"}, set)
    s.discard("none")
    with pytest.raises(KeyError, match="none"):
        s.remove("none")
    s.remove("b")
    assert sorted(s) == ["a", "c"]
    eventually(lambda: other == {"a", "c"})
    assert {other.pop(), other.pop()} == {"a", "c"}
    with pytest.raises(KeyError, match="no elements"):
        other.pop()
    eventually(lambda: not s)
    s.add("x")
    s.clear()
    assert len(s) == 0
    with pytest.raises(TypeError, match="must be a str"):
        s.add(5)  # type: ignore[arg-type]


@pytest.mark.fault(364)
def test_keys_that_no_entry_can_have(zk: KazooClient, zk_path: str) -> None:
    """They are missing, as in a `dict` or `set`; only what would make an entry refuses them."""
    d, s = Dict[str](zk, f"{zk_path}/d", codec=TEXT), Set(zk, f"{zk_path}/s")
    d["a"] = "x"
    s |= {"a", "b"}
    for key in (5, None, "", ("a", 1), "x" * 5000):
        odd: Any = key
        assert odd not in d
        assert d.pop(odd, "default") == "default"
        assert not d.remove(odd, "x")
        s.discard(odd)
        for fails in (partial(d.pop, odd), partial(d.__delitem__, odd), partial(s.remove, odd)):
            with pytest.raises(KeyError) as missing:
                fails()
            assert missing.value.args == (key,)
    for refuses in (partial(d.pop, cast(str, []), "default"), partial(s.discard, cast(str, []))):
        with pytest.raises(TypeError, match="unhashable"):
            refuses()
    mixed: Any = {5, "a", None}
    s -= mixed
    assert (d, s) == ({"a": "x"}, {"b"})


def test_any_text_is_a_key(zk: KazooClient, zk_path: str) -> None:
    """Slashes, dots, percent signs, other planes and control characters are escaped; a path can't be left."""
    d = text(zk, zk_path)
    keys = [
        "/",
        "..",
        ".",
        "a/../b",
        "%",
        "%41",
        "A",
        "\0",
        "\n",
        "ü",
        "\U0001f600",
        "_c_x-lock-1",
        "\udc80",
        "zookeeper",
    ]
    for key in keys:
        d[key] = repr(key)
    assert {key: repr(key) for key in keys} == d
    assert text(zk, zk_path).copy() == {key: repr(key) for key in keys}
    assert len(zk.get_children(f"{zk_path}/entries")) == len(keys)
    d.clear()
    assert not d


def test_bad_keys_and_values(zk: KazooClient, zk_path: str) -> None:
    """A key is a string, neither empty nor too long; a value is one that the codec takes, and not too large."""
    d = text(zk, zk_path)
    with pytest.raises(TypeError, match="key must be a str, not int"):
        d[5] = "x"  # type: ignore[index]
    with pytest.raises(ValueError, match="not be empty"):
        d[""] = "x"
    with pytest.raises(ValueError, match=r"at most 2,000"):
        d["x" * 2000] = "x"
    with pytest.raises(TypeError, match="must be a str"):
        d["x"] = 5  # type: ignore[assignment]
    with pytest.raises(TypeError, match="codec"):
        Dict(zk, zk_path, codec=5)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="bytes and is not sent") as refused:
        d["x"] = "x" * 2_000_000
    assert zk_path in str(refused.value)
    assert not d
    d["x"] = "y"  # nothing is broken
    assert d == {"x": "y"}


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


@pytest.mark.fault(175)
def test_values_whose_comparison_is_no_truth_value(zk: KazooClient, zk_path: str) -> None:
    """As of numpy's arrays. The value that was read matches by its bytes; another is the comparison's error.

    A value that the codec gives, but does not take, matches, too.
    """

    class Array(list[int]):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> Any:
            return NoTruthValue()

    class NoTruthValue:
        def __bool__(self) -> bool:
            raise ArithmeticError("ambiguous")

    class ToArray:
        def encode(self, value: list[int]) -> bytes:
            return JSON.encode(value)

        def decode(self, data: bytes) -> list[int]:
            return Array(JSON.decode(data))

    class OneWay(ToArray):
        def encode(self, value: list[int]) -> bytes:
            if value == (1,):
                raise ValueError("no tuples")
            return super().encode(value)

        def decode(self, data: bytes) -> Any:
            return tuple(JSON.decode(data))

    d, shared = Dict(zk, zk_path, codec=ToArray()), SharedValue(zk, f"{zk_path}-value", Array([1]), codec=ToArray())
    d["x"] = Array([1])
    assert d.replace("x", d["x"], Array([2]))
    with pytest.raises(ArithmeticError):
        d.remove("x", Array([3]))
    assert d.remove("x", Array([2]))
    assert shared.compare_and_set(shared.get(), [1])
    other = SharedValue(zk, f"{zk_path}-other", [1], codec=OneWay())
    assert other.compare_and_set(other.get(), [3])


def test_what_does_not_match(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Another kind, or another `ephemeral`, at the path is an error that names it; nothing changes."""
    d = text(zk, zk_path)
    d["a"] = "1"
    with pytest.raises(ValueError, match="ephemeral=False, not True"):
        Dict(zk, zk_path, ephemeral=True)
    with pytest.raises(ValueError, match="for Dict already"):
        Set(zk, zk_path)
    wrong = Dict[Any](connect(), zk_path, ephemeral=True)
    with pytest.raises(ValueError, match="dict persistent"):
        len(wrong)
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


@pytest.mark.fault(101)
def test_nothing_old_after_a_reconnect(connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str) -> None:
    """A read that begins when the client is connected again waits for the listing, however long that takes."""
    theirs = text(zk, zk_path)
    theirs["a"] = "1"
    client = connect(hosts=proxy.hosts, timeout=10.0, **FAST)
    d = text(client, zk_path)
    assert d["a"] == "1"

    def reads(value: bytes) -> bool:
        try:
            return bool(client.connected and client.get(f"{zk_path}/entries/a")[0] == value)
        except ConnectionLoss:  # kazoo has just learned of the cut
            return False

    for n in range(5):
        proxy.cut()
        theirs["a"] = str(n)
        eventually(lambda n=n: reads(b"%d" % n))
        assert d["a"] == str(n)


@pytest.mark.fault(232)
def test_a_copy_that_can_not_be_read_keeps_nothing(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Once a read of the copy was refused, an entry that the client deletes is forgotten."""
    d, other = text(zk, zk_path), text(connect(), zk_path)
    d["a"] = "1"
    assert d["a"] == "1"
    zk.set_acls(f"{zk_path}/entries/a", [make_digest_acl("nobody", "here", all=True)])
    follower = d._path_state.follower
    assert follower.runs
    other["b"] = "1"  # only an event makes the copy read, and a change of an ACL is none
    eventually(lambda: "b" in d._mirror.entries)
    d._mirror.changes.append(f"{zk_path}/entries/a")
    other["c"] = "1"
    eventually(lambda: follower.error)
    with pytest.raises(RefusedError):
        d.ready()
    for n in range(10):
        d[str(n)] = "1"
        del d[str(n)]
    assert not d._mirror.tombstones


def test_no_thread_is_left(connect: Connect, zk_path: str) -> None:
    """The copy is kept by one thread, which ends with the last object, and so do the writers."""
    client = connect()
    first, second = text(client, zk_path), text(client, zk_path)
    first["a"] = "1"
    assert second == {"a": "1"}
    follower, mirror = first._path_state.follower, weakref.ref(first._mirror)
    followers = first._path_state.followers
    session = first._session
    del first
    gc.collect()
    assert second["a"] == "1"
    del second
    gc.collect()
    eventually(lambda: followers._worker.idle, "the thread has ended")
    assert not follower.runs
    assert not session.registry.trees
    del follower
    eventually(lambda: gc.collect() >= 0 and mirror() is None, "the copy is collected")
    eventually(lambda: not client.get_children(f"{zk_path}/writers"))
    for n in range(20):  # the thread of the last one may end after the next one has begun
        again, value = text(client, zk_path), str(n + 1)
        assert again["a"] == str(max(n, 1))
        client.set(f"{zk_path}/entries/a", value.encode())
        eventually(partial(_has, again, value))
        del again


@pytest.mark.fault(257)
@pytest.mark.parametrize("kind", [Dict, Set])
def test_dropped_as_its_copy_is_listed(
    kind: Any, zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that keeps the copy current learns of the end, though it is just about to sleep."""
    sleeps, dropped = threading.Event(), threading.Event()
    policy = POLICIES[WaitRecursive]

    def wait_later(call: object, step: Any) -> Any:
        sleeps.set()
        assert dropped.wait(20)
        return policy.steps(call, step)

    monkeypatch.setitem(POLICIES, WaitRecursive, policy._replace(steps=wait_later))
    shared = kind(zk, zk_path)
    shared.ready()
    session, followers = shared._session, shared._path_state.followers
    assert sleeps.wait(20)
    del shared
    gc.collect()
    dropped.set()
    eventually(lambda: followers.thread is None and not session.registry.trees)


@pytest.mark.fault(248)
@pytest.mark.parametrize("kind", [Dict, Set])
def test_one_thread_for_all_copies(kind: Any, connect: Connect, zk: KazooClient, zk_path: str) -> None:
    """60 objects that are read have one thread, also while others write; it ends with the last of them."""
    client, number = connect(), 60
    before = set(threading.enumerate())

    def threads() -> int:
        return len(set(threading.enumerate()) - before)

    def write(n: int) -> None:
        """Have others write: a value, or the node of a member."""
        zk.create(f"{zk_path}/{n}/entries/{'k' if kind is Dict else 'x'}", b"v", makepath=True)

    for n in range(number):
        zk.ensure_path(f"{zk_path}/{n}/entries")
    maps = [kind(client, f"{zk_path}/{n}") for n in range(number)]
    for each in maps:
        assert len(each) == 0
    assert threads() <= 2  # that, and the client's keeper
    followers = maps[0]._path_state.followers
    for n in range(number):
        write(n)
    for each in maps:
        eventually(lambda each=each: len(each) == 1)
    assert threads() <= 2
    del each, maps[1:]
    gc.collect()
    eventually(lambda: len(maps[0]._session.registry.trees) == 1, "nothing is followed for the others")
    assert threads() <= 2
    zk.delete(f"{zk_path}/0/entries/{'k' if kind is Dict else 'x'}")
    eventually(lambda: len(maps[0]) == 0)
    maps.clear()
    gc.collect()
    eventually(lambda: followers._worker.idle and threads() <= 1, "the thread has ended")


@pytest.mark.fault(248)
def test_one_copy_that_fails_leaves_the_others(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Of copies with one thread, each has its own errors."""
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


def test_a_key_of_a_subclass(zk: KazooClient, zk_path: str) -> None:
    """A write or a delete goes by the plain string, whatever the subclass says of its hash."""

    class Odd(str):
        def __hash__(self) -> int:
            return 7

    d = Dict[str](zk, zk_path, codec=TEXT)
    d[Odd("a")] = "1"
    assert d == {"a": "1"}
    del d[Odd("a")]
    assert "a" not in d


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


@pytest.mark.fault(150)
@pytest.mark.parametrize(
    ("write", "result"),
    [
        (lambda d: d.replace("a", "old", "new"), False),
        (lambda d: d.remove("a", "old"), False),
        (lambda d: d.pop("a"), "other"),
    ],
)
def test_destroyed_and_made_anew(
    write: Callable[[Dict[str]], Any],
    result: Any,
    zk: KazooClient,
    connect: Connect,
    proxy: Proxy,
    zk_path: str,
    in_thread: InThread,
) -> None:
    """A client's first write finds an entry; the map is destroyed and made anew, all versions included."""
    d, slow = text(zk, zk_path), text(connect(hosts=proxy.hosts), zk_path)
    d["a"] = "old"
    slow.ready()
    with proxy.hold("getData", where=lambda message: message.path == f"{zk_path}/entries/a") as found:
        writing = in_thread(write, slow)
        found.wait()
        d.destroy()
        d["a"] = "other"
    assert writing.result(30) == result
    assert text(connect(), zk_path) == ({} if result else {"a": "other"})


@pytest.mark.fault(23)
def test_a_fork_amid_another_threads_write(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """A process forks while another thread is changing the copy: the child's writes are errors, too."""
    d = text(zk, zk_path)
    d["a"] = "1"
    has_it, forked = threading.Event(), threading.Event()

    def change() -> None:
        with d._mirror.guard:
            has_it.set()
            assert forked.wait(PATIENCE)

    changing = in_thread(change)
    assert has_it.wait(PATIENCE)

    def child() -> None:
        signal.setitimer(signal.ITIMER_REAL, PATIENCE / 2)  # which ends a child that hangs
        with pytest.raises(ClientError):
            d["a"] = "2"

    in_forked_child(child)
    forked.set()
    changing.result(PATIENCE)


def test_watches_of_the_users(zk: KazooClient, zk_path: str) -> None:
    """Kazoo's own watches on the entries fire as ever."""
    d = text(zk, zk_path)
    d["a"] = "1"
    assert d["a"] == "1"
    seen: list[Any] = []
    zk.get(f"{zk_path}/entries/a", watch=seen.append)
    d["a"] = "2"
    eventually(lambda: [event.type for event in seen] == ["CHANGED"])
    d["a"] = "3"
    eventually(lambda: d["a"] == "3")
    assert len(seen) == 1


@pytest.mark.parametrize("how", ["get", "exists", "get_children", "exists before"])
def test_watches_of_the_users_on_all_entries(how: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """They fire as ever, and replace the copy's own for a moment only."""
    client = connect()
    d, theirs, folder = text(client, zk_path), text(zk, zk_path), f"{zk_path}/entries"
    if how != "exists before":
        theirs["a"] = "0"
    assert len(d) == (how != "exists before")
    seen: list[Any] = []
    for n in range(1, 5):
        getattr(client, how.split()[0])(folder, watch=seen.append)
        theirs["a"] = str(n)
        eventually(lambda n=n: d.get("a") == str(n))
        theirs[f"new {n}"] = "x"
        eventually(lambda n=n: f"new {n}" in d)
    if how != "get_children":
        fired = len(seen)
        client.get(folder, watch=seen.append)
        zk.set(folder, b"")
        eventually(lambda: len(seen) > fired)
    theirs["a"] = "end"
    eventually(lambda: d["a"] == "end")


@pytest.mark.parametrize("kind", [Set, partial(text, ephemeral=True)])
def test_a_map_that_another_kind_has_replaced(
    kind: Callable[..., Any], zk: KazooClient, connect: Connect, zk_path: str
) -> None:
    """A client that has read the map before writes nothing into what was made there after `destroy`."""
    d, theirs = text(connect(), zk_path), text(zk, zk_path)
    theirs["a"] = "1"
    assert d["a"] == "1"
    theirs.destroy()
    other = kind(connect(), zk_path)
    if isinstance(other, Set):
        other.add("a")
    else:
        other["a"] = "1"
    header = zk.get(zk_path)[0]
    for _ in range(2):
        with pytest.raises(ValueError, match=header.decode()):
            d["b"] = "2"
    assert zk.get(zk_path)[0] == header
    assert zk.get_children(f"{zk_path}/entries") == ["a"]


def test_servers_made_anew() -> None:
    """A client that is restarted on servers whose zxids begin again has what is there."""
    with Server() as first, Server() as second:
        client, another = KazooClient(first.hosts), KazooClient(second.hosts)
        client.start()
        another.start()
        try:
            d = text(client, "/map")
            for n in range(20):
                d["a"] = str(n)
            d["b"] = "1"
            assert d == {"a": "19", "b": "1"}
            client.stop()
            client.set_hosts(second.hosts)
            client.start()
            text(another, "/map")["a"] = "new"
            eventually(lambda: d == {"a": "new"})
            d["b"] = "2"
            assert d["b"] == "2"
        finally:
            for each in (client, another):
                each.stop()
                each.close()


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


def test_a_finalizer_on_the_thread_of_the_copy(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """It can't wait for that very thread: its read is an error at once, and the listing goes on."""
    text(zk, zk_path)["a"] = "1"
    d, got = text(connect(), zk_path), list[Any]()

    def read() -> None:
        try:
            got.append(len(d))
        except ClientError as error:
            got.append(error)

    with finalizing("map/mirror.py", read):
        assert in_thread(len, d).result(10) == 1
    assert zk_path in str(got[0])


@pytest.mark.fault(176)
def test_an_unreadable_value(zk: KazooClient, zk_path: str) -> None:
    """A value that the codec can't decode: the error names it, it stays, and disturbs no other."""
    d = Dict[Any](zk, zk_path, codec=JSON)
    d["good"] = 1
    zk.create(f"{zk_path}/entries/bad", b"{")
    eventually(lambda: "bad" in d)
    unreadable = rf"b'{{', which the codec zkconcurrent.JSON can't .*Expecting.*{zk_path}/entries/bad"
    for read in (
        lambda: d["bad"],
        lambda: d.get("bad", 1),
        d.copy,
        lambda: list(d.items()),
        lambda: 5 in d.values(),
        lambda: d.setdefault("bad", 1),
        lambda: d.replace("bad", 1, 2),
        lambda: d.remove("bad", 1),
        lambda: d.pop("bad", 1),
    ):
        with pytest.raises(ForeignNodeError, match=unreadable):
            read()
    assert d["good"] == 1
    assert zk.get(f"{zk_path}/entries/bad")[0] == b"{"  # not lost
    d["bad"] = 2
    assert d == {"good": 1, "bad": 2}


@pytest.mark.fault(350)
def test_errors_that_are_not_the_values(zk: KazooClient, zk_path: str) -> None:
    """Any error but a ValueError is raised as it is; none says that the node is to be deleted."""
    errors: list[Exception] = [MemoryError(), TimeoutError("the alarm"), LookupError("no such key")]

    def decode(data: bytes) -> bytes:
        if errors:
            raise errors[0]
        return data

    codec = SimpleNamespace(encode=bytes, decode=decode)
    d, shared = Dict[bytes](zk, zk_path, codec=codec), SharedValue[bytes](zk, f"{zk_path}-value", b"v", codec=codec)
    d["key"] = b"v"
    while errors:
        for read in (lambda: d["key"], lambda: d.pop("key"), shared.get, lambda: shared.wait_for(bool)):
            with pytest.raises(type(errors[0])):
                read()
        errors.pop(0)
    assert d.pop("key") == shared.get().value == b"v"


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


@pytest.mark.fault(171)
def test_updated_by_a_map_that_changes(zk: KazooClient, zk_path: str) -> None:
    """The argument of `update` may lose entries meanwhile."""

    class Taking:
        def encode(self, value: str) -> bytes:
            source._mirror.drop("b", sys.maxsize)
            return value.encode()

        def decode(self, data: bytes) -> str:
            return data.decode()

    source, target = text(zk, zk_path), Dict[str](zk, f"{zk_path}-target", codec=Taking())
    source.update({"a": "1", "b": "2"})
    target.update(source, c="3")
    assert "b" not in source
    assert target.copy() == {"a": "1", "b": "2", "c": "3"}


@pytest.mark.fault(423)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_no_memory_for_the_end_of_a_copy(
    zk: KazooClient, connect: Connect, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All memory is used up for a moment, as the library follows a map: the next read begins anew."""
    d, other = text(connect(), zk_path), text(zk, zk_path)
    d["a"] = "1"
    assert _has(d, "1")
    session, followers = d._session, d._path_state.followers
    used_up = True

    def with_memory(act: Any) -> Any:
        def tried(*args: Any) -> Any:
            if used_up:
                raise MemoryError
            return act(*args)

        return tried

    monkeypatch.setattr(d._mirror, "take", with_memory(d._mirror.take))
    monkeypatch.setattr(session, "stop_watching_tree", with_memory(session.stop_watching_tree))
    other["a"] = "2"
    eventually(lambda: followers._worker.idle, "the thread has ended")
    used_up = False
    assert _has(d, "2")
