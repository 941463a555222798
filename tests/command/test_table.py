"""Command lines that end at once: of each, the exit code and what it says, by the state of the server."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

import zkconcurrent
from tests.command.conftest import Call

NO_PATH = "zkconcurrent: there is no such path; `ls -r` lists what is there\n"
NO_LOCK = (
    "zkconcurrent: nobody holds a lock there, or waits for one; events, items, values, maps and groups are not listed\n"
)
FREE = "{p}/free has no lock that anybody holds or waits for\n"
UNREAD = "may not be read by this client"
NEEDS_BOTH = "both -y and --holder are needed"
NO_SECONDS = "invalid number of seconds value"
BELOW = "there is no such path below {p}, the chroot of the URL; `ls -r` lists what is there\n"
LOST = "there is no {p}/missing, the chroot of the URL: it is wrong, or no client has used it yet\n"
Row = tuple[str, int, str, str]

# The words, the exit code, standard output, and what standard error has.
ROWS: list[Row] = [
    ("--version", 0, f"{zkconcurrent.__version__}\n", ""),
    ("show {p}/free", 0, FREE, ""),
    ("ls {p}/free", 0, "", NO_LOCK),
    ("ls -r {p}/free", 0, "", NO_LOCK),
    ("show {p}/none", 66, "", NO_PATH),
    ("ls {p}/none", 66, "", NO_PATH),
    ("ls {p}/none --watch --interval 0.1", 66, "", NO_PATH),
    ("break -y --holder 1 {p}/none", 66, "", NO_PATH),
    ("break -y --holder 1 {p}/free", 66, "", "nobody holds {p}/free"),
    ("break -y --holder 1 {p}/held", 75, "", "has the token"),
    ("break -y {p}/held", 64, "", NEEDS_BOTH),
    ("break --holder 1 {p}/held", 64, "", NEEDS_BOTH),
    ("doctor --scratch {p}/held", 64, "", "a lock uses this path"),
    # Kazoo's own locks.
    ("ls {p}/kazoo", 0, "", "kazoo's own recipes use {p}/kazoo: their nodes do not tell who holds\n"),
    ("show {p}/kazoo", 0, "{p}/kazoo: kazoo's own recipes use it: 1 nodes, which do not tell who holds\n", ""),
    ("break -y --holder 1 {p}/kazoo", 78, "", "kazoo's own recipes use {p}/kazoo"),
    # Where the URL is, and what it says.
    ("show {p}/free --url {url}", 0, FREE, ""),
    ("--url={url} show {p}/free", 0, FREE, ""),
    (
        "--url {secret} show {p}/free",
        0,
        FREE,
        "the password in --url shows in `ps`: use $ZKCONCURRENT_URL or --url-file",
    ),
    ("show /free --url {there}", 0, "/free has no lock that anybody holds or waits for\n", ""),
    *((f"{command} --url {{there}} {{p}}/free", 66, "", BELOW) for command in ("ls", "show", "break -y --holder 1")),
    *((f"{command} --url {{lost}} /free", 66, "", LOST) for command in ("ls", "show", "break -y --holder 1")),
    ("show {p}/part/secret", 77, "", "may not read here"),
    ("ls {p}/part", 77, "", "{p}/part/secret"),
    ("ls --url zk://127.0.0.1:1?start_timeout=1", 69, "", "127.0.0.1:1: Connection refused"),
    # The words are wrong.
    ("list", 64, "", "'list'"),
    ("ls relative", 64, "", "path must start with '/'"),
    ("doctor --scratch relative", 64, "", "path must start with '/'"),
    ("completion ksh", 64, "", "'ksh'"),
    *((f"ls --interval={odd}", 64, "", NO_SECONDS) for odd in ("0", "0.09", "-1", "x", "nan", "inf")),
    ("--url zk://h ls --url-file /dev/null", 64, "", "--url and --url-file: give one of them\n"),
    ("ls --url zk://h --url-file /dev/null", 64, "", "--url and --url-file: give one of them\n"),
    ("ls --url http://h", 64, "", "the URL's scheme"),
    ("ls --url memory:", 64, "", "one process"),
    ("ls --url-file /no/such", 64, "", "No such file"),
    ("ls --url-file /dev/null", 64, "", "its first line is empty: /dev/null"),
    ("run /p true", 64, "", "write `--`"),
    ("run /p --", 64, "", "write `--`"),
    ("run -- true", 64, "", "PATH"),
    ("run p -- true", 64, "", "path must start with '/'"),
    ("run -F /p -- true", 64, "", "needs a living process"),
    ("run -n -w 1 /p -- true", 64, "", "not allowed with"),
    ("run -w soon /p -- true", 64, "", NO_SECONDS),
    ("run /p /p -- true", 64, "", "twice"),
    ("run --permits 2 /p /q -- true", 64, "", "one path"),
    ("run --once-per 9 -s /p -- true", 64, "", "alone"),
    ("run --until-success /p -- true", 64, "", "--once-per"),
    ("run --status-fd 77 /p -- true", 64, "", "--status-fd 77"),
    (f"run --status-fd {10**20} /p -- true", 64, "", "too large"),
    # No command says that a path is free whose holder it may not read.
    *((f"{command} {{p}}/hidden", 77, "", UNREAD) for command in ("ls", "show", "break -y --holder 1")),
]


@pytest.fixture
def there(zk: KazooClient, zk_path: str, url: str) -> dict[str, str]:
    """What stands in braces: a path with a free one, one that is held, and some that this client may not read."""
    other = [make_acl("digest", "other:xyz", all=True)]
    for name in ("free", "held", "hidden", "kazoo", "part"):
        zk.ensure_path(f"{zk_path}/{name}")
    for name, acl in (("held", None), ("hidden", other)):
        zk.create(f"{zk_path}/{name}/_c_{uuid.uuid4()}-lock-", acl=acl, ephemeral=True, sequence=True)
    zk.create(f"{zk_path}/kazoo/{uuid.uuid4().hex}__lock__", ephemeral=True, sequence=True)
    zk.create(f"{zk_path}/part/secret", acl=other)
    there, lost = (url.replace("?", f"{zk_path}{more}?") for more in ("", "/missing"))
    return {"p": zk_path, "url": url, "there": there, "lost": lost, "secret": url.replace("//", "//user:word@")}


@pytest.mark.fault(312, 328, 429)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_line(call: Call, there: dict[str, str], row: Row) -> None:
    """A command ends with the code of what it has found, and says what was wrong, after the program's name."""
    words, code, out, err = (each.format(**there) if isinstance(each, str) else each for each in row)
    ended, written, said = call(*words.split())
    assert (ended, written, bool(said)) == (code, out, bool(err))
    assert err in said
    assert said.startswith("zkconcurrent: " if err else "")


def test_a_file_with_the_url(call: Call, there: dict[str, str], tmp_path: Path) -> None:
    """A file may begin with an editor's mark and end with a newline; of a password there, no warning is given."""
    file = tmp_path / "url"
    for text in (there["url"], f"{there['secret']}\n", f"\ufeff{there['url']}\n"):
        file.write_text(text)
        assert call("show", f"{there['p']}/free", "--url-file", file, url="") == (0, FREE.format(**there), "")


def test_no_url(call: Call) -> None:
    """Without a URL, a command is a wrong use."""
    says = "zkconcurrent: no server: set $ZKCONCURRENT_URL, or give --url-file or --url\n"
    assert call("ls", url="") == (64, "", says)
