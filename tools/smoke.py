"""Check an installed package that has only its dependencies beside it; an error says what does not work.

Run `python -I tools/smoke.py` outside the checkout.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from importlib import metadata, resources
from pathlib import Path

ADDS = 20


def add(hosts: str, counter: str) -> None:
    """Add to a number in a file, many times, under a lock that the processes share."""
    from kazoo.client import KazooClient

    import zkconcurrent

    client = KazooClient(hosts)
    client.start()
    lock, file = zkconcurrent.RLock(client, "/smoke/lock"), Path(counter)
    for _ in range(ADDS):
        with lock, lock:
            file.write_text(str(int(file.read_text()) + 1))
    client.stop()
    client.close()


def check_contents() -> None:
    """Check that the installed package is complete and installs nothing unnecessary."""
    import zkconcurrent

    assert "site-packages" in zkconcurrent.__file__, f"not the installed package: {zkconcurrent.__file__}"
    about = metadata.metadata("zkconcurrent")
    assert about["Version"] == zkconcurrent.__version__
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Description"].startswith("# zkconcurrent")
    assert resources.files("zkconcurrent").joinpath("py.typed").is_file()
    installed = {each.metadata["Name"].lower() for each in metadata.distributions()}
    assert installed <= {"zkconcurrent", "kazoo", "wrapt", "pip", "setuptools"}, installed
    files = metadata.files("zkconcurrent") or []
    found = {file.parts[0] for file in files if file.suffix == ".py"}
    assert found == {"zkconcurrent", "pytest_zkconcurrent.py"}, "foreign modules are in it"
    assert any(str(file).endswith("licenses/LICENSE") for file in files)
    assert [each.name for each in metadata.entry_points(group="pytest11")] == ["zkconcurrent"]
    for name in zkconcurrent.__all__:
        assert getattr(zkconcurrent, name) is not None


def main() -> None:
    """Check the contents, then let two processes count together."""
    check_contents()
    from zkconcurrent.testing import Server

    with Server() as server, tempfile.TemporaryDirectory() as folder:
        counter = Path(folder, "counter")
        counter.write_text("0")
        context = multiprocessing.get_context("spawn")
        processes = [context.Process(target=add, args=(server.hosts, str(counter))) for _ in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0]
        assert counter.read_text() == str(2 * ADDS), counter.read_text()


if __name__ == "__main__":
    main()
