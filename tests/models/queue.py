"""The queue: each item is taken once, in order; a claim that fails, or whose session ends, gives its item back."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import NamedTuple

from tests.models.history import QUEUES, Call, Model, Outcome
from zkconcurrent import LockLostError


class Item(NamedTuple):
    """An item: the actor that has claimed it, with its party, and whether it was given back before."""

    name: int
    owner: str = ""
    party: str = ""
    returned: bool = False


class Items(NamedTuple):
    """The state of a queue: its items in their order, and the calls that wait for one."""

    items: tuple[Item, ...] = ()
    line: tuple[Call, ...] = ()

    @property
    def free(self) -> list[Item]:
        """The items that nobody has claimed."""
        return [each for each in self.items if not each.owner]

    def with_(self, old: Item, new: Item | None) -> Items:
        """Return the state with an item that has changed, or is gone."""
        at = self.items.index(old)
        return self._replace(items=(*self.items[:at], *([] if new is None else [new]), *self.items[at + 1 :]))


class Queue(Model):
    """First in, first out. Consumers that found nothing are served in their order.

    A client that keeps a listing sees an item which was given back only in the next one, so others may pass that item.
    """

    initial = Items()
    refusals = (queue.Empty,)
    events = ("expired", "gone")

    def apply(self, state: Items, call: Call) -> Iterator[tuple[Outcome, Items]]:
        """Put (an item), get, claim, ack, fail, or what befalls a party."""
        mine = next((each for each in state.items if each.owner == call.actor), None)
        if call.what == "put":
            yield None, state._replace(items=(*state.items, Item(call.args[0])))
        elif call.what in ("get", "claim"):
            yield from self._take(state, call)
        elif call.what == "ack":
            yield (LockLostError, state) if mine is None else (None, state.with_(mine, None))
        elif call.what == "fail":
            yield None, state if mine is None else state.with_(mine, Item(mine.name, returned=True))
        else:
            items = tuple(Item(each.name, returned=True) if each.party == call.party else each for each in state.items)
            yield None, Items(items, tuple(each for each in state.line if each.party != call.party))

    def _take(self, state: Items, call: Call) -> Iterator[tuple[Outcome, Items]]:
        left = state._replace(line=tuple(each for each in state.line if each is not call))
        if state.free and (call not in state.line or state.line[0] is call):
            first = [each for each in state.free if not each.returned][:1]
            for item in (*first, *(each for each in state.free if each.returned)):
                claimed = item._replace(owner=call.actor, party=call.party) if call.what == "claim" else None
                yield item.name, left.with_(item, claimed)
            return
        if call.timeout is not None:
            yield queue.Empty, left
        elif call not in state.line:
            yield QUEUES, state._replace(line=(*state.line, call))
