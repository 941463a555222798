"""One thread's calls of all but locks and queues, each of them written down."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from tests.soak.callers.caller import Caller
from tests.soak.checks.data import GONE
from tests.soak.events import What
from zkconcurrent import AtomicLong, Dict, DoubleBarrier, Group, LockLostError, OutcomeUnknownError, SharedValue
from zkconcurrent._threads.group import Membership

Answer = tuple[str, str] | None  # the note and the item of what is written down; None of a call that changed nothing
FIRST = [0, ""]  # a value: how many came before it, and whose change it is


class DataCaller(Caller):
    """One thread at one path."""

    def ask(self, role: str, ask: Callable[[], Answer], note: str = "", item: str = "", **details: Any) -> bool:
        """Make a call; return whether there was an answer."""
        self._say(What.ASKS, role, item, note=note, **details)
        try:
            answer = ask()
        except LockLostError:
            self._say(What.LOST, role, item)
        except (OutcomeUnknownError, *self.refusals):
            self._say(What.UNKNOWN, role, item)
        except Exception as error:
            self._say(What.FAILED, role, item, note=f"{type(error).__name__}: {error}")
        else:
            if answer is not None:
                self._say(What.ANSWERED, role, answer[1], note=answer[0])
                return True
            self._say(What.REFUSED, role, item)
        return False

    def name(self) -> str:
        """Return a name that nothing else has."""
        return f"{self._log.process}-{self._thread}-{next(self._numbers)}"


# -- values ------------------------------------------------------------------------------------------------------------


class Register(Protocol):
    """A value that only goes on: its state, and the author of the change that has made it."""

    most: int  # by which a change goes on
    cached: Callable[[], tuple[int, str]] | None

    def read(self) -> tuple[int, str]:
        """Ask for it."""

    def change(self, random: Random, size: int, name: str) -> int | None:
        """Change it; return what it is then, or None if another change came between."""


class Number:
    """An `AtomicLong`."""

    most, cached = 5, None

    def __init__(self, of: AtomicLong) -> None:
        self.of = of

    def read(self) -> tuple[int, str]:
        """Ask for it."""
        return self.of.get(), ""

    def change(self, random: Random, size: int, name: str) -> int | None:  # noqa: ARG002
        """Add to it in one of four ways."""
        way = random.randrange(4)
        if way == 0:
            return self.of.add(size)
        if way == 1:
            return self.of.get_and_add(size) + size
        if way == 2:
            return self.of.update(lambda old: old + size)
        old = self.of.get()
        return old + size if self.of.compare_and_set(old, old + size) else None


class Value:
    """A `SharedValue`."""

    most, cached = 1, None

    def __init__(self, of: SharedValue[Any]) -> None:
        self.of = of

    def read(self) -> tuple[int, str]:
        """Ask for it."""
        number, name = self.of.get().value
        return number, name

    def change(self, random: Random, size: int, name: str) -> int | None:
        """Replace it in one of two ways."""
        if random.random() < 0.5:
            return int(self.of.update(lambda old: [old[0] + size, name])[0])
        old = self.of.get()
        new = old.value[0] + size
        return new if self.of.compare_and_set(old, [new, name]) else None


class Key:
    """One key of a `Dict`."""

    most = 1

    def __init__(self, of: Dict[Any], key: str) -> None:
        self.of, self._key = of, key

    def read(self) -> tuple[int, str]:
        """Ask for it."""
        number, name = self.of.setdefault(self._key, FIRST)
        return number, name

    def cached(self) -> tuple[int, str]:
        """Look at the copy."""
        number, name = self.of.get(self._key, [-1, ""])
        return number, name

    def change(self, random: Random, size: int, name: str) -> int | None:
        """Replace it, by what the copy or the server has."""
        old, maker = self.cached() if random.random() < 0.5 else self.read()
        return old + size if self.of.replace(self._key, [old, maker], [old + size, name]) else None


class LineCaller(DataCaller):
    """One thread at values that only go on."""

    _locks: dict[str, Register]

    def change(self, role: str) -> None:
        """Change one."""
        register, name = self._locks[role], self.name()
        size = self.random.randint(1, register.most)

        def change() -> Answer:
            value = register.change(self.random, size, name)
            return None if value is None else (str(value), name)

        self.ask(role, change, str(size), name)

    def read(self, role: str, cached: bool = False) -> None:
        """Read one."""
        register = self._locks[role]

        def read() -> Answer:
            value, name = register.cached() if cached and register.cached is not None else register.read()
            return str(value), name

        self.ask(role, read, "cached" if cached and register.cached is not None else "read")

    def trade(self) -> None:
        """Change or read one."""
        # The interrupt may have struck the function of an `update`.
        self.refusals = (RuntimeError,)
        role = self.random.choice(list(self._locks))
        self.random.choice([self.change, self.read])(role)


def visit_line(caller: LineCaller, plain: bool = False) -> None:
    """Change or read."""
    for role in caller._locks if plain else [caller.random.choice(list(caller._locks))]:
        if plain or caller.random.random() < 0.5:
            caller.change(role)
        caller.read(role, caller.random.random() < 0.5)
        if plain:
            caller.read(role)


# -- double barriers ---------------------------------------------------------------------------------------------------


class GateCaller(DataCaller):
    """One thread at a double barrier."""

    def enter(self, timeout: float) -> bool:
        """Enter, if others do so in time."""
        gate: DoubleBarrier = self._locks["gate"]
        return self.ask("enter", lambda: ("", "") if gate.enter(timeout) else None, limit=self._patience(timeout))

    def leave(self, timeout: float) -> bool:
        """Leave, and wait for the others."""
        gate: DoubleBarrier = self._locks["gate"]
        return self.ask("leave", lambda: ("", "") if gate.leave(timeout) else None, limit=self._patience(timeout))

    def _patience(self, timeout: float) -> float:
        """Return the time for a call: at a dead link, the first question and the last one take a third of T each."""
        return timeout + 2 * self._session / 3


def visit_gate(caller: GateCaller, plain: bool = False) -> None:
    """Enter, stay, and leave."""
    if caller.enter(0.2 if plain else caller.random.choice([0.05, 0.5, 2.0, 2.0])):
        caller.work(0 if plain else caller.some_time())
        caller.leave(1.0 if plain else caller.random.choice([0, 1.0, 3.0, 3.0]))


# -- groups ------------------------------------------------------------------------------------------------------------


class GroupCaller(DataCaller):
    """One thread at a group."""

    def join(self) -> Membership | None:
        """Become a member."""
        group, name, joined = self._locks["group"], self.name(), list[Membership]()

        def join() -> Answer:
            joined.append(group.join(name.encode(), name))
            return "", name

        self.ask("join", join, item=name)
        return joined[0] if joined else None

    def look(self) -> None:
        """See who is a member."""
        group: Group = self._locks["group"]

        def look() -> Answer:
            members = group.members()
            assert all(name.encode() == data for name, data in members.items()), f"other data: {members}"
            return " ".join(members), ""

        self.ask("members", look)

    def leave(self, membership: Membership) -> None:
        """Leave."""

        def leave() -> Answer:
            membership.leave()
            # It may go later, if the service is out of reach.
            return GONE if membership._over and not membership.lost.is_set() else "", membership.id

        self.ask("leave", leave, item=membership.id)


def visit_group(caller: GroupCaller, plain: bool = False) -> None:
    """Look, as a member or not."""
    if not plain and caller.random.random() < 0.3:
        caller.look()
    elif (membership := caller.join()) is not None:
        caller.look()
        caller.work(0 if plain else caller.some_time())
        caller.look()
        caller.leave(membership)
        caller.look()
