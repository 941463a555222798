"""The keeper: helps threads that wait at queues to come to their end; then takes what is left, and looks last."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING

import zkconcurrent
from tests.soak.callers.caller import Caller, Mood
from tests.soak.callers.data_caller import DataCaller
from tests.soak.checks.items import Stock
from tests.soak.events import Log, What
from tests.soak.testbed import SoakError, Testbed
from tests.soak.workload import Entry
from zkconcurrent import Empty, Full, Queue

if TYPE_CHECKING:
    from typing_extensions import Self

SESSION = 30.0  # seconds
KEEPER = "keeper"  # its name in the history
PATIENCE = 30.0  # seconds in which what is left in a queue must come
CALM = 1.0  # seconds after which a queue that is empty stays so


class Keeper:
    """Within its `with` block, puts an item where there is none, and takes one where there is no place.

    Args:
        testbed: the servers, which are healed.
        folder: for its files.
        paths: the workload.
    """

    def __init__(self, testbed: Testbed, folder: Path, paths: Mapping[str, Entry]) -> None:
        self._log = Log(folder, KEEPER)
        self._numbers = itertools.count(1)
        self._over = threading.Event()
        self._errors: list[Exception] = []
        self._client = zkconcurrent.connect(f"zk://{testbed.service.hosts}", timeout=SESSION, start_timeout=60)
        self._stocks = {path: entry.model for path, entry in paths.items() if isinstance(entry.model, Stock)}
        self._data = {path: entry for path, entry in paths.items() if entry.caller is DataCaller}
        self._queues = {path: stock.open(self._client, path) for path, stock in self._stocks.items()}
        self._thread = threading.Thread(target=self._help)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()
        self._client.stop()
        self._client.close()

    def _stop(self) -> None:
        self._over.set()
        self._thread.join()

    def drain(self) -> None:
        """Put no more; take the remaining items, also those on their way back; note the dead items, and the values.

        Raises:
            SoakError: it does not come to an end.
        """
        self._stop()
        if self._errors:
            raise SoakError(f"the keeper could not go on: {self._errors[0]!r}")
        for path, queue in self._queues.items():
            until, calm = time.monotonic() + PATIENCE, time.monotonic() + CALM
            while time.monotonic() < calm:
                if self._take(path, queue):
                    # A long run leaves many.
                    until, calm = time.monotonic() + PATIENCE, time.monotonic() + CALM
                elif self._stocks[path].left(queue):
                    calm = time.monotonic() + CALM
                    if time.monotonic() > until:
                        raise SoakError(f"{path} is not empty")
                time.sleep(0.01)
            for item in queue.dead():
                self._say(What.BURIED, path, "dead", item)
        for path, entry in self._data.items():
            entry.visit(self._caller(path, entry), plain=True)

    def _caller(self, path: str, entry: Entry) -> Caller:
        locks = entry.roles(entry.make(self._client, path))
        return entry.caller(self._log, 0, 0, path, locks, Random(0), Mood(), SESSION, self._numbers)

    def _help(self) -> None:
        try:
            while not self._over.wait(0.2):
                for path, queue in self._queues.items():
                    if queue.full():
                        self._take(path, queue)
                    elif queue.empty():
                        self._put(path, queue)
        except Exception as error:
            self._errors.append(error)

    def _put(self, path: str, queue: Queue[bytes]) -> None:
        item = f"{KEEPER}/0/{next(self._numbers)}".encode()
        self._say(What.ASKS, path, "put", item)
        try:
            queue.put(item, block=False)
        except Full:
            self._say(What.REFUSED, path, "put", item)
        else:
            self._say(What.PUT, path, "put", item)

    def _take(self, path: str, queue: Queue[bytes]) -> bool:
        self._say(What.ASKS, path, "get")
        try:
            item = queue.get(block=False)
        except Empty:
            return False
        self._say(What.TAKEN, path, "get", item)
        return True

    def _say(self, what: What, path: str, role: str, item: bytes = b"") -> None:
        self._log.add(0, what, path=path, role=role, item=item.decode())
