"""Elections for tasks: the differences from those of threads; `test_tests_of_threads.py` has all the rest."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.loops import run, soon
from tests.conftest import FAST, Connect
from tests.helpers.eventually import eventually
from zkconcurrent import LockLostError, aio
from zkconcurrent.testing import Server

LONG = 30


def test_a_loss_cancels_the_block(zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """The body of a block, and the function of `run`, are cancelled when the term is lost; LockLostError comes out."""
    client = connect(**FAST)

    async def main() -> None:
        election = aio.Election(client, zk_path)
        for use in (lead, lambda election: election.run(asyncio.sleep, LONG)):
            using = asyncio.create_task(use(election))
            while not election.is_leader():
                await asyncio.sleep(0.01)
            await asyncio.to_thread(zookeeper.expire, client)
            with pytest.raises(LockLostError, match="another candidate may lead"):
                await soon(using)
            assert not using.cancelled()
        async with election.lead(timeout=LONG) as term:
            assert not term.lost.is_set()

    async def lead(election: aio.Election) -> None:
        async with election.lead() as term:
            try:
                await asyncio.sleep(LONG)
            finally:
                assert term.lost.is_set()

    run(main())


def test_a_candidacy_outlives_its_loop(zk: KazooClient, zk_path: str) -> None:
    """It belongs to the client: another loop, or a thread, waits for its term, awaits its end, and withdraws."""

    async def stand() -> None:
        await aio.Election(zk, zk_path, id="of a loop").stand()

    async def wait() -> int:
        election = aio.Election(zk, zk_path)
        term = await soon(election.wait())
        assert term is not None
        leader = await election.leader()
        assert leader is not None
        assert leader.id == "of a loop"
        with pytest.raises(RuntimeError, match="stands at"):
            async with election.lead():
                pytest.fail("it waits for itself")
        ended = asyncio.create_task(term.lost.wait())
        await asyncio.sleep(0)
        assert not ended.done()
        await election.withdraw()
        assert await soon(ended)
        await election.stand()
        assert await soon(election.wait())
        return term._hold.ticket.token

    run(stand())
    token = run(wait())
    election = zkconcurrent.Election(zk, zk_path)
    term = election.wait(LONG)
    assert term is not None
    assert term.fencing_token > token
    election.withdraw()


@pytest.mark.fault(136)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_closed_loop_with_a_task_that_waits(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The candidacy, which goes on, keeps no task of a closed loop that waits for its term."""
    elsewhere = zkconcurrent.Election(connect(), zk_path)
    loop = asyncio.new_event_loop()
    election = aio.Election(zk, zk_path)
    with elsewhere.lead():
        loop.run_until_complete(election.stand())
        task = loop.create_task(election.wait())
        loop.run_until_complete(asyncio.sleep(0))
        assert election._core._path_state.candidacy.waiters
        waiting = weakref.ref(task)
        loop.close()
        del task
        eventually(lambda: waiting() is None or gc.collect() < 0)
        assert not election._core._path_state.candidacy.waiters
    zkconcurrent.Election(zk, zk_path).withdraw()
