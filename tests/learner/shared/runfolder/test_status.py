"""Tests the status file."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from learner.shared.runfolder.status import CheckpointEntry, TrainingStatus

ENTRY = CheckpointEntry(500, "results/run/Walker/Walker-500.onnx", 1.5, 1700000000.0, ("results/run/Walker/a.pt",))


def test_the_keys_are_those_of_ml_agents(tmp_path: Path) -> None:
    """ML-Agents' tools find metadata, checkpoints and lessons under their own keys; a resumed run reads them back."""
    status = TrainingStatus()
    status.set_checkpoints("Walker", [ENTRY])
    status.set_final("Walker", ENTRY)
    status.set_lesson("wall_height", 2)
    status.write(tmp_path / "status.json")
    document = json.loads((tmp_path / "status.json").read_text())
    assert set(document["metadata"]) == {"stats_format_version", "mlagents_version", "torch_version"}
    assert document["metadata"]["stats_format_version"] == "0.3.0"
    listed = {
        "steps": 500,
        "file_path": "results/run/Walker/Walker-500.onnx",
        "reward": 1.5,
        "creation_time": 1700000000.0,
        "auxillary_file_paths": ["results/run/Walker/a.pt"],
    }
    assert document["Walker"] == {"checkpoints": [listed], "final_checkpoint": listed}
    assert document["wall_height"] == {"lesson_num": 2}
    again = TrainingStatus.load(tmp_path / "status.json")
    assert (again.checkpoints("Walker"), again.checkpoints("Unknown")) == ([ENTRY], [])
    assert again.lessons(["wall_height", "Unknown"]) == {"wall_height": 2}


@pytest.mark.parametrize("reward", [math.nan, math.inf, None])
def test_a_reward_that_is_no_number_is_null(tmp_path: Path, reward: float | None) -> None:
    """NaN is written as null."""
    status = TrainingStatus()
    status.set_checkpoints("W", [CheckpointEntry(1, "x", reward, 0.0, ())])
    status.write(tmp_path / "status.json")
    document = json.loads((tmp_path / "status.json").read_text(), parse_constant=pytest.fail)
    assert document["W"]["checkpoints"][0]["reward"] is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "[" * 100_000,
        '{"W": 3}',
        '{"W": {"checkpoints": 3, "elo": "x"}}',
        '{"W": {"checkpoints": [3, {}, {"steps": "x"}, {"steps": true}], "lesson_num": 2.5}}',
        '{"W": {"checkpoints": [{"steps": 1, "file_path": "x", "reward": "y", "auxillary_file_paths": []}]}}',
    ],
)
def test_a_damaged_file_is_begun_anew(tmp_path: Path, text: str) -> None:
    """A damaged status file is replaced."""
    (tmp_path / "status.json").write_text(text)
    status = TrainingStatus.load(tmp_path / "status.json")
    assert status.checkpoints("W") == []
    assert status.lessons(["W"]) == {}


def test_a_behavior_may_bear_any_name(tmp_path: Path) -> None:
    """A behavior named metadata does not replace the metadata."""
    status = TrainingStatus()
    status.set_checkpoints("metadata", [ENTRY])
    status.write(tmp_path / "status.json")
    assert "stats_format_version" in json.loads((tmp_path / "status.json").read_text())["metadata"]


def test_a_pipe_is_begun_anew(tmp_path: Path) -> None:
    """A pipe in the place of the file is replaced without waiting."""
    os.mkfifo(tmp_path / "training_status.json")
    with capture_logs() as logs:
        assert TrainingStatus.load(tmp_path / "training_status.json").checkpoints("CartPole") == []
    assert [entry["log_level"] for entry in logs] == ["warning"]
