"""`zkconcurrent break`: ends the very hold that was named, after a grace, and nothing else."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import threading
from contextlib import suppress

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

import zkconcurrent
from tests.command.conftest import Call, Run, end_of
from tests.conftest import Connect, InThread
from tests.helpers.contenders import children
from tests.helpers.eventually import eventually


def test_a_named_hold(call: Call, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The hold with that token ends, the next waiter acquires, and what is printed bounds the tokens to refuse."""
    lock, other = zkconcurrent.Lock(zk, zk_path), zkconcurrent.Lock(connect(), zk_path)
    lock.acquire()
    token = lock.fencing_token
    waiting = in_thread(lambda: other.acquire() and other.fencing_token)
    code, out, err = call("break", "-y", "--holder", token, "--grace", 0.1, zk_path)
    asked, told = err.splitlines()
    assert code == 0
    holder = f"thread {threading.current_thread().name!r} of process {os.getpid()} on host {socket.gethostname()!r}"
    assert asked == f"zkconcurrent: asked {holder} to release; waiting for 0.1 s"
    assert told == f"zkconcurrent: {holder} may still be at work: end it, too"
    assert out.startswith(f"broken: {zk_path}/_c_")
    assert out.endswith(f"refuse writes whose token is below {token + 1}\n")
    assert waiting.result() > token
    assert lock.lost.wait(30)
    with pytest.raises(zkconcurrent.LockLostError) as lost:
        lock.release()
    assert lost.value.cause is zkconcurrent.LossCause.NODE_DELETED
    other.release()


def test_a_holder_that_releases_when_asked(look: Run, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A holder that listens, as Curator's revocable locks do, releases within the grace, and nothing is broken."""
    with zkconcurrent.Lock(connect(), zk_path) as _:
        (node,) = children(zk, zk_path)
        process = look("break", "-y", "--holder", zk.get(f"{zk_path}/{node}")[1].czxid, "--grace", 1000, zk_path)
        eventually(lambda: zk.get(f"{zk_path}/{node}")[0] == b"__REVOKE__")
    code, out, err = end_of(process)
    assert (code, out.split(":")[0]) == (0, "gone")
    assert " its holder has released it, " in err.splitlines()[-1]


@pytest.mark.fault(432)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_break_that_is_given_up(
    look: Run, call: Call, zk: KazooClient, connect: Connect, zk_path: str, number: signal.Signals
) -> None:
    """While a holder is asked, `show` says so; after Ctrl-C its node tells again who holds.

    Fault 432: so it is once the terminal was closed.
    """
    with zkconcurrent.Lock(connect(), zk_path) as _:
        (node,) = children(zk, zk_path)
        data, stat = zk.get(f"{zk_path}/{node}")
        process = look("break", "-y", "--holder", stat.czxid, "--grace", 1000, zk_path)
        eventually(lambda: zk.get(f"{zk_path}/{node}")[0] == b"__REVOKE__")
        assert "\n    asked to release: " in call("show", zk_path)[1]
        process.send_signal(number)
        code, _, err = end_of(process)
        told = "zkconcurrent: the hold goes on, and its holder is asked no longer"
        assert (code, err.splitlines()[-1]) == (-number, told)
        assert zk.get(f"{zk_path}/{node}")[0] == data
        code, out, _ = call("show", zk_path)
        assert (code, f"of process {os.getpid()} on" in out, "asked" in out) == (0, True, False)


def test_never_another(call: Call, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A token of no hold, also a waiter's, breaks nothing: 75."""
    lock = zkconcurrent.ReadWriteLock(zk, zk_path)
    other = zkconcurrent.ReadWriteLock(connect(), zk_path)
    with lock.write_lock:
        (holder,) = children(zk, zk_path)
        waiting = in_thread(lambda: other.write_lock.acquire() and other.write_lock.release())
        while len(children(zk, zk_path)) < 2:
            pass
        waiter = next(node for node in children(zk, zk_path) if node != holder)
        for token in (zk.get(f"{zk_path}/{waiter}")[1].czxid, 1):
            code, out, err = call("break", "-y", "--holder", token, zk_path)
            assert (code, out, "has the token" in err) == (75, "", True)
        assert set(children(zk, zk_path)) == {holder, waiter}
    waiting.result()


def test_a_detached_hold(call: Call, zk: KazooClient, zk_path: str) -> None:
    """A detached hold ends by its token."""
    lock = zkconcurrent.DetachedLock(zk, zk_path, "job-17")
    lock.acquire()
    token = lock.fencing_token
    assert call("break", "-y", "--holder", token, zk_path)[0] == 0
    assert not lock.locked()
    with suppress(zkconcurrent.LockLostError):
        lock.release()


@pytest.mark.fault(443, 444)
def test_a_queue(call: Call, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """A consumer that waits holds nothing to break, also by the path of the part; who has claimed an item keeps it."""
    queue = zkconcurrent.Queue(zk, zk_path)

    def refuses(part: str, code: int) -> None:
        (node,) = eventually(lambda: children(zk, f"{zk_path}/{part}"))
        token = zk.get(f"{zk_path}/{part}/{node}")[1].czxid
        for path in (zk_path, f"{zk_path}/{part}"):
            assert call("break", path, "-y", "--grace", 0, "--holder", token)[0] == code
        assert children(zk, f"{zk_path}/{part}") == [node]

    idle = in_thread(queue.get)
    refuses("consumers", 66)
    queue.put(b"item")
    idle.result()
    queue.put(b"item")
    with queue.claim():
        refuses("claims", 78)


@pytest.mark.fault(359, 432)
def test_what_it_may_not(call: Call, zk: KazooClient, zk_path: str) -> None:
    """Without the right to write or delete, nothing is broken: 77, and the message says which right."""
    with zkconcurrent.Lock(zk, zk_path) as _:
        (node,) = children(zk, zk_path)
        data, stat = zk.get(f"{zk_path}/{node}")
        refused = f"zkconcurrent: ZooKeeper refuses: the hold of {zk_path}/{node} goes on, as this client may not "
        for path, may, what in (
            (f"{zk_path}/{node}", {"read": True}, "ask its holder to release"),
            (zk_path, {"read": True, "create": True}, "delete it"),
        ):
            zk.set_acls(path, [make_acl("world", "anyone", admin=True, **may)])
            code, out, err = call("break", "-y", "--holder", stat.czxid, "--grace", 0.1, zk_path)
            assert (code, out, err.splitlines()[-1], children(zk, zk_path)) == (77, "", f"{refused}{what}", [node])
            # Fault 432: it tells of its holder as before.
            assert zk.get(f"{zk_path}/{node}")[0] == data
            zk.set_acls(path, [make_acl("world", "anyone", all=True)])


@pytest.mark.parametrize("answer", ["y", "n"])
def test_the_question(look: Run, zk: KazooClient, zk_path: str, answer: str) -> None:
    """At a terminal it shows the holder, says what breaking means, and asks; all but a yes changes nothing."""
    terminal, end = pty.openpty()
    lock = zkconcurrent.Lock(zk, zk_path)
    lock.acquire()
    process: subprocess.Popen[str] = look("break", "--grace", 0.1, zk_path, stdin=end)
    os.write(terminal, f"{answer}\n".encode())
    code, out, _ = end_of(process)
    for descriptor in (terminal, end):
        os.close(descriptor)
    assert f"process {os.getpid()} on host" in out
    assert "end that process first" in out
    assert (code, len(children(zk, zk_path))) == ((0, 0) if answer == "y" else (75, 1))
    with suppress(zkconcurrent.LockLostError):
        lock.release()


def test_others_hold_beside_it(call: Call, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Of a reader or a permit, the command prints its own token only: those before it hold rightly."""
    readers = [zkconcurrent.ReadWriteLock(each, f"{zk_path}/pair").read_lock for each in (zk, connect())]
    permits = [zkconcurrent.Semaphore(each, f"{zk_path}/permits", 2) for each in (zk, connect())]
    for first, last in (readers, permits):
        first.acquire()
        last.acquire()
        token = last.fencing_token
        code, out, _ = call("break", last.path, "-y", "--holder", token, "--grace", 0)
        assert (code, out.partition("; ")[2]) == (0, f"refuse writes with the token {token}\n")
        first.release()
        with suppress(zkconcurrent.LockLostError):
            last.release()
