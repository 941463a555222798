"""`zkconcurrent timeline`: the picture has who held and who waited, in the order of time, whatever their nodes say."""

from __future__ import annotations

import signal
import threading
import uuid
from pathlib import Path
from xml.etree import ElementTree as ET

from kazoo.client import KazooClient
from kazoo.security import make_acl

import zkconcurrent
from tests.command.conftest import Run, end_of
from tests.command.test_look import look
from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy

__all__ = ["look"]

SVG = "{http://www.w3.org/2000/svg}"


def boxes(file: Path) -> list[str]:
    """Return what the boxes of a picture say."""
    return [str(each.text) for box in ET.parse(file).iter(f"{SVG}rect") for each in box.iter(f"{SVG}title")]


def texts(file: Path) -> list[str]:
    """Return the words of a picture."""
    return [str(each.text) for each in ET.parse(file).iter(f"{SVG}text")]


def test_a_hand_over(
    look: Run, zk: KazooClient, connect: Connect, zk_path: str, tmp_path: Path, in_thread: InThread, proxy: Proxy
) -> None:
    """The holder's box ends where the waiter begins to hold; Ctrl-C ends the watch, and what was seen is drawn."""
    lock, permits, file = f"{zk_path}/lock", f"{zk_path}/permits", tmp_path / "it.svg"
    ours, other, goes_on = zkconcurrent.Lock(zk, lock), zkconcurrent.Lock(connect(), lock), threading.Event()

    def wait() -> None:
        with other:
            goes_on.wait()

    with zkconcurrent.Semaphore(zk, permits, 1):
        ours.acquire()
        waiting = in_thread(wait)
        eventually(ours.waiters)
        seen = proxy.expect("getChildren", nth=6)
        process = look("timeline", lock, permits, "--seconds", 1000, "-o", file, url=f"zk://{proxy.hosts}")
        seen.wait()
        ours.release()
        # A look has four listings, and the one under way may be older than the release.
        proxy.expect("getChildren", nth=12).wait()
        process.send_signal(signal.SIGINT)
        code, out, err = end_of(process)
        goes_on.set()
    waiting.result()
    assert (code, out, "interrupted" in err) == (0, "", True)
    first = boxes(file)[0]
    assert first.startswith("MainThread, ")
    assert " held from 0.0 to " in first
    waited, held = [each for each in boxes(file) if not each.startswith("MainThread")]
    assert waited.rpartition(" to ")[2] == first.rpartition(" to ")[2]
    assert f" held from {first.rpartition(' to ')[2].removesuffix(' s')} to " in held
    assert f"{lock}: held for 100 % of the time, at most 1 waited" in texts(file)
    assert f"{permits}: held for 100 % of the time, at most 0 waited" in texts(file)


def test_strangers_and_crowds(look: Run, zk: KazooClient, zk_path: str, tmp_path: Path) -> None:
    """Any text of a node leaves the picture whole, and of a crowd only the first are drawn."""
    file = tmp_path / "it.svg"
    for n in range(60):
        name = f"{zk_path}/_c_{uuid.uuid4()}-lock-"
        zk.create(
            name, f"<evil {n}>\x1b[2J & \x00".encode() + b"x" * 1000, ephemeral=True, sequence=True, makepath=True
        )
    assert end_of(look("timeline", zk_path, "--seconds", 0.5, "-o", file)) == (0, "", "")
    said = texts(file)
    assert (sum("<evil " in each for each in said), "and 10 more" in said) == (50, True)
    assert "\x1b" not in file.read_text()


def test_an_outage(look: Run, zk: KazooClient, zk_path: str, tmp_path: Path, proxy: Proxy) -> None:
    """It ends the watch, and what was seen until then is drawn."""
    file = tmp_path / "it.svg"
    with zkconcurrent.Lock(zk, zk_path):
        seen = proxy.expect("getChildren", nth=3)
        process = look("timeline", zk_path, "--seconds", 1000, "-o", file, url=f"zk://{proxy.hosts}")
        seen.wait()
        proxy.refuse()
        proxy.cut()
        code, _, err = end_of(process)
    assert (code, "drawn is what was seen until then" in err) == (69, True)
    assert f"{zk_path}: held for 100 % of the time, at most 0 waited" in texts(file)


def test_a_holder_that_may_not_be_read(look: Run, zk: KazooClient, zk_path: str, tmp_path: Path) -> None:
    """No command says that a path is free whose holder it may not read."""
    hidden = [make_acl("digest", "other:xyz", all=True)]
    zk.ensure_path(zk_path)
    zk.create(f"{zk_path}/_c_{uuid.uuid4()}-lock-", acl=hidden, ephemeral=True, sequence=True)
    for command in (
        ("timeline", "--seconds", 0.1, "-o", tmp_path / "it.svg"),
        ("break", "-y", "--holder", 1),
        ("show",),
        ("ls",),
    ):
        code, out, err = end_of(look(*command, zk_path))
        assert (code, out, "may not be read by this client" in err) == (77, "", True), command


def test_what_can_not_be(look: Run, zk: KazooClient, zk_path: str, tmp_path: Path) -> None:
    """No such path is 66; a file that can't be written 74; a wrong use 64; no server 69."""
    file = tmp_path / "it.svg"
    assert end_of(look("timeline", zk_path, "-o", file))[0] == 66
    zk.ensure_path(zk_path)
    for odd, why in ((tmp_path / "missing" / "it.svg", "No such file"), (tmp_path, "Is a directory")):
        # Told before anything else, and not when an hour of watching is over.
        code, _, err = end_of(look("timeline", zk_path, "--seconds", 3600, "-o", odd))
        assert (code, why in err) == (74, True)
    assert end_of(look("timeline", zk_path))[0] == 64
    assert end_of(look("timeline", "relative", "-o", file))[0] == 64
    assert end_of(look("timeline", zk_path, "-o", file, url="zk://127.0.0.1:1?start_timeout=0.3"))[0] == 69
    assert not file.exists()
    file.write_text("an older one")
    assert end_of(look("timeline", f"{zk_path}/missing", "-o", file))[0] == 66
    assert file.read_text() == "an older one"
    assert end_of(look("timeline", zk_path, "--seconds", 0, "-o", "/dev/stdout"))[1].startswith("<svg ")
