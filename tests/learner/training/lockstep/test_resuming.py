"""Tests resuming a lock-step run whose newest checkpoint is ahead of its run state."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from learner.shared.runfolder.runfolder import RunFolder
from learner.shared.settings.options import RunOptions
from learner.training.lockstep.resuming import is_over
from tests.learner.service.ingest.parts import NAME
from tests.learner.starts import SETTINGS, begun, opened
from tests.learner.training.lockstep.test_saving import in_lockstep

Lines = list[MutableMapping[str, Any]]


def options(max_steps: int, *, behavior: str = NAME, **rollcast: Any) -> RunOptions:
    """Returns a lock-step run file, with changes."""
    document = {"behaviors": {behavior: {**SETTINGS, "max_steps": max_steps}}, "rollcast": {"lockstep": {}, **rollcast}}
    return RunOptions.model_validate(document)


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[tuple[RunFolder, int]]:
    """Returns a run that ended two updates after its run state, and the step of its end."""
    with begun(tmp_path, 1) as (folder, start, trainer):
        in_lockstep(start, 2)
        start.keeper.save_round({NAME: trainer})
        start.train(trainer, 2)
        trainer.save_model()
        step = trainer.get_step
    with opened(tmp_path, resume=True) as folder:
        yield folder, step


def looked(run: RunOptions, folder: RunFolder) -> tuple[bool, Lines]:
    """Returns the decision and the log."""
    with capture_logs() as lines:
        return is_over(run, folder), lines


def test_a_finished_run_is_not_repeated(ended: tuple[RunFolder, int]) -> None:
    """A finished run is not repeated; one line names the setting and the step to continue from."""
    folder, step = ended
    over, (line,) = looked(options(step), folder)
    assert over
    assert (line["event"], line["behavior"], line["step"], line["max_steps"]) == ("nothing_to_train", NAME, step, step)
    assert "is finished and its files do not change: raise max_steps to continue from round 2, " in line["action"]
    assert f"--set behaviors.{NAME}.max_steps={2 * step}" in line["action"]


def test_a_run_that_repeats_says_how_far_it_goes_back(ended: tuple[RunFolder, int]) -> None:
    """A run that repeats rounds logs both steps and the kept files."""
    folder, step = ended
    over, (line,) = looked(options(step + 1), folder)
    assert not over
    assert (line["event"], line["newest_step"]) == ("lockstep_goes_back", step)
    assert 0 < line["step"] < step
    assert "round 2 are repeated" in line["note"]
    assert f"{NAME}-{step}.onnx" in line["note"]


@pytest.mark.parametrize(
    "run",
    [options(1, lockstep=None), options(1, resume_checkpoint="best"), options(1, behavior="Other")],
    ids=["not in lock-step", "from another checkpoint", "of another behavior"],
)
def test_other_starts_are_left_alone(ended: tuple[RunFolder, int], run: RunOptions) -> None:
    """Ordinary runs, and those with --checkpoint, are not affected."""
    over, lines = looked(run, ended[0])
    assert not over
    assert [line["event"] for line in lines] == (["lockstep_goes_back"] if "Other" in run.behaviors else [])


def test_a_run_without_a_newer_checkpoint_says_nothing(tmp_path: Path) -> None:
    """A run whose newest checkpoint is the run state, or unreadable, continues silently."""
    with begun(tmp_path) as (folder, start, trainer):
        trainers = {NAME: trainer}
        in_lockstep(start, 2)
        start.keeper.save_round(trainers)
    with opened(tmp_path, resume=True) as folder:
        assert looked(options(10), folder) == (False, [])
        folder.newest_checkpoint(NAME).write_bytes(b"damaged")
        assert looked(options(10), folder) == (False, [])
