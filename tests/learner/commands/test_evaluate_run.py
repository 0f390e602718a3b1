"""What `evaluate` looks at before it serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from learner.commands.evaluate_run import EvaluationRequest, evaluate, table
from learner.common.exits import ExitCode, UserError
from learner.link.evaluation import EvaluationResult, Played
from learner.settings.load import load_run_options


@pytest.mark.parametrize("name", ["", ".", "nowhere/results.json"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_played(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No name, a folder, and a folder that is not there."""
    monkeypatch.chdir(tmp_path)
    run_file = tmp_path / "run.yaml"
    run_file.write_text("default_settings: {trainer_type: ppo}\n")
    request = EvaluationRequest(
        folder=tmp_path,
        loaded=load_run_options(run_file, cli={}, environ={}),
        checkpoint="last",
        episodes=1,
        actors=1,
        behavior=None,
        is_deterministic=None,
        seed=1,
    )
    with pytest.raises(UserError, match="--json") as caught:
        evaluate(request, json_file=name)
    assert caught.value.exit_code is ExitCode.USAGE


def test_a_checkpoint_that_is_named_by_a_later_step_is_explained() -> None:
    """Steps that were collected and not trained are in the name of a file, and in no policy."""
    played = [Played(1.0, 5)]
    result = EvaluationResult.of("Corridor", played, step=9695, version=14, is_deterministic=True)
    (head, *_) = table([result], {"Corridor": 10659}).splitlines()
    assert head == (
        "Corridor: 1 episodes at step 9695 (version 14; its checkpoint is named 10659: 964 steps were collected and not "
        "trained), deterministic"
    )
    for named in ({}, {"Corridor": 9695}):
        (head, *_) = table([result], named).splitlines()
        assert head == "Corridor: 1 episodes at step 9695 (version 14), deterministic"
