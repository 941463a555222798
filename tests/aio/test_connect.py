"""`aio.connect` on a real server: it blocks no loop, and leaves nothing, whenever it is cancelled."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import zkconcurrent
from tests.aio.loops import run
from tests.conftest import PATIENCE
from tests.helpers.eventually import eventually
from zkconcurrent import aio
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def sessions(server: Server) -> int:
    """Return how many connections the server has."""
    return int(server.mntr()["zk_num_alive_connections"])


def test_a_block(zookeeper: Server, zk_path: str) -> None:
    """The block has a started client, below the chroot, which is stopped after it; its error passes."""
    clients = []

    async def main() -> None:
        async with aio.connect(f"zk://{zookeeper.hosts}{zk_path}?timeout=6", margin=0.03) as zk:
            clients.append(zk)
            assert zk.connected
            assert (zk.chroot, zk.margin) == (zk_path, 0.03)
            async with aio.Lock(zk, "/lock"):
                assert zk.get_children("/lock")
            raise KeyError(7)

    with pytest.raises(KeyError):
        run(main())
    assert not clients[0].connected


def test_what_was_begun_is_done(zookeeper: Server, zk_path: str) -> None:
    """A call that a task has begun and does not await is done before the client stops."""

    async def main() -> None:
        for n in range(5):
            async with aio.connect(f"zk://{zookeeper.hosts}") as zk:
                aio.Event(zk, f"{zk_path}/{n}").set()
        async with aio.connect(f"zk://{zookeeper.hosts}") as zk:
            assert all([await aio.Event(zk, f"{zk_path}/{n}").fetch() for n in range(5)])

    asyncio.run(main())


@pytest.mark.fault(259)
def test_awaited_in_place_of_a_block() -> None:
    """The error of `await aio.connect(url)` says what to write."""

    async def main() -> None:
        await aio.connect("memory:")

    with pytest.raises(TypeError, match=r"write `async with aio\.connect\(url\) as zk:`"):
        asyncio.run(main())


@pytest.mark.fault(356)
def test_an_executor_full_of_waits(zookeeper: Server, zk_path: str) -> None:
    """The client stops while all threads of the executor wait in its calls; the stop ends their waits."""

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        async with aio.connect(f"zk://{zookeeper.hosts}") as zk:
            lock = zkconcurrent.Lock(zk, zk_path)
            waiting = [asyncio.create_task(asyncio.to_thread(lock.acquire)) for _ in range(2)]
            await until_waiting(zk, 2)
        for ended in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(ended, zkconcurrent.ClientError)

    async def until_waiting(zk: zkconcurrent.Client, count: int) -> None:
        while sum(call.path == zk_path for call in Session.of(zk).calls) < count:
            await asyncio.sleep(0.01)

    with zookeeper.client() as far, zkconcurrent.Lock(far, zk_path):
        asyncio.run(asyncio.wait_for(main(), PATIENCE))


@pytest.mark.fault(356)
def test_an_executor_full_of_work(zookeeper: Server, silent: str) -> None:
    """The client starts, or gives up in time, while all threads of the executor are in calls that last."""
    over = threading.Event()

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        lasting = asyncio.create_task(asyncio.to_thread(over.wait))
        try:
            async with aio.connect(f"zk://{zookeeper.hosts}") as zk:
                assert zk.connected
            with pytest.raises(TimeoutError):
                async with aio.connect(f"zk://{silent}?timeout=2", start_timeout=0.1):
                    pytest.fail("the block runs")
        finally:
            over.set()
            await lasting

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_a_cancel_where_nobody_answers(silent: str) -> None:
    """A cancelled start ends at once; its thread, and those of the client, end after one more attempt."""

    async def main() -> None:
        connecting = asyncio.create_task(aio.connect(f"zk://{silent}?timeout=9").__aenter__())
        await asyncio.sleep(0.2)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        assert "zkconcurrent start" in [thread.name for thread in threading.enumerate()]  # it did not wait for that

    asyncio.run(main())


def test_a_cancel_at_any_time(zookeeper: Server) -> None:
    """Whenever a start is cancelled, no session is left on the server, and no thread."""
    before = sessions(zookeeper)

    async def use() -> None:
        async with aio.connect(f"zk://{zookeeper.hosts}"):
            await asyncio.sleep(60)

    async def main() -> None:
        for n in range(0, 30, 3):
            using = asyncio.create_task(use())
            await asyncio.sleep(n / 1000)
            using.cancel()
            with pytest.raises(asyncio.CancelledError):
                await using

    asyncio.run(main())
    eventually(lambda: sessions(zookeeper) <= before)


def test_a_cancel_as_it_stops(zookeeper: Server) -> None:
    """A cancellation at the end of the block passes, and the client stops all the same."""
    before = sessions(zookeeper)

    async def main() -> None:
        leave = asyncio.Event()

        async def use() -> None:
            async with aio.connect(f"zk://{zookeeper.hosts}"):
                await leave.wait()

        for turns in range(0, 8, 2):
            leave.clear()
            using = asyncio.create_task(use())
            await asyncio.sleep(0.3)
            leave.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            using.cancel()
            await asyncio.wait([using])

    asyncio.run(main())
    eventually(lambda: sessions(zookeeper) <= before)
