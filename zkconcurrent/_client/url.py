"""The URL of a service: each part becomes an argument of `kazoo.client.KazooClient`.

An error names the wrong part and shows no text of the URL: with a missing or an extra '/' or '@', the password may be
in any part. `check_lease` checks the settings of leases from the URL together with those from the arguments.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote, unquote_plus

from .._arguments.limits import check_seconds, is_seconds
from .._arguments.paths import check_path
from .._protocol.session_lease import longest_outage
from .secrets import Secret

T = TypeVar("T")

# The environment variable with the URL for the command, and for programs that get no URL in another way.
VARIABLE = "ZKCONCURRENT_URL"
# In seconds: the protocol counts in milliseconds, with 32 bits.
LONGEST_TIMEOUT = 2**31 / 1000
ACLS = ("creator", "open")
_MECHANISMS = ("DIGEST-MD5", "GSSAPI")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_MEMORY = re.compile(r"memory:([\w.-]*)(/[^?#]*)?(\?[^#]*)?", re.ASCII)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(.*))?", re.DOTALL)


Settings: TypeAlias = dict[str, Any]
"""What a URL says, by the names of kazoo's arguments, with `chroot` and `start_timeout` beside them."""


def parse(url: str) -> Settings:
    """Return the parts of a URL by the names of kazoo's arguments, with `chroot` and `start_timeout` beside them.

    Raises:
        TypeError: it is not a string.
        ValueError: a part of it is wrong.
    """
    if not isinstance(url, str):
        raise TypeError(f"url must be a str, not {type(url).__name__}")
    # A URL that was read from a file may end with a line break.
    url = url.rstrip("\r\n")
    if url.startswith("memory://"):
        raise ValueError("the URL must be memory: or memory:name, without //")
    if (in_memory := _MEMORY.fullmatch(url)) is not None:
        name, path, query = (part or "" for part in in_memory.groups())
        return _of_memory(name, path, query)
    parts = _URL.fullmatch(url)
    if parts is None:
        raise ValueError(
            "the URL must be zk://host1,host2/chroot?option=value, such as zk://localhost:2181, zks://... for TLS, or "
            "memory:name for a service of this process alone"
        )
    scheme, authority, path, query, fragment = (part or "" for part in parts.groups())
    if scheme.lower() not in ("zk", "zks"):
        raise ValueError("the URL's scheme must be zk, or zks for TLS, such as zk://localhost:2181")
    # The '/' before the '@' may be part of a password, so the error shows no text of the URL.
    if "@" in path + query + fragment:
        raise ValueError(
            "the URL has an '@' after its hosts; in a password, write '/', '?', '#', '@' as %2F %3F %23 %40"
        )
    if fragment:
        raise ValueError("the URL must have no part that begins with '#'")
    user, at, hosts = authority.rpartition("@")
    found: Settings = {
        "hosts": ",".join(_check_host(n, host) for n, host in enumerate(hosts.split(","), 1)),
        "chroot": _chroot(path),
    }
    if scheme.lower() == "zks":
        found["use_ssl"] = True
    _take_options(query, found)
    _take_user(user if at else None, found.pop("sasl", None), found)
    return found


def _of_memory(name: str, path: str, query: str) -> Settings:
    found: Settings = {"memory": name, "chroot": _chroot(path)}
    _take_options(query, found)
    if refused := sorted(found.keys() & {"sasl", "acl"}):
        raise ValueError(f"the URL's option {refused[0]!r} needs a server: all clients of memory: are of this process")
    return found


def _chroot(path: str) -> str:
    return "" if path in ("", "/") else _checked("path", _CHROOT, check_path, _decode("path", path))


def _check_host(n: int, text: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None:
        raise ValueError(
            f"host {n} of the URL must be a name of letters, digits, '.', '-' and '_', an IPv4 address, or an IPv6 one "
            "in [ ]; between hosts is a ','"
        )
    host, port = match[1], match[2]
    if port is None:
        return host
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
        raise ValueError(
            f"the port of host {n} of the URL must be a number from 1 to 65535 ('@' ends a user and a password)"
        )
    return f"{host}:{port}"


def meant(name: str, names: Iterable[str]) -> str:
    """Return a hint at the known name that an unknown one resembles; empty if there is none."""
    close = difflib.get_close_matches(name, list(names), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _take_options(query: str, found: Settings) -> None:
    """Add the options of a query, each `name=value`, to the settings."""
    for text in query[1:].split("&") if query[1:] else ():
        name, _, value = text.partition("=")
        if name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise ValueError(f"the URL has an unknown option{meant(name, _OPTIONS)}; the options are {known}")
        if name in found:
            raise ValueError(f"the URL has the option {name!r} twice")
        if not value:
            raise ValueError(f"the URL's option {name!r} has no value")
        if name in _OF_TLS and "use_ssl" not in found:
            raise ValueError(f"the URL's option {name!r} is for TLS: write zks://")
        rule, check = _OPTIONS[name]
        found[name] = _checked(f"option {name!r}", rule, check, _decode(f"option {name!r}", value, plus=True))


def _take_user(text: str | None, sasl: str | None, found: Settings) -> None:
    """Add the credentials to the settings."""
    if text is None and sasl is None:
        return
    if sasl == "GSSAPI":
        if text is not None:
            raise ValueError("the URL has a user, but sasl=GSSAPI takes the user from your Kerberos ticket")
        found["sasl_options"] = {"mechanism": sasl}
        return
    user, colon, password = (text or "").partition(":")
    user, password = _decode("user", user), _decode("password", password)
    if not (user and colon and password):
        raise ValueError("the URL needs a user and a password: zk://user:password@host")
    if sasl is not None:
        found["sasl_options"] = {"mechanism": sasl, "username": user, "password": Secret(password)}
    elif ":" in user:
        raise ValueError("the URL's user has a ':', where ZooKeeper would begin the password")
    else:
        found["auth_data"] = [("digest", Secret(f"{user}:{password}"))]


def _decode(part: str, text: str, *, plus: bool = False) -> str:
    """Return a part of the URL, percent-decoded."""
    rule = "have no '%' except at the beginning of an encoded UTF-8 character: write '%25'"
    if re.search("%(?![0-9A-Fa-f]{2})", text):
        raise ValueError(f"the URL's {part} must {rule}")
    return _checked(part, rule, lambda text: (unquote_plus if plus else unquote)(text, errors="strict"), text)


def _checked(part: str, rule: str, check: Callable[[str], T], text: str) -> T:
    """Return the value of a part of the URL.

    Raises:
        ValueError: the part breaks its rule.
    """
    try:
        return check(text)
    except ValueError:
        # The message of this error could show the password, so the error below is raised outside of this block.
        pass
    raise ValueError(f"the URL's {part} must {rule}")


def _seconds(text: str) -> float:
    if not (seconds := _seconds_or_none(text)):
        raise ValueError
    return seconds


def _seconds_or_none(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) or not float(text) < LONGEST_TIMEOUT:
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
    "be a path below the root and not below /zookeeper, with no empty part, no '.' or '..', no '/' at its end, and no "
    "character that ZooKeeper refuses"
)
_SECONDS = "be a number of seconds above 0, such as 10 or 2.5", _seconds
_FILE = "be a file's name", str
# For each option, its rule and its parser.
_OF_TLS: dict[str, tuple[str, Callable[[str], object]]] = {
    "ca": _FILE,
    "certfile": _FILE,
    "keyfile": _FILE,
    "verify_certs": _flag(),
    "check_hostname": _flag(),
}
_OPTIONS: dict[str, tuple[str, Callable[[str], object]]] = {
    "timeout": _SECONDS,
    "tick": _SECONDS,
    "survive": ("be a number of seconds, such as 0 or 2.5", _seconds_or_none),
    "start_timeout": _SECONDS,
    "sasl": _one_of(*_MECHANISMS),
    "acl": _one_of(*ACLS),
    **_OF_TLS,
}


def check_lease(timeout: float, tick: float | None, margin: float, survive: float | None) -> None:
    """Refuse settings that allow no lease.

    Raises:
        TypeError: the timeout, the tick, the margin or the outage to survive is not a number.
        ValueError: the timeout, the tick, the margin or the outage to survive is out of range.
    """
    check_seconds("timeout", timeout)
    for name, value in (("tick", tick), ("survive", survive)):
        if value is not None:
            check_seconds(name, value)
    if not is_seconds(margin):
        raise TypeError(f"margin must be a number, not {type(margin).__name__}")
    if not 0 < timeout < LONGEST_TIMEOUT:
        raise ValueError(f"timeout is {timeout!r}; it must be a number of seconds, such as 10 or 2.5")
    if tick is not None and not 0 < tick <= timeout / 2:
        raise ValueError(f"tick is {tick!r}; it must be more than 0, and at most half of the timeout, {timeout:g} s")
    if not 0 <= margin < 0.5:
        raise ValueError(f"margin is {margin!r}; it must be a fraction of the timeout, from 0 to less than 0.5")
    most = longest_outage(timeout, tick, margin)
    if survive is not None and not 0 <= survive <= most:
        hint = "" if tick else "; or somewhat more, if you give the tick"
        raise ValueError(f"survive is {survive!r}; with a timeout of {timeout:g} s it is 0 to {most:.3g} s{hint}")
