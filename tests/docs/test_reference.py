"""The reference leaves nothing out, and the pages are found."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import zkconcurrent
import zkconcurrent.celery
import zkconcurrent.metrics
import zkconcurrent.otel
import zkconcurrent.prometheus
import zkconcurrent.testing
import zkconcurrent.tree
from tests.helpers import tooz
from zkconcurrent import aio
from zkconcurrent._client import connect as _connect
from zkconcurrent._client import url as _url
from zkconcurrent._kazoo.transport import MAX_REQUEST
from zkconcurrent._protocol.session_lease import MARGIN

DOCS = Path(__file__).parents[2] / "docs"
PUBLIC = [
    *(f"zkconcurrent.{name}" for name in zkconcurrent.__all__ if name != "__version__"),
    *(f"zkconcurrent.aio.{name}" for name in aio.__all__),
    *(f"zkconcurrent.testing.{name}" for name in zkconcurrent.testing.__all__),
    *(f"zkconcurrent.tree.{name}" for name in zkconcurrent.tree.__all__),
    *(f"zkconcurrent.celery.{name}" for name in zkconcurrent.celery.__all__),
    *(f"zkconcurrent.metrics.{name}" for name in zkconcurrent.metrics.__all__),
    *(f"zkconcurrent.otel.{name}" for name in zkconcurrent.otel.__all__),
    *(f"zkconcurrent.prometheus.{name}" for name in zkconcurrent.prometheus.__all__),
    *(f"zkconcurrent.tooz.{name}" for name in tooz.driver.__all__),
]


def test_every_public_name_is_in_the_reference() -> None:
    """Every public name has its entry in docs/reference, made from its docstring."""
    pages = "".join(page.read_text() for page in (DOCS / "reference").rglob("*.md"))
    made = set(re.findall(r"^\.\. auto\w+:: (\S+)$", pages, re.MULTILINE))
    assert set(PUBLIC) - made == set()


def test_every_page_is_linked() -> None:
    """The index, or `reference/api`, names each page twice: as a link for readers of the source, and in a tree."""
    index = (DOCS / "index.md").read_text() + (DOCS / "reference/api.md").read_text().replace("api/", "reference/api/")
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")} - {"index"}
    trees = {line for tree in re.findall(r"```{toctree}\n(.*?)```", index, re.DOTALL) for line in tree.splitlines()}
    assert pages <= trees
    assert {name for name in pages if f"({name}.md)" in index} == pages


def test_every_option_of_connect_is_in_the_table() -> None:
    """The page for operators has each option, in the table of the URL or in that of the arguments, and its default."""
    page = (DOCS / "how-to" / "operate.md").read_text()
    section = page.partition("## The client\n")[2].partition("### A client that exists already")[0]
    tables = [
        dict(re.findall(r"^\| (`.+?) \| (.+?) \|", part, re.MULTILINE))
        for part in section.split("| --- | --- | --- |")[1:]
    ]
    of_url, of_arguments = ({name for names in table for name in re.findall(r"`(\w+)`", names)} for table in tables)
    assert of_url == set(_url._OPTIONS)
    own = {*inspect.signature(zkconcurrent.connect).parameters, *inspect.signature(_connect.Client).parameters}
    assert of_arguments == own - {"url", "options", "directory_acl"} - of_url | {"connection_retry"}
    defaults = tables[0] | tables[1]
    told = {
        "timeout": _connect.TIMEOUT,
        "start_timeout": _connect.PATIENCE,
        "margin": MARGIN,
        "max_request": MAX_REQUEST,
    }
    assert {name: float(defaults[f"`{name}`"].replace(",", "")) for name in told} == told
