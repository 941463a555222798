"""Events on a real ZooKeeper: all clients see a set, none is missed, and no fault doubles or loses a set."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.proxy import Proxy
from zkconcurrent import Event, ForeignNodeError


def data(client: KazooClient, event: Event) -> str:
    """Return what the event's node says."""
    return client.get(event.path)[0].decode()


def test_all_see_it(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """All other clients see a set or a clear at once; the epoch counts the sets that changed something."""
    mine, theirs = Event(zk, zk_path), Event(connect(), zk_path)
    assert not mine.is_set()
    assert zk.exists(zk_path) is None
    mine.set()
    assert theirs.is_set()
    theirs.set()
    assert data(zk, mine) == "1 set"
    theirs.clear()
    assert not mine.is_set()
    mine.clear()
    mine.set()
    assert data(zk, mine) == "2 set"
    assert theirs.wait(0)
    assert zk.get(zk_path)[1].ephemeralOwner == 0


@pytest.mark.threads_only("asyncio's event has no isSet()")
def test_the_old_name(zk: KazooClient, zk_path: str) -> None:
    """`isSet()` warns, as threading's does, and says the same as `is_set()`."""
    with pytest.warns(DeprecationWarning, match="is_set"):
        assert Event(zk, zk_path).isSet() is False


@pytest.mark.fault(60)
@pytest.mark.parametrize(("other", "gone"), [(b"8 clear", True), (b"mine now", False)])
def test_destroy_sees_what_comes_between(
    other: bytes, gone: bool, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Destroy deletes only the state that it has seen: it looks first at a later write, and keeps a foreign one."""
    event = Event(connect(hosts=proxy.hosts), zk_path)
    event.set()
    with proxy.hold("getChildren") as looked:
        destroying = in_thread(event.destroy)
        looked.wait()
        zk.set(zk_path, other)
    if gone:
        destroying.result(20)
        assert zk.exists(zk_path) is None
    else:
        with pytest.raises(ForeignNodeError, match="mine now"):
            destroying.result(20)
        assert zk.get(zk_path)[0] == other


def test_what_is_no_events(zk: KazooClient, zk_path: str) -> None:
    """Other data in the node is an error that names both, and is not overwritten."""
    event = Event(zk, zk_path)
    for other in (b"", None, b"set", b"-1 set", b"1 set ", b"\xff", b"9" * 5000 + b" set"):
        zk.ensure_path(zk_path)
        zk.set(zk_path, other)
        for call in (event.is_set, event.set, event.clear, event.wait, lambda: event.wait(0)):
            with pytest.raises(ForeignNodeError) as caught:
                call()
            assert zk_path in str(caught.value)
            assert repr(other or b"")[:100] in str(caught.value)
        assert zk.get(zk_path)[0] == other
    assert not event._session.registry.tickets


@pytest.mark.threads_only("tests/unit/test_twins.py compares the repr of each class of tasks with its twin's")
def test_the_object_itself(zk: KazooClient, zk_path: str) -> None:
    """It has its path and client; the repr tells what this process last knew."""
    event, again = Event(zk, zk_path), Event(zk, zk_path)
    assert (event.path, event.client) == (zk_path, zk)
    assert repr(event) == f"<zkconcurrent.Event at {id(event):#x}: unset>"
    event.set()
    assert repr(again) == f"<zkconcurrent.Event at {id(again):#x}: set>"
    with pytest.raises(ValueError, match="for Event already"):
        __import__("zkconcurrent").Lock(zk, zk_path)
    with pytest.raises(TypeError):
        Event(zk, zk_path, 1)  # type: ignore[call-arg]
