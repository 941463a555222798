"""The numbers and values of a local namespace: for the threads of this process, and for the tasks of one loop."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from .._threads.base.primitive import check_timeout
from .._threads.base.value_base import check_callable
from .._threads.shared_value import VersionedValue, version_of


def _same(value: Any) -> Any:
    return value


class Cell:
    """A value and the number of its changes; a lock makes each change of the two atomic."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._version = 0
        self._changed = threading.Condition()
        self._updating: set[int] = set()

    def _try(self, version: int | None, value: Any) -> bool:
        self._check_not_updating()
        with self._changed:
            if version not in (None, self._version):
                return False
            self._value = value
            self._version += 1
            self._changed.notify_all()
            return True

    def _update(self, func: Callable[[Any], Any]) -> tuple[Any, Any]:
        """Return the old value and the new one."""
        while True:
            old, version = self._seen()
            new = func(old)
            if self._try(version, new):
                return old, new

    def _update_by(self, func: Callable[[Any], Any], check: Callable[[Any], Any] = _same) -> Any:
        """Replace the value by the function's result. While the function runs, its thread can't change the value."""
        check_callable("func", func)
        self._check_not_updating()
        me, updating = threading.get_ident(), self._updating

        def call(value: Any) -> Any:
            updating.add(me)
            try:
                return check(func(value))
            finally:
                updating.discard(me)

        try:
            return self._update(call)[1]
        finally:
            # Again, as an interrupt may have kept `call` from it.
            updating.discard(me)

    def _check_not_updating(self) -> None:
        if threading.get_ident() in self._updating:
            raise RuntimeError(
                "the function given to update() changes the value itself: it must only return the new one"
            )

    def _seen(self) -> VersionedValue[Any]:
        with self._changed:
            return VersionedValue(self._value, self._version)


class AtomicLong(Cell):
    """A number of 64 bits."""

    _bits = 64

    def __init__(self) -> None:
        super().__init__(0)

    def _check(self, value: int) -> int:
        number = operator.index(value)
        if not -(1 << self._bits - 1) <= number < 1 << self._bits - 1:
            raise OverflowError(f"the number has {self._bits} bits, too few for a number of {number.bit_length() + 1}")
        return number

    def get(self) -> int:
        """Return the number."""
        return int(self._value)

    def set(self, value: int) -> None:
        """Set the number."""
        self._try(None, self._check(value))

    def add(self, n: int = 1) -> int:
        """Add to the number; return the new one."""
        return int(self._update(lambda old: self._check(old + operator.index(n)))[1])

    def get_and_add(self, n: int = 1) -> int:
        """Add to the number; return the old one."""
        return int(self._update(lambda old: self._check(old + operator.index(n)))[0])

    def compare_and_set(self, expected: int, value: int) -> bool:
        """Set the number if it is the expected one; return whether it was."""
        expected, new = operator.index(expected), self._check(value)
        while True:
            old, version = self._seen()
            if old != expected or self._try(version, new):
                return bool(old == expected)

    def update(self, func: Callable[[int], int]) -> int:
        """Replace the number by a function's result; return the new number."""
        return int(self._update_by(func, self._check))


class AtomicInteger(AtomicLong):
    """A number of 32 bits."""

    _bits = 32


class SharedValue(Cell):
    """A value, with the number of its changes."""

    def get(self) -> VersionedValue[Any]:
        """Return the value and its version."""
        return self._seen()

    def set(self, value: Any) -> None:
        """Set the value."""
        self._try(None, value)

    def compare_and_set(self, expected: tuple[Any, int], value: Any) -> bool:
        """Set the value if it was not changed since `get` returned the expected one; return whether it was set."""
        return self._try(version_of(expected), value)

    def update(self, func: Callable[[Any], Any]) -> Any:
        """Replace the value by a function's result; return the new value."""
        return self._update_by(func)

    def wait_for(self, predicate: Callable[[Any], Any], timeout: float | None = None) -> Any:
        """Wait until a predicate is true of the value; return its last result."""
        _check(predicate, timeout)
        with self._changed:
            return self._changed.wait_for(lambda: predicate(self._value), timeout)

    def watch(self, timeout: float | None = None) -> Iterator[VersionedValue[Any]]:
        """Return an iterator over the value and its changes."""
        _check(bool, timeout)
        return self._watching(timeout)

    def _watching(self, timeout: float | None) -> Iterator[VersionedValue[Any]]:
        last = -1
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._version != last, timeout):
                    return
                seen = VersionedValue(self._value, last := self._version)
            yield seen


class AsyncAtomicLong:
    """A number of 64 bits, for tasks."""

    _kind = AtomicLong

    def __init__(self) -> None:
        self._number = self._kind()

    async def get(self) -> int:
        """Return the number."""
        return self._number.get()

    async def set(self, value: int) -> None:
        """Set the number."""
        self._number.set(value)

    async def add(self, n: int = 1) -> int:
        """Add to the number; return the new one."""
        return self._number.add(n)

    async def get_and_add(self, n: int = 1) -> int:
        """Add to the number; return the old one."""
        return self._number.get_and_add(n)

    async def compare_and_set(self, expected: int, value: int) -> bool:
        """Set the number if it is the expected one; return whether it was."""
        return self._number.compare_and_set(expected, value)

    async def update(self, func: Callable[[int], int]) -> int:
        """Replace the number by a function's result; return the new number."""
        return self._number.update(func)


class AsyncAtomicInteger(AsyncAtomicLong):
    """A number of 32 bits, for tasks."""

    _kind = AtomicInteger


class AsyncSharedValue:
    """A value, with the number of its changes, for tasks."""

    def __init__(self, value: Any) -> None:
        self._cell = SharedValue(value)
        self._changes: set[asyncio.Event] = set()

    def _tell(self) -> None:
        for change in self._changes:
            change.set()

    async def get(self) -> VersionedValue[Any]:
        """Return the value and its version."""
        return self._cell.get()

    async def set(self, value: Any) -> None:
        """Set the value."""
        self._cell.set(value)
        self._tell()

    async def compare_and_set(self, expected: tuple[Any, int], value: Any) -> bool:
        """Set the value if it was not changed since `get` returned the expected one; return whether it was set."""
        done = self._cell.compare_and_set(expected, value)
        self._tell()
        return done

    async def update(self, func: Callable[[Any], Any]) -> Any:
        """Replace the value by a function's result; return the new value."""
        new = self._cell.update(func)
        self._tell()
        return new

    async def wait_for(self, predicate: Callable[[Any], Any], timeout: float | None = None) -> Any:
        """Wait until a predicate is true of the value; return its last result."""
        _check(predicate, timeout)
        result: Any = None
        until = None if timeout is None else asyncio.get_running_loop().time() + max(0.0, timeout)
        change = asyncio.Event()
        self._changes.add(change)
        try:
            while not (result := predicate(self._cell.get().value)):
                change.clear()
                left = None if until is None else until - asyncio.get_running_loop().time()
                try:
                    await asyncio.wait_for(change.wait(), left)
                except asyncio.TimeoutError:
                    break
        finally:
            self._changes.discard(change)
        return result

    async def watch(self, timeout: float | None = None) -> AsyncIterator[VersionedValue[Any]]:
        """Iterate over the value and its changes."""
        seen = VersionedValue(None, -1)

        def changed(_: Any) -> bool:
            return self._cell.get().version != seen.version

        while await self.wait_for(changed, timeout):
            seen = self._cell.get()
            yield seen


def _check(predicate: object, timeout: float | None) -> None:
    check_callable("predicate", predicate)
    check_timeout(True, -1 if timeout is None else max(timeout, 0.0))
