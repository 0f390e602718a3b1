"""Tests that a fresh clone needs no preparation: `docker compose up` starts every service."""

from pathlib import Path

import pytest

from tests.nightly.stack import images
from tests.nightly.stack.stack import Stack

pytestmark = pytest.mark.timeout(1800)

SERVICES = ("learner", "actor", "prometheus", "alertmanager", "grafana")
KEPT = "/var/lib/grafana/admin_password"


def test_a_bare_up_starts_every_service(built: Stack, tmp_path: Path) -> None:
    """Without a file made by hand all five become healthy; the password of Grafana is made once, and is in no log."""
    images.make_alertmanager(tmp_path / "alertmanager")
    images.make_grafana(tmp_path / "grafana")
    try:
        built.compose("up", "-d", "--no-build")
        for service in SERVICES:
            built.wait_healthy(service)
        password = built.execute("grafana", "cat", KEPT).strip()
        assert len(password) == 24
        assert f"exec grafana cat {KEPT}" in built.logs("grafana")
        built.compose("up", "-d", "--no-build", "--force-recreate", "grafana")
        built.wait_healthy("grafana")
        assert built.execute("grafana", "cat", KEPT).strip() == password
        assert password not in built.logs("grafana")
    finally:
        built.down()
