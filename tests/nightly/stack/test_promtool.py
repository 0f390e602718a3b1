"""Tests Prometheus' configuration and rules with promtool."""

import subprocess
from pathlib import Path

import pytest

from tests.deploy.promql import DEPLOY, RULE_TESTS, RULES

SUITES = sorted(RULE_TESTS.glob("*.yml"))


def promtool(*arguments: str) -> str:
    """Runs promtool and returns what it prints; it must succeed."""
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_configuration_is_accepted() -> None:
    """Promtool accepts the configuration and finds the rules."""
    out = promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))
    assert all(path.name in out for path in RULES.glob("*.yml"))


@pytest.mark.parametrize("suite", SUITES, ids=[path.stem for path in SUITES])
def test_an_alert_fires_when_it_should_and_only_then(suite: Path) -> None:
    """Each alert fires when it must, and only then."""
    assert "SUCCESS" in promtool("test", "rules", str(suite))
