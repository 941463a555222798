"""`connect`: a started kazoo client from one URL, which ends with its `with` block.

Everything that the URL says becomes an argument of `kazoo.client.KazooClient`. What is wrong with it is told by the
name of the part, and nothing of the URL is shown: where a '/' or an '@' is missing or too many, any part of it may be
the password.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import time
import weakref
from collections.abc import Callable, MutableMapping, Sequence
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_plus

from ._engine.interpreter import check_interpreter
from ._engine.lease import MARGIN
from ._engine.process_exit import at_exit
from ._engine.session import Session
from ._kazoo.link import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, KazooClient, failure, kazoo_errors, make_acl
from ._kazoo.transport import MAX_REQUEST, hang_up
from ._paths import check_path
from ._recipes.operations import ConnectionLost, SessionExpired

if TYPE_CHECKING:
    from typing_extensions import Self

PATIENCE = 15.0
TIMEOUT = 20.0  # an election takes an ensemble up to some seconds, and a lease outlives 0.42 of it at least
_POLL = 0.05
# kazoo doubles its pauses up to an hour: after an outage of 20 s a client may sleep for 20 s more.
_RETRY = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+)(?::(.*))?", re.DOTALL)
_MECHANISMS = ("DIGEST-MD5", "GSSAPI")
_ACLS = ("creator", "open")
# Of a directory: others may make nodes of their own in it, and nobody else may delete what is there.
_DIRECTORY_ACL = [*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True, create=True)]


class Secret(str):
    """Something that proves who a client is; its repr, by which kazoo logs it, does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Discreet(logging.LoggerAdapter):  # type: ignore[type-arg]
    """A client's log, without passwords: the user's, and that of the session, with which anybody could take it over."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log what is not secret."""
        if self.isEnabledFor(level):
            hides = "passwd" in str(msg)
            shown = [Secret() if hides and isinstance(arg, bytes) else _without_secrets(arg) for arg in args]
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            super().log(level, msg, *shown, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.logger, name)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Leave the rest as it is."""
        return msg, kwargs


def _without_secrets(request: Any) -> Any:
    """Return what is logged of one of kazoo's requests, which are named tuples."""
    hidden = {"auth", "passwd", "challenge"}.intersection(getattr(request, "_fields", ()))
    return request._replace(**dict.fromkeys(hidden, Secret())) if hidden else request


class Client(KazooClient):  # type: ignore[misc]
    """A started `kazoo.client.KazooClient`, as `connect` returns it; it stops and closes where its `with` block ends.

    It is closed also when the interpreter exits, so that what it holds is free at once. In a process forked from its
    own it does nothing: it is the parent's. Neither its repr nor its log shows a password.

    Attributes:
        directory_acl: the ACL of the nodes above a primitive's path, if it is not `default_acl`.
        tick: the servers' tick, in seconds, if it is known.
        margin: the part of the session's timeout by which a lease is shorter.
        max_request: how many bytes a request may have.
    """

    def __init__(
        self,
        *,
        directory_acl: Sequence[Any] | None = None,
        tick: float | None = None,
        margin: float = MARGIN,
        max_request: int = MAX_REQUEST,
        **options: Any,
    ) -> None:
        options["logger"] = Discreet(options.get("logger") or logging.getLogger("kazoo.client"))
        if options.get("auth_data"):
            options["auth_data"] = [(scheme, Secret(auth)) for scheme, auth in options["auth_data"]]
        if "password" in (options.get("sasl_options") or {}):
            options["sasl_options"] = {
                **options["sasl_options"],
                "password": Secret(options["sasl_options"]["password"]),
            }
        super().__init__(**options)
        self.directory_acl = directory_acl
        self.tick, self.margin, self.max_request = tick, margin, max_request
        self._pid = os.getpid()
        _clients.add(self)

    def add_auth_async(self, scheme: str, credential: str) -> Any:
        """Send credentials; as `KazooClient.add_auth_async`."""
        return super().add_auth_async(scheme, Secret(credential) if isinstance(credential, str) else credential)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pid == os.getpid():
            self.stop()
            self.close()

    def __repr__(self) -> str:
        scheme = "zks" if self.use_ssl else "zk"
        return f"<zkconcurrent.{type(self).__name__} {scheme}://{_hosts(self)}{self.chroot}: {self.state}>"


def connect(
    url: str, *, start_timeout: float | None = None, acl: str | Sequence[Any] | None = None, **options: Any
) -> Client:
    """Open a client and start it: `with zkconcurrent.connect("zk://host1,host2:2182/app?timeout=10") as zk:`.

    The URL is `zk://[user:password@]host[:port],.../[chroot][?option=value&...]`, and `zks://` the same over TLS. The
    ports are 2181 where none is said. The chroot, below which all paths of the client lie, is made if it is missing.
    User and password are a digest's (or SASL's, with `sasl`). They and all else are percent-encoded where needed.

    The options are `timeout` (of the session, in seconds; 20 if nothing is said), `tick` (the servers' `tickTime`, in
    seconds: if it is known, leases need fewer requests and outlive longer outages), `start_timeout`, `sasl`
    (`DIGEST-MD5` or `GSSAPI`), `acl`, and with `zks://` `ca`, `certfile` and `keyfile` (files in PEM), `verify_certs`
    and `check_hostname` (`true` or `false`). The host name is checked against the certificate unless that is said to be
    off: kazoo on its own does not.

    With credentials, what the client makes is its creator's alone (`acl=creator`): who has other credentials, or none,
    can neither read a lock's queue, nor queue there, nor delete its holder's node. What lies above (the chroot, and the
    nodes between it and a lock) is made so that anybody can list it and add nodes of their own, and nobody else can
    delete there. Services that share locks have the same credentials; or they all say `acl=open`, where everything is
    open to all, as it is without credentials; or they are named in a list of ACLs. Nodes that are there keep theirs.

    Args:
        url: where ZooKeeper is.
        start_timeout: how long to wait until it has answered, in seconds; 15 if nothing is said.
        acl: `"creator"`, the default with a user, `sasl`, or `auth_data`; `"open"`, the default without, also with a
            certfile, which not every server takes for a user; or what everything is made with, as a list of
            `kazoo.security.ACL`, like `default_acl`.
        **options: `tick`; `margin`, how much slower than the servers' clocks ours may run, as a part of the session's
            timeout (0.02); `max_request`, how many bytes a request may have (1,000,000), which must be below the
            servers' `jute.maxbuffer`; and as for `kazoo.client.KazooClient`, such as `handler`, `default_acl`,
            `keyfile_password` or `sasl_options`; none that the URL has already.

    Returns:
        The client, connected. It is a context manager; without one, call its `stop()` and `close()`.

    Raises:
        ValueError: something in the URL is wrong, or is said twice; it names the part, and shows nothing of the URL. Or
            `acl` is creator without credentials.
        TimeoutError: nobody has answered in time; it names the hosts. The client is closed again, which can take as
            long as one more attempt to connect: the session timeout, at most.
        RefusedError: the service does not accept the credentials, or the chroot can't be made.
        RuntimeError: SASL is asked for, and the package pure-sasl is missing; or this is an isolated subinterpreter.

    Source:
        `kazoo.client.KazooClient`; the connection strings of ZooKeeper's own clients.
    """
    client, start = prepare(url, start_timeout=start_timeout, acl=acl, **options)
    start()
    return client


def prepare(
    url: str, *, start_timeout: float | None = None, acl: str | Sequence[Any] | None = None, **options: Any
) -> tuple[Client, Callable[..., None]]:
    """Return the client that a URL describes, and the function that starts it; arguments and errors as `connect`.

    That function blocks, and closes the client again if it fails. It may be given a function that tells it to give up.
    """
    check_interpreter()
    found = _parse(url)
    if start_timeout is not None:
        options["start_timeout"] = start_timeout
    if acl is not None:
        options["acl"] = acl
    if twice := sorted(options.keys() & found.keys()):
        raise ValueError(f"{twice[0]} is in the URL and in the arguments: say it in one place")
    settings = {"connection_retry": dict(_RETRY), "timeout": TIMEOUT, **found, **options}
    _check_lease(settings["timeout"], settings.get("tick"), settings.get("margin", MARGIN))
    patience = settings.pop("start_timeout", PATIENCE)
    chroot = settings.pop("chroot")
    if settings.get("use_ssl"):
        settings.setdefault("check_hostname", settings.get("verify_certs", True))
    if settings.get("sasl_options") and find_spec("puresasl") is None:
        raise RuntimeError("SASL needs the package pure-sasl: pip install pure-sasl")
    _take_acl(settings)
    client = Client(**settings)

    def start(given_up: Callable[[], bool] = lambda: False) -> None:
        try:
            _start(client, chroot, patience, given_up)
        except BaseException:
            client.stop()
            client.close()
            raise

    return client, start


def _check_lease(timeout: float, tick: float | None, margin: float) -> None:
    """Refuse terms on which no lease can be reckoned.

    Raises:
        ValueError: it says which.
    """
    if tick is not None and not 0 < tick <= timeout / 2:
        raise ValueError(f"tick is {tick!r}; it must be more than 0, and at most half of the timeout, {timeout:g} s")
    if not 0 <= margin < 0.5:
        raise ValueError(f"margin is {margin!r}; it must be a part of the timeout, from 0 to less than 0.5")


def _start(client: Client, chroot: str, patience: float, given_up: Callable[[], bool]) -> None:
    """Connect, and wait until a server has answered and the chroot is there.

    Raises:
        TimeoutError: that did not happen in time, or the caller gave up.
        RefusedError: it will not happen.
    """
    until = time.monotonic() + patience
    link = Session.of(client).link  # from the start, so that the first acquire need not learn that the session lives
    live = client.start_async()
    while (left := until - time.monotonic()) > 0:
        if link.stopped or given_up():
            break  # stopped: kazoo gave up, and its connection thread has ended
        if not client.connected:
            live.wait(min(left, _POLL))
            continue
        try:
            # The chroot is not set yet, as kazoo can't make one from below it.
            made = client.ensure_path_async(chroot or "/", acl=client.directory_acl)
            while not made.ready() and time.monotonic() < until and not given_up():
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
            client.chroot = chroot
            return
    raise TimeoutError(
        f"no answer from ZooKeeper at {_hosts(client)}, {'over' if client.use_ssl else 'without'} TLS, within "
        f"{patience:g} s; the log 'kazoo.client' says how each attempt failed"
    )


def _hosts(client: KazooClient) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in client.hosts)


# -- the URL ---------------------------------------------------------------------------------------------------------


def _parse(url: str) -> dict[str, Any]:
    """Return what a URL says, by the names of kazoo's arguments; `chroot` and `start_timeout` besides.

    Raises:
        TypeError: it is no string.
        ValueError: a part of it is wrong.
    """
    if not isinstance(url, str):
        raise TypeError(f"url must be a str, not {type(url).__name__}")
    parts = _URL.fullmatch(url)
    if parts is None:
        raise ValueError("the URL must be zk://host1,host2/chroot?option=value, or zks://... for TLS")
    scheme, authority, path, query, fragment = (part or "" for part in parts.groups())
    if scheme.lower() not in ("zk", "zks"):
        raise ValueError("the URL's scheme must be zk, or zks for TLS")
    if "@" in path + query + fragment:  # the '/' before it may be a password's, so nothing of it is shown
        raise ValueError("the URL has a '@' behind its hosts; in a password, write '/', '?', '#' and '@' as %2F %3F...")
    if fragment:
        raise ValueError("the URL ends with a part that begins with '#'; it must have none")
    user, at, hosts = authority.rpartition("@")
    found: dict[str, Any] = {
        "hosts": ",".join(_check_host(n, host) for n, host in enumerate(hosts.split(","), 1)),
        "chroot": "" if path in ("", "/") else _checked("path", _CHROOT, check_path, _decode("path", path)),
    }
    if scheme.lower() == "zks":
        found["use_ssl"] = True
    for option in query[1:].split("&") if query[1:] else ():
        _take_option(option, found)
    _take_user(user if at else None, found.pop("sasl", None), found)
    return found


def _check_host(n: int, text: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None:
        raise ValueError(f"host {n} of the URL must be a name, an IPv4 address, or an IPv6 one in [ ]")
    host, port = match[1], match[2]
    if port is None:
        return host
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
        raise ValueError(
            f"the port of host {n} of the URL must be a number from 1 to 65535 (a user and a password end with an '@')"
        )
    return f"{host}:{port}"


def _take_option(text: str, found: dict[str, Any]) -> None:
    """Add what one `name=value` of the query says."""
    name, equals, value = text.partition("=")
    if name not in _OPTIONS:
        meant = difflib.get_close_matches(name, _OPTIONS, 1)
        raise ValueError(
            f"the URL has an unknown option{f', like {meant[0]!r}' if meant else ''}; there are {', '.join(_OPTIONS)}"
        )
    if name in found:
        raise ValueError(f"the URL has the option {name!r} twice")
    if not equals or not value:
        raise ValueError(f"the URL's option {name!r} has no value")
    if name in _OF_TLS and "use_ssl" not in found:
        raise ValueError(f"the URL's option {name!r} is for TLS: write zks:// for it")
    rule, check = _OPTIONS[name]
    found[name] = _checked(f"option {name!r}", rule, check, _decode(f"option {name!r}", value, plus=True))


def _take_user(text: str | None, sasl: str | None, found: dict[str, Any]) -> None:
    """Add the credentials."""
    if text is None and sasl is None:
        return
    if sasl == "GSSAPI":
        if text is not None:
            raise ValueError("the URL has a user, and sasl=GSSAPI takes who you are from your ticket")
        found["sasl_options"] = {"mechanism": sasl}
        return
    user, colon, password = (text or "").partition(":")
    user, password = _decode("user", user), _decode("password", password)
    if not (user and colon and password):
        raise ValueError("the URL needs a user and a password: zk://user:password@host")
    if sasl is not None:
        found["sasl_options"] = {"mechanism": sasl, "username": user, "password": Secret(password)}
    elif ":" in user:
        raise ValueError("the URL's user has a ':' in it, where its password would begin for ZooKeeper")
    else:
        found["auth_data"] = [("digest", Secret(f"{user}:{password}"))]


def _take_acl(settings: dict[str, Any]) -> None:
    """Say by whom what the client makes may be used.

    Raises:
        TypeError: it is neither a word nor a list.
        ValueError: it is another word; there are no credentials; or it is said twice.
    """
    proven = bool(settings.get("auth_data") or settings.get("sasl_options"))
    acl = settings.pop("acl", None)
    if acl is not None and settings.get("default_acl") is not None:
        raise ValueError("acl and default_acl are the same: say it in one place")
    if settings.get("default_acl") is not None:
        return
    if acl is None:
        acl = "creator" if proven else "open"
    if isinstance(acl, str):
        if acl not in _ACLS:
            raise ValueError(f"acl must be one of {', '.join(_ACLS)}, or a list of kazoo.security.ACL")
        if acl == "creator" and not (proven or settings.get("certfile")):
            raise ValueError("acl=creator needs credentials: a user and a password, sasl, or a certfile")
        settings["default_acl"] = CREATOR_ALL_ACL if acl == "creator" else OPEN_ACL_UNSAFE
        settings["directory_acl"] = _DIRECTORY_ACL if acl == "creator" else None
    elif isinstance(acl, Sequence) and acl:
        settings["default_acl"] = list(acl)
    else:
        raise TypeError(f"acl must be one of {', '.join(_ACLS)}, or a list of kazoo.security.ACL, and not empty")


def _decode(part: str, text: str, *, plus: bool = False) -> str:
    """Return a part of the URL without its percent-encoding."""
    rule = "have no '%' but where one begins a character in UTF-8: write '%25'"
    if re.search("%(?![0-9A-Fa-f]{2})", text):
        raise ValueError(f"the URL's {part} must {rule}")
    return _checked(part, rule, lambda text: (unquote_plus if plus else unquote)(text, errors="strict"), text)  # type: ignore


def _checked(part: str, rule: str, check: Callable[[str], Any], text: str) -> Any:
    """Return what a part of the URL says.

    Raises:
        ValueError: it does not keep its rule.
    """
    try:
        return check(text)
    except ValueError:
        pass  # its text shows what it is about, and so would a context
    raise ValueError(f"the URL's {part} must {rule}")


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) or not 0 < float(text) < 2**31 / 1000:
        raise ValueError
    return float(text)


def _one_of(*words: str) -> tuple[str, Callable[[str], str]]:
    def check(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return f"be {' or '.join(words)}", check


def _flag() -> tuple[str, Callable[[str], bool]]:
    rule, check = _one_of("true", "false")
    return rule, lambda text: check(text) == "true"


_CHROOT = (
    "be a path below the root and not below /zookeeper: with no empty part, no '.', no '..', no '/' at its end, and "
    "nothing that ZooKeeper does not accept"
)
_SECONDS = "be a number of seconds, such as 10 or 2.5", _seconds
_FILE = "be a file's name", str
# For each, what it must be, and how it is read.
_OF_TLS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "ca": _FILE,
    "certfile": _FILE,
    "keyfile": _FILE,
    "verify_certs": _flag(),
    "check_hostname": _flag(),
}
_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "timeout": _SECONDS,
    "tick": _SECONDS,
    "start_timeout": _SECONDS,
    "sasl": _one_of(*_MECHANISMS),
    "acl": _one_of(*_ACLS),
    **_OF_TLS,
}


# -- the end ---------------------------------------------------------------------------------------------------------


def _close_all(until: float) -> None:
    """Close, at the interpreter's exit, what nobody has closed: its session ends, and the server need not wait."""
    ours = [client for client in _clients if client._pid == os.getpid()]
    for stopped in [hang_up(client) for client in ours]:
        stopped.wait(max(0.0, until - time.monotonic()))


_clients: weakref.WeakSet[Client] = weakref.WeakSet()
at_exit.append(_close_all)
