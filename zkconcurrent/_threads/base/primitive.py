"""The base of all primitives: an object for one path of one client, whose calls block, and which is pickled by name."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from inspect import signature
from numbers import Real
from typing import Any, NoReturn, TypeAlias, TypeVar

from ..._arguments.limits import check_seconds
from ..._arguments.paths import check_path
from ..._engine.call import Call
from ..._engine.holds import PathState
from ..._engine.session import Session
from ..._errors import LockLostError
from ..._kazoo.link import KazooClient
from ..._protocol.operations import Recipe
from ..._recipes.destroy import Users, named
from ..._recipes.nodes import PathCheck
from ..._runtime.blocked_loop import check_may_block
from ..._runtime.identity import Task
from ..._runtime.public import Named, public
from ..._runtime.wait_loops import Steps, wait

T = TypeVar("T")
R = TypeVar("R")
_UNKNOWN = object()
# A user's function that is called with the lock at each loss. Users annotate the argument with their lock's type.
OnLost: TypeAlias = Callable[[Any], object]
# A user's function that is called with the lock, and with how many seconds its hold is sure to last.
OnSuspect: TypeAlias = Callable[[Any, float], object]


class BlockingCalls:
    """The way a call waits: on the calling thread or greenlet. `aio` overrides it for tasks."""

    # Runs a call to its end: see `_runtime/wait_loops.py`. A method calls this last: see `not_held`.
    _await = staticmethod(wait)
    # A function that returns the number of the caller; None if callers are threads or greenlets.
    _caller: Callable[[], int] | None = None

    def _deadline(self, blocking: bool, timeout: float) -> float | None:
        """Convert `acquire(blocking, timeout)` arguments to a deadline by the monotonic clock; None waits forever."""
        check_timeout(blocking, timeout)
        if blocking and timeout:
            self._check_may_block()
        if not blocking:
            # The call makes one attempt: the driver waits only for the reply.
            timeout = 0.0
        return None if timeout == -1 else self._session.now() + timeout

    def _until(self, timeout: float | None) -> float | None:
        """Convert a `wait(timeout)` argument to a deadline. None waits forever; zero or less makes one attempt."""
        if timeout is None:
            timeout = -1
        else:
            check_seconds("timeout", timeout)
            timeout = max(timeout, 0.0)
        return self._deadline(True, timeout)

    def _check_may_block(self) -> None:
        """Warn of a wait that would block an event loop; refuse one that would block it forever."""
        check_may_block(self._holding_tasks)

    def _holding_tasks(self) -> Iterable[tuple[str, Task | None]]:
        """Return (path, task) for each task of this process that has a hold for which an acquire would wait."""
        return ()

    _session: Session


class PickledByPath(Named):
    """An object that is pickled by name: its class, its arguments and the URL of its client.

    Unpickling makes a new object, which holds nothing and uses the receiving process's own client: see
    `_client.connect.process_client`. The constructor keeps each argument in an attribute of the same name, with or
    without an underscore.
    """

    def __reduce__(self) -> tuple[object, ...]:
        found: Any = self
        try:
            client, name = opens_by_name(found.client)
        except ValueError as why:
            raise self._not_pickled(f"{why}; ") from None
        arguments: dict[str, object] = {}
        kept = vars(self)
        for each in list(signature(type(found).__init__).parameters)[1:]:
            # The program's own attribute comes first, as the library may use the same name with an underscore. A
            # property comes last, as reading it may ask the server: the `count` of a latch does.
            arguments[each] = kept[each] if each in kept else kept.get(f"_{each}", _UNKNOWN)
            if arguments[each] is _UNKNOWN:
                arguments[each] = getattr(found, each, _UNKNOWN)
            if arguments[each] is _UNKNOWN or getattr(arguments[each], "__self__", None) is self:  # a method
                raise self._not_pickled(f"its argument {each!r} is not kept as self.{each}; ")
        for callback in ("on_lost", "on_suspect", "on_revoke"):
            if arguments.get(callback) is not None:
                raise self._not_pickled(f"it has {callback}, which is called in this process; ")
        takes = [each for each, value in arguments.items() if value is found.client]
        given = {each: value for each, value in arguments.items() if each not in takes}
        return _made_again, (type(found), client, name, takes, given, found.path)

    def _not_pickled(self, why: str) -> TypeError:
        found: Any = self
        return TypeError(
            f"cannot pickle {type(found).__name__} {found.path!r}: {why}open a client in the other process and make "
            "the object there, with the same path"
        )

    def __deepcopy__(self, memo: object = None) -> NoReturn:
        # A copy would use another client. So a thread that holds this object would wait for itself if it acquired the
        # copy.
        raise TypeError(f"cannot copy {self!r}: make another object, with the same client and path")

    __copy__ = __deepcopy__


def opens_by_name(client: KazooClient) -> tuple[Callable[..., KazooClient], Iterable[object]]:
    """Return the function that opens this client in another process, and its arguments.

    Raises:
        ValueError: another process can't, or should not, open this client; the error says why.
    """
    found: Callable[[], tuple[Callable[..., KazooClient], Iterable[object]]] | None = getattr(client, "by_name", None)
    if found is None:
        raise ValueError("its client was not opened by connect()")
    return found()


@public
def _made_again(
    kind: Callable[..., object],
    opens: Callable[..., KazooClient],
    name: Iterable[object],
    takes: Iterable[str],
    given: dict[str, object],
    path: str,
) -> object:
    """Make an unpickled object: `takes` names the arguments that get the client; `given` has all other arguments.

    Raises:
        TypeError: the class changes the path that it is given, so the two objects would not share a path.
    """
    made: Any = kind(**dict.fromkeys(takes, opens(*name)), **given)
    if made.path != path:
        raise TypeError(
            f"cannot unpickle {kind!r}, which was at {path!r}: made with that path, it is at {made.path!r}; let its "
            "constructor take what it makes the path of by another name than `path`, and keep that as self.NAME"
        )
    return made


class Primitive(PickledByPath, BlockingCalls):
    """An object for one path of one client; all objects of the same client and path share one `PathState`.

    Attributes:
        _kind: the kind of primitive; the client refuses to make another kind at the same path.
        _part: the name, below the path, of a second primitive that is part of this one; empty if there is none.
    """

    _kind: str
    _part = ""

    def __init__(self, client: KazooClient, path: str) -> None:
        self._path = check_path(path)
        self._client = client
        self._session = session = Session.of(client)
        self._identity = self._caller or session.identity
        self._path_state = session.path_state(path, self._kind, self._new_state, self._part)

    def _new_state(self) -> PathState:
        """Return the state that all objects of this client and path share."""
        return PathState(self._session, self._path, self._kind)

    def _share_path_check(self, kind: str) -> PathCheck:
        """Return the check of the path, the same for all objects of this client and path."""
        with self._session.lock:
            path_check = self._path_state.path_check = self._path_state.path_check or PathCheck(self._path, kind)
        return path_check

    @property
    def client(self) -> KazooClient:
        """The kazoo client."""
        return self._client

    @property
    def path(self) -> str:
        """The path. All processes that open it share this primitive."""
        return self._path

    def _run(self, recipe: Recipe[T], then: Callable[[T], R], deadline: float | None = None, late: Any = None) -> R:
        """Run a recipe; return `then(result)`, or `late` if the deadline passes first."""
        call = Call(self._session, self._path)

        def steps() -> Steps[R]:
            result: Any = yield from call.run(recipe, deadline)
            return late if result is None and deadline is not None else then(result)

        return self._await(call, steps())

    def _run_and_note(self, recipe: Recipe[T], then: Callable[[T], R], deadline: float | None = None) -> R:
        """Run a recipe and note its result; return `then(result)`, or False if the deadline passes first."""

        def noted(result: T) -> R:
            self._path_state.note(result)
            return then(result)

        return self._run(recipe, noted, deadline, late=False)

    def _run_query(self, recipe: Recipe[T], then: Callable[[T], R], deadline: float | None = None) -> R:
        """As `_run_and_note`, for a recipe that only reads; keep the result unless another call has noted one."""
        began = self._path_state.notes

        def looked(result: T) -> R:
            if self._path_state.notes == began:
                self._path_state.last_seen = result
            return then(result)

        return self._run(recipe, looked, deadline, late=False)

    def _destroyed(self, using: Users) -> None:
        """Refuse a `destroy` that has found users; otherwise forget what was last seen.

        Raises:
            RuntimeError: the primitive is in use; the error names the users.
        """
        if using:
            raise RuntimeError(
                f"the {self._kind} at {self._path!r} is in use; destroy it when these have stopped: {named(using)}"
            )
        self._path_state.note(None)


def discard_result(_: object) -> None:
    """Discard a result."""


def check_timeout(blocking: bool, timeout: float, name: str = "timeout") -> None:
    """Refuse the arguments that `threading` refuses; errors call the timeout by `name`.

    Raises:
        TypeError: the timeout is not a number. This includes None, with which kazoo's locks wait forever.
        ValueError: a timeout without blocking, NaN, or a negative timeout other than -1.
        OverflowError: a timeout above `threading.TIMEOUT_MAX`.
    """
    if timeout is None and name == "timeout":
        raise TypeError("timeout must be a number of seconds, not None: -1 waits forever")
    if type(timeout) is not int and type(timeout) is not float:
        check_seconds(name, timeout)
    if not blocking and timeout != -1:
        raise ValueError("can't specify a timeout for a non-blocking call")
    if timeout != timeout:
        raise ValueError("Invalid value NaN (not a number)")
    if timeout < 0 and timeout != -1:
        raise ValueError(f"{name} value must be a non-negative number")
    if timeout > threading.TIMEOUT_MAX:
        raise OverflowError(f"{name} value is too large")


def kind_of(value: object) -> str:
    """Return the name of an object's type, for messages; the module tells a class from its twin in `aio`."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def reports_loss(kind: type[BaseException] | None) -> bool:
    """Return whether a lost hold raises at the end of its block, in place of the block's own error, if any.

    The loss never replaces an interrupt, or a loss that the block itself has raised.
    """
    return kind is None or (issubclass(kind, Exception) and not issubclass(kind, LockLostError))


def check_delay(delay: object) -> float:
    """Return a delay in seconds as a float; a negative one becomes 0.

    Raises:
        TypeError: the delay is not a number.
        ValueError: the delay is not finite.
        OverflowError: the delay is above `threading.TIMEOUT_MAX`.
    """
    if isinstance(delay, bool) or not isinstance(delay, Real):
        raise TypeError(f"delay must be a number of seconds, not {type(delay).__name__}")
    if delay != delay or delay in (math.inf, -math.inf):
        raise ValueError(f"delay must be finite: {delay}")
    if not delay <= threading.TIMEOUT_MAX:
        raise OverflowError("delay is too large")
    return 0.0 if delay <= 0 else float(delay)


def not_held(lock: object) -> RuntimeError:
    """Return the error of a `with` block that must not run, because `acquire()` returned False.

    `__enter__` must not call anything after `acquire()` has returned True; nor must `acquire()` after its `Call` has
    ended. CPython handles signals at every call, even at one with `*arguments`, and an
    interrupt there would leave a hold forever.
    """
    return RuntimeError(f"acquire() returned False, so nothing is held and the block does not run: {lock!r}")
