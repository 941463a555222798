"""Random histories of one queue, as one waiter sees it from a server that lags: see `_protocol/way_to_grant.py`.

Others join, leave in any order, and write their data; detached locks put nodes in the place of their own; writers
downgrade; operators delete nodes; the empty queue is removed, and its numbers begin anew; the waiter's connection is
lost, and the next server may lag, too. The waiter lists, reads and waits as `lock.acquire` does.

A grant is judged by the log: at one moment between the listing and the change that the grant rests on, the waiter's
node was there with nobody in front; nobody has got in front of it since.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import NamedTuple

from tests.simulation.world.world import Violation
from zkconcurrent._protocol.blocking_rules import LATCH, MUTEX, READ, WRITE, Rule, blocker
from zkconcurrent._protocol.way_to_grant import Way

MINE = "_c_00000000-0000-0000-0000-000000000001-"
SESSION = 7
STEPS = 150


class Node(NamedTuple):
    """A contender: its session, 0 if it is persistent, and whether a detached lock made it."""

    session: int
    detached: bool = False


class Message(NamedTuple):
    """What a server sends: the reply to a read, or an event. `state` is the server's then: the number of a change."""

    what: str
    name: str
    value: object
    state: int


class Connection:
    """One connection to one server.

    Attributes:
        applied: how much of the log the server has applied.
        watched: the names with a watch.
        requests: the reads under way: the names, None for a listing; and whether they are the waiter's.
        messages: the replies and events under way.
    """

    def __init__(self, applied: int) -> None:
        self.applied = applied
        self.watched: set[str] = set()
        self.requests: deque[tuple[str | None, bool]] = deque()
        self.messages: deque[Message] = deque()


class History:
    """One history.

    Attributes:
        states: the nodes by name, after each change; a name that was written last is in `written`, by the change.
        happened: how often each thing did.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.rule: Rule = self.random.choice([MUTEX, MUTEX, LATCH, READ, READ, WRITE, WRITE])
        self.states: list[dict[str, Node]] = [{}]
        self.written: dict[int, str] = {}
        self.numbers = 0
        self.next_id = 1
        self.happened: Counter[str] = Counter()
        self.me: str | None = None
        self.way: Way | None = None
        self.ahead = ""
        # The reads of the way that are yet to be sent.
        self.unsent: list[str] = []
        # What the client knows: the last state of which a reply has told; whether it must look; whether it waits.
        self.seen = 0
        self.woken = self.listing = self.granted = self.over = False
        self.listed = 0
        # The state on which the grant rests.
        self.rests_on = 0
        for _ in range(self.random.randrange(3)):
            self.join()
        self.connection = Connection(self.random.randrange(len(self.states)))

    # -- the log -------------------------------------------------------------------------------------------------

    @property
    def now(self) -> dict[str, Node]:
        """The nodes."""
        return self.states[-1]

    def change(self, what: str, *gone: str, new: dict[str, Node] | None = None, written: str | None = None) -> None:
        """Apply one change."""
        self.happened[what] += 1
        after = {name: node for name, node in self.now.items() if name not in gone}
        after.update(new or {})
        if written is not None:
            self.written[len(self.states)] = written
        self.states.append(after)

    def name(self, nibble: str, role: str, number: int) -> str:
        """Return a new name."""
        self.next_id += 1
        return f"_c_00000000-0000-0000-0000-{nibble}{self.next_id:011x}-{role}{number:010d}"

    def join(self) -> None:
        """Have another contender come; an empty queue may have been removed before, with its numbers."""
        if not self.now and self.random.random() < 0.5:
            self.numbers = 0
            self.happened["reaped"] += 1
        role = self.random.choice(self.rule.roles)
        kind = self.random.choice(["ours", "Curator's", "detached"] if role == "lock-" else ["ours", "Curator's"])
        nibble = {"ours": "08", "detached": "4c", "Curator's": "0123456789abcdef"}[kind]
        name = self.name(self.random.choice(nibble), role, self.numbers)
        self.numbers += 1
        self.change("joins", new={name: Node(self.random.randrange(10, 99), kind == "detached")})

    def others(self) -> list[str]:
        """Return the names of the others, in the order of the queue."""
        return sorted((name for name in self.now if name != self.me), key=self.rule.key)

    def other_does(self) -> None:
        """Have something happen that the waiter does not do."""
        random, others = self.random, self.others()
        act = random.random()
        # The first of the queue acts most: its work is done sooner than that of those behind it.
        name = None if not others else others[0] if random.random() < 0.6 else random.choice(others)
        if name is None or act < 0.25:
            self.join()
        elif act < 0.55:
            self.change("leaves", name)
        elif act < 0.65:
            self.change("publishes", written=name)
        elif act < 0.93:
            node, number = self.now[name], int(self.rule.key(name))
            if node.detached:
                self.change("swaps", name, new={self.name("4", "lock-", number): Node(0, True)})
            elif "__WRIT__" in name:
                self.change("downgrades", new={self.name("0", "__READ__", number): node})
        elif self.me in self.now and act < 0.98:
            self.change("deletes the waiter's node", self.me)
        elif act > 0.99:
            for each in random.sample([*self.now], len(self.now)):
                self.change("purges", each)

    # -- the server ----------------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Have the waiter's server apply one change, and send the events."""
        at = self.connection
        if at.applied + 1 >= len(self.states):
            return
        before, at.applied = self.states[at.applied], at.applied + 1
        after = self.states[at.applied]
        for name in [*at.watched]:
            deleted = name in before and name not in after
            if deleted or self.written.get(at.applied) == name:
                at.watched.discard(name)
                at.messages.append(Message("event", name, deleted, at.applied))

    def serve(self) -> None:
        """Have the server reply to the next read."""
        at = self.connection
        if at.requests:
            name, ours = at.requests.popleft()
            state = self.states[at.applied]
            if name is None:
                names = self.random.sample([*state], len(state))
                at.messages.append(Message("listing", "", names, at.applied))
            else:
                if name in state:
                    at.watched.add(name)
                at.messages.append(Message("reply" if ours else "other", name, state.get(name), at.applied))

    # -- the waiter ----------------------------------------------------------------------------------------------

    def queue(self) -> None:
        """Have the waiter's node created: its server has applied that before it says so."""
        if not self.now and self.random.random() < 0.5:
            self.numbers = 0
        self.me = f"{MINE}{self.rule.role}{self.numbers:010d}"
        self.numbers += 1
        self.change("queues", new={self.me: Node(SESSION)})
        while self.connection.applied + 1 < len(self.states):
            self.apply()
        self.seen = self.connection.applied
        self.look()

    def look(self) -> None:
        """List the queue."""
        self.happened["looks"] += 1
        self.way, self.woken, self.listing = None, False, True
        self.unsent.clear()
        self.connection.requests.append((None, True))

    def send(self) -> None:
        """Send the next of the waiter's reads; or another thread of the client reads the same node, with a watch."""
        if self.unsent:
            self.connection.requests.append((self.unsent.pop(0), True))
        elif self.ahead and self.random.random() < 0.4:
            self.connection.requests.append((self.ahead, False))

    def take(self) -> None:
        """Take the next reply or event: what kazoo's connection thread does."""
        at = self.connection
        if not at.messages:
            return
        message = at.messages.popleft()
        if message.what == "listing":
            self.seen = max(self.seen, message.state)
            self.take_listing(message)
            return
        way, name, value = self.way, message.name, message.value
        own = name == self.me
        if message.what == "event":
            if way is not None and own:
                way.change_own()
            elif way is not None and name == self.ahead:
                way.change_ahead(at, deleted=bool(value))
            self.woken = self.woken or own or name == self.ahead
        else:
            self.seen = max(self.seen, message.state)
            node = value if isinstance(value, Node) else None
            if message.what == "reply":
                if way is not None and own:
                    way.read_own(at, node and node.session)
                elif way is not None:
                    way.read_ahead(at, gone=node is None)
                self.woken = self.woken or (node is None and not own)
        if way is not None and way.is_clear and not self.rests_on:
            self.rests_on = message.state

    def take_listing(self, message: Message) -> None:
        """Decide by a listing."""
        names = message.value
        assert isinstance(names, list)
        self.listing, self.listed, self.rests_on = False, message.state, 0
        self.unsent.clear()
        if self.me not in names:
            self.over = True
            return
        assert self.me is not None
        ahead = blocker(self.me, names, self.rule)
        if ahead is None:
            self.happened["granted by a look"] += 1
            self.rests_on = message.state
            self.grant()
            return
        self.ahead = ahead
        self.way = Way.of(self.me, names, self.rule, SESSION, self.connection)
        self.unsent = [self.ahead] if self.way is None else [self.me, self.ahead]

    def act(self) -> None:
        """Have the waiter's thread act on what it was told, once it has sent its reads."""
        if not self.woken or self.listing or self.unsent:
            return
        if self.way is not None and self.way.is_clear:
            self.happened["granted without a look"] += 1
            self.grant()
        else:
            self.look()

    def grant(self) -> None:
        """Note the grant."""
        self.granted = self.over = True

    def move(self) -> None:
        """Lose the connection; go to another server, which lags, but knows what replies have told."""
        self.happened["moves"] += 1
        self.connection = Connection(self.random.randrange(self.seen, len(self.states)))
        if self.listing:
            self.look()
        else:
            self.woken = True

    # -- the judge -----------------------------------------------------------------------------------------------

    def is_first(self, state: int) -> bool:
        """Return whether the waiter's node is there, with none in front that excludes it."""
        assert self.me is not None
        mine, reads = int(self.rule.key(self.me)), "__READ__" in self.me
        return self.me in self.states[state] and not any(
            int(self.rule.key(name)) < mine and not (reads and "__READ__" in name) for name in self.states[state]
        )

    def judge(self) -> None:
        """Judge the grant by the log.

        Raises:
            Violation: the waiter held, and was not first.
        """
        first = next((n for n in range(self.listed, self.rests_on + 1) if self.is_first(n)), None)
        if first is None:
            raise Violation(f"{self.me} holds by state {self.rests_on}, and was not first")
        for n in range(first, len(self.states)):
            if self.me in self.states[n] and not self.is_first(n):
                raise Violation(f"{self.me} holds, and {self.others()} got in front of it")

    def run(self) -> None:
        """Run it: a while at random, then until the waiter has its turn."""
        random = self.random
        self.queue()
        for _ in range(STEPS):
            if self.over:
                break
            step = random.random()
            if step < 0.16:
                self.other_does()
            elif step < 0.19:
                self.move()
            else:
                random.choice([self.send, self.apply, self.serve, self.take, self.act])()
        for _ in range(3):
            if self.granted:
                # Contenders that come, or swap, afterwards must not get in front either.
                self.other_does()
        if self.granted:
            self.judge()
        while not self.over:
            for name in self.others():
                self.change("leaves", name)
            for _ in range(4 * (len(self.states) + 4)):
                for each in (self.send, self.apply, self.serve, self.take, self.act):
                    if not self.over:
                        each()
            if not self.over:
                raise Violation(f"{self.me} waits for ever")
            if self.granted:
                self.judge()


def history(seed: int) -> History:
    """Run the history of a seed; return it."""
    it = History(seed)
    it.run()
    return it
