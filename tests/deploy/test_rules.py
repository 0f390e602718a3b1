"""Tests that recording rules and alerts are complete and fit the metrics."""

import re

import pytest
import yaml

from deploy import runbook
from tests.deploy.promql import RULE_TESTS, Rule, boards, metric_names, queries, rules
from tests.deploy.reference import documented

ALERTS = rules("alert")
RECORDS = rules("record")
ALERT_IDS = [alert.name for alert in ALERTS]
KNOWN = documented() | {record.name for record in RECORDS}


def test_alerts_have_runbooks_boards_and_tests() -> None:
    """Each alert leads to its runbook and to a board, each runbook and test has its alert, and none occurs twice."""
    text = runbook.SOURCE.read_text()
    assert sorted(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == sorted(ALERT_IDS)
    assert runbook.PAGE.read_text() == runbook.page(text), "python deploy/runbook.py writes it"
    assert sorted(path.stem for path in RULE_TESTS.glob("*.yml")) == sorted(ALERT_IDS)
    paths = {f"/d/{board['uid']}" for board in boards().values()}
    for alert in ALERTS:
        runbook_url = f"{{{{ $externalURL }}}}/consoles/{runbook.PAGE.name}#{alert.name.lower()}"
        assert alert.fields["annotations"]["runbook_url"] == runbook_url
        assert f'id="{alert.name.lower()}"' in runbook.PAGE.read_text()
        assert alert.fields["annotations"]["dashboard_url"].removeprefix("{{ $externalLabels.grafana }}") in paths


@pytest.mark.parametrize("alert", ALERTS, ids=ALERT_IDS)
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


def test_rules_read_only_what_is_there() -> None:
    """All names in expressions are documented metrics or recorded series, each of which an alert or a board reads."""
    assert {rule.name: metric_names(rule.expr) - KNOWN for rule in (*RECORDS, *ALERTS)} == {
        rule.name: set() for rule in (*RECORDS, *ALERTS)
    }
    expressions = [alert.expr for alert in ALERTS] + [query.expr for query in queries()]
    assert {record.name for record in RECORDS} <= {name for expr in expressions for name in metric_names(expr)}
