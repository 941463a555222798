"""The counter: a number in a plain file, that knows nothing of locks but fencing tokens.

`read` and `write` stand for two requests to some storage. Each is done whole (the file is locked for the one request,
as any storage serves one request at a time), but nothing holds between them: of two writers that have read the same
number, one's increment is lost. It is for the callers to keep each other out.

Invariant: the store never takes a request with a lower token than the highest it has seen. So a holder that was paused
and overtaken, and does not know it yet, cannot overwrite what its successor has written or has read to write anew.
"""

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

SIZE = 128  # of the file, always: it is replaced by one write, and so never half written


class StaleTokenError(Exception):
    """The request's fencing token is lower than one the store has seen."""


@dataclass
class State:
    """What the file holds."""

    number: int = 0
    highest: int = 0  # fencing token seen
    writer: int = 0  # fencing token under which `number` was written


class Store:
    """The file, opened once by each process that uses it.

    Attributes:
        requests: held during each request of this process. A process that is stopped while one of its threads has this,
            and makes no request, is not stopped in the middle of one: that would hold up everybody.
    """

    def __init__(self, path: Path) -> None:
        self.requests = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def read(self, token: int) -> State:
        """What is stored. From now on no lower token than this one is served."""
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
