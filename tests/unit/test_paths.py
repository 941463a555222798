"""Paths are checked when a lock is made, before anything is sent."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from zkconcurrent._arguments.paths import LONGEST
from zkconcurrent._engine.session import Session

BAD = ["", "app", "app/lock", "/", "/app/", "//app", "/app//lock", "/app/./lock", "/app/../lock", "/zookeeper/lock"]
BAD += ["/app/\0", "/app/\x1f", "/app/\ud800", "/app/\uf000", "/app/\ufff0"]


@pytest.mark.parametrize("path", BAD)
def test_a_bad_path_is_refused(path: str) -> None:
    """A path that ZooKeeper would refuse is a ValueError at once that shows it."""
    with pytest.raises(ValueError, match=r"path|reserved"):
        zkconcurrent.Lock(KazooClient(), path)


@pytest.mark.fault(50)
def test_a_path_has_a_length() -> None:
    """A path of more bytes than a request can carry often is a ValueError that says the limit, and shows little."""
    client, room = KazooClient(), LONGEST - len("/app/")
    for last in ("x" * room, "ö" * (room // 2)):
        assert zkconcurrent.Lock(client, f"/app/{last}").path == f"/app/{last}"
        with pytest.raises(ValueError, match=f"{LONGEST:,} bytes") as caught:
            zkconcurrent.Lock(client, f"/app/{last}xx")
        assert len(str(caught.value)) < 300
    for huge in ("x" * 1_000_000, "\0" * 1_000_000, "/" * 1_000_000, "\U0001f600" * 1_000_000):
        for make in (
            lambda huge: zkconcurrent.Event(client, f"/app/{huge}"),
            lambda huge: zkconcurrent.namespace("local").RLock(huge),
            lambda huge: zkconcurrent.synchronized(client, "/users/{huge}")(lambda huge: huge)(huge),
        ):
            with pytest.raises(ValueError, match="bytes") as caught:
                make(huge)
            assert len(str(caught.value)) < 500


@pytest.mark.fault(71)
@pytest.mark.parametrize("path", ["/app/\U0001f600", "/app/x\U00010000"])
def test_what_utf_16_takes_two_for_is_refused(path: str) -> None:
    """ZooKeeper counts in UTF-16 and takes half a character for a bad one: told at construction, by which it is."""
    with pytest.raises(ValueError, match="UTF-16"):
        zkconcurrent.Lock(KazooClient(), path)


def test_one_path_is_one_kind() -> None:
    """Lock and RLock on one path of one client are refused; on two clients each is on its own."""
    client = KazooClient()
    lock = zkconcurrent.Lock(client, "/app/lock")
    with pytest.raises(ValueError, match="for Lock already"):
        zkconcurrent.RLock(client, "/app/lock")
    assert zkconcurrent.RLock(KazooClient(), "/app/lock").path == lock.path


@pytest.mark.fault(66)
def test_paths_must_not_nest() -> None:
    """A lock above or below another of the same client is refused, until that one is gone."""
    client = KazooClient()
    lock = zkconcurrent.Lock(client, "/app/lock")
    with pytest.raises(ValueError, match="nest"):
        zkconcurrent.Lock(client, "/app")
    with pytest.raises(ValueError, match="nest"):
        zkconcurrent.Lock(client, "/app/lock/inner")
    assert zkconcurrent.Lock(client, "/app/lock2").path != lock.path
    del lock
    assert zkconcurrent.Lock(client, "/app/lock/inner").path


def test_paths_used_once() -> None:
    """A client keeps nothing of the paths of objects that are gone, but for the last one's."""
    client = KazooClient()
    for n in range(100):
        zkconcurrent.Lock(client, f"/app/{n}/lock")
    assert len(Session.of(client).directory._interior) <= 2
