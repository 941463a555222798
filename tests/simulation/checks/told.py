"""What the listeners of a run are told: for each owner and lock in order, none left out, whatever strikes."""

from __future__ import annotations

from tests.helpers.grammar import Grammar
from tests.simulation.subjects.detached import DetachedRun
from tests.simulation.world.client import Process
from tests.simulation.world.run import Run
from tests.simulation.world.world import Violation
from zkconcurrent._observe import event_listeners


def _fail(_: object) -> None:
    """Fail, as a listener of a program may."""
    raise ValueError


def hear(run: Run) -> dict[Process, Grammar]:
    """Have a run raise a `Violation` if its processes tell anything wrong; return what they will have told.

    The listener of each process is one that other threads may overtake, behind one that always fails.
    """
    told = {process: Grammar(lambda _: run.world.point()) for process in run.processes}
    for process, grammar in told.items():
        event_listeners.add(_fail, process.session)
        event_listeners.add(grammar, process.session)
    end, to_the_end = run.checks.end, run.to_the_end

    def at_rest() -> None:
        end()
        for process, grammar in told.items():
            if process.alive and (left := process.session.hooks.has_left):
                raise Violation(f"{process.name} has yet to tell {left}")
            # Another process may have ended the hold of a detached lock's owner: only a release would tell.
            if process.alive and grammar.open() and not isinstance(run, DetachedRun):
                raise Violation(f"{process.name} never told the end of {grammar.open()}")

    def run_and_check() -> int:
        try:
            return to_the_end()
        finally:
            event_listeners.registered.clear()
            for grammar in told.values():
                if grammar.wrong:
                    raise Violation(grammar.wrong[0])

    run.checks.end = at_rest  # type: ignore[method-assign]
    run.to_the_end = run_and_check  # type: ignore[method-assign]
    return told
