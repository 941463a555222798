"""Namespaces of several ensembles: who shares which path, and processes that give other ensembles."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator

import prometheus_client
import pytest
from kazoo.client import KazooClient

import zkconcurrent.prometheus
from tests.conftest import InThread
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import ClientError, Lock, namespace
from zkconcurrent._recipes.ensembles import RECORD
from zkconcurrent.testing import Server

Ensembles = Callable[[str], dict[str, KazooClient]]
NAMES = [f"{n}" for n in range(8)]


@pytest.fixture
def ensembles(zookeeper: Server, zk_path: str) -> Iterator[Ensembles]:
    """Open clients of the ensembles with these names, as one more process would; each has a chroot of its own."""
    opened: list[KazooClient] = []

    def of(names: str) -> dict[str, KazooClient]:
        new = {name: zkconcurrent.connect(f"zk://{zookeeper.hosts}{zk_path}/{name}?timeout=10") for name in names}
        opened.extend(new.values())
        return new

    yield of
    for client in opened:
        client.stop()
        client.close()


def test_which_ensemble_has_a_path(ensembles: Ensembles) -> None:
    """All processes find a name on one ensemble, in whichever order they give them; its first part decides which."""
    one, two = namespace(ensembles("ab"), "/app"), namespace(ensembles("ba"), "/app")
    for name in NAMES:
        lock = one.RLock(f"{name}/cart")
        assert lock.client is one.Queue(f"{name}/jobs").client
        with lock:
            assert not two.RLock(f"{name}/cart").acquire(blocking=False)
    assert {one.RLock(f"{name}/cart").client for name in NAMES} == set(one.clients)
    with one.MultiLock(["x", "y", "z"]):
        assert not two.MultiLock(["z", "x"]).acquire(blocking=False)


def test_what_a_namespace_of_several_has(ensembles: Ensembles) -> None:
    """Its listeners hear of all clients. It has no single client, so it can't be pickled; its locks can."""
    given = ensembles("ba")
    threads = namespace(given, "/app")
    told: list[str] = []
    remove = threads.add_listener(lambda event: told.append(event.path))
    locks = [threads.Lock(name) for name in NAMES]
    for lock in locks:
        with lock:
            pass
    assert set(told) == {lock.path for lock in locks}
    remove()
    with locks[0]:
        again = pickle.loads(pickle.dumps(locks[0]))
        assert not again.acquire(blocking=False)
        again.client.stop()
    with pytest.raises(ValueError, match="several clients"):
        _ = threads.client
    with pytest.raises(TypeError, match="several clients"):
        pickle.dumps(threads)
    with pytest.raises(ValueError, match=RECORD):
        threads.Lock(f"{RECORD}/x")


@pytest.mark.fault(379)
def test_the_metrics_of_a_namespace_of_several(ensembles: Ensembles) -> None:
    """They measure all its clients, and nothing that is not below its path, or of another client."""
    several, registry = ensembles("ab"), prometheus_client.CollectorRegistry()
    made = namespace(several, "/app")
    remove = zkconcurrent.prometheus.instrument(made, registry=registry)

    def active(name: str, label: str) -> list[str]:
        samples = [each for metric in registry.collect() for each in metric.samples if each.name == name]
        return sorted(each.labels[label] for each in samples if each.value)

    letters = list("abcdefgh")
    locks = [made.Lock(letter) for letter in letters]
    others = [Lock(ensembles("a")["a"], "/app/i"), Lock(several["a"], "/app-others")]
    for lock in (*locks, *others):
        lock.acquire()
    assert {lock.client for lock in locks} == set(several.values())
    assert active("zkconcurrent_lock_hold_active", "zkconcurrent_name") == letters
    assert len(active("zkconcurrent_session_state", "zkconcurrent_client")) == 2
    for lock in (*locks, *others):
        lock.release()
    remove()


@pytest.mark.fault(318)
def test_another_list(ensembles: Ensembles) -> None:
    """A process whose list is not that of the others gets an error that shows both, and leaves nothing."""
    given = ensembles("ab")
    threads = namespace(given, "/app")
    assert json.loads(given["b"].get(f"/app/{RECORD}")[0]) == {"name": "b", "ensembles": ["a", "b"]}
    two = ensembles("ab")
    (third,) = ensembles("c").values()
    with threads.Lock("here"):
        for other in (
            {"a": two["a"]},
            {"b": two["b"], "c": third},
            {**two, "c": third},
            {"a": two["b"], "b": two["a"]},
            {"a": two["a"], "b": third, "c": two["b"]},
        ):
            with pytest.raises(ClientError, match=r'"ensembles": .* record .* \["a", "b"\]') as refused:
                namespace(other, "/app")
            assert refused.value.path == f"/app/{RECORD}"
        assert not namespace(two, "/app").Lock("here").acquire(blocking=False)
    assert not third.exists("/app")


def test_a_list_that_begins_anew(ensembles: Ensembles) -> None:
    """Once the record is deleted on each ensemble, any list begins; here at the root."""
    with namespace(ensembles("ab")).MultiLock(NAMES):
        pass
    three = ensembles("abc")
    for each in "ab":
        with pytest.raises(ClientError, match="delete this node"):
            namespace(three)
        three[each].delete(f"/{RECORD}")
    with namespace(three).MultiLock(NAMES):
        pass


def test_an_ensemble_that_is_down(ensembles: Ensembles, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """Its names wait, and so does a process that begins; the other ensemble's names do not."""

    def begin() -> zkconcurrent.Namespace:
        return namespace({"a": a, "b": b}, "/app")

    a = ensembles("ab")["a"]
    b = zkconcurrent.connect(f"zk://{proxy.hosts}{zk_path}/b?timeout=10")
    try:
        threads = begin()
        (up, *_), (down, *_) = ([name for name in NAMES if threads.Lock(name).client is each] for each in (a, b))
        proxy.refuse()
        proxy.cut()
        eventually(lambda: not b.connected)
        assert not threads.Lock(down).acquire(timeout=0.2)
        begins = in_thread(begin)
        with threads.Lock(up):
            assert not begins.done()
        proxy.resume()
        with begins.result(30).Lock(down).hold(timeout=30):
            pass
    finally:
        b.stop()
        b.close()
