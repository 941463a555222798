"""The worker processes, seen from their parent: started, told what to do, killed, stopped, and replaced."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from tests.soak.events import KILLED, Fault, Logs, What, clock
from tests.soak.testbed import SoakError, Testbed

if TYPE_CHECKING:
    from typing_extensions import Self

PATIENCE = 60.0  # seconds for what must happen soon
SLOW = 20.0  # seconds after which those that are not done yet are asked where they are


class Workers:
    """One process in each place, and those that were there before.

    Args:
        testbed: where they connect.
        folder: for their files.
        seed: of their actions.
        session: their session timeout, in seconds.
        workload: the name of theirs.
        places: how many there are at a time; from 1.
    """

    def __init__(self, testbed: Testbed, folder: Path, seed: int, session: float, workload: str, places: int) -> None:
        self.session = session
        self.places = list(range(1, places + 1))
        self._testbed, self._folder = testbed, folder
        self._arguments = [f"--seed={seed}", f"--session={session}", f"--workload={workload}"]
        self._logs = Logs(folder)
        self._lock = threading.RLock()  # faults of several kinds strike at once
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._generations: dict[int, int] = {}
        self._sessions: dict[tuple[str, int], tuple[int, bytes]] = {}
        self._done: set[tuple[str, int]] = set()
        self._untold: Counter[str] = Counter()  # the losses of each process of which `on_lost` is still to tell

    def __enter__(self) -> Self:
        for place in self.places:
            self._start(place)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            _end(process)

    def threads(self, place: int) -> int:
        """Return how many threads a process has."""
        return 4 + place % 2

    def name(self, place: int) -> str:
        """Return the name of the process that is there now."""
        return f"{place}.{self._generations[place]}"

    def tell(self, place: int, order: str) -> None:
        """Give an order; one that a dead process does not hear is nothing."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            stdin = self._processes[place].stdin
            assert stdin
            stdin.write(f"{order}\n")
            stdin.flush()

    def stay(self, seconds: float, *places: int) -> None:
        """Have the threads inside stay there."""
        for place in places or self.places:
            self.tell(place, f"stay {seconds}")

    def kill(self, place: int) -> Fault:
        """Kill a process, and start another in its place.

        Raises:
            SoakError: it had ended by itself.
        """
        with self._lock:
            process, name = self._processes[place], self.name(place)
            if process.poll() is not None:
                raise SoakError(f"worker {name} ended by itself{self.last_words(place)}")
            at = clock()
            _end(process)
            fault = Fault(KILLED, at, clock(), name)
            self._start(place)
            return fault

    def stop(self, place: int) -> None:
        """Stop a process in its tracks."""
        self._processes[place].send_signal(signal.SIGSTOP)

    def go_on(self, place: int) -> None:
        """Let it go on."""
        self._processes[place].send_signal(signal.SIGCONT)

    def known_session(self, place: int, client: int) -> tuple[int, bytes] | None:
        """Return the session of a client, and its password, as last written down."""
        self._listen()
        return self._sessions.get((self.name(place), client))

    def wait_until_connected(self) -> None:
        """Wait until every client of every process has had a session.

        Raises:
            SoakError: one does not get it.
        """
        self._wait("all clients", lambda: all(self.known_session(place, 1) for place in self.places))

    def finish(self) -> bool:
        """Have every thread come to its end, and each loss told; return whether all did.

        A process that hangs is asked for its stacks, in its own log.
        """
        for place in self.places:
            self.tell(place, "finish")
        until = time.monotonic() + PATIENCE
        slow = time.monotonic() + SLOW
        while not self._all_done():
            if time.monotonic() > slow:
                slow = until + PATIENCE
                self._ask_where()
            if time.monotonic() > until:
                self._ask_where()
                return False
            time.sleep(0.05)
        return True

    def _ask_where(self) -> None:
        """Have each process write down where its threads are; also that it has ended by itself is found there."""
        for process in self._processes.values():
            process.send_signal(signal.SIGUSR1)
        time.sleep(1)  # for the answer to be written

    def end(self) -> None:
        """Have every process end.

        Raises:
            SoakError: one does not end, or not well.
        """
        for place in self.places:
            self.tell(place, "end")
        for place, process in self._processes.items():
            try:
                code = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise SoakError(f"worker {place} does not end{self.last_words(place)}") from None
            if code:
                raise SoakError(f"worker {place} ended with exit code {code}{self.last_words(place)}")

    def last_words(self, place: int, lines: int = 60) -> str:
        """Return the end of what a process printed."""
        text = (self._folder / f"{self.name(place)}.log").read_text(errors="replace")
        return "".join(f"\n    {line}" for line in text.splitlines()[-lines:])

    def _start(self, place: int) -> None:
        self._generations[place] = self._generations.get(place, 0) + 1
        name = self.name(place)
        command = [sys.executable, "-W", "ignore", "-m", "tests.soak.worker", name, str(self._folder)]
        command += [f"--hosts={self._testbed.hosts(place)}", f"--threads={self.threads(place)}", *self._arguments]
        with (self._folder / f"{name}.log").open("w") as log:
            self._processes[place] = subprocess.Popen(
                command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stderr=log, text=True
            )

    def _listen(self) -> None:
        with self._lock:
            for event in self._logs.news(What.SESSION, What.DONE, What.TOLD, What.CALLED):
                if event.what is What.DONE:
                    self._done.add((event.process, event.thread))
                elif event.what is not What.SESSION:
                    self._untold[event.process] += 1 if event.what is What.TOLD else -1
                else:
                    number, password = event.note.split()
                    self._sessions[event.process, event.client] = int(number, 16), bytes.fromhex(password)

    def _all_done(self) -> bool:
        self._listen()
        # A thread of its own calls `on_lost`, which may be the last to begin.
        return all(
            (self.name(place), thread) in self._done and not self._untold[self.name(place)]
            for place in self.places
            for thread in range(1, self.threads(place) + 1)
        )

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            for place, process in self._processes.items():
                if process.poll() is not None:
                    raise SoakError(f"worker {place} ended by itself{self.last_words(place)}")
            if time.monotonic() > deadline:
                raise SoakError(f"waited {PATIENCE:.0f} s for {what}, in vain")
            time.sleep(0.05)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdin
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
