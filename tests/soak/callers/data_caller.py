"""One thread's calls of numbers, values and maps, each written down as the model of the path knows it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tests.soak.callers.caller import Caller
from tests.soak.events import What
from zkconcurrent import AtomicLong, Dict, LockLostError, OutcomeUnknownError, SharedValue, VersionedValue


class Act(NamedTuple):
    """A call: its name and arguments in the model, and how it is made."""

    what: str
    args: tuple[Any, ...]
    make: Callable[[], Any]


class DataCaller(Caller):
    """One thread at one path."""

    def ask(self, role: str, act: Act) -> Any:
        """Make a call; return its outcome, or None if that is unknown."""
        self._say(What.ASKS, role, note=json.dumps([act.what, *act.args]))
        try:
            outcome = act.make()
        except LockLostError:
            self._say(What.LOST, role)
        except OutcomeUnknownError:
            self._say(What.UNKNOWN, role)
        except Exception as error:
            self._say(What.FAILED, role, note=f"{type(error).__name__}: {error}")
        else:
            self._say(What.ANSWERED, role, note=json.dumps(outcome))
            return outcome
        return None

    def name(self) -> str:
        """Return a value that no other change has."""
        return f"{self._log.process}-{self._thread}-{next(self._numbers)}"


class Register(ABC):
    """A value that changes."""

    @abstractmethod
    def read(self, role: str) -> Act:
        """Ask for it."""

    @abstractmethod
    def change(self, caller: DataCaller, role: str) -> None:
        """Change it."""


class Number(Register):
    """An `AtomicLong`."""

    def __init__(self, of: AtomicLong) -> None:
        self.of = of

    def read(self, role: str) -> Act:  # noqa: ARG002
        """Get it."""
        return Act("get", (), self.of.get)

    def change(self, caller: DataCaller, role: str) -> None:
        """Add to it in one of three ways."""
        size = caller.random.randint(1, 5)
        ways: list[Callable[[], int]] = [
            lambda: self.of.add(size),
            lambda: self.of.get_and_add(size) + size,
            lambda: self.of.update(lambda old: old + size),
        ]
        caller.ask(role, Act("add", (size,), caller.random.choice(ways)))


class Value(Register):
    """A `SharedValue`, as a map with one key."""

    def __init__(self, of: SharedValue[str]) -> None:
        self.of = of

    def read(self, role: str) -> Act:
        """Get it."""
        return Act("setdefault", (role, ""), lambda: self.of.get().value)

    def change(self, caller: DataCaller, role: str) -> None:
        """Replace what is seen."""
        new, seen = caller.name(), list[VersionedValue[str]]()

        def look() -> str:
            seen.append(self.of.get())
            return seen[0].value

        if caller.ask(role, Act("setdefault", (role, ""), look)) is not None:
            change = partial(self.of.compare_and_set, seen[0], new)
            caller.ask(role, Act("replace", (role, seen[0].value, new), change))


class Key(Register):
    """One key of a `Dict`."""

    def __init__(self, of: Dict[str]) -> None:
        self.of = of

    def read(self, role: str) -> Act:
        """Ask the server for it."""
        return Act("setdefault", (role, ""), lambda: self.of.setdefault(role, ""))

    def change(self, caller: DataCaller, role: str) -> None:
        """Replace what is there."""
        new, seen = caller.name(), caller.ask(role, self.read(role))
        if seen is not None:
            caller.ask(role, Act("replace", (role, seen, new), lambda: self.of.replace(role, seen, new)))


def visit_data(caller: DataCaller, plain: bool = False) -> None:
    """Change or read."""
    registers: dict[str, Register] = caller._locks
    for role in registers if plain else [caller.random.choice(list(registers))]:
        if plain or caller.random.random() < 0.5:
            registers[role].change(caller, role)
        caller.ask(role, registers[role].read(role))
