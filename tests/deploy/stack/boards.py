"""The queries of Grafana's boards, with Grafana's variables replaced as Grafana would."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        board: the title of the board.
        panel: the number and title of the panel.
        expression: the query, without variables.
        instant: whether the panel asks for the present value only.
    """

    board: str
    panel: str
    expression: str
    instant: bool


def queries(folder: Path) -> list[Query]:
    """Returns all queries of all boards in a folder, in order."""
    return [query for path in sorted(folder.glob("*.json")) for query in _of_board(json.loads(path.read_text("utf-8")))]


def _of_board(board: dict[str, Any]) -> Iterator[Query]:
    variables = {**_OF_GRAFANA, **{one["name"]: _value(one) for one in board.get("templating", {}).get("list", [])}}
    for panel in _panels(board["panels"]):
        for target in panel.get("targets", []):
            yield Query(
                board=board["title"],
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
        AssertionError: a variable is not known.
    """

    def replaced(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        assert name in variables, f"${name} is no variable of the board: {expression}"
        return variables[name]

    return _VARIABLE.sub(replaced, expression)
