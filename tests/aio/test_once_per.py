"""`aio.once_per`: coroutine functions and `async with` blocks that run a job at most once in each period."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from zkconcurrent import aio

HOUR = 3300.0


async def test_of_many_tasks_one_runs(connect: Connect, zk_path: str) -> None:
    """Of the tasks of two clients, and a thread, one runs; the others get None, or a turn that tells who ran."""
    zk, ran = connect(), list[str]()

    async def job(name: str) -> str:
        await asyncio.sleep(0.01)
        ran.append(name)
        return name

    jobs = [aio.once_per(client, zk_path, HOUR)(job) for client in (zk, connect())]
    said = await asyncio.gather(*(each(name) for each in jobs for name in "abc"))
    assert sorted(said, key=str) == sorted([*ran, *[None] * 5], key=str)
    assert len(ran) == 1
    async with aio.once_per(zk, zk_path, HOUR) as turn:
        assert not turn
    assert await asyncio.to_thread(zkconcurrent.once_per(zk, zk_path, HOUR)(lambda: "thread")) is None
    assert turn.last is not None
    assert "thread 'Task-" in turn.last.by


@pytest.mark.parametrize("until_success", [False, True], ids=["at most once", "until success"])
async def test_a_job_that_fails(zk: KazooClient, zk_path: str, until_success: bool) -> None:
    """Its error, or its cancellation, comes through; with `until_success` the next call runs it, else that skips."""
    wrong = [KeyError("wrong"), asyncio.CancelledError()]

    @aio.once_per(zk, zk_path, HOUR, until_success=until_success)
    async def job() -> str:
        if wrong:
            raise wrong.pop()
        return "done"

    with pytest.raises(asyncio.CancelledError):
        await job()
    if until_success:
        with pytest.raises(KeyError, match="wrong"):
            await job()
    assert [await job(), await job()] == ["done" if until_success else None, None]


async def test_a_cancelled_wait(zk: KazooClient, zk_path: str) -> None:
    """A call that is cancelled while it waits leaves no node, no mark and no hold; the next one runs."""
    job = aio.once_per(zk, zk_path, HOUR)(asyncio.sleep)
    async with aio.RLock(zk, zk_path):
        waiting = asyncio.ensure_future(job(0, "ran"))
        await asyncio.to_thread(eventually, queued(zk, zk_path, 2))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert await job(0, "ran") == "ran"


def test_what_it_is_for(zk: KazooClient, zk_path: str) -> None:
    """Plain functions and async generators are refused, and by `once_per` of threads, coroutine functions."""

    async def generator() -> AsyncIterator[int]:
        yield 1

    async def coroutine() -> None: ...

    for wrong in (generator, lambda: None):
        with pytest.raises(TypeError, match=r"zkconcurrent\.once_per"):
            aio.once_per(zk, zk_path, HOUR)(wrong)
    for wrong in (generator, coroutine, lambda: (yield)):
        with pytest.raises(TypeError, match=r"aio\.once_per"):
            zkconcurrent.once_per(zk, zk_path, HOUR)(wrong)
