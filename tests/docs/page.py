"""A page of the docs as a program: every ```python block runs, and so do the commands of ```console blocks.

    python tests/docs/page.py README.md HOSTS

It runs in the present folder, top to bottom, as a reader would who copies, and in an environment where nothing is set
but what the page tells the reader to set (`clean_environment`):

* the `python` blocks of a page share one namespace, which begins empty;
* a block whose first line is `# <name>.py`, or a path, is that file, and a command further down must name it;
* of a `console` block, the lines after `$` run in bash if they call `python` or `pytest`, or begin with `zkconcurrent`,
  `kill` or `ps`; the text below a command is its output, where `...` stands for anything; a command that starts the
  server is the fixture's part, and one that starts gunicorn, Celery, uvicorn or aiohttp is that of `test_workers`;
* what a line sets by `export NAME=VALUE`, the later commands find;
* what uses the modules `tests` or `benchmarks`, which are only in a checkout, runs there;
* a block whose first line begins with `# Not run:` says why, and is only compiled. `test_pages` counts them.

One thing is replaced: the address 127.0.0.1:2181 by that of the server at hand.
"""

from __future__ import annotations

import ast
import fnmatch
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
ADDRESS = "127.0.0.1:2181"
_FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w+)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w/]+\.py)\n")
_NOT_RUN = "# Not run: "
_OURS = re.compile(r"\b(python|pytest)\b|(zkconcurrent|kill|ps) ")
_EXPORT = re.compile(r"export (\w+)=([^\s$]+)")
_SERVER = "python -m zkconcurrent.testing"
_STARTED = re.compile(r"(gunicorn|(python -m )?celery|uvicorn|python serve\.py) ")
_IN_CHECKOUT = re.compile(r"(python -m|from) (tests|benchmarks)\b")


class Block(NamedTuple):
    """A fenced block, and the line of its page that it begins at."""

    kind: str
    text: str
    line: int

    @property
    def runs(self) -> bool:
        """Whether it is not said to be only for reading."""
        return not self.text.startswith(_NOT_RUN)


def blocks(page: str) -> Iterator[Block]:
    """Find the blocks that are to run."""
    for found in _FENCE.finditer(page):
        indent = found["indent"]
        text = "".join(line.removeprefix(indent) for line in found["text"].splitlines(keepends=True))
        if found["kind"] in ("python", "console"):
            yield Block(found["kind"], text, page.count("\n", 0, found.start()) + 2)


def commands(text: str) -> list[tuple[str, str]]:
    """Split what a terminal shows into what was typed and what came of it."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    typed = []
    for part in parts:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = f"{command[:-1]}{more}"
        typed.append((re.sub(r"\s+# .*", "", command), output))
    return typed


def named_in(command: str, files: set[str]) -> set[str]:
    """Return those files that a command names, by the last part of their names, with `.py` or without."""
    return {name for name in files if Path(name).stem in command}


def matches(shown: str, output: str) -> bool:
    """Return whether the output is what the page shows; a page that shows nothing says nothing."""
    pattern = re.sub(r"[\[*?]", lambda found: f"[{found[0]}]", shown.strip()).replace("...", "*")
    return not shown.strip() or fnmatch.fnmatchcase(output.strip(), pattern)


def files(page: str, hosts: str) -> dict[str, str]:
    """Return the files that a reader of the page has saved."""
    texts = [block.text.replace(ADDRESS, hosts) for block in blocks(page) if block.kind == "python"]
    return {named[1]: text for text in texts if (named := _FILE.match(text))}


def clean_environment(home: Path) -> dict[str, str]:
    """Return the environment of a reader: that of this interpreter is activated, and nothing else is set.

    Args:
        home: the reader's home.
    """
    # The meaning of `python`, `pytest` and `zkconcurrent`.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "HOME": str(home)}


def save(file: Path, text: str) -> None:
    """Save a file of a page, in folders that may be new."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def script(name: str) -> Any:
    """Import one of the programs that make pages; they are no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def run(page: Path, hosts: str) -> None:
    """Run a page.

    Raises:
        AssertionError: a command fails, or says something else than the page; or a file is never run.
        Exception: an error of a block.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    not_run_yet: set[str] = set()
    # Many readers have their tests fail at a warning. This one comes by threads of kazoo, and a page calls it harmless.
    harmless = "ignore:Do not use the `random` module"
    environment = {**os.environ, "PYTEST_ADDOPTS": f"-W error -W '{harmless}'"}
    for block in blocks(page.read_text()):
        text = block.text.replace(ADDRESS, hosts)
        where = f"{page}:{block.line}"
        if block.kind == "python":
            tree = ast.parse("\n" * (block.line - 1) + text, str(page))
            if not block.runs:
                continue
            if named := _FILE.match(text):
                save(Path(named[1]), text)
                not_run_yet.add(named[1])
            else:
                if _IN_CHECKOUT.search(text):
                    sys.path[0] = str(ROOT)
                exec(compile(tree, str(page), "exec"), namespace)
            continue
        for command, shown in commands(text):
            if _STARTED.match(command):
                not_run_yet -= named_in(command, not_run_yet)
                continue
            if exported := _EXPORT.fullmatch(command):
                environment[exported[1]] = exported[2]
            if not _OURS.search(command) or command.startswith(_SERVER):
                continue
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=ROOT if _IN_CHECKOUT.search(command) else None,
                capture_output=True,
                text=True,
                env=environment,
                timeout=120,
                check=False,
            )
            said = f"{where}: $ {command}\n{done.stdout}{done.stderr}"
            assert done.returncode == 0, said
            assert matches(shown, done.stdout), f"{said}\nThe page shows:\n{shown}"
            not_run_yet -= named_in(command, not_run_yet)
    assert not not_run_yet, f"{page}: no command runs {not_run_yet}"


if __name__ == "__main__":
    sys.path[0] = ""  # the present folder, as for a reader who types the blocks
    run(Path(sys.argv[1]), sys.argv[2])
