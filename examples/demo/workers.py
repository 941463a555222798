"""The worker processes, seen from their parent, which starts, watches, orders, kills and freezes them."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

from journal import Entry, Journals, Step
from progress import Progress
from verdict import Fault

PATIENCE = 45  # seconds without a step forward before the demo gives up

T = TypeVar("T")


class DemoError(Exception):
    """The demo cannot go on."""


class Workers:
    """All workers, numbered from 1, and the entries of their journals so far.

    Args:
        count: the number of workers.
        arguments: for each of them, after its number and the folder.
        folder: for the journals, the counter and the logs.
    """

    def __init__(self, count: int, arguments: Collection[str], folder: Path) -> None:
        self.entries: list[Entry] = []
        self._folder = folder
        self._journals = Journals(folder)
        self._progress = Progress()
        self._processes: dict[int, subprocess.Popen[str]] = {}
        script = str(Path(__file__).with_name("worker.py"))
        for worker in range(1, count + 1):
            command = [sys.executable, script, str(worker), str(folder), *arguments]
            with self._log(worker).open("w") as log:
                self._processes[worker] = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log, text=True)

    def run_for(self, seconds: float) -> None:
        """Lets the workers go on for a time."""
        until = time.monotonic() + seconds
        self._watch("the time to pass", lambda: time.monotonic() > until)

    def run_until_all_had_a_turn(self, threads: Collection[tuple[int, int]]) -> None:
        """Lets the workers go on until each of these threads (worker, thread) has added something from now on."""
        since = time.monotonic()

        def all_had_a_turn() -> bool:
            return set(threads) <= {(e.worker, e.thread) for e in self._after(since) if e.step is Step.WRITES}

        self._watch("every thread to take a turn", all_had_a_turn)

    def kill(self, worker: int) -> Fault:
        """Kills a worker in the middle of its critical section; returns when another worker has entered."""
        pause = self._pause(worker)
        process = self._processes.pop(worker)
        at = time.monotonic()
        process.kill()
        process.wait()
        _close(process)
        self._progress.say(f"worker {worker} (pid {process.pid}) is killed in its critical section")
        return Fault("killed", worker, pause.thread, process.pid, pause.token, at, self._next_grant(worker, at))

    def freeze(self, worker: int) -> Fault:
        """Stops a worker in the middle of its critical section; returns when another worker has entered."""
        pause = self._pause(worker)
        process = self._processes[worker]
        at = time.monotonic()
        process.send_signal(signal.SIGSTOP)
        self._progress.say(f"worker {worker} (pid {process.pid}) is frozen in its critical section")
        return Fault("frozen", worker, pause.thread, process.pid, pause.token, at, self._next_grant(worker, at))

    def wake(self, worker: int) -> float:
        """Lets a frozen worker go on; returns the time."""
        at = time.monotonic()
        self._tell(worker, "resume")
        self._processes[worker].send_signal(signal.SIGCONT)
        self._progress.say(f"worker {worker} wakes, and writes as if it still held the lock")
        return at

    def stop(self) -> None:
        """Lets each worker finish its turn and end.

        Raises:
            DemoError: a worker did not end, or failed.
        """
        for worker in self._processes:
            self._tell(worker, "stop")
        for worker, process in self._processes.items():
            try:
                code = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise DemoError(f"worker {worker} did not stop within {PATIENCE} s{self._last_words(worker)}") from None
            if code:
                raise DemoError(f"worker {worker} failed{self._last_words(worker)}")
        self._listen()

    def clear(self) -> None:
        """Ends the workers that still run, and the line of progress."""
        for process in self._processes.values():
            process.kill()
            process.wait()
            _close(process)
        self._progress.clear()

    def _pause(self, worker: int) -> Entry:
        """Makes a worker pause in its critical section, at its next turn."""
        since = time.monotonic()
        self._tell(worker, "pause")

        def pauses() -> Entry | None:
            return next((e for e in self._after(since) if (e.worker, e.step) == (worker, Step.PAUSES)), None)

        return self._watch(f"worker {worker} to take a turn", pauses)

    def _next_grant(self, worker: int, since: float) -> float:
        """Waits until a thread of another worker enters; returns when it did."""

        def grants() -> list[float]:
            return [e.at for e in self._after(since) if e.step is Step.ENTERS and e.worker != worker]

        first = min(self._watch("another worker to enter", grants))
        self._progress.say(f"another worker enters {first - since:.1f} s later")
        return first

    def _tell(self, worker: int, order: str) -> None:
        stdin = self._processes[worker].stdin
        assert stdin
        stdin.write(f"{order}\n")
        stdin.flush()

    def _watch(self, what: str, until: Callable[[], T | None]) -> T:
        """Follows the journals until `until` returns something true; returns that."""
        deadline = time.monotonic() + PATIENCE
        while not (answer := until()):
            for worker, process in self._processes.items():
                if process.poll() is not None:
                    words = f"worker {worker} ended unexpectedly, with exit code {process.returncode}"
                    raise DemoError(words + self._last_words(worker))
            if time.monotonic() > deadline:
                raise DemoError(f"waited {PATIENCE} s for {what}")
            time.sleep(0.02)
            self._listen()
        return answer

    def _listen(self) -> None:
        self.entries += self._journals.news()
        self._progress.show(self.entries)

    def _after(self, since: float) -> list[Entry]:
        # A second's grace: one journal may be read a little later than another.
        recent = takewhile(lambda entry: entry.at > since - 1, reversed(self.entries))
        return [entry for entry in recent if entry.at > since]

    def _log(self, worker: int) -> Path:
        return self._folder / f"worker-{worker}.log"

    def _last_words(self, worker: int) -> str:
        lines = self._log(worker).read_text().splitlines()[-15:]
        return "".join(f"\n    {line}" for line in lines)


def _close(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.close()
