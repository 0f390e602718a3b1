"""Reads the queries of Grafana's boards and replaces their variables."""

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.nightly.stack.machine import wait_until
from tests.nightly.stack.prometheus import Prometheus, Series

_LOOK_BACK_SECONDS = 60.0
_OF_GRAFANA = {
    "__rate_interval": "1m",
    "__interval": "15s",
    "__range": "5m",
    "__range_s": "300",
    "__interval_ms": "15000",
}
_VARIABLE = re.compile(r"\$\{?(\w+)(?::\w+)?\}?")


class Query(NamedTuple):
    """One query of a panel."""

    board: str
    row: str
    panel: str
    expression: str
    instant: bool


def queries(folder: Path) -> list[Query]:
    """Returns all queries of all boards in a folder, in order.

    Raises:
        KeyError: A query has a variable that its board has not.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        board, row = json.loads(path.read_text("utf-8")), ""
        known = _OF_GRAFANA | {variable["name"]: _value(variable) for variable in board["templating"]["list"]}
        for panel in (each for one in board["panels"] for each in (one, *one.get("panels", ()))):
            row = panel["title"] if panel["type"] == "row" else row
            for target in panel.get("targets", []):
                expression = _VARIABLE.sub(partial(_filled, known), target["expr"])
                title = f"{panel['id']} {panel['title']}"
                found.append(Query(board["title"], row, title, expression, bool(target.get("instant"))))
    return found


def _filled(known: dict[str, str], match: re.Match[str]) -> str:
    return known[match[1]]


def _value(variable: dict[str, Any]) -> str:
    """Returns what a variable stands for when the board is opened."""
    value = variable.get("current", {}).get("value", "")
    value = value[0] if isinstance(value, list) and value else value
    return str(variable.get("allValue") or ".*") if value in ("$__all", "", []) else str(value)


def series(query: Query, prometheus: Prometheus) -> list[Series]:
    """Returns what a panel shows: the present value, or the last minute."""
    if query.instant:
        return prometheus.instant(query.expression)
    return prometheus.last(query.expression, seconds=_LOOK_BACK_SECONDS)


def wait_for_series(asked: Sequence[Query], prometheus: Prometheus) -> None:
    """Waits until every query gives series.

    Raises:
        AssertionError: Some did not in time; the message names them.
    """
    missing: list[Query] = []

    def all_there() -> bool:
        missing[:] = [query for query in asked if not series(query, prometheus)]
        return not missing

    try:
        wait_until(all_there, "series for every query", seconds=90, pause_seconds=5)
    except AssertionError:
        lines = "\n".join(f"{query.board} / {query.panel}: {query.expression}" for query in missing)
        raise AssertionError(f"no series for:\n{lines}") from None
