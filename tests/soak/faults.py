"""The faults of the system, in an order that is a function of the seed.

Three tracks run at once: the networks, the worker processes, and the servers. On each, one fault at a time
strikes and is healed before the next, and all kinds take turns, in an order shuffled anew in every round, so that none
is forgotten. Mostly, the holders of locks are asked to stay inside, so that the fault strikes holders.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random

from kazoo.handlers.threading import KazooTimeoutError

from tests.soak.callers.caller import MOMENT
from tests.soak.events import EXPIRED, STOPPED_LONG, STOPPED_SHORT, Fault, clock
from tests.soak.testbed import Testbed
from tests.soak.workers import Workers
from zkconcurrent.testing import Server

# Which requests are lost, or their answers: of a queue's node, of a change or a heartbeat, or any.
STRUCK = (
    ("create2", "create"),
    ("multi",),
    ("multi",),
    ("delete",),
    ("sync",),
    ("getChildren", "getData", "getEphemerals"),
    ("connect",),
)


TRIES = 4  # of a fault that found nothing to strike


class Track(ABC):
    """One kind of thing that fails.

    Args:
        seed: of the order of its faults, and of how each strikes.
        testbed: the servers and networks.
        workers: the processes.

    Attributes:
        faults: the faults so far.
        gap: how many seconds there are from one fault to the next.
        staying: how often holders are asked to stay inside, from 0 to 1.
    """

    gap = 4.5
    staying = 0.95

    def __init__(self, seed: int, testbed: Testbed, workers: Workers) -> None:
        # Two: how a fault strikes may depend on what it meets, and the order must not.
        self._order = Random(f"{seed}/{type(self).__name__}/order")
        self.random = Random(f"{seed}/{type(self).__name__}")
        self.testbed = testbed
        self.workers = workers
        self.faults: list[Fault] = []
        self.over = threading.Event()

    @property
    @abstractmethod
    def kinds(self) -> dict[str, Callable[[], bool | None]]:
        """The kinds of faults, by name; each returns, if it can't always strike, whether it did."""

    def order(self) -> Iterator[str]:
        """Yield kinds, each once in every round."""
        while True:
            names = sorted(self.kinds)
            self._order.shuffle(names)
            yield from names

    def run(self) -> None:
        """Strike and heal, until it is over."""
        for name in self.order():
            if self.over.wait(self.gap):
                return
            at = clock()
            self.note, known = "", len(self.faults)
            injected = any(self.kinds[name]() is not False for _ in range(TRIES))
            if injected and len(self.faults) == known:
                self.faults.append(Fault(name, at, clock(), note=self.note))

    def wait(self, seconds: float) -> None:
        """Let the fault last."""
        self.over.wait(seconds)

    def stay_inside(self, seconds: float, *places: int) -> None:
        """Often, have holders stay; return when some have heard it."""
        if self.random.random() < self.staying:
            self.workers.stay(seconds, *places)
            self.wait(MOMENT)


class Networks(Track):
    """The faults of the network of one worker process, or two: everywhere, or on the way to one server."""

    @property
    def kinds(self) -> dict[str, Callable[[], bool | None]]:
        """Cut, closed, silent, slow, and a message lost."""
        return {
            "connections cut": self._cut,
            "connections refused": self._refuse,
            "network stalled": self._stall,
            "network slow": self._delay,
            "answer lost": lambda: self._lose("lose_answer"),
            "request lost": lambda: self._lose("lose_request"),
        }

    def _places(self) -> list[int]:
        places = self.random.sample(self.workers.places, self.random.choice([1, 1, 2]))
        self.note = "of worker " + " and ".join(map(str, places))
        return places

    def _duration(self) -> float:
        """A moment, or longer than sessions live."""
        return self.random.choice([0.3, *[self.workers.session + 1.5] * 2])

    def _cut(self) -> None:
        reset = self.random.random() < 0.5
        places = self._places()
        self.stay_inside(2, *places)
        for place in places:
            for proxy in self.testbed.proxies[place - 1]:
                proxy.cut(reset=reset)

    def _refuse(self) -> None:
        places, seconds = self._places(), self._duration()
        self.note += f", {seconds:g} s"
        self.stay_inside(seconds + 1, *places)
        proxies = [proxy for place in places for proxy in self.testbed.proxies[place - 1]]
        with ExitStack() as healing:
            for proxy in proxies:
                healing.callback(proxy.resume)
                proxy.refuse()
                proxy.cut()
            self.wait(seconds)

    def _stall(self) -> None:
        places, seconds = self._places(), self._duration()
        to_server, to_client = self.random.choice([(True, True), (True, True), (True, False), (False, True)])
        self.note += f", {seconds:g} s, {'to' * to_server} {'from' * to_client} the servers"
        self.stay_inside(seconds + 1, *places)
        proxies = [proxy for place in places for proxy in self.testbed.proxies[place - 1]]
        if self.random.random() < 0.3:
            proxies = [self.random.choice([proxy for proxy in proxies if proxy.connections] or proxies)]
        with ExitStack() as healing:
            for proxy in proxies:
                healing.callback(proxy.resume)
                proxy.stall(to_server=to_server, to_client=to_client)
            self.wait(seconds)

    def _delay(self) -> None:
        seconds = self.random.choice([0.01, 0.03, 0.075, 0.2, 0.4])  # so much each way
        proxies = [proxy for place in self._places() for proxy in self.testbed.proxies[place - 1]]
        with ExitStack() as healing:
            for proxy in proxies:
                healing.callback(proxy.resume)
                proxy.delay(seconds)
            self.wait(2.5)

    def _lose(self, how: str) -> bool:
        names, nth = self.random.choice(STRUCK), self.random.choice([1, 1, 2, 3])
        place = self.random.choice(self.workers.places)
        self.note = f"({'/'.join(names)}) of worker {place}"
        proxies = self.testbed.proxies[place - 1]
        with ExitStack() as healing:
            faults = [healing.enter_context(getattr(proxy, how)(*names, nth=nth)) for proxy in proxies]
            if names == ("connect",):
                for proxy in proxies:
                    proxy.cut()
            for _ in range(40):
                if any(fault.injected.wait(0.02) for fault in faults) or self.over.wait(0.05):
                    break
        return any(fault.injected.is_set() for fault in faults)


class Processes(Track):
    """The faults of worker processes, and of their sessions."""

    gap = 8.0  # a process that is killed or stopped stays in the queues for as long as its session lives

    @property
    def kinds(self) -> dict[str, Callable[[], bool | None]]:
        """Killed, stopped, robbed."""
        return {
            "process killed": self._kill,
            STOPPED_LONG: lambda: self._stop(STOPPED_LONG, self.workers.session + self.random.choice([1.5, 2.5])),
            STOPPED_SHORT: lambda: self._stop(STOPPED_SHORT, self.random.choice([0.3, 1.0, 2.0])),
            EXPIRED: self._expire,
        }

    def _place(self) -> int:
        return self.random.choice(self.workers.places)

    def _kill(self) -> None:
        place = self._place()
        self.stay_inside(1, place)
        self.faults.append(self.workers.kill(place))

    def _stop(self, name: str, seconds: float) -> None:
        place = self._place()
        # Longer than it is stopped: so it believes that it holds when it goes on.
        self.stay_inside(seconds + 0.5, place)
        at = clock()
        self.workers.stop(place)
        try:
            self.wait(seconds)
        finally:
            self.workers.go_on(place)
            self.faults.append(Fault(name, at, clock(), self.workers.name(place)))

    def _expire(self) -> bool:
        place, client = self._place(), self.random.choice([0, 0, 1])
        self.stay_inside(self.workers.session, place)
        session = self.workers.known_session(place, client)
        if session is None:
            return False  # it has just been started
        at = clock()
        try:
            with self.testbed.service.client(client_id=session, timeout=self.workers.session):
                pass
        except KazooTimeoutError:
            return False  # no server was in reach
        finally:
            self.faults.append(Fault(EXPIRED, at, clock(), self.workers.name(place), client))
        return True


class Servers(Track):
    """The faults of servers, one at a time."""

    gap = 3.0  # not less: each new leader gives all sessions their whole time again, and they are to expire too
    staying = 0.5

    @property
    def kinds(self) -> dict[str, Callable[[], bool | None]]:
        """Killed, frozen, restarted, cut off, isolated, deaf, and touches that come late."""
        return {
            "follower killed": lambda: self._kill(self.random.choice(self.testbed.others())),
            "leader killed": lambda: self._kill(self.testbed.leader()),
            "follower frozen": self._freeze_follower,
            "leader frozen": self._freeze_leader,
            "rolling restart": self._restart_all,
            "follower cut off": self._cut_off,
            "follower deaf": self._deafen,
            "leader isolated": self._isolate,
            "touches late": self._delay,
        }

    def run(self) -> None:
        """Strike and heal; the last that is healed is waited for."""
        super().run()
        self.testbed.settle()

    def _two_stay(self, seconds: float) -> None:
        self.stay_inside(seconds, *self.random.sample(self.workers.places, 2))

    def _kill(self, victim: Server) -> None:
        self._two_stay(3)
        victim.kill()
        try:
            self.wait(self.random.choice([0.1, 1.0]))
        finally:
            victim.start()
        self.testbed.settle()

    def _freeze_follower(self) -> None:
        victim = self.random.choice(self.testbed.others())
        seconds = self.random.choice([1.0, 3.0])
        self._two_stay(seconds + 1)
        victim.freeze()
        try:
            self.wait(seconds)
        finally:
            victim.thaw()
        self.testbed.settle()

    def _freeze_leader(self) -> None:
        victim = self.testbed.leader()
        seconds = self.random.choice([1.0, 2.0, 3.0, 8.0])  # too short for another to be elected, or not
        self._two_stay(seconds)
        victim.freeze()
        try:
            self.wait(seconds)
        finally:
            victim.thaw()
        self.testbed.settle()

    def _restart_all(self) -> None:
        for server in self.testbed.servers:
            server.restart()
            self.testbed.settle()

    def _cut_off(self) -> None:
        victim = self.random.choice(self.testbed.others())
        self._sever(lambda: self.testbed.links.isolate(self.testbed.number(victim)))

    def _deafen(self) -> None:
        """One follower hears nobody, or nobody hears it."""
        leader, victim = self.testbed.leader(), self.random.choice(self.testbed.others())
        pair = (self.testbed.number(leader), self.testbed.number(victim))
        if self.random.random() < 0.5:
            pair = pair[::-1]
        self._sever(lambda: self.testbed.links.silence(*pair))

    def _isolate(self) -> None:
        """The leader loses its followers, which start anew or find it silent, and elect another."""
        leader, followers = self.testbed.leader(), self.testbed.others()
        restart = self.random.random() < 0.7

        def isolate() -> None:
            self.testbed.links.isolate(self.testbed.number(leader))
            for server in followers if restart else ():
                server.kill()
            for server in followers if restart else ():
                server.start(wait=False)

        self._sever(isolate, 2.0)

    def _sever(self, how: Callable[[], None], more: float = 0.0) -> None:
        """Do something to the links for longer than sessions live."""
        self.workers.stay(self.workers.session + 2.5 + more)
        self.wait(MOMENT)
        try:
            how()
            self.wait(self.workers.session + 2.5 + more)
        finally:
            self.testbed.links.heal()
        self.testbed.settle()

    def _delay(self) -> None:
        """The messages between the leader and its followers are slow, with changes of the delay."""
        leader = self.testbed.number(self.testbed.leader())
        others = [self.testbed.number(server) for server in self.testbed.others()]
        self._two_stay(4)
        try:
            for _ in range(8):
                for other in others:
                    for pair in ((leader, other), (other, leader)):
                        self.testbed.links.delay(*pair, self.random.uniform(0.03, 0.15))
                self.wait(0.5)
        finally:
            self.testbed.links.heal()
