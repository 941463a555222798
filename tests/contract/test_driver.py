"""Promises of the blocking driver that no table of faults shows: an old connection, and an interrupt too early."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.bench import Simulated, perform
from zkconcurrent._protocol.operations import (
    ConnectionLost,
    CreateEphemeral,
    CreatePersistent,
    DetachTicket,
    Grant,
    Multi,
    NewTicket,
    ProveLease,
)
from zkconcurrent._protocol.ticket import State
from zkconcurrent._runtime import wait_loops

Steps = Generator[Any, Any, Any]


@pytest.mark.fault(84)
def test_a_hold_on_a_connection_of_any_age_stays(path: str) -> None:
    """Where nothing fails, no hold is lost, not even the first on a connection opened long before."""
    timeout, connections, bench = 4.0, 15, Simulated()

    def recipe() -> Steps:
        yield CreatePersistent(path, b"")
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
                session.registry.lease.note_opened(session.clock() - age, timeout)
            held.append((age, perform(session, path, recipe())))
        session.link.handler.sleep_func(2 * timeout)
        return [age for age, ticket in held if ticket is None or ticket.state is not State.HELD]

    assert bench.run(lost) == []
    bench.close()


@pytest.mark.fault(1)
def test_a_late_reply_to_a_multi(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """The node of a create that counts as lost is known once its reply comes after all."""
    bench = Simulated()

    def name() -> str | None:
        session = bench.session()

        def recipe() -> Steps:
            yield CreatePersistent(path, b"")
            ticket = yield NewTicket(path)
            wire = bench._process(session).connection.wire
            assert wire is not None
            wire.delay, session.longest_reply = 0.5, 0.1
            with pytest.raises(ConnectionLost):
                yield Multi(ticket, (CreateEphemeral(ticket, "lock-", b""),))
            return ticket

        ticket = perform(session, path, recipe())
        assert ticket is not None
        session.link.handler.sleep_func(2)
        return ticket.name

    assert bench.run(name)
    assert "failed" not in caplog.text
    bench.close()


@pytest.mark.fault(233)
def test_no_sleep_is_long() -> None:
    """CPython sees an interrupt that came just before a system call when that ends: long before a far deadline."""
    bounds: list[float] = []

    def steps() -> Steps:
        yield None
        yield 3600.0

    event: Any = SimpleNamespace(set=int, clear=int, wait=lambda bound: bounds.append(bound) or True)
    call: Any = SimpleNamespace(settled=True, owned_locks=(), why_end=None, begin=lambda _: None, end=int)
    wait_loops.wait(call, steps(), event)
    assert bounds == [wait_loops.LONGEST_SLEEP] * 2
