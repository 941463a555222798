"""SASL: only a refusal of the credentials ends a client, and it is told as one.

The mechanism is a stand-in: each server answers a token, also one that does not offer SASL.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.protocol import connection as kazoo_connection

import zkconcurrent
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import RefusedError
from zkconcurrent._command.outcome import CommandError, Exit
from zkconcurrent._command.server import connected
from zkconcurrent.testing import Server
from zkconcurrent.tree import inspect

URL = "zk://user:password@{}/sasl?sasl=DIGEST-MD5&timeout=6"


class Mechanism:
    """A stand-in for pure-sasl's client.

    Attributes:
        rounds: how many tokens it sends before it is satisfied.
    """

    rounds = 2.0

    def __init__(self, **_options: object) -> None:
        self._sent = 0

    @property
    def complete(self) -> bool:
        """Whether it is satisfied."""
        return self._sent > self.rounds

    def process(self, **_challenge: object) -> bytes:
        """Return the next token, or none at the end."""
        self._sent += 1
        return b"" if self.complete else b"token"

    def dispose(self) -> None:
        """Forget the password."""


@pytest.fixture(autouse=True)
def mechanism(monkeypatch: pytest.MonkeyPatch) -> type[Mechanism]:
    """Have kazoo use the mechanism."""
    errors: dict[str, Any] = {"SASLError": ValueError, "SASLProtocolException": ValueError}
    puresasl = SimpleNamespace(client=SimpleNamespace(SASLClient=Mechanism), **errors)
    monkeypatch.setattr(kazoo_connection, "puresasl", puresasl, raising=False)
    monkeypatch.setattr(kazoo_connection, "PURESASL_AVAILABLE", True)
    monkeypatch.setattr("zkconcurrent._client.connect.find_spec", lambda _: True)
    return Mechanism


@pytest.mark.fault(198)
def test_a_connection_that_is_lost_while_it_authenticates(proxy: Proxy) -> None:
    """After a reconnect the client goes on, and still holds."""
    with zkconcurrent.connect(URL.format(proxy.hosts), acl="open") as client:
        lock = zkconcurrent.Lock(client, "/lock")
        with lock:
            session = client.client_id
            with proxy.lose_request("sasl") as lost:
                proxy.cut()
                lost.wait()
            eventually(lambda: client.connected)
            assert client.client_id == session
            assert not lock.lost.is_set()


@pytest.mark.fault(199)
def test_a_server_that_does_not_offer_it(
    zookeeper: Server, mechanism: type[Mechanism], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is told at once, and does not send tokens until its session ends."""
    monkeypatch.setattr(mechanism, "rounds", float("inf"))
    with pytest.raises(RefusedError, match="credentials were not accepted"):
        zkconcurrent.connect(URL.format(zookeeper.hosts), start_timeout=60)


@pytest.mark.fault(199)
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_that_demands_it_and_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is that of a refusal, not of a server that gives no answer; kazoo's thread ends in order.

    The commands that look say so, too.
    """
    # They are silent where kazoo logs.
    monkeypatch.setattr(logging.getLogger("kazoo"), "propagate", True)
    jaas = tmp_path / "jaas.conf"
    jaas.write_text('Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_user="password"; };\n')
    properties = {
        "java.security.auth.login.config": jaas,
        "zookeeper.authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "zookeeper.sessionRequireClientSASLAuth": "true",
    }
    with Server(properties=properties) as server:
        with pytest.raises(RefusedError, match="credentials were not accepted"):
            zkconcurrent.connect(URL.format(server.hosts), start_timeout=20)
        found = Namespace(do="ls", url=f"{URL.format(server.hosts)}&start_timeout=20", url_file=None)
        with pytest.raises(CommandError, match="refuses the credentials") as refused, connected(found) as client:
            inspect(client)
    assert refused.value.code == Exit.REFUSED
