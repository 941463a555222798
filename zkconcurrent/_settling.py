"""What calls have left under way when they ended before their time is settled, by a thread of the library."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from ._engine.driver import UNANSWERED, Call
from ._engine.holds import PathState
from ._engine.session import Dropped, Session, log
from ._errors import ClientError
from ._recipes.operations import Recipe
from ._recipes.receipts import Ledger, Receipt


class SettlingState(PathState):
    """The state of a path whose calls may leave something to be settled: an `Undertaking` that has `left`.

    Attributes:
        settler: the thread that settles just now; None if there is none.
    """

    def __init__(self, session: Session, path: str, kind: str) -> None:
        super().__init__(session, path, kind)
        self.settler: int | None = None
        self._left: deque[Any] = deque()
        self._idle = deque([True])  # the caller that takes it starts the thread

    def _drop_with(self, ledger: Ledger) -> None:
        """Have the members discarded once this is garbage."""
        weakref.finalize(self, _drop_members, self.session.dropped, ledger.receipts).atexit = False

    def _settling_of(self, errand: Any) -> Recipe[bool]:
        """Return the recipe that settles it."""
        raise NotImplementedError

    def _finish(self, errand: Any) -> None:
        """Note that nothing is left of it."""
        errand.finish()

    def _settle_later(self, errand: Any) -> None:
        if errand not in self._left:
            self._left.append(errand)
            self._start()

    def _start(self) -> None:
        try:
            self._idle.pop()
        except IndexError:
            return  # the thread runs, and looks again before it ends
        try:
            self.session.link.spawn(self._settle_all)
        except BaseException:
            self._idle.append(True)
            raise

    def _settle_all(self) -> None:
        self.settler = self.session.identity()
        while self._left:
            errand = self._left[0]
            try:
                if not self._settle(errand):
                    self._left.rotate(-1)  # those behind it may be what it waits for: a place in a full queue
                    continue
            except Exception as error:
                log.error("a call at %s was interrupted, and its outcome is unknown: %r", self.path, error)
                errand.unknown, errand.receipt = True, None
            self._finish(errand)
            self._left.popleft()
        self.settler = None
        self._idle.append(True)
        if self._left:
            self._start()

    def _settle(self, errand: Any) -> bool:
        """Settle an errand; False if ZooKeeper is out of reach."""
        session = self.session
        call = Call(session, self.path)
        done = call.wait(call.run(self._settling_of(errand), session.now() + (session.timeout or UNANSWERED)))
        if done is None and not threading.main_thread().is_alive():
            raise ClientError(self.path, "the interpreter is exiting, and ZooKeeper is out of reach")
        return done is not None


def _drop_members(dropped: Any, receipts: Sequence[Receipt]) -> None:
    """Finalize the state: only queue the work, as a finalizer may run anywhere."""
    dropped.append(Dropped([], [receipt.member for receipt in receipts if receipt.member is not None]))
