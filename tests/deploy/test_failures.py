"""Tests that deploy/FAILURES.md names tests, metrics, alerts, reasons and defaults that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from rollcast.errors import BY_REASON

from learner.shared.observe.values import BOUNDS
from learner.shared.settings.service import ServiceSettings
from tests.architecture.tree import ROOT
from tests.deploy.promql import rules

PAGE = ROOT / "deploy" / "FAILURES.md"
FAILURES, LIMITS = "What happens when something fails", "Limits"
METRIC = re.compile(r"`(rollcast_(?:learner|actor)_[a-z_]+)`(?: \(`([a-z_]+)`\))?")


class Row(NamedTuple):
    """One row of a table.

    Attributes:
        name: Its first cell.
        cells: All cells by their column's title.
    """

    name: str
    cells: dict[str, str]


def table(heading: str) -> list[Row]:
    """Returns the rows of the only table below a heading of the second order."""
    chapter = PAGE.read_text(encoding="utf-8").split(f"# {heading}\n")[1].split("\n## ")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in chapter.splitlines() if line[:1] == "|"]
    titles, _, *rows = lines
    return [Row(row[0], dict(zip(titles, row, strict=True))) for row in rows]


@cache
def names_in(path: str) -> frozenset[str]:
    """Returns the names of the tests of a file below tests."""
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return frozenset(each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def described() -> dict[str, str]:
    """Returns the lines of deploy/METRICS.md by the metric that they describe."""
    lines = (ROOT / "deploy" / "METRICS.md").read_text(encoding="utf-8").splitlines()
    found = ((re.match(r"\| `(rollcast_\w+)` \|", line), line) for line in lines)
    return {match[1]: line for match, line in found if match}


def metrics_of(row: Row) -> Iterator[tuple[str, str]]:
    """Yields the metrics of a row, each with the value of a label if the row names one."""
    return ((name, label) for name, label in METRIC.findall(row.cells["metric"]))


def test_rows_are_whole() -> None:
    """No cell is empty, and each metric is described, with the value of its label."""
    for row in (*table(FAILURES), *table(LIMITS)):
        metrics = list(metrics_of(row))
        assert metrics, row
        assert all(row.cells.values()), row
        for name, label in metrics:
            assert label in described()[name], row


def test_failures_have_tests_and_alerts() -> None:
    """Each named test exists, and each named alert, with a link to its runbook."""
    alerts = {alert.name for alert in rules("alert")}
    for row in table(FAILURES):
        tests = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row.cells["test"])
        assert len(tests) == row.cells["test"].count("`") / 2 > 0
        assert [f"{path}::{name}" for path, name in tests if name not in names_in(path)] == []
        named = re.findall(r"\[(\w+)\]\(RUNBOOK\.md#(\w+)\)", row.cells["alert"])
        assert named
        assert all(name in alerts and anchor == name.lower() for name, anchor in named), row


def test_limits_are_those_of_the_code() -> None:
    """Settings exist and have their defaults, reasons are of the protocol, and each bound that a metric counts is named."""
    for row in table(LIMITS):
        for name in re.findall(r"`rollcast\.(\w+)`", row.name):
            field = ServiceSettings.model_fields[name]
            if (number := re.match(r"\d+", row.cells["default"])) and row.name.endswith(f"`rollcast.{name}`"):
                assert float(number[0]) == field.default
        assert {*re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", row.cells["beyond it"])} <= BY_REASON.keys()
    named = {label for row in table(LIMITS) for _, label in metrics_of(row)}
    assert set(BOUNDS) <= named
