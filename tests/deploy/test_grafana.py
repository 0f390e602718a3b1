"""Tests the password that Grafana's first start makes; tests/nightly/stack/test_bare.py starts it in a container."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.deploy.promql import DEPLOY

pytestmark = pytest.mark.slow
PRINT = ("sh", "-c", 'cat "${GF_SECURITY_ADMIN_PASSWORD__FILE:-/dev/null}"')
"""Prints the password that Grafana would read."""


def started(folder: Path) -> list[str]:
    """Starts with a folder of data; returns the lines that are printed, the password last."""
    environment = {"PATH": os.environ["PATH"], "GF_PATHS_DATA": str(folder)}
    command = ["sh", str(DEPLOY / "grafana" / "start.sh"), *PRINT]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_the_first_start_makes_a_password(tmp_path: Path) -> None:
    """It is long, readable by its user alone, and kept; the log says how to read it, and not what it is."""
    said, password = started(tmp_path)
    kept = tmp_path / "admin_password"
    assert len(password) == 24
    assert said == f"made a password for admin: docker compose exec grafana cat {kept}"
    assert kept.stat().st_mode & 0o777 == 0o600
    (tmp_path / "grafana.db").touch()
    assert started(tmp_path) == [password] == kept.read_text().split()


def test_a_grafana_that_has_a_password_gets_none(tmp_path: Path) -> None:
    """A database of an earlier release has its own, so that another in a file would be wrong."""
    (tmp_path / "grafana.db").touch()
    assert started(tmp_path) == []
    assert list(tmp_path.iterdir()) == [tmp_path / "grafana.db"]
