"""Tests the announcement of a learner's addresses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from structlog.testing import capture_logs

from learner.commands.announcing import announce
from learner.observe.address import BoundAddresses, read_addresses


def test_the_log_says_whether_connections_are_encrypted(tmp_path: Path) -> None:
    """With a certificate the line says TLS, without one plain text; the file has the same addresses."""
    folder = SimpleNamespace(path=tmp_path, run_id="run", resuming=False)
    plain = BoundAddresses("127.0.0.1:1", "127.0.0.1:2")
    for bound, security in ((plain, "plain text"), (replace(plain, tls=True), "TLS")):
        with capture_logs() as logs:
            announce(folder, bound, page="", generation=1, seed=1)  # type: ignore[arg-type]
        assert [entry["security"] for entry in logs] == [security]
        assert read_addresses(tmp_path) == bound
