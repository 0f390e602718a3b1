"""Tests that someone is told: Prometheus, Alertmanager and the address that it posts to are real."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.deploy.promql import DEPLOY
from tests.nightly.stack import images
from tests.nightly.stack.machine import run, wait_until
from tests.ports import reserve_ports

pytestmark = pytest.mark.timeout(900)

WITH_TEMPLATES = (
    'mount -t tmpfs none /usr/share/prometheus && cp -r "$1" /usr/share/prometheus/alertmanager && shift && exec "$@"'
)
"""Runs Debian's program, whose templates have a fixed place, without installing it."""


class Receiver(HTTPServer):
    """Keeps what is posted to it."""

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), Post)

    def alerts(self, status: str) -> dict[str, dict[str, Any]]:
        """Returns the alerts that were posted with a status, by name."""
        found = (alert for message in self.posted for alert in message["alerts"] if alert["status"] == status)
        return {alert["labels"]["alertname"]: alert for alert in found}


class Post(BaseHTTPRequestHandler):
    """A request to the receiver."""

    server: Receiver

    def do_POST(self) -> None:
        """Keeps a message."""
        self.server.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the standard library
        """Prints nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Listens as a chat or a pager does."""
    with Receiver() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def running(log: Path, *command: str | Path) -> Iterator[None]:
    """Runs a program during a block."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.kill()


def test_a_learner_that_is_down_is_told_with_links_that_work(receiver: Receiver, tmp_path: Path) -> None:
    """LearnerDown reaches the address in the secret file with the shipped configuration, and its runbook is on Prometheus."""
    tools = images.fetch_alertmanager(tmp_path / "tools")
    run([tools / "amtool", "check-config", DEPLOY / "alertmanager" / "alertmanager.yml"])
    learner, alerts, metrics = (reserve_ports() for _ in range(3))
    (tmp_path / "webhook_url").write_text(f"http://127.0.0.1:{receiver.server_port}/alerts\n")
    config = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text().replace("/secrets/", f"{tmp_path}/")
    (tmp_path / "alertmanager.yml").write_text(config.replace("group_wait: 30s", "group_wait: 1s"))
    shutil.copytree(DEPLOY / "prometheus" / "rules", tmp_path / "rules")
    config = (DEPLOY / "prometheus" / "prometheus.yml").read_text().replace("${GRAFANA_URL}", "http://grafana.example")
    config = config.replace("learner:9464", f"127.0.0.1:{learner}").replace("alertmanager:9093", f"127.0.0.1:{alerts}")
    (tmp_path / "prometheus.yml").write_text(config)
    server = (
        *(
            "unshare",
            "--mount",
            "sh",
            "-c",
            WITH_TEMPLATES,
            "sh",
            tools.parent / "share" / "prometheus" / "alertmanager",
        ),
        *(tools / "prometheus-alertmanager", f"--config.file={tmp_path}/alertmanager.yml"),
        *(f"--storage.path={tmp_path}/a", "--cluster.listen-address=", f"--web.listen-address=127.0.0.1:{alerts}"),
    )
    prometheus = (
        *("prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/p"),
        *(f"--web.listen-address=127.0.0.1:{metrics}", f"--web.external-url=http://127.0.0.1:{metrics}"),
        *("--web.route-prefix=/", f"--web.console.templates={DEPLOY}/prometheus/consoles"),
    )
    with running(tmp_path / "alertmanager.log", *server), running(tmp_path / "prometheus.log", *prometheus):
        alert = wait_until(lambda: receiver.alerts("firing").get("LearnerDown"), "an alert", seconds=400)
        assert alert["labels"]["severity"] == "critical"
        assert alert["annotations"]["dashboard_url"] == "http://grafana.example/d/rollcast-training"
        url, anchor = alert["annotations"]["runbook_url"].split("#")
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - of our own Prometheus
            assert "text/html" in answer.headers["Content-Type"]
            assert re.search(rf'<h2 id="{anchor}">LearnerDown</h2>', answer.read().decode())
