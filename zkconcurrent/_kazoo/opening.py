"""The opening of a connection: which server is tried, when its handshake began, and whether it takes the credentials.

The methods here replace kazoo's own; kazoo's connection thread calls them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KeeperState

from .._runtime.clock import boot_clock, monotonic
from .addresses import OF_TLS, SHARES, WHY_HUNG_UP, WHY_NO_TLS, Addresses
from .private_parts import PrivateParts, Replaced
from .sockets import FairHandler, is_open, receive

CONNECTED_STATES = (KeeperState.CONNECTED, KeeperState.CONNECTED_RO)
# The most replies in one handshake. Each mechanism takes fewer than ten.
MOST_SASL_REPLIES = 100
# In bytes: a reply of a handshake is far shorter. Something other than a ZooKeeper may send any number as the length.
_LONGEST_REPLY = 1 << 20
# The length of each reply, which kazoo reads first, has this many bytes.
LENGTH_SIZE = 4
_NO_ZOOKEEPER = "no reply of a ZooKeeper"
# In seconds: a client that is stopped gives up a handshake within this time.
_TURN = 0.1


class Handshake(NamedTuple):
    """The handshake of a connection: when its request was sent, and the session timeout granted, in seconds."""

    sent: float
    timeout: float


class Opening:
    """How the connections of one client are opened.

    Attributes:
        clock: the clock of leases, and of the handshakes that begin them.
        handshake: the last handshake; None if it was over before this object was made.
        old_timeout: the session timeout, in seconds, of a connection that is older than this object; None while
            unknown.
        on_old_timeout: called on kazoo's thread once `old_timeout` is known.
        addresses: where the servers are, and what came of the last attempts to connect.
        refusal: why the servers do not accept the client's credentials; kazoo then stops for good.
        sasl_replies: how many replies the present SASL handshake has had; None outside of a SASL handshake.
        until: when the present request of a handshake must be answered, by the monotonic clock; None between requests.
    """

    def __init__(self, parts: PrivateParts) -> None:
        self._parts = parts
        self._kazoo = Replaced()
        # Whether the servers have ever accepted the client's credentials for SASL.
        self._proven = False
        self.clock: Callable[[], float] = boot_clock
        self.handshake: Handshake | None = None
        self.old_timeout: float | None = None
        self.on_old_timeout: Callable[[], object] = lambda: None
        self.addresses = Addresses(parts.client)
        self.refusal: Exception | None = None
        self.sasl_replies: int | None = None
        self.until: float | None = None

    def install(self) -> None:
        """Replace kazoo's methods. A second call changes nothing."""
        connection = self._parts.connection
        if type(connection.handler) is not FairHandler:
            connection.handler = FairHandler(self._parts.client, self.addresses)
        self._kazoo.replace(
            connection,
            _invoke=self._invoke,
            _authenticate_with_sasl=self._authenticate_with_sasl,
            _connect=self._connect,
            _connect_attempt=self._connect_attempt,
            _expand_client_hosts=self._expand_client_hosts,
            _read=self._read,
        )

    @property
    def negotiated(self) -> float | None:
        """The session timeout of the present connection, or of the last one, in seconds; None if unknown."""
        return self.old_timeout if self.handshake is None else self.handshake.timeout

    @property
    def timeout_unknown(self) -> bool:
        """Whether the session timeout of a connection that is older than this object is still unknown."""
        return self.negotiated is None and self._parts.client.client_state in CONNECTED_STATES

    def note_old_timeout(self, timeout: float) -> None:
        """Take the session timeout of a connection older than this object; on kazoo's thread, after the handshake."""
        if self.negotiated is None:
            self.old_timeout = timeout
            self.on_old_timeout()

    def _expand_client_hosts(self) -> object:
        """Return the addresses that kazoo goes through."""
        return self.addresses.expand()

    def _connect_attempt(self, host: str, hostip: str, port: int, retry: object) -> object:
        """Connect to a server, and serve that connection until it ends; go on with our addresses, in place of kazoo's.

        If the client was started before this object was made, kazoo has begun a list of its own.
        """
        if not self.addresses.walked:
            return self._parts.walk(retry)
        try:
            return self._kazoo.connect_attempt(host, hostip, port, retry)
        except OSError as error:
            # Other code in the process has closed the descriptor; kazoo's own close fails, and would end its thread.
            # The thread must end if the pipe that wakes it is closed, too.
            if error.errno != errno.EBADF or not is_open(self._parts.read_sock):
                raise
            return None

    def _connect(self, host: str, hostip: str, port: int) -> object:
        """Connect to a server; any error is a failed attempt. An error unknown to kazoo would end its thread."""
        try:
            return self._kazoo.connect(host, hostip, port)
        except (kazoo_errors.KazooException, self._parts.connection.handler.timeout_exception):
            raise
        except Exception as error:
            raise kazoo_errors.ConnectionDropped(f"{type(error).__name__}: {error}") from error

    def _invoke(self, timeout: float, request: object, xid: int | None = None) -> object:
        """Send a request of the handshake and return its reply; note when the connection was requested.

        If there is only one server, kazoo waits for its reply for a whole session timeout. But a server that is just
        starting may never reply to a connection, and the session may end meanwhile. The request that begins a new
        session gets more time. And if there are many servers, kazoo waits for each so briefly that a slow link may
        never be in time.
        """
        sent, session = self.clock(), self._parts.requested_timeout
        if type(request) is Connect:
            share = self.addresses.share(session)
            timeout = share if self._parts.session_id else max(timeout, share)
        else:
            timeout = session / SHARES
        try:
            with self._answered_within(timeout):
                result = self._kazoo.invoke(timeout, request, xid)
        except kazoo_errors.AuthFailedError as error:
            self.refusal = error
            raise
        except Exception as error:
            self.addresses.note_failed(error)
            dropped = isinstance(error, kazoo_errors.ConnectionDropped) and str(error) != _NO_ZOOKEEPER
            if type(request) is not Connect or not dropped:
                raise
            self.addresses.hung_up = True
            if not self.addresses.away_for_long():
                raise
            # kazoo logs this error. For a client that was connected earlier, nothing else reports it.
            why = WHY_NO_TLS if OF_TLS in str(error) else WHY_HUNG_UP
            raise kazoo_errors.ConnectionDropped(f"{error}; {why}") from None
        if type(request) is Connect:
            self.handshake = Handshake(sent, result[0].time_out / 1000.0)
            self.addresses.note_opened(self.handshake.timeout)
        return result

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Authenticate a connection, and tell a lost connection from a refusal.

        kazoo takes both for a refusal, and stops for good, since servers before 3.6 refuse by closing the connection.
        But credentials that were accepted before stay accepted when a server is restarted.
        """
        self.sasl_replies = 0
        timeout = max(timeout, self._parts.requested_timeout / SHARES)
        try:
            with self._answered_within(timeout):
                self._kazoo.authenticate_with_sasl(host, timeout)
        except kazoo_errors.AuthFailedError as error:
            lost = error.__cause__
            if self._proven and isinstance(lost, kazoo_errors.ConnectionDropped):
                raise lost from None
            self.refusal = error
            raise
        except (kazoo_errors.ConnectionDropped, kazoo_errors.SessionExpiredError):
            raise
        except kazoo_errors.KazooException as error:
            # For example SessionClosedRequireSaslError, which would end kazoo's thread.
            self.refusal = kazoo_errors.AuthFailedError(f"{type(error).__name__} {error}".strip())
            raise self.refusal from error
        finally:
            self.sasl_replies = None
        self._proven = True

    @contextmanager
    def _answered_within(self, timeout: float) -> Iterator[None]:
        self.until = monotonic() + timeout
        try:
            yield
        finally:
            self.until = None

    def _read(self, length: int, timeout: float) -> bytes:
        """Read `length` bytes of a handshake, until its time is up, or the client is stopped.

        kazoo restarts the timeout with each byte, and does not notice a stop meanwhile. So a host that sends a byte now
        and then would keep the client from all other servers, and the client's `stop()` from returning.

        Raises:
            ConnectionDropped: the connection broke, or the other end is not a ZooKeeper.
            Exception: the handler's timeout.
        """
        if self.until is None:
            # kazoo's thread reads a reply on a connection that is older than this object.
            return self._kazoo.read(length, timeout)  # type: ignore[no-any-return]
        handler, sock, got = self._parts.connection.handler, self._parts.socket, b""
        if self.sasl_replies is not None and length == LENGTH_SIZE:
            self._limit_sasl_replies()
        if not 0 <= length <= _LONGEST_REPLY:
            raise kazoo_errors.ConnectionDropped(_NO_ZOOKEEPER)
        while len(got) < length:
            left = self.until - monotonic()
            if left <= 0 or self._parts.stopped.is_set():
                raise handler.timeout_exception("socket time-out during read")
            # Data that TLS has decrypted already does not show at the socket.
            if not getattr(sock, "pending", int)() and not handler.select([sock], [], [], min(left, _TURN))[0]:
                continue
            got += receive(sock, length - len(got)) or b""
        return got

    def _limit_sasl_replies(self) -> None:
        """Count a reply of a SASL handshake.

        Raises:
            AuthFailedError: there were too many; kazoo would go on until the session ends.
        """
        self.sasl_replies = (self.sasl_replies or 0) + 1
        if self.sasl_replies > MOST_SASL_REPLIES:
            raise kazoo_errors.AuthFailedError("the server's replies are not those of SASL; it may not offer SASL")
