"""Steps that run side by side in one call, as the attempts of a `QuorumLock` do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ..._errors import ZkConcurrentError
from ..._runtime.waiting import Steps

T = TypeVar("T")


class Branch(Generic[T]):
    """Steps that run beside others.

    Attributes:
        done: they have ended.
        result: their result.
        error: their error.
        due: when their sleep ends.
    """

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._begun = False
        self.done = False
        self.result: T | None = None
        self.error: ZkConcurrentError | None = None
        self.due = -math.inf

    def resume(self, woken: bool, now: Callable[[], float]) -> None:
        """Run them up to their next sleep."""
        try:
            pause = self._steps.send(woken) if self._begun else next(self._steps)
            self._begun = True
            self.due = math.inf if pause is None else now() + pause
        except StopIteration as end:
            self.result = end.value
            self.done = True
        except ZkConcurrentError as error:
            # Only errors of this library end the branch. An error that a signal handler raises here leaves the call.
            self.error = error
            self.done = True

    def close(self) -> None:
        """Close the steps where they are."""
        self._steps.close()


def together(
    branches: Sequence[Branch[T]], now: Callable[[], float], ends: Callable[[], float] = lambda: math.inf
) -> Steps[None]:
    """Run steps side by side until all have ended, or until the time `ends()`; close those that have not ended.

    Each event that wakes the call wakes all its steps, and each looks whether the event was for it.
    """
    woken = True
    try:
        while True:
            for each in branches:
                if not each.done and (woken or now() >= each.due):
                    each.resume(woken, now)
            left = [each for each in branches if not each.done]
            end = ends()
            if not left or end <= now():
                return
            until = min(end, *(each.due for each in left))
            woken = yield None if until == math.inf else max(0.0, until - now())
    finally:
        for each in branches:
            each.close()
