"""The numbers and values of a local namespace: the rules of the shared ones, for threads and for tasks."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any, ClassVar

import pytest

import zkconcurrent
from zkconcurrent import TEXT, aio


class Both:
    """The interface of threads, to an object of either namespace."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            result = getattr(self._made, name)(*args)
            return asyncio.run(_awaited(result)) if asyncio.iscoroutine(result) else result

        return call


async def _awaited(result: Any) -> Any:
    return await result


@pytest.mark.parametrize("package", [zkconcurrent, aio])
@pytest.mark.parametrize(("kind", "largest"), [("AtomicLong", 2**63 - 1), ("AtomicInteger", 2**31 - 1)])
def test_a_number(package: Any, kind: str, largest: int) -> None:
    """Every call has the result of the shared one; beyond the width nothing is changed."""
    number = Both(getattr(package.namespace("local"), kind)("n"))
    assert (number.get(), number.add(), number.add(5), number.get_and_add(-2)) == (0, 1, 6, 6)
    assert (number.compare_and_set(3, 7), number.compare_and_set(4, largest), number.get()) == (False, True, largest)
    for call, wrong in ((number.add, 1), (number.get_and_add, 1), (number.set, largest + 1)):
        with pytest.raises(OverflowError, match="bits"):
            call(wrong)
    with pytest.raises(OverflowError):
        number.update(lambda old: old + 1)
    assert number.update(lambda old: old - largest + 2) == 2
    with pytest.raises(TypeError):
        number.set(1.5)
    with pytest.raises(OverflowError, match="bits"):
        number.add(10**5000)  # more digits than CPython prints


@pytest.mark.parametrize("package", [zkconcurrent, aio])
def test_a_value(package: Any) -> None:
    """It has a version, and compares it; the first value is the same for all."""
    local = package.namespace("local")
    shared = Both(local.SharedValue("v", "a", codec=TEXT))
    seen = shared.get()
    assert seen == ("a", 0)
    assert shared.compare_and_set(seen, "b")
    assert not shared.compare_and_set(seen, "c")
    assert shared.update(str.upper) == "B"
    shared.set("d")
    assert shared.get() == ("d", 3)
    assert shared.wait_for(lambda text: text == "x", 0.01) is False
    assert shared.wait_for(lambda text: text == "d", 0) is True
    for wrong in (("d", None), ["d", 3], 3):
        with pytest.raises(TypeError, match="expected must be what get"):
            shared.compare_and_set(wrong, "e")
    for call in (shared.wait_for, shared.update):
        with pytest.raises(TypeError, match="must be callable, not int"):
            call(1)
    with pytest.raises(ValueError, match="NaN"):
        shared.wait_for(lambda text: text == "x", math.nan)
    assert shared.get() == ("d", 3)
    with pytest.raises(ValueError, match="made with value"):
        local.SharedValue("v", "z", codec=TEXT)
    with pytest.raises(TypeError, match="must be a str"):
        local.SharedValue("w", 1, codec=TEXT)


def test_a_function_that_changes_the_value() -> None:
    """It is refused, as a shared one is, and would be called for ever otherwise."""
    local = zkconcurrent.namespace("local")
    number, shared = local.AtomicLong("n"), local.SharedValue("v", b"")
    for update in (
        lambda: number.update(lambda _: number.add()),
        lambda: number.update(lambda _: number.update(lambda old: old + 1)),
        lambda: shared.update(lambda _: shared.set(b"x") or b"y"),
    ):
        with pytest.raises(RuntimeError, match="must only return the new one"):
            update()
    assert (number.add(), number.update(lambda old: old + number.get())) == (1, 2)
    assert shared.get() == (b"", 0)


def test_a_function_whose_end_is_interrupted() -> None:
    """Fault 92: the thread's next `update` is not taken for one within the function."""

    class Struck(set[int]):
        strikes: ClassVar = [KeyboardInterrupt]

        def discard(self, member: int) -> None:
            if self.strikes:
                raise self.strikes.pop()
            super().discard(member)

    number = zkconcurrent.namespace("local").AtomicLong("n")
    number._updating = Struck()  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        number.update(lambda old: old + 1)
    assert number.update(lambda old: old + 1) == 1


def test_threads_wait_and_watch() -> None:
    """A wait ends when the value fits, and an iterator has the last value; no add is lost."""
    threads = zkconcurrent.namespace("local")
    number, shared = threads.AtomicLong("n"), threads.SharedValue("v", b"")
    adding = [threading.Thread(target=lambda: [number.add() for _ in range(1000)]) for _ in range(4)]
    waiting = threading.Thread(target=shared.wait_for, args=(lambda data: data == b"go",))
    for each in (*adding, waiting):
        each.start()
    watching = shared.watch(timeout=0.01)
    assert next(watching) == (b"", 0)
    for data in (b"1", b"2", b"go"):
        shared.set(data)
    assert list(watching) == [(b"go", 3)]
    for each in (*adding, waiting):
        each.join(20)
    assert number.get() == 4000


def test_tasks_wait_and_watch() -> None:
    """The same for tasks."""

    async def main() -> None:
        shared = aio.namespace("local").SharedValue("v", b"")
        waiting = asyncio.ensure_future(shared.wait_for(lambda data: data == b"go"))
        watching = shared.watch(timeout=0.01)
        assert await watching.__anext__() == (b"", 0)
        for data in (b"1", b"go"):
            await shared.set(data)
        assert await waiting is True
        assert [seen async for seen in watching] == [(b"go", 2)]

    asyncio.run(main())
