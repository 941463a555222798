"""Dict and Set for tasks: plain reads of the last known copy, awaited writes, and cancelled ones."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import FAST, Connect
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import JSON, TEXT, aio


def test_a_dictionary(zk: KazooClient, zk_path: str) -> None:
    """Reads are plain after `ready()`; writes are awaited, and read at once; threads share the copy."""

    async def main() -> None:
        d: aio.Dict[str] = aio.Dict(zk, zk_path, codec=TEXT)
        with pytest.raises(RuntimeError, match=r"await ready\(\)"):
            len(d)
        await d.ready()
        assert not d
        await d.update({"a": "1", "b": "2"}, c="3")
        assert d == {"a": "1", "b": "2", "c": "3"} == d.copy()
        assert (sorted(d), ("a", "1") in d.items(), d.get("x", "y"), d.stale) == (["a", "b", "c"], True, "y", False)
        assert await d.setdefault("a", "9") == "1"
        assert not await d.replace("a", "9", "8")
        assert await d.replace("a", "1", "8")
        assert not await d.remove("a", "1")
        assert await d.remove("a", "8")
        assert await d.pop("b") == "2"
        assert await d.pop("b", None) is None
        assert await d.popitem() == ("c", "3")
        for missing in (d.popitem, lambda: d.pop("a"), lambda: d.delete("a")):
            with pytest.raises(KeyError):
                await missing()  # type: ignore[operator]
        await d.put("x", "y")
        await d.delete("x")
        await d.clear()
        await d.put("x", "y")

    asyncio.run(main())
    threads = zkconcurrent.Dict[str](zk, zk_path, codec=TEXT)
    eventually(lambda: threads == {"x": "y"})


@pytest.mark.fault(364)
def test_a_set(zk: KazooClient, zk_path: str) -> None:
    """Elements are added and removed by awaited calls; operators make sets; fault 364."""

    async def main() -> None:
        s = aio.Set(zk, zk_path)
        for name in "aba":
            await s.add(name)
        await s.ready()
        assert s | {"c"} == {"a", "b", "c"}
        odd: Any = 5
        await s.discard(odd)
        with pytest.raises(KeyError):
            await s.remove("none")
        await s.remove("a")
        assert await s.pop() == "b"
        with pytest.raises(KeyError):
            await s.pop()
        await s.destroy()

    asyncio.run(main())
    assert zk.exists(zk_path) is None


@pytest.mark.fault(101)
def test_stale_copies(connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str) -> None:
    """While no server is in reach, and until the copy is read anew, reads have what was known, and `stale` tells."""
    theirs = zkconcurrent.Dict[int](zk, zk_path, codec=JSON)
    theirs["a"] = 1
    client = connect(hosts=proxy.hosts, timeout=10.0, **FAST)

    async def main() -> None:
        d: aio.Dict[int] = aio.Dict(client, zk_path, codec=JSON)
        await d.ready()
        proxy.refuse()
        proxy.cut()
        while not d.stale:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(theirs.__setitem__, "a", 2)
        assert d["a"] == 1
        writing = asyncio.create_task(d.put("b", 1))
        await asyncio.sleep(0)
        assert not writing.done()
        proxy.resume()
        await d.ready()
        assert d["a"] == 2
        await writing
        assert d["b"] == 1

    asyncio.run(main())


def test_maps_that_go_in_an_outage(connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """The thread of a map ends with its last object, even if its first read has found no server."""
    client = connect(hosts=proxy.hosts, **FAST)
    aio.Dict(client, zk_path)
    proxy.refuse()
    proxy.cut()
    eventually(lambda: not client.connected)

    def threads() -> int:
        return sum(each.name.startswith("zkconcurrent map") for each in threading.enumerate())

    async def read(path: str) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(aio.Dict(client, path).ready(), 0.1)

    async def main() -> None:
        await asyncio.gather(*(read(f"{zk_path}-{n}") for n in range(10)))

    asyncio.run(main())
    gc.collect()
    eventually(lambda: not threads())
    proxy.resume()
