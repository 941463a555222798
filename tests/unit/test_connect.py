"""What a URL says is what kazoo's client is given; what is wrong with it is named, and never a password."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zkconcurrent
from zkconcurrent import _connect
from zkconcurrent._connect import _parse

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("zk://a", {"hosts": "a", "chroot": ""}),
        ("zk://a/", {"hosts": "a", "chroot": ""}),
        ("ZK://a:1,b,10.0.0.1:65535/app/x", {"hosts": "a:1,b,10.0.0.1:65535", "chroot": "/app/x"}),
        ("zk://h,[::1]:2183,[fe80::2]", {"hosts": "h,[::1]:2183,[fe80::2]", "chroot": ""}),
        ("zk://a/l%C3%B6ck%20s", {"hosts": "a", "chroot": "/löck s"}),
        ("zk://a?timeout=10", {"hosts": "a", "chroot": "", "timeout": 10.0}),
        ("zk://a/b?timeout=2.5&start_timeout=3", {"hosts": "a", "chroot": "/b", "timeout": 2.5, "start_timeout": 3.0}),
        ("zk://u:p%40%2F%3A@a", {"hosts": "a", "chroot": "", "auth_data": [("digest", "u:p@/:")]}),
        ("zk://u:p:q@a", {"hosts": "a", "chroot": "", "auth_data": [("digest", "u:p:q")]}),
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
    """Each part of a URL becomes the argument of that meaning, and nothing else does."""
    assert _parse(url) == said


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "must be zk://"),
        ("localhost:2181", "must be zk://"),
        ("http://a", "scheme is 'http'.* zk, or zks"),
        ("zk://", "host of the URL is ''"),
        ("zk://a,,b", "host of the URL is ''"),
        ("zk://[::1", r"host of the URL is '\[::1'"),
        ("zk://a b", "host of the URL is 'a b'"),
        ("zk://a:", "port of 'a' in the URL is ''; .* 1 to 65535"),
        ("zk://a:0", "port of 'a'"),
        ("zk://a:65536", "port of 'a' .* '65536'"),
        ("zk://a,b:x", "port of 'b' .* 'x'"),
        ("zk://a:٢", "port of 'a'"),
        ("zk://a:1:2", "port of 'a' .* '1:2'"),
        ("zk://a//b", "URL's path is wrong: .* no empty part"),
        ("zk://a/../b", "URL's path is wrong: .*'..'"),
        ("zk://a/b/", "URL's path is wrong: .* at its end"),
        ("zk://a/%00", "URL's path is wrong"),
        ("zk://a/%zz", "URL's path has a '%'"),
        ("zk://a/%ff", "URL's path has a '%'"),
        ("zk://a#b", "begins with '#'"),
        ("zk://a?tiemout=1", "an option 'tiemout'; there are timeout, start_timeout, sasl, ca"),
        ("zk://a?timeout", "option 'timeout' has no value"),
        ("zk://a?timeout=", "option 'timeout' has no value"),
        ("zk://a?timeout=-1", "option 'timeout' is wrong: '-1' is no number of seconds"),
        ("zk://a?timeout=0", "option 'timeout' is wrong"),
        ("zk://a?timeout=nan", "option 'timeout' is wrong"),
        ("zk://a?timeout=1&timeout=2", "option 'timeout' twice"),
        ("zk://a?ca=/x", "option 'ca' is for TLS: write zks://"),
        ("zks://a?verify_certs=no", "option 'verify_certs' is wrong: 'no' is neither 'true' nor 'false'"),
        ("zk://a?sasl=PLAIN", "option 'sasl' is wrong: 'PLAIN' is none of DIGEST-MD5, GSSAPI"),
        ("zk://a?sasl=DIGEST-MD5", "needs a user and a password"),
        ("zk://u:p@a?sasl=GSSAPI", "has a user"),
        ("zk://u@a", "needs a user and a password"),
        ("zk://@a", "needs a user and a password"),
        ("zk://:p@a", "needs a user and a password"),
        ("zk://u:@a", "needs a user and a password"),
        ("zk://u%3Av:p@a", "user has a ':'"),
    ],
)
def test_what_is_wrong_is_named(url: str, told: str) -> None:
    """A wrong URL is a ValueError that names the part and says what is allowed; nothing is opened for it."""
    with pytest.raises(ValueError, match=told):
        zkconcurrent.connect(url)


@pytest.mark.parametrize(
    "url",
    [
        f"zk://u:{SECRET}@a:x",
        f"zk://u:{SECRET}@",
        f"zk://u:{SECRET}@a?what=1",
        f"zk://u:{SECRET}@a/..",
        f"zk://u:{SECRET}@a#b",
        f"zk://u:{SECRET}%zz@a",
        f"zk://u:{SECRET}%ff@a",
        f"zk://u:12/{SECRET}@a",
        f"zk://u:{SECRET}/1@a",
        f"zk://u:?{SECRET}@a",
        f"zk://u:#{SECRET}@a",
        f"zk://u:1#/{SECRET}@a",
        f"zk://:{SECRET}@a",
        f"zk://{SECRET}@a",
        f"http://u:{SECRET}@a",
        f"u:{SECRET}@a",
        f"zk://u:{SECRET}@[a",
        f"zk://u%3A:{SECRET}@a",
        f"zk://u:{SECRET}@a?sasl=GSSAPI",
    ],
)
def test_no_error_shows_a_password(url: str) -> None:
    """Whatever is wrong with a URL, no error of its chain shows the password in it."""
    with pytest.raises(ValueError, match="URL") as raised:
        zkconcurrent.connect(url)
    error: BaseException | None = raised.value
    while error is not None:
        assert SECRET not in f"{error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_no_repr_shows_a_password() -> None:
    """A client's repr shows its hosts and its chroot, and no credentials."""
    client = _connect.Client(hosts="a:1,[::1]/app", auth_data=[("digest", f"u:{SECRET}")])
    assert repr(client) == "<zkconcurrent.Client zk://a:1,[::1]:2181/app: LOST>"


@given(st.text(min_size=1), st.text(min_size=1).filter(lambda text: ":" not in text))
def test_any_password(password: str, user: str) -> None:
    """A user and a password in percent-encoding arrive as they are, whatever characters they have."""
    from urllib.parse import quote

    try:
        url = f"zk://{quote(user, safe='')}:{quote(password, safe='')}@a"
    except UnicodeEncodeError:
        return  # a lone surrogate has no encoding
    assert _parse(url)["auth_data"] == [("digest", f"{user}:{password}")]


@given(st.text(max_size=30))
def test_any_text(text: str) -> None:
    """Whatever follows the scheme is read, or is a ValueError about a URL; never another error."""
    said = ""
    try:
        _parse(f"zk://{text}")
    except ValueError as error:
        said = str(error)
    assert not said or "URL" in said


def test_what_is_said_twice() -> None:
    """What both the URL and the arguments say is a ValueError that names it."""
    with pytest.raises(ValueError, match="timeout is in the URL and in the arguments"):
        zkconcurrent.connect("zk://a?timeout=1", timeout=2)
    with pytest.raises(ValueError, match="auth_data is in the URL"):
        zkconcurrent.connect("zk://u:p@a", auth_data=[("digest", "u:p")])
    with pytest.raises(ValueError, match="start_timeout is in"):
        zkconcurrent.connect("zk://a?start_timeout=1", start_timeout=2)
    with pytest.raises(ValueError, match="hosts is in"):
        zkconcurrent.connect("zk://a", hosts="b")


def test_what_kazoo_does_not_take() -> None:
    """An argument that is not kazoo's is a TypeError, and a URL that is no string too."""
    with pytest.raises(TypeError, match="unexpected keyword"):
        zkconcurrent.connect("zk://a", tiemout=1)
    with pytest.raises(TypeError, match="must be a str"):
        zkconcurrent.connect(b"zk://a")  # type: ignore[arg-type]


def test_sasl_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pure-sasl is missing, to ask for SASL is an error at once that says so."""
    monkeypatch.setattr(_connect, "find_spec", lambda _: None)
    with pytest.raises(RuntimeError, match="pip install pure-sasl"):
        zkconcurrent.connect("zk://u:p@a?sasl=DIGEST-MD5")


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("zks://a", {}, True),
        ("zks://a?verify_certs=false", {}, False),
        ("zks://a?check_hostname=false", {}, False),
        ("zk://a", {"use_ssl": True}, True),
        ("zk://a", {"use_ssl": True, "check_hostname": False}, False),
    ],
)
def test_the_host_name_is_checked(
    url: str, options: dict[str, Any], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS the certificate must be the host's, unless the URL or an argument says that nobody looks."""
    made: list[_connect.Client] = []
    monkeypatch.setattr(_connect, "_start", lambda client, *_: made.append(client))
    zkconcurrent.connect(url, **options)
    assert (made[0].use_ssl, made[0].check_hostname) == (True, expected)
