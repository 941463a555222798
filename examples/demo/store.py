"""The counter: a number in a plain file. It knows nothing of locks except their fencing tokens.

`read` and `write` stand for two requests to some storage. Each request is atomic (it locks the file, as any storage
serves one request at a time), but the pair is not: if two writers read the same number, one increment is lost. The
callers must keep each other out.

Invariant: the store never takes a request with a lower token than the highest it has seen. So a holder that was paused
and does not know yet that it was overtaken cannot overwrite its successor's write, nor slip in between its successor's
read and write.
"""

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

SIZE = 128  # of the file, always: one write replaces it whole


class StaleTokenError(Exception):
    """The request's fencing token is lower than one the store has seen."""


@dataclass
class State:
    """The content of the file."""

    number: int = 0
    highest: int = 0  # fencing token seen
    writer: int = 0  # fencing token under which `number` was written


class Store:
    """The file; each process that uses it opens it once.

    Attributes:
        requests: held during each request of this process. A thread that pauses takes it, so that the process is not
            frozen in the middle of another thread's request, with the file locked for all processes.
    """

    def __init__(self, path: Path) -> None:
        self.requests = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def read(self, token: int) -> State:
        """Returns the stored state; from now on the store refuses lower tokens."""
        with self._request(token) as state:
            return state

    def write(self, number: int, token: int) -> None:
        """Replaces the number."""
        with self._request(token) as state:
            state.number, state.writer = number, token

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    @contextmanager
    def _request(self, token: int) -> Iterator[State]:
        with self.requests:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                text = os.pread(self._file, SIZE, 0)
                state = State(**json.loads(text)) if text else State()
                if token < state.highest:
                    raise StaleTokenError(f"token {token} came after token {state.highest}")
                state.highest = token
                yield state
                os.pwrite(self._file, json.dumps(asdict(state)).ljust(SIZE).encode(), 0)
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
