"""The ZooKeeper in memory without sockets: plans and changes, sessions by a clock of the test, and any bytes at all."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.raw import (
    CLOSE,
    CREATE,
    DELETE,
    EXISTS,
    GET,
    MULTI,
    OPEN,
    PING,
    SET,
    SET_ACL,
    SET_WATCHES2,
    Literal,
    create,
    multi,
    pack,
)
from zkconcurrent._memory.changes import (
    Change,
    Check,
    Code,
    Create,
    Delete,
    Opened,
    Operation,
    Refused,
    SetAcl,
    SetData,
)
from zkconcurrent._memory.service import Limits, Service
from zkconcurrent._memory.tcp import Journal
from zkconcurrent._memory.tree import Tree
from zkconcurrent._memory.wire import Connection

HELLO = struct.pack("!iiqiq", 44, 0, 0, 1000, 0) + pack(bytes(16))


class Bench:
    """A service with a clock that the test sets, in milliseconds."""

    def __init__(self, tree: Tree | None = None) -> None:
        self.now = 0
        self.changes: list[tuple[int, Change]] = []
        self.service = Service(
            tree or Tree(),
            Limits(),
            lambda: self.now,
            lambda: 1_000_000 + self.now,
            lambda zxid, change: self.changes.append((zxid, change)),
        )

    def connect(self, hello: bytes = HELLO) -> Connection:
        """Open a connection with a session."""
        connection = Connection(self.service, "127.0.0.1", lambda _: None, lambda _: None)
        connection.receive(hello)
        connection.output.clear()
        return connection


def ask(connection: Connection, opcode: int, *fields: object) -> bytes:
    """Send a request; return what came."""
    frame = struct.pack("!ii", 1, opcode) + pack(*fields)
    connection.receive(struct.pack("!i", len(frame)) + frame)
    came = bytes(connection.output)
    connection.output.clear()
    return came


def error(reply: bytes) -> int:
    """Return the error in a reply."""
    code: int = struct.unpack_from("!i", reply, 16)[0]
    return code


def shown(tree: Tree) -> dict[str, object]:
    """Return all that a tree is."""
    nodes = {
        path: (node.data, node.acl, node.owner, *node.stat(), [*node.children]) for path, node in tree.nodes.items()
    }
    sessions = {number: (session.timeout, [*session.paths]) for number, session in tree.sessions.items()}
    return {"nodes": nodes, "sessions": sessions, "containers": [*tree.containers], "zxid": tree.zxid}


def any_operation(chosen: random.Random) -> Operation:
    """Return a random operation."""
    path = "/" + "/".join(chosen.choices("abc", k=chosen.randrange(1, 4)))
    version = chosen.choice([-1, -1, 0, 1])
    return chosen.choice(
        [
            Create(path, b"1", flags=chosen.randrange(4)),
            Create(path, None, flags=0, container=True),
            Delete(path, version),
            SetData(path, b"22", version),
            SetAcl(path, ((1, "world", "anyone"),), version),
            Check(path, version),
        ]
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_alters_nothing_and_a_change_says_all(seed: int, tmp_path: Path) -> None:
    """A second tree that applies the changes, and one that is read from their journal, are equal to the first."""
    chosen, first, second = random.Random(seed), Tree(), Tree()
    journal = Journal(tmp_path / "journal")
    refused = 0
    for zxid in range(1, 300):
        change: Change = ()
        before = shown(first)
        if zxid in (1, 2):
            change = (Opened(zxid, 1000),)
        elif chosen.random() < 0.02:
            change = first.plan_end(1)
        else:
            operations = [any_operation(chosen) for _ in range(chosen.choice([1, 1, 2, 5]))]
            try:
                change = first.plan(chosen.choice([1, 2]), operations, 1000 + zxid)
            except Refused:
                refused += 1
        assert shown(first) == before
        assert first.apply(change, zxid) == second.apply(change, zxid)
        journal.write(zxid, change)
    assert 20 < refused < 297
    assert shown(first) == shown(second) == shown(journal.read())
    journal.close()


def test_a_journal_that_is_cut_short(tmp_path: Path) -> None:
    """A change whose write a kill has cut short is none; the journal goes on before it."""
    path = tmp_path / "journal"
    journal = Journal(path)
    for zxid, name in enumerate("abc", 1):
        tree = journal.read()
        journal.write(zxid, tree.plan(0, [Create(f"/{name}", b"data" * 10)], 0))
    journal.close()
    whole = path.read_bytes()
    for length in range(len(whole) // 2, len(whole)):
        path.write_bytes(whole[:length])
        journal = Journal(path)
        tree = journal.read()
        known = {name for name in "abc" if f"/{name}" in tree.nodes}
        assert known in ({"a"}, {"a", "b"})
        journal.write(tree.zxid + 1, tree.plan(0, [Create("/d")], 0))
        assert {name for name in "abcd" if f"/{name}" in journal.read().nodes} == known | {"d"}
        journal.close()


def test_the_sessions_of_a_journal_expire() -> None:
    """A server that starts with sessions gives each its timeout to come back; what comes back keeps its nodes."""
    first = Bench()
    one, other = first.connect(), first.connect()
    for connection, path in ((one, "/one"), (other, "/other")):
        ask(connection, CREATE, *create(path, flags=1))
    tree = Tree()
    for zxid, change in first.changes:
        tree.apply(change, zxid)
    second = Bench(tree)
    password = struct.pack("!qq", one.session, one.session ^ 0x5DEECE66D5DEECE6)
    back = second.connect(struct.pack("!iiqiq", 44, 0, 0, 1000, one.session) + pack(password))
    assert back.session == one.session
    for second.now in range(0, 2000, 100):
        ask(back, PING)
        second.service.run_chores()
    assert {*second.service.tree.sessions} == {one.session}
    assert {path for path in second.service.tree.nodes if path.startswith("/o")} == {"/one"}
    assert second.connect().session > other.session


def frames() -> st.SearchStrategy[bytes]:
    """Return bytes that are nearly requests."""
    paths = st.sampled_from(["/", "/a", "/a/b", "", "//", "/zookeeper", "\0"])
    bodies = st.one_of(
        st.binary(max_size=40),
        st.builds(
            lambda path, data, flags: pack(*create(path, data, flags)), paths, st.binary(max_size=9), st.integers(-1, 9)
        ),
        st.builds(lambda path, number: pack(path, number), paths, st.integers(-2, 9)),
        st.builds(lambda path, flag: pack(path, flag), paths, st.booleans()),
        st.builds(lambda path, data: pack(path, data, -1), paths, st.binary(max_size=9)),
        st.builds(
            lambda path, data: pack(*multi((CREATE, *create(path, data)), (DELETE, path, -1))),
            paths,
            st.binary(max_size=9),
        ),
    )
    opcodes = st.one_of(
        st.sampled_from([CREATE, DELETE, EXISTS, GET, SET, SET_ACL, MULTI, SET_WATCHES2, CLOSE, 100]),
        st.integers(-12, 110),
    )
    whole = st.builds(
        lambda opcode, body: pack(Literal(struct.pack("!iii", 8 + len(body), 7, opcode) + body)), opcodes, bodies
    )
    return st.one_of(whole, whole, whole, st.binary(max_size=20))


@given(st.lists(frames(), max_size=12), st.booleans(), st.integers(1, 7))
def test_any_bytes(data: list[bytes], has_session: bool, piece: int) -> None:
    """They are answered, or end their connection; the other connection and the tree are as good as before."""
    bench = Bench()
    other, connection = bench.connect(), bench.connect(HELLO if has_session else b"")
    sent = b"".join(data)
    for n in range(0, len(sent), piece):
        connection.receive(sent[n : n + piece])
    assert not other.ended
    assert error(ask(other, CREATE, *create("/other", acl=OPEN))) in (0, Code.NODE_EXISTS)
    tree = Tree()
    for zxid, change in bench.changes:
        tree.apply(change, zxid)
    assert shown(tree) == shown(bench.service.tree)
    for path, node in tree.nodes.items():
        assert node.size == len(node.children)
        assert path in ("", "/") or path.rpartition("/")[2] in tree.nodes[path.rpartition("/")[0]].children
