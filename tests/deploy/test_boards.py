"""Tests that Grafana's boards are complete and read only existing metrics."""

import re

from tests.deploy.promql import boards, metric_names, queries, rules
from tests.deploy.reference import documented

BOARDS = boards()
KNOWN = documented() | {record.name for record in rules("record")} | {"ALERTS"}


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
