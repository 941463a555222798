"""`cancel_waits()`: one thread ends the waits of others.

A cancelled wait ends as an interrupted wait does: the loop that runs its steps raises the error in them, at their
sleep. So the steps clean up after themselves, and no node is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ..._engine.call import Call
from ..._errors import WaitCancelledError
from ..._runtime.wait_loops import Resumable, end_early

_WHY = "cancel_waits() has ended this wait: nothing is held, and no node is left"


def waits(calls: Iterable[Call], target: object) -> list[Resumable]:
    """Return the waits for the target that are not cancelled yet."""
    return list({id(call.whole): call.whole for call in calls if target in call.whole.waits_for}.values())


def cancel_waits(calls: Iterable[Call], target: object) -> int:
    """End the waits for the target; return how many there were.

    Any thread may call this, even in a signal handler. The call never waits.
    """
    ended = 0
    for call in waits(calls, target):
        ended += end_early(call, partial(WaitCancelledError, call.path, _WHY))
    return ended
