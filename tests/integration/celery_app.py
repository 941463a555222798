"""An app of Celery's whose broker is a folder, for the beats and workers that a test starts.

The environment has its folder, CELERY_FOLDER, and the server, ZKCONCURRENT_URL. As a program it is a beat:

    python -m tests.integration.celery_app STAGE

It says `leads` when it leads. At STAGE of sending `hourly`, `noting` or `sending`, it says so and reads a line.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from celery import Celery

from tests.helpers.folder_broker import put_whole_messages
from tests.helpers.party import say
from zkconcurrent.celery import Beat, Once

FOLDER = Path(os.environ["CELERY_FOLDER"])
put_whole_messages()
app = Celery("app")
app.conf.update(
    broker_url="filesystem://",
    broker_transport_options={
        "data_folder_in": f"{FOLDER}/queue",
        "data_folder_out": f"{FOLDER}/queue",
        "control_folder": f"{FOLDER}/control",
        "processed_folder": f"{FOLDER}/processed",
        "store_processed": True,
    },
    result_backend=f"file://{FOLDER}/results",
    worker_redirect_stdouts=False,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    beat_schedule={
        "often": {"task": "often", "schedule": 0.5},
        "hourly": {"task": "hourly", "schedule": 3600.0},
    },
)


@app.task(name="slow", base=Once)  # type: ignore[untyped-decorator]
def slow(what: str) -> str:
    """Say who runs it, and run until the test has made the file of its name."""
    with (FOLDER / f"{what}.runs").open("a") as runs:
        runs.write(f"{os.getpid()}\n")
    while not (FOLDER / what).exists():
        time.sleep(0.02)
    return f"{what} is done"


class Staged(Beat):
    """A beat that waits for the test where its stage is."""

    def reserve(self, entry: Any) -> Any:
        """Note that an entry is about to be sent."""
        reach("noting", entry)
        return super().reserve(entry)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send an entry."""
        reach("sending", entry)
        super().apply_entry(entry, producer)

    def _take_over(self, term: Any) -> None:
        super()._take_over(term)
        say("leads")


def reach(stage: str, entry: Any) -> None:
    """Wait for the test if this is the stage."""
    if entry.name == "hourly" and sys.argv[1:] == [stage]:
        say(stage)
        sys.stdin.readline()


if __name__ == "__main__":
    app.Beat(scheduler=Staged, loglevel="INFO", quiet=True).run()
