"""The page on metrics, the dashboard and the alerts name what is exported, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from zkconcurrent.metrics import INSTRUMENTS, MOST_NAMES, STATES, Instrument

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "metrics.md").read_text()
DASHBOARD = json.loads((DOCS / "_static" / "grafana.json").read_text())
[RULES] = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)]
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

# What the samples of a metric are called beside it.
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum")}
SAMPLES = {f"{row.prometheus_name}{end}": row for row in INSTRUMENTS for end in SUFFIXES.get(row.kind, ("",))}
# The labels that Prometheus itself adds.
OF_TARGET = {"job", "instance"}
OUTCOMES = {
    "zkconcurrent.lock.wait.duration": {"acquired", "timeout", "cancelled", "deadlock", "error"},
    "zkconcurrent.lock.hold.duration": {"released", "lost"},
    "zkconcurrent.lock.acquisitions": {"uncontended", "waited", "would_block"},
}


def cells(row: Instrument) -> str:
    """Return what the page's table says of a row of the code's."""
    attributes = ", ".join(f"`{name.removeprefix('zkconcurrent.')}`" for name in row.attributes)
    kind = f"{'observable ' if row.observed else ''}{row.kind}, {row.unit}"
    told = row.description.removesuffix(".")
    return f"| `{row.name}` | `{row.prometheus_name}` | {kind} | {attributes} | {told} |"


def test_the_table_is_that_of_the_code() -> None:
    """Each row is on the page, in order, and no other."""
    assert re.findall(r"^\| `zkconcurrent\..+$", PAGE, re.MULTILINE) == [cells(row) for row in INSTRUMENTS]


def test_the_values_are_on_the_page() -> None:
    """So are the outcomes, states and bounds, and a link to the causes."""
    lines = {line.split("|")[1].strip(): line for line in PAGE.splitlines() if line.startswith("| `")}
    names = ("`outcome` of a wait", "`outcome` of a hold", "`outcome` of an acquisition")
    for name, outcomes in zip(names, OUTCOMES.values(), strict=True):
        assert {*re.findall(r"`([a-z_]+)`", lines[name])} - {"outcome"} == outcomes
    assert {*re.findall(r"`([a-z_]+)`", lines["`state`"])} - {"state"} == {each.replace(" ", "_") for each in STATES}
    assert f"at most {MOST_NAMES} names" in PAGE
    assert "LossCause" in lines["`cause`"]


def expressions() -> Iterator[tuple[str, str]]:
    """Return what is asked of Prometheus, and where."""
    for alert in ALERTS:
        yield f"alert {alert['alert']}", alert["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            yield f"panel {panel['title']} {target['refId']}", target["expr"]


@pytest.mark.parametrize(("where", "expression"), [pytest.param(*each, id=each[0]) for each in expressions()])
def test_an_expression_names_what_is_exported(where: str, expression: str) -> None:
    """Each name is that of a sample; its labels, those of the aggregations, and its outcomes are the metric's own."""
    asked = re.sub(r"by \(.*?\)", "by", expression)
    found = re.findall(r"\b(zkconcurrent_\w+?)(?:\{(.*?)\})?(?=[\s\[)]|$)", asked)
    assert found, where
    kept = {label.strip() for group in re.findall(r"by \((.*?)\)", expression) for label in group.split(",")}
    for name, selector in found:
        labels = {*SAMPLES[name].prometheus_labels} | OF_TARGET
        assert kept - {"le"} <= labels, where
        assert {*re.findall(r"(\w+)(?:=~|!=|!~|=)\"", selector)} <= labels, where
        for values in re.findall(r"zkconcurrent_outcome(?:=~|!=|=)\"(.*?)\"", selector):
            assert {*values.split("|")} <= OUTCOMES[SAMPLES[name].name], where
    assert expression.count("(") == expression.count(")")
    # A counter, and a bucket, says something by its increase alone.
    for name, _ in found:
        if name.endswith(("_total", "_bucket", "_count")):
            assert re.search(rf"(?:rate|increase)\({name}(?:\{{.*?\}})?\[[^]]+\]\)", expression), where


def test_the_dashboard_shows_every_metric() -> None:
    """No row of the table is left out; the panels have places of their own, and ids."""
    asked = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    assert [row.prometheus_name for row in INSTRUMENTS if row.prometheus_name not in asked] == []
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]}
    assert len(places) == len(DASHBOARD["panels"])
    assert all(panel["description"] and panel["fieldConfig"]["defaults"]["unit"] for panel in PANELS)


@pytest.mark.fault(380)
def test_the_first_of_a_counter_is_seen() -> None:
    """A counter appears with its first loss, as 1, and `increase` of one that was not there before is 0."""
    found = 0
    for where, expression in expressions():
        text = " ".join(expression.split())
        for counter, window in re.findall(r"increase\((\S.*?)\[(\w+)\]\)", text):
            assert f"{counter} unless {counter} offset {window} or increase({counter}[{window}])" in text, where
            found += 1
    assert found


@pytest.mark.fault(380)
def test_an_alert_sees_the_first_of_a_counter() -> None:
    """Of jobs that acquire once each, every counter is 1 from the first, and its `rate` is always 0."""
    assert [alert["alert"] for alert in ALERTS if "rate(" in alert["expr"]] == []
