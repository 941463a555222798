"""`lock.revoke()`, for tasks."""

from __future__ import annotations

from typing import Final

from .._threads.base import revocable
from ._twin import LockBase, awaited


class RevocableLock(LockBase):
    """The methods of the locks that have Curator's `makeRevocable`."""

    revoke: Final = awaited(revocable.RevocableLock.revoke)
