"""Tests that Grafana's boards are complete and read only existing metrics."""

import itertools
import re
from typing import Any

import pytest
import yaml

from tests.deploy.promql import DEPLOY, boards, metric_names, queries, rules
from tests.deploy.reference import documented

BOARDS = boards()
KNOWN = documented() | {record.name for record in rules("record")} | {"ALERTS"}


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_no_panel_lies_on_another(board: dict[str, Any]) -> None:
    """Panel ids are unique, and panels do not overlap within the 24 columns."""
    identifiers = [panel["id"] for panel in board["panels"]]
    assert len(set(identifiers)) == len(identifiers)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        columns, lines = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        assert 0 <= columns.start < columns.stop <= 24
        cells = set(itertools.product(columns, lines))
        assert not cells & taken, panel["title"]
        taken |= cells


def test_queries_read_only_what_is_there() -> None:
    """All names in queries are documented metrics or recorded series, filtered by the board's variables."""
    chosen = {"job", "actor_job", "instance", "behavior"}
    for name, board in BOARDS.items():
        assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", *chosen}, name
    for query in queries():
        names = metric_names(query.expr)
        assert names - KNOWN == set(), query
        assert set(re.findall(r"\$(\w+)", query.expr)) <= {*chosen, "__rate_interval"}, query
        series = sum(len(re.findall(rf"\b{name}\b", query.expr)) for name in names)
        assert len(re.findall(r'job=~?"\$', query.expr)) == series, query


def test_grafana_takes_the_boards_from_their_folder_and_keeps_no_changes() -> None:
    """Provisioned boards cannot be changed in the browser."""
    provisioning = DEPLOY / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "rollcast.yml").read_text())["providers"]
    assert provider["allowUiUpdates"] is False
    assert provider["disableDeletion"] is True
    compose = (DEPLOY.parent / "docker-compose.yml").read_text()
    assert provider["options"]["path"] in compose
