"""The memory server and the real one, byte by byte: the same requests to both, the same replies and events from both.

Each function below is a talk with one server; its docstring says what it asks. The test holds it with both servers, and
compares what was said.
"""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from difflib import unified_diff
from typing import Any

import pytest

from tests.contract.raw import (
    ADD_WATCH,
    AUTH,
    CHECK,
    CHECK_WATCHES,
    CHILDREN,
    CHILDREN2,
    CLOSE,
    CONTAINER,
    CREATE,
    CREATE2,
    DELETE,
    DESCENDANTS,
    EPHEMERALS,
    EXISTS,
    GET,
    GET_ACL,
    MULTI,
    OPEN,
    PING,
    RECONFIG,
    REMOVE_WATCHES,
    SASL,
    SET,
    SET_ACL,
    SET_WATCHES,
    SET_WATCHES2,
    SYNC,
    TTL,
    WHO_AM_I,
    Line,
    Literal,
    Long,
    Talk,
    create,
    multi,
    talk_with,
)
from zkconcurrent.testing import MemoryServer, Server, find_installation

TALKS: dict[str, Callable[[Talk], None]] = {}
SCARCE = 0.5  # seconds between two looks for empty containers


@contextmanager
def both(container_check_interval: float) -> Iterator[tuple[Server, Server]]:
    """Start a real server and a memory server, with the same settings."""
    with (
        Server(container_check_interval=container_check_interval, installation=find_installation("debian")) as real,
        MemoryServer(container_check_interval=container_check_interval) as memory,
    ):
        yield real, memory


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    """Both servers; neither removes containers, which would take zxids at any time."""
    with both(3600) as servers:
        yield servers


def talk(function: Callable[[Talk], None]) -> Callable[[Talk], None]:
    """Have a function be a talk."""
    TALKS[function.__name__] = function
    return function


def compare(servers: tuple[Server, Server], root: str, hold: Callable[[Talk], None]) -> None:
    """Hold a talk with both servers at once, and compare."""

    def listen(server: Server) -> list[str]:
        with talk_with(server.hosts, root) as talk:
            hold(talk)
        return talk.lines

    with ThreadPoolExecutor() as pool:
        said = list(pool.map(listen, servers))
    assert said[0]
    differences = "\n".join(unified_diff(*said, "the real server", "the memory server", lineterm="", n=4))
    assert not differences, differences


@pytest.mark.parametrize("name", TALKS)
def test_talk(name: str, servers: tuple[Server, Server]) -> None:
    """Both servers say the same."""
    compare(servers, f"/{name}", TALKS[name])


# -- the handshake ---------------------------------------------------------------------------------------------------


@talk
def handshake(talk: Talk) -> None:
    """Old clients, which do not ask whether they may only read; other versions; passwords of a new session."""
    a = talk.open("a")
    a.ask(PING)
    talk.open("b", tail=b"").ask(PING)
    talk.open("c", tail=b"\1").ask(PING)
    talk.open("d", password=None).ask(PING)
    talk.open("e", password=b"short").ask(PING)
    talk.open("f", protocol=7).ask(PING)
    talk.open("g", tail=b"\0more").ask(PING)
    a.ask(PING)


@talk
def timeouts(talk: Talk) -> None:
    """Timeouts are clamped, also those of a session that is resumed."""
    a = talk.open("a", timeout=1)
    a.close()
    talk.open("b", timeout=2**31 - 1)
    talk.open("c", timeout=-5)
    d = talk.open("d", timeout=10_000)
    d.close()
    talk.open("e", timeout=2**31 - 1, session=d.session, password=d.password)


@talk
def seen_too_much(talk: Talk) -> None:
    """A client that has seen more than the server has is refused without a word, and takes no zxid."""
    a = talk.open("a")
    talk.open("b", seen=talk.base).ask(PING)
    talk.open("c", seen=talk.base + 1_000_000)
    talk.open("d", seen=talk.base + 1_000_000, session=a.session, password=a.password)
    a.ask(PING)
    talk.open("e", seen=-1).ask(PING)


@talk
def resumed(talk: Talk) -> None:
    """A session that is resumed loses its old connection; watches stay behind."""
    a, b = talk.open("a"), talk.open("b")
    a.ask(CREATE, *create(talk.root))
    a.ask(CREATE, *create(f"{talk.root}/e", flags=1))
    a.ask(GET, talk.root, True)
    c = talk.open("c", session=a.session, password=a.password)
    a.is_closed()
    a.closed = True
    b.ask(SET, talk.root, b"1", -1)
    c.events()
    c.ask(CREATE, *create(f"{talk.root}/f", flags=1))
    c.ask(EPHEMERALS, "/")
    c.ask(CLOSE)
    c.is_closed()
    b.ask(CHILDREN, talk.root, False)
    talk.open("d", session=c.session, password=c.password).is_closed()
    b.ask(PING)


@talk
def wrong_password(talk: Talk) -> None:
    """The old connection is closed nevertheless; the session lives."""
    a, b = talk.open("a"), talk.open("b")
    for password in (bytes(16), b"", None, b"x" * 16, a.password + b"x"):
        c = talk.open("c", session=a.session, password=password)
        c.is_closed()
    a.is_closed()
    b.ask(PING)
    talk.open("d", session=a.session, password=a.password).ask(PING)
    talk.open("e", session=12345, password=a.password).is_closed()
    b.ask(PING)


@talk
def expired(talk: Talk) -> None:
    """A silent session ends in one change, and its connection is closed; a client that comes back learns of it."""
    a, b = talk.open("a", timeout=3000), talk.open("b")
    c = talk.open("c", timeout=600)
    c.close()
    b.ask(CREATE, *create(talk.root))
    for n in range(3):
        a.ask(CREATE, *create(f"{talk.root}/{n}", flags=1))
    b.ask(EXISTS, f"{talk.root}/0", True)
    b.ask(CHILDREN, talk.root, True)
    a.is_closed()
    talk.unordered = True
    time.sleep(0.5)
    b.events()
    b.ask(CHILDREN2, talk.root, False)
    talk.open("d", session=a.session, password=a.password).is_closed()
    b.ask(PING)


@talk
def kept_alive(talk: Talk) -> None:
    """Pings, reads and writes keep a session alive, and a resume prolongs it."""
    a = talk.open("a", timeout=3000)
    for opcode, *fields in [(PING,), (EXISTS, "/none", False), (SYNC, "/"), (DELETE, "/none", -1)]:
        time.sleep(0.9)
        a.ask(opcode, *fields)
    a.close()
    time.sleep(1.2)
    b = talk.open("b", timeout=3000, session=a.session, password=a.password)
    time.sleep(2)
    b.ask(PING)


@talk
def closed(talk: Talk) -> None:
    """The end of a session: its nodes go with one zxid, its own watches fire or do not, its connection is closed."""
    a, b = talk.open("a"), talk.open("b")
    a.ask(CREATE, *create(talk.root))
    for n in range(3):
        a.ask(CREATE, *create(f"{talk.root}/{n}", flags=1))
    for line in (a, b):
        line.ask(GET, f"{talk.root}/1", True)
        line.ask(CHILDREN, talk.root, True)
    a.ask(CLOSE)
    a.is_closed()
    talk.unordered = True
    b.events()
    b.ask(CHILDREN2, talk.root, False)
    c = talk.open("c", session=a.session, password=a.password)
    c.is_closed()


@talk
def requests_behind_a_close(talk: Talk) -> None:
    """What comes behind the close of a session in one packet is not served."""
    a, b = talk.open("a"), talk.open("b")
    frames = [struct.pack("!ii", 1, CLOSE), struct.pack("!ii", 2, EXISTS) + b"\0\0\0\1/\0"]
    a.raw(b"".join(struct.pack("!i", len(frame)) + frame for frame in frames))
    frame = a.frame()
    assert frame is not None
    a.say(frame[:4].hex(), frame[12:].hex())
    b.ask(PING)


# -- zxids -----------------------------------------------------------------------------------------------------------


@talk
def zxids(talk: Talk) -> None:
    """Which requests take one: writes, also those that are refused, and the begin and end of a session."""
    a = talk.open("a")
    root = talk.root
    a.ask(CREATE, *create(root))
    for opcode, *fields in [
        (CREATE, *create(root)),
        (CREATE, *create("bad")),
        (CREATE, *create(f"{root}/x", acl=[])),
        (CREATE, *create(f"{root}/none/x")),
        (CREATE, *create(f"{root}/x", flags=9)),
        (TTL, *create(f"{root}/x", flags=5), Long(1000)),
        (CREATE2, *create(f"{root}/x", flags=6)),
        (SET, root, b"", 7),
        (SET, "", b"", 7),
        (DELETE, root, 7),
        (DELETE, "/", -1),
        (SET_ACL, root, OPEN, 7),
        (SET_ACL, root, [], -1),
        (MULTI, *multi()),
        (MULTI, *multi((CHECK, root, 0))),
        (MULTI, *multi((CHECK, root, 1))),
        (RECONFIG, None, None, "server.1=127.0.0.1:1:2;3", Long(-1)),
        (CREATE, Literal(b"\0\0\0\7bad")),
        (MULTI, Literal(b"\0\0\0\7bad")),
        (SET, Literal(b"")),
        (GET, Literal(b"")),
        (GET, root, False),
        (SYNC, root),
        (PING,),
        (EXISTS, root, False),
        (GET_ACL, root),
        (WHO_AM_I,),
        (ADD_WATCH, root, 0),
        (REMOVE_WATCHES, root, 3),
    ]:
        a.ask(opcode, *fields)
        a.ask(PING)
    b = talk.open("b")
    a.ask(PING)
    b.ask(AUTH, 0, "digest", b"x:y")
    b.ask(CLOSE)
    a.ask(PING)


# -- the order of events and replies ---------------------------------------------------------------------------------


def happen(a: Line, b: Line, path: str) -> None:
    """Have things happen at a node and below it; both connections are told."""
    for opcode, *fields in [
        (CREATE, *create(path)),
        (SET, path, b"1", -1),
        (SET, path, b"2", -1),
        (SET_ACL, path, OPEN, -1),
        (CREATE, *create(f"{path}/child")),
        (SET, f"{path}/child", b"1", -1),
        (CREATE, *create(f"{path}/child/grand")),
        (DELETE, f"{path}/child/grand", -1),
        (DELETE, f"{path}/child", -1),
        (CREATE, *create(f"{path}/child", flags=2)),
        (DELETE, f"{path}/child0000000001", -1),
        (MULTI, *multi((SET, path, b"3", -1), (CREATE, *create(f"{path}/c")), (DELETE, f"{path}/c", -1))),
        (DELETE, path, -1),
        (CREATE, *create(path)),
        (DELETE, path, -1),
    ]:
        a.ask(opcode, *fields)
        b.events()


KINDS: dict[str, tuple[int, Callable[[str], tuple[object, ...]]]] = {
    "exists": (EXISTS, lambda path: (path, True)),
    "get": (GET, lambda path: (path, True)),
    "children": (CHILDREN, lambda path: (path, True)),
    "children2": (CHILDREN2, lambda path: (path, True)),
    "persistent": (ADD_WATCH, lambda path: (path, 0)),
    "recursive": (ADD_WATCH, lambda path: (path, 1)),
}


def watching(*kinds: str) -> Callable[[Talk], None]:
    """Return a talk about watches."""

    def hold(talk: Talk) -> None:
        a, b = talk.open("a"), talk.open("b")
        a.ask(CREATE, *create(talk.root))
        for at, there in ((f"{talk.root}/node", False), (f"{talk.root}/there", True), (talk.root, True)):
            if there and at != talk.root:
                a.ask(CREATE, *create(at))
            for line in (a, b):
                for kind in kinds:
                    opcode, fields = KINDS[kind]
                    line.ask(opcode, *fields(at))
            if at != talk.root:
                if there:
                    a.ask(DELETE, at, -1)
                    b.events()
                happen(a, b, at)
            else:
                happen(a, b, f"{at}/below")

    return hold


for one in KINDS:
    TALKS[f"watch_{one}"] = watching(one)
    for other in KINDS:
        if other != one:
            TALKS[f"watch_{one}_{other}"] = watching(one, other)


@talk
def removed_watches(talk: Talk) -> None:
    """Watches of each kind are removed, or there are none; those of others are not."""
    a, b = talk.open("a"), talk.open("b")
    root = talk.root
    a.ask(CREATE, *create(root))
    for kind in (1, 2, 3, 4, 5, 0, -1):
        for name, (opcode, fields) in KINDS.items():
            a.say("--", name, kind)
            a.ask(opcode, *fields(root))
            b.ask(opcode, *fields(root))
            a.ask(CHECK_WATCHES, root, kind)
            a.ask(REMOVE_WATCHES, root, kind)
            a.ask(REMOVE_WATCHES, root, kind)
            a.ask(SET, root, b"", -1)
            a.ask(CREATE, *create(f"{root}/c"))
            a.ask(DELETE, f"{root}/c", -1)
            b.events()
            a.ask(REMOVE_WATCHES, root, 3)
            b.ask(REMOVE_WATCHES, root, 3)
    a.ask(CHECK_WATCHES, f"{root}/none", 3)
    a.ask(ADD_WATCH, root, 2)
    a.ask(ADD_WATCH, root, -1)
    a.ask(ADD_WATCH, "", 1)
    a.ask(ADD_WATCH, f"{root}/none", 1)
    b.ask(CREATE, *create(f"{root}/none"))
    a.events()


@talk
def watches_set_again(talk: Talk) -> None:
    """After a reconnect the client is told what it has missed."""
    a, b = talk.open("a"), talk.open("b")
    root = talk.root
    for path in (root, f"{root}/same", f"{root}/written", f"{root}/parent", f"{root}/gone"):
        a.ask(CREATE, *create(path))
    seen = Long(talk.base + 5)
    b.ask(SET, f"{root}/written", b"1", -1)
    b.ask(CREATE, *create(f"{root}/parent/child"))
    b.ask(DELETE, f"{root}/gone", -1)
    b.ask(CREATE, *create(f"{root}/new"))
    paths = [f"{root}/{name}" for name in ("same", "written", "parent", "gone", "new", "never")]
    a.ask(SET_WATCHES, seen, paths, [], [], xid=-8)
    a.ask(SET_WATCHES, seen, [], paths, [], xid=-8)
    a.ask(SET_WATCHES, seen, [], [], paths, xid=-8)
    for path in paths:
        b.ask(SET, path, b"2", -1)
        b.ask(CREATE, *create(f"{path}/x"))
        b.ask(DELETE, f"{path}/x", -1)
        a.events()
    b.ask(CREATE, *create(paths[-1]))
    a.events()
    a.ask(SET_WATCHES2, seen, [], [], [], paths[:1], paths[1:2], xid=-8)
    for path in paths:
        b.ask(SET, path, b"2", -1)
        b.ask(CREATE, *create(f"{path}/y"))
        b.ask(DELETE, f"{path}/y", -1)
        a.events()


# -- multi -----------------------------------------------------------------------------------------------------------


@talk
def multis(talk: Talk) -> None:
    """Results, also of requests that are refused; what one operation sees of those before it."""
    a, b = talk.open("a"), talk.open("b")
    r = talk.root
    a.ask(CREATE, *create(r))
    a.ask(CHILDREN, r, True)
    b.ask(CHILDREN, r, True)
    for parts in [
        [],
        [(CHECK, r, -1)],
        [(CHECK, r, 0), (CHECK, f"{r}/none", -1), (CHECK, r, 0)],
        [(CREATE, *create(f"{r}/a")), (CREATE2, *create(f"{r}/b")), (CONTAINER, *create(f"{r}/c", flags=4))],
        [(CREATE, *create(f"{r}/d", flags=4)), (CONTAINER, *create(f"{r}/e")), (CREATE2, *create(f"{r}/f", flags=4))],
        [
            (CREATE, *create(f"{r}/s", flags=2)),
            (CREATE, *create(f"{r}/s", flags=3)),
            (CREATE2, *create(f"{r}/s", flags=2)),
        ],
        [
            (CREATE, *create(f"{r}/g")),
            (CREATE, *create(f"{r}/g/h")),
            (SET, f"{r}/g/h", b"x", 0),
            (CHECK, f"{r}/g/h", 1),
        ],
        [(SET, f"{r}/g", b"1", 0), (SET, f"{r}/g", b"22", 1), (SET, f"{r}/g", b"333", 2)],
        [(DELETE, f"{r}/g", -1)],
        [(DELETE, f"{r}/g/h", -1), (DELETE, f"{r}/g", -1), (CREATE, *create(f"{r}/g"))],
        [(DELETE, f"{r}/g", -1), (SET, f"{r}/g", b"", -1)],
        [(CREATE, *create(f"{r}/i", flags=1)), (CREATE, *create(f"{r}/i/j"))],
        [(CREATE, *create(f"{r}/k")), (CREATE, *create(f"{r}/k"))],
        [(SET, r, b"1", 7), (SET, r, b"1", -1)],
        [(SET, r, b"1", -1), (SET, r, b"1", 7)],
        [(CREATE, *create("bad")), (SET, r, b"1", -1)],
        [(CREATE, *create(f"{r}/l", acl=[])), (SET, r, b"1", -1)],
        [(SET, r, b"1", -1), (CREATE, *create(f"{r}/l", flags=9)), (SET, r, b"1", -1)],
        [(SET, r, b"1", -1), (TTL, *create(f"{r}/l", flags=5), Long(100))],
        [(SET, r, b"1", -1), (TTL, *create(f"{r}/l", flags=0), Long(100))],
        [(SET, r, b"1", -1), (TTL, *create(f"{r}/m", flags=0), Long(-1))],
        [(CREATE, *create(f"{r}/n/o")), (CREATE, *create(f"{r}/n"))],
        [(CREATE, *create(f"{r}/n")), (CREATE, *create(f"{r}/n/o"))],
        [(SET, r, b"1", -1), (GET, r, False)],
        [(CHILDREN, r, False)],
        [(SYNC, r)],
        [(SET, r, None, -1)],
        [(DELETE, "/zookeeper", -1)],
        [(99, r)],
        [(SET_ACL, r, OPEN, -1)],
    ]:
        a.ask(MULTI, *multi(*parts))
        b.events()
    a.ask(MULTI, *multi((CHECK, r, -1))[:-1])
    a.ask(MULTI, Literal(struct.pack("!i?i", -1, True, 7) + b"more"))
    a.ask(CHILDREN2, r, False)
    for name in "abcdefgikn":
        a.ask(EXISTS, f"{r}/{name}", False)
    a.ask(EPHEMERALS, r)


# -- paths, errors and which of them comes first ---------------------------------------------------------------------


@talk
def paths(talk: Talk) -> None:
    """Which paths are good, for which requests."""
    a = talk.open("a")
    r = talk.root
    a.ask(CREATE, *create(r))
    names = [
        "",
        "/",
        "x",
        "/x",
        "//x",
        f"{r}/",
        f"{r}//x",
        f"{r}/.",
        f"{r}/..",
        f"{r}/./x",
        f"{r}/../x",
        f"{r}/...",
        f"{r}/.x",
    ]
    names += [
        f"{r}/x.",
        f"{r}/x..",
        f"{r}/x/../y",
        "/zookeeper",
        "/zookeeper/x",
        "/zookeeper/quota",
        "/zookeeper/config",
    ]
    odd = (
        "\0\1\x1f \x7f\x9f\xa0\xad\u200b\ud7ff\ue000\uf8ff\uf900\uffef\ufff0\ufffd\uffff\U00010000\U0001f512\U0010ffff"
    )
    names += [f"{r}/x{each}" for each in odd]
    for name in names:
        for opcode, *fields in [
            (EXISTS, name, False),
            (CREATE, *create(name)),
            (CREATE, *create(name, flags=2)),
            (SET, name, b"", -1),
            (CHILDREN, name, False),
            (GET_ACL, name),
            (SYNC, name),
            (MULTI, *multi((CHECK, name, -1))),
            (DELETE, name, -1),
        ]:
            # The root's own numbers depend on what was before.
            if name in ("", "/") and opcode in (EXISTS, CREATE, SET, CHILDREN, GET_ACL):
                continue
            # What Java can't keep in one char, it sends back in a way of its own.
            if opcode != SYNC or name[-1:] <= "\uffff":
                a.ask(opcode, *fields)
    for field in (Literal(b"\0\0\0\2\xff/"), Literal(b"\0\0\0\3/\xc0\x80"), Literal(b"\0\0\0\4/\xed\xa0\x80"), None):
        for opcode, *fields in [
            (EXISTS, field, False),
            (CREATE, field, b"", OPEN, 0),
            (SET, field, b"", -1),
            (GET, field, False),
            (CHILDREN2, field, False),
            (DELETE, field, -1),
            (SYNC, field),
            (ADD_WATCH, field, 0),
            (REMOVE_WATCHES, field, 3),
            (EPHEMERALS, field),
            (DESCENDANTS, field),
            (GET_ACL, field),
            (SET_ACL, field, OPEN, -1),
        ]:
            if field is None or opcode != SYNC:
                a.ask(opcode, *fields)


@talk
def precedence(talk: Talk) -> None:
    """Of two errors, one is told."""
    a = talk.open("a")
    r = talk.root
    a.ask(CREATE, *create(r))
    a.ask(CREATE, *create(f"{r}/e", flags=1))
    a.ask(CREATE, *create(f"{r}/p"))
    a.ask(CREATE, *create(f"{r}/p/c"))
    a.ask(CREATE, *create(f"{r}/closed", acl=[(1, "world", "anyone")]))
    a.ask(CREATE, *create(f"{r}/reads", acl=[(30, "world", "anyone")]))
    a.ask(CREATE, *create(f"{r}/reads/c"))
    for opcode, *fields in [
        (CREATE, *create(f"{r}/none/bad/")),
        (CREATE, *create(f"{r}/none//x")),
        (CREATE, *create("bad", acl=[])),
        (CREATE, *create("bad", flags=9)),
        (CREATE, *create("bad", flags=5)),
        (CREATE, *create(f"{r}/none/x", acl=[])),
        (CREATE, *create(f"{r}/none/x", flags=9, acl=[])),
        (CREATE, *create(f"{r}/e", acl=[])),
        (CREATE, *create(f"{r}/e")),
        (CREATE, *create(f"{r}/e/x")),
        (CREATE, *create(f"{r}/e/x/y")),
        (CREATE, *create(f"{r}/e/x/")),
        (CREATE, *create(f"{r}/closed/x")),
        (CREATE, *create(f"{r}/closed/x/")),
        (CREATE, *create(f"{r}/closed/x", acl=[])),
        (CREATE, *create(f"{r}/p", b"", 2)),
        (CREATE, *create(f"{r}/", b"", 2)),
        (CREATE, *create(f"{r}//", b"", 2)),
        (DELETE, f"{r}/p", 7),
        (DELETE, f"{r}/p", -1),
        (DELETE, f"{r}/none/x", 7),
        (DELETE, f"{r}/closed/x", -1),
        (DELETE, f"{r}/reads/x", 7),
        (DELETE, f"{r}/reads/c", 7),
        (DELETE, f"{r}/reads/c", -2),
        (SET, f"{r}/closed", b"", 7),
        (SET, f"{r}/none", b"", 7),
        (SET, f"{r}/none/", b"", 7),
        (SET, r, b"", -2),
        (SET_ACL, f"{r}/none", [], 7),
        (SET_ACL, f"{r}/none/", [], 7),
        (SET_ACL, f"{r}/closed", OPEN, 7),
        (SET_ACL, r, OPEN, 7),
        (GET, f"{r}/reads", False),
        (CHILDREN, f"{r}/reads", False),
        (CHILDREN2, f"{r}/reads", True),
        (EXISTS, f"{r}/reads", True),
        (GET_ACL, f"{r}/reads"),
        (DESCENDANTS, f"{r}/reads"),
        (MULTI, *multi((CHECK, f"{r}/reads", 7))),
        (GET, f"{r}/none", True),
        (CHILDREN, f"{r}/none", True),
        (GET_ACL, f"{r}/none"),
        (DESCENDANTS, f"{r}/none"),
        (DESCENDANTS, r),
        (DESCENDANTS, f"{r}/p"),
        (DESCENDANTS, f"{r}/"),
    ]:
        a.ask(opcode, *fields)
    a.ask(CREATE, *create(f"{r}/none"))


@talk
def versions(talk: Talk) -> None:
    """Each kind of version, and the numbers of sequential nodes, also after deletes."""
    a = talk.open("a")
    r = talk.root
    a.ask(CREATE2, *create(r, None))
    a.ask(GET, r, False)
    for flags in (2, 3, 0, 2):
        a.ask(CREATE2, *create(f"{r}/n", b"data", flags))
        a.ask(EXISTS, r, False)
    a.ask(DELETE, f"{r}/n0000000000", 0)
    a.ask(EXISTS, r, False)
    a.ask(CREATE2, *create(f"{r}/", b"", 2))
    a.ask(CREATE2, *create(f"{r}/n", b"", 2))
    a.ask(CHILDREN2, r, False)
    for version in (0, 0, 1, -1, 2):
        a.ask(SET, r, b"x" * (version + 3), version)
        a.ask(SET_ACL, r, [(31, "world", "anyone"), (1, "ip", "127.0.0.1")], version)
        a.ask(GET_ACL, r)
    a.ask(SET, r, None, -1)
    a.ask(GET, r, False)
    a.ask(GET, "/zookeeper/config", False)
    a.ask(GET, "/zookeeper/quota", False)
    a.ask(GET, "/zookeeper", False)
    a.ask(GET_ACL, "/zookeeper/config")
    a.ask(GET_ACL, "/zookeeper")
    a.ask(GET_ACL, "/zookeeper/quota")
    a.ask(CHILDREN2, "/zookeeper", False)
    a.ask(DELETE, f"{r}/n", 0)
    a.ask(DELETE, f"{r}/n0000000001", 1)
    a.ask(EXISTS, r, False)


def containers(talk: Talk) -> None:
    """The opcode makes them, in a multi the flags; empty ones that had children go."""
    a, b = talk.open("a"), talk.open("b")
    r = talk.root
    a.ask(CREATE, *create(r))
    makers = {
        f"{r}/{name}{flags}": (opcode, flags)
        for name, opcode in (("create", CREATE), ("create2-", CREATE2), ("container", CONTAINER))
        for flags in (0, 1, 2, 3, 4)
    }
    made = []
    for path, (opcode, flags) in makers.items():
        a.ask(opcode, *create(path, flags=flags))
        a.ask(CHILDREN2, r, False)
    for name, opcode, flags in (("m", CREATE, 4), ("n", CONTAINER, 4), ("o", CONTAINER, 0), ("p", CREATE2, 4)):
        a.ask(MULTI, *multi((opcode, *create(f"{r}/{name}", flags=flags))))
    for name in a.names(r):
        made.append(f"{r}/{name}")
        a.ask(CREATE, *create(f"{made[-1]}/child"))
        a.ask(EXISTS, made[-1], False)
    a.ask(CONTAINER, *create(f"{r}/fresh"))
    a.ask(CONTAINER, *create(f"{r}/nested"))
    a.ask(CONTAINER, *create(f"{r}/nested/inner"))
    a.ask(CREATE, *create(f"{r}/nested/inner/leaf"))
    # All at once, lest the server looks for empty ones meanwhile.
    paths = [f"{r}/nested/inner/leaf", *(f"{path}/child" for path in made)]
    a.ask(MULTI, *multi(*((DELETE, path, -1) for path in paths)))
    left: list[str] = []
    while left != (left := b.names(r)):
        time.sleep(4 * SCARCE)
    b.ask(CHILDREN, r, False)


def test_containers() -> None:
    """Both servers remove the same nodes."""
    with both(SCARCE) as servers:
        compare(servers, "/containers", containers)


def test_restart() -> None:
    """What a server knows after it was killed: nodes, sessions and zxids, but no watches."""

    def restart(talk: Talk) -> None:
        a, c = talk.open("a"), talk.open("c")
        r = talk.root
        a.ask(CREATE2, *create(r, b"data"))
        a.ask(CREATE2, *create(f"{r}/e", flags=1))
        for n in range(3):
            a.ask(CREATE2, *create(f"{r}/n", flags=2))
            a.ask(SET, r, b"x" * n, -1)
        a.ask(SET_ACL, r, [(15, "world", "anyone")], -1)
        a.ask(DELETE, f"{r}/n0000000002", -1)
        a.ask(CONTAINER, *create(f"{r}/c"))
        a.ask(CREATE, *create(f"{r}/c", acl=[]))  # refused, with a zxid
        a.ask(CHILDREN2, r, True)
        c.ask(CLOSE)
        next(server for server in servers if server.port == talk.address[1]).restart()
        for line in (a, c):
            line.is_closed()
            line.closed = True
        b = talk.open("b", session=a.session, password=a.password)
        talk.open("d", session=c.session, password=c.password).is_closed()
        b.ask(PING)
        b.ask(CREATE2, *create(f"{r}/n", flags=2))
        b.ask(CHILDREN2, r, False)
        b.ask(GET_ACL, r)
        for name in ("e", "n0000000001", "c"):
            b.ask(GET, f"{r}/{name}", False)
        b.ask(EPHEMERALS, "/")
        b.ask(DELETE, f"{r}/e", 0)
        b.ask(EPHEMERALS, "/")

    with both(3600) as servers:
        compare(servers, "/restart", restart)


# -- access rights ---------------------------------------------------------------------------------------------------


@talk
def access(talk: Talk) -> None:
    """Schemes, their ids, and what they allow."""
    a, b = talk.open("a"), talk.open("b")
    r = talk.root
    user = "me:Jeu6fBKAyFlNC7JFTVSvsFLmoNU="
    a.ask(CREATE, *create(r))
    acls = {
        "none": None,
        "empty": [],
        "nobody": [(31, "world", "nobody")],
        "unknown": [(31, "kerberos", "me")],
        "null": [(31, None, None)],
        "nameless": [(31, "world", None)],
        "auth": [(31, "auth", "")],
        "auth0": [(31, "auth", None)],
        "unknown0": [(31, "kerberos", None)],
        "digest0": [(31, "digest", None)],
        "ip0": [(31, "ip", None)],
        "auth2": [(31, "auth", ""), (1, "world", "anyone")],
        "auth3": [(1, "world", "anyone"), (16, "auth", "x")],
        "digest": [(31, "digest", user)],
        "digest2": [(31, "digest", "me")],
        "digest3": [(31, "digest", "me:x:y")],
        "digest4": [(31, "digest", "me:")],
        "digest5": [(31, "digest", ":x")],
        "digest6": [(31, "digest", "me:x:")],
        "ip": [(31, "ip", "127.0.0.1")],
        "ip2": [(31, "ip", "127.0.0.0/8")],
        "ip3": [(31, "ip", "10.0.0.0/8")],
        "ip4": [(31, "ip", "here")],
        "ip5": [(31, "ip", "127.0.0.1/99")],
        "super": [(31, "super", "")],
        "sasl": [(31, "sasl", "me")],
        "x509": [(31, "x509", "CN=me")],
        "twice": [(1, "world", "anyone"), (1, "world", "anyone"), (2, "world", "anyone")],
        "zero": [(0, "world", "anyone")],
        "many": [(127, "world", "anyone")],
    }
    a.ask(WHO_AM_I)
    for round_ in range(3):
        for name, acl in acls.items():
            path = f"{r}/{name}{round_}"
            a.ask(CREATE, *create(path, acl=acl))
            for line in (a, b):
                line.ask(GET_ACL, path)
                line.ask(GET, path, False)
                line.ask(CHILDREN, path, False)
                line.ask(SET, path, b"", -1)
                line.ask(CREATE, *create(f"{path}/c"))
                line.ask(DELETE, f"{path}/c", -1)
                line.ask(MULTI, *multi((CHECK, path, -1)))
                line.ask(EXISTS, path, False)
            b.ask(SET_ACL, path, OPEN, 7)
            b.ask(SET_ACL, path, acl, 0)
            b.ask(DELETE, path, -1)
        a.ask(AUTH, 0, "digest", b"me:secret" if round_ == 0 else b"other")
        a.ask(WHO_AM_I)
    a.ask(AUTH, 0, "ip", b"1.2.3.4")
    a.ask(WHO_AM_I)
    a.ask(AUTH, 0, "digest", b"")
    a.ask(WHO_AM_I)
    a.ask(AUTH, 0, "digest", None)
    a.is_closed()
    b.ask(AUTH, 0, "world", b"anyone")
    b.is_closed()
    c = talk.open("c", session=b.session, password=b.password)
    c.ask(AUTH, 0, "kerberos", b"me")
    c.is_closed()
    d = talk.open("d", session=b.session, password=b.password)
    d.ask(AUTH, 0, None, b"me", xid=17)
    d.is_closed()


@talk
def sasl(talk: Talk) -> None:
    """A server that is not set up for it says so without an error."""
    a = talk.open("a")
    for token in (b"token", b""):
        a.ask(SASL, token)
    a.ask(PING)
    for token in (None, Literal(b"\0")):
        b = talk.open("b")
        b.ask(SASL, token)
        b.is_closed()


# -- malformed bytes -------------------------------------------------------------------------------------------------


@talk
def malformed(talk: Talk) -> None:
    """Bytes that are no request end their connection and nothing else; a request with a bad body is refused."""
    other = talk.open("other")
    for data in [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\x10\0\0",
        b"\0\0\0\0",
        b"\0\0\0\4\0\0\0\1",
        b"GET / HTTP/1.1\r\n\r\n",
        b"xxxx",
        struct.pack("!i", 44) + struct.pack("!iqiq", 0, 0, 1000, 0) + struct.pack("!i", -7) + bytes(16),
        struct.pack("!i", 44) + struct.pack("!iqiq", 0, 0, 1000, 0) + struct.pack("!i", 1000) + bytes(16),
    ]:
        line = talk.line("new")
        line.raw(data)
        line.say(data)
        line.is_closed()
        a = talk.open("a")
        a.raw(data)
        a.say(data)
        a.is_closed()
        other.ask(PING)
    for opcode in (CREATE, CREATE2, CONTAINER, DELETE, EXISTS, GET, SET, GET_ACL, SET_ACL, CHILDREN, CHILDREN2, SYNC):
        a = talk.open("a")
        for body in (
            b"",
            b"\0",
            b"\0\0\0\5/",
            b"\xff\xff\xff\xfe",
            b"\x7f\xff\xff\xff",
            b"\0\0\0\1/",
            b"\0\0\0\1/\0\0\0",
        ):
            a.ask(opcode, Literal(body))
        a.ask(PING, Literal(b"more"))
    for opcode in (MULTI, SET_WATCHES, SET_WATCHES2, EPHEMERALS, DESCENDANTS, ADD_WATCH, REMOVE_WATCHES, CHECK_WATCHES):
        a = talk.open("a")
        for body in (b"", b"\0", b"\0\0\0\5/", b"\xff\xff\xff\xfe", b"\x7f\xff\xff\xff", b"\0\0\0\1/", b"\0" * 12):
            a.ask(opcode, Literal(body))
        a.ask(PING)
    a = talk.open("a")
    a.ask(AUTH, Literal(b"\0\0"), patience=1)
    other.ask(PING)


@talk
def unknown_requests(talk: Talk) -> None:
    """They are refused, and the connection is closed; the session lives on."""
    other = talk.open("other")
    for opcode in (0, 10, 22 + 30, 99, 108, 500, 2**31 - 1, -1, -2, -100):
        a = talk.open("a")
        a.ask(opcode, "/", False)
        a.is_closed()
        other.ask(PING)


@talk
def in_pieces(talk: Talk) -> None:
    """Requests may come in any pieces, and many at once."""
    a = talk.open("a")
    frame = struct.pack("!iii", 8, 5, PING) * 3
    for n in range(0, len(frame), 5):
        a.raw(frame[n : n + 5])
        time.sleep(0.01)
    for _ in range(3):
        came = a.frame()
        assert came is not None
        a.say(came[:4].hex(), came[12:].hex())
    frames = [struct.pack("!ii", n, EXISTS) + b"\0\0\0\5/none\0" for n in range(50)]
    a.raw(b"".join(struct.pack("!i", len(frame)) + frame for frame in frames))
    for _ in range(50):
        came = a.frame()
        assert came is not None
        a.say(came[:4].hex(), came[12:].hex())


@talk
def large(talk: Talk) -> None:
    """Frames up to a mebibyte less one byte are read."""
    a = talk.open("a")
    r = talk.root
    fixed = 4 + 4 + 4 + len(r) + 4 + 4
    a.ask(CREATE, *create(r))
    for length in (0xFFFFF - fixed - 1, 0xFFFFF - fixed, 0xFFFFF - fixed + 1):
        body = (
            struct.pack("!i", len(r)) + r.encode() + struct.pack("!i", length) + bytes(length) + struct.pack("!i", -1)
        )
        line = talk.open("b")
        line.send(struct.pack("!ii", 1, SET) + body)
        frame = line.frame()
        line.say(len(body), frame is not None and frame[12:16].hex())
        a.ask(EXISTS, r, False)


# -- random histories ------------------------------------------------------------------------------------------------


class History:
    """A random history: three connections ask for anything, and each hears of what the others do.

    Args:
        talk: where it is held.
        seed: of the choices, which do not depend on the replies.
    """

    def __init__(self, talk: Talk, seed: int) -> None:
        self._talk = talk
        self._random = random.Random(seed)
        self._lines = [talk.open(name) for name in "abc"]
        self._names = 0

    def run(self, steps: int) -> None:
        """Let so many things happen."""
        self._lines[0].ask(CREATE, *create(self._talk.root))
        for _ in range(steps):
            n = self._random.randrange(len(self._lines))
            self._random.choices([self._ask, self._resume, self._end], [60, 1, 1])[0](n)
            self._talk.unordered = False
            for line in self._lines:
                line.events()

    def _ask(self, n: int) -> None:
        opcode, *fields = self._request()
        self._lines[n].ask(opcode, *fields)

    def _resume(self, n: int) -> None:
        old = self._lines[n]
        if self._random.random() < 0.5:
            old.close()
        self._lines[n] = self._open(session=old.session, password=old.password)
        if self._random.random() < 0.5:
            paths = [[self._path() for _ in range(2)] for _ in range(5)]
            self._lines[n].ask(SET_WATCHES2, Long(self._talk.base + self._random.randrange(100)), *paths, xid=-8)

    def _end(self, n: int) -> None:
        self._talk.unordered = True  # the nodes of a session go in no order
        self._lines[n].ask(CLOSE)
        for line in self._lines[:n] + self._lines[n + 1 :]:
            line.events()
        self._lines[n] = self._open()

    def _open(self, **options: Any) -> Line:
        self._names += 1
        return self._talk.open(f"line{self._names}", **options)

    def _path(self) -> str:
        names = self._random.choices(
            ["a", "b", "c0000000001", "", "."], [8, 8, 4, 1, 0.2], k=self._random.choice([0, 1, 1, 1, 2, 2, 3])
        )
        return "/".join([self._talk.root, *names])

    def _create(self, ttl: float = 0.2) -> tuple[Any, ...]:
        flags = self._random.choices([0, 1, 2, 3, 4, 9, 5], [10, 6, 3, 3, 1, 0.2, ttl])[0]
        acl = self._random.choices([OPEN, [(1, "world", "anyone")], [(13, "world", "anyone")], []], [30, 1, 2, 0.5])[0]
        data = self._random.choice([b"", b"data", None])
        path = self._path()
        return create(
            path[:-1] + "c" if flags in (2, 3) and len(path) > len(self._talk.root) else path, data, flags, acl
        )

    def _version(self) -> int:
        return self._random.choices([-1, 0, 1, 2], [6, 4, 2, 1])[0]

    def _request(self) -> tuple[Any, ...]:
        path, flag = self._path(), self._random.random() < 0.4
        parts = [self._part() for _ in range(self._random.randrange(5))]
        requests: list[tuple[float, tuple[Any, ...]]] = [
            (12, (CREATE, *self._create())),
            (6, (CREATE2, *self._create())),
            (2, (CONTAINER, *self._create())),
            (10, (DELETE, path, self._version())),
            (8, (SET, path, self._random.choice([b"", b"12", None]), self._version())),
            (7, (EXISTS, path, flag)),
            (7, (GET, path, flag)),
            (5, (CHILDREN, path, flag)),
            (5, (CHILDREN2, path, flag)),
            (1, (GET_ACL, path)),
            (1, (SET_ACL, path, self._random.choice([OPEN, OPEN, [(16, "world", "anyone")]]), self._version())),
            (1, (SYNC, path)),
            (12, (MULTI, *multi(*parts))),
            (3, (ADD_WATCH, path, self._random.randrange(2))),
            (3, (REMOVE_WATCHES, path, self._random.randrange(1, 4))),
            (1, (CHECK_WATCHES, path, self._random.randrange(1, 4))),
            (1, (EPHEMERALS, path)),
            (1, (DESCENDANTS, path)),
            (1, (self._random.choice([CREATE, MULTI, SET, GET, ADD_WATCH]), Literal(self._random.randbytes(9)))),
        ]
        weights, choices = zip(*requests, strict=True)
        return self._random.choices(choices, weights)[0]

    def _part(self) -> tuple[Any, ...]:
        path = self._path()
        return self._random.choice(
            [
                (CREATE, *self._create(0)),  # with a time to live, the real server stumbles here
                (self._random.choice([CREATE2, CONTAINER]), *self._create(0)),
                (DELETE, path, self._version()),
                (SET, path, b"3", self._version()),
                (CHECK, path, self._version()),
            ]
        )


@pytest.mark.parametrize("seed", range(int(os.environ.get("RAW_HISTORIES", "10"))))
def test_history(seed: int, servers: tuple[Server, Server]) -> None:
    """Whatever clients ask, both servers say the same."""
    compare(servers, f"/history{seed}", lambda talk: History(talk, seed).run(200))
