"""Tests what `evaluate` finds in a run folder before actors connect."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from learner.shared.exits import ExitCode, UserError
from learner.shared.runfolder.store import encode_behavior, last_states, read_run_state
from learner.start.finished_run import SavedPolicies
from tests.learner.service.ingest.parts import NAME
from tests.learner.starts import begun


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Makes a finished run with a run state and a checkpoint."""
    with begun(tmp_path, 1) as (run, start, trainer):
        start.keeper.save_behavior(trainer)
        start.keeper.save_all({NAME: trainer})
    return run.path


def refused(folder: Path, checkpoint: str, behavior: str | None = None) -> UserError:
    """Returns the error message."""
    with pytest.raises(UserError) as caught:
        SavedPolicies(folder, checkpoint, behavior)
    return caught.value


def test_the_behaviors_are_known_before_actors_come(folder: Path) -> None:
    """Names and specs are known before actors connect; an unknown name is refused with the known ones."""
    found = SavedPolicies(folder, "last", NAME)
    assert found.names == (NAME,)
    assert found.behaviors_table is not None
    assert found.named_steps == {}
    (path,) = (folder / NAME).glob(f"{NAME}-*.pt")
    assert path.name == f"{NAME}-{SavedPolicies(folder, str(path), NAME).named_steps[NAME]}.pt"
    error = refused(folder, "last", "Nope")
    assert (error.exit_code, NAME in error.message, "'Nope'" in error.message) == (ExitCode.USAGE, True, True)


def test_a_checkpoint_that_is_missing_or_damaged_is_refused_at_once(folder: Path) -> None:
    """A missing step is refused with those that are kept; a damaged file is named."""
    error = refused(folder, "12345")
    assert error.exit_code is ExitCode.BAD_CHECKPOINT
    assert "a kept step (kept:" in error.message
    for path in folder.glob("run_state*.pt"):
        path.write_bytes(b"damaged")
    assert SavedPolicies(folder, "last", NAME).names == (NAME,)  # the newest checkpoint is the same policy
    newest = folder / NAME / "checkpoint.pt"
    newest.write_bytes(newest.read_bytes()[:200])
    error = refused(folder, "last")
    assert (error.exit_code, str(newest) in error.message) == (ExitCode.BAD_CHECKPOINT, True)
    newest.unlink()
    assert "no readable run state and no readable checkpoint" in refused(folder, "last").message


def test_training_that_ends_between_two_rounds_counts(folder: Path) -> None:
    """In lock-step, the last policy is the newest checkpoint if it has trained longer than the run state."""
    state = read_run_state(folder)
    assert state is not None
    steps = state.trainers[NAME]["steps_trained"]
    later = {**state.trainers[NAME], "steps_trained": steps + 9}
    (folder / NAME / "checkpoint.pt").write_bytes(encode_behavior(NAME, steps + 9, later))
    assert last_states(folder, state)[NAME]["steps_trained"] == steps
    in_rounds = dataclasses.replace(state, extra={**state.extra, "lockstep": {}})
    assert last_states(folder, in_rounds)[NAME]["steps_trained"] == steps + 9
    (folder / NAME / "checkpoint.pt").write_bytes(b"damaged")
    assert last_states(folder, in_rounds)[NAME]["steps_trained"] == steps
