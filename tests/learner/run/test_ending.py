"""What a run leaves on the screen and in its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import structlog

from learner.app import write_ending
from learner.run.stopping import Stop
from tests.learner.ingest.parts import NAME
from tests.learner.starts import Start, opened


def test_the_summary_tells_what_the_table_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both name the reason, the books and the model."""
    with opened(tmp_path) as folder:
        start = Start(folder, 3)
        start.join()
        start.parts.ledger.reject(NAME, "not_finite", 12)
        behaviors, models = start.parts.behaviors.all(), {NAME: folder.final_model(NAME)}
        write_ending(folder, start.run_status, behaviors, models, Stop("target_return", final=True), generation=3)
        content = json.loads((folder.path / "summary.json").read_text())
    said = capsys.readouterr().out
    assert (content["run_id"], content["generation"], content["stop_reason"]) == ("run", 3, "target_return")
    assert content["ledger"]["dropped"] == {"not_finite": 12}
    assert content["onnx_path"] == str(folder.final_model(NAME))
    assert "run run ended: target_return" in said
    assert "not_finite 12" in said


def test_a_full_disk_costs_the_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table is printed and the reason logged."""
    with opened(tmp_path) as folder:
        start = Start(folder, 1)
        folder.path.rename(tmp_path / "aside")
        with structlog.testing.capture_logs() as logs:
            write_ending(folder, start.run_status, (), {}, Stop("signal", final=False), generation=1)
    assert [line["event"] for line in logs] == ["summary_failed"]
    assert "summary.json" in logs[0]["error"]
    assert "run run ended: signal" in capsys.readouterr().out
