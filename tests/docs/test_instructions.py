"""What README and tutorial tell the reader to change is carried out as told, on the page's own text."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.page import blocks, clean_environment
from tests.docs.test_pages import ROOT, run_page

README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"
SERVER = "python -m zkconcurrent.testing"
# A sentence that tells to change something of a program.
_TOLD = re.compile(r"[^.;:]*\b(?:put|set|replace|change|edit|use) (?:the|`)[^.;:]*\b(?:line|address|URL|name)\b[^.;:]*")
TOLD = {
    README: ["set `url` to the URL that it prints"],
    TUTORIAL: ["use the printed address in the programs below"],
}


def in_terminal(folder: Path, command: str) -> subprocess.Popen[str]:
    """Start a command in a new terminal of the reader's."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command.split(), cwd=folder, env=clean_environment(folder), text=True, **pipes)


@contextmanager
def printed(folder: Path) -> Iterator[str]:
    """Run the server's command in a terminal of its own; return the URL in the line that it prints."""
    with in_terminal(folder, SERVER) as server:
        assert server.stdout is not None
        found = re.fullmatch(r'zk = zkconcurrent\.connect\("(.*)"\)\n', server.stdout.readline())
        try:
            assert found is not None
            yield found[1]
        finally:
            server.send_signal(signal.SIGINT)
    assert server.returncode == 0


@pytest.mark.parametrize("page", TOLD, ids=lambda page: page.stem)
def test_the_instructions_are_known(page: Path) -> None:
    """No page tells the reader to change something that no test below changes."""
    told = _TOLD.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    found = [" ".join(each.split()) for each in told]
    assert len(found) == len(TOLD[page])
    assert all(expected in each for expected, each in zip(TOLD[page], found, strict=True))


@pytest.mark.server
def test_the_readme_on_a_server(tmp_path: Path) -> None:
    """The README's first program, with `url` set to what the server prints, runs in two processes at once."""
    assert SERVER in README.read_text()
    program = next(block.text for block in blocks(README.read_text()) if block.kind == "python")
    with printed(tmp_path) as url:
        changed, lines = re.subn(r'^url = "[^"]*"', f'url = "{url}"', program, flags=re.MULTILINE)
        assert lines == 1
        assert "memory:" not in changed
        (tmp_path / "program.py").write_text(changed)
        both = [in_terminal(tmp_path, "python -W error program.py") for _ in range(2)]
        told = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert [error for _, error in told] == ["", ""]
    # Each held it with a token of its own.
    tokens = {re.match(r"token (\d+) held by process \d+\n", output) for output, _ in told}
    assert len({found[1] for found in tokens if found}) == 2


@pytest.mark.server
def test_the_tutorial_on_its_server(tmp_path: Path) -> None:
    """The tutorial's programs run on the server that its command starts, at the address that this prints."""
    assert f"$ {SERVER}" in TUTORIAL.read_text()
    with printed(tmp_path) as url:
        done = run_page(TUTORIAL, tmp_path, url.removeprefix("zk://"))
    assert done.returncode == 0, done.stdout + done.stderr
