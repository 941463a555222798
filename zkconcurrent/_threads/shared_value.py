"""`SharedValue`: a value that all processes share, change, compare and watch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, overload

from .._arguments.codec import BYTES, Codec, check_codec, decoded, encoded
from .._arguments.functions import check_callable
from .._arguments.paths import check_path
from .._engine.call import Call
from .._errors import ForeignNodeError
from .._kazoo.link import KazooClient
from .._recipes.value import Seen, ValueLayout, read_or_make, wait_until
from .._runtime.public import public
from .._runtime.wait_loops import Steps, call_user
from .base.primitive import kind_of
from .base.value_base import BaseValue

T = TypeVar("T")
R = TypeVar("R")


if TYPE_CHECKING:

    class VersionedValue(NamedTuple, Generic[T]):
        """A value as it was read: the value, and how often its node had been written."""

        value: T
        version: int

else:
    # Python 3.10 refuses a named tuple with type variables.
    @public
    class VersionedValue(NamedTuple):
        """A value as it was read: the value, and how often its node had been written."""

        value: T
        version: int


class SharedValue(BaseValue, Generic[T]):
    """A value that all processes share. Every change is applied exactly once, even if replies are lost.

    `AtomicReference` is another name for it.

    Layout:
        `<path>`, PERSISTENT, with the encoded value: the znode of Curator's SharedValue. `<path>/receipts` and
        `<path>/lock` as in `AtomicLong`.

    Invariant:
        As in `AtomicLong`. The version grows with every write, and no two writes have the same version.

    Cost:
        `get`: 2 reads in one round trip. A change: as in `AtomicLong`. `wait_for` and `watch`: 3 reads in 2 round
        trips, before they sleep; a change of the value wakes all of them, and each reads once.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the value's path; its node is created at the first use.
        value: the value until a client sets another; all processes must give the same.
        codec: turns the value into bytes and back: `BYTES`, `TEXT`, `JSON`, `MSGPACK`, or any object with `encode` and
            `decode`.

    Raises:
        TypeError: the path is not a string, or the codec lacks a method or can't encode the value.
        ValueError: the path is invalid; or this client already uses it for another primitive, or with another initial
            value.
        RefusedError: the value is too large for a request.

    Source:
        java.util.concurrent.atomic's `AtomicReference`; Curator's `SharedValue` and `SharedCount`.
    """

    _kind = "SharedValue"

    @overload
    def __init__(self: SharedValue[bytes], client: KazooClient, path: str, value: bytes) -> None: ...
    @overload
    def __init__(self, client: KazooClient, path: str, value: T, *, codec: Codec[T]) -> None: ...
    def __init__(self, client: KazooClient, path: str, value: Any, *, codec: Codec[Any] = BYTES) -> None:
        self._value = value
        self._codec: Codec[T] = check_codec(codec)
        self._at = ValueLayout(check_path(path), self._kind, encoded(codec, value, path))
        super().__init__(client, path)
        self._check_size(self._at.initial)

    def get(self) -> VersionedValue[T]:
        """Return the value and its version; asks the leader, and waits for the reply.

        Raises:
            ClientError: the client can't be used here.
            ForeignNodeError: the node at the path is not persistent, or the codec can't decode its data.
        """
        return self._run(read_or_make(self._at), self._decode)

    def set(self, value: T) -> None:
        """Set the value.

        Raises:
            TypeError: the codec can't encode the value.
            RefusedError: the value is too large for a request.
            OutcomeUnknownError: the reply was lost, and so was the receipt that shows whether the change was applied;
                or the client was stopped before it could read the receipt.
            ClientError: the client can't be used here.
            ForeignNodeError: the node at the path is not persistent, or has other children.
        """
        data = self._encode(value)
        return self._change(lambda *_: (data, None))

    def compare_and_set(self, expected: tuple[T, int], value: T) -> bool:
        """Set the value if no client has written since `get` returned the expected one; return whether it was set.

        If the data do not show whether two values are equal, their `==` decides. Another thread of the client may call
        `==`, as the threads combine their changes, so `==` must not wait for the caller.

        Args:
            expected: what `get`, `watch` or another read has returned, with its version.
            value: the new value.

        Raises:
            TypeError: `expected` is not a value and its version.
            Exception: as `set`.
        """
        if not isinstance(expected, tuple) or len(expected) != 2 or not isinstance(expected[1], int):
            raise TypeError(f"expected must be what get() returned, a value and its version, not {expected!r}")
        (old, wanted), new = expected, self._encode(value)
        # Encode here: another thread may apply the change, and the codec may take a lock that this thread holds.
        same_data: list[bytes] = []
        # If the codec refuses the old value, the node's data were not made from that value.
        with suppress(TypeError, ValueError):
            same_data.append(encoded(self._codec, old, self._path))

        def decide(data: bytes, version: int) -> tuple[bytes | None, bool]:
            # The version alone does not suffice: a value that was destroyed and created again counts its versions anew.
            same = version == wanted and (data in same_data or bool(self._decoded(data) == old))
            return (new, True) if same else (None, False)

        return self._change(decide)

    def update(self, func: Callable[[T], T]) -> T:
        """Replace the value with a function's result; return the new value.

        Args:
            func: takes the current value and returns the new one. It is called again after a conflict. It must not
                change this value by other calls.

        Raises:
            TypeError: `func` is not callable, or is a coroutine function.
            RuntimeError: `func` changes this value by another call.
            Exception: as `set`, and what `func` raises.
        """
        check_callable("func", func)
        return self._update(func, self._decoded, self._encode)

    def wait_for(self, predicate: Callable[[T], R], timeout: float | None = None) -> R | Literal[False]:
        """Wait until a predicate is true of the value; return its last result, as `threading.Condition.wait_for` does.

        Args:
            predicate: is called with the value, and again whenever the value has changed; it may miss a value that is
                quickly replaced.
            timeout: how long to wait, in seconds; None waits forever, zero or less reads the value once.

        Raises:
            TypeError: the predicate is not callable, or is a coroutine function.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            ClientError: the client can't be used here.
            ForeignNodeError: as `get`.
        """
        check_callable("predicate", predicate)
        result: R | Literal[False] = False

        def accepts(seen: Seen) -> R:
            nonlocal result
            result = accepted = call_user(predicate, self._decoded(seen.data))
            return accepted

        call, deadline = Call(self._session, self._path), self._until(timeout)

        def steps() -> Steps[R | Literal[False]]:
            yield from call.run(wait_until(self._at, accepts), deadline)
            return result

        return self._await(call, steps())

    def watch(self, timeout: float | None = None) -> Iterator[VersionedValue[T]]:
        """Return an iterator over the value and its changes: the current value, then the newest after each change.

        It skips a value that is replaced before the caller asks for the next one, but never the last value.

        Args:
            timeout: how long to wait for each value, in seconds; the iterator ends when the timeout has passed. None
                waits forever.

        Raises:
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            Exception: from the iterator, as `wait_for`.
        """
        self._until(timeout)
        return self._watching(timeout)

    def _watching(self, timeout: float | None) -> Iterator[VersionedValue[T]]:
        seen: Seen | None = None
        while (seen := self._next(seen, timeout)) is not None:
            yield self._decode(seen)

    def _next(self, seen: Seen | None, timeout: float | None) -> Seen | None:
        return self._run(wait_until(self._at, lambda each: each != seen), lambda found: found, self._until(timeout))

    def _begins_equal(self, at: ValueLayout) -> bool:
        # A codec that encrypts or compresses may give different bytes each time.
        ours = self._at
        if at._replace(initial=ours.initial) != ours:
            return False
        try:
            return bool(self._decoded(at.initial) == self._decoded(ours.initial))
        except ForeignNodeError:
            # The other object has another codec.
            return False

    def _encode(self, value: T) -> bytes:
        return self._check_size(encoded(self._codec, value, self._path))

    def _decode(self, seen: Seen) -> VersionedValue[T]:
        return VersionedValue(self._decoded(seen.data), seen.version)

    def _decoded(self, data: bytes) -> T:
        return decoded(self._codec, data, self._path)

    def __repr__(self) -> str:
        return f"<{kind_of(self)} at {id(self):#x} path={self._path!r}>"


AtomicReference = SharedValue
