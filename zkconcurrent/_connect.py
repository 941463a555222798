"""`connect`: a started kazoo client from one URL, which ends with its `with` block.

Everything that the URL says becomes an argument of `kazoo.client.KazooClient`. What is wrong with it is told by the
part that is wrong, never by the whole: it may have a password in it.
"""

from __future__ import annotations

import os
import re
import time
import weakref
from collections.abc import Callable
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_plus

from ._kazoo import KazooClient, Link, failure, kazoo_errors
from ._ops import ConnectionLost, SessionExpired
from ._paths import check_path
from ._session import at_exit
from ._wire import hang_up

if TYPE_CHECKING:
    from typing_extensions import Self

PATIENCE = 15.0
_POLL = 0.05
# kazoo doubles its pauses up to an hour: after an outage of 20 s a client may sleep for 20 s more.
_RETRY = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+)(?::(.*))?", re.DOTALL)
_MECHANISMS = ("DIGEST-MD5", "GSSAPI")


class Client(KazooClient):  # type: ignore[misc]
    """A started `kazoo.client.KazooClient`, as `connect` returns it; it stops and closes where its `with` block ends.

    It is closed also when the interpreter exits, so that what it holds is free at once. In a process forked from its
    own it does nothing: it is the parent's.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._pid = os.getpid()
        _clients.add(self)

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


def connect(url: str, *, start_timeout: float | None = None, **options: Any) -> Client:
    """Open a client and start it: `with zkconcurrent.connect("zk://host1,host2:2182/app?timeout=10") as zk:`.

    The URL is `zk://[user:password@]host[:port],.../[chroot][?option=value&...]`, and `zks://` the same over TLS. The
    ports are 2181 where none is said. The chroot, below which all paths of the client lie, is made if it is missing.
    User and password are a digest's (or SASL's, with `sasl`). They and all else are percent-encoded where needed.

    The options are `timeout` (of the session, in seconds), `start_timeout`, `sasl` (`DIGEST-MD5` or `GSSAPI`), and with
    `zks://` `ca`, `certfile` and `keyfile` (files in PEM), `verify_certs` and `check_hostname` (`true` or `false`). The
    host name is checked against the certificate unless that is said to be off: kazoo on its own does not.

    Args:
        url: where ZooKeeper is.
        start_timeout: how long to wait until it has answered, in seconds; 15 if nothing is said.
        **options: as for `kazoo.client.KazooClient`, such as `handler`, `default_acl`, `keyfile_password` or
            `sasl_options`; none that the URL has already.

    Returns:
        The client, connected. It is a context manager; without one, call its `stop()` and `close()`.

    Raises:
        ValueError: something in the URL is wrong, or is said twice; it names the part, and never a password.
        TimeoutError: nobody has answered in time; it names the hosts. The client is closed again, which can take as
            long as one more attempt to connect: the session timeout, at most.
        RefusedError: the service does not accept the credentials, or the chroot can't be made.
        RuntimeError: SASL is asked for, and the package pure-sasl is missing.

    Source:
        `kazoo.client.KazooClient`; the connection strings of ZooKeeper's own clients.
    """
    found = _parse(url)
    if start_timeout is not None:
        options["start_timeout"] = start_timeout
    if twice := sorted(options.keys() & found.keys()):
        raise ValueError(f"{twice[0]} is in the URL and in the arguments: say it in one place")
    settings = {"connection_retry": dict(_RETRY), **found, **options}
    patience = settings.pop("start_timeout", PATIENCE)
    chroot = settings.pop("chroot")
    if settings.get("use_ssl"):
        settings.setdefault("check_hostname", settings.get("verify_certs", True))
    if settings.get("sasl_options") and find_spec("puresasl") is None:
        raise RuntimeError("SASL needs the package pure-sasl: pip install pure-sasl")
    client = Client(**settings)
    try:
        _start(client, chroot, time.monotonic() + patience, patience)
    except BaseException:
        client.stop()
        client.close()
        raise
    return client


def _start(client: Client, chroot: str, until: float, patience: float) -> None:
    """Connect, and wait until a server has answered and the chroot is there.

    Raises:
        TimeoutError: that did not happen in time.
        RefusedError: it will not happen.
    """
    link = Link(client)
    live = client.start_async()
    while (left := until - time.monotonic()) > 0:
        if link.stopped:
            break  # given up: kazoo's connection thread has ended
        if not client.connected:
            live.wait(min(left, _POLL))
            continue
        try:
            # The chroot is not set yet, as kazoo can't make one from below it.
            client.ensure_path_async(chroot or "/").get(timeout=left)
        except client.handler.timeout_exception:
            break
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
        raise ValueError(f"the URL's scheme is {scheme!r}; it must be zk, or zks for TLS")
    if "@" in path + query + fragment:  # the '/' before it may be a password's, so nothing of it is shown
        raise ValueError("the URL has a '@' behind its hosts; in a password, write '/', '?', '#' and '@' as %2F %3F...")
    if fragment:
        raise ValueError("the URL ends with a part that begins with '#'; it must have none")
    user, at, hosts = authority.rpartition("@")
    found: dict[str, Any] = {
        "hosts": ",".join(_check_host(host) for host in hosts.split(",")),
        "chroot": "" if path in ("", "/") else _checked("path", check_path, _decode("path", path)),
    }
    if scheme.lower() == "zks":
        found["use_ssl"] = True
    for option in query[1:].split("&") if query[1:] else ():
        _take_option(option, found)
    _take_user(user if at else None, found.pop("sasl", None), found)
    return found


def _check_host(text: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None:
        raise ValueError(f"a host of the URL is {text!r}; it must be a name, an IPv4 address, or an IPv6 one in [ ]")
    host, port = match[1], match[2]
    if port is None:
        return host
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
        raise ValueError(f"the port of {host!r} in the URL is {port!r}; it must be a number from 1 to 65535")
    return f"{host}:{port}"


def _take_option(text: str, found: dict[str, Any]) -> None:
    """Add what one `name=value` of the query says."""
    name, equals, value = text.partition("=")
    if name not in _OPTIONS:
        raise ValueError(f"the URL has an option {name!r}; there are {', '.join(_OPTIONS)}")
    if name in found:
        raise ValueError(f"the URL has the option {name!r} twice")
    if not equals or not value:
        raise ValueError(f"the URL's option {name!r} has no value")
    if name in _OF_TLS and "use_ssl" not in found:
        raise ValueError(f"the URL's option {name!r} is for TLS: write zks:// for it")
    found[name] = _checked(f"option {name!r}", _OPTIONS[name], _decode(f"option {name!r}", value, plus=True))


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
        found["sasl_options"] = {"mechanism": sasl, "username": user, "password": password}
    elif ":" in user:
        raise ValueError("the URL's user has a ':' in it, where its password would begin for ZooKeeper")
    else:
        found["auth_data"] = [("digest", f"{user}:{password}")]


def _decode(part: str, text: str, *, plus: bool = False) -> str:
    """Return a part of the URL without its percent-encoding."""
    try:
        if re.search("%(?![0-9A-Fa-f]{2})", text):
            raise ValueError
        return (unquote_plus if plus else unquote)(text, errors="strict")
    except ValueError:
        raise ValueError(f"the URL's {part} has a '%' that does not begin a character in UTF-8: write '%25'") from None


def _checked(part: str, check: Callable[[str], Any], text: str) -> Any:
    try:
        return check(text)
    except ValueError as error:
        raise ValueError(f"the URL's {part} is wrong: {error}") from None


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) or not 0 < float(text) < 2**31 / 1000:
        raise ValueError(f"{text!r} is no number of seconds, such as 10 or 2.5")
    return float(text)


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither 'true' nor 'false'")
    return text == "true"


def _mechanism(text: str) -> str:
    if text not in _MECHANISMS:
        raise ValueError(f"{text!r} is none of {', '.join(_MECHANISMS)}")
    return text


_OF_TLS: dict[str, Callable[[str], Any]] = {
    "ca": str,
    "certfile": str,
    "keyfile": str,
    "verify_certs": _flag,
    "check_hostname": _flag,
}
_OPTIONS: dict[str, Callable[[str], Any]] = {
    "timeout": _seconds,
    "start_timeout": _seconds,
    "sasl": _mechanism,
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
