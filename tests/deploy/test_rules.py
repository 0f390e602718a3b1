"""Tests that recording rules and alerts are complete and fit the metrics."""

import re

import pytest
import yaml

from tests.deploy.promql import DEPLOY, RULE_TESTS, Rule, boards, metric_names, panels, queries, rules
from tests.deploy.reference import documented

ALERTS = rules("alert")
RECORDS = rules("record")
ALERT_IDS = [alert.name for alert in ALERTS]
KNOWN = documented() | {record.name for record in RECORDS}

every_alert = pytest.mark.parametrize("alert", ALERTS, ids=ALERT_IDS)


def test_the_names_in_an_expression_are_found() -> None:
    """Functions, labels, strings, numbers and key words are not metric names."""
    expr = """
        (time() - max by (job, instance) (a_seconds or b:c:d)) > 2 * 1e-3
        and on (job) rate(e_total{f="g", h=~"i|j"}[5m]) / on () group_left (k) sum(l{m="}"}[1h:1m] offset 5m) != 0.5
    """
    assert metric_names(expr) == {"a_seconds", "b:c:d", "e_total", "l"}


@every_alert
def test_an_alert_says_what_is_wrong_how_badly_and_what_to_do(alert: Rule) -> None:
    """An alert has a duration, a severity, a summary, a description with a number, a runbook and a board."""
    assert re.fullmatch(r"[A-Z][A-Za-z]+", alert.name)
    assert re.fullmatch(r"\d+[mh]", alert.fields["for"])
    assert alert.fields["labels"] in ({"severity": "critical"}, {"severity": "warning"}, {"severity": "info"})
    annotations = alert.fields["annotations"]
    assert set(annotations) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert len(annotations["summary"]) < 80
    assert "{{" not in annotations["summary"]
    assert re.search(r"\{\{ \$value|\d", annotations["description"])


@every_alert
def test_the_runbook_of_an_alert_is_a_heading_with_text(alert: Rule) -> None:
    """The link leads to a heading with the alert's name in deploy/README.md."""
    assert alert.fields["annotations"]["runbook_url"] == f"deploy/README.md#{alert.name.lower()}"
    text = (DEPLOY / "README.md").read_text()
    section = re.search(rf"^#+ {alert.name}\n+(.+?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, f"no heading {alert.name}"
    assert len(section[1]) > 100


def test_every_runbook_has_its_alert() -> None:
    """Every runbook belongs to an existing alert."""
    text = (DEPLOY / "README.md").read_text().partition("\n## Runbooks\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == sorted(ALERT_IDS)


@every_alert
def test_an_alert_leads_to_a_board(alert: Rule) -> None:
    """The link of an alert is the path of an existing board."""
    paths = {f"/d/{board['uid']}" for board in boards().values()}
    assert alert.fields["annotations"]["dashboard_url"] in paths


@every_alert
def test_an_alert_is_tested_both_ways(alert: Rule) -> None:
    """An alert has a test in which it fires and one in which it does not."""
    suite = yaml.safe_load((RULE_TESTS / f"{alert.name}.yml").read_text())
    assert set(suite["rule_files"]) == {"../rules/recording.yml", f"../rules/{alert.file}"}
    expected = [
        [bool(check["exp_alerts"]) for check in test["alert_rule_test"] if check["alertname"] == alert.name]
        for test in suite["tests"]
    ]
    assert any(any(checks) for checks in expected)
    assert any(checks and not any(checks) for checks in expected)
    for test, checks in zip(suite["tests"], expected, strict=True):
        assert test["name"].startswith("fires" if any(checks) else "stays quiet")


def test_every_alert_test_has_its_alert() -> None:
    """Every test file belongs to an existing alert, and no alert occurs twice."""
    assert sorted(path.stem for path in RULE_TESTS.glob("*.yml")) == sorted(ALERT_IDS)


@pytest.mark.parametrize("rule", [*RECORDS, *ALERTS], ids=[rule.name for rule in [*RECORDS, *ALERTS]])
def test_a_rule_reads_only_what_is_there(rule: Rule) -> None:
    """All names in an expression are documented metrics or recorded series."""
    assert metric_names(rule.expr) - KNOWN == set()


def test_recorded_series_are_named_by_level_metric_and_operation_and_are_used() -> None:
    """Every recorded series is used by an alert or a board."""
    expressions = [alert.expr for alert in ALERTS] + [query.expr for query in queries()]
    used = {name for expr in expressions for name in metric_names(expr)}
    for record in RECORDS:
        assert re.fullmatch(r"(job|instance|behavior|behavior_reason):\w+:(sum|ratio|\w*5m)", record.name)
        assert record.name in used


def test_a_runbook_names_panels_that_exist() -> None:
    """Each panel or board in italics exists."""
    text = (DEPLOY / "README.md").read_text().partition("\n## Runbooks\n")[2].partition("\n## ")[0]
    named = {" ".join(found.split()) for found in re.findall(r"(?<!\*)\*([A-Z0-9][^*]+)\*(?!\*)", text)}
    titles = {
        title for board in boards().values() for title in (board["title"], *(one["title"] for one in panels(board)))
    }
    assert named - titles == {"Means:", "See:", "Do:", "Critical"}
