"""`connect`: a started kazoo client from one URL, closed at the end of its `with` block."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, NoReturn, TypeAlias

from .._arguments.certificates import check_files
from .._arguments.limits import check_positive, check_seconds
from .._engine.session import Session
from .._errors import ClientError
from .._kazoo.addresses import shown
from .._kazoo.failures import failure, kazoo_errors
from .._kazoo.link import FORKED, KazooClient, Link
from .._kazoo.requests import request_close
from .._kazoo.transport import MAX_REQUEST, Transport
from .._memory import process
from .._observe.long_waits import LONG
from .._protocol.operations import ConnectionLost, SessionExpired
from .._protocol.session_lease import MARGIN
from .._runtime import serving, this_process
from .._runtime.clock import monotonic
from .._runtime.interpreter import check_interpreter
from .._runtime.live_set import LiveSet
from .._runtime.process_exit import closers
from .._runtime.public import ErrorKind, Self, Traceback, public
from .acl import take_acl
from .secrets import RedactedLog, Secret, credentials, secret
from .url import Settings, check_lease, meant, parse

PATIENCE = 15.0  # seconds
# In seconds. An election can take several seconds, and a lease survives an outage of at least 0.42 of this time.
TIMEOUT = 20.0
_POLL = 0.05  # seconds
_OF_THIS_PROCESS = (
    "cannot pickle a client of memory:, nor what uses it: memory: is of this process alone; run "
    "`python -m zkconcurrent.testing --memory` in another terminal, and connect to the line that it prints"
)
_LOCAL = 'it is of a namespace("local"), which is of this process alone; several processes share one of connect()'
# In seconds. Only a debugger, or a stop of the whole process, can keep this client silent.
_LOCAL_TIMEOUT = 1_000_000.0
_CREDENTIALS = "its client has credentials, which a pickle would show"
# By default, kazoo doubles its pauses up to an hour: after an outage of 20 s a client may sleep for 20 s more.
RETRY = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}


# The arguments of `process_client`: a URL, and the options of `connect`, in order.
_Name: TypeAlias = tuple[str, tuple[tuple[str, Any], ...]]


@public
class Client(KazooClient):  # type: ignore[misc]
    """The started `kazoo.client.KazooClient` that `connect` returns; the end of its `with` block stops and closes it.

    The library also closes the client at the interpreter's exit, so that its holds are free at once. In a forked child
    the end of the block, `stop()` and `close()` do nothing, as the client belongs to the parent. A client is pickled by
    its URL: the process that unpickles it opens a client of its own when a primitive first uses it. Neither the
    client's repr nor its log shows a password.

    Attributes:
        dial: makes a connection to a service of this process, in place of TCP.
        directory_acl: the ACL of the nodes above a primitive's path, if it is not `default_acl`.
        tick: the servers' tick, in seconds, if known.
        survive: the outage that a hold must survive, in seconds; None if the library chooses.
        margin: by how much a lease is shorter than the session timeout, as a fraction of the timeout.
        max_request: the largest request, in bytes.
        log_waits_after: how long a wait for a lock or permit lasts before it is logged, in seconds; None for never.
    """

    def __init__(
        self,
        *,
        directory_acl: Sequence[Any] | None = None,
        tick: float | None = None,
        survive: float | None = None,
        margin: float = MARGIN,
        max_request: int = MAX_REQUEST,
        log_waits_after: float | None = LONG,
        **options: Any,
    ) -> None:
        options["logger"] = RedactedLog(options.get("logger") or logging.getLogger("kazoo.client"))
        if options.get("auth_data"):
            options["auth_data"] = credentials(options["auth_data"])
        if "password" in (options.get("sasl_options") or {}):
            options["sasl_options"] = {
                **options["sasl_options"],
                "password": secret("sasl_options", options["sasl_options"]["password"]),
            }
        super().__init__(**options)
        self.dial: Callable[[], socket.socket] | None = None
        self.directory_acl = directory_acl
        self.tick: float | None = tick
        self.survive: float | None = survive
        self.margin: float = margin
        self.max_request: int = max_request
        self.log_waits_after: float | None = log_waits_after
        self._forks = this_process.forks
        self._name: _Name | str = "its client was not opened by connect()"
        self._opens_at_use = False
        # The clients of objects that are unpickled after this client was stopped.
        self._followers: dict[_Name, Client] = {}
        self._opening = threading.RLock()
        _clients.add(self)

    @property
    def session_timeout(self) -> float | None:
        """The session timeout that the servers have granted, in seconds; None before the first connection.

        A hold whose process dies is free within this time and a tick.
        """
        opening = Transport.of(self).opening
        return opening.negotiated

    def add_auth_async(self, scheme: str, credential: str) -> Any:
        """Send credentials; as `KazooClient.add_auth_async`."""
        return super().add_auth_async(scheme, Secret(credential) if isinstance(credential, str) else credential)

    def by_name(self) -> tuple[Callable[..., Client], _Name]:
        """Return `process_client` and its arguments, to pickle an object of this client by name.

        Raises:
            ValueError: another process can't, or should not, open the same client; the error says why.
            TypeError: it is a client of `memory:`, which no other process can open.
        """
        if self._name == _OF_THIS_PROCESS:
            raise TypeError(_OF_THIS_PROCESS)
        # `auth_data` also has the credentials that were added after the start.
        if self.auth_data:
            raise ValueError(_CREDENTIALS)
        if isinstance(self._name, str):
            raise ValueError(self._name)
        return process_client, self._name

    def __reduce__(self) -> tuple[Callable[..., Client], _Name]:
        try:
            return self.by_name()
        except ValueError as why:
            raise TypeError(f"cannot pickle {self!r}: {why}; open a client in the other process") from None

    def __deepcopy__(self, memo: object = None) -> NoReturn:
        # A copy would be another client, with another session.
        raise TypeError(f"cannot copy {self!r}: use the client itself, or call connect() again")

    __copy__ = __deepcopy__

    def open_at_use(self) -> None:
        """Start the client if `process_client` made it and it was not started yet. Does not wait for a server."""
        if not self._opens_at_use or self._opening._is_owned():  # type: ignore[attr-defined]
            # If this thread has the lock already, a signal handler has interrupted the start, and must not wait for it.
            return
        with self._opening:
            if self._opens_at_use:
                self.start_async()
                self._opens_at_use = False

    def start_async(self) -> Any:
        """Start the client without waiting for a server; as `KazooClient.start_async`.

        Raises:
            ClientError: the process was forked; the client belongs to its parent.
        """
        if self._forks != this_process.forks:
            # kazoo's `start` would wait for the parent's thread, or open a session that `stop` does not close.
            raise ClientError(self.chroot or "/", FORKED)
        try:
            return super().start_async()
        except BaseException:
            if not self.handler.running and getattr(self.handler, "_workers", None):
                # kazoo has started only the first of its two workers: no thread was left for the second, or an
                # interrupt has struck. kazoo's `stop` would not end that worker now. If the client were started again,
                # `stop` would wait for it forever.
                self.handler._running = True
                self.handler.stop()
            raise

    def stop(self) -> None:
        """Close the session; as `KazooClient.stop`. The receipts of queues and values are deleted first."""
        if self._forks != this_process.forks or self._is_left_to_thread(self.stop):
            # A child would wait for the parent's thread.
            return
        if (session := vars(self).get("_zkconcurrent_session")) is not None:
            session.delete_receipts()
        super().stop()

    def close(self) -> None:
        """Close the sockets of a stopped client; as `KazooClient.close`."""
        if self._forks == this_process.forks:
            super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        self._stop_and_close()

    def __del__(self) -> None:
        # A program that has stopped its client need not close it, too. Without this, the garbage collector would warn
        # of two open sockets.
        with suppress(Exception):
            self.close()

    def _stop_and_close(self) -> None:
        if not self._is_left_to_thread(self._stop_and_close):
            self.stop()
            self.close()

    @staticmethod
    def _is_left_to_thread(end: Callable[[], None]) -> bool:
        """If `end` would wait for this thread, as in a finalizer, call it on a new thread; return whether it would."""
        if threading.get_ident() not in serving.threads:
            return False
        threading.Thread(target=end, name="zkconcurrent stop", daemon=True).start()
        return True

    def __repr__(self) -> str:
        where = f"{'zks' if self.use_ssl else 'zk'}://{_hosts(self)}{self.chroot}" if self.dial is None else "local"
        return f"<{type(self).__module__}.{type(self).__qualname__} {where}: {self.state}>"


@public
def connect(
    url: str, *, start_timeout: float | None = None, acl: str | Sequence[Any] | None = None, **options: Any
) -> Client:
    """Open and start a client: `with zkconcurrent.connect("zk://host1,host2:2182/app?timeout=10") as zk:`.

    The URL is `zk://[user:password@]host[:port],.../[chroot][?option=value&...]`; `zks://` is the same over TLS. The
    default port is 2181. All paths of the client lie below the chroot, which is created if it is missing. User and
    password are for digest authentication (or SASL, with `sasl`). Any part is percent-encoded where needed.

    `memory:` is a service of this process, in memory, without a ZooKeeper; `memory:orders` is another one, with a name.
    It begins at its first use, and ends with the process. Each call opens a session of its own, so two clients exclude
    each other as two processes would. `memory:` is for tests, development, and programs of one process: nothing
    survives the process. It listens on 127.0.0.1. `memory:orders/app?timeout=5` has a chroot and an option.

    The options are `timeout` (of the session, in seconds; default 20), `tick` (the servers' `tickTime`, in seconds: if
    known, leases need fewer writes), `survive` (the outage that a hold must survive, in seconds; some 0.4 of the
    timeout by default: the shorter, the fewer writes), `start_timeout`, `sasl` (`DIGEST-MD5` or `GSSAPI`), `acl`, and
    with `zks://` `ca`, `certfile` and `keyfile` (PEM files; without `keyfile`, `certfile` has the key too),
    `verify_certs` and `check_hostname` (`true` or `false`). By default the host name is checked against the
    certificate; kazoo on its own does not check it.

    With credentials, only the creator has access to the nodes that the client makes (`acl=creator`). A client with
    other credentials, or none, can't read a lock's queue, join it, or delete its holder's node. On the nodes above (the
    chroot, and those between it and a lock), any client may list and add nodes, but not delete those of other clients.
    Services that share locks must all use the same credentials; or `acl=open`, which lets every client do everything,
    as without credentials; or a list of ACLs that names all these services. Existing nodes keep their ACLs.

    Args:
        url: the address of ZooKeeper.
        start_timeout: how long to wait for ZooKeeper's first reply, in seconds; 15 by default.
        acl: `"creator"`, the default with a user, `sasl`, or `auth_data`; `"open"`, the default otherwise, even with a
            certfile, as not every server identifies a user by it; or, like `default_acl`, a list of
            `kazoo.security.ACL` for all nodes that the client creates.
        **options: `tick`; `survive`; `margin`, how much slower than the servers' clocks the local clock may run, as a
            fraction of the session timeout (0.02); `max_request`, the largest request in bytes (1,000,000), which must
            be below the servers' `jute.maxbuffer`; `log_waits_after`, how many seconds a wait for a lock or permit
            lasts before it is logged, with the holder (30; None for never); and the arguments of
            `kazoo.client.KazooClient`, such as `handler`, `default_acl`, `keyfile_password` or `sasl_options`. These
            may not repeat a URL option.

    Returns:
        The client, connected. It is a context manager; otherwise, call its `stop()` and `close()`.

    Raises:
        ValueError: a part of the URL is wrong, or is given twice; the error names the part, and shows no text of the
            URL. Or an argument is out of its range, or `acl` is creator without credentials. Or a TLS file can't be
            used.
        TypeError: an argument has the wrong type, such as a text for a number; or neither `connect` nor kazoo has an
            argument of that name.
        TimeoutError: no server has replied in time; the error names the hosts. The client is closed again, which can
            take as long as one more attempt to connect: at most the session timeout.
        RefusedError: the service does not accept the credentials, or the chroot can't be created.
        RuntimeError: the URL asks for SASL, and the package pure-sasl is missing; or this is an isolated
            subinterpreter.

    Source:
        `kazoo.client.KazooClient`; the connection strings of ZooKeeper's own clients.
    """
    client, start = prepare(url, start_timeout=start_timeout, acl=acl, **options)
    start()
    return client


def prepare(
    url: str, *, start_timeout: float | None = None, acl: str | Sequence[Any] | None = None, **options: Any
) -> tuple[Client, Callable[..., None]]:
    """Return the client that a URL describes, and the function that starts it; takes and raises what `connect` does.

    The start function blocks. If the start fails, it closes the client again. Its optional argument is a function that
    returns True when the start is to give up.
    """
    check_interpreter()
    found = parse(url)
    if of_this_process := "memory" in found:
        found |= {"hosts": process.address(found.pop("memory")), "tick": found.get("tick", process.TICK)}
    if start_timeout is not None:
        options["start_timeout"] = start_timeout
    if acl is not None:
        options["acl"] = acl
    if twice := sorted(options.keys() & found.keys()):
        raise ValueError(f"{twice[0]} is in the URL and in the arguments: give it once")
    retry: dict[str, Any] = dict(RETRY)
    if (sleep := getattr(options.get("handler"), "sleep_func", None)) is not None:
        # kazoo refuses a retry whose `sleep_func` is not the handler's.
        retry["sleep_func"] = sleep
    settings = {"connection_retry": retry, "timeout": TIMEOUT, **found, **options}
    check_lease(settings["timeout"], settings.get("tick"), settings.get("margin", MARGIN), settings.get("survive"))
    if "max_request" in settings:
        check_positive("max_request", settings["max_request"])
    if (after := settings.get("log_waits_after")) is not None:
        check_seconds("log_waits_after", after)
        if not after > 0:
            raise ValueError(f"log_waits_after must be more than 0, or None for never: {after}")
    patience = settings.pop("start_timeout", PATIENCE)
    check_seconds("start_timeout", patience)
    chroot = settings.pop("chroot")
    if settings.get("use_ssl"):
        verified = settings.get("verify_certs", True)
        if settings.setdefault("check_hostname", verified) and not verified:
            raise ValueError(
                "check_hostname needs verify_certs: the name in a certificate that nobody checks is no proof"
            )
        if settings.get("certfile"):
            # The certfile may contain the key, too. Without a keyfile, kazoo sends neither.
            settings.setdefault("keyfile", settings["certfile"])
        # Without any password, OpenSSL asks for one at the terminal, where kazoo's thread would wait forever.
        settings["keyfile_password"] = settings.get("keyfile_password") or ""
    if settings.get("sasl_options") and find_spec("puresasl") is None:
        raise RuntimeError("SASL needs the package pure-sasl: pip install pure-sasl")
    take_acl(settings)
    try:
        client = Client(**settings)
    except TypeError:
        code = KazooClient.__init__.__code__
        own = Client.__init__.__kwdefaults__ or ()
        known = ["start_timeout", "acl", *own, *code.co_varnames[1 : code.co_argcount]]
        if unknown := sorted(options.keys() - {*known}):
            raise TypeError(f"connect() has no argument {unknown[0]!r}{meant(unknown[0], known)}") from None
        raise
    # Called before the start, so that the library sees the client's connection from the beginning.
    Transport.of(client)
    client._name = _OF_THIS_PROCESS if of_this_process else _name(url, options, settings)

    def start(given_up: Callable[[], bool] = lambda: False) -> None:
        try:
            if client.use_ssl:
                check_files(settings)
            _start(client, chroot, patience, given_up)
        except BaseException:
            discard(client)
            raise

    return client, start


def check_url(url: str) -> Settings:
    """Return the parts of a URL, as `parse` does, and check the files that it names.

    Raises:
        ValueError: a part is wrong, or a file can't be used.
    """
    settings = parse(url)
    check_files(settings)
    return settings


def failures(client: KazooClient) -> str:
    """Return why the last attempts to connect failed, by address, and what to do."""
    return Link(client).failures()


def is_refused(client: KazooClient) -> bool:
    """Return whether the servers do not accept the client's credentials."""
    return Transport.of(client).opening.refusal is not None


def discard(client: Client) -> None:
    """Stop and close a client, even one that could not start because no thread or descriptor was left for it."""
    # kazoo can't wake a thread that it has not started; it stops everything else all the same.
    with suppress(AttributeError):
        client.stop()
    client.close()


@public
def process_client(url: str, options: Sequence[tuple[str, Any]]) -> Client:
    """Return this process's client for the objects that were pickled with that URL; it is opened at its first use.

    This function does not wait for a server. The object's first call does, up to its own deadline. The client is closed
    when the process exits. If the program has stopped the client, the next unpickled object gets another one.
    """

    def make() -> Client:
        client, _ = prepare(url, **dict(options))
        # The chroot exists: the client that pickled the object has made it.
        client.chroot = parse(url)["chroot"]
        return client

    return _only((url, tuple(options)), make)


def _only(name: _Name, make: Callable[[], Client]) -> Client:
    """Return this process's client of that name; it is opened at its first use."""
    client = _by_name.get(name)
    while client is None or (not client._opens_at_use and Session.of(client).link.stopped):
        new = make()
        new._opens_at_use = True
        # R4: of several threads, one wins: there is one client for each name, and one successor of each stopped client.
        client = _by_name[name] = (_by_name if client is None else client._followers).setdefault(name, new)
    return client


class LocalRoot:
    """The root of a local namespace: a path of its own in the service of this process, or of its forked child.

    Its nodes are removed once the program keeps neither the namespace nor an object of it.

    Attributes:
        path: the namespace's path in that service.
    """

    def __init__(self) -> None:
        self.path = f"/local-{next(_numbers)}"
        self._opened_after: int | None = None
        self.open()

    def open(self) -> Client:
        """Return the client of all local namespaces of this process; the first use starts its service."""
        if self._opened_after != this_process.forks:
            check_interpreter()
            server = process.local()
            client = self._client = _only(("local", ()), partial(_make_local_client, server.dial, process.TICK))
            if not client.connected:
                # On another thread, as kazoo can't continue a start that a signal has interrupted.
                threading.Thread(target=client.open_at_use, name="zkconcurrent start", daemon=True).start()
            until = monotonic() + PATIENCE
            while not client.connected and monotonic() < until:
                client.handler.sleep_func(0.001)
            self._kept = Session.of(client).directory.keep(self.path, server.unused.append)
            self._opened_after = this_process.forks
        return self._client


def _make_local_client(dial: Callable[[], socket.socket], tick: float) -> Client:
    client = Client(hosts="127.0.0.1", timeout=_LOCAL_TIMEOUT, tick=tick, connection_retry=dict(RETRY))
    client.dial, client._name = dial, _LOCAL
    # Use the service's own clock, which stands still while the machine sleeps.
    Session.of(client).clock = monotonic
    return client


def _name(url: str, options: Settings, settings: Settings) -> _Name | str:
    """Return the arguments of `process_client`; or, as a str, the reason why another process can't open this client."""
    # GSSAPI has no secret here: it takes the user's Kerberos ticket.
    sasl = settings.get("sasl_options") or {"mechanism": "GSSAPI"}
    if settings.get("auth_data") or settings.get("keyfile_password") or sasl.get("mechanism") != "GSSAPI":
        return _CREDENTIALS
    for option, value in options.items():
        if not isinstance(value, str | int | float | None):
            return f"its client was opened with {option}=, which only this process has"
    return url, tuple(sorted((option, value) for option, value in options.items() if option != "start_timeout"))


def _start(client: Client, chroot: str, patience: float, given_up: Callable[[], bool]) -> None:
    """Connect, and wait until a server has replied and the chroot exists.

    Raises:
        TimeoutError: that took too long, or the caller gave up.
        RefusedError: the service refuses the credentials or the chroot.
    """
    until = monotonic() + patience
    # The session sees the client before its start, so the first acquire need not prove that the session lives.
    session = Session.of(client)
    session.check_thread(chroot or "/")
    link = session.link
    live = client.start_async()
    while (left := until - monotonic()) > 0:
        if link.stopped or given_up():
            # The link is stopped if kazoo gave up and its connection thread has ended.
            break
        if not client.connected:
            live.wait(min(left, _POLL))
            continue
        try:
            # The chroot is set afterwards: once it is set, kazoo can create only nodes below it.
            made = client.ensure_path_async(chroot or "/", acl=client.directory_acl)
            while not made.ready() and monotonic() < until and not given_up():
                made.wait(_POLL)
            if not made.ready():
                break
            made.get()
        except kazoo_errors.KazooException as error:
            if isinstance(error, kazoo_errors.AuthFailedError):
                raise failure(error, chroot or "/") from error
            why = failure(error, chroot or "/")
            if not isinstance(why, ConnectionLost | SessionExpired):
                raise why from error
        else:
            client.chroot = link.seen_chroot = chroot
            return
    if (refusal := link.transport.opening.refusal) is not None:
        raise failure(refusal, chroot or "/") from refusal
    raise TimeoutError(
        f"no answer from ZooKeeper at {_hosts(client)}, {'over' if client.use_ssl else 'without'} TLS, within "
        f"{patience:g} s: {link.failures()}"
    )


def _hosts(client: KazooClient) -> str:
    return ",".join(shown(host, port) for host, port in client.hosts)


# -- the end ---------------------------------------------------------------------------------------------------------


def _close_all(until: float) -> None:
    """Close the open clients at the interpreter's exit, so that their sessions end without waiting for expiry."""
    ours = [client for client in _clients if client._forks == this_process.forks]
    for client in ours:
        client.logger.muted = True
    for client, stopped in [(client, request_close(client)) for client in ours]:
        stopped.wait(max(0.0, until - monotonic()))
        if stopped.is_set():
            # Python would warn of open sockets. Their descriptors may be closed already, by others.
            with suppress(OSError):
                client.close()


def _leave_to_parent() -> None:
    _inherited.extend(_by_name.values())
    _by_name.clear()


_clients: LiveSet[Client] = LiveSet()
# The clients of unpickled objects, and the one of all local namespaces.
_by_name: dict[_Name, Client] = {}
# The numbers of the local namespaces. A forked child counts on, so it never reuses a number from before the fork.
_numbers = itertools.count(1)
# In a forked child, the parent's clients. They are kept: garbage collection would close them, and warn.
_inherited: list[Client] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
# The services end once their clients are closed.
closers += [_close_all, process.stop]
