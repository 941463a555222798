"""`RevocableLock`: a lock whose holder sees that others wait, and may be asked to let go."""

from __future__ import annotations

from ..._engine.contention import Contention, contention_of
from ..._recipes.revoke import revoke
from .lock_base import PlainLock


class RevocableLock(PlainLock):
    """The methods of the locks of one holder, and of readers and a writer: those that Curator's `Revoker` knows."""

    @property
    def contended(self) -> Contention:
        """Whether somebody waits behind the current hold; it resembles a `threading.Event`. Each hold has its own.

        The current hold is the caller's own or, if the caller holds nothing, this process's newest. The first use for a
        hold sends one request, and then the library watches the queue while the hold lasts. Until the reply has come,
        it is not set.

        Raises:
            LockLostError: the hold is lost.
            RuntimeError: nothing is held.
        """
        core = self._lock_core
        hold = core.current() or core.must_hold()
        core.check(hold)
        return contention_of(self._path_state, core.rule, hold)

    def revoke(self) -> int:
        """Ask the holders for whom an `acquire` of this lock would wait to let go; return how many were asked.

        The call does not wait for them, and nothing forces them. It has `on_revoke` called, or the listener that a Java
        holder on Curator has given to `makeRevocable`. After that `owner()` no longer tells the holder's host, process
        and thread, as the request takes the place of what its node told. Cost: 2 reads, then a read and a write for
        each holder.

        Raises:
            ValueError: a `DetachedLock` holds; end that by its `force_release`.
            RefusedError: this client may not write into the holder's node.
            ClientError: the client can't be used here.
        """

        def checked(asked: int | None) -> int:
            if asked is None:
                raise ValueError(
                    f"{self._path} is held by a DetachedLock, which no process watches: its owner releases it, or "
                    "`force_release(token)` of a DetachedLock ends the hold"
                )
            return asked

        return self._run(revoke(self._path, self._rule), checked)
