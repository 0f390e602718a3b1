"""Tests that old files of ML-Agents are named in one line, which leads to the place of each setting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.lint import PAGE
from learner.shared.settings.load import load_run_options
from tests.learner.shared.settings.conftest import WriteRun

ROOT = Path(__file__).parents[4]
OLD = {
    "flat, with defaults": ("default: {trainer: ppo, batch_size: 64, use_recurrent: false}\nWalker: {max_steps: 1.0e4}\n", "trainer file"),
    "one behavior": ("Walker:\n    trainer: sac\n    tau: 0.005\n", "trainer file"),
    "of 0.4": ("default: {beta: 5.0e-3, use_curiosity: true, gamma: 0.99}\nPyramidBrain: {curiosity_strength: 0.01}\n", "trainer file"),
    "imitation": ("StudentBrain: {trainer: imitation, brain_to_imitate: TeacherBrain, batches_per_epoch: 5}\n", "trainer file"),
    "a curriculum in JSON": ('{"measure": "reward", "thresholds": [10], "min_lesson_length": 2, "parameters": {"a": [1, 2]}}', "curriculum file"),
    "a curriculum": ("Walker:\n  measure: progress\n  thresholds: [0.1]\n  parameters: {wall: [1.5, 2.0]}\n", "curriculum file"),
    "samplers": ("resampling-interval: 5000\nmass: {sampler-type: uniform, min_value: 0.5, max_value: 10}\n", "sampler file"),
    "samplers alone": ("mass: {sampler-type: gaussian, mean: 0.5}\n", "sampler file"),
    "of release 3": ("behaviors: {A: {}}\nparameter_randomization: {resampling-interval: 5000}\n", "run file"),
    "lessons of release 3": ("behaviors: {A: {}}\ncurriculum: {A: {measure: progress, thresholds: [0.1]}}\n", "run file"),
}  # fmt: skip


@pytest.mark.parametrize("case", OLD)
def test_an_old_file_is_named(write_run: WriteRun, case: str) -> None:
    """One line has the format and the way out, not an error for each key; the page that it names exists."""
    text, kind = OLD[case]
    with pytest.raises(UserError) as caught:
        load_run_options(write_run(text))
    assert caught.value.exit_code is ExitCode.RUN_FILE
    assert re.search(rf"run\.yaml: is a {kind} of ML-Agents (before|of the) release", caught.value.message)
    assert caught.value.details == ()
    page, _, heading = PAGE.partition("#")
    assert f"## {heading.replace('-', ' ').capitalize()}\n" in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text", ["behaviour: {A: {max_steps: 5}}\n", "behavior:\n  A: {trainer_type: ppo}\n", "gravity: {a: 1}\n"]
)
def test_a_slip_is_no_old_format(write_run: WriteRun, text: str) -> None:
    """A misspelled key is told of as such."""
    with pytest.raises(UserError, match="unknown key"):
        load_run_options(write_run(text))
