"""The callbacks of a lock, such as `on_lost` and `on_suspect`: each call runs on a thread of its own.

A callback may do anything, and may run long. The keeper must keep sending the heartbeat, so it only has a thread
started for the callback.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import partial

from ..._engine.session import Session, log
from ..._observe.observation import observation
from .primitive import OnLost, OnSuspect


class Callbacks:
    """A lock, or several locks held as one, that calls the user's functions when a hold is lost or becomes suspect.

    Attributes:
        _on_lost: the user's function to call at each loss.
        _on_suspect: the user's function to call when a hold becomes suspect.
        _was_suspect: `suspect` was True at the keeper's last check.
    """

    _on_lost: OnLost | None
    _on_suspect: OnSuspect | None
    _was_suspect = False
    _session: Session

    def _watch(self, sessions: Iterable[Session]) -> None:
        """If there is an `on_suspect`, have the keepers of these sessions check whether a hold has become suspect."""
        if self._on_suspect is not None:
            for session in sessions:
                observation(session).teller.wary.add(self)

    @abstractmethod
    def _suspect_and_remaining(self) -> tuple[bool, float]:
        """Return whether this process's newest hold is suspect, and how many seconds it is sure to last.

        Any thread may call this, even one that owns nothing.
        """

    def _look_for_doubt(self) -> None:
        """Have `on_suspect` called if a hold has become suspect. For the keeper, with the session's lock held."""
        before, self._was_suspect = self._was_suspect, self._suspect_and_remaining()[0]
        if self._was_suspect and not before:
            self._session.keeper.start_soon(self._start_on_suspect)

    def _start_on_suspect(self) -> None:
        if (on_suspect := self._on_suspect) is not None:
            # The thread may start late, so it computes the seconds only when it calls `on_suspect`.
            self._start("on_suspect", lambda: on_suspect(self, self._suspect_and_remaining()[1]))

    def _start_on_lost(self) -> None:
        if self._on_lost is not None:
            self._start("on_lost", partial(self._on_lost, self))

    def _start(self, name: str, call: Callable[[], object]) -> None:
        """Start a thread that calls a callback."""
        self._session.keeper.spawn(
            partial(self._call, name, call), f"{name} {getattr(self, 'path', type(self).__name__)}"
        )

    def _call(self, name: str, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:
            log.exception("%s of %r failed", name, self)
