"""The world: actors that take turns, one at a time, in simulated time.

Every thread is a greenlet, so nothing happens at the same time and a run is repeated exactly. An actor goes on until
it waits, or until the schedule takes its turn away, which can be at every `point`: before it takes a lock, before it
sends a request, before it waits. When no actor can go on, the oldest message on the network does; when there is none,
time does. That is the calm run; a schedule is the list of deviations from it.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped,unused-ignore]

from tests.models.history import Violation as Violation

CALM = 1 << 60


# The long names of our nodes: the process, the ticket, and the sequence number.
_NODE = re.compile(r"_c_0+(\d+)-0000-4000-8000-0+(\d+)-(?:lock-)?0*")


def _nothing() -> None:
    pass


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error; before Python 3.11, which shows none, print it."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        sys.stderr.write(f"{note}\n")


class Ended(GreenletExit, GeneratorExit):
    """The world has ended, and its threads with it: they clean up no more."""


class Actor:
    """One thread of one process.

    Attributes:
        ident: the thread's identity, to the library.
        ready: it can go on.
        until: it waits no longer than that.
        held_until: starved of its turn before that.
        thrown: the error to be raised where it waits.
        listens: it waits for a message from the network.
        waits_since: when a recipe of its last waited for another contender.
        switch: has it go on until its turn ends.
    """

    def __init__(self, world: World, name: str, run: Callable[[], None], process: Any = None) -> None:
        self.world = world
        self.name = name
        self.ident = len(world.actors) + 1
        self.process = process
        self.ready = True
        self.signaled = False
        self.until: float | None = None
        self.held_until = 0.0
        self.thrown: BaseException | None = None
        self.done = False
        self.listens = False
        self.waits_since = 0.0
        self.greenlet = greenlet(self._main, parent=world.hub)
        self.switch: Callable[[], object] = self.greenlet.switch
        self._run = run

    def _main(self) -> None:
        run, self._run = self._run, _nothing  # the objects that it refers to go with it
        try:
            run()
        except GreenletExit:
            pass
        except BaseException as error:
            self.world.failure = self.world.failure or error
        self.done = True

    def is_alive(self) -> bool:
        """Whether the thread runs still, as `threading.Thread` says it."""
        return not self.done

    def __repr__(self) -> str:
        return self.name


class World:
    """The order of turns, and the time.

    Attributes:
        now: the time, in seconds: every clock there is.
        steps, limit: the decisions so far, and how many there may be.
        current: the actor whose turn it is; None in between.
        countdown: the decisions until the schedule deviates.
        deviate: is called then; it may set `next_up`.
        network: offers the oldest message, as a step and since when it waits.
        skip_network: have time pass once although there are messages.
        late: when that was so.
        check: looks, after every step, whether all is well.
        hear: is told of each operation before the current actor performs it.
        requested: is told of each request that the current actor has made, by its answer.
        at_rest: looks whether all is well when nothing can happen before time passes.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.steps = 0
        self.limit = 30_000  # several times what the longest run takes
        self.actors: list[Actor] = []
        self.current: Actor | None = None
        self.next_up: Actor | None = None
        self.last = 0
        self.countdown = CALM
        self.deviate: Callable[[], None] = lambda: None
        self.network: Callable[[], Callable[[], None] | None] = lambda: None
        self.check: Callable[[], None] = lambda: None
        self.at_rest: Callable[[], None] = lambda: None
        self.failure: BaseException | None = None
        self.closed = False
        self.hear: Callable[[str], None] = lambda _: None
        self.requested: Callable[[object], None] = lambda _: None
        self.trace: list[str] | None = None
        self.messages = 0
        self.skip_network = False
        self.late = 0.0
        self.hub = getcurrent()
        self._alarms: list[tuple[float, int, Callable[[], None]]] = []

    # -- actors --------------------------------------------------------------------------------------------------

    def spawn(self, name: str, run: Callable[[], None], process: Any = None) -> Actor:
        """Begin a thread."""
        actor = Actor(self, name, run, process)
        self.actors.append(actor)
        return actor

    def whoami(self) -> int:
        """Return the calling actor's identity."""
        return 0 if self.current is None else self.current.ident

    def say(self, text: str) -> None:
        """Note a step, if anybody will read it."""
        if self.trace is not None and not self.closed:
            text = _NODE.sub(r"\1.\2#", text)
            who = "" if self.current is None else f"{self.current.name}: "
            self.trace.append(f"{self.now - 1000:9.3f}  {who}{text}")

    def available(self, actor: Actor) -> bool:
        """Whether the actor may be given a turn."""
        return actor.held_until <= self.now and (actor.process is None or actor.process.runs)

    def point(self) -> None:
        """A place where the caller's turn may end."""
        actor = self.current
        if actor is None or self.closed:
            return
        self.steps += 1
        self.countdown -= 1
        self.check()
        if self.steps > self.limit:
            raise Violation(f"{actor} runs for ever")
        if self.countdown <= 0:
            actor.ready = True
            self.next_up = actor
            self._release_level(actor)

    def block(self, timeout: float | None = None) -> None:
        """Wait until somebody makes the caller ready, or for `timeout` seconds."""
        actor = self.current
        if self.closed:
            raise Ended
        assert actor is not None, "nobody to wait"
        actor.ready = False
        actor.until = None if timeout is None else self.now + timeout
        self._release_level(actor)

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        until = self.now + seconds
        while self.now < until:
            self.block(until - self.now)

    def _release_level(self, actor: Actor) -> None:
        self.hub.switch()
        if self.closed:
            raise Ended
        if actor.thrown is not None:
            error, actor.thrown = actor.thrown, None
            try:
                raise error
            finally:
                del error  # no cycle through the traceback: the objects of the frames go at once

    def throw(self, actor: Actor, error: BaseException) -> None:
        """Raise `error` where the actor waits."""
        actor.thrown = error
        actor.ready = True

    # -- steps ---------------------------------------------------------------------------------------------------

    def at(self, time: float, act: Callable[[], None] = lambda: None) -> None:
        """Have something happen at a time."""
        self.messages += 1
        heappush(self._alarms, (time, self.messages, act))

    def choices(self) -> list[Actor]:
        """Return who could be given a turn, in the order of the calm run."""
        n = len(self.actors)
        order = (self.actors[(self.last + k) % n] for k in range(n))
        return [actor for actor in order if actor.ready and self.available(actor)]

    def _next_ready(self) -> Actor | None:
        actors, last = self.actors, self.last % len(self.actors)
        for some in (actors[last:], actors[:last]):
            for actor in some:
                if actor.ready and self.available(actor):
                    return actor
        return None

    def step(self) -> None:
        """Let one thing happen."""
        self.steps += 1
        self.countdown -= 1
        if self.countdown <= 0:
            self.deviate()
        actor, self.next_up = self.next_up, None
        if actor is None or not actor.ready or not self.available(actor):
            actor = self._next_ready()
        if actor is not None:
            self.resume(actor)
        else:
            move = None if self.skip_network else self.network()
            if move is not None:
                move()
            else:
                if self.skip_network:
                    self.skip_network, self.late = False, self.now
                else:
                    self.at_rest()
                self._pass_time()
        self.check()
        if self.failure is not None:
            raise self.failure

    def resume(self, actor: Actor) -> None:
        """Give the actor its turn."""
        actor.ready = False
        actor.until = None
        self.current = actor
        self.last = actor.ident  # its position is one less: the search begins behind it
        actor.switch()
        self.current = None

    def _pass_time(self) -> None:
        """Go to the next moment at which something can happen."""
        soonest = self._alarms[0][0] if self._alarms else math.inf
        for actor in self.actors:
            until = 0.0 if actor.ready else actor.until
            if until is None or until >= soonest or actor.held_until >= soonest or actor.done:
                continue  # it does nothing, or nothing sooner
            if actor.process is None or actor.process.runs:
                soonest = max(until, actor.held_until)
        if soonest == math.inf:
            waiting = (actor for actor in self.actors if not actor.done and not actor.listens)
            if any(actor.process is None or actor.process.runs for actor in waiting):
                raise Violation("nothing will ever happen again")
            # All programs have ended, and the keepers of stopped clients; time goes on.
            soonest = self.now + 1.0
        self.now = max(self.now, soonest)
        while self._alarms and self._alarms[0][0] <= self.now:
            heappop(self._alarms)[2]()
        for actor in self.actors:
            if actor.until is not None and actor.until <= self.now and not actor.ready:
                actor.ready = True

    @contextmanager
    def closing(self) -> Iterator[None]:
        """End all actors when the block is left."""
        try:
            yield
        finally:
            self.closed = True
            for actor in self.actors:
                if not actor.greenlet.dead:
                    self.current = actor
                    actor.greenlet.throw(Ended)
            self.current = None


class Event:
    """`threading.Event`, for actors."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False
        self._waiting: list[Actor] = []

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._set

    isSet = is_set  # noqa: N815 - as kazoo calls it

    def set(self) -> None:
        """Set it, and wake its waiters."""
        self._set = True
        for actor in self._waiting:
            actor.ready = actor.signaled = True

    def clear(self) -> None:
        """Clear it."""
        self._world.point()
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; return whether it was."""
        world = self._world
        world.point()
        if self._set:
            return True
        actor = world.current
        if actor is None:
            raise Violation("waiting outside of every thread")
        actor.signaled = False
        self._waiting.append(actor)
        try:
            world.block(timeout)
        finally:
            self._waiting.remove(actor)
        return actor.signaled or self._set


class ReentrantLock:
    """`threading.RLock`, for actors."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.owner: Actor | None = None
        self._depth = 0
        self._waiting: list[Actor] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it; with a timeout, only if it is free."""
        world = self._world
        actor = world.current
        if actor is None or world.closed:
            return True
        if self.owner is not actor:
            world.point()
            while self.owner is not None:
                if not blocking or timeout >= 0:
                    return False
                self._waiting.append(actor)
                try:
                    world.block()
                finally:
                    self._waiting.remove(actor)
            self.owner = actor
        self._depth += 1
        return True

    def release(self) -> None:
        """Release it."""
        world = self._world
        if world.current is None or world.closed:
            return
        assert self.owner is world.current
        self._depth -= 1
        if self._depth == 0:
            self.owner = None
            for actor in self._waiting:
                actor.ready = True

    def _is_owned(self) -> bool:
        return self.owner is not None and self.owner is self._world.current

    def _release_save(self) -> int:
        """Release all levels; return how many."""
        depth, self._depth = self._depth, 1
        self.release()
        return depth

    def _acquire_restore(self, depth: int) -> None:
        """Acquire so many levels."""
        self.acquire()
        self._depth = depth

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
