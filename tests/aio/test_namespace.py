"""`aio.namespace`: the objects and paths of its names. All else it shares with that of threads."""

from __future__ import annotations

import asyncio

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect
from tests.helpers.kinds import make_named, named
from zkconcurrent import aio


@pytest.mark.parametrize("kind", named(aio.Namespace))
def test_a_name_makes_its_class(kind: str) -> None:
    """Each name of the namespace makes an object of the class of that name, below the base alone."""
    tasks = aio.namespace("local", "/app")
    assert isinstance(make_named(tasks, kind, "name"), getattr(aio, kind))
    with pytest.raises(ValueError, match=r"\.\."):
        make_named(tasks, kind, "..")


def test_the_paths(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A name's path lies below the base; threads that have the same name share it."""
    tasks = aio.namespace(zk, zk_path)
    assert tasks.RLock("cart").path == f"{zk_path}/cart"
    assert aio.namespace(zk).Barrier("barrier", 2).path == "/barrier"
    assert tasks.ReadWriteLock("pair").read_lock.path == f"{zk_path}/pair"
    assert (tasks.client, tasks.path) == (zk, zk_path)
    assert repr(tasks) == f"<zkconcurrent.aio.Namespace path={zk_path!r}>"
    threads = zkconcurrent.namespace(connect(), zk_path)

    async def main() -> None:
        async with tasks.RLock("cart"):
            assert not await asyncio.to_thread(threads.RLock("cart").acquire, False)

    asyncio.run(main())
