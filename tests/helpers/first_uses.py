"""The first use of each public name for threads, in a process that has just imported the library."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable
from typing import Any

import zkconcurrent
from tests.helpers.kinds import KINDS, primitives


def _hold(client: Any) -> None:
    lock = zkconcurrent.Lock(client, "/hold", label="a hold")
    with lock:
        lock.owner()
        lock.waiters()
        zkconcurrent.inspect()
        str(zkconcurrent.inspect())
        assert not zkconcurrent.Lock(client, "/hold").acquire(blocking=False)


def _detached(client: Any) -> None:
    lock = zkconcurrent.DetachedLock(client, "/detached", "me")
    lock.acquire()
    lock.owner()
    lock.force_release(lock.owner().token)


def _several(client: Any) -> None:
    with zkconcurrent.MultiLock([zkconcurrent.Lock(client, "/one"), zkconcurrent.Lock(client, "/two")]):
        pass


def _listen(client: Any) -> None:
    listener = zkconcurrent.QueueListener(print)
    remove = zkconcurrent.add_listener(listener)
    with zkconcurrent.Lock(client, "/heard"):
        pass
    listener.flush()
    remove()


def _dump(_: Any) -> None:
    zkconcurrent.dump_on_signal(signal.SIGUSR2)
    signal.raise_signal(signal.SIGUSR2)


def _decorate(client: Any) -> None:
    zkconcurrent.synchronized(client, "/users/{user}")(lambda user: user)(7)


def _skip(client: Any) -> None:
    for runs in (True, False):
        with zkconcurrent.once_per(client, "/jobs/daily", 3600) as turn:
            assert turn.runs == runs
            str(turn)


def _name(client: Any) -> None:
    for names in (zkconcurrent.namespace(client, "/names"), zkconcurrent.namespace("local")):
        with names.RLock("one"):
            pass


def _decode(client: Any) -> None:
    for codec, item in (("BYTES", b"1"), ("JSON", {"a": 1}), ("TEXT", "a")):
        queue = zkconcurrent.Queue(client, f"/{codec}", codec=getattr(zkconcurrent, codec))
        queue.put(item)
        assert queue.get() == item


def _fail(client: Any) -> None:
    for wrong in (lambda: zkconcurrent.Lock(client, "/a//b"), lambda: zkconcurrent.connect("zk://", survive=-1)):
        try:
            wrong()
        except ValueError:
            pass
        else:
            raise AssertionError(wrong)


OTHERS: dict[str, Callable[[Any], object]] = {
    "Client": _hold,
    "DetachedLock": _detached,
    "MultiLock": _several,
    "Namespace": _name,
    "QueueListener": _listen,
    "ValueError": _fail,
    "add_listener": _listen,
    "connect": _hold,
    "dump_on_signal": _dump,
    "inspect": _hold,
    "namespace": _name,
    "once_per": _skip,
    "synchronized": _decorate,
    **dict.fromkeys(("BYTES", "JSON", "TEXT"), _decode),
}


def uses() -> dict[str, Callable[[Any], object]]:
    """Return a use of each name."""

    def use(name: str) -> Callable[[Any], object]:
        def run(client: Any) -> None:
            end = KINDS[name].use(zkconcurrent, client, f"/{name}")
            zkconcurrent.inspect()
            if end is not None:
                end()
            KINDS[name].wait(zkconcurrent, client, f"/{name}-wait", 0.1)

        return run

    return {**{name: use(name) for name in KINDS}, **OTHERS}


def use_all() -> None:
    """Use all of it, and log that."""
    logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
    used = uses()
    assert {*primitives()} <= {name.partition(",")[0] for name in used}
    with zkconcurrent.connect("memory:") as client:
        for name, use in used.items():
            try:
                use(client)
            except BaseException as error:
                raise AssertionError(name) from error
