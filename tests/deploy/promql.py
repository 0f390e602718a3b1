"""Reads the rules, their tests and the boards of `deploy/` from the files."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
RULES: Final = DEPLOY / "prometheus" / "rules"
RULE_TESTS: Final = DEPLOY / "prometheus" / "tests"
BOARDS: Final = DEPLOY / "grafana" / "dashboards"

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_LABELS = re.compile(r"\{[^{}]*\}")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_NUMBER = re.compile(r"(?<![\w:.])\d[\w.]*(?:[eE][-+]\d+)?")
_NAME = re.compile(r"[A-Za-z_:][\w:]*(?!\s*\()(?![\w:])")
_WORDS = frozenset(("and", "or", "unless", "bool", "by", "without", "inf", "nan", "offset", "start", "end"))


@dataclass(frozen=True, slots=True)
class Rule:
    """A recording rule or an alert.

    Attributes:
        file: Its name.
        name: Of what is recorded, or of the alert.
        expr: PromQL.
        fields: All of it.
    """

    file: str
    name: str
    expr: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a board.

    Attributes:
        board: The name of its file.
        panel: Its title.
        expr: PromQL with the board's variables.
    """

    board: str
    panel: str
    expr: str


def metric_names(expr: str) -> frozenset[str]:
    """Returns the names of the series that an expression reads."""
    for pattern in (_STRING, _LABELS, _GROUPING, _RANGE, _NUMBER):
        expr = pattern.sub(" ", expr)
    return frozenset(_NAME.findall(expr)) - _WORDS


@cache
def rules(kind: str) -> list[Rule]:
    """Returns all rules of a kind, ``alert`` or ``record``."""
    return [
        Rule(path.name, rule[kind], rule["expr"], rule)
        for path in sorted(RULES.glob("*.yml"))
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if kind in rule
    ]


@cache
def boards() -> dict[str, dict[str, Any]]:
    """Returns all boards by the names of their files."""
    return {path.name: json.loads(path.read_text()) for path in sorted(BOARDS.glob("*.json"))}


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the panels of a board, without the headings of its rows."""
    for panel in board["panels"]:
        yield from panel["panels"] if panel.get("collapsed") else () if panel["type"] == "row" else (panel,)


def queries() -> list[Query]:
    """Returns the queries of all panels of all boards."""
    return [
        Query(name, panel["title"], target["expr"])
        for name, board in boards().items()
        for panel in panels(board)
        for target in panel.get("targets", ())
    ]
