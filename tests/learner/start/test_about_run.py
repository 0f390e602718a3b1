"""Tests what the status page shows of a run beside its numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from learner.shared.settings.load import MASK, LoadedRun, load_run_options
from learner.start.about_run import MAX_EVENTS, MAX_RUNS, AboutRun
from tests.learner.start.run_folders import progress_of, run_folder


def loaded_in(tmp_path: Path, **rollcast: object) -> LoadedRun:
    """Returns the settings of a run in a folder of results."""
    document = {
        "behaviors": {"Walker": {"trainer_type": "ppo", "max_steps": 777}},
        "env_settings": {"env_args": ["--licence", "hunter2"]},
        "checkpoint_settings": {"run_id": "mine", "results_dir": str(tmp_path / "results")},
        "rollcast": rollcast,
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_run_options(path)


def test_settings_events_and_runs(tmp_path: Path) -> None:
    """The document has each setting with its origin, the newest events first, and the runs of the folder."""
    results = tmp_path / "results"
    events = [{"event": "started"}, {"event": "actor_joined", "actor": "worker"}]
    folder = run_folder(results, "mine", progress=progress_of(), events=events)
    run_folder(results, "other", progress=progress_of())
    about = AboutRun(folder, loaded_in(tmp_path), "http://127.0.0.1:50053/")()
    settings = {row["name"]: row for row in about["settings"]}
    assert settings["behaviors.Walker.max_steps"] == {
        "name": "behaviors.Walker.max_steps",
        "value": 777,
        "is_default": False,
    }
    assert settings["behaviors.Walker.hyperparameters.num_epoch"]["is_default"]
    assert [event["event"] for event in about["events"]] == ["actor_joined", "started"]
    assert {run["run_id"] for run in about["runs"]} == {"mine", "other"}
    assert about["tensorboard"] == f"tensorboard --logdir {results}"
    assert about["clients_page"] == "http://127.0.0.1:50053/"
    json.dumps(about, allow_nan=False)


def test_no_secret_is_shown(tmp_path: Path) -> None:
    """Arguments of the simulator, which may hold a licence, and secrets of a folder are hidden."""
    text = json.dumps(AboutRun(run_folder(tmp_path / "results", "mine"), loaded_in(tmp_path))())
    assert "hunter2" not in text
    assert MASK in text


def test_a_run_without_tensorboard_names_no_command(tmp_path: Path) -> None:
    """The command is there only if there are curves to show."""
    loaded = loaded_in(tmp_path, stats_writers=["csv"])
    assert AboutRun(run_folder(tmp_path / "results", "mine"), loaded)()["tensorboard"] == ""


@pytest.mark.parametrize("content", [b"", b"\xff\xfe{", b"[" * 100000, b"7\nnull\n[]\n", b'{"event": '])
def test_a_damaged_journal_is_no_error(tmp_path: Path, content: bytes) -> None:
    """A journal of any content gives the events that can be read, here none."""
    folder = run_folder(tmp_path / "results", "mine")
    (folder / "events.jsonl").write_bytes(content)
    assert AboutRun(folder, loaded_in(tmp_path))()["events"] == []


def test_it_stays_small(tmp_path: Path) -> None:
    """Of many events and runs the newest are sent."""
    results = tmp_path / "results"
    folder = run_folder(results, "mine", events=[{"event": f"event-{index}"} for index in range(MAX_EVENTS + 50)])
    for index in range(MAX_RUNS + 5):
        run_folder(results, f"run-{index}")
    about = AboutRun(folder, loaded_in(tmp_path))()
    assert (len(about["events"]), len(about["runs"])) == (MAX_EVENTS, MAX_RUNS)
    assert about["events"][0]["event"] == f"event-{MAX_EVENTS + 49}"


def test_a_results_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    """Without the folder there are no events and no runs."""
    about = AboutRun(tmp_path / "results" / "mine", loaded_in(tmp_path))()
    assert (about["events"], about["runs"]) == ([], [])
