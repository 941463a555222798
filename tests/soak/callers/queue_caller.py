"""One thread's calls of one queue, each of them written down. An item's payload is its name in the history."""

from __future__ import annotations

from typing import Any

from tests.soak.callers.caller import Caller
from tests.soak.events import What
from zkconcurrent import Empty, Full, LockLostError, OutcomeUnknownError, Queue

SETTLING = "settling"  # the note of a `get` that came back before it was known whether it had taken an item


class GaveBackError(Exception):
    """Raised in a claim's block, so that the item is given back."""


class QueueCaller(Caller):
    """One thread at one queue."""

    @property
    def _queue(self) -> Queue[bytes]:
        queue: Queue[bytes] = self._locks["queue"]
        return queue

    def unsettled(self) -> bool:
        """Return whether it is still to be known what abandoned calls have taken."""
        return bool(self._queue._path_state._left)

    def some_limit(self) -> dict[str, Any]:
        """Return arguments for a call that comes back by itself."""
        return self.random.choice([{"block": False}, *({"timeout": seconds} for seconds in (0, 0.02, 0.2, 1.0, 3.0))])

    def put(self, **how: Any) -> bool:
        """Put one more item."""
        item = f"{self._log.process}/{self._thread}/{next(self._numbers)}"
        self._say(What.ASKS, "put", item, limit=self._time(**how))
        try:
            self._queue.put(item.encode(), **how)
        except Full:
            self._say(What.REFUSED, "put", item)
        except OutcomeUnknownError:
            self._say(What.UNKNOWN, "put", item)
        except Exception as error:
            self._say(What.FAILED, "put", item, note=f"{type(error).__name__}: {error}")
        else:
            self._say(What.PUT, "put", item)
            return True
        return False

    def get(self, **how: Any) -> bool:
        """Take an item."""
        self._say(What.ASKS, "get", limit=self._time(**how))
        try:
            item = self._queue.get(**how).decode()
        except Empty:
            self._say(What.REFUSED, "get", note=SETTLING if self.unsettled() else "")
        except Exception as error:
            self._say(What.FAILED, "get", note=f"{type(error).__name__}: {error}")
        else:
            self._say(What.TAKEN, "get", item)
            return True
        return False

    def claim(self, seconds: float, gives_back: bool = False, **how: Any) -> None:
        """Claim an item, stay with it, and acknowledge it or give it back."""
        self._say(What.ASKS, "claim", limit=self._time(**how))
        item, token = "", 0
        try:
            with self._queue.claim(**how) as claim:
                item, token = claim.item.decode(), claim.fencing_token
                self._say(What.CLAIMED, "claim", item, token=token, note=str(claim.attempts))
                self.work(seconds)
                self._say(What.GIVES_BACK if gives_back else What.ACKNOWLEDGES, "claim", item, token=token)
                if gives_back:
                    raise GaveBackError
        except Empty:
            self._say(What.REFUSED, "claim")
        except GaveBackError:
            self._say(What.GAVE_BACK, "claim", item, token=token)
        except LockLostError:
            self._say(What.LOST, "claim", item, token=token)
        except Exception as error:
            self._say(What.FAILED, "claim", item, token=token, note=f"{type(error).__name__}: {error}")
        else:
            self._say(What.ACKNOWLEDGED, "claim", item, token=token)

    def _time(self, block: bool = True, timeout: float | None = None) -> float | None:
        return self._limit(blocking=block, timeout=timeout)
