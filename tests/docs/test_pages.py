"""Every block of code in the README and the docs runs, against a server; see `tests.docs.page` for how."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.page import blocks, clean_environment
from tests.helpers.kinds import primitives
from zkconcurrent.testing import Server

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if any(block.kind == "python" for block in blocks(page.read_text()))]
# Blocks that can't run here, by page; each says why.
PLAIN_CLIENTS = {"docs/how-to/migrate.md": 1}  # its readers have one
NOT_RUN = {"docs/how-to/operate.md": 1, "docs/how-to/workers.md": 1}


def run_page(page: Path, folder: Path, hosts: str) -> subprocess.CompletedProcess[str]:
    """Run a page in a process of its own, in an empty folder."""
    return subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "tests/docs/page.py"), page, hosts],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=clean_environment(folder),
        check=False,
    )


@pytest.fixture(scope="module")
def of_all_pages() -> Iterator[Server]:
    """One server for all pages: a reader goes from page to page, so no page may use the paths of another."""
    with Server() as server:
        yield server


@pytest.mark.parametrize(
    "page",
    # Two processes share them, and two servers.
    [pytest.param(page, marks=pytest.mark.xdist_group(f"pages-{n % 2}")) for n, page in enumerate(WITH_CODE)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
@pytest.mark.long
def test_a_page_runs(page: Path, tmp_path: Path, of_all_pages: Server) -> None:
    """The blocks of a page, copied to an empty folder, give what it says; a warning fails a test of it."""
    done = run_page(page, tmp_path, of_all_pages.hosts)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr


def test_what_does_not_run_is_counted() -> None:
    """A block that can't run says why, and there are no more of them than are known."""
    found = {str(page.relative_to(ROOT)): sum(not block.runs for block in blocks(page.read_text())) for page in PAGES}
    assert {page: count for page, count in found.items() if count} == NOT_RUN


def test_clients_come_from_connect() -> None:
    """The pages and the examples open clients by `connect`, except a page for readers that have a plain client."""
    found = {str(page.relative_to(ROOT)): page.read_text().count("KazooClient(") for page in PAGES}
    found |= {
        str(file.relative_to(ROOT)): file.read_text().count("KazooClient(") for file in ROOT.glob("examples/*.py")
    }
    assert {file: count for file, count in found.items() if count} == PLAIN_CLIENTS


_PATH = re.compile(rf"""\b(?:{"|".join(primitives())}|synchronized)\((?:lambda:\s)?\w+, f?"(/[^"]+)\"""")


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_do_not_nest(page: Path) -> None:
    """No primitive of a page lies below another one, whatever its braces stand for."""
    paths = {re.sub(r"\{[^}]*\}", "*", path) for path in _PATH.findall(page.read_text())}
    for path in paths:
        above = [other for other in paths - {path} if re.match(re.escape(other).replace(r"\*", "[^/]+") + "/", path)]
        assert not above, f"{path} lies below {above}"


BROKEN = {
    "a block in a list": "1. so\n\n   ```python\n   1 / 0\n   ```\n",
    "other output": "```python\n# it.py\nprint(1)\n```\n\n```console\n$ python it.py\n2\n```\n",
    "a file never run": "```python\n# it.py\nprint(1)\n```\n",
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_page_fails(what: str, tmp_path: Path, zookeeper: Server) -> None:
    """A page with a broken block fails, and says where."""
    page = tmp_path / "page.md"
    page.write_text(BROKEN[what])
    done = run_page(page, tmp_path, zookeeper.hosts)
    assert done.returncode == 1
    assert "page.md" in done.stderr
