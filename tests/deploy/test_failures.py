"""Tests that deploy/README.md names tests, metrics, alerts, reasons and defaults that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest
from rollcast.errors import BY_REASON

from learner.observe.metrics.values import BOUNDS
from learner.settings.service import ServiceSettings
from tests.architecture.tree import ROOT
from tests.deploy.promql import rules

README = ROOT / "deploy" / "README.md"
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
    chapter = README.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in chapter.splitlines() if line[:1] == "|"]
    titles, _, *rows = lines
    return [Row(row[0], dict(zip(titles, row, strict=True))) for row in rows]


def ids(rows: list[Row]) -> list[str]:
    """Returns the names of rows, for the names of tests."""
    return [row.name[:40] for row in rows]


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


ROWS = [*table(FAILURES), *table(LIMITS)]
every_row = pytest.mark.parametrize("row", ROWS, ids=ids(ROWS))
every_failure = pytest.mark.parametrize("row", table(FAILURES), ids=ids(table(FAILURES)))


@every_row
def test_a_row_is_whole(row: Row) -> None:
    """No cell is empty, and each metric is described, with the value of its label."""
    assert all(row.cells.values())
    metrics = list(metrics_of(row))
    assert metrics
    for name, label in metrics:
        assert name in described()
        assert label in described()[name]


@every_failure
def test_a_failure_has_tests(row: Row) -> None:
    """Each named test exists."""
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row.cells["test"])
    assert named
    assert len(named) == row.cells["test"].count("`") / 2
    for path, name in named:
        assert name in names_in(path)


@every_failure
def test_a_failure_has_an_alert(row: Row) -> None:
    """Each named alert exists, and links to its runbook."""
    alerts = {alert.name for alert in rules("alert")}
    named = re.findall(r"\[(\w+)\]\(#(\w+)\)", row.cells["alert"])
    assert named
    for name, anchor in named:
        assert name in alerts
        assert anchor == name.lower()


@pytest.mark.parametrize("row", table(LIMITS), ids=ids(table(LIMITS)))
def test_a_limit_is_that_of_the_code(row: Row) -> None:
    """A setting exists and has its default, and each reason is one of the protocol."""
    for name in re.findall(r"`rollcast\.(\w+)`", row.name):
        field = ServiceSettings.model_fields[name]
        if (number := re.match(r"\d+", row.cells["default"])) and row.name.endswith(f"`rollcast.{name}`"):
            assert float(number[0]) == field.default
    for reason in re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", row.cells["beyond it"]):
        assert reason in BY_REASON


def test_every_bound_is_a_limit() -> None:
    """The table names each bound that a metric counts."""
    named = {label for row in table(LIMITS) for _, label in metrics_of(row)}
    assert set(BOUNDS) <= named
