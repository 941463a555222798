"""Numbers at their end, on a real server whose snapshot was edited to be near it."""

from __future__ import annotations

import logging
import struct
import zlib
from pathlib import Path

import pytest

from zkconcurrent import AtomicLong, Barrier, Dict, Lock, Queue, SequenceExhaustedError
from zkconcurrent.testing import Server

pytestmark = [pytest.mark.fault(22, 172), pytest.mark.long]
LAST = 2_147_483_647
PATH = "/numbers"
# Else servers write more behind the seal: a digest of the data and, from 3.9 on, the last zxid.
SEALED = {"zookeeper.digest.enabled": "false", "zookeeper.serializeLastProcessedZxid.enabled": "false"}
_SEAL = struct.Struct("!qi1s")  # the checksum of all before it, and the string "/"


def count_from(server: Server, path: str, number: int) -> None:
    """Have the node `path` give `number` to its next child."""
    edit(server, {path: number}, after=4)


def edit(server: Server, numbers: dict[str, int], after: int = 0) -> None:
    """Stop the server, write these versions into its snapshot, or `after` bytes behind them, and start it again."""
    server.restart()  # it writes a snapshot when it starts
    server.kill()
    assert server._guard is not None
    snapshot = max(
        Path(server._guard.folder, "version-2").glob("snapshot.*"), key=lambda file: int(file.suffix[1:], 16)
    )
    data = bytearray(snapshot.read_bytes())
    for path, number in numbers.items():
        name = path.encode()
        at = data.index(struct.pack("!i", len(name)) + name) + 4 + len(name)
        (size,) = struct.unpack_from("!i", data, at)
        at += 4 + max(size, 0) + 8  # its data and its access rights; then the stat: czxid, mzxid, ctime, mtime, version
        struct.pack_into("!i", data, at + 4 * 8 + after, number)
    _SEAL.pack_into(data, len(data) - _SEAL.size, zlib.adler32(data[: -_SEAL.size]), 1, b"/")
    snapshot.write_bytes(data)
    server.restart()


def test_the_end_of_the_numbers(caplog: pytest.LogCaptureFixture) -> None:
    """From 2,000,000,000 on there is a warning; at the end an error that says what to do, and nothing is left."""
    with Server(properties=SEALED) as server, server.client() as client:
        lock = Lock(client, PATH)
        with lock:
            pass
        client.stop()
        count_from(server, PATH, 2_000_000_000)
        client.start(timeout=30)
        with caplog.at_level(logging.WARNING, "zkconcurrent"), lock:
            assert client.get_children(PATH)[0].endswith("2000000000")
        assert "running out" in caplog.text
        client.stop()
        count_from(server, PATH, LAST - 1)
        client.start(timeout=30)
        with lock:  # the last number that is one
            check_the_end(lock, server)
        with pytest.raises(SequenceExhaustedError):
            lock.acquire()
        assert client.get_children(PATH) == []
        client.delete(PATH)  # as the server does with a container that falls idle
        with lock:
            assert client.get_children(PATH)[0].endswith("0000000000")


def check_the_end(held: Lock, server: Server) -> None:
    """Another client that comes while the lock is held is refused, and leaves the holder alone."""
    with server.client() as other:
        with pytest.raises(SequenceExhaustedError, match="leave the path idle"):
            Lock(other, PATH).acquire(timeout=20)
        (name,) = other.get_children(PATH)
        assert name.endswith(str(LAST - 1))
        assert held.owner() is not None


def test_the_end_of_a_queues_numbers() -> None:
    """A put says so a little before the end, and at the end also that of an object that has put nothing before."""
    with Server(properties=SEALED) as server, server.client() as client:
        queue, items = Queue[bytes](client, PATH), [b"first", b"late", b"last"]
        queue.put(items[0])
        client.stop()
        count_from(server, f"{PATH}/items", LAST - 100_000)
        client.start(timeout=30)
        queue.put(items[1])
        with pytest.raises(SequenceExhaustedError, match="another path"):
            queue.put(b"later")
        del queue
        client.stop()
        count_from(server, f"{PATH}/items", LAST)
        client.start(timeout=30)
        Queue[bytes](client, PATH).put(items[2])
        for _ in range(2):
            with pytest.raises(SequenceExhaustedError, match="another path"):
                Queue[bytes](client, PATH).put(b"too late")
        queue = Queue[bytes](client, PATH)
        assert [queue.get_nowait() for _ in items] == items
        assert queue.empty()


def test_versions_begin_anew() -> None:
    """A node that is written once more than 2,147,483,647 times: every change still counts."""
    with Server(properties=SEALED) as server, server.client(timeout=30) as client:
        number, settings = AtomicLong(client, "/number"), Dict(client, "/settings")
        barrier = Barrier(client, "/barrier", 1)
        number.add()
        settings["k"] = b""
        barrier.wait()
        edit(server, dict.fromkeys(("/number", "/settings", "/barrier"), LAST - 1))
        for n in range(2, 6):
            assert number.add() == n
            settings["k"] = b"%d" % n
            assert settings.replace("k", b"%d" % n, b"")
            assert settings.pop("k") == b""
            barrier.wait()
        assert number.get() == 5
        assert max(client.get(path)[1].version for path in ("/number", "/settings")) < 0
