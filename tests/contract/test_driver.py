"""Promises of the blocking driver that no table of faults shows: an old connection, and an interrupt too early."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.helpers.bench import Real, Simulated, perform
from zkconcurrent._protocol.operations import (
    Children,
    CreateEphemeral,
    DetachTicket,
    EnsureContainer,
    Grant,
    NewTicket,
    ProveLease,
    Wait,
    Watch,
)
from zkconcurrent._protocol.ticket import State
from zkconcurrent._runtime.waiting import LONGEST_SLEEP
from zkconcurrent.testing import Server

Steps = Generator[Any, Any, Any]


@pytest.mark.fault(84)
def test_a_hold_on_a_connection_of_any_age_stays(path: str) -> None:
    """Where nothing fails, no hold is lost, not even the first on a connection opened long before."""
    timeout, connections, bench = 4.0, 15, Simulated()

    def recipe() -> Steps:
        yield EnsureContainer(path)
        ticket = yield NewTicket(path)
        yield CreateEphemeral(ticket, "lock-", b"")
        yield DetachTicket(ticket)
        while not (yield Grant(ticket)):
            yield ProveLease(ticket)
        return ticket

    def lost() -> list[float]:
        held = []
        for n in range(connections):
            # Where the rest of the first lease is about as long as its renewal takes.
            age, session = (0.4 + 0.3 * n / connections) * timeout, bench.session(timeout=timeout)
            with session.lock:  # as if the library had not used it before
                session.registry.lease.opened(session.clock() - age, timeout)
            held.append((age, perform(session, path, recipe())))
        session.link.handler.sleep_func(2 * timeout)
        return [age for age, ticket in held if ticket is None or ticket.state is not State.HELD]

    assert bench.run(lost) == []
    bench.close()


@pytest.mark.fault(233)
def test_an_interrupt_on_the_way_into_a_wait(zookeeper: Server, path: str) -> None:
    """CPython sees it when the system call that waits ends: so that one ends, long before a far deadline."""
    bench = Real(zookeeper)
    session, bounds = bench.session(), list[float | None]()
    make = session.link.sleep_event

    class Late:
        """An event whose wait was just about to begin when it is interrupted; the bound is not sat out."""

        def __init__(self) -> None:
            self._event = make()
            self.set, self.clear = self._event.set, self._event.clear

        def wait(self, timeout: float | None = None) -> bool:
            bounds.append(timeout)
            if not interrupted:
                return bool(self._event.wait(timeout))
            raise KeyboardInterrupt

    def recipe() -> Steps:
        nonlocal interrupted
        yield EnsureContainer(path)
        me = yield NewTicket(path)
        yield CreateEphemeral(me, "lock-", b"")
        yield Watch(me, (Children(path, me),))
        interrupted = True
        yield Wait(me)

    session.link.sleep_event = Late  # type: ignore[method-assign]
    for deadline in (None, session.now() + 3600.0):
        interrupted = False
        with pytest.raises(KeyboardInterrupt):
            perform(session, path, recipe(), deadline)
    bench.close()
    assert all(bound is not None and bound <= LONGEST_SLEEP for bound in bounds)
