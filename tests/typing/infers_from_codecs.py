"""A user's program, for the type checker alone: queues, maps and values that have the type of their codec's items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import zkconcurrent
from zkconcurrent import (
    JSON,
    MSGPACK,
    TEXT,
    Codec,
    DelayQueue,
    Dict,
    LifoQueue,
    PriorityQueue,
    Queue,
    SharedValue,
    SimpleQueue,
    aio,
)

if TYPE_CHECKING:
    from typing_extensions import assert_type


class Job:
    """An item of the user's own."""

    rank = 1


class Jobs:
    """The codec of such items; it need not derive from anything."""

    def encode(self, item: Job, /) -> bytes:
        """Return a job as bytes."""
        return str(item.rank).encode()

    def decode(self, data: bytes, /) -> Job:
        """Return the job."""
        return Job()


def the_default_is_bytes(zk: zkconcurrent.Client) -> None:
    """Without a codec, items and values are bytes."""
    assert_type(Queue(zk, "/q"), Queue[bytes])
    assert_type(LifoQueue(zk, "/q", 7, max_attempts=3), LifoQueue[bytes])
    assert_type(PriorityQueue(zk, "/q", priority=len), PriorityQueue[bytes])
    assert_type(DelayQueue(zk, "/q", maxsize=7), DelayQueue[bytes])
    assert_type(SimpleQueue(zk, "/q"), SimpleQueue[bytes])
    assert_type(Dict(zk, "/d", ephemeral=True), Dict[bytes])
    assert_type(SharedValue(zk, "/v", b""), SharedValue[bytes])
    assert_type(aio.Queue(zk, "/q"), aio.Queue[bytes])
    assert_type(aio.LifoQueue(zk, "/q"), aio.LifoQueue[bytes])
    assert_type(aio.PriorityQueue(zk, "/q", priority=len), aio.PriorityQueue[bytes])
    assert_type(aio.DelayQueue(zk, "/q"), aio.DelayQueue[bytes])
    assert_type(aio.Dict(zk, "/d"), aio.Dict[bytes])
    assert_type(aio.SharedValue(zk, "/v", b""), aio.SharedValue[bytes])


def a_codec_gives_the_type(zk: zkconcurrent.Client) -> None:
    """No annotation is needed; a codec of any JSON value gives Any."""
    assert_type(Queue(zk, "/q", codec=JSON), Queue[Any])
    assert_type(Queue(zk, "/q", codec=MSGPACK).get(), Any)
    assert_type(Queue(zk, "/q", codec=TEXT).get(), str)
    assert_type(LifoQueue(zk, "/q", codec=TEXT), LifoQueue[str])
    assert_type(DelayQueue(zk, "/q", codec=Jobs()), DelayQueue[Job])
    assert_type(SimpleQueue(zk, "/q", codec=Jobs()).dead(), list[Job | bytes])
    assert_type(PriorityQueue(zk, "/q", codec=JSON), PriorityQueue[Any])
    assert_type(PriorityQueue(zk, "/q", codec=Jobs(), priority=lambda job: job.rank), PriorityQueue[Job])
    with Queue(zk, "/q", codec=Jobs()).claim() as claim:
        assert_type(claim.item, Job)
    settings = Dict(zk, "/d", codec=TEXT)
    assert_type(settings["color"], str)
    assert_type(settings.setdefault("color", "red"), str)
    assert_type(settings.get("color"), str | None)
    settings.update({"color": "blue"}, size="5")
    value = SharedValue(zk, "/v", "", codec=TEXT)
    assert_type(value.get().value, str)
    assert_type(value.update(str.upper), str)
    for seen, version in value.watch():
        assert_type((seen, version), tuple[str, int])


async def tasks_infer_the_same(zk: zkconcurrent.Client) -> None:
    """The twins have the same types."""
    assert_type(aio.Queue(zk, "/q", codec=JSON), aio.Queue[Any])
    assert_type(await aio.Queue(zk, "/q", codec=TEXT).get_nowait(), str)
    assert_type(aio.LifoQueue(zk, "/q", codec=TEXT), aio.LifoQueue[str])
    assert_type(aio.DelayQueue(zk, "/q", codec=Jobs()), aio.DelayQueue[Job])
    assert_type(aio.PriorityQueue(zk, "/q", codec=Jobs(), priority=lambda job: job.rank), aio.PriorityQueue[Job])
    async with aio.Queue(zk, "/q", codec=Jobs()).claim() as claim:
        assert_type(claim.item, Job)
    settings = aio.Dict(zk, "/d", codec=TEXT)
    assert_type(settings["color"], str)
    assert_type(await settings.setdefault("color", "red"), str)
    assert_type(await settings.pop("color"), str)
    value = aio.SharedValue(zk, "/v", "", codec=TEXT)
    assert_type((await value.get()).value, str)
    async for seen, version in value.watch():
        assert_type((seen, version), tuple[str, int])


async def namespaces_infer_the_same(zk: zkconcurrent.Client) -> None:
    """So do the methods of namespaces."""
    threads, tasks = zkconcurrent.namespace(zk, "/app"), aio.namespace(zk, "/app")
    assert_type(threads.Queue("q"), Queue[bytes])
    assert_type(threads.Queue("q", codec=JSON), Queue[Any])
    assert_type(threads.DelayQueue("q", codec=TEXT), DelayQueue[str])
    assert_type(threads.Dict("d", codec=TEXT), Dict[str])
    assert_type(threads.SharedValue("v", "", codec=TEXT), SharedValue[str])
    assert_type(tasks.Queue("q"), aio.Queue[bytes])
    assert_type(tasks.PriorityQueue("q", codec=TEXT, priority=len), aio.PriorityQueue[str])
    assert_type(tasks.Dict("d", codec=TEXT), aio.Dict[str])
    assert_type(tasks.SharedValue("v", b""), aio.SharedValue[bytes])


def an_annotation_says_more(zk: zkconcurrent.Client, pick: bool) -> None:
    """Where the codec takes many types, the program says which it uses; a codec is an object like others."""
    numbers: Queue[int] = Queue(zk, "/q", codec=JSON)
    also = Queue[int](zk, "/q", codec=JSON)
    settings: Dict[dict[str, int]] = Dict(zk, "/d", codec=MSGPACK)
    value: SharedValue[list[int]] = SharedValue(zk, "/v", [], codec=JSON)
    codec: Codec[Any] = JSON if pick else MSGPACK
    total: int = numbers.get() + also.get() + settings["a"]["b"] + value.get().value[0]
    any_of_them: Queue[str] = Queue(zk, "/q", codec=codec)
