"""Groups and double barriers of tasks: what differs from those of threads."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import PATIENCE, Connect
from tests.helpers.proxy import Proxy
from zkconcurrent import aio


@pytest.mark.fault(422)
def test_a_membership(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A task joins by one `await` or for one block; threads see it; the errors are those of threads."""
    threads = zkconcurrent.Group(connect(), zk_path)

    async def main() -> None:
        group = aio.Group(zk, zk_path)
        async with group.join(b"one", "task") as member:
            assert (member.id, member.data, member.path, member.active) == ("task", b"one", f"{zk_path}/task", True)
            assert threads.members() == await group.members() == {"task": b"one"}
            assert repr(member) == f"<zkconcurrent.aio.Membership active path='{zk_path}/task'>"
            with pytest.raises(ValueError, match="'task'"):
                await group.join(b"", "task")
            with pytest.raises(ValueError, match="another member"):
                await asyncio.to_thread(threads.join, b"", "task")
            with pytest.raises(TypeError, match="data must be bytes"):
                group.join("text")  # type: ignore[arg-type]
            other = await group.join(b"two")
            assert list(await group.members()) == ["task", other.id]
            await other.leave()
            await other.leave()
        assert await group.members() == {}
        joining = group.join(b"three")
        last = await joining
        for again in (joining, joining.__aenter__()):
            with pytest.raises(RuntimeError, match="again for the next"):
                await again
        await last.leave()
        assert not member.lost.is_set()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_lost_membership(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """`lost` can be awaited."""
    mine = connect(hosts=proxy.hosts)

    async def main() -> None:
        member = await aio.Group(mine, zk_path).join(b"", "id")
        waiting = asyncio.ensure_future(member.lost.wait())
        await asyncio.sleep(0)
        await asyncio.to_thread(mine.stop)
        assert await waiting
        assert not member.active
        await member.leave()

    asyncio.run(asyncio.wait_for(main(), 30))
    assert zk.get_children(zk_path) == []


@pytest.mark.fault(392)
def test_a_task_that_would_end_inside(zk: KazooClient, zk_path: str) -> None:
    """A task made for an enter alone is refused before anything is sent."""

    async def main() -> None:
        barrier = aio.DoubleBarrier(zk, zk_path, 1)
        with pytest.raises(RuntimeError, match=r"Await enter\(timeout="):
            await asyncio.create_task(barrier.enter())
        assert not zk.exists(zk_path)
        if sys.version_info >= (3, 12):
            assert await asyncio.wait_for(barrier.enter(), 10)
            assert await asyncio.wait_for(barrier.leave(), 10)

    asyncio.run(main())


@pytest.mark.fault(353)
def test_a_generator_that_is_closed_inside_of_a_barrier(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The party of a generator that its task closes leaves; others would wait for it forever."""
    barrier, other = (aio.DoubleBarrier(client, zk_path, 2) for client in (zk, connect()))

    async def rows() -> AsyncIterator[int]:
        async with barrier:
            yield 1

    async def take_part() -> bool:
        await other.enter()
        return await other.leave()

    async def main() -> None:
        parting = asyncio.create_task(take_part())
        generator: Any = rows()
        assert await generator.__anext__() == 1
        await generator.aclose()
        assert await parting
        with pytest.raises(RuntimeError, match="not inside"):
            await barrier.leave()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
