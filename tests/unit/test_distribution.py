"""How the package is built and released, and how the tests are shared among processes."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
# A job that calls the workflow of the tests.
OUR_TESTS = {"uses": "./.github/workflows/tests.yml"}
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def copy_of_checkout(folder: Path) -> Path:
    """Return a copy of what a build needs, as a build writes beside its sources."""
    checkout = folder / "checkout"
    shutil.copytree(ROOT / "zkconcurrent", checkout / "zkconcurrent", ignore=shutil.ignore_patterns("__pycache__"))
    names = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "pytest_zkconcurrent.py", "setup.cfg", "setup.py")
    for name in names:
        shutil.copy(ROOT / name, checkout)
    return checkout


def build(checkout: Path, what: str, into: Path) -> None:
    """Have setuptools write something into a folder: the metadata, or the wheel."""
    command = [sys.executable, "-c", f"import sys; from setuptools import build_meta; build_meta.{what}(sys.argv[1])"]
    done = subprocess.run([*command, into], cwd=checkout, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def metadata_of(folder: Path, source: str | None, version: str) -> Message:
    """Return the metadata that a build in a copy of the checkout writes."""
    checkout = copy_of_checkout(folder)
    (checkout / "zkconcurrent" / "_version.py").write_text(f'__version__ = "{version}"\n')
    if source is not None:
        project = (checkout / "pyproject.toml").read_text()
        project = project.replace("[project.optional-", f'[project.urls]\nSource = "{source}"\n\n[project.optional-', 1)
        (checkout / "pyproject.toml").write_text(project)
    build(checkout, "prepare_metadata_for_build_wheel", folder)
    (info,) = folder.glob("*.dist-info")
    return email.message_from_string((info / "METADATA").read_text(encoding="utf-8"))


@pytest.mark.long
def test_the_types_are_complete(tmp_path: Path) -> None:
    """`pyright --verifytypes` knows all types of the installed package that are public.

    kazoo has no types. Without the stub here, the base of `Client` is unknown, so five symbols are: `Client`, and those
    that take or return it.
    """
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    (site,) = environment.glob("lib/python*/site-packages")
    build(copy_of_checkout(tmp_path), "build_wheel", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # The other dependencies are those of this environment.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    (site / "kazoo-stubs").mkdir()
    (site / "kazoo-stubs" / "__init__.pyi").touch()
    (site / "kazoo-stubs" / "client.pyi").write_text("class KazooClient: ...\n")
    command = [sys.executable, "-m", "pyright", "--verifytypes", "zkconcurrent", "--ignoreexternal", "--outputjson"]
    path = {"PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=environment, env=os.environ | path, capture_output=True, text=True, timeout=300, check=False
    )
    found = json.loads(done.stdout)["typeCompleteness"]
    assert found["modules"], "the installed package was not found"
    assert len(found["symbols"]) > 1000
    # Celery has none either, nor has the last tooz for Python 3.10.
    untyped = {f"zkconcurrent.celery.{name}" for name in ("Beat", "Once")}
    if sys.version_info < (3, 11):
        untyped |= {f"zkconcurrent.tooz.{name}" for name in ("Driver", "DriverLock", "DriverLock.__init__")}
    symbols = found["symbols"]
    assert {each["name"] for each in symbols if not each["isTypeKnown"] or each["isTypeAmbiguous"]} == untyped


def links(text: str) -> set[str]:
    """Return where the links and pictures of a Markdown text lead."""
    return set(re.findall(r"\]\(([^)\s]+)\)", text))


@pytest.mark.parametrize(("version", "at"), [("0.1.0", "v0.1.0"), ("0.1.0.dev0", "HEAD")])
def test_links_on_an_index(version: str, at: str, tmp_path: Path) -> None:
    """If pyproject.toml names the repository, no link of the long description is relative, and each names a file."""
    source = "https://example.com/someone/zkconcurrent"
    about = metadata_of(tmp_path, source, version)
    assert about["Version"] == version
    assert about["Description-Content-Type"] == "text/markdown"
    found = links(about.get_payload())
    assert all(re.match("https?://|#", link) for link in found), found
    ours = [link for link in found if link.startswith(source)]
    assert f"{source}/raw/{at}/docs/demo.svg" in ours
    assert len(ours) == len({link for link in links((ROOT / "README.md").read_text()) if not link.startswith("http")})
    for link in ours:
        assert re.match(rf"{source}/(raw|blob)/{at}/", link)
        path = link.removeprefix(source).split("/", 3)[3].partition("#")[0]
        assert (ROOT / path).is_file(), link


def test_without_an_address(tmp_path: Path) -> None:
    """As long as the repository has no address, the long description is the README as it is."""
    assert metadata_of(tmp_path, None, "0.1.0").get_payload().strip() == (ROOT / "README.md").read_text().strip()


def read(file: Path) -> dict[Any, Any]:
    """Return a workflow; YAML takes the key `on` for True."""
    workflow: dict[Any, Any] = yaml.safe_load(file.read_text())
    return workflow


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_may_do_little(file: Path) -> None:
    """A workflow reads the repository, pins foreign actions to a commit, keeps no credentials, and ends in time."""
    workflow = read(file)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        if job == OUR_TESTS:
            continue
        assert job["timeout-minutes"] <= 90
        assert job.get("permissions", {}) == ({"id-token": "write"} if name == "publish" else {})
        for step in job["steps"]:
            if "uses" not in step:
                continue
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", step["uses"])
            if step["uses"].startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
    assert not re.search(r"secrets\.|pull_request_target", file.read_text())


def test_a_release_is_tested_first() -> None:
    """A release publishes only after the workflow of the tests has passed on that tag."""
    jobs = read(ROOT / ".github/workflows/release.yml")["jobs"]
    assert jobs["tests"] == OUR_TESTS
    assert "workflow_call" in read(ROOT / ".github/workflows/tests.yml")[True]
    publishing = [job for job in jobs.values() if "pypi-publish@" in str(job)]
    assert publishing
    assert all("tests" in job["needs"] for job in publishing)


def test_every_supported_python_is_tested() -> None:
    """The matrix has each Python of the classifiers, and at most the next one, which no classifier promises yet."""
    matrix = read(ROOT / ".github/workflows/tests.yml")["jobs"]["tests"]["strategy"]["matrix"]["python"]
    promised = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert matrix[: len(promised)] == promised
    assert len(matrix) <= len(promised) + 1
