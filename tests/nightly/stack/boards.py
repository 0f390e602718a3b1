"""Reads the queries of Grafana's boards and replaces their variables."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
_VARIABLE = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$(\w+)")


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Attributes:
        board: The title of the board.
        row: The title of the row.
        panel: The number and title of the panel.
        expression: The query, without variables.
        instant: Whether the panel asks for the present value only.
    """

    board: str
    row: str
    panel: str
    expression: str
    instant: bool


def queries(folder: Path) -> list[Query]:
    """Returns all queries of all boards in a folder, in order."""
    return [query for path in sorted(folder.glob("*.json")) for query in _of_board(json.loads(path.read_text("utf-8")))]


def without_series(asked: Iterable[Query], prometheus: Prometheus) -> Iterator[Query]:
    """Yields the queries that gave no series in the last minute."""
    for query in asked:
        if not series(query, prometheus):
            yield query


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
    last: list[Query] = []

    def all_there() -> bool:
        last[:] = without_series(asked, prometheus)
        return not last

    try:
        wait_until(all_there, "series for every query", seconds=90, pause_seconds=5)
    except AssertionError:
        missing = "\n".join(f"{query.board} / {query.panel}: {query.expression}" for query in last)
        raise AssertionError(f"no series for:\n{missing}") from None


def _of_board(board: dict[str, Any]) -> Iterator[Query]:
    variables = {**_OF_GRAFANA, **{one["name"]: _value(one) for one in board.get("templating", {}).get("list", [])}}
    row = ""
    for panel in _panels(board["panels"]):
        if panel["type"] == "row":
            row = panel["title"]
        for target in panel.get("targets", []):
            yield Query(
                board=board["title"],
                row=row,
                panel=f"{panel['id']} {panel.get('title', '')}",
                expression=_filled(target["expr"], variables),
                instant=bool(target.get("instant")),
            )


def _panels(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields all panels, those in collapsed rows too."""
    for panel in panels:
        yield panel
        yield from _panels(panel.get("panels", []))


def _value(variable: dict[str, Any]) -> str:
    """Returns what a variable stands for when the board is opened."""
    current = variable.get("current", {}).get("value", "")
    value = current[0] if isinstance(current, list) and current else current
    if value in ("$__all", "", []):
        return str(variable.get("allValue") or ".*")
    return str(value)


def _filled(expression: str, variables: dict[str, str]) -> str:
    """Returns a query with its variables replaced.

    Raises:
        AssertionError: A variable is not known.
    """

    def replaced(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        assert name in variables, f"${name} is no variable of the board: {expression}"
        return variables[name]

    return _VARIABLE.sub(replaced, expression)
