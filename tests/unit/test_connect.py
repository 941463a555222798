"""kazoo's client is given the parts of the URL; an error names the wrong part, and never a password."""

from __future__ import annotations

import logging
import re
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_acl

import zkconcurrent
from zkconcurrent._client import connect as _connect
from zkconcurrent._client import secrets
from zkconcurrent._client.url import parse
from zkconcurrent._command.main import main
from zkconcurrent._command.outcome import Exit

SECRET = "s3cr3t"
TLS = Path(__file__).parents[1] / "integration" / "tls"  # certificates, and keys; one is encrypted, by "secret"
DIRECTORY = [*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True, create=True)]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[_connect.Client]:
    """The clients that `connect` makes, which are not started; no file or package is looked for."""
    made: list[_connect.Client] = []
    monkeypatch.setattr(_connect, "_start", lambda client, *_: made.append(client))
    monkeypatch.setattr(_connect, "check_files", lambda _: None)
    monkeypatch.setattr(_connect, "find_spec", lambda _: True)
    return made


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("zk://a", {"hosts": "a", "chroot": ""}),
        ("ZK://a:1,b,10.0.0.1:65535/app/x", {"hosts": "a:1,b,10.0.0.1:65535", "chroot": "/app/x"}),
        ("zk://a:1\n", {"hosts": "a:1", "chroot": ""}),
        ("zk://h,[::1]:2183,[fe80::2]", {"hosts": "h,[::1]:2183,[fe80::2]", "chroot": ""}),
        ("zk://a/l%C3%B6ck%20s", {"hosts": "a", "chroot": "/löck s"}),
        ("zk://a/b?timeout=2.5&start_timeout=3", {"hosts": "a", "chroot": "/b", "timeout": 2.5, "start_timeout": 3.0}),
        ("zk://a?survive=0", {"hosts": "a", "chroot": "", "survive": 0.0}),
        ("zk://u:p%40%2F%3A@a", {"hosts": "a", "chroot": "", "auth_data": [("digest", "u:p@/:")]}),
        (
            "zk://u:p@a?sasl=DIGEST-MD5",
            {"hosts": "a", "chroot": "", "sasl_options": {"mechanism": "DIGEST-MD5", "username": "u", "password": "p"}},
        ),
        ("zk://a?sasl=GSSAPI", {"hosts": "a", "chroot": "", "sasl_options": {"mechanism": "GSSAPI"}}),
        (
            "zks://a?ca=%2Fetc%2Fca.pem&certfile=/c&keyfile=/k&verify_certs=false&check_hostname=true",
            {
                "hosts": "a",
                "chroot": "",
                "use_ssl": True,
                "ca": "/etc/ca.pem",
                "certfile": "/c",
                "keyfile": "/k",
                "verify_certs": False,
                "check_hostname": True,
            },
        ),
    ],
)
def test_what_is_said(url: str, said: dict[str, Any]) -> None:
    """Each part of a URL becomes the argument of that meaning, and may be what that may be."""
    assert parse(url) == said


@pytest.mark.fault(259)
@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("localhost:2181", "must be zk://.*, such as zk://localhost:2181"),
        ("http://a", "scheme must be zk, or zks for TLS, such as zk://localhost:2181"),
        ("memory://", "must be memory: or memory:name, without //"),
        ("zk://", "host 1 of the URL must be"),
        ("zk://[::1", "host 1 of the URL must be"),
        ("zk://a;b", "host 1 of the URL must be a name of letters, .*; between hosts is a ','"),
        ("zk://${HOST}:2181", "host 1 of the URL must be a name of letters"),
        ("zk://a:65536", "port of host 1"),
        ("zk://a:٢", "port of host 1"),
        ("zk://a//b", "URL's path must be .* no empty part"),
        ("zk://a/b/", "URL's path must be .* at its end"),
        ("zk://a/%zz", "URL's path must have no '%'"),
        ("zk://a#b", "begins with '#'"),
        (
            "zk://a?tiemout=1",
            r"unknown option \(did you mean 'timeout'\?\); the options are timeout, tick, survive, start_timeout, ",
        ),
        ("zk://a?acl=mine", "option 'acl' must be creator or open"),
        ("zk://a?acl=creator", "acl=creator needs credentials"),
        ("zk://a?timeout=", "option 'timeout' has no value"),
        ("zk://a?survive=-1", "option 'survive' must be a number of seconds, such as 0"),
        (
            "zk://a?timeout=10&survive=6",
            r"survive is 6\.0; with a timeout of 10 s it is 0 to 5\.\d+ s; or somewhat more",
        ),
        ("zk://a?timeout=1&timeout=2", "option 'timeout' twice"),
        ("zk://a?ca=/x", "option 'ca' is for TLS: write zks://"),
        ("zks://a?verify_certs=no", "option 'verify_certs' must be true or false"),
        ("zks://a?verify_certs=false&check_hostname=true", "check_hostname needs verify_certs"),
        ("zk://a?sasl=PLAIN", "option 'sasl' must be DIGEST-MD5 or GSSAPI"),
        ("zk://a?sasl=DIGEST-MD5", "needs a user and a password"),
        ("zk://u:p@a?sasl=GSSAPI", "has a user"),
        ("zk://u@a", "needs a user and a password"),
        ("zk://u%3Av:p@a", "user has a ':'"),
    ],
)
def test_what_is_wrong_is_named(url: str, told: str) -> None:
    """A wrong URL is a ValueError that names the part and says what is allowed; nothing is opened for it.

    Fault 259: so are options of TLS of which one rules out the other, and a character of no host's name.
    """
    with pytest.raises(ValueError, match=told):
        zkconcurrent.connect(url)


@pytest.mark.fault(259)
@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"max_request": "1000000"}, TypeError, "max_request must be an int, not str"),
        *(({name: "5"}, TypeError, f"{name} must be a number of seconds, not str") for name in ("timeout", "survive")),
        ({"max_request": 0}, ValueError, "max_request must be one or more: 0"),
        ({"margin": "0.02"}, TypeError, "margin must be a number, not str"),
        ({"start_timeout": "1"}, TypeError, "start_timeout must be a number of seconds, not str"),
        ({"auth_data": "digest"}, TypeError, "auth_data must be a list of pairs"),
        ({"logger": "kazoo"}, TypeError, "logger must be a logging.Logger, not str"),
        ({"log_waits_after": "600"}, TypeError, "log_waits_after must be a number of seconds, not str"),
        ({"timeout": Decimal("10")}, TypeError, "timeout must be a number of seconds, not Decimal"),
        ({"log_waits_after": 0}, ValueError, "log_waits_after must be more than 0, or None for never: 0"),
        ({"timout": 4}, TypeError, r"no argument 'timout' \(did you mean 'timeout'\?\)"),
    ],
)
def test_a_setting_of_another_type(options: dict[str, Any], error: type[Exception], told: str) -> None:
    """Such as the text of an environment variable; it is named before anything is opened.

    Fault 165: so is a Decimal, which does not add to a clock.
    """
    with pytest.raises(error, match=told):
        zkconcurrent.connect("zk://a", **options)


def shown(error: BaseException | None) -> str:
    """Return all that an error, and those that it came from, could show to anybody."""
    told = ""
    while error is not None:
        told += f"{error!r}{error}{error.args!r}{vars(error)}{getattr(error, '__notes__', '')}"
        told += f"{getattr(error, 'object', '')!r}"  # of a UnicodeDecodeError
        error = error.__cause__ or error.__context__  # also a suppressed one: a collector of errors may look
    return told


# Each of which has a password where SECRET is.
WITH_PASSWORDS = [
    *("zk://u:SECRET", "zk://u:SECRET,b", "zk://u:SECRET?timeout=1", "zk://u@SECRET:a", "zk:/u:SECRET@a"),
    *("SECRET://u@a", "u:SECRET://a", "zk://a:1/x?SECRET", "zk://a?SECRET=1", "zk://a?timeout=SECRET"),
    *("zk://a?start_timeout=SECRET%ff", "zk://a?acl=SECRET", "zk://a/SECRET/", "zk://a/SECRET%ff"),
    *("zk://a/zookeeper/SECRET", "zk://a#SECRET", "zk://a,[SECRET]", "zk://a:SECRET:2181", "zk://u:SECRET@a:x"),
    *("zk://u:SECRET@", "zk://u:SECRET@a?what=1", "zk://u:SECRET%zz@a", "zk://u:SECRET/1@a", "zk://u:?SECRET@a"),
    *("zk://u:1#/SECRET@a", "zk://:SECRET@a", "http://u:SECRET@a", "memory://u:SECRET@a", "zk://u%3A:SECRET@a"),
    "zk://u:SECRET@a?sasl=GSSAPI",
]


@pytest.mark.fault(68)
@pytest.mark.parametrize("url", WITH_PASSWORDS)
def test_no_error_shows_a_password(url: str) -> None:
    """No error about a URL, with its whole chain, shows the password in it."""
    with pytest.raises(ValueError, match="URL") as raised:
        zkconcurrent.connect(url.replace("SECRET", SECRET))
    assert SECRET not in shown(raised.value)


@pytest.mark.fault(68)
@given(
    st.text("/:@?#%&=,[] \\é\0.a1", max_size=8),
    st.text("/:@?#%&=,[] \\é\0.a1", max_size=8),
    st.sampled_from(["zk://u:{}@a:1", "zk://u:{}@a/b", "zks://{}@a", "zk://u:{}", "zk:/u:{}@a", "zk://a/{}?timeout=1"]),
)
def test_no_error_shows_any_password(before: str, after: str, template: str) -> None:
    """With any characters in a password that was not encoded, and any break of the URL by it, no error shows it."""
    told = ""
    try:
        parse(template.format(f"{before}{SECRET}{after}"))
    except ValueError as error:
        told = shown(error)
    assert SECRET not in told


@pytest.mark.fault(68)
def test_no_repr_shows_a_password() -> None:
    """A client's repr shows its hosts and its chroot, and no credentials."""
    client = _connect.Client(hosts="a:1,[::1]/app", auth_data=[("digest", f"u:{SECRET}")])
    assert repr(client) == "<zkconcurrent.Client zk://a:1,[::1]:2181/app: LOST>"
    assert client.auth_data == {("digest", f"u:{SECRET}")}
    sasl = _connect.Client(sasl_options={"mechanism": "DIGEST-MD5", "username": "u", "password": SECRET})
    assert sasl._connection.sasl_options["password"] == SECRET
    for each in (client.auth_data, sasl._connection.sasl_options, vars(client), vars(sasl)):
        assert SECRET not in repr(each)


@pytest.mark.fault(191)
@pytest.mark.parametrize(
    "options",
    [
        {"auth_data": [("digest", f"u:{SECRET}".encode())]},
        {"auth_data": [("digest", None)]},
        {"sasl_options": {"mechanism": "DIGEST-MD5", "username": "u", "password": SECRET.encode()}},
    ],
)
def test_credentials_are_text(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A credential that is no text is a TypeError that does not show it, and the user is never another's."""
    monkeypatch.setattr(_connect, "find_spec", lambda _: True)
    with pytest.raises(TypeError, match="must be a str") as raised:
        zkconcurrent.connect("zk://127.0.0.1:1", start_timeout=0.1, **options)
    assert SECRET not in shown(raised.value)


ACL = [make_acl("world", "anyone", all=True)]


@pytest.mark.fault(67)
@pytest.mark.parametrize(
    ("url", "options", "default", "directory"),
    [
        ("zk://a", {}, OPEN_ACL_UNSAFE, None),
        ("zk://u:p@a", {}, CREATOR_ALL_ACL, DIRECTORY),
        ("zk://u:p@a?acl=open", {}, OPEN_ACL_UNSAFE, None),
        ("zk://u:p@a", {"acl": "open"}, OPEN_ACL_UNSAFE, None),
        ("zk://a", {"acl": ACL}, ACL, None),
        ("zk://u:p@a", {"default_acl": ACL}, ACL, None),
        ("zk://a", {"auth_data": [("digest", "u:p")]}, CREATOR_ALL_ACL, DIRECTORY),
        ("zk://a?sasl=GSSAPI", {}, CREATOR_ALL_ACL, DIRECTORY),
        ("zks://a?certfile=/c", {}, OPEN_ACL_UNSAFE, None),
        ("zks://a?certfile=/c&acl=creator", {}, CREATOR_ALL_ACL, DIRECTORY),
    ],
)
def test_by_whom_it_may_be_used(
    url: str, options: dict[str, Any], default: object, directory: object, made: list[_connect.Client]
) -> None:
    """With credentials, a node is its creator's, but for the nodes above; unless something else is said."""
    zkconcurrent.connect(url, **options)
    assert made[0].default_acl == default
    assert made[0].directory_acl == directory


@pytest.mark.parametrize(
    ("url", "options", "error", "told"),
    [
        ("zk://a", {"acl": "creator"}, ValueError, "needs credentials"),
        ("zk://u:p@a", {"acl": "everybody"}, ValueError, "one of creator, open"),
        ("zk://u:p@a", {"acl": ["creator"]}, TypeError, "a list of kazoo.security.ACL"),
        ("zk://a", {"default_acl": "open"}, TypeError, "default_acl must be a list of kazoo.security.ACL"),
        ("zk://u:p@a?acl=open", {"acl": "open"}, ValueError, "acl is in the URL and"),
        ("zk://u:p@a", {"acl": "open", "default_acl": ACL}, ValueError, "acl and default_acl"),
    ],
)
def test_an_acl_that_is_wrong(url: str, options: dict[str, Any], error: type[Exception], told: str) -> None:
    """An ACL that is no ACL, that nobody would meet, or that is said twice is refused, and nothing is opened."""
    with pytest.raises(error, match=told):
        zkconcurrent.connect(url, **options)


@given(st.text(min_size=1), st.text(min_size=1).filter(lambda text: ":" not in text))
def test_any_password(password: str, user: str) -> None:
    """A user and a password in percent-encoding arrive as they are, with any characters."""
    from urllib.parse import quote

    try:
        url = f"zk://{quote(user, safe='')}:{quote(password, safe='')}@a"
    except UnicodeEncodeError:
        return  # a lone surrogate has no encoding
    assert parse(url)["auth_data"] == [("digest", f"{user}:{password}")]


def test_a_warning_once_a_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """While no server replies, the log stays short: what kazoo says again within a minute is logged at DEBUG."""
    log = secrets.RedactedLog(logging.getLogger("kazoo.client"))
    for now in (0.0, 59.0, 60.0):
        monkeypatch.setattr(secrets, "monotonic", partial(float, now))
        for why in ("refused", "time-out"):
            log.warning("Connection dropped: %s", why)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told == ["Connection dropped: refused", "Connection dropped: time-out"] * 2


def test_what_is_said_twice() -> None:
    """A setting in both the URL and the arguments is a ValueError that names it."""
    with pytest.raises(ValueError, match="timeout is in the URL and in the arguments"):
        zkconcurrent.connect("zk://a?timeout=1", timeout=2)
    with pytest.raises(ValueError, match="auth_data is in the URL"):
        zkconcurrent.connect("zk://u:p@a", auth_data=[("digest", "u:p")])


def test_sasl_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pure-sasl is missing, to ask for SASL is an error at once that says so."""
    monkeypatch.setattr(_connect, "find_spec", lambda _: None)
    with pytest.raises(RuntimeError, match="pip install pure-sasl"):
        zkconcurrent.connect("zk://u:p@a?sasl=DIGEST-MD5")


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("zks://a", {}, True),
        ("zks://a?check_hostname=false", {}, False),
        ("zk://a", {"use_ssl": True}, True),
        ("zk://a", {"use_ssl": True, "check_hostname": False}, False),
    ],
)
def test_the_host_name_is_checked(
    url: str, options: dict[str, Any], expected: bool, made: list[_connect.Client]
) -> None:
    """Over TLS the certificate must be the host's, unless the URL or an argument says that nobody looks."""
    zkconcurrent.connect(url, **options)
    assert (made[0].use_ssl, made[0].check_hostname) == (True, expected)


@pytest.mark.fault(201, 401)
@pytest.mark.parametrize(("url", "key"), [("zks://a?certfile=c", "c"), ("zks://a?certfile=c&keyfile=k", "k")])
def test_a_certificate_goes_with_its_key(url: str, key: str, made: list[_connect.Client]) -> None:
    """One file may have both; kazoo would connect without the certificate."""
    zkconcurrent.connect(url)
    assert (made[0].certfile, made[0].keyfile) == ("c", key)
    # Where it is None, OpenSSL asks for a password at the terminal.
    assert made[0].keyfile_password == ""


@pytest.mark.fault(401)
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ca": TLS / "none.pem"}, "ca can't be used: No such file"),
        ({"ca": __file__}, "ca can't be used: it must be a PEM file of certificates"),
        ({"certfile": TLS / "ca.pem"}, "certfile or keyfile can't be used: they must be PEM files of a certificate"),
        ({"certfile": TLS / "encrypted.pem", "keyfile_password": "wrong"}, "an encrypted key needs keyfile_password"),
        ({"keyfile": TLS / "server.pem"}, "keyfile needs certfile"),
        ({"ca": TLS / "ca.pem", "certfile": TLS / "server.pem"}, None),
        ({"certfile": TLS / "encrypted.pem", "keyfile_password": "secret"}, None),
    ],
)
def test_files_that_tls_cannot_use(
    options: dict[str, Any], told: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error comes at once and names the option, of a command too; nothing asks at the terminal."""
    monkeypatch.setattr(_connect, "_start", lambda *_: None)
    url = f"zks://a?{urlencode({name: value for name, value in options.items() if name != 'keyfile_password'})}"
    if told is None:
        zkconcurrent.connect("zks://a", **options)
        return
    with pytest.raises(ValueError, match=told):
        zkconcurrent.connect("zks://a", **options)
    assert main(["ls", "/", "--url", url]) == Exit.USAGE
    assert re.search(told, capsys.readouterr().err)


@pytest.mark.fault(259)
@pytest.mark.parametrize("timeout", [None, "5", 0, -1, float("nan"), 10**400, 3e6])
def test_a_timeout_is_a_number_of_seconds(timeout: Any) -> None:
    """Another one is told at once, and not as if no server had replied."""
    kind = ValueError if isinstance(timeout, int | float) else TypeError
    with pytest.raises(kind, match=r"timeout .* number of seconds"):
        zkconcurrent.connect("zk://127.0.0.1:1", timeout=timeout, start_timeout=0.1)
