"""Where a machine plays: the processes, threads and tasks of the simulation, in an order that a seed decides.

The library is the real one, the tree is the memory server's, and time is simulated. So a step ends when no thread can
go on, however busy the machine is, and the same steps always have the same outcome.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import Any

from tests.simulation.world.client import Process
from tests.simulation.world.ensemble import Ensemble
from tests.simulation.world.event_loop import LoopThread
from tests.simulation.world.run import CHROOT, quietly
from tests.simulation.world.world import CALM, World
from zkconcurrent._memory import changes

# In seconds. A lease lasts longer than all steps of an example together, and each lets some time pass.
TIMEOUT, STEP = 200.0, 0.5
PENDING = "pending"


class Actor:
    """A thread, which makes one call at a time. Its outcome is the call's value, or the class of its error."""

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self.process = process
        self.outcome: object = None
        self._next: Callable[[], Any] | None = None
        self._start()

    def begin(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Begin a call."""
        assert self.outcome is not PENDING
        self.outcome = PENDING
        self._pass_on(partial(call, *args, **kwargs))

    def _start(self) -> None:
        self.thread = self.process.world.spawn(self.name, self._run, self.process)

    def _pass_on(self, call: Callable[[], Any]) -> None:
        self._next = call
        self.thread.ready = True

    def _run(self) -> None:
        while True:
            while self._next is None:
                self.process.world.block()
            call, self._next = self._next, None
            try:
                self.outcome = call()
            except Exception as error:
                self.outcome = type(error)

    def __repr__(self) -> str:
        return self.name


class TaskActor(Actor):
    """A task of the process's event loop."""

    done = False
    cancelled = 0.0

    def cancel(self) -> None:
        """Cancel the call."""
        self._loop.loop.call_soon_threadsafe(self._loop.tasks[self].cancel)

    def _start(self) -> None:
        self._loop: LoopThread = vars(self.process).setdefault("loop_thread", None) or LoopThread(self.process, "loop")
        self.process.loop_thread = self._loop  # type: ignore[attr-defined]
        self._loop.members.append(self)

    def _pass_on(self, call: Callable[[], Any]) -> None:
        self._loop.loop.call_soon_threadsafe(lambda: self._given.set_result(call))

    async def main(self) -> None:
        """Make the calls."""
        while True:
            self._given: asyncio.Future[Callable[[], Any]] = self._loop.loop.create_future()
            call = await self._given
            try:
                outcome = call()
                self.outcome = await outcome if inspect.iscoroutine(outcome) else outcome if outcome is True else None
            except asyncio.CancelledError:
                self.outcome = asyncio.CancelledError
                if sys.version_info >= (3, 11):
                    self._loop.tasks[self].uncancel()
            except Exception as error:
                self.outcome = type(error)


class Stage:
    """A service, and the processes that use it.

    Args:
        seed: decides who goes on, wherever several could; 0 stands for the calm order.
    """

    def __init__(self, seed: int) -> None:
        self.world = World()
        self.ensemble = Ensemble(self.world)
        self.ensemble.ask(0, changes.Create(CHROOT))
        self.processes: list[Process] = []
        self._cut: list[Process] = []
        self._random = Random(seed) if seed else None
        self._exit = ExitStack()
        self._exit.enter_context(quietly())
        self._exit.callback(self._forget)
        self._exit.enter_context(self.world.closing())
        self._exit.callback(lambda: [each.client._stopped.set() for each in self.processes])
        self.close = self._exit.close
        self._observer = Actor("observer", self.process("o"))

    @property
    def observer(self) -> Process:
        """A process that no fault befalls."""
        return self._observer.process

    def process(self, name: str) -> Process:
        """Return a new process."""
        self.processes.append(Process(self.world, self.ensemble, name, len(self.processes) + 1, TIMEOUT))
        return self.processes[-1]

    def _forget(self) -> None:
        for process in self.processes:
            process.session.forget_after_fork()
            if "loop_thread" in vars(process):
                vars(process)["loop_thread"].bury()

    def ask(self, call: Callable[[], Any]) -> Any:
        """Return the outcome of a call of the observer."""
        self._observer.begin(call)
        self.rest(0.0)
        return self._observer.outcome

    def rest(self, seconds: float = STEP, moves_left: float = math.inf) -> None:
        """Go on until so much time has passed, and no thread can go on before more does; or for so many moves."""
        world, until = self.world, self.world.now + seconds
        world.steps = 0
        world.at(until)
        for process in self._cut:
            process.connection.down_until = until + 0.001
        while True:
            moves: list[Callable[[], object]] = [partial(world.resume, each) for each in world.choices()]
            if self._random is not None or not moves:
                messages = [each for process in self.processes for each in process.messages()]
                moves += [move for _, move in sorted(messages, key=lambda each: each[0])]
            if moves:
                if (moves_left := moves_left - 1) < 0:
                    return
                world.countdown = CALM if self._random is None else self._random.randint(1, 40)
                (moves[0] if self._random is None else self._random.choice(moves))()
                if world.failure is not None:
                    raise world.failure
            elif world.now < until:
                world._pass_time()
            else:
                return

    def cut(self, process: Process, served: int = 0) -> None:
        """Cut a process off; the server still takes so many of the requests that are under way."""
        self._cut.append(process)
        if process.connection.wire is not None:
            self.ensemble.close(process.connection.wire, served)

    def restore(self, process: Process) -> None:
        """Connect it again."""
        self._cut.remove(process)
        process.connection.down_until = self.world.now

    def expire(self, process: Process) -> None:
        """End the session of a process, as an operator would."""
        assert process.connection.wire is not None
        self.ensemble.end_session(process.connection.wire.session)

    def end(self, process: Process, *, kill: bool) -> None:
        """Kill a process, or stop its client."""
        wire = process.connection.wire
        assert wire is not None
        if kill:
            process.stop_until(math.inf)
            self.ensemble.end_session(wire.session)
        else:
            process.client._stopped.set()
            process.connection._connection_routine.ready = True

    def names_at(self, path: str) -> list[str]:
        """Return the actors that have made the sequential nodes at a path, the first in the queue first."""
        nodes, names = self.ensemble.leader.nodes, {str(each.ident): each.name for each in self.world.actors}
        children = sorted(self.ensemble.leader.children(CHROOT + path), key=lambda each: each[-10:])
        threads = [json.loads(nodes[f"{CHROOT}{path}/{each}"].data or b"")["thread"] for each in children]
        return [names.get(each, each) for each in threads]

    def ephemerals(self, path: str) -> list[str]:
        """Return the ephemeral nodes below a path."""
        return [each for each in self.ensemble.leader.all_ephemerals() if each.startswith(f"{CHROOT}{path}/")]
