"""The watch over the loops of these tests."""

from __future__ import annotations

import asyncio

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.loops import run


@pytest.mark.filterwarnings("ignore:.*running event loop:RuntimeWarning")
def test_a_wait_of_the_library(zk: KazooClient, zk_path: str) -> None:
    """A coroutine fails its test if it has the library wait on the loop's thread."""

    async def main() -> None:
        with zkconcurrent.Lock(zk, zk_path):
            pass

    with pytest.raises(AssertionError, match="the library has the loop wait"):
        run(main())
    run(asyncio.to_thread(lambda: zkconcurrent.Lock(zk, zk_path).locked()))
